"""Hints from the engine: they come soon, only for our instance, and stop with the provider."""

import threading
from pathlib import Path
from uuid import uuid4

import pytest
from docker_engine import Api

from providers.runtime.docker import DockerRuntime, DockerSettings
from providers.spi import Context

pytestmark = pytest.mark.server("dockerd")


def test_what_happens_to_a_container_of_ours_is_hinted_at_and_what_happens_to_others_is_not(
    docker_socket: str, api: Api, tmp_path: Path
):
    instance = f"hint-{uuid4().hex[:8]}"
    runtime = DockerRuntime("local", DockerSettings(socket=docker_socket), Context(instance, str(tmp_path)))
    told = threading.Semaphore(0)
    runtime.watch(told.release)
    ours, other = f"{instance}-web", f"other-{instance}"
    try:
        assert told.acquire(timeout=5), "the stream began"
        api.create(other)
        api.start(other)
        api.create(ours, Labels={"reconciler.instance": instance})
        api.start(ours)
        assert told.acquire(timeout=5), "ours was started"
        api.kill(ours)
        assert told.acquire(timeout=5), "ours has died"
        assert not told.acquire(blocking=False)
    finally:
        runtime.close()
        api.remove(ours)
        api.remove(other)
    assert not [one for one in threading.enumerate() if one.name == "engine events"]
    assert not told.acquire(blocking=False)


def test_without_an_engine_listening_is_tried_again_and_ends_at_once_when_closed(docker_socket: str, tmp_path: Path):
    link = tmp_path / "engine.sock"
    runtime = DockerRuntime("local", DockerSettings(socket=str(link)), Context("hint", str(tmp_path)))
    told = threading.Event()
    runtime.watch(told.set)
    try:
        assert not told.is_set()
        link.symlink_to(docker_socket)
        assert told.wait(5)
    finally:
        runtime.close()
    assert not [one for one in threading.enumerate() if one.name == "engine events"]
