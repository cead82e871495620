"""Exits of containers are reported by the kernel before the engine reports them."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from providers.facts import ContainerState
from providers.runtime.docker.exit_watch import ExitWatch
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.bench import Bench

SECONDS = 20
"""Longest wait for an event that takes milliseconds."""

ANY_CONTAINER = "/"
"""In the control group of every process."""


@contextmanager
def sleeping() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["sleep", "600"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def watching(changed: Callable[[], None]) -> Iterator[ExitWatch]:
    watch = ExitWatch(changed)
    try:
        yield watch
    finally:
        watch.close()


def descriptors() -> int:
    """How many pidfds this process has open."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            count += "pidfd" in os.readlink(f"/proc/self/fd/{name}")
    return count


def test_an_exit_is_reported_at_once_and_known_while_it_is_watched() -> None:
    hinted = threading.Event()
    with watching(hinted.set) as watch, sleeping() as first, sleeping() as second:
        watch.watch([(ANY_CONTAINER, first.pid), (ANY_CONTAINER, second.pid)])
        assert not watch.has_exited(ANY_CONTAINER, first.pid)
        first.kill()
        assert hinted.wait(SECONDS)
        watch.watch([(ANY_CONTAINER, first.pid), (ANY_CONTAINER, second.pid)])
        assert watch.has_exited(ANY_CONTAINER, first.pid)
        assert not watch.has_exited(ANY_CONTAINER, second.pid)
        watch.watch([(ANY_CONTAINER, second.pid)])
        assert not watch.has_exited(ANY_CONTAINER, first.pid)


def test_a_process_outside_the_container_is_not_watched() -> None:
    hinted = threading.Event()
    with watching(hinted.set) as watch, sleeping() as stranger, sleeping() as own:
        watch.watch([("0123456789abcdef" * 4, stranger.pid), (ANY_CONTAINER, own.pid), (ANY_CONTAINER, 2**22 + 1)])
        stranger.kill()
        stranger.wait()
        own.kill()
        assert hinted.wait(SECONDS)
        assert not watch.has_exited("0123456789abcdef" * 4, stranger.pid)


def test_close_leaves_no_descriptor_open() -> None:
    before = descriptors()
    with sleeping() as process:
        with watching(lambda: None) as watch:
            watch.watch([(ANY_CONTAINER, process.pid)])
            assert descriptors() == before + 1
        watch.watch([(ANY_CONTAINER, process.pid)])
        watch.close()
        assert descriptors() == before


@pytest.mark.server("dockerd")
def test_a_container_stops_running_before_the_engine_reports_its_exit(bench: Bench) -> None:
    """The parent of the main process reports the exit to the engine; it is frozen meanwhile."""
    hinted = threading.Event()
    bench.runtime.watch(hinted.set)
    name = bench.run().name
    assert bench.looked(name).state is ContainerState.RUNNING
    pid = int(bench.api.inspect(name)["State"]["Pid"])
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: bench.looked(name).state is ContainerState.STOPPING, "the exit is observed")
        assert bench.api.inspect(name)["State"]["Status"] == "running"
        assert bench.looked(name).state is ContainerState.STOPPING
    finally:
        os.kill(parent, signal.SIGCONT)
    states = [ContainerState.STOPPING]
    while states[-1] is not ContainerState.EXITED:
        assert hinted.wait(SECONDS), states
        hinted.clear()
        states.append(bench.looked(name).state)
    assert set(states) == {ContainerState.STOPPING, ContainerState.EXITED}
