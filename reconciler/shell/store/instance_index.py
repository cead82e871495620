"""Finds the instance of a PATH whose manifests are invalid, and with them its id.

The records in the state directories (`source_record.py`) are the index. State directories in other places than the default one
are found through small pointer files in `.index` beside the default ones. Everything in it is private to the user, bounded, and
written again by each run with valid manifests, so its loss costs nothing: an instance whose record is lost is found by the
source of its last decision. Called by the command line, and by `wire.py` for a daemon that starts on invalid manifests.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from manifests.source.git_url import GitUrl
from manifests.values.source_identity import environment_of, same_set
from reconciler.shell.clock import HostClock
from reconciler.shell.store import source_record
from reconciler.shell.store.database_file import FILE as DATABASE
from reconciler.shell.store.directory import StoreError, make_state_dir, write_durable
from reconciler.shell.store.last_good import read_private
from reconciler.shell.store.source_record import SourcePlace, SourceRecord
from reconciler.shell.store.state_db import Store

DIRECTORY = ".index"
"""No id of an instance begins with a dot."""
INSTANCES = 1_000
"""How many state directories are looked at."""
POINTERS = 256
"""How many state directories outside the default place are remembered, the newest ones."""
POINTER_BYTES = 16 * 1024


def place_of(path: Path | GitUrl, instance_file: Path | None, environment: str = "") -> SourcePlace:
    """How the index names a PATH, local documents and an environment."""
    local = os.path.realpath(instance_file) if instance_file is not None else ""
    if isinstance(path, GitUrl):
        return SourcePlace(str(path), str(path), local, environment)
    return SourcePlace(os.path.abspath(path), os.path.realpath(path), local, environment)


def remember(base: Path, state_dir: Path) -> None:
    """Make a state directory that is not below `base` known. Writes only when it is unknown. Raises StoreError."""
    state_dir = state_dir.absolute()
    if state_dir.parent == base:
        return
    pointers = base / DIRECTORY
    file = pointers / f"{sha256(os.fsencode(state_dir)).hexdigest()[:32]}.json"
    if _pointed(file) == state_dir:
        return
    make_state_dir(pointers)
    write_durable(file, json.dumps({"state_dir": str(state_dir)}).encode())
    _bound(pointers)


def _bound(pointers: Path) -> None:
    """Drop pointers to what is gone, and the oldest ones above the limit."""
    files = list(pointers.glob("*.json"))
    kept = [file for file in files if (target := _pointed(file)) is not None and target.is_dir()]
    with suppress(OSError):
        kept.sort(key=lambda file: file.stat().st_mtime_ns, reverse=True)
    for file in {*files} - {*kept[:POINTERS]}:
        with suppress(OSError):
            file.unlink()


def _pointed(file: Path) -> Path | None:
    try:
        return Path(str(json.loads(read_private(file, POINTER_BYTES))["state_dir"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _state_dirs(base: Path) -> Iterator[Path]:
    """All known state directories: the default ones, then those that pointers name."""
    with suppress(OSError):
        entries = sorted(entry.name for entry in os.scandir(base) if not entry.name.startswith("."))
        yield from (base / name for name in entries[:INSTANCES])
    with suppress(OSError):
        pointers = sorted((base / DIRECTORY).glob("*.json"))
        yield from (target for file in pointers[: 2 * POINTERS] if (target := _pointed(file)) is not None)


class Found(NamedTuple):
    """An instance: its id, when (wall ns) it last read valid manifests (0 = not known), and whether `destroy` has removed it."""

    instance: str
    used: int = 0
    removed: bool = False


def find(base: Path, place: SourcePlace, source: str, clock: HostClock) -> dict[Path, Found]:
    """The instances whose manifests are at a place, by their state directories.

    Args:
        base: holds the default state directories.
        place: the PATH and the local documents. Without local documents, a run of the same PATH with some counts when there is no other.
        source: the identity of the source at PATH, as `SourceTree` has it; it finds an instance that another path was given for.
    """
    records: dict[Path, SourceRecord | None] = {}
    for state_dir in _state_dirs(base):
        if state_dir not in records and (state_dir / DATABASE).exists():
            records[state_dir] = source_record.load(state_dir)
    known = {state_dir: record for state_dir, record in records.items() if record is not None}
    here = {
        state_dir: record for state_dir, record in known.items() if any(_is_same(place, each) for each in record.places)
    }
    exact = {
        state_dir: record
        for state_dir, record in here.items()
        if any(
            place.instance_file == _canonical(each.instance_file) and _is_same(place, each) for each in record.places
        )
    }
    if exact or place.instance_file:
        return {state_dir: _found(record) for state_dir, record in exact.items()}
    if here:
        return {state_dir: _found(record) for state_dir, record in here.items()}
    found = {
        state_dir: _found(record)
        for state_dir, record in known.items()
        if record.in_force is not None and same_set(record.in_force.source, source)
    }
    lost = [state_dir for state_dir, record in records.items() if record is None]
    return found or {
        state_dir: Found(instance)
        for state_dir in lost
        if (instance := _decided_for(state_dir, source, clock)) is not None
    }


def _is_same(place: SourcePlace, other: SourcePlace) -> bool:
    """Whether two places are the same environment of the same PATH: the state of one environment is never that of another."""
    return place.environment == other.environment and (place.path == other.path or place.real == other.real)


def environments(base: Path, instance: str) -> dict[Path, str]:
    """The environments that an instance has in force, by state directory; more than one only where `--state-dir` was given."""
    found: dict[Path, str] = {}
    for state_dir in _state_dirs(base):
        record = source_record.load(state_dir) if (state_dir / DATABASE).exists() else None
        if record is not None and record.instance == instance and record.in_force is not None and not record.removed:
            found[state_dir] = environment_of(record.in_force.source)
    return found


def _canonical(path: str) -> str:
    """The path without links: a run may have been given another path of the same local documents."""
    return os.path.realpath(path) if path else ""


def _found(record: SourceRecord) -> Found:
    return Found(record.instance, record.used, record.removed)


def _decided_for(state_dir: Path, source: str, clock: HostClock) -> str | None:
    """The id of an instance whose last decision was made for a source; None when it was another one, or is not known."""
    try:
        with Store.join(state_dir, clock) as store:
            last = store.last_decision()
        stored = json.loads(last.text) if last is not None else {}
        return str(stored["instance"]) if same_set(str(stored["source"]), source) else None
    except (StoreError, ValueError, TypeError, KeyError):
        return None
