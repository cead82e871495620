"""Local documents: the file or directory of `--instance`, which says what the manifests of the tree may reach. Called by `load.py`.

They decide what another author's tree may do on this host, so they count only when no other user can write them: each file, and each
directory above it, belongs to root or to the user of this process and is not writable by others, and none is in the tree or in the
git work tree that the tree is in (an author who can merge there could change it). As in sshd's StrictModes, writable by the group counts
as writable by others; a directory with the sticky bit, such as /tmp, is safe for files that others do not own.

Documents that break one of these rules are not used at all, not even in part.
"""

import errno
import os
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from manifests.problems import Code, Problem
from manifests.source.directory import DIRECTORY_DEPTH, SUFFIXES, SourceFile, is_skipped, printable
from manifests.yaml.read import FILE_SIZE

FILES = 1_000
"""Most files of local documents: one host has a few."""
ENTRIES = 10_000
"""Most directory entries of a directory of local documents."""

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class LocalDocuments:
    """The files of one read of local documents, sorted by name.

    Attributes:
        name: the file or directory, absolute.
        files: by absolute names, so that no file of a tree has the same one; empty when one of them cannot be used.
        problems: why they cannot be used.
    """

    name: str
    files: tuple[SourceFile, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def revision(self) -> str:
        """Digest of the contents, 64 hex digits, wherever the files are."""
        digests = [sha256(file.data).hexdigest() for file in self.files]
        return digests[0] if len(digests) == 1 else sha256("\n".join(digests).encode()).hexdigest()


class _Unusable(Exception):
    """Why a file or directory cannot be used, and the next step."""

    def __init__(self, code: Code, message: str, hint: str, name: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.hint, self.name = code, message, hint, name


def read_local(given: StrPath, tree: StrPath) -> LocalDocuments:
    """Read a file, or the `*.yaml`, `*.yml` and `*.json` files in a directory and below. Never raises: see `problems`.

    Args:
        given: the file or directory. Hidden files and directories in a directory are skipped; links to files are followed.
        tree: the path of the manifests, which must not contain it.
    """
    name = os.path.abspath(given)
    problems: list[Problem] = []
    files: list[SourceFile] = []
    try:
        for shown, real in _listed(name):
            _outside(real, tree)
            try:
                files.append(SourceFile(printable(shown), _read(real)))
            except _Unusable as error:
                problems.append(_problem(shown, error))
    except _Unusable as error:
        problems.append(_problem(error.name or name, error))
    return LocalDocuments(name, () if problems else tuple(files), tuple(sorted(problems)))


def _problem(name: str, error: _Unusable) -> Problem:
    return Problem(printable(name), 0, 0, error.code, "", error.message, error.hint)


def _unreadable(message: str, hint: str, name: str = "") -> _Unusable:
    return _Unusable(Code.UNREADABLE_FILE, message, hint, name)


# --- which files -----------------------------------------------------------------------------------------------------


def _listed(name: str) -> list[tuple[str, str]]:
    """(name for messages, real path) of each file, sorted by name."""
    real = os.path.realpath(name)
    try:
        mode = os.stat(real).st_mode
    except OSError as error:
        raise _unreadable(f"cannot be read: {_reason(error)}", "check the path of --instance") from error
    if not stat.S_ISDIR(mode):
        return [(name, real)]
    found: list[tuple[str, str]] = []
    _walk(name, real, 0, found, [0])
    if not found:
        hint = "add the Instance to it, or check the path of --instance"
        raise _unreadable("there is no YAML or JSON file in this directory of local documents", hint)
    return sorted(found)


def _walk(name: str, real: str, depth: int, found: list[tuple[str, str]], count: list[int]) -> None:
    """Add the files of a directory. Raises _Unusable."""
    if depth > DIRECTORY_DEPTH:
        raise _Unusable(Code.TOO_MANY_FILES, f"directories are nested more than {DIRECTORY_DEPTH} deep", "", name)
    try:
        _private(real, os.lstat(real))
        with os.scandir(real) as scan:
            entries = sorted((entry for entry in scan if not is_skipped(entry.name)), key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(f"cannot be read: {_reason(error)}", "make it readable for this user", name) from error
    for entry in entries:
        count[0] += 1
        shown = os.path.join(name, entry.name)
        if count[0] > ENTRIES:
            message = f"more than {ENTRIES} files and directories"
            raise _Unusable(Code.TOO_MANY_FILES, message, "choose a smaller directory", name)
        try:
            linked, directory = entry.is_symlink(), entry.is_dir()
        except OSError as error:
            raise _unreadable(f"cannot be read: {_reason(error)}", "make it readable", shown) from error
        if directory and linked:
            hint = "replace the link with the directory itself, or remove it"
            raise _unreadable("a link to a directory is not followed", hint, shown)
        if directory:
            _walk(shown, os.path.join(real, entry.name), depth + 1, found, count)
        elif entry.name.casefold().endswith(SUFFIXES):
            if len(found) == FILES:
                raise _Unusable(Code.TOO_MANY_FILES, f"more than {FILES} files", "choose a smaller directory", name)
            found.append((shown, os.path.realpath(os.path.join(real, entry.name))))


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


# --- who can write them ----------------------------------------------------------------------------------------------


def _outside(real: str, tree: StrPath) -> None:
    """Refuse a file that authors of the tree can write too. Raises _Unusable."""
    root = os.path.realpath(tree)
    hint = "move it to a directory that only this host's operators can write, such as /etc/reconciler"
    if _is_within(real, root):
        message = f"it is in the tree {tree}, so an author who can merge there could change what the tree may reach"
        raise _Unusable(Code.UNSAFE_LOCAL, printable(message), hint)
    work_tree = _work_tree(root)
    if work_tree is not None and _is_within(real, work_tree):
        message = f"it is in the git work tree {work_tree} of the manifests, so an author who can merge there could change what the tree may reach"
        raise _Unusable(Code.UNSAFE_LOCAL, printable(message), hint)


def _is_within(real: str, directory: str) -> bool:
    return (real + "/").startswith(directory.rstrip("/") + "/")


def _work_tree(root: str) -> str | None:
    """The nearest directory at or above the tree that git would use as its work tree."""
    path = Path(root)
    return next((str(parent) for parent in (path, *path.parents) if os.path.lexists(parent / ".git")), None)


def _read(real: str) -> bytes:
    """The content of one file; one byte more than the limit when it is too large. Raises _Unusable."""
    try:
        # Not a link: the directories of the real path are checked, and no other user can change them.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _unreadable("cannot be read: it is not a regular file", "check the path of --instance")
            _private(real, status)
            return file.read(FILE_SIZE + 1)
    except OSError as error:
        reason = "it is a link that changed during the read" if error.errno == errno.ELOOP else _reason(error)
        raise _unreadable(f"cannot be read: {reason}", "make it readable for this user") from error


class UnsafeFile(Exception):
    """Why a file that local documents name cannot be used, and the next step."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.message, self.hint = message, hint


def read_safe(given: StrPath) -> bytes:
    """The content of a file that local documents name, such as one of keys: no other user can write it. Raises UnsafeFile.

    Links are followed; the file that they lead to counts.
    """
    try:
        data = _read(os.path.realpath(given))
    except _Unusable as error:
        hint = error.hint if error.code is Code.UNSAFE_LOCAL else "check the path, and that this user may read the file"
        raise UnsafeFile(error.message, hint.replace("the local documents", "the file")) from error
    if len(data) > FILE_SIZE:
        raise UnsafeFile(f"it has more than {FILE_SIZE} bytes", "check the path")
    return data


def _private(real: str, status: os.stat_result) -> None:
    """Refuse a file or directory that others can write, or replace in a directory above it. Raises _Unusable and OSError."""
    _only_ours(real, status, "it")
    for parent in Path(real).parents:
        above = os.stat(parent)
        _only_ours(str(parent), above, f"its directory {parent}", sticky=bool(above.st_mode & stat.S_ISVTX))


def _only_ours(path: str, status: os.stat_result, what: str, *, sticky: bool = False) -> None:
    """Refuse what others own or can write; in a sticky directory others can add files, but not replace ours."""
    shown = printable(path)
    if status.st_uid not in (0, os.geteuid()):
        message = f"{printable(what)} belongs to user {status.st_uid}, who could change what the tree may reach"
        raise _Unusable(Code.UNSAFE_LOCAL, message, f"run chown {os.geteuid()} {shown}, or move the local documents")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        who = "all users" if status.st_mode & stat.S_IWOTH else f"the group {status.st_gid}"
        message = f"{printable(what)} is writable by {who}, who could change what the tree may reach"
        raise _Unusable(Code.UNSAFE_LOCAL, message, f"run chmod go-w {shown}, or move the local documents")
