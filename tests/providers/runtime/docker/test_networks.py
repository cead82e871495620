"""Networks are made once, however many replicas ask for them at the same time."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from providers.actions import CreateContainer
from providers.facts import Mark, container_name
from providers.runtime.docker.runtime import DockerRuntime, DockerSettings
from providers.spi import Context
from tests.providers.runtime.docker.engine import Api, template

pytestmark = pytest.mark.server("dockerd")


def test_replicas_that_are_created_at_once_share_one_network(docker_socket, api: Api, tmp_path: Path):
    instance, network = f"nets-{uuid4().hex[:8]}", f"nets-{uuid4().hex[:8]}"
    settings = DockerSettings(socket=docker_socket)
    runtime = DockerRuntime("local", settings, Context(instance, str(tmp_path)))
    marks = [Mark(instance, "web", ordinal, "0123456789abcdef") for ordinal in range(8)]
    actions = [
        CreateContainer("local", container_name(mark), mark, template(networks=(network,)), str(tmp_path))
        for mark in marks
    ]
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(runtime.perform, actions))
        filters = json.dumps({"name": [network]})
        assert [one["Name"] for one in api.link.get("/networks", "test", filters=filters)] == [network]
        for action in actions:
            api.start(action.name)
    finally:
        api.clean(instance)
        api.link.delete(f"/networks/{network}", "test")
        runtime.close()
