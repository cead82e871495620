"""Starting a replica: run its shim and wait for the shim's report. Called by `ProcessRuntime`.

The shim decides under the replica's lock whether the start may happen. So two starts at once, or a start after one that was
killed at any point, never run two copies.
"""

import errno
import os
import select
import subprocess
import sys
import time
import uuid

from providers.actions import PUSH_BOOT, PUSH_GENERATION
from providers.errors import Conflict, Gone, OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.facts import ContainerState, Generation
from providers.runtime.process.address import can_bind
from providers.runtime.process.environment import environment, executable, working_directory
from providers.runtime.process.log import tail
from providers.runtime.process.observe import look, read_host
from providers.runtime.process.shim_protocol import COOKIE, SECOND, encode_spec
from providers.runtime.process.store import ContainerRecord, Store

START_DEADLINE = 25 * SECOND
"""How long a start may take. The shim fails by itself after 10 s of killing strays and 10 s of waiting for exec."""

LOG_LINES = 5
"""Lines of output in the error of a refused start."""

_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from providers.runtime.process.shim import main; main()"
"""The shim's program. Its first argument is the directory that holds the `providers` package."""

_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

_REFUSALS = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ENOTDIR, errno.ELOOP, errno.E2BIG, errno.EINVAL}
)
"""Errors of chdir(2) and execve(2) that a retry cannot solve."""


def start(store: Store, record: ContainerRecord, expect: Generation) -> None:
    """Start the next generation after `expect` and return once its exec has succeeded. Does nothing when it runs.

    Raises:
        Conflict: the last generation is not `expect`, or a stop is under way.
        Gone: the replica was removed meanwhile.
        Rejected: the command, its directory or a port cannot be used; with the last output.
        Unreachable: the host lacks resources now; nothing runs.
        OutcomeUnknown: no answer in time.
    """
    name = record.name
    if record.id != expect.container_id:
        cause = f"was replaced: expected container {expect.container_id}, found {record.id}"
        raise Conflict(name, cause, "retried automatically")
    end = time.monotonic_ns() + START_DEADLINE
    while True:
        replica = look(store, name, read_host())
        if replica.runs:
            return
        if replica.state is ContainerState.STOPPING:
            raise Conflict(name, "is still stopping", "retried automatically")
        if not replica.up and replica.started_at != expect.started_at:
            raise _restarted(name, replica.started_at)
        message = _message(store, record, expect)
        report = _launch(name, message, end)
        if report[0] in ("ok", "running"):
            return
        if report[0] != "busy":
            raise _failure(store, name, report)
        _await_other(store, name, end)


def _await_other(store: Store, name: str, end: int) -> None:
    """Another start holds the lock: wait until the replica runs or the lock is free. Raises Conflict at `end`."""
    while not look(store, name, read_host()).runs and not store.is_free(name):
        if time.monotonic_ns() > end:
            raise Conflict(name, "another writer keeps starting or removing it", "retried automatically")
        # The other start reports in a file, which offers no wait; `end` bounds this loop.
        time.sleep(0.01)


def _message(store: Store, record: ContainerRecord, expect: Generation) -> bytes:
    name = record.name
    cwd = working_directory(name, record.root, record.working_dir, store.spare)
    env = environment(record)
    program = executable(name, record.argv[0], env, cwd)
    if PUSH_GENERATION in env:
        # Identifies the run that pushes; in a container the start of its first process does that.
        env[PUSH_BOOT] = uuid.uuid4().hex
    for _, port in record.ports:
        if not can_bind(name, record.address, port):
            cause = f"{record.address}:{port} is in use by another process"
            raise Unreachable(name, cause, f"find it with `ss -ltnp 'sport = :{port}'` and stop it")
    fields = {
        "id": record.id,
        "directory": store.directory(name),
        "boot": read_host().boot,
        "expect": str(expect.started_at),
        "grace": str(record.grace),
        "cwd": cwd,
        "executable": program,
    }
    return encode_spec(fields, record.argv, (*env.items(), (COOKIE, record.id)))


def _launch(name: str, message: bytes, end: int) -> list[str]:
    """Run a shim and wait for its report, until the monotonic instant `end`. Raises Unreachable, OutcomeUnknown."""
    report, report_end = os.pipe()
    try:
        try:
            shim = _spawn(name, message, report_end)
        except OSError as error:
            raise Unreachable(
                name, f"cannot run a shim: {error.strerror}", "free memory, or raise the limit on processes"
            ) from error
        finally:
            os.close(report_end)
        text = _read_report(report, end)
        try:
            shim.wait(max(1, end - time.monotonic_ns()) / SECOND)
        except subprocess.TimeoutExpired as error:
            shim.kill()  # the shim has not forked yet: no application was started
            shim.wait()
            raise Unreachable(name, "its shim did not start in time", "check the load of this host") from error
    finally:
        os.close(report)
    if not text.endswith("\n"):
        raise OutcomeUnknown(name, "its shim did not report the result of the start", "retried automatically")
    return text.split()


def _spawn(name: str, message: bytes, report_end: int) -> subprocess.Popen[bytes]:
    fd = os.memfd_create("reconciler-shim")  # no argument and no file: it contains the replica's environment
    with os.fdopen(fd, "w+b") as spec:
        spec.write(message)
        spec.seek(0)
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, _PACKAGES, name],
            stdin=spec,
            stdout=report_end,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )


def _read_report(report: int, end: int) -> str:
    poll = select.poll()
    poll.register(report, select.POLLIN)
    text = b""
    while not text.endswith(b"\n"):
        if not poll.poll(max(0, end - time.monotonic_ns()) // 1_000_000):
            break
        chunk = os.read(report, 4096)
        if not chunk:
            break
        text += chunk
    return text.decode()


def _restarted(name: str, started_at: object) -> Conflict:
    return Conflict(name, f"was started by another writer meanwhile, at {started_at}", "retried automatically")


def _failure(store: Store, name: str, report: list[str]) -> ProviderError:
    if report[0] == "gone":
        return Gone(name, "was removed during the start", "retried automatically")
    if report[0] == "conflict":
        return _restarted(name, report[1])
    stage, number = report[1], int(report[2])
    cause = f"cannot be started: {stage}: {os.strerror(number)}"
    if stage in ("exec", "chdir") and number in _REFUSALS:
        lines = tail(store.directory(name), LOG_LINES)
        output = "; last output: " + " | ".join(lines) if lines else ""
        return Rejected(name, cause + output, "correct the command or the file's permissions")
    return Unreachable(name, cause, "check whether this host lacks disk space, memory or processes")
