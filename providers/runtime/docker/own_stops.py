"""Which stops this program asked for: engines do not say why a container exited, and labels cannot change.

One small file per node in the instance's state directory: for each container id the generation that was asked to stop, and its
restart policy before the stop. Losing the file is harmless: a stop then looks like an exit, and the container is started again.
`lifecycle.py` writes it, `fact.py` reads it.
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
"""Stops remembered at most: several times the containers of one engine."""


class OwnStop(NamedTuple):
    """A stop by this program: the pod's start time (wall clock, ns) and the main container's restart policy before the stop."""

    started_at: int
    restart: str


@dataclass(slots=True)
class _Cached:
    """The file as it was last read: its stat and its stops."""

    stamp: tuple[int, int, int]
    stops: dict[str, OwnStop]


class OwnStops:
    """The record of one node.

    Args:
        node: the provider's name, for messages.
        state_dir: the instance's private directory.
    """

    def __init__(self, node: str, state_dir: str) -> None:
        self._node = node
        self._path = Path(state_dir) / "docker" / f"{node}.stops.json"
        self._lock = threading.Lock()
        self._cached = _Cached((0, 0, 0), {})

    def all(self) -> dict[str, OwnStop]:
        """All stops by container id. Raises Unreachable when the file cannot be read; one that is broken counts as empty."""
        with self._lock:
            return dict(self._load())

    def put(self, container_id: str, stop: OwnStop) -> None:
        """Remember a stop before it is asked for. Raises Unreachable, Rejected: nothing was changed."""
        with self._lock:
            stops = dict(self._load())
            if stops.get(container_id) == stop:
                return
            stops[container_id] = stop
            # Containers removed by others stay in the file: above the limit the oldest are dropped.
            newest = sorted(stops, key=lambda key: stops[key].started_at)[-KEPT:]
            self._save({key: stops[key] for key in newest})

    def drop(self, container_id: str) -> None:
        """Forget a removed container. Raises Unreachable, Rejected."""
        with self._lock:
            stops = dict(self._load())
            if stops.pop(container_id, None) is not None:
                self._save(stops)

    def _load(self) -> dict[str, OwnStop]:
        try:
            info = self._path.stat()
            stamp = (info.st_ino, info.st_mtime_ns, info.st_size)
            if stamp != self._cached.stamp:
                self._cached = _Cached(stamp, _parse(self._path.read_bytes()))
        except FileNotFoundError:
            self._cached = _Cached((0, 0, 0), {})
        except OSError as error:
            raise Unreachable(
                self._node, f"cannot read {self._path}: {error.strerror}", "correct the permissions of the file"
            ) from error
        return self._cached.stops

    def _save(self, stops: dict[str, OwnStop]) -> None:
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
            step = "check whether the disk of the state directory is full or read-only"
            raise kind(self._node, f"cannot write {self._path}: {error.strerror}", step) from error


def _parse(data: bytes) -> dict[str, OwnStop]:
    try:
        stops = json.loads(data)
        return {str(key): OwnStop(int(value[0]), str(value[1])) for key, value in stops.items()}
    except (ValueError, TypeError, IndexError, AttributeError, KeyError):
        return {}
