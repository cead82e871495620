"""The protocol between the shim and the provider: files, locks, process identity, and two codecs.

Both sides import it, so that neither guesses what the other wrote. The shim imports it in a bare interpreter, once per
replica, so it imports nothing of the project and as little as possible of the standard library. A process is identified by
(pid, start time, boot id), and signalled only through a pidfd that was opened before the identity was checked.
"""

import fcntl
import os
import time

try:
    import _signal as signal  # type: ignore[import-not-found,unused-ignore]  # without the enums: 0.8 MB less per replica
except ImportError:  # pragma: no cover
    import signal

SECOND = 1_000_000_000

LOCK, GENERATION, STOP, LOG, OLD_LOG = "lock", "generation", "stop", "log", "log.1"
"""The shim's files in the directory of a replica. `stop.py` writes `stop` before the signal."""

COOKIE = "RECONCILER_CONTAINER_ID"
"""Environment variable of every process of a replica: it finds processes that outlived a killed shim."""

_NO_SUCH_PROCESS = (FileNotFoundError, ProcessLookupError, PermissionError)
"""Errors of /proc for a process that has exited or is another user's, which may have the pid now (hidepid in proc(5))."""

TREE_DEADLINE = 10 * SECOND
"""How long the remaining processes of a replica are killed after its application has exited."""


def encode(fields: dict[str, str]) -> bytes:
    """Fields as `key=value` lines: the format of the state files of the shim."""
    return "".join(f"{key}={value}\n" for key, value in fields.items()).encode()


def decode(data: bytes) -> dict[str, str]:
    """The reverse of `encode`. Raises ValueError when the text has another format or is incomplete."""
    text = data.decode()
    if not text.endswith("\n"):
        raise ValueError("the file is incomplete")
    fields = {}
    for line in text[:-1].split("\n"):
        key, separator, value = line.partition("=")
        if not separator:
            raise ValueError(f"not a key=value line: {line[:40]!r}")
        fields[key] = value
    return fields


def encode_spec(fields: dict[str, str], argv: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> bytes:
    """The input of the shim, as one message. No part may contain a NUL character."""
    parts = [*(f"{key}={value}" for key, value in fields.items()), "", *argv, "", *(f"{k}={v}" for k, v in env), "end"]
    counts = f"{len(fields)} {len(argv)} {len(env)}"
    return os.fsencode("\0".join([counts, *parts]))


def decode_spec(data: bytes) -> tuple[dict[str, str], list[bytes], dict[bytes, bytes]]:
    """The reverse of `encode_spec`. Raises ValueError when the message is incomplete (its writer was killed)."""
    counts, _, rest = data.partition(b"\0")
    parts = rest.split(b"\0")
    fields, argv, env = map(int, counts.split())
    if len(parts) != fields + argv + env + 3 or parts[-1] != b"end":
        raise ValueError("incomplete message")
    pairs = [os.fsdecode(part).split("=", 1) for part in parts[:fields]]
    first = fields + 1
    environment = [part.split(b"=", 1) for part in parts[first + argv + 1 : -1]]
    return {p[0]: p[1] for p in pairs}, parts[first : first + argv], {e[0]: e[1] for e in environment}


def process_stat(pid: int) -> tuple[str, int, int] | None:
    """(state letter, parent, start in clock ticks since boot) of a process; None when there is none. See proc(5).

    Raises OSError when it cannot be read (no descriptor is free, for example): that does not prove an exit.
    """
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except _NO_SUCH_PROCESS:
        return None
    try:
        fields = os.read(fd, 4096).rpartition(b")")[2].split()
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)
    return fields[0].decode(), int(fields[1]), int(fields[19])


def is_alive(pid: int, start: int) -> bool:
    """Whether the process with this pid and start time exists and has not exited (a zombie has). Raises OSError."""
    stat = process_stat(pid)
    return stat is not None and stat[2] == start and stat[0] not in "ZX"


def steady() -> int:
    """CLOCK_BOOTTIME, in nanoseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def read_file(path: str) -> bytes | None:
    """All bytes of a file; None when it does not exist. Raises OSError for other failures."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        chunks = []
        while chunk := os.read(fd, 65536):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        os.close(fd)


def write_file(path: str, data: bytes) -> None:
    """Replace a file atomically; mode 0600. Raises OSError and then leaves it as it was."""
    scratch = f"{path}.new-{os.getpid()}"
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(scratch, path)
    except OSError:
        unlink(scratch)
        raise


def unlink(path: str) -> None:
    """Remove a file that may not exist; other failures are ignored and show at the next write."""
    try:
        os.unlink(path)
    except OSError:
        return


def try_lock(fd: int) -> bool:
    """Take the exclusive lock of an open lock file; False when another process holds it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _carries(pid: str, cookie: bytes) -> bool:
    try:
        environment = read_file(f"/proc/{pid}/environ") or b""
    except _NO_SUCH_PROCESS:
        return False
    return cookie in environment.split(b"\0")


def kill_strays(container_id: str, deadline: int) -> int:
    """Kill every process that carries this container's cookie, until none is left or the steady instant `deadline`.

    Call it only while holding the replica's lock, after its shim is gone. Returns how many remain.
    Raises OSError when processes cannot be listed.
    """
    cookie = f"{COOKIE}={container_id}".encode()
    own = str(os.getpid())
    while True:
        strays = [pid for pid in os.listdir("/proc") if pid.isdigit() and pid != own and _carries(pid, cookie)]
        if not strays or steady() >= deadline:
            return len(strays)
        for pid in strays:
            try:
                fd = os.pidfd_open(int(pid))
            except OSError:
                continue
            try:
                # Checked again: between the scan and the open the pid may have been reused.
                if _carries(pid, cookie):
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
            except OSError:
                continue
            finally:
                os.close(fd)
        # The kernel needs a moment to remove killed processes before the next scan; the deadline bounds this.
        time.sleep(0.002)
