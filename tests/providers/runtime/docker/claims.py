"""A test run removes what an earlier killed run has left on this machine, and nothing of a run that still runs.

A test that creates containers or servers claims a name first: a file that its process keeps locked. The kernel releases the lock
of a killed process, so a claim that can be locked is abandoned. Called by the helpers of this directory and of e2e.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

CLAIMS = Path(tempfile.gettempdir()) / f"reconciler-test-claims-{os.getuid()}"

RUN_FILE = "RECONCILER_TEST_RUN"
"""Variable with the file that collects the names of this run; `tests/machine.py` reads it at the end."""


class Claim:
    """A name in use until `drop`, and what belongs to it.

    Args:
        name: of an instance, or another name that no other test uses.
        socket: of the engine that may have its containers and networks; empty for none.
        directory: of its servers and processes; empty for none.
    """

    def __init__(self, name: str, socket: str = "", directory: str = "") -> None:
        CLAIMS.mkdir(mode=0o700, exist_ok=True)
        self._path = CLAIMS / name
        self._file = self._path.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        json.dump({"name": name, "socket": socket, "directory": directory}, self._file)
        self._file.flush()
        if names := os.environ.get(RUN_FILE):
            with open(names, "a") as file:
                file.write(f"{name}\n")

    def drop(self) -> None:
        """Release the claim: everything that belongs to it is removed."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def live_claims() -> set[str]:
    """The names in use by processes that still run."""
    names = set()
    for path in CLAIMS.iterdir() if CLAIMS.is_dir() else ():
        with suppress(FileNotFoundError), path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                names.add(path.name)
    return names


def sweep(clean: Callable[[str, str], None]) -> None:
    """Remove what belongs to claims of processes that have exited; `clean(socket, name)` does it on an engine."""
    for path in CLAIMS.iterdir() if CLAIMS.is_dir() else ():
        with suppress(FileNotFoundError), path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            with suppress(ValueError):
                _remove(json.load(file), clean)
            path.unlink(missing_ok=True)


def _remove(left: dict[str, Any], clean: Callable[[str, str], None]) -> None:
    if left["directory"]:
        raze(str(left["directory"]))
    if left["socket"]:
        clean(str(left["socket"]), str(left["name"]))


def raze(directory: str) -> None:
    """Kill the processes that use a directory, unmount what is mounted there, and remove it."""
    for pid in _family(directory):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        place = line.split()[1]
        if place.startswith(f"{directory}/"):
            subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)
    shutil.rmtree(directory, ignore_errors=True)


def _family(directory: str) -> set[int]:
    """Processes that name a directory in their command line or work in it, and all their descendants."""
    parents: dict[int, int] = {}
    family: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError, IndexError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            named = f"{directory}/".encode() in (entry / "cmdline").read_bytes()
            if named or os.readlink(entry / "cwd").startswith(f"{directory}/"):
                family.add(int(entry.name))
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family - {os.getpid()}
