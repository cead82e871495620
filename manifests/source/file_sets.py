"""Files beside the manifests that workloads refer to: `volumes[].files.from` and `envFile`. Called by `directory.py`.

`needed_paths` says which paths a set of manifests needs, `read_sets` reads them. Both are separate, so that a source that stores only what
a set needs can fetch exactly these paths first. The files are a part of the revision, as the manifests are.

Files that a volume mounts are content, not manifests, also when they are YAML or JSON: a program may be configured in either. A directory
that holds a manifest of this program cannot be mounted, so that no object vanishes because a volume covers it.
"""

import errno
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol

from manifests.values.files import FileSet, SetFile, is_git_directory
from manifests.yaml.read import read_file

SET_SIZE = 1 << 20
"""Most bytes of all files of one set together."""
SET_FILES = 256
"""Most files of one set."""
SET_DEPTH = 16
"""How deep the directories of one set may be nested."""
SET_ENTRIES = 4096
"""Most directory entries of one set, with those that are skipped."""
SETS = 1000
"""Most paths that one tree may refer to."""
ALL_SIZE = 32 << 20
"""Most bytes of all sets of one tree together."""
NAME_LENGTH = 1024
"""Longest path of a file below its set, in bytes."""

_MANIFEST = re.compile(rb"reconciler(?:/|\\/|\\u002[fF]|\\x2[fF])v1")
_ESCAPE = re.compile(rb"\\[uUx]")

_CACHED = 1000
"""Manifests whose paths are remembered, by the digest of their text."""

_known: dict[bytes, frozenset[str]] = {}


class NamedBytes(Protocol):
    """A file of manifests: `directory.SourceFile`."""

    @property
    def name(self) -> str:
        """The name as problems show it."""

    @property
    def data(self) -> bytes:
        """The content."""


# --- which paths -----------------------------------------------------------------------------------------------------


def is_manifest(data: bytes) -> bool:
    """Whether a text may hold a manifest of this program: it has its `apiVersion`."""
    return _MANIFEST.search(data) is not None


def needed_paths(files: Iterable[NamedBytes]) -> tuple[str, ...]:
    """The paths that these manifests refer to, relative to the manifests' directory, in normal form, sorted; at most `SETS`.

    Invalid paths are left out: the check of the manifest reports them. At each path there may be a file, a directory or nothing.
    """
    needed: set[str] = set()
    for file in files:
        if _may_refer(file.data):
            needed |= _paths_of(file.data)
    return tuple(sorted(needed)[:SETS])


def _may_refer(data: bytes) -> bool:
    """Whether a text may be a Workload with such a field: it has their names, or an escape that may spell them."""
    named = (b"files" in data or b"envFile" in data) and b"Workload" in data
    return (named or (b"\\" in data and _ESCAPE.search(data) is not None)) and is_manifest(data)


def _paths_of(data: bytes) -> frozenset[str]:
    """The paths in one file: the source is read often and changes rarely, so each text is parsed once."""
    digest = sha256(data).digest()
    paths = _known.get(digest)
    if paths is None:
        documents, _ = read_file("", data)
        paths = frozenset(path for document in documents for path in _of_document(document.value))
        if len(_known) >= _CACHED:
            _known.clear()
        _known[digest] = paths
    return paths


def _of_document(value: object) -> Iterator[str]:
    if not isinstance(value, dict) or value.get("kind") != "Workload":
        return
    spec = _mapping(_mapping(_mapping(value.get("spec")).get("template")).get("spec"))
    for volume in _list(spec.get("volumes")):
        yield from _valid(_mapping(_mapping(volume).get("files")).get("from"))
    for container in _list(spec.get("containers")):
        given = _mapping(container).get("envFile")
        for item in given if isinstance(given, list) else [given]:
            yield from _valid(_mapping(item).get("path") if isinstance(item, dict) else item)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _valid(path: object) -> Iterator[str]:
    if isinstance(path, str) and path and not path.startswith("/") and "\0" not in path:
        parts = path.split("/")
        if ".." not in parts and not is_git_directory(parts):
            yield posixpath.normpath(path)


def covered(name: str, paths: Iterable[str]) -> bool:
    """Whether a file of this name (relative to the manifests' directory) is at or below one of these paths."""
    return any(name == path or name.startswith(f"{path}/") for path in paths)


# --- reading ---------------------------------------------------------------------------------------------------------


class _Unusable(Exception):
    """Why a path cannot be used, and the next step."""

    def __init__(self, cause: str, hint: str, missing: bool = False) -> None:
        super().__init__(cause)
        self.cause, self.hint, self.missing = cause, hint, missing


def read_sets(root: str, paths: Iterable[str], provide: Callable[[str], str] | None = None) -> tuple[FileSet, ...]:
    """What is at each of these paths below a directory. Follows no link and waits for no pipe. What cannot be read is in `FileSet.problem`.

    `provide` as in `directory.with_sets`; only what it raises is raised.
    """
    sets: list[FileSet] = []
    left = ALL_SIZE
    for path in paths:
        failed = provide(path) if provide is not None else ""
        read = _read_set(root, path) if not failed else FileSet(path, problem=failed, hint="")
        left -= sum(len(file.data) for file in read.files)
        if left < 0:
            cause = f"the files of all volumes and envFiles have more than {ALL_SIZE >> 20} MiB together"
            read = FileSet(path, problem=cause, hint="mount fewer or smaller files")
        sets.append(read)
    return tuple(sets)


def _read_set(root: str, path: str) -> FileSet:
    reading = _Reading()
    try:
        parent = _open_directory(root, None, root)
        try:
            for part in posixpath.dirname(path).split("/") if "/" in path else ():
                inner = _open_directory(part, parent, path)
                os.close(parent)
                parent = inner
            reading.visit(parent, posixpath.basename(path) if path != "." else ".", "", 0)
        finally:
            os.close(parent)
    except _Unusable as error:
        return FileSet(path, problem=error.cause, hint=error.hint, missing=error.missing)
    except OSError as error:
        # A path that is longer than the system allows, or a disk that cannot be read.
        return FileSet(path, problem=f"cannot be read: {_reason(error)}", hint="make it readable")
    if not reading.files:
        return FileSet(path, problem="the directory has no files", hint="add a file, or remove the reference")
    return FileSet(path, tuple(sorted(reading.files)))


def _open_directory(name: str, parent: int | None, path: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if parent is None else os.O_NOFOLLOW)
    try:
        return os.open(name, flags, dir_fd=parent)
    except FileNotFoundError as error:
        raise _Unusable("there is no such file or directory", "", missing=True) from error
    except (NotADirectoryError, PermissionError) as error:
        # A link gives the same error as a file, because both flags are set.
        if parent is not None and stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise _link(name) from error
        if isinstance(error, NotADirectoryError):
            raise _Unusable("there is no such file or directory", "", missing=True) from error
        raise _Unusable(f"cannot be read: {_reason(error)}", f"make '{printable(path)}' readable") from error


def _link(name: str) -> _Unusable:
    return _Unusable(f"'{printable(name)}' is a link", "replace the link with the file itself: links are not followed")


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def printable(name: str) -> str:
    """A file name for a message."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def is_temporary(name: str) -> bool:
    """Whether a name is that of git's own directory, or of a temporary or backup file of an editor: such files are left out."""
    return is_git_directory((name,)) or name.startswith(("#", ".#")) or name.endswith(("~", "#", ".swp", ".tmp"))


@dataclass(slots=True)
class _Reading:
    """One set while it is read."""

    files: list[SetFile] = field(default_factory=list)
    size: int = 0
    entries: int = 0

    def visit(self, parent: int, name: str, shown: str, depth: int) -> None:
        """Read the file or directory of this name. `shown` is its path below the set; empty for the set itself."""
        status = self._status(parent, name, shown)
        mode = status.st_mode
        if stat.S_ISDIR(mode):
            self._directory(parent, name, shown, depth)
        elif stat.S_ISREG(mode):
            self._file(parent, name, shown)
        elif stat.S_ISLNK(mode):
            raise _link(shown or name)
        else:
            raise _Unusable(
                f"'{printable(shown or name)}' is neither a file nor a directory", "remove it, or refer to another path"
            )

    def _status(self, parent: int, name: str, shown: str) -> os.stat_result:
        try:
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError as error:
            if shown:
                raise _Unusable(f"'{printable(shown)}' vanished during the read", "it is read again") from error
            raise _Unusable("there is no such file or directory", "", missing=True) from error

    def _directory(self, parent: int, name: str, shown: str, depth: int) -> None:
        if depth >= SET_DEPTH:
            raise _Unusable(f"its directories are nested more than {SET_DEPTH} deep", "mount a directory further down")
        descriptor = _open_directory(name, parent, shown or name)
        try:
            for inner in sorted(os.listdir(descriptor)):
                self.entries += 1
                if self.entries > SET_ENTRIES:
                    raise _Unusable(f"it has more than {SET_ENTRIES} entries", "mount a smaller directory")
                if not is_temporary(inner):
                    self.visit(descriptor, inner, f"{shown}/{inner}" if shown else inner, depth + 1)
        finally:
            os.close(descriptor)

    def _file(self, parent: int, name: str, shown: str) -> None:
        if printable(shown) != shown or len(shown.encode()) > NAME_LENGTH:
            raise _Unusable(
                f"the name '{printable(shown)[:200]}' is longer than {NAME_LENGTH} bytes or has characters that cannot be shown",
                "rename the file",
            )
        if len(self.files) == SET_FILES:
            raise _Unusable(f"it has more than {SET_FILES} files", "mount a smaller directory, or list files in items")
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(name, flags, dir_fd=parent), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise _Unusable(f"'{printable(shown or name)}' changed during the read", "it is read again")
                data = file.read(SET_SIZE - self.size + 1)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _link(shown or name) from error
            raise _Unusable(
                f"'{printable(shown or name)}' cannot be read: {_reason(error)}", "make it readable"
            ) from error
        self.size += len(data)
        if self.size > SET_SIZE:
            raise _Unusable(
                f"it has more than {SET_SIZE >> 20} MiB", "mount fewer files, or put large files into the image"
            )
        self.files.append(SetFile(shown, data, bool(status.st_mode & stat.S_IXUSR)))
