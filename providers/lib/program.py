"""Runs a program outside of this one: git, ssh, gpg, ssh-keygen, sops, age. The only way in which it starts such programs.

    ran = run(["git", "--version"], timeout=5.0)
    ran.code, ran.out, ran.err_text

A program gets an argument list and no shell, an environment of its own, a deadline, and bounds for what it may print and write.
At the deadline the whole process group is killed, so that a child that ignores SIGTERM, or a grandchild that keeps the pipes
open, cannot hold the caller up. Processes that the program leaves behind are killed too.
"""

import os
import resource
import selectors
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, sleep

OUTPUT = 64 * 1024 * 1024
"""Most bytes that a program may print on standard output, unless the caller says otherwise."""
ERRORS = 64 * 1024
"""How many bytes of standard error are kept, its end."""
GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL at the deadline."""

_PASSED = ("PATH", "HOME", "TMPDIR", "USER", "LOGNAME", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables of this process that programs get. No GIT_*, SSH_*, GNUPGHOME or proxy: what steers a program is given by its caller."""


class ProgramError(Exception):
    """A program could not do its work, whatever it was asked.

        ProgramError
        ├── Missing     it is not installed, or may not be started: stop until the host changes
        ├── TimedOut    it had not ended at its deadline, and was killed: try again later
        └── TooMuch     it printed more than allowed, and was killed: stop until the input changes

    Args:
        program: the name of the program.
        cause: what happened.
    """

    def __init__(self, program: str, cause: str) -> None:
        super().__init__(program, cause)
        self.program, self.cause = program, cause

    def __str__(self) -> str:
        return f"{self.program}: {self.cause}"


class Missing(ProgramError):
    """The program cannot be started."""


class TimedOut(ProgramError):
    """The program was killed at its deadline."""


class TooMuch(ProgramError):
    """The program was killed because it printed too much."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that has ended by itself.

    Attributes:
        code: exit code; negative: the signal that ended it.
        out: standard output.
        err: the end of standard error.
    """

    code: int
    out: bytes
    err: bytes

    @property
    def err_text(self) -> str:
        """Standard error as text; what is not UTF-8 is replaced."""
        return self.err.decode("utf-8", "replace")


def environment(own: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a program: a few variables of this process, messages in English, and the caller's own variables."""
    kept = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C.UTF-8", **(own or {})}


def run(
    arguments: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    output: int = OUTPUT,
    file_size: int = 0,
    cwd: str | os.PathLike[str] = "/",
    pass_fds: Sequence[int] = (),
    stop: threading.Event | None = None,
) -> Ran:
    """Run a program to its end.

    Args:
        arguments: the program, found on PATH, and its arguments.
        timeout: seconds until its process group is killed.
        env: variables beside those of `environment`.
        stdin: what it reads.
        output: most bytes on standard output.
        file_size: most bytes of a file that it writes; 0 = no bound.
        cwd: where it runs.
        pass_fds: descriptors that it inherits, beside the three standard ones.
        stop: ends it before its deadline, within half a second, when it is set.

    Raises:
        Missing, TimedOut, TooMuch
    """
    name = os.path.basename(arguments[0])
    deadline = monotonic() + timeout
    try:
        process = subprocess.Popen(
            list(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(env),
            cwd=cwd,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Missing(name, f"cannot be started: {reason.lower()}") from error
    with process:
        try:
            with suppress(OSError, ValueError):  # it has ended already
                resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))  # its memory may hold secrets
            if file_size:
                with suppress(OSError, ValueError):  # it has ended already
                    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (file_size, file_size))
            out, err = _Streams(process, stdin, output, name).read(deadline, stop)
            late = not _ended(process.pid, deadline)
        except _Late:
            late = True
        finally:
            if monotonic() >= deadline and not _ended(process.pid, 0.0):
                _end_group(process.pid)
            _kill_group(process.pid)
    if late:
        raise TimedOut(name, f"did not end within {timeout:g}s")
    return Ran(process.returncode, out, err)


class _Late(Exception):
    """The deadline has passed."""


class _Streams:
    """The three standard streams of one program, read and written together."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, output: int, name: str) -> None:
        self._process, self._rest, self._output, self._name = process, memoryview(stdin), output, name
        self._out, self._err = bytearray(), bytearray()

    def read(self, deadline: float, stop: threading.Event | None) -> tuple[bytes, bytes]:
        """Standard output and the end of standard error. Raises _Late, TooMuch."""
        process = self._process
        assert process.stdin is not None  # noqa: S101  (all three are pipes)
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(process.stderr, selectors.EVENT_READ)
            if self._rest:
                os.set_blocking(process.stdin.fileno(), False)
                selector.register(process.stdin, selectors.EVENT_WRITE)
            else:
                process.stdin.close()
            while selector.get_map():
                left = deadline - monotonic()
                if left <= 0 or (stop is not None and stop.is_set()):
                    raise _Late
                if not (ready := selector.select(min(left, 0.5))):
                    if _ended(process.pid, 0.0) and not selector.select(0):
                        break  # a process that it left behind keeps the pipes open
                    continue
                for key, _ in ready:
                    self._serve(selector, key.fileobj)
        return bytes(self._out), bytes(self._err)

    def _serve(self, selector: selectors.BaseSelector, stream: object) -> None:
        process = self._process
        if stream is process.stdin:
            self._feed(selector)
            return
        target, pipe = (self._out, process.stdout) if stream is process.stdout else (self._err, process.stderr)
        assert pipe is not None  # noqa: S101
        data = os.read(pipe.fileno(), 1 << 16)
        if not data:
            selector.unregister(pipe)
            return
        target += data
        if target is self._err:
            del self._err[:-ERRORS]
        elif len(self._out) > self._output:
            raise TooMuch(self._name, f"printed more than {self._output} bytes")

    def _feed(self, selector: selectors.BaseSelector) -> None:
        pipe = self._process.stdin
        assert pipe is not None  # noqa: S101
        try:
            self._rest = self._rest[os.write(pipe.fileno(), self._rest[: 1 << 16]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it reads no more; its exit code says whether that is a failure
            self._rest = self._rest[:0]
        if not self._rest:
            selector.unregister(pipe)
            with suppress(BrokenPipeError):
                pipe.close()


def _ended(pid: int, deadline: float) -> bool:
    """Whether a child has ended, waiting until a deadline. It stays a zombie, so that its number stays its own."""
    pause = 0.001
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if monotonic() >= deadline:
            return False
        sleep(pause)
        pause = min(pause * 2, 0.05)
    return True


def _end_group(pid: int) -> None:
    """Ask a process group to end, and give it a moment to remove its lock files."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
    _ended(pid, monotonic() + GRACE)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def end_orphans(descriptor: int, program: str) -> None:
    """Kill programs that inherited an open file from a `run` whose process is gone. Reads /proc once.

    Args:
        descriptor: of the file.
        program: how the names of the processes begin, such as `git`; no other one is killed.
    """
    file = os.fstat(descriptor)
    opened = {int(name) for name in os.listdir("/proc") if name.isdecimal() and _has_open(name, file)}
    for pid in opened - {os.getpid()}:
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                name, _, numbers = stat.read().partition(b"(")[2].rpartition(b") ")
            parent, _, session = map(int, numbers.split()[1:4])
        except (OSError, ValueError):  # it has ended
            continue
        if not name.startswith(program.encode()):
            continue
        leads = session == pid and parent not in opened
        if leads or (session not in opened and not os.path.exists(f"/proc/{session}")):
            _kill_group(session)


def _has_open(pid: str, file: os.stat_result) -> bool:
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                other = os.stat(f"/proc/{pid}/fd/{name}")
                if (other.st_dev, other.st_ino) == (file.st_dev, file.st_ino):
                    return True
    except OSError:
        return False
    return False
