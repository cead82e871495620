"""Hints from the engine: they come soon, for foreign containers at a limited rate, and end with the provider."""

import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest

from providers.runtime.docker.events import Listener
from providers.runtime.docker.runtime import DockerRuntime, DockerSettings
from providers.spi import Context
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.engine import Api

pytestmark = pytest.mark.server("dockerd")


class Hints:
    """Counts hints."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def listening() -> bool:
    return any(thread.name == "engine events" for thread in threading.enumerate())


def test_events_of_our_containers_are_hints_until_the_provider_closes(
    docker_socket: str, api: Api, tmp_path: Path
) -> None:
    instance = f"hint-{uuid4().hex[:8]}"
    runtime = DockerRuntime("local", DockerSettings(socket=docker_socket), Context(instance, str(tmp_path)))
    hints = Hints()
    runtime.watch(hints)
    name = f"{instance}-web"
    try:
        wait_until(lambda: hints.count > 0, "the stream began")
        api.create(name, Labels={"reconciler.instance": instance})
        before = hints.count
        api.start(name)
        wait_until(lambda: hints.count > before, "ours was started")
        before = hints.count
        api.kill(name)
        wait_until(lambda: hints.count > before, "ours has died")
    finally:
        runtime.close()
        api.remove(name)
    after = hints.count
    assert not listening()
    assert hints.count == after


def test_events_of_foreign_containers_are_limited_and_never_lost(docker_socket: str, api: Api) -> None:
    hints, pause = Hints(), 0.2
    name = first = f"other-{uuid4().hex[:8]}"
    api.create(name)
    listener = Listener(docker_socket, "hint", hints, foreign_pause=pause)
    try:
        wait_until(lambda: hints.count > 0, "the stream began")
        began = time.monotonic()
        for number in range(60):
            api.link.post(f"/containers/{name}/rename", name, name=f"{first}-{number}")
            name = f"{first}-{number}"
        before = hints.count
        assert before <= (time.monotonic() - began) / pause + 2, "not for each event"
        api.start(name)
        wait_until(lambda: hints.count > before, "the last event is reported")
    finally:
        listener.close()
        api.remove(name)
    assert not listening()


def test_listening_is_retried_without_an_engine_and_close_returns_at_once(docker_socket: str, tmp_path: Path) -> None:
    link = tmp_path / "engine.sock"
    runtime = DockerRuntime("local", DockerSettings(socket=str(link)), Context("hint", str(tmp_path)))
    hints = threading.Event()
    runtime.watch(hints.set)
    try:
        assert not hints.is_set()
        link.symlink_to(docker_socket)
        assert hints.wait(60)
    finally:
        runtime.close()
    assert not listening()
