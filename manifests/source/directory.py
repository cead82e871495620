"""Manifests in a directory, or in one file: finds and reads the files. Called by `load.py`.

It reads `*.yaml`, `*.yml` and `*.json` in the directory and below, in the order of their paths. It skips hidden files and
directories and the temporary files of editors; other files may stand beside the manifests. A link may not lead out of the
directory. A file that cannot be read is a problem, never a gap.

Files that volumes and `envFile` refer to are read with them (`file_sets.py`), and are no manifests.

With an environment it reads `environments/NAME/` too, whose documents are merged over the others (`manifests/overlay/`). Files of other
environments are not read.

The given directory is the root of its set, also inside a git work tree: objects that were created from it and are no longer
in it may be pruned. A single file is never a complete set.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from manifests.problems import Code, Problem, did_you_mean
from manifests.source.file_sets import covered, is_manifest, needed_paths, read_sets
from manifests.source.identity import identity_of
from manifests.values.files import FileSet
from manifests.values.source_identity import with_environment
from manifests.yaml.read import FILE_SIZE

SUFFIXES = (".yaml", ".yml", ".json")
FILES = 100_000
"""Most manifest files of one tree."""
ENTRIES = 1_000_000
"""Most directory entries that one tree may have."""
DIRECTORY_DEPTH = 64
"""How deep directories may be nested."""

ENVIRONMENTS = "environments"
"""The directory below that of the manifests which holds a directory for each environment."""
ENVIRONMENT_NAME = re.compile(r"[A-Za-z0-9](?:[-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")
"""A name of an environment: that of a directory, which is neither hidden nor a temporary file."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file: its name as problems show it, and its content (one byte more than the limit when it is too large)."""

    name: str
    data: bytes


def already_there(path: str) -> str:
    """Nothing to do: a directory on this host has all of its files."""
    del path
    return ""


@dataclass(frozen=True, slots=True)
class SourceTree:
    """One revision of a set of files.

    Attributes:
        identity: which set this is; equal for the same repository and path on every machine.
        root: absolute directory that relative paths in manifests start from.
        revision: digest of the names and contents of the files, 64 hex digits.
        complete: whether this is a whole set; only then may missing objects be pruned.
        is_git: whether the path is inside a git work tree.
        files: sorted by name.
        problems: files and directories that could not be read.
        sets: the files that the manifests refer to, sorted by path.
        provide: makes a file or directory that a manifest names readable below the root, by its relative path, and returns why it
            cannot be; empty when it is there, or does not exist in the source either. A git source gets it from its mirror. Called
            before a file other than a manifest is looked for below the root.
        environment: the environment whose files are among `files`; empty for the base alone.
        environments: the names of all environments, sorted.
    """

    identity: str
    root: str
    revision: str
    complete: bool
    is_git: bool
    files: tuple[SourceFile, ...]
    problems: tuple[Problem, ...]
    sets: tuple[FileSet, ...] = ()
    provide: Callable[[str], str] = field(default=already_there, compare=False, repr=False)
    environment: str = ""
    environments: tuple[str, ...] = ()

    @property
    def base(self) -> tuple[SourceFile, ...]:
        """The files without those of the environment."""
        return tuple(file for file in self.files if not self._is_overlay(file)) if self.environment else self.files

    @property
    def overlay(self) -> tuple[SourceFile, ...]:
        """The files of the environment."""
        return tuple(file for file in self.files if self._is_overlay(file)) if self.environment else ()

    def _is_overlay(self, file: SourceFile) -> bool:
        return file.name.startswith(f"{ENVIRONMENTS}/{self.environment}/")

    def digest(self) -> str:
        """The revision that belongs to the files."""
        return digest(self.files, self.sets)


def read_tree(
    path: str | os.PathLike[str], known: str = "", provide: Callable[[str], str] | None = None, environment: str = ""
) -> SourceTree:
    """Read a directory of manifests, or one file. Never raises: see `problems`.

    Args:
        path: the directory or file.
        known: the identity of a set in git whose files are here; empty: as the path and git say.
        provide: as in `with_sets`.
        environment: the environment to read with the base; empty for the base alone.
    """
    given = Path(os.path.abspath(path))
    real = Path(os.path.realpath(given))
    identity, is_git = (known, True) if known else identity_of(real)
    identity = with_environment(identity, environment)
    if not os.path.lexists(given) or not real.exists():
        problem = Problem(
            printable(os.fspath(path)), 0, 0, Code.PATH_NOT_FOUND, "", "no such file or directory", "check the path"
        )
        return SourceTree(identity, str(real), digest(()), False, False, (), (problem,))
    if not real.is_dir():
        file, problems = read_one(real, real.name)
        if environment:
            message = f"one file has no environment '{environment}'"
            hint = f"give the directory that has the directory {ENVIRONMENTS}, or leave out the environment"
            problems.append(Problem(printable(real.name), 0, 0, Code.WRONG_ENVIRONMENT, "", message, hint))
        files: tuple[SourceFile, ...] = (file,) if file else ()
        alone = SourceTree(
            identity, str(real.parent), "", False, is_git, files, tuple(problems), environment=environment
        )
        return with_sets(alone, provide)
    walk = _Walk(str(real), environment)
    walk.enter("", 0)
    walk.check_environment()
    walk.files.sort(key=lambda source: source.name)
    files = tuple(walk.files)
    tree = SourceTree(identity, str(real), "", True, is_git, files, tuple(sorted(walk.problems)))
    return with_sets(replace(tree, environment=environment, environments=tuple(sorted(walk.environments))), provide)


def with_sets(tree: SourceTree, provide: Callable[[str], str] | None = None) -> SourceTree:
    """The tree with the files that its manifests refer to, read below its root now, and its revision with them.

    Args:
        tree: the manifests, and other YAML and JSON files.
        provide: makes the files at a path readable below the root, where not all of them are there, and returns why it cannot.
    """
    needed = needed_paths(tree.files)
    if needed:
        files = tuple(file for file in tree.files if is_manifest(file.data) or not covered(file.name, needed))
        tree = replace(tree, files=files, sets=read_sets(tree.root, needed, provide))
    return replace(tree, revision=tree.digest())


def with_contents(tree: SourceTree, contents: Mapping[str, bytes]) -> SourceTree:
    """The tree with other contents in the files of these names."""
    if not contents:
        return tree
    files = tuple(replace(file, data=contents.get(file.name, file.data)) for file in tree.files)
    return replace(tree, files=files, revision=digest(files, tree.sets))


def digest(files: tuple[SourceFile, ...], sets: tuple[FileSet, ...] = ()) -> str:
    """The revision of a set of files: SHA-256 over names and contents, in the order given, and over the sets that they refer to."""
    total = sha256()
    for file in files:
        total.update(sha256(file.name.encode("utf-8", "surrogateescape")).digest())
        total.update(sha256(file.data).digest())
    for item in sets:
        total.update(item.digest().encode())
    return total.hexdigest()


def is_read(name: str, environment: str) -> bool:
    """Whether a file of this name belongs to the base or to the environment, and not to another environment."""
    return not name.startswith(f"{ENVIRONMENTS}/") or (
        bool(environment) and name.startswith(f"{ENVIRONMENTS}/{environment}/")
    )


def is_skipped(name: str) -> bool:
    """Whether a name is hidden, or that of a temporary or backup file of an editor."""
    return name.startswith((".", "#")) or name.endswith(("~", "#", ".swp", ".tmp"))


def read_one(path: Path, name: str) -> tuple[SourceFile | None, list[Problem]]:
    """Read one regular file without following a link at its end, waiting for a pipe, or reading far past the limit."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None, [_unreadable(name, "it is not a regular file")]
            return SourceFile(printable(name), file.read(FILE_SIZE + 1)), []
    except OSError as error:
        return None, [_unreadable(name, _reason(error))]


def _unreadable(name: str, reason: str) -> Problem:
    hint = "make it readable, or move it out of the manifests' directory"
    return Problem(printable(name), 0, 0, Code.UNREADABLE_FILE, "", f"cannot be read: {reason}", hint)


def _reason(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "it is a link that changed during the read"
    return (error.strerror or type(error).__name__).lower()


def printable(name: str) -> str:
    """A file name that can be printed: bytes that are not UTF-8 become escapes, and so do control characters."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class _Walk:
    """One walk through a directory; collects files and problems."""

    def __init__(self, root: str, environment: str = "") -> None:
        self.root, self.environment = root, environment
        self.environments: list[str] = []
        self.files: list[SourceFile] = []
        self.problems: list[Problem] = []
        self._entries = 0
        self._full = False
        self._linked: set[str] = set()

    def enter(self, below: str, depth: int) -> None:
        """Read the directory `below` the root (a relative path with a final slash, or empty)."""
        if depth > DIRECTORY_DEPTH:
            self._problem(below, Code.TOO_MANY_FILES, f"directories are nested more than {DIRECTORY_DEPTH} deep")
            return
        try:
            with os.scandir(os.path.join(self.root, below)) as scan:
                entries = sorted((entry for entry in scan if not is_skipped(entry.name)), key=lambda entry: entry.name)
        except OSError as error:
            self.problems.append(_unreadable(below.rstrip("/") or ".", _reason(error)))
            return
        for entry in entries:
            self._entries += 1
            if self._full or self._entries > ENTRIES:
                self._stop(below, f"more than {ENTRIES} files and directories")
                return
            if below == "" and entry.name == ENVIRONMENTS and self._has_environments(entry):
                continue
            self._visit(entry, below + entry.name, depth)

    def _has_environments(self, entry: os.DirEntry[str]) -> bool:
        """Read the directory of the environments: their names, and the files of the chosen one. False when it is a file."""
        try:
            if not entry.is_dir():
                return False
            if entry.is_symlink():
                message = "it is a link, and environments are not read through links"
                hint = "replace the link with the directory itself, or rename it"
                self._problem(ENVIRONMENTS, Code.WRONG_ENVIRONMENT, message, hint)
                return True
            with os.scandir(entry.path) as scan:
                inner = sorted((item for item in scan if not is_skipped(item.name)), key=lambda item: item.name)
        except OSError as error:
            self.problems.append(_unreadable(ENVIRONMENTS, _reason(error)))
            return True
        self._entries += len(inner)
        for item in inner:
            self._environment(item, f"{ENVIRONMENTS}/{item.name}")
        return True

    def _environment(self, entry: os.DirEntry[str], name: str) -> None:
        try:
            linked, directory = entry.is_symlink(), entry.is_dir()
        except OSError as error:
            self.problems.append(_unreadable(name, _reason(error)))
            return
        if not directory:
            if entry.name.casefold().endswith(SUFFIXES):
                message = (
                    f"the file belongs to no environment, so it is not read: each has a directory in {ENVIRONMENTS}"
                )
                hint = f"move it to {ENVIRONMENTS}/NAME/ to change an environment, or out of {ENVIRONMENTS} to be in all of them"
                self._problem(name, Code.WRONG_ENVIRONMENT, message, hint)
        elif linked:
            if entry.name == self.environment:
                message = (
                    f"environment '{printable(entry.name)}' is a link, and environments are not read through links"
                )
                self._problem(name, Code.WRONG_ENVIRONMENT, message, "replace the link with the directory itself")
        elif ENVIRONMENT_NAME.fullmatch(entry.name):
            self.environments.append(entry.name)
            if entry.name == self.environment:
                self.enter(f"{name}/", 2)
        else:
            message = f"'{printable(entry.name)}' cannot be the name of an environment"
            hint = (
                "rename the directory: up to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
            )
            self._problem(name, Code.WRONG_ENVIRONMENT, message, hint)

    def check_environment(self) -> None:
        """Report a chosen environment that does not exist."""
        wrong = any(problem.code is Code.WRONG_ENVIRONMENT for problem in self.problems)
        if not self.environment or self.environment in self.environments or self._full or wrong:
            return
        message = f"there is no environment '{printable(self.environment)}'"
        if not self.environments:
            hint = f"create the directory {ENVIRONMENTS}/{printable(self.environment)}, or leave out the environment"
        else:
            known = f"environments: {', '.join(self.environments[:20])}"
            guess = did_you_mean(self.environment, self.environments, "")
            hint = f"{guess}\n{known}" if guess.startswith("did") else known
        self._problem(ENVIRONMENTS, Code.WRONG_ENVIRONMENT, message, hint)

    def _visit(self, entry: os.DirEntry[str], name: str, depth: int) -> None:
        try:
            linked, directory = entry.is_symlink(), entry.is_dir()
        except OSError as error:
            self.problems.append(_unreadable(name, _reason(error)))
            return
        if not directory and not entry.name.casefold().endswith(SUFFIXES):
            return
        real = os.path.join(self.root, name)
        if linked:
            real = os.path.realpath(real)
            if not (real + "/").startswith(self.root.rstrip("/") + "/"):
                hint = "replace the link with the file itself, or remove it"
                self._problem(name, Code.LINK_LEAVES_TREE, "the link leads out of the manifests' directory", hint)
                return
        if not directory:
            self._read(Path(real), name)
        elif not linked or self._is_read_by_link_only(real):
            self.enter(name + "/", depth + 1)

    def _is_read_by_link_only(self, real: str) -> bool:
        """Whether the walk reads a linked directory neither in its own place, because that is hidden, nor by another link."""
        parts = os.path.relpath(real, self.root).split("/")
        if real in self._linked or real == self.root or not any(is_skipped(part) for part in parts):
            return False
        self._linked.add(real)
        return True

    def _read(self, path: Path, name: str) -> None:
        if len(self.files) == FILES:
            self._stop(name, f"more than {FILES} manifest files")
            return
        file, problems = read_one(path, name)
        self.problems.extend(problems)
        if file is not None:
            self.files.append(file)

    def _stop(self, name: str, message: str) -> None:
        if not self._full:
            self._problem(name.rstrip("/") or ".", Code.TOO_MANY_FILES, message, "choose a smaller directory")
        self._full = True

    def _problem(self, name: str, code: Code, message: str, hint: str = "") -> None:
        self.problems.append(Problem(printable(name), 0, 0, code, "", message, hint))
