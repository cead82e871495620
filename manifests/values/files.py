"""Files of the repository that containers get: what was read, what a volume holds, and the digests that name both.

`source/file_sets.py` reads them, `resolve/repository_files.py` makes volumes of them, the file store of the shell keeps those by their digest.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256


class OnFilesChange(StrEnum):
    """What happens to running containers when the files of a volume change."""

    ROLLOUT = "rollout"
    SIGNAL = "signal"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, order=True)
class SetFile:
    """One file: its path below the set (empty: the set is this file), its content, and whether it may be executed."""

    name: str
    data: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class FileSet:
    """What was read at one path that manifests refer to.

    Attributes:
        path: relative to the manifests' directory, in normal form.
        files: sorted by name; a single file has an empty name.
        problem: why it cannot be used; empty when it can. `hint` is the next step.
        missing: there is nothing at the path.
    """

    path: str
    files: tuple[SetFile, ...] = ()
    problem: str = ""
    hint: str = ""
    missing: bool = False

    @property
    def is_file(self) -> bool:
        """Whether the path is a file, not a directory."""
        return len(self.files) == 1 and not self.files[0].name

    def digest(self) -> str:
        """SHA-256 over path, names, contents and modes, and over what could not be read; 64 hex digits."""
        total = sha256(f"{self.path}\0{self.problem}\0{self.missing}\0".encode("utf-8", "surrogateescape"))
        total.update(content_digest(self.files).encode())
        return total.hexdigest()


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a volume: its path below the mount, the SHA-256 of its content, and whether it may be executed."""

    name: str
    digest: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class FilesVolume:
    """A volume of a pod that holds files of the repository.

    Attributes:
        name: of the volume.
        digest: names the directory that holds the files, 64 hex digits; equal for equal names, contents and modes.
        files: what is in it, sorted by name.
        single: the volume is this one file, not a directory.
        on_change: what happens to running containers when the digest changes.
        signal: what the main container gets with `signal`; else empty.
    """

    name: str
    digest: str
    files: tuple[FileEntry, ...] = ()
    single: bool = False
    on_change: OnFilesChange = OnFilesChange.ROLLOUT
    signal: str = ""


def content_digest(files: tuple[SetFile, ...]) -> str:
    """The digest of a directory with these files: SHA-256 over names, contents and whether they may be executed, 64 hex digits."""
    total = sha256()
    for file in files:
        total.update(sha256(file.name.encode("utf-8", "surrogateescape")).digest())
        total.update(sha256(file.data).digest())
        total.update(b"x" if file.executable else b"-")
    return total.hexdigest()


def entry(file: SetFile) -> FileEntry:
    """A file without its content."""
    return FileEntry(file.name, sha256(file.data).hexdigest(), file.executable)


@dataclass(frozen=True, slots=True)
class FileContents:
    """The files of one digest, with their contents: what the file store writes."""

    digest: str
    files: tuple[SetFile, ...]


def is_git_directory(parts: Iterable[str]) -> bool:
    """Whether a path of these names is git's own directory, or in it. On some file systems the case does not count."""
    return any(part.casefold() == ".git" for part in parts)
