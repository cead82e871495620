"""Containers as an inspection gives them, for tests that need no engine."""

from dataclasses import replace
from typing import Any

from providers.facts import Mark, container_name, mark_labels
from providers.runtime.docker.container import EngineContainer
from providers.runtime.docker.timestamps import SECOND, wall

MARK = Mark("demo", "web", 0, "0123456789abcdef")
NAME = container_name(MARK)


def exited_container(**changes: Any) -> EngineContainer:
    """A main container that exited by itself a second ago."""
    container = EngineContainer(
        id="id",
        name=NAME,
        labels=mark_labels(MARK, 1),
        status="exited",
        started_at=wall() - 60 * SECOND,
        finished_at=wall() - SECOND,
        running_since=0,
        exit_code=1,
        pid=0,
        network_mode="bridge",
        addresses={},
        ports=(),
        restart="no",
        cpu=0,
        memory=0,
        stop_timeout=10,
    )
    return replace(container, **changes)
