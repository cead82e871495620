"""The last good manifests of an instance, as files read from the source: a daemon that starts on a broken source goes on with them.

The file holds the texts of the manifests, and the files that they refer to for volumes and variables, with references to secrets and no value of one. They are checked again when they are
used, because the program may be another version by then. Written by the process that holds the lock, through `archive.py`.
"""

import json
import os
import stat
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from manifests.load import Sources
from manifests.source.directory import SourceFile, SourceTree
from manifests.source.local import LocalDocuments
from manifests.values.files import FileSet, SetFile
from reconciler.shell.store.directory import StoreError, explain, write_durable
from reconciler.shell.store.image_choice_rows import as_rows, rows_of

FILE = "manifests.json"
FORMAT = 2
"""Format 1 had at most one local document, which did not confine the tree: it is read, and such manifests stay as they are."""
LARGEST = 1 << 30
"""Bytes: a larger file was not written by this program."""

NEXT_STEP = "correct the manifests and run reconcile --once or --watch, which stores them again"


@dataclass(frozen=True, slots=True)
class LastGood:
    """Manifests that were in force.

    `since` is the wall time (ns) since which they are. `removed`: `reconcile destroy` has begun with them, so nothing may be made
    from them any more. `confined`: they came into force while local documents confined the tree.
    """

    sources: Sources
    instance: str
    commit: str
    since: int
    removed: bool = False
    confined: bool = True

    @property
    def revision(self) -> str:
        """The revision of the manifests, 64 hex digits."""
        return self.sources.revision


def save(state_dir: Path, good: LastGood) -> None:
    """Replace the stored manifests; after a kill or a power cut the file has the old or the new ones. Raises StoreError."""
    tree, local = good.sources.tree, good.sources.local
    body: dict[str, Any] = {
        "instance": good.instance,
        "revision": good.revision,
        "commit": good.commit,
        "since_wall": good.since,
        "removed": good.removed,
        "source": tree.identity,
        "root": tree.root,
        "complete": tree.complete,
        "is_git": tree.is_git,
        "environment": tree.environment,
        "files": _texts(tree.files),
        "sets": [_set(item) for item in tree.sets],
        "choices": as_rows(good.sources.choices),
        "local": {"name": local.name, "files": _texts(local.files)} if local is not None else None,
        "confined": good.confined,
    }
    text = json.dumps(body)
    head = json.dumps({"format": FORMAT, "sha256": sha256(text.encode()).hexdigest()})
    write_durable(state_dir / FILE, f"{head}\n{text}\n".encode())


def _texts(files: tuple[SourceFile, ...]) -> list[list[str]]:
    return [[file.name, file.data.decode()] for file in files]


def _set(item: FileSet) -> dict[str, Any]:
    """A set of files; their contents may be no text. A set with a problem belongs to no manifests that are in force, unless it is optional."""
    files = [[file.name, b64encode(file.data).decode(), file.executable] for file in item.files]
    return {"path": item.path, "files": files, "missing": item.missing, "problem": item.problem, "hint": item.hint}


def _read_set(raw: Any) -> FileSet:
    files = tuple(SetFile(str(name), b64decode(data, validate=True), mode is True) for name, data, mode in raw["files"])
    return FileSet(str(raw["path"]), files, str(raw["problem"]), str(raw["hint"]), raw["missing"] is True)


def _files(raw: Any) -> tuple[SourceFile, ...]:
    return tuple(SourceFile(str(name), str(text).encode()) for name, text in raw)


def load(state_dir: Path) -> LastGood | None:
    """The stored manifests; None when there are none. Raises StoreError when the file is damaged or cannot be read."""
    path = state_dir / FILE
    try:
        data = read_private(path, LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise explain(path, error) from error
    head, _, rest = data.partition(b"\n")
    text = rest.removesuffix(b"\n")
    try:
        header = json.loads(head)
        if header["format"] not in (1, FORMAT):
            raise StoreError(path, f"it has format {header['format']}, this program reads format {FORMAT}", NEXT_STEP)
        if header["sha256"] != sha256(text).hexdigest():
            raise StoreError(path, "it is damaged: its digest differs", NEXT_STEP)
        return _good(json.loads(text))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise StoreError(path, "it is damaged: it is not what reconcile writes", NEXT_STEP) from error


def _good(raw: dict[str, Any]) -> LastGood:
    files = _files(raw["files"])
    tree = SourceTree(
        identity=str(raw["source"]),
        root=str(raw["root"]),
        revision="",
        complete=raw["complete"] is True,
        is_git=raw["is_git"] is True,
        files=files,
        problems=(),
        sets=tuple(map(_read_set, raw.get("sets", ()))),
        environment=str(raw.get("environment", "")),
    )
    tree = replace(tree, revision=tree.digest())
    return LastGood(
        sources=Sources(tree, _local(raw["local"]), rows_of(raw.get("choices", ()))),
        instance=str(raw["instance"]),
        commit=str(raw["commit"]),
        since=int(raw["since_wall"]),
        removed=raw["removed"] is True,
        confined=raw.get("confined") is True,
    )


def _local(raw: Any) -> LocalDocuments | None:
    if not raw:
        return None
    if isinstance(raw, list):  # format 1: name and text
        return LocalDocuments(str(raw[0]), _files([raw]))
    return LocalDocuments(str(raw["name"]), _files(raw["files"]))


def read_private(path: Path, largest: int) -> bytes:
    """The content of a regular file of this user. Raises OSError; links, other users' and larger files are refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size > largest:
            raise PermissionError(1, "it is not a private file of this user", str(path))
        return file.read()
