"""Hints from the engine: they come soon, for others not too often, and stop with the provider."""

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


class Told:
    """Counts hints."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def listening() -> bool:
    return any(one.name == "engine events" for one in threading.enumerate())


def test_what_happens_to_a_container_is_hinted_at_until_the_provider_is_closed(
    docker_socket: str, api: Api, tmp_path: Path
) -> None:
    instance = f"hint-{uuid4().hex[:8]}"
    runtime = DockerRuntime("local", DockerSettings(socket=docker_socket), Context(instance, str(tmp_path)))
    told = Told()
    runtime.watch(told)
    name = f"{instance}-web"
    try:
        wait_until(lambda: told.count > 0, "the stream began")
        api.create(name, Labels={"reconciler.instance": instance})
        before = told.count
        api.start(name)
        wait_until(lambda: told.count > before, "ours was started")
        before = told.count
        api.kill(name)
        wait_until(lambda: told.count > before, "ours has died")
    finally:
        runtime.close()
        api.remove(name)
    after = told.count
    assert not listening()
    assert told.count == after


def test_what_happens_to_others_is_hinted_at_now_and_then_and_never_lost(docker_socket: str, api: Api) -> None:
    told, pause = Told(), 0.2
    name = first = f"other-{uuid4().hex[:8]}"
    api.create(name)
    listener = Listener(docker_socket, "hint", told, others_pause=pause)
    try:
        wait_until(lambda: told.count > 0, "the stream began")
        began = time.monotonic()
        for number in range(60):
            api.link.post(f"/containers/{name}/rename", name, name=f"{first}-{number}")
            name = f"{first}-{number}"
        before = told.count
        assert before <= (time.monotonic() - began) / pause + 2, "not for each event"
        api.start(name)
        wait_until(lambda: told.count > before, "the last one is told")
    finally:
        listener.close()
        api.remove(name)
    assert not listening()


def test_without_an_engine_listening_is_tried_again_and_ends_at_once_when_closed(
    docker_socket: str, tmp_path: Path
) -> None:
    link = tmp_path / "engine.sock"
    runtime = DockerRuntime("local", DockerSettings(socket=str(link)), Context("hint", str(tmp_path)))
    told = threading.Event()
    runtime.watch(told.set)
    try:
        assert not told.is_set()
        link.symlink_to(docker_socket)
        assert told.wait(60)
    finally:
        runtime.close()
    assert not listening()
