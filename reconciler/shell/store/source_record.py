"""Which source an instance has, and how it is: the revision in force, and the attempted one while that is invalid.

One small file in each state directory. The process that holds the lock writes it, through `archive.py`; commands read it, to find
the instance of a PATH whose manifests are invalid (`instance_index.py`) and to say what is wrong. It may be lost: the next run
with valid manifests writes it again.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reconciler.shell.store.directory import write_durable
from reconciler.shell.store.last_good import read_private

FILE = "source.json"
LARGEST = 256 * 1024
"""Bytes: a larger file was not written by this program."""
PLACES = 16
"""How many places of the source are remembered, the newest ones."""
PROBLEMS = 20
"""How many problems of an invalid revision are kept."""
CAUSE = 500
"""How many characters of a text of a problem are kept."""


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where manifests were read: the absolute path as given, the path without links, the path of local documents and the environment."""

    path: str
    real: str
    instance_file: str = ""
    environment: str = ""


@dataclass(frozen=True, slots=True)
class InForce:
    """The revision in force, and since when (wall ns).

    `commit` brought it. `newest` is the newest commit that has the same manifests, from which the next one must follow; empty: `commit`.
    """

    revision: str
    commit: str
    source: str
    since_wall: int
    newest: str = ""


@dataclass(frozen=True, slots=True)
class Attempted:
    """A revision of the source that is invalid. `problems` are JSON objects as `Problem.to_dict` makes them, `count` is that of all."""

    revision: str
    commit: str
    since_wall: int
    count: int = 0
    problems: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class SeenCommit:
    """The newest commit of a git source that was read, in force or not, the full name of its ref, and since when (wall ns)."""

    commit: str
    ref: str
    since_wall: int


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The record of one instance. `used` is the wall time (ns) of the last read of valid manifests that were put in force.

    `removed`: `reconcile destroy` has begun to remove what they declare.
    """

    instance: str
    places: tuple[SourcePlace, ...] = ()
    in_force: InForce | None = None
    attempted: Attempted | None = None
    used: int = 0
    removed: bool = False
    seen: SeenCommit | None = None
    format: int = field(default=1)


def save(state_dir: Path, record: SourceRecord) -> None:
    """Replace the record. Raises StoreError."""
    write_durable(state_dir / FILE, (json.dumps(asdict(record)) + "\n").encode())


def load(state_dir: Path) -> SourceRecord | None:
    """The record of a state directory; None when there is none, and when it is damaged or of another version."""
    try:
        raw = json.loads(read_private(state_dir / FILE, LARGEST))
        if raw["format"] != 1:
            return None
        in_force, attempted = raw["in_force"], raw["attempted"]
        return SourceRecord(
            instance=str(raw["instance"]),
            places=tuple(
                SourcePlace(
                    str(place["path"]),
                    str(place["real"]),
                    str(place["instance_file"]),
                    str(place.get("environment", "")),
                )
                for place in raw["places"][:PLACES]
            ),
            in_force=None if in_force is None else _in_force(in_force),
            attempted=None if attempted is None else _attempted(attempted),
            used=int(raw["used"]),
            removed=raw["removed"] is True,
            seen=None if raw.get("seen") is None else _seen(raw["seen"]),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _in_force(raw: dict[str, Any]) -> InForce:
    newest = str(raw.get("newest", ""))
    return InForce(str(raw["revision"]), str(raw["commit"]), str(raw["source"]), int(raw["since_wall"]), newest)


def _seen(raw: dict[str, Any]) -> SeenCommit:
    return SeenCommit(str(raw["commit"]), str(raw["ref"]), int(raw["since_wall"]))


def _attempted(raw: dict[str, Any]) -> Attempted:
    problems = tuple({str(name): value for name, value in problem.items()} for problem in raw["problems"][:PROBLEMS])
    return Attempted(str(raw["revision"]), str(raw["commit"]), int(raw["since_wall"]), int(raw["count"]), problems)
