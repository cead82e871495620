"""Files of the repository on the disk, for containers that mount them. Used by the process that holds the lock.

    files/<digest>/                 the files of one digest; never changed, mounted by all containers that were created with it
    files/live/<container>/<volume>/   what one container with `onChange: signal` mounts: links to `..data`, a link to `..<digest>`

A directory is written beside its place, synchronised and renamed, so after a kill or a power cut it is there as a whole or not at all.
A mount shows a directory, not a path: files behind it cannot be exchanged by a rename. Where they shall change while a container runs,
the container mounts a directory of its own, in which one link is replaced (as Kubernetes does in its AtomicWriter).

The directory `files` is private; in it any user of a container can read, because the id of that user is not known.
"""

import json
import os
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from manifests.values.desired import Container, Template
from manifests.values.files import FileContents, FileEntry, FilesVolume, OnFilesChange, SetFile, content_digest
from manifests.values.pod import Mount, VolumeKind
from providers.actions import CreateContainer
from providers.errors import ProviderError, Rejected, Unreachable
from providers.facts import Generation
from reconciler.shell.store.directory import StoreError, explain, sync_directory, write_durable

DIRECTORY = "files"
LIVE = "live"
DATA = "..data"
SIGNALLED = ".signalled.json"
LARGEST = 64 * 1024
"""Bytes of a record of a signal that are read."""

SELINUX = Path("/sys/fs/selinux/enforce")


class FileStore:
    """The directories of one instance. Its methods may be called from several threads.

    Args:
        state: the state directory.
    """

    def __init__(self, state: Path) -> None:
        self._root = state / DIRECTORY
        self._live = self._root / LIVE
        self._lock = threading.Lock()
        self._contents: Mapping[str, FileContents] = {}
        self._prepared: set[str] = set()

    def offer(self, contents: Mapping[str, FileContents]) -> None:
        """The files of the manifests in force, by digest; they are written when the first container needs them."""
        self._contents = contents

    def directory(self, digest: str) -> Path:
        """Where the files of a digest are."""
        return self._root / digest

    def contents(self, digest: str) -> Mapping[str, tuple[bytes, bool]] | None:
        """The files of a digest that is kept: by name the content, and whether it may be executed. None where it is not kept."""
        try:
            return {file.name: (file.data, file.executable) for file in _read_back(self.directory(digest))}
        except OSError:
            return None

    # --- new containers --------------------------------------------------------------------------------------------

    def prepare(self, action: CreateContainer) -> CreateContainer:
        """The action with bind mounts instead of mounts of files; the files are on the disk then. Raises Rejected, Unreachable."""
        volumes = {volume.name: volume for volume in action.template.volumes}
        try:
            with self._lock:
                self._prepared.add(action.name)
                sources = {name: self._source(action.name, volume) for name, volume in volumes.items()}
        except (StoreError, OSError) as error:
            raise _unreachable(action.name, self._root, error) from error
        return replace(action, template=_bound(action.template, sources))

    def _source(self, container: str, volume: FilesVolume) -> Path:
        """What a container mounts for a volume."""
        directory = self._ensure(container, volume.digest, volume.files)
        if volume.on_change is OnFilesChange.SIGNAL:
            return self._show(container, volume.name, volume.digest)
        return directory / volume.files[0].name if volume.single else directory

    def _ensure(self, target: str, digest: str, entries: Collection[FileEntry] = ()) -> Path:
        """The directory of a digest, complete and as it was written. Raises Rejected, StoreError, OSError."""
        directory = self.directory(digest)
        if directory.is_dir():
            if not _holds(directory, digest):
                cause = f"the files in {directory} were changed after they were written"
                raise Rejected(target, cause, "stop the containers that mount it, and remove the directory")
            return directory
        contents = self._contents.get(digest)
        if contents is None:
            names = ", ".join(sorted(entry.name for entry in entries)[:3])
            cause = f"its files ({names}) are not kept any more: they are neither in {self._root} nor in the manifests"
            raise Rejected(target, cause, "declare them again, or change the template")
        self._make_root()
        new = self._root / f".new-{digest}"
        _remove(new)
        _write(new, contents.files)
        new.replace(directory)
        sync_directory(self._root)
        return directory

    def _make_root(self) -> None:
        self._root.mkdir(mode=0o700, exist_ok=True)
        self._root.chmod(0o700)
        sync_directory(self._root.parent)

    # --- volumes that change while a container runs -----------------------------------------------------------------

    def _show(self, container: str, volume: str, digest: str) -> Path:
        """Let the directory that a container mounts show the files of a digest, all at once. Raises OSError, StoreError."""
        directory = self._live / container / volume
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        for made in (self._live, self._live / container, directory):
            made.chmod(0o755)
        before = _target(directory / DATA)
        new = f"..{digest}"
        kept = _holds(
            directory / new, digest
        )  # those before the present ones, which may still be read, or those of a kill
        if before != new or not kept:
            if not kept:
                _remove(directory / new)
                staged = directory / "..new"
                _remove(staged)
                _write(staged, _read_back(self.directory(digest)))
                staged.replace(directory / new)
            names = {entry.name for entry in (directory / new).iterdir()}
            for name in sorted(names):
                _link(directory, name, f"{DATA}/{name}")
            sync_directory(directory)
            _link(directory, DATA, new)
            sync_directory(directory)
            for entry in list(directory.iterdir()):
                if entry.name not in names and entry.name not in (DATA, new, before):
                    _remove(entry)
        return directory

    def changeable(self) -> Collection[str]:
        """The names of containers with volumes that are changed while they run."""
        try:
            return os.listdir(self._live)
        except OSError:
            return ()

    def shown(self, name: str, generation: Generation) -> Mapping[str, str]:
        """The digests by volume that a container has seen; empty where it still needs its signal.

        A container that was started after the files changed has read them by itself.
        """
        shown: dict[str, str] = {}
        signalled = self._signalled(name)
        try:
            volumes = [entry.name for entry in os.scandir(self._live / name) if entry.is_dir()]
        except OSError:
            return shown
        for volume in volumes:
            link = self._live / name / volume / DATA
            target = _target(link)
            if not target:
                continue
            digest = target.removeprefix("..")
            row = signalled.get(volume)
            signalled_now = row == [generation.container_id, generation.started_at, digest]
            shown[volume] = digest if signalled_now or generation.started_at > link.lstat().st_mtime_ns else ""
        return shown

    def change(self, name: str, volumes: Collection[tuple[str, str]]) -> None:
        """Show a container other files. Raises Rejected, Unreachable."""
        try:
            with self._lock:
                for volume, digest in volumes:
                    self._ensure(name, digest)
                    self._show(name, volume, digest)
        except (StoreError, OSError) as error:
            raise _unreachable(name, self._root, error) from error

    def changed(self, name: str, generation: Generation, volumes: Collection[tuple[str, str]]) -> None:
        """Remember that this generation got its signal. A kill before this leads to a second signal. Raises Unreachable."""
        rows = self._signalled(name)
        rows |= {volume: [generation.container_id, generation.started_at, digest] for volume, digest in volumes}
        try:
            write_durable(self._live / name / SIGNALLED, json.dumps(rows).encode())
        except StoreError as error:
            raise _unreachable(name, self._root, error) from error

    def _signalled(self, name: str) -> dict[str, list[object]]:
        try:
            with (self._live / name / SIGNALLED).open("rb") as file:
                rows = json.loads(file.read(LARGEST))
        except (OSError, ValueError):
            return {}
        return rows if isinstance(rows, dict) else {}

    # --- what is not needed any more --------------------------------------------------------------------------------

    def any(self) -> bool:
        """Whether there is anything to remove at all."""
        return self._root.is_dir()

    def collect(self, digests: Collection[str], containers: Collection[str]) -> None:
        """Remove files that neither these digests nor these containers need. Files for a container that is not observed yet stay.

        Raises OSError.
        """
        with self._lock:
            self._prepared -= set(containers)
            needed = {*digests, *self._contents, LIVE}
            for entry in list(self._root.iterdir()) if self._root.is_dir() else ():
                if entry.name not in needed:
                    _remove(entry)
            for entry in list(self._live.iterdir()) if self._live.is_dir() else ():
                if entry.name not in containers and entry.name not in self._prepared:
                    _remove(entry)


def _unreachable(target: str, root: Path, error: Exception) -> ProviderError:
    known = error if isinstance(error, StoreError) else explain(root, error) if isinstance(error, OSError) else None
    if known is None:
        return Unreachable(target, f"its files cannot be stored: {error}", "retried automatically")
    return Unreachable(target, f"its files cannot be stored in {known.target}: {known.cause}", known.next_step)


def _bound(template: Template, sources: Mapping[str, Path]) -> Template:
    """The template with bind mounts instead of mounts of files."""
    relabel = SELINUX.exists()

    def bind(mount: Mount) -> Mount:
        if mount.kind is not VolumeKind.FILES:
            return mount
        source = str(sources[mount.source])
        return Mount(VolumeKind.BIND, source, mount.target, read_only=True, relabel=relabel)

    def bound(container: Container) -> Container:
        engine = replace(container.engine, mounts=tuple(map(bind, container.engine.mounts)))
        return replace(container, engine=engine)

    return replace(template, container=bound(template.container), sidecars=tuple(map(bound, template.sidecars)))


# --- the disk --------------------------------------------------------------------------------------------------------


def _write(directory: Path, files: Collection[SetFile]) -> None:
    """Create a directory with these files, on the disk when it returns. No file and no directory in it can be written. Raises OSError."""
    directory.mkdir(mode=0o700)
    made = [directory]
    for file in files:
        path = directory / file.name
        for parent in reversed(path.relative_to(directory).parents[:-1]):
            inner = directory / parent
            if not inner.is_dir():
                inner.mkdir(mode=0o700)
                made.append(inner)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as opened:
            opened.write(file.data)
            os.fchmod(opened.fileno(), 0o555 if file.executable else 0o444)
            opened.flush()
            os.fsync(opened.fileno())
    for inner in reversed(made):
        sync_directory(inner)
        inner.chmod(0o555)


def _read_back(directory: Path) -> tuple[SetFile, ...]:
    """The files of a directory. Raises OSError."""
    return tuple(sorted(_files(directory, "")))


def _holds(directory: Path, digest: str) -> bool:
    """Whether a directory has the files of a digest. Raises OSError."""
    return directory.is_dir() and content_digest(_read_back(directory)) == digest


def _files(directory: Path, below: str) -> Iterator[SetFile]:
    with os.scandir(directory) as entries:
        for entry in entries:
            name = f"{below}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from _files(directory / entry.name, f"{name}/")
            elif entry.is_file(follow_symlinks=False):
                mode = entry.stat(follow_symlinks=False).st_mode
                yield SetFile(name, (directory / entry.name).read_bytes(), bool(mode & 0o100))
            else:
                yield SetFile(name, b"", executable=True)  # not written by this program: the digest differs


def _target(link: Path) -> str:
    """Where a link leads; empty when there is none."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _link(directory: Path, name: str, target: str) -> None:
    """Let a link of this name lead to the target; it is replaced in one step. Raises OSError."""
    path = directory / name
    if _target(path) == target:
        return
    new = directory / f"..link-{sha256(name.encode()).hexdigest()[:16]}"
    _remove(new)
    new.symlink_to(target)
    new.replace(path)


def _remove(path: Path) -> None:
    """Remove a file or a directory with everything in it, whatever its mode. Raises OSError."""
    if path.is_symlink() or path.is_file():
        path.unlink()
        return
    if not path.is_dir():
        return
    for parent, _, _ in os.walk(path):
        os.chmod(parent, 0o700)
    shutil.rmtree(path)
