"""The records of the process runtime: one directory per replica, with its identity and its newest generation.

    <state directory>/process/<node>/<container name>/
        container.json   its identity; written once, at create
        generation       its processes, or how they exited; written by the shim (see shim.py)
        lock, stop, log, log.1

A rename creates a directory complete, and a rename removes it, so a crash leaves no partial one under a replica's name. An
unreadable record raises `Unreachable`: it never counts as absent. Called by `runtime.py`, `observe.py`, `start.py` and `stop.py`.
"""

import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from providers.errors import Conflict, OutcomeUnknown, Rejected, Unreachable
from providers.facts import ExitCause, Mark, read_mark
from providers.runtime.process.shim_protocol import GENERATION, LOCK, SECOND, decode, read_file, try_lock, write_file

CONTAINER = "container.json"
FORMAT = 1
LOCK_DEADLINE = 5 * SECOND
"""How long a create waits for another one, which holds the lock for a few file operations only."""

SHIM_EXIT = SECOND
"""How long a shim may take to exit after it has written its last record."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """The identity of a replica. `working_dir` is relative to `root`, `grace` in ns, `created_at` in wall-clock ns."""

    format: int
    name: str
    id: str
    labels: dict[str, str]
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    ports: tuple[tuple[str, int], ...]
    root: str
    working_dir: str
    address: str
    grace: int
    created_at: int

    def mark(self, name: str) -> tuple[Mark | None, bool]:
        """The owner mark of the record under `name`, and whether it carries a mark that belongs to another name."""
        return read_mark(name, self.labels)


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """The shim's record, see shim.py. `exited_at` is steady; `exit_code` is None when it is unknown."""

    phase: str
    started_at: int
    boot: str
    namespace: str
    pid: int
    pid_start: int
    shim: int
    shim_start: int
    exit_code: int | None
    cause: ExitCause | None
    exited_at: int


def check_name(name: str) -> None:
    """Raise Rejected for a name that is not a valid directory name."""
    if not _NAME.fullmatch(name):
        raise Rejected(name, "cannot be used as a directory name", "use letters, digits, '.', '_' and '-', at most 200")


class Store:
    """The directories of one node. Thread-safe; creating it does no I/O."""

    def __init__(self, state_dir: str, node: str) -> None:
        self.state_dir = state_dir
        self.base = f"{state_dir}/process"
        self.home = f"{self.base}/{node}"
        self._known: dict[str, tuple[tuple[int, ...], ContainerRecord]] = {}
        self._guard = threading.Lock()
        self._existed = False

    @property
    def spare(self) -> str:
        """The working directory of replicas without one of their own while the manifests' directory is missing."""
        return f"{self.base}/.workdir"

    def directory(self, name: str) -> str:
        """The directory of the replica with this name."""
        return f"{self.home}/{name}"

    def names(self) -> list[str]:
        """Names of all replicas of this node, sorted.

        Raises:
            Unreachable: their directory cannot be read, or it has vanished: its replicas may still run, so they are not absent.
        """
        exists = os.path.isdir(self.home)
        if self._existed and not exists:
            next_step = "restore the state directory; if its replicas are gone for good, start reconcile again"
            raise Unreachable("process runtime", f"{self.home} has vanished", next_step)
        self._existed = exists
        return self._names_in(self.home)

    def read(self, name: str) -> ContainerRecord | None:
        """The record of a replica; None when it has no directory. Raises Unreachable."""
        if not _NAME.fullmatch(name):
            return None
        return self._read(self.directory(name))

    def all_records(self) -> Iterator[ContainerRecord]:
        """The records of all nodes that share this state directory. Raises Unreachable."""
        for node in self._names_in(self.base):
            home = f"{self.base}/{node}"
            for name in self._names_in(home):
                record = self._read(f"{home}/{name}")
                if record is not None:
                    yield record

    def generation(self, name: str) -> GenerationRecord | None:
        """The newest generation of a replica; None before its first start, or when the replica is gone. Raises Unreachable."""
        path = f"{self.directory(name)}/{GENERATION}"
        try:
            data = read_file(path)
            return _generation(decode(data)) if data is not None else None
        except NotADirectoryError:
            return None
        except (OSError, ValueError, KeyError) as error:
            raise _unreadable(name, path, error) from error

    def add(self, record: ContainerRecord) -> None:
        """Create the directory of a new replica, all or nothing. Call it under `allocation`. Raises OSError, OutcomeUnknown."""
        scratch = f"{self.home}/.new-{secrets.token_hex(8)}"
        os.mkdir(scratch, 0o700)
        try:
            write_file(f"{scratch}/{CONTAINER}", json.dumps(asdict(record), indent=1).encode())
            sync_directory(scratch)
            os.rename(scratch, self.directory(record.name))
        except OSError:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        try:
            sync_directory(self.home)
        except OSError as error:
            raise OutcomeUnknown(
                record.name, f"the new record may not be on the disk yet: {error}", "retried automatically"
            ) from error

    def discard(self, name: str) -> None:
        """Remove the directory of a replica. Call it while holding the replica's lock. Raises OSError."""
        tombstone = f"{self.home}/.gone-{secrets.token_hex(8)}"
        os.rename(self.directory(name), tombstone)
        with self._guard:
            self._known.pop(self.directory(name), None)
        sync_directory(self.home)
        shutil.rmtree(tombstone, ignore_errors=True)  # leftovers are ignored, and removed by the next create

    def sweep(self) -> None:
        """Remove leftovers of interrupted creates and removes. Call it under `allocation`."""
        for entry in os.listdir(self.home):
            if entry.startswith((".new-", ".gone-")):
                shutil.rmtree(f"{self.home}/{entry}", ignore_errors=True)

    @contextmanager
    def allocation(self, name: str) -> Iterator[None]:
        """One create at a time per state directory, so that addresses stay unique. Raises Unreachable, OSError."""
        for directory in (self.state_dir, self.base, self.home):
            os.makedirs(directory, 0o700, exist_ok=True)
        self._existed = True
        fd = os.open(f"{self.base}/.{LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            end = time.monotonic_ns() + LOCK_DEADLINE
            while not try_lock(fd):
                if time.monotonic_ns() > end:
                    raise Unreachable(
                        name, f"another create holds {self.base}/.{LOCK} for too long", "find and stop the hung process"
                    )
                # flock(2) has no time-out, so the lock is tried until the deadline.
                time.sleep(0.005)
            yield
        finally:
            os.close(fd)

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Hold the lock of a replica without a shim. Raises Conflict when it has one, OSError when the replica is gone."""
        fd = os.open(f"{self.directory(name)}/{LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            end = time.monotonic_ns() + SHIM_EXIT
            while not try_lock(fd):
                if time.monotonic_ns() > end:
                    raise Conflict(name, "is being started, stopped or removed", "retried automatically")
                # flock(2) has no time-out, so the lock is tried until the deadline.
                time.sleep(0.005)
            yield
        finally:
            os.close(fd)

    def is_free(self, name: str) -> bool:
        """Whether the lock of a replica is free; also true when the replica is gone. Raises OSError."""
        try:
            fd = os.open(f"{self.directory(name)}/{LOCK}", os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            return try_lock(fd)
        finally:
            os.close(fd)

    def _names_in(self, directory: str) -> list[str]:
        try:
            with os.scandir(directory) as entries:
                return sorted(entry.name for entry in entries if entry.name[0] != "." and entry.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable("process runtime", directory, error) from error

    def _read(self, directory: str) -> ContainerRecord | None:
        path = f"{directory}/{CONTAINER}"
        name = os.path.basename(directory)
        try:
            stat = os.stat(path)
            version = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            known = self._known.get(directory)
            if known is not None and known[0] == version:
                return known[1]
            record = _container(json.loads(read_file(path) or b""))
        except FileNotFoundError as error:
            if not os.path.lexists(directory):
                return None
            raise _unreadable(name, path, error) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unreadable(name, path, error) from error
        with self._guard:
            self._known[directory] = (version, record)
        return record


def sync_directory(path: str) -> None:
    """Make renames in a directory durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unreadable(name: str, path: str, error: Exception) -> Unreachable:
    cause = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    return Unreachable(
        name, f"cannot read {path}: {cause}", "repair the file, or stop the replica by hand and delete its directory"
    )


def _container(fields: dict[str, object]) -> ContainerRecord:
    """Raises KeyError, ValueError, TypeError when the fields are not those of this version."""
    if fields["format"] != FORMAT:
        raise ValueError(f"format {fields['format']}, but this version reads {FORMAT}")
    record = ContainerRecord(**fields)  # type: ignore[arg-type]
    return ContainerRecord(
        format=FORMAT,
        name=str(record.name),
        id=str(record.id),
        labels={str(key): str(value) for key, value in record.labels.items()},
        argv=tuple(map(str, record.argv)),
        env=tuple((str(key), str(value)) for key, value in record.env),
        ports=tuple((str(name), int(number)) for name, number in record.ports),
        root=str(record.root),
        working_dir=str(record.working_dir),
        address=str(record.address),
        grace=int(record.grace),
        created_at=int(record.created_at),
    )


def _generation(fields: dict[str, str]) -> GenerationRecord:
    """Raises KeyError or ValueError when a field is missing or invalid."""
    phase = fields["phase"]
    if phase not in ("starting", "running", "stopping", "exited"):
        raise ValueError(f"unknown phase {phase!r}")
    ended = phase == "exited"
    code = fields["exit_code"] if ended else ""
    return GenerationRecord(
        phase=phase,
        started_at=int(fields["started_at"]),
        boot=fields["boot"],
        namespace=fields["namespace"],
        pid=int(fields["pid"]),
        pid_start=int(fields["pid_start"]),
        shim=int(fields["shim"]),
        shim_start=int(fields["shim_start"]),
        exit_code=int(code) if code else None,
        cause=ExitCause(fields["cause"]) if ended else None,
        exited_at=int(fields["exited_at"]) if ended else 0,
    )
