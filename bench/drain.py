"""Failed requests during restarts: `reconcile restart` with its drain, compared with `docker restart` of the same containers.

    python -m bench.drain [--rounds 3]

Prints Markdown. Needs root, dockerd, docker and haproxy; creates its own containers and HAProxy on loopback, and removes them.
Clients continuously send requests of 20 ms, 300 ms and 1 s through HAProxy, without retries. Both sides alternate: with the daemon
`reconcile restart workload/web --wait`, without it `docker restart` of one container after the other. HAProxy has the same
configuration for both, with health checks and `option redispatch`: it sends a refused connection to another server by itself, but
cannot save a request in flight. The container runs one of two programs: one ends at once on SIGTERM, as most do; the other
serves for another second and finishes its requests.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.edge_world import engine_with_image, until
from tests.e2e.traffic_world import Traffic

REPLICAS = 4
CLIENTS = 8


@dataclass
class Side:
    """One side of the comparison: restarted containers, the clients' requests and failures meanwhile, and its duration (s)."""

    name: str
    program: str
    restarts: int = 0
    requests: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def row(self) -> str:
        share = 100 * len(self.failures) / self.requests
        return (
            f"| {self.name} | {self.program} | {self.restarts} | {self.requests} | {len(self.failures)} | {share:.2f} % |"
            f" {self.seconds / self.restarts:.1f} |"
        )


def ours(world: Traffic) -> None:
    """Restart all replicas with `reconcile restart`."""
    code, out = world.run("restart", "workload/web", "--wait", seconds=300)
    if code:
        raise SystemExit(f"reconcile restart ended with {code}: {out}")
    world.settle(REPLICAS)


def plain(world: Traffic) -> None:
    """Restart all containers with `docker restart`."""
    for name in world.containers():
        world.docker("restart", "-t", "10", name)
    until(lambda: world.fetch("/") != "" and checked(world), "HAProxy's checks pass again", 60)


def checked(world: Traffic) -> bool:
    """Whether HAProxy reports all members as up."""
    rows = [line.split(",") for line in world.haproxy("show stat be_web 4 -1").splitlines()]
    status, weight = rows[0].index("status"), rows[0].index("weight")
    used = [row[status] for row in rows[1:] if len(row) > weight and row[weight] == "100"]
    return len(used) == REPLICAS and all(state == "UP" for state in used)


def compare(engine: str, rounds: int, program: str, words: list[str]) -> Iterator[Side]:
    """Alternate both sides, with one program in the containers."""
    sides = Side("`reconcile restart workload/web`", program), Side("`docker restart`, one by one", program)
    world = Traffic(engine, REPLICAS, words=words, drain=("1s", "15s"))
    try:
        world.start_servers()
        world.once()
        world.settle(REPLICAS)
        for _ in range(rounds):
            with world.watching():
                measure(world, sides[0], ours)
            measure(world, sides[1], plain)
            world.once()
            world.settle(REPLICAS)
    finally:
        world.close()
    yield from sides


def measure(world: Traffic, side: Side, act: Callable[[Traffic], None]) -> None:
    """Restart everything once under load."""
    with world.load(CLIENTS) as load:
        until(lambda: load.total > 2 * CLIENTS, "clients send requests")
        begun = time.perf_counter()
        act(world)
        side.seconds += time.perf_counter() - begun
        before = load.total
        until(lambda: load.total > before + 2 * CLIENTS, "clients still send requests")
    side.restarts += REPLICAS
    side.requests += load.total
    side.failures += load.failures


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m bench.drain")
    arguments.add_argument(
        "--rounds", type=int, default=3, help="number of restarts of all replicas (default: %(default)s)"
    )
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that containers and servers are removed
    with tempfile.TemporaryDirectory() as shared:
        engine = engine_with_image(Path(shared))
    print("## Restarts under load, through HAProxy\n")
    print("| restarted by | the program on SIGTERM | restarts | requests | failed | share | s per restart |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for program, words in (("ends at once", []), ("finishes its requests", ["polite"])):
        for side in compare(engine, options.rounds, program, words):
            print(side.row(), flush=True)
            for failure in side.failures[:3]:
                print(f"{side.name}: {failure}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
