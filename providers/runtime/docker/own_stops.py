"""Which stops were ours: engines do not say why a container ended, and labels cannot change. Called by `DockerRuntime`.

One small file per node in the instance's state directory: for each container id the generation that we asked to stop, and
the restart policy it had before. Losing it is harmless: a stop then looks like an exit, and the container is started again.
"""

import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from providers.errors import Rejected, Unreachable

KEPT = 5000
"""Stops remembered at most: several times what one engine runs."""


class Stop(NamedTuple):
    """A stop of ours: the main container's start time (wall, ns) and its restart policy before."""

    started_at: int
    restart: str


@dataclass(slots=True)
class _Read:
    """The file as it was last read, and what the system said of it then."""

    stamp: tuple[int, int, int]
    stops: dict[str, Stop]


class Stops:
    """The record of one node.

    Args:
        node: the provider's name, for messages.
        state_dir: the instance's private directory.
    """

    def __init__(self, node: str, state_dir: str) -> None:
        self._node = node
        self._path = Path(state_dir) / "docker" / f"{node}.stops.json"
        self._lock = threading.Lock()
        self._read = _Read((0, 0, 0), {})

    def all(self) -> dict[str, Stop]:
        """All stops by container id. Raises Unreachable when the file cannot be read; one that is broken counts as empty."""
        with self._lock:
            return dict(self._load())

    def put(self, container_id: str, stop: Stop) -> None:
        """Remember a stop that is about to happen. Raises Unreachable, Rejected: nothing was changed."""
        with self._lock:
            stops = dict(self._load())
            if stops.get(container_id) == stop:
                return
            stops[container_id] = stop
            # Containers that others removed stay in the record: the oldest of too many go.
            newest = sorted(stops, key=lambda key: stops[key].started_at)[-KEPT:]
            self._save({key: stops[key] for key in newest})

    def drop(self, container_id: str) -> None:
        """Forget a container that is gone. Raises Unreachable, Rejected."""
        with self._lock:
            stops = dict(self._load())
            if stops.pop(container_id, None) is not None:
                self._save(stops)

    def _load(self) -> dict[str, Stop]:
        try:
            info = self._path.stat()
            stamp = (info.st_ino, info.st_mtime_ns, info.st_size)
            if stamp != self._read.stamp:
                self._read = _Read(stamp, _parse(self._path.read_bytes()))
        except FileNotFoundError:
            self._read = _Read((0, 0, 0), {})
        except OSError as error:
            raise Unreachable(self._node, f"cannot read {self._path}: {error.strerror}", "repair its rights") from error
        return self._read.stops

    def _save(self, stops: dict[str, Stop]) -> None:
        text = json.dumps({key: list(stops[key]) for key in sorted(stops)}, indent=0)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            kind = Rejected if isinstance(error, PermissionError) else Unreachable
            step = "see whether the state directory's disk is full or read-only"
            raise kind(self._node, f"cannot write {self._path}: {error.strerror}", step) from error


def _parse(data: bytes) -> dict[str, Stop]:
    try:
        found = json.loads(data)
        return {str(key): Stop(int(value[0]), str(value[1])) for key, value in found.items()}
    except (ValueError, TypeError, IndexError, AttributeError, KeyError):
        return {}
