"""The main job on Docker, HAProxy and BIND: `demo.py up` starts what is missing, converges, breaks a container and converges again.

All the while requests go through HAProxy and questions to BIND: none of the requests may fail, and the name may never be
empty. Every command is printed before it runs; the exit code is not 0 when a promise is not kept. `demo.py down` removes
everything again, and stops the servers that `up` started.
"""

import http.client
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
import servers  # noqa: E402  (beside this file)
from walk import NotAsPromised, all_serve, check, in_order, main, reconcile, replicas, say  # noqa: E402

MANIFESTS = "examples/edge"
NAME = "app.edge.test"
EDGE = servers.Edge()


def fetch(address: str, port: int, path: str) -> str:
    """One page. Raises OSError and http.client.HTTPException; another answer than 200 is an OSError too."""
    connection = http.client.HTTPConnection(address, port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace").strip()
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"http://{address}:{port}{path} answered {answer.status}")
    return text


def dig(show: bool = True) -> set[str]:
    """The addresses that BIND answers with."""
    command = ["dig", "@127.0.0.1", "-p", str(EDGE.dns), "+short", "+time=2", "+tries=1", NAME]
    if show:
        print(f"$ {' '.join(command)}", flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    if done.returncode != 0:
        raise NotAsPromised(f"dig ended with {done.returncode}: {done.stdout.strip()}")
    if show:
        print(done.stdout.rstrip(), flush=True)
    return set(done.stdout.split())


class Clients:
    """Clients of the service while something happens to it: one asks HAProxy for pages, one asks BIND for the name."""

    def __init__(self) -> None:
        self.served: dict[str, int] = {}
        self.failures: list[str] = []
        self.names: list[set[str]] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(one, pause))
            for one, pause in ((self._page, 0.01), (self._name, 0.1))
        ]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

    def _repeat(self, ask: Callable[[], None], pause: float) -> None:
        while not self._stop.wait(pause):
            try:
                ask()
            except (OSError, http.client.HTTPException, NotAsPromised) as error:
                self.failures.append(f"{type(error).__name__}: {error}")

    def _page(self) -> None:
        text = fetch("127.0.0.1", EDGE.http, "/")
        self.served[text] = self.served.get(text, 0) + 1

    def _name(self) -> None:
        self.names.append(dig(show=False))


def start_servers() -> None:
    try:
        print("\n".join(servers.up(EDGE)), flush=True)
    except servers.Trouble as trouble:
        raise NotAsPromised(str(trouble)) from None


def up() -> None:
    say("Docker, HAProxy and BIND on loopback: what does not answer is started")
    if shutil.which("dig") is None:
        raise NotAsPromised("dig was not found: apt-get install dnsutils")
    start_servers()

    say("Can every provider do its part?")
    reconcile("doctor", MANIFESTS)

    say("Three containers, in HAProxy's slots and under a name")
    reconcile("--once", MANIFESTS)
    addresses = dig()
    before = replicas(MANIFESTS)
    check(all_serve(before, 3), "three replicas are ready, and each has a weight in HAProxy")
    check(addresses == {one["address"] for one in before.values()}, f"{NAME} has their addresses")
    print(f"$ curl http://127.0.0.1:{EDGE.http}/\n{fetch('127.0.0.1', EDGE.http, '/')}", flush=True)

    say("Once more: nothing is to do")
    check("nothing to do" in reconcile("--once", MANIFESTS), "a second run has nothing to do")

    victim = min(before)
    address, container = before[victim]["address"], before[victim]["container"]
    with Clients() as clients:
        say(f"Break {victim}: it keeps running, but its probes fail")
        print(f"$ curl http://{address}:8080/cgi-bin/break\n{fetch(address, 8080, '/cgi-bin/break')}", flush=True)
        say("Converge: it leaves the pool and the name, is restarted, and comes back")
        out = reconcile("--once", MANIFESTS)
    ordered = in_order(out, "-> 0 ", f": stop {container}", f": start {container}", "-> 100 ")
    check(ordered, "weight 0, stop, start, weight again: in this order")
    requests = sum(clients.served.values())
    check(
        not clients.failures, f"{requests} requests through HAProxy meanwhile, {clients.failures[:3] or 'none'} failed"
    )
    check(requests > 0 and len(clients.served) > 1, "several containers served them")
    check(all(clients.names), f"{NAME} was never empty in {len(clients.names)} answers")
    after = replicas(MANIFESTS)
    check(all_serve(after, 3), "all three are ready and carry weight")
    gone = any(address not in answer for answer in clients.names)
    check(gone, f"{address} was not among the answers for a while")
    check(dig() == {one["address"] for one in after.values()}, "and all addresses are published again")

    say(f"Drain {victim} by hand: it gets no new requests, keeps running, and whoever looks sees why")
    with Clients() as clients:
        reconcile("drain", victim, MANIFESTS, "--for", "30m", "--reason", "looking into a leak")
        reconcile("--once", MANIFESTS, expect=7)
        reconcile("get", "endpoints", MANIFESTS)
        drained = replicas(MANIFESTS)[victim]
        check(drained["weight"] == 0 and drained["runtime"] == "running", f"{victim} runs, with weight 0")
        say("And back: pushes and probes decide again")
        reconcile("release", victim, MANIFESTS)
        reconcile("--once", MANIFESTS)
    check(all_serve(replicas(MANIFESTS), 3), "all three carry weight again")
    check(
        not clients.failures,
        f"{sum(clients.served.values())} requests meanwhile, {clients.failures[:3] or 'none'} failed",
    )

    say("Why is it as it is?")
    reconcile("explain", victim, MANIFESTS)

    say(
        "Everything keeps running. Look at it with 'reconcile status examples/edge', remove it with 'make demo-edge-down'"
    )


def down() -> None:
    if not EDGE.directory.exists():
        say(
            f"There is no {EDGE.directory}: nothing was started since the host booted. If containers are left, 'up' first"
        )
        return
    say("Remove everything that the instance owns, and stop the servers that were started")
    start_servers()
    reconcile("destroy", MANIFESTS, "--yes")
    check(not replicas(MANIFESTS), "no replica is left")
    print("\n".join(servers.down(EDGE)), flush=True)


if __name__ == "__main__":
    sys.exit(main("demo.py", sys.argv[1:], {"up": up, "down": down}))
