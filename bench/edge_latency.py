"""Latencies of the edge: crash to restart, death to weight 0 and to changed DNS, verdict to weight.

    python -m bench.edge_latency [--tries 200] [--probes 5000]

Prints Markdown. Needs root, dockerd, haproxy, named and busybox-static; creates its own containers and servers on loopback, and
removes them. The floor of a restart is a bare listener that asks the engine to start a dead container of the same image; both
alternate, and the engine's own events time both. HAProxy's socket and BIND are queried about every millisecond, so these
figures include the queries. After a verdict, HAProxy is queried with pauses of at most 0.3 ms until the weight has changed, and
not at all before, because no production setup queries it that often. The floor of a weight is one bare command, sent by a
process after the same waiting time to the same server beside the same probes, after the loop has ended.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

from bench.weight_watch import watched
from manifests.values.desired import SECOND, Probe, ProbeKind
from providers.facts import Generation, ProbeFact
from reconciler import wire
from reconciler.core.decision import Decision
from reconciler.core.model.ledger_fold import Outcome
from reconciler.core.model.step import Step
from reconciler.exits import Exit
from reconciler.probes.engine import ProbeEngine
from reconciler.probes.target import Target
from reconciler.shell.clock import SystemClock
from reconciler.shell.host_facts import InstanceTimeProber
from reconciler.shell.loop import Loop
from reconciler.shell.parts import Parts
from reconciler.shell.providers import ThreadRunner
from reconciler.shell.store.lock import Lock
from reconciler.shell.store.memory import BlockingMemory, StoreMemory
from reconciler.shell.store.state_db import Store
from reconciler.tree import load
from tests.e2e.edge_world import IMAGE, World, engine_with_image, free_port, image, servers, until

ANSWER = """global
    nbthread 1
defaults
    mode http
    timeout client 5s
frontend answer
    bind 127.0.0.1:{port}
    http-request return status 200
"""

REPLICAS = 6
"""Enough that no replica crashes again before its last crash is forgotten: that would be a back-off."""

SETTLE = 12
"""Seconds until all of the many probes have run once: their period and a margin."""

Key = tuple[Generation, str]


class Events:
    """The engine's events of containers: instants (its own clock, ns) of deaths and starts, by name."""

    def __init__(self, path: str, died: Callable[[str], None]) -> None:
        self.died, self.at = died, dict[tuple[str, str], int]()
        self.news = threading.Condition()
        self._engine = image.Engine(path)
        query = urlencode({"filters": json.dumps({"type": ["container"], "event": ["die", "start"]})})
        self._engine.request("GET", f"/events?{query}")
        assert self._engine.sock is not None
        self._socket = self._engine.sock
        self._socket.settimeout(None)
        self._answer = self._engine.getresponse()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while line := self._answer.readline():
            event = json.loads(line)
            name = event["Actor"]["Attributes"]["name"]
            if event["Action"] == "die":
                self.died(name)
            with self.news:
                self.at[name, event["Action"]] = event["timeNano"]
                self.news.notify_all()

    def restart(self, name: str, since: int) -> float:
        """Seconds from the death of a container after `since` to its next start."""

        def started() -> bool:
            died = self.at.get((name, "die"), 0)
            return since < died < self.at.get((name, "start"), 0)

        with self.news:
            if not self.news.wait_for(started, 30):
                raise SystemExit(f"{name} was not restarted within 30 s")
            return (self.at[name, "start"] - self.at[name, "die"]) / 1e9

    def close(self) -> None:
        self._socket.shutdown(2)
        self._thread.join(5)
        self._answer.close()
        self._engine.close()


def first(condition: Callable[[], bool], begun: float) -> float:
    """Seconds from `begun` until a condition is true."""
    while not condition():
        if time.perf_counter() - begun > 30:
            raise SystemExit("nothing changed within 30 s")
        time.sleep(0.001)
    return time.perf_counter() - begun


def quantiles(values: list[float]) -> str:
    """Median, 99th percentile and largest of some seconds, as cells in ms."""
    p99 = statistics.quantiles(values, n=100, method="inclusive")[98]
    return f"{statistics.median(values) * 1e3:.1f} | {p99 * 1e3:.1f} | {max(values) * 1e3:.1f} | {len(values)}"


def crashes(world: World, tries: int) -> Iterator[str]:
    """Kill containers of a daemon, and a container that a bare listener restarts."""
    floor = f"floor-{world.id}"
    ours: list[float] = []
    bare: list[float] = []
    weights: list[float] = []
    names: list[float] = []

    def start_floor(name: str) -> None:
        if name == floor:
            image.ask(world.edge.docker, "POST", f"/containers/{floor}/start")

    events = Events(world.edge.docker, start_floor)
    try:
        world.api.create(floor, "/serve", image=IMAGE, HostConfig={"NetworkMode": world.network})
        world.api.start(floor)
        addresses = world.addresses()
        with world.watching():
            for index in range(tries):
                name, other = (world.containers()[(2 * index + step) % REPLICAS] for step in (0, 1))
                bare.append(events.restart(floor, kill(world, floor)[1]))
                ours.append(events.restart(name, kill(world, name)[1]))
                until(lambda: world.serves(addresses), "all serve again")
                # Another container, because continuous queries would slow down the restart.
                address, (begun, _) = world.address(other), kill(world, other)
                with ThreadPoolExecutor(1) as thread:
                    withdrawn = thread.submit(first, lambda dead=address: dead not in world.names(), begun)
                    weights.append(first(lambda dead=address: not world.pool().get(dead), begun))
                    names.append(withdrawn.result())
                until(lambda: world.serves(addresses), "all serve again")
    finally:
        world.api.remove(floor)
        events.close()
    ratio = statistics.median(ours) / statistics.median(bare)
    yield f"| death event -> start event, bare listener (the floor) | {quantiles(bare)} |"
    yield f"| death event -> start event, `runtimeRestart: no` | {quantiles(ours)} |"
    yield f"| container killed -> weight 0 in HAProxy | {quantiles(weights)} |"
    yield f"| container killed -> changed answer of BIND | {quantiles(names)} |"
    yield f"\nCrash to restart: {ratio:.2f} times the floor (medians; goal 1.15)."


def kill(world: World, name: str) -> tuple[float, int]:
    """Kill the first process of a container. Returns when, by this process's clock (s) and the engine's (ns)."""
    pid = int(world.api.inspect(name)["State"]["Pid"])
    since, begun = time.time_ns(), time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    return begun, since


class Timed(ProbeEngine):
    """A probe engine with many extra targets. It records when it returns a changed readiness and calls `on_change` right after."""

    def __init__(self, extra: list[Target]) -> None:
        super().__init__(phase=True)
        self.extra = extra
        self.at: dict[Key, tuple[str, float]] = {}
        self.on_change: Callable[[], object] = lambda: None

    def set_targets(self, targets: list[Target]) -> None:
        super().set_targets([*targets, *self.extra])

    def read(self) -> Mapping[Key, ProbeFact]:
        facts = super().read()
        now = time.perf_counter()
        for key, fact in facts.items():
            if key[1] == "readiness" and self.at.get(key, ("", 0.0))[0] != fact.value.value:
                self.at[key] = (fact.value.value, now)
                self.on_change()
        return facts


class Silence:
    """A reporter that reports nothing."""

    def started(self, step: Step) -> None:
        pass

    def finished(self, step: Step, outcome: Outcome) -> None:
        pass

    def event(self, *fields: str) -> None:
        """Not measured."""

    def decided(self, decision: Decision, now: object) -> None:
        pass

    def note(self, text: str, *, level: int = 0) -> None:
        pass


@contextmanager
def answering(port: int) -> Iterator[None]:
    """A server that answers every probe with 200."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "answer.cfg"
        config.write_text(ANSWER.format(port=port))
        process = subprocess.Popen([servers.program("haproxy"), "-db", "-f", str(config)])
        try:
            yield
        finally:
            process.kill()
            process.wait()


async def verdicts(world: World, tries: int, probes: int, port: int) -> tuple[list[float], list[float]]:
    """Run the loop in this process, flip the readiness of one container, and time verdict -> weight in HAProxy.

    Returns:
        Seconds for each try, and those of bare commands.
    """
    host = SystemClock()
    desired = load(world.manifests, None)
    now = host.now().steady
    probe = Probe(kind=ProbeKind.HTTP, port=port, period=10 * SECOND, timeout=SECOND)
    extra = [Target(Generation(f"extra{n}", 1), "liveness", probe, "127.0.0.1", port, now) for n in range(probes)]
    runner, engine, quiet = ThreadRunner(), Timed(extra), Silence()
    with ExitStack() as stack:
        stack.callback(engine.close)
        stack.callback(runner.close)
        with Lock.acquire(world.state, "bench", host, 10), Store.open(world.state, host) as store:
            memory = StoreMemory(BlockingMemory(store, "bench"))
            clock = memory.clock
            providers = wire.build(desired, world.state, may_write=True, offset=clock.offset)
            stack.callback(providers.close)
            prober = InstanceTimeProber(engine, clock.offset)
            parts = Parts(desired, providers, None, prober, memory, None, quiet, clock, runner, booted=clock.booted)
            loop = Loop(parts)
            running = asyncio.create_task(loop.watch())
            took = await asyncio.to_thread(flips, world, tries, engine)
            loop.stop(Exit.TERMINATED)
            await running
            return took, await asyncio.to_thread(floors, world, tries, engine)


def flips(world: World, tries: int, engine: Timed) -> list[float]:
    """Seconds from each verdict to its weight. Not-ready and ready alternate."""
    address = world.address(world.containers()[0])
    took: list[float] = []
    with watched(world.directory / "admin.sock", address) as watch:
        engine.on_change = watch.begin
        time.sleep(SETTLE)
        for index in range(tries):
            down = index % 2 == 0
            world.ask(address, "/cgi-bin/unready" if down else "/cgi-bin/ready")
            when = watch.wait(down)
            wanted = "fail" if down else "pass"
            took.append(when - max(at for verdict, at in list(engine.at.values()) if verdict == wanted))
            time.sleep(0.2)  # until the writes of names and the read-back have ended
        engine.on_change = lambda: None
    return took


def floors(world: World, tries: int, engine: Timed) -> list[float]:
    """Seconds from the decision to send one bare command until its weight is visible."""
    address = world.address(world.containers()[0])
    (row,) = (row for row in map(str.split, bare(world, "show servers state be_web")) if address in row[4:5])
    took: list[float] = []
    with watched(world.directory / "admin.sock", address) as watch:
        for index in range(tries):
            until_next = time.monotonic() + 0.5
            while time.monotonic() < until_next:
                engine.read()  # the loop that read it has ended
                time.sleep(0.01)
            down = (index + tries) % 2 == 0  # the tries before may have ended with weight 0
            begun = time.perf_counter()
            watch.begin()
            bare(world, f"set server be_web/{row[3]} weight {0 if down else 100}")
            took.append(watch.wait(down) - begun)
    return took


def bare(world: World, command: str) -> list[str]:
    """The lines of HAProxy's answer to one command over a new connection."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(5)
        link.connect(str(world.directory / "admin.sock"))
        link.sendall(f"{command}\n".encode())
        return b"".join(iter(lambda: link.recv(65536), b"")).decode().splitlines()


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m bench.edge_latency")
    arguments.add_argument("--tries", type=int, default=200, help="tries of each measurement (default: %(default)s)")
    arguments.add_argument("--probes", type=int, default=5000, help="number of other probes (default: %(default)s)")
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that containers and servers are removed
    with tempfile.TemporaryDirectory() as shared:
        world = World(engine_with_image(Path(shared)), REPLICAS)
    try:
        world.edit(f"  replicas: {REPLICAS}\n", f'  replicas: {REPLICAS}\n  runtimeRestart: "no"\n')
        world.edit("      initial: 1s", "      initial: 1s\n      reset: 1s")
        world.start_servers()
        world.once()
        world.settle(REPLICAS)
        print("## Docker, HAProxy and BIND\n\n| ms | median | p99 | max | tries |\n|---|---|---|---|---|")
        *rows, ratio = crashes(world, options.tries)
        print("\n".join(rows), flush=True)
        port = free_port()
        with answering(port):
            took, floor = asyncio.run(verdicts(world, options.tries, options.probes, port))
        print(
            f"| one bare command -> weight in HAProxy, beside {options.probes} probes (the floor) | {quantiles(floor)} |"
        )
        print(f"| probe verdict -> weight in HAProxy, beside {options.probes} probes | {quantiles(took)} |")
        print(ratio)
    finally:
        world.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
