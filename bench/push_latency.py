"""The time from a push to its weight, and from the death of a container to weight 0.

    python -m bench.push_latency [--tries 200]

Prints Markdown. Needs root, dockerd, haproxy and busybox-static; creates its own containers and HAProxy on loopback, and removes
them. A push is timed from before it is sent until HAProxy's socket reports the new weight, which another process polls some
thousand times a second. The figures therefore include the push's transport, the decision, the disk and the polling. A push goes to
the unix socket with the container's own token, like that of a sidecar. A death is timed from the kill of the container's first
process.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.edge_latency import REPLICAS, first, kill, quantiles
from bench.weight_watch import WATCH
from reconciler.push.client import Target, push, target_of
from tests.e2e.edge_world import engine_with_image, until
from tests.e2e.traffic_world import Traffic

PAUSE = 0.25
"""Seconds between two pushes: within the rate limit of one instance, and long enough for the read-back."""


@contextmanager
def weights_of(world: Traffic, address: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that prints each change of an address's weight and its instant."""
    command = [sys.executable, "-c", WATCH, str(world.directory / "admin.sock"), address]
    # The watch polls on at the end of its input; from a terminal it would wait for a byte after each change.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as watch:
        try:
            yield watch
        finally:
            watch.kill()


def sender(world: Traffic, container: str) -> Target:
    """The credentials and address with which that container pushes, from its own environment."""
    variables = dict(entry.split("=", 1) for entry in world.api.inspect(container)["Config"]["Env"])
    mounts = world.api.inspect(container)["Mounts"]
    inside = Path(variables["RECONCILER_PUSH_SOCKET"])
    source = next(mount["Source"] for mount in mounts if mount["Destination"] == str(inside.parent))
    variables |= {"RECONCILER_PUSH_SOCKET": str(Path(source) / inside.name), "RECONCILER_PUSH_BOOT": "bench"}
    return target_of(variables)


def pushes(world: Traffic, tries: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds from a push to its weight, ready and not-ready alternating, and from a push to its answer."""
    victim = world.containers()[0]
    target, address = sender(world, victim), world.address(victim)
    took: dict[str, list[float]] = {"ready": [], "not-ready": []}
    answers: list[float] = []
    with weights_of(world, address) as watch:
        assert watch.stdout is not None
        until(lambda: world.weight(victim) == 100, "it serves")
        assert watch.stdout.readline().split()[0] == "100"
        for index in range(2 * tries):
            event, wanted = (("not-ready", "0"), ("ready", "100"))[index % 2]
            begun = time.perf_counter()
            answer = push(target, event)
            answers.append(time.perf_counter() - begun)
            if answer.status != 200:
                raise SystemExit(f"a push was answered with {answer.status}: {answer.body!r}")
            weight, instant = "", ""
            while weight != wanted:
                weight, instant = watch.stdout.readline().split()
            took[event].append(float(instant) - begun)
            time.sleep(PAUSE)
    return took["ready"], took["not-ready"], answers


def deaths(world: Traffic, tries: int) -> list[float]:
    """Seconds from the kill of a container to its weight 0."""
    took: list[float] = []
    for index in range(tries):
        name = world.containers()[index % REPLICAS]
        address, (begun, _) = world.address(name), kill(world, name)
        took.append(first(lambda dead=address: not world.pool().get(dead), begun))
        world.settle(REPLICAS)
    return took


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m bench.push_latency")
    arguments.add_argument("--tries", type=int, default=200, help="tries of each measurement (default: %(default)s)")
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that containers and servers are removed
    with tempfile.TemporaryDirectory() as shared:
        engine = engine_with_image(Path(shared))
    world = Traffic(engine, REPLICAS, push=True, run=(), command=["/serve"], restart="no")
    try:
        world.start_servers()
        with world.watching():
            world.settle(REPLICAS)
            print("## From a push or a death to the weight in HAProxy\n\n| ms | median | p99 | max | tries |")
            print("|---|---|---|---|---|", flush=True)
            ready, not_ready, answers = pushes(world, options.tries)
            print(f"| push `ready` -> weight 100 | {quantiles(ready)} |")
            print(f"| push `not-ready` -> weight 0 | {quantiles(not_ready)} |")
            print(f"| push -> answered, stored on disk | {quantiles(answers)} |", flush=True)
            print(f"| container killed -> weight 0 | {quantiles(deaths(world, options.tries))} |")
    finally:
        world.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
