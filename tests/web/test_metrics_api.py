"""Metrics and health over the listener: real sockets, the simulated world behind them."""

import asyncio
import http.client
import os
import socket
import subprocess
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, MetricsListener
from manifests.values.secret_sources import SecretSource
from reconciler.metrics.monitoring import Monitoring
from reconciler.metrics.pulse import LIMIT
from reconciler.web.metrics_serving import serve_metrics
from tests.free_ports import free_port
from tests.metrics.scrapes import Scrape
from tests.metrics.test_catalogue import tick_of
from tests.sim.clock import VirtualClock


class Daemon:
    """The daemon's side: its monitoring, in virtual time, with a listener on loopback."""

    def __init__(self, token: SecretSource | None = None) -> None:
        self.clock = VirtualClock()
        self.monitoring = Monitoring(self.clock)
        self.listener = MetricsListener(("127.0.0.1", free_port()), token)
        self.notes: list[str] = []
        self.tick()

    def tick(self, *, complete: bool = True, listener: MetricsListener | None = None) -> None:
        """A tick of the loop under manifests with this listener."""
        tick, now = tick_of(2), self.clock.now()
        desired = replace(tick.desired, instance=replace(tick.desired.instance, metrics=listener or self.listener))
        self.monitoring.ticked(tick._replace(desired=desired, ended=now.steady, complete=complete))

    def get(self, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> tuple[int, str]:
        client = http.client.HTTPConnection(*self.listener.listen, timeout=60)
        try:
            client.request(method, path, headers=headers or {})
            answer = client.getresponse()
            return answer.status, answer.read().decode()
        finally:
            client.close()

    async def ask(self, *words, **named) -> tuple[int, str]:
        return await asyncio.to_thread(self.get, *words, **named)


def promtool(text: str) -> tuple[int, str]:
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def listens(address: tuple[str, int]) -> bool:
    with socket.socket() as client:
        return client.connect_ex(address) == 0


async def until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)  # there is no event for a socket that begins to listen


@asynccontextmanager
async def serving(daemon: Daemon):
    task = asyncio.create_task(serve_metrics(daemon.monitoring, daemon.notes.append))
    try:
        await until(lambda: listens(daemon.listener.listen))
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_scrape_gets_the_state_of_the_last_tick():
    daemon = Daemon()
    async with serving(daemon):
        status, text = await daemon.ask("/metrics")
    assert status == 200
    assert Scrape(text.encode()).get("workload_replicas_desired", workload="w1") == 1


@pytest.mark.server("promtool")
async def test_promtool_accepts_a_whole_scrape():
    daemon = Daemon()
    async with serving(daemon):
        _, text = await daemon.ask("/metrics")
    assert promtool(text) == (0, "")


async def test_many_scrapes_at_a_time_get_the_same_text():
    daemon = Daemon()
    async with serving(daemon):
        answers = await asyncio.gather(*(daemon.ask("/metrics") for _ in range(20)))
    assert {status for status, _ in answers} == {200}


async def test_a_scrape_needs_the_token_and_health_does_not(tmp_path):
    file = tmp_path / "token"
    file.write_text("correct horse\n")
    os.chmod(file, 0o600)
    daemon = Daemon(SecretSource(file=str(file)))
    async with serving(daemon):
        assert (await daemon.ask("/metrics"))[0] == 401
        assert (await daemon.ask("/metrics", {"authorization": "Bearer wrong"}))[0] == 401
        assert (await daemon.ask("/metrics", {"authorization": "Bearer correct horse"}))[0] == 200
        assert (await daemon.ask("/healthz"))[0] == 200
        file.write_text("battery staple\n")
        assert (await daemon.ask("/metrics", {"authorization": "Bearer correct horse"}))[0] == 401
        assert (await daemon.ask("/metrics", {"authorization": "Bearer battery staple"}))[0] == 200


async def test_a_token_that_cannot_be_read_refuses_and_is_reported_once(tmp_path):
    daemon = Daemon(SecretSource(file=str(tmp_path / "absent")))
    async with serving(daemon):
        for _ in range(3):
            status, text = await daemon.ask("/metrics", {"authorization": "Bearer x"})
            assert (status, "cannot be read" in text) == (503, True)
    assert len(daemon.notes) == 1
    assert "metrics.token" in daemon.notes[0]


async def test_health_says_when_the_loop_does_not_tick():
    daemon = Daemon()
    async with serving(daemon):
        assert await daemon.ask("/healthz") == (200, "ok\n")
        daemon.clock.advance(LIMIT)
        assert await daemon.ask("/healthz") == (200, "ok\n")
        daemon.clock.advance(SECOND)
        assert await daemon.ask("/healthz") == (503, "the last tick ended 61 s ago; the limit is 60 s\n")
        assert (await daemon.ask("/readyz"))[0] == 503
        daemon.tick()
        assert await daemon.ask("/healthz") == (200, "ok\n")
        assert await daemon.ask("/readyz") == (200, "ok\n")


async def test_readiness_waits_for_the_first_decision_about_everything():
    daemon = Daemon()
    daemon.monitoring = Monitoring(daemon.clock)
    daemon.tick(complete=False)
    async with serving(daemon):
        assert await daemon.ask("/readyz") == (503, "there is no decision yet\n")
        assert await daemon.ask("/healthz") == (200, "ok\n")
        daemon.tick()
        assert await daemon.ask("/readyz") == (200, "ok\n")


async def test_other_methods_and_paths_are_refused():
    daemon = Daemon()
    async with serving(daemon):
        assert (await daemon.ask("/metrics", method="POST"))[0] == 405
        assert (await daemon.ask("/"))[0] == 404


async def test_the_listener_follows_the_instance():
    daemon = Daemon()
    first = daemon.listener
    async with serving(daemon):
        second = MetricsListener(("127.0.0.1", free_port()))
        daemon.tick(listener=second)
        await until(lambda: listens(second.listen))
        assert not listens(first.listen)
        daemon.listener = second
        assert (await daemon.ask("/healthz"))[0] == 200


async def test_a_taken_port_is_reported_once_and_tried_again():
    daemon = Daemon()
    with socket.socket() as other:
        other.bind(daemon.listener.listen)
        other.listen()
        task = asyncio.create_task(serve_metrics(daemon.monitoring, daemon.notes.append))
        await until(lambda: bool(daemon.notes))
    await until(lambda: listens(daemon.listener.listen))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert len(daemon.notes) == 1
    assert "metrics.listen" in daemon.notes[0]
