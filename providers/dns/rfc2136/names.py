"""Which record sets to query where zones cannot be transferred: a file per zone in the state directory.

Without it a restarted program would not know which record sets it has published. A name is saved before its record set is
written, and dropped after its removal was read back, so that a kill -9 in between only costs a query. Used by `provider.py` with
`readBack: queries`.
"""

import json
import os
from collections.abc import Collection
from pathlib import Path
from threading import Lock
from urllib.parse import quote

from providers.errors import Unreachable
from providers.facts import RecordKey, RecordSet
from providers.lib.files import locked, read

MAX_NAMES = 100_000
"""Record sets in one file, at most. A look queries each, so more would make a look too slow."""

FORMATS = ("reconciler/rfc2136-names/1", "reconciler/rfc2136-names/2")
"""The format of a file of names only, and of one that has values beside some."""

Known = dict[RecordKey, RecordSet | None]
"""Record sets to query; with the set as it was written where queries do not show it."""


class Names:
    """The record sets that one provider queries, by zone."""

    def __init__(self, state_dir: str, provider: str) -> None:
        self._directory = Path(state_dir) / "rfc2136" / quote(provider, safe="")
        self._lock = Lock()

    def of(self, zone: str) -> Known:
        """The record sets of a zone. Raises `Unreachable` when the file cannot be read: unknown is not empty."""
        path = self._path(zone)
        data = read(f"zone {zone}", path)
        return {} if data is None else _parsed(zone, path, data)

    def add(self, zone: str, keys: Collection[RecordKey]) -> frozenset[RecordKey]:
        """Save record sets durably. Returns the new ones. Raises `Unreachable`."""
        with self._lock:
            new = frozenset(keys) - self.of(zone).keys()
            if new:
                self._update(zone, dict.fromkeys(new), frozenset())
            return new

    def remember(self, zone: str, sets: Known) -> None:
        """Save sets that queries do not show, before they are written. Raises `Unreachable`."""
        if not sets:
            return
        with self._lock:
            self._update(zone, sets, frozenset())

    def drop(self, zone: str, keys: Collection[RecordKey]) -> None:
        """Drop record sets. Raises `Unreachable`."""
        if not keys:
            return
        with self._lock:
            self._update(zone, {}, frozenset(keys))

    def _update(self, zone: str, new: Known, gone: frozenset[RecordKey]) -> None:
        target, path = f"zone {zone}", self._path(zone)
        try:
            for directory in (self._directory.parent, self._directory):
                directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise Unreachable(target, f"cannot create {self._directory}: {error.strerror}") from error
        with locked(target, self._directory):
            after = {key: record for key, record in {**self.of(zone), **new}.items() if key not in gone}
            if len(after) > MAX_NAMES:
                raise Unreachable(target, f"has more than {MAX_NAMES} record sets to query", "use readBack: axfr")
            rows = [
                [key.name, key.type, *([] if record is None else [record.ttl, list(record.values)])]
                for key, record in sorted(after.items(), key=lambda item: item[0])
            ]
            content = {"format": FORMATS[any(after.values())], "names": rows}
            _replace(target, path, json.dumps(content).encode())

    def _path(self, zone: str) -> Path:
        return self._directory / f"{quote(zone, safe='')}json"


def _parsed(zone: str, path: Path, data: bytes) -> Known:
    try:
        content = json.loads(data)
        names = dict.fromkeys(FORMATS, content["names"])[content["format"]]  # another format is a KeyError
        return {RecordKey(str(name), str(kind)): _set(*rest) for name, kind, *rest in names}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        cause = f"{path} is not a file of record sets in format {FORMATS[-1]}"
        raise Unreachable(f"zone {zone}", cause, "remove it; names are saved again when they are published") from error


def _set(ttl: object = None, values: object = ()) -> RecordSet | None:
    if ttl is None:
        return None
    return RecordSet(int(str(ttl)), tuple(str(value) for value in values))  # type: ignore[attr-defined]


def _replace(target: str, path: Path, data: bytes) -> None:
    """Replace the file atomically and durably, mode 0600. The caller holds the lock, so one temporary name is enough."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise Unreachable(target, f"cannot write {path}: {error.strerror}") from error
