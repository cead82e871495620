"""What the shim and the provider must agree on: files, locks, process identity, and the two codecs between them.

It exists so that neither side guesses what the other wrote. The shim imports it in a bare interpreter, once per replica,
so it imports nothing of the project and as little as possible of the standard library. A process is identified by
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
"""The shim's files in the directory of a replica. `stop` is written by whoever asks for a stop, before the signal."""

COOKIE = "RECONCILER_CONTAINER_ID"
"""Environment variable of every process of a replica: how processes are found that outlived a killed shim."""

_NO_SUCH_PROCESS = (FileNotFoundError, ProcessLookupError, PermissionError)
"""How /proc says that a process has ended or is another user's, whose pid it may have become (hidepid in proc(5))."""

TREE_DEADLINE = 10 * SECOND
"""How long we try to end what is left of a replica after its application has ended."""


def encode(fields: dict[str, str]) -> bytes:
    """Fields as `key=value` lines: what the state files written by and for the shim hold."""
    return "".join(f"{key}={value}\n" for key, value in fields.items()).encode()


def decode(data: bytes) -> dict[str, str]:
    """The reverse of `encode`. Raises ValueError when the text is not of that form or is cut short."""
    text = data.decode()
    if not text.endswith("\n"):
        raise ValueError("cut short")
    fields = {}
    for line in text[:-1].split("\n"):
        key, found, value = line.partition("=")
        if not found:
            raise ValueError(f"not a key=value line: {line[:40]!r}")
        fields[key] = value
    return fields


def encode_spec(fields: dict[str, str], argv: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> bytes:
    """What the shim must know, as one message. No part may hold a NUL character."""
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

    Raises OSError when the kernel does not tell (no descriptors left, say): that is no proof of an end.
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
    """Whether the process with this pid and start time exists and has not ended (a zombie has). Raises OSError."""
    stat = process_stat(pid)
    return stat is not None and stat[2] == start and stat[0] not in "ZX"


def steady() -> int:
    """CLOCK_BOOTTIME, in nanoseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def read_file(path: str) -> bytes | None:
    """All bytes of a file; None when there is none. Raises OSError for everything else."""
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
    """Replace a file as one step that a crash cannot cut in half; mode 0600. Raises OSError and then leaves it as it was."""
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
    """Remove a file that may not exist; whatever else is wrong shows at the next write."""
    try:
        os.unlink(path)
    except OSError:
        return


def try_lock(fd: int) -> bool:
    """Take the exclusive lock of an open lock file; False when somebody else holds it."""
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

    Call it only while holding the replica's lock, after its shim is gone. Returns how many were still there at the end.
    Raises OSError when processes cannot be listed.
    """
    cookie = f"{COOKIE}={container_id}".encode()
    own = str(os.getpid())
    while True:
        found = [pid for pid in os.listdir("/proc") if pid.isdigit() and pid != own and _carries(pid, cookie)]
        if not found or steady() >= deadline:
            return len(found)
        for pid in found:
            try:
                fd = os.pidfd_open(int(pid))
            except OSError:
                continue
            try:
                # Asked again: between the scan and the open the number may have become somebody else's.
                if _carries(pid, cookie):
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
            except OSError:
                continue
            finally:
                os.close(fd)
        # The kernel needs a moment to take the killed ones away before the next scan; the deadline bounds this.
        time.sleep(0.002)
