"""The shim: one small program per replica that starts it, writes its log, outlives `reconcile` and records its exit.

It exists because only a parent process gets an exit code, and `reconcile` may exit or be killed at any time. `start.py` runs
it in a bare interpreter (`python -I -S`) that can import the `providers` package and nothing else of the project; each import
costs memory once per replica, so there are few.

A start: the shim takes the lock file of the replica and holds it until it exits (the lock means "a shim is alive"), forks the
application behind a gate, records its identity, and only then opens the gate to exec. A kill at any point leaves a record of
every process that may exist. The shim is a subreaper: orphans of the replica become its children, and when the application
exits, it kills them. When the shim itself is killed, the kernel kills the application with it.
"""

import ctypes
import errno
import os
import select
import time

from providers.runtime.process.log import CHUNK, LIMIT, LogWriter
from providers.runtime.process.shim_protocol import (
    GENERATION,
    LOCK,
    OLD_LOG,
    SECOND,
    STOP,
    TREE_DEADLINE,
    decode,
    decode_spec,
    encode,
    is_alive,
    kill_strays,
    process_stat,
    read_file,
    steady,
    try_lock,
    unlink,
    write_file,
)

try:
    import _signal as signal  # type: ignore[import-not-found,unused-ignore]  # without the enums, as in shim_protocol.py
except ImportError:  # pragma: no cover
    import signal

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

EXEC_DEADLINE = 10 * SECOND
"""How long an exec may hang (a dead network mount) before the start fails."""

WATCH = 10 * SECOND
"""How often the shim checks that its record still exists; without a record it stops the replica."""


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _report(*words: object) -> None:
    """Write the report to the starter, which may have exited."""
    try:
        os.write(1, (" ".join(map(str, words)) + "\n").encode())
    except OSError:
        return
    finally:
        os.dup2(0, 1)  # 0 is /dev/null by now: the starter reads the end of the report


class _Shim:
    """The shim of one generation of one replica."""

    def __init__(self, spec: dict[str, str], argv: list[bytes], env: dict[bytes, bytes], umask: int, lock: int) -> None:
        self.spec, self.argv, self.env, self.umask, self.lock = spec, argv, env, umask, lock
        self.log = LogWriter()
        self.output, self.output_end = os.pipe()
        os.set_blocking(self.output, False)
        self.wakeup, wakeup_end = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(wakeup_end, False)
        signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        self.app = 0
        self.record: dict[str, str] = {}
        self.deadline = 0
        self.by_us = False
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the starter's thread may have blocked some

    # starting

    def _become_app(self, shim: int, gate: int, errors: int) -> None:
        """In the child: wait for the gate, then exec. Returns only when that failed, after writing stage and errno."""
        stage = "spawn"
        try:
            signal.set_wakeup_fd(-1)
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != shim:
                return
            os.setsid()
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)  # exec keeps ignored signals ignored, and Python ignores SIGPIPE
            os.dup2(self.output_end, 1)
            os.dup2(self.output_end, 2)
            os.umask(self.umask)
            if os.read(gate, 1) != b"g":
                return
            stage = "chdir"
            os.chdir(self.spec["cwd"])
            stage = "exec"
            os.execve(self.spec["executable"], self.argv, self.env)  # noqa: S606  (an argument list, never a shell line)
        except (OSError, ValueError) as error:
            os.write(errors, f"{stage} {getattr(error, 'errno', errno.EINVAL)}".encode())

    def start(self, before: bytes | None, last: int) -> str:
        """Start the application. Empty when it runs; else the failure ("stage errno"), and the record is restored to `before`."""
        gate, gate_end = os.pipe()
        errors, errors_end = os.pipe()
        shim = os.getpid()
        self.app = os.fork()
        if self.app == 0:
            try:
                os.close(gate_end)
                self._become_app(shim, gate, errors_end)
            finally:
                os._exit(127)
        for fd in (gate, errors_end, self.output_end):
            os.close(fd)
        try:
            self.record = self._identity(last)
            write_file(GENERATION, encode(self.record))
            os.write(gate_end, b"g")
            failure = self._await_exec(errors)
            if not failure:
                self._write({**self.record, "phase": "running"})
        except OSError as error:
            failure = f"record {error.errno}"
        os.close(gate_end)
        os.close(errors)
        if failure:
            os.kill(self.app, signal.SIGKILL)
            os.waitpid(self.app, 0)
            restore(before)
        return failure

    def _identity(self, last: int) -> dict[str, str]:
        stat, own = process_stat(self.app), process_stat(os.getpid())
        if stat is None or own is None:
            raise OSError(errno.ESRCH, "no /proc")
        # Later than the last generation even when the wall clock was set back: generations are ordered by it.
        started_at = max(time.time_ns(), last + 1)
        return {
            "phase": "starting",
            "started_at": str(started_at),
            "boot": self.spec["boot"],
            "namespace": os.readlink("/proc/self/ns/pid"),
            "pid": str(self.app),
            "pid_start": str(stat[2]),
            "shim": str(os.getpid()),
            "shim_start": str(own[2]),
        }

    def _await_exec(self, errors: int) -> str:
        """Empty after the exec, which closes the pipe; else stage and errno."""
        poll = select.poll()
        poll.register(errors, select.POLLIN)
        if not poll.poll(EXEC_DEADLINE // 1_000_000):
            return f"exec {errno.ETIMEDOUT}"
        return os.read(errors, 64).decode()

    # supervising

    def supervise(self) -> None:
        """Write the log and reap until the application exits; kill its other processes; record the exit."""
        poll = select.poll()
        poll.register(self.wakeup, select.POLLIN)
        poll.register(self.output, select.POLLIN)
        next_check = steady() + WATCH
        while (exit_status := self._reap()) is None:
            wait = (min(next_check, self.deadline) if self.deadline else next_check) - steady()
            for fd, event in poll.poll(max(0, wait // 1_000_000 + 1)):
                if fd == self.output and not self.log.pump(fd) and event & select.POLLHUP:
                    poll.unregister(fd)
                if fd == self.wakeup and signal.SIGTERM in os.read(fd, 4096):
                    self._stop()
            if steady() >= next_check:
                next_check = steady() + WATCH
                if not self.deadline and os.fstat(self.lock).st_nlink == 0:
                    self._stop()
            if self.deadline and steady() >= self.deadline:
                self._signal_group(signal.SIGKILL)
                self.deadline = (
                    steady() + SECOND
                )  # a process in an uninterruptible wait exits only when the kernel releases it
        self._finish(*exit_status)

    def _reap(self) -> tuple[int, int] | None:
        """Collect orphans that exited. (kind, status) once the application has exited; it is not collected here.

        Until it is collected, its pid and process group cannot be reused.
        """
        while True:
            result = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if result is None:
                return None
            if result.si_pid == self.app:
                return result.si_code, result.si_status
            os.waitpid(result.si_pid, 0)

    def _stop(self) -> None:
        """After SIGTERM: send it to the application's group, with the requested grace period."""
        grace, requested = int(self.spec["grace"]), False
        try:
            request = decode(read_file(STOP) or b"\n")
            requested = request["started_at"] == self.record["started_at"]
            grace = int(request["grace"]) if requested else grace
        except (OSError, ValueError, KeyError):  # a plain SIGTERM from another process
            requested = False
        self.by_us = self.by_us or requested
        due = steady() + grace
        self.deadline = min(self.deadline, due) if self.deadline else due
        self._write({**self.record, "phase": "stopping"})
        self._signal_group(signal.SIGTERM)
        self._signal_group(signal.SIGCONT)  # a paused process handles the signal only when it runs again

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self.app, number)
        except OSError:  # only processes of another user remain in it
            return

    def _finish(self, kind: int, status: int) -> None:
        exited_at, exited_wall = steady(), time.time_ns()
        self._signal_group(signal.SIGKILL)
        os.waitpid(self.app, 0)
        left = self._end_children(steady() + TREE_DEADLINE)
        for _ in range(LIMIT // CHUNK):  # bounded: a process that escaped may still be writing
            if not self.log.pump(self.output):
                break
        exited = kind == os.CLD_EXITED
        cause = "stopped-by-us" if self.by_us else "exited" if exited else "signalled"
        code = status if exited else 128 + status
        if left:
            self.log.write(f"[reconciler] {left} processes of this replica could not be killed\n".encode())
        ending = {"exit_code": str(code), "cause": cause, "exited_at": str(exited_at), "exited_wall": str(exited_wall)}
        self._write({**self.record, "phase": "exited", **ending})

    def _end_children(self, deadline: int) -> int:
        """Kill children, level by level: orphans of a killed process become children of the shim. Returns how many remain."""
        while True:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return 0
            children = _children()
            if steady() >= deadline:
                return len(children)
            for pid in children:
                try:
                    os.kill(pid, signal.SIGKILL)  # safe by pid: only the shim collects its children
                except OSError:
                    continue
            self.log.pump(self.output)
            if select.select([self.wakeup], [], [], 0.02)[0]:
                os.read(self.wakeup, 4096)

    def _write(self, fields: dict[str, str]) -> None:
        """Replace the record; on a full disk delete the older half of the log for it."""
        for attempt in (1, 2):
            try:
                write_file(GENERATION, encode(fields))
            except OSError:
                if attempt == 1:
                    unlink(OLD_LOG)
                continue
            self.record = fields
            return


def _children() -> list[int]:
    """The direct children. Without CONFIG_PROC_CHILDREN in the kernel: from all of /proc."""
    listed = read_file("/proc/thread-self/children")
    if listed is not None:
        return [int(pid) for pid in listed.split()]
    own = os.getpid()
    return [int(p) for p in os.listdir("/proc") if p.isdigit() and (process_stat(int(p)) or ("", 0, 0))[1] == own]


def restore(before: bytes | None) -> None:
    """Restore the record from before a failed start; on a full disk the failed attempt stays recorded."""
    try:
        if before is None:
            unlink(GENERATION)
        else:
            write_file(GENERATION, before)
    except OSError:
        return


def _blocked(spec: dict[str, str], before: bytes | None) -> str:
    """Why this start must not happen, as a report; empty when it may."""
    last = decode(before) if before is not None else {"started_at": "0", "phase": "exited"}
    same_boot = last["phase"] != "exited" and last["boot"] == spec["boot"]
    if same_boot and is_alive(int(last["pid"]), int(last["pid_start"])):
        return f"running {last['started_at']}"
    if last["started_at"] != spec["expect"]:
        return f"conflict {last['started_at']}"
    if same_boot and kill_strays(spec["id"], steady() + TREE_DEADLINE):
        return f"fail strays {errno.EBUSY}"
    return ""


def _run(spec: dict[str, str], argv: list[bytes], env: dict[bytes, bytes]) -> None:
    umask = os.umask(0o077)
    try:
        os.chdir(spec["directory"])
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        if not try_lock(lock):
            return _report("busy")
        named = os.stat(f"{spec['directory']}/{LOCK}")
    except FileNotFoundError:
        return _report("gone")
    if (named.st_dev, named.st_ino) != (os.fstat(lock).st_dev, os.fstat(lock).st_ino):
        return _report("gone")
    before = read_file(GENERATION)
    blocked = _blocked(spec, before)
    if blocked:
        return _report(blocked)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    shim = _Shim(spec, argv, env, umask, lock)
    failure = shim.start(before, int(spec["expect"]))
    if failure:
        return _report("fail", failure)
    _report("ok", shim.record["started_at"])
    shim.supervise()
    return None


def main() -> None:
    """Read the message from standard input, detach from the starter, and run the shim. Reports on standard output."""
    message = decode_spec(os.read(0, os.fstat(0).st_size))
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    if os.fork():
        os._exit(
            0
        )  # the starter collects this process at once; init adopts the shim, which is never a zombie of the starter
    try:
        _run(*message)
    except (OSError, ValueError, KeyError) as error:
        LogWriter().write(f"[reconciler] the shim failed: {error!r}\n".encode())
        _report("fail", "shim", getattr(error, "errno", errno.EBADMSG))
