"""What systemd gets: a real notification socket, in virtual time where ages count."""

import asyncio
import os
import socket
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from reconciler.metrics.beat import beat, status_text
from reconciler.metrics.monitoring import Monitoring
from reconciler.metrics.pulse import LIMIT
from reconciler.shell.notify import ServiceManager, from_environment
from tests.metrics.test_catalogue import tick_of
from tests.sim.clock import VirtualClock


class Manager:
    """The service manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)

    async def lines(self) -> list[str]:
        """The lines of the next message."""
        text = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.socket, 4096), 60)
        return text.decode().splitlines()

    async def until(self, line: str) -> list[str]:
        """All lines up to and with the message that has this one."""
        found: list[str] = []
        while line not in found:
            found += await self.lines()
        return found

    def drop(self) -> None:
        """Ignore what was sent so far."""
        with suppress(BlockingIOError):
            while True:
                self.socket.recv(4096)


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path: Path, monkeypatch):
    address = str(tmp_path / "notify") if request.param == "path" else f"@reconciler-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "90000000")
    made = Manager(address)
    yield made
    made.socket.close()


@contextmanager
def beating(monitoring: Monitoring, stopping: list[bool]):
    task = asyncio.create_task(beat(monitoring, from_environment(), lambda: bool(stopping), period=0.02))
    try:
        yield
    finally:
        task.cancel()


async def test_systemd_gets_readiness_work_state_and_the_stop(manager):
    clock, stopping = VirtualClock(), []
    monitoring = Monitoring(clock)
    with beating(monitoring, stopping):
        assert await manager.lines() == ["WATCHDOG=1", "STATUS=making the first decision"]
        monitoring.ticked(tick_of(2)._replace(ended=clock.now().steady))
        lines = await manager.until("READY=1")
        assert "STATUS=2 of 2 workloads are ready, revision" in "\n".join([*lines, *await manager.lines()])
        stopping.append(True)
        assert "STATUS=stopping" in await manager.until("STATUS=stopping")
        manager.drop()
        assert "STOPPING=1" not in await manager.lines()


async def test_the_watchdog_is_silent_while_the_loop_does_not_tick(manager):
    clock = VirtualClock()
    monitoring = Monitoring(clock)
    monitoring.ticked(tick_of(1)._replace(ended=clock.now().steady))
    with beating(monitoring, []):
        await manager.until("WATCHDOG=1")
        clock.advance(LIMIT + SECOND)
        problem = "STATUS=the last tick ended 61 s ago; the limit is 60 s"
        await manager.until(problem)
        manager.drop()
        await asyncio.sleep(0.2)  # ten beats
        with pytest.raises(BlockingIOError):
            manager.socket.recv(4096)
        monitoring.failed(clock.now().steady)
        await manager.until("WATCHDOG=1")
        assert monitoring.pulse.problem(), "a loop whose ticks fail runs, but is not healthy"
        monitoring.ticked(tick_of(1)._replace(ended=clock.now().steady))
        assert not monitoring.pulse.problem()


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "@reconciler-test-absent", "vsock:2:9"])
def test_without_a_service_manager_nothing_happens(address):
    assert not ServiceManager(address).notify("READY=1")


def test_replicas_and_probes_do_not_inherit_the_socket(manager):
    assert from_environment().listens
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & set(os.environ)


def test_the_state_in_one_line():
    tick = tick_of(3)
    assert status_text(tick).startswith("3 of 3 workloads are ready, revision ")
    assert status_text(tick._replace(complete=False)) == "making the first decision"
    assert status_text(None) == "making the first decision"
    held = replace(tick.decision, holds=(object(), object()))  # type: ignore[arg-type]
    assert status_text(tick._replace(decision=held)).endswith(", 2 holds")
