"""A demo on Docker, HAProxy and BIND: `demo.py up` starts missing servers, converges, breaks a container and converges again.

Meanwhile it sends requests through HAProxy and queries BIND: no request may fail, and the name may never be empty. It prints every
command before it runs. The exit code is not 0 when a check fails. `demo.py down` removes everything and stops the servers that
`up` started.
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
from walk import CheckFailed, all_serve, check, in_order, main, reconcile, replicas, say  # noqa: E402

MANIFESTS = "examples/edge"
NAME = "app.edge.test"
EDGE = servers.Edge()


def fetch(address: str, port: int, path: str) -> str:
    """One page. Raises OSError (also for a status other than 200) and http.client.HTTPException."""
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
    """The addresses in BIND's answer."""
    command = ["dig", "@127.0.0.1", "-p", str(EDGE.dns), "+short", "+time=2", "+tries=1", NAME]
    if show:
        print(f"$ {' '.join(command)}", flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    if done.returncode != 0:
        raise CheckFailed(f"dig ended with {done.returncode}: {done.stdout.strip()}")
    if show:
        print(done.stdout.rstrip(), flush=True)
    return set(done.stdout.split())


class Clients:
    """Two clients of the service: one requests pages from HAProxy, one queries BIND for the name."""

    def __init__(self) -> None:
        self.served: dict[str, int] = {}
        self.failures: list[str] = []
        self.names: list[set[str]] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(request, pause))
            for request, pause in ((self._page, 0.01), (self._name, 0.1))
        ]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

    def _repeat(self, request: Callable[[], None], pause: float) -> None:
        while not self._stop.wait(pause):
            try:
                request()
            except (OSError, http.client.HTTPException, CheckFailed) as error:
                self.failures.append(f"{type(error).__name__}: {error}")

    def _page(self) -> None:
        text = fetch("127.0.0.1", EDGE.http, "/")
        self.served[text] = self.served.get(text, 0) + 1

    def _name(self) -> None:
        self.names.append(dig(show=False))


def start_servers() -> None:
    try:
        print("\n".join(servers.up(EDGE)), flush=True)
    except servers.ServerError as error:
        raise CheckFailed(str(error)) from None


def up() -> None:
    say("Start Docker, HAProxy and BIND on loopback, unless they run already")
    if shutil.which("dig") is None:
        raise CheckFailed("dig was not found: apt-get install dnsutils")
    start_servers()

    say("Check that every provider is ready")
    reconcile("doctor", MANIFESTS)

    say("Create three containers, with slots in HAProxy and a DNS name")
    reconcile("--once", MANIFESTS)
    addresses = dig()
    before = replicas(MANIFESTS)
    check(all_serve(before, 3), "three replicas are ready, and each has a weight in HAProxy")
    check(addresses == {replica["address"] for replica in before.values()}, f"{NAME} has their addresses")
    print(f"$ curl http://127.0.0.1:{EDGE.http}/\n{fetch('127.0.0.1', EDGE.http, '/')}", flush=True)

    say("Run again: there is nothing to do")
    check("nothing to do" in reconcile("--once", MANIFESTS), "a second run has nothing to do")

    victim = min(before)
    address, container = before[victim]["address"], before[victim]["container"]
    with Clients() as clients:
        say(f"Break {victim}: it keeps running, but its probes fail")
        print(f"$ curl http://{address}:8080/cgi-bin/break\n{fetch(address, 8080, '/cgi-bin/break')}", flush=True)
        say("Converge: it leaves the pool and the name, is restarted, and returns")
        out = reconcile("--once", MANIFESTS)
    ordered = in_order(out, "-> 0 ", f": stop {container}", f": start {container}", "-> 100 ")
    check(ordered, "the steps were in order: weight 0, stop, start, weight 100")
    requests = sum(clients.served.values())
    check(
        not clients.failures, f"{requests} requests through HAProxy meanwhile, {clients.failures[:3] or 'none'} failed"
    )
    check(requests > 0 and len(clients.served) > 1, "several containers served them")
    check(all(clients.names), f"{NAME} was never empty in {len(clients.names)} answers")
    after = replicas(MANIFESTS)
    check(all_serve(after, 3), "all three replicas are ready and have a weight")
    withdrawn = any(address not in answer for answer in clients.names)
    check(withdrawn, f"{address} was withdrawn from {NAME} for a while")
    check(dig() == {replica["address"] for replica in after.values()}, "all addresses are published again")

    say(f"Drain {victim} by hand: it gets no new requests and keeps running, and its status shows the reason")
    with Clients() as clients:
        reconcile("drain", victim, MANIFESTS, "--for", "30m", "--reason", "looking into a leak")
        reconcile("--once", MANIFESTS, expect=7)
        reconcile("get", "endpoints", MANIFESTS)
        drained = replicas(MANIFESTS)[victim]
        check(drained["weight"] == 0 and drained["runtime"] == "running", f"{victim} runs, with weight 0")
        say("Release it: pushes and probes decide again")
        reconcile("release", victim, MANIFESTS)
        reconcile("--once", MANIFESTS)
    check(all_serve(replicas(MANIFESTS), 3), "all three replicas have a weight again")
    check(
        not clients.failures,
        f"{sum(clients.served.values())} requests meanwhile, {clients.failures[:3] or 'none'} failed",
    )

    say(f"Explain the state of {victim}")
    reconcile("explain", victim, MANIFESTS)

    say("Everything keeps running. Show it with 'reconcile status examples/edge'; remove it with 'make demo-edge-down'")


def down() -> None:
    if not EDGE.directory.exists():
        say(f"{EDGE.directory} does not exist: 'up' has not run since boot. If containers are left, run 'up' first")
        return
    say("Remove everything that the instance owns, and stop the servers that 'up' started")
    start_servers()
    reconcile("destroy", MANIFESTS, "--yes")
    check(not replicas(MANIFESTS), "no replica is left")
    print("\n".join(servers.down(EDGE)), flush=True)


if __name__ == "__main__":
    sys.exit(main("demo.py", sys.argv[1:], {"up": up, "down": down}))
