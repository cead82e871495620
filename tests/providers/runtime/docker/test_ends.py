"""Ends of containers, told by the kernel before the engine knows of them."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from providers.facts import ContainerState
from providers.runtime.docker.exits import Ends
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.bench import Bench

SECONDS = 20
"""Longest wait for something that happens in milliseconds."""

ANYBODY = "/"
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
def ends(changed: Callable[[], None]) -> Iterator[Ends]:
    found = Ends(changed)
    try:
        yield found
    finally:
        found.close()


def descriptors() -> int:
    """How many processes this one has a descriptor of."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            count += "pidfd" in os.readlink(f"/proc/self/fd/{name}")
    return count


def test_an_end_is_told_at_once_and_known_as_long_as_somebody_asks_about_it() -> None:
    told = threading.Event()
    with ends(told.set) as found, sleeping() as first, sleeping() as second:
        found.watch([(ANYBODY, first.pid), (ANYBODY, second.pid)])
        assert not found.has(ANYBODY, first.pid)
        first.kill()
        assert told.wait(SECONDS)
        found.watch([(ANYBODY, first.pid), (ANYBODY, second.pid)])
        assert found.has(ANYBODY, first.pid)
        assert not found.has(ANYBODY, second.pid)
        found.watch([(ANYBODY, second.pid)])
        assert not found.has(ANYBODY, first.pid)


def test_a_process_that_is_not_of_the_container_is_not_watched() -> None:
    told = threading.Event()
    with ends(told.set) as found, sleeping() as stranger, sleeping() as own:
        found.watch([("0123456789abcdef" * 4, stranger.pid), (ANYBODY, own.pid), (ANYBODY, 2**22 + 1)])
        stranger.kill()
        stranger.wait()
        own.kill()
        assert told.wait(SECONDS)
        assert not found.has("0123456789abcdef" * 4, stranger.pid)


def test_nothing_is_left_open_when_it_is_closed() -> None:
    before = descriptors()
    with sleeping() as process:
        with ends(lambda: None) as found:
            found.watch([(ANYBODY, process.pid)])
            assert descriptors() == before + 1
        found.watch([(ANYBODY, process.pid)])
        found.close()
        assert descriptors() == before


@pytest.mark.server("dockerd")
def test_a_container_whose_main_process_has_ended_does_not_run_even_while_the_engine_says_so(bench: Bench) -> None:
    """The engine is kept from knowing by stopping the one who would tell it: the parent of the process."""
    told = threading.Event()
    bench.runtime.watch(told.set)
    name = bench.run().name
    assert bench.looked(name).state is ContainerState.RUNNING
    pid = int(bench.api.inspect(name)["State"]["Pid"])
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: bench.looked(name).state is ContainerState.STOPPING, "the end is seen")
        assert bench.api.inspect(name)["State"]["Status"] == "running"
        assert bench.looked(name).state is ContainerState.STOPPING
    finally:
        os.kill(parent, signal.SIGCONT)
    seen = [ContainerState.STOPPING]
    while seen[-1] is not ContainerState.EXITED:
        assert told.wait(SECONDS), seen
        told.clear()
        seen.append(bench.looked(name).state)
    assert set(seen) == {ContainerState.STOPPING, ContainerState.EXITED}
