"""Starting a replica: hand its shim what it must know, and wait for the shim's word. Called by `ProcessRuntime`.

Whether a start may happen is decided by the shim, under the replica's lock; so two starts at once, or a start after one
that was killed anywhere, never make two copies.
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
"""How long a start may take. The shim gives up by itself after 10 s of ending strays and 10 s of waiting for exec."""

LOG_LINES = 5
"""How many lines of output a refused start shows."""

_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from providers.runtime.process.shim import main; main()"
_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

_REFUSALS = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ENOTDIR, errno.ELOOP, errno.E2BIG, errno.EINVAL}
)
"""Errors of chdir(2) and execve(2) that trying again cannot help."""


def start(store: Store, record: ContainerRecord, expect: Generation) -> None:
    """Start generation `expect`'s successor and return once its exec has succeeded. Running already: success.

    Raises:
        Conflict: another generation than `expect` is what ran last, or a stop is under way.
        Gone: the replica was removed meanwhile.
        Rejected: the command, its directory or a port cannot be used; with the last log lines.
        Unreachable: the host refused for now; nothing runs.
        OutcomeUnknown: no answer in time.
    """
    name = record.name
    if record.id != expect.container_id:
        raise Conflict(name, f"is container {record.id} now, the plan saw {expect.container_id}", "look again")
    end = time.monotonic_ns() + START_DEADLINE
    while True:
        seen = look(store, name, read_host())
        if seen.runs:
            return
        if seen.state is ContainerState.STOPPING:
            raise Conflict(name, "is still stopping", "look again")
        if not seen.up and seen.started_at != expect.started_at:
            raise Conflict(name, f"ran after the plan looked, from {seen.started_at} on", "look again")
        message = _message(store, record, expect)
        words = _launch(name, message, end)
        if words[0] in ("ok", "running"):
            return
        if words[0] != "busy":
            raise _failure(store, name, words)
        _await_other(store, name, end)


def _await_other(store: Store, name: str, end: int) -> None:
    """Another start holds the lock: wait until it runs, or has failed and let go. Raises Conflict at `end`."""
    while not look(store, name, read_host()).runs and not store.is_free(name):
        if time.monotonic_ns() > end:
            raise Conflict(name, "is being started or removed by somebody else all the time", "look again")
        # The other starter's word is a file: there is nothing to wait on but looking again, until `end`.
        time.sleep(0.01)


def _message(store: Store, record: ContainerRecord, expect: Generation) -> bytes:
    name = record.name
    cwd = working_directory(name, record.root, record.working_dir)
    env = environment(record)
    program = executable(name, record.argv[0], env, cwd)
    if PUSH_GENERATION in env:
        # Which run of it pushes: in a container the start of its first process tells, here nothing else would.
        env[PUSH_BOOT] = uuid.uuid4().hex
    for _, port in record.ports:
        if not can_bind(name, record.address, port):
            cause = f"{record.address}:{port} is in use by another process"
            raise Unreachable(name, cause, f"find it with `ss -ltnp 'sport = :{port}'` and end it")
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
            raise Unreachable(name, f"cannot run a shim: {error.strerror}", "free memory or processes") from error
        finally:
            os.close(report_end)
        text = _read_report(report, end)
        try:
            shim.wait(max(1, end - time.monotonic_ns()) / SECOND)
        except subprocess.TimeoutExpired as error:
            shim.kill()  # only its first half, which has not even forked yet: no application was started
            shim.wait()
            raise Unreachable(name, "its shim did not come up in time", "look at the load of this host") from error
    finally:
        os.close(report)
    if not text.endswith("\n"):
        raise OutcomeUnknown(name, "its shim did not say how the start went", "look again")
    return text.split()


def _spawn(name: str, message: bytes, report_end: int) -> subprocess.Popen[bytes]:
    fd = os.memfd_create("reconciler-shim")  # not an argument and not a file: it holds the replica's environment
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


def _failure(store: Store, name: str, words: list[str]) -> ProviderError:
    if words[0] == "gone":
        return Gone(name, "was removed while it was being started", "look again")
    if words[0] == "conflict":
        return Conflict(name, f"ran after the plan looked, from {words[1]} on", "look again")
    stage, number = words[1], int(words[2])
    cause = f"cannot be started: {stage}: {os.strerror(number)}"
    if stage in ("exec", "chdir") and number in _REFUSALS:
        lines = tail(store.directory(name), LOG_LINES)
        shown = "; its last output: " + " | ".join(lines) if lines else ""
        return Rejected(name, cause + shown, "correct the command or the file's permissions")
    return Unreachable(name, cause, "see whether this host is short of disk, memory or processes")
