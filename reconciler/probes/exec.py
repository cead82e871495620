"""Exec probes: run commands without a shell, bounded in time, number and output, and kill everything they started. Used by `loop.py`.

- Exit 0 passes. Any other exit and a time-out fail. A command that cannot be started (not found, not permitted, here or by the
  runtime in its container) is cannot-run. A command that this host has no process or descriptor for is unknown.
- A command gets a session of its own, /dev/null as input and one pipe for both outputs, of which 10 KiB are kept and the
  first line is shown. The rest is read and dropped, so that a command with much output does not block.
- The kernel limits memory, processor time, files and descriptors of the command; see `limits.py`.
- A probe leaves nothing running: when its command ends or times out, all processes that it started are killed.
- A command that survives SIGKILL (stuck in the kernel) gives up its place after a second. Its probe reports unknown and does not
  start the command again until the process has ended.

The program is looked up in the PATH of the target's own environment. SIGCHLD reports the exit and wakes the loop through
`signal.set_wakeup_fd`.
"""

import errno
import os
import signal
import time
from dataclasses import dataclass

from reconciler.probes import tree
from reconciler.probes.limits import confine
from reconciler.probes.slot import RUNNING, Finish, Slot, duration_text, printable
from reconciler.probes.streak import CANNOT_RUN, FAIL, PASS, UNKNOWN

MAX_OUTPUT = 10 * 1024
"""Bytes of output kept: Kubernetes' limit."""

DRAIN_EVERY = 20_000_000
"""How often the output of running commands is read, ns."""

GIVE_UP = 1_000_000_000
"""How long a killed command keeps its place, ns."""

_CHUNK = 64 * 1024  # the size of a pipe
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENGINE_UNREACHABLE = (
    signal.SIGUSR2
)  # ends the runtime's helper when it cannot reach its engine: no verdict on the container
_NOT_STARTED = (126, 127)
_RUNTIME_ERROR = b"OCI runtime"
"""Docker and Podman print this and exit with 126 or 127 when the container lacks the program: no verdict on what runs there."""
_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)
_LOCAL_ERRORS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


@dataclass(slots=True)
class _Run:
    """One started command. `killed_at` is 0 while it may run."""

    slot: Slot
    pid: int
    number: int
    pipe: int
    output: bytes = b""
    killed_at: int = 0
    done: bool = False


class ExecProber:
    """See `Prober`. The loop also calls `reap` after SIGCHLD, and `tick` while commands run."""

    def __init__(self, finish: Finish) -> None:
        self._finish = finish
        self._runs: dict[int, _Run] = {}
        self._number = 0
        self._root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        pid = os.getpid()
        self._mark = f"{pid}:{tree.start_ticks(pid)}:{tree.namespaces()}"
        tree.kill_leftovers()
        self._is_subreaper = tree.become_subreaper()

    def __len__(self) -> int:
        return len(self._runs)

    def start(self, slot: Slot) -> None:
        """Start the command, or end the run at once with the reason."""
        stuck = next((run for run in self._runs.values() if run.slot.id == slot.id), None)
        if stuck is not None:
            self._finish(slot, UNKNOWN, f"process {stuck.pid} of the previous run cannot be killed")
            return
        spec = slot.spec
        env = dict(spec.env)
        self._number += 1
        try:
            os.chdir(spec.cwd or "/")
        except OSError as error:
            self._finish(
                slot, CANNOT_RUN, f"cannot enter directory {printable(spec.cwd)}: {os.strerror(error.errno or 0)}"
            )
            return
        try:
            program = _find(spec.argv[0], env.get("PATH", _DEFAULT_PATH))
            env[tree.MARK] = f"{self._mark}:{self._number}"
            slot.stage = RUNNING
            pid, pipe = _spawn(program, spec.argv, env)
            confine(pid, slot.timeout)
        except ValueError as error:  # text that the file system's encoding has no bytes for
            self._finish(slot, CANNOT_RUN, f"cannot run {printable(spec.argv[0])}: {printable(str(error))}")
            return
        except OSError as error:
            result = UNKNOWN if error.errno in _LOCAL_ERRORS else CANNOT_RUN
            cause = os.strerror(error.errno or 0).lower()
            self._finish(slot, result, f"cannot run {printable(spec.argv[0])}: {cause}")
            return
        finally:
            os.fchdir(self._root)
        run = _Run(slot, pid, self._number, pipe)
        slot.extra = run
        self._runs[pid] = run

    def check(self, slot: Slot) -> None:
        """Never called: commands have no socket."""

    def event(self, slot: Slot, mask: int) -> None:
        """Never called: commands have no socket."""

    def expire(self, slot: Slot) -> None:
        """Kill the whole tree. The run ends with its process, or a second later."""
        self._kill(slot.extra)

    def abort(self, slot: Slot) -> None:
        """Kill the command of a removed target. It keeps its place until it has ended."""
        self._kill(slot.extra)

    def _kill(self, run: _Run) -> None:
        self._read(run)
        run.killed_at = _now()
        tree.kill_tree(run.pid)

    def tick(self, now: int) -> None:
        """Read outputs, and end the runs whose killed process does not end."""
        for run in self._runs.values():
            if run.done:
                continue
            self._read(run)
            if run.killed_at and now - run.killed_at > GIVE_UP:
                self._end(run, FAIL, f"{self._timeout_text(run)}; process {run.pid} cannot be killed")

    def reap(self) -> None:
        """Collect all children that have ended, then kill what they left behind."""
        ended = False
        while True:
            try:
                # Kill the group before the child is waited for: until then its number cannot be reused.
                status_info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if status_info is None:
                break
            pid = status_info.si_pid
            if pid in self._runs:
                tree.kill_group(pid)
            _, status = os.waitpid(pid, 0)
            run = self._runs.pop(pid, None)
            if run is not None:
                ended = True
                self._process_ended(run, status)
        if ended:
            self.sweep()

    def sweep(self) -> None:
        """Kill orphans that belong to no running command. They became children of this process when their parents ended."""
        if not self._is_subreaper:
            return
        running = {f"{self._mark}:{run.number}" for run in self._runs.values() if not run.killed_at}
        for pid in tree.children(os.getpid()):
            if pid in self._runs or self._session(pid) in self._runs or tree.mark_of(pid) in running:
                continue
            tree.kill_tree(pid)

    def _session(self, pid: int) -> int:
        try:
            return os.getsid(pid)
        except OSError:
            return 0

    def _process_ended(self, run: _Run, status: int) -> None:
        self._read(run)
        code = os.waitstatus_to_exitcode(status)
        if run.done:
            return
        if run.killed_at:
            self._end(run, FAIL, self._timeout_text(run))
        elif code == 0:
            self._end(run, PASS, "exit 0")
        elif code in _NOT_STARTED and _RUNTIME_ERROR in run.output.partition(b"\n")[0]:
            self._end(run, CANNOT_RUN, "the runtime cannot start the command" + _first_line(run.output))
        elif code == -_ENGINE_UNREACHABLE:
            self._end(run, UNKNOWN, "the runtime did not run the command" + _first_line(run.output))
        else:
            exit_text = f"exit {code}" if code > 0 else f"killed by {_signal_name(-code)}"
            self._end(run, FAIL, exit_text + _first_line(run.output))

    def _timeout_text(self, run: _Run) -> str:
        return f"timed out after {duration_text(run.slot.timeout)}{_first_line(run.output)}"

    def _end(self, run: _Run, result: int, detail: str) -> None:
        run.done = True
        os.close(run.pipe)
        run.slot.extra = None
        self._finish(run.slot, result, detail)

    def _read(self, run: _Run) -> None:
        """Read the command's output and keep its first MAX_OUTPUT bytes."""
        if run.done:
            return
        try:
            data = os.read(run.pipe, _CHUNK)
        except BlockingIOError:
            return
        room = MAX_OUTPUT - len(run.output)
        if room > 0:
            run.output += data[:room]

    def close(self) -> None:
        """Kill all commands. Called when the parent has ended."""
        for run in self._runs.values():
            tree.kill_tree(run.pid)
        deadline = _now() + GIVE_UP // 4
        while _now() < deadline:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                self._runs = {}
                self.sweep()
                signal.sigtimedwait((signal.SIGCHLD,), 0.005)
        os.close(self._root)


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _find(name: str, path: str) -> str:
    """The file of a command. Raises OSError when no directory of `path` contains it."""
    if "/" in name:
        return name
    refused = False
    for directory in path.split(":"):
        file = f"{directory or '.'}/{name}"
        if os.path.isfile(file):
            if os.access(file, os.X_OK):
                return file
            refused = True
    number = errno.EACCES if refused else errno.ENOENT
    raise OSError(number, os.strerror(number))


def _spawn(program: str, argv: tuple[str, ...], env: dict[str, str]) -> tuple[int, int]:
    """Start a command; returns its pid and the non-blocking read end of its output. Raises OSError."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        os.set_blocking(reading, False)
        pid = os.posix_spawn(
            program,
            argv,
            env,
            file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writing, 1),
                (os.POSIX_SPAWN_DUP2, writing, 2),
            ),
            setsid=True,
            setsigmask=(),
            setsigdef=_RESET,
        )
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return pid, reading


def _first_line(output: bytes) -> str:
    line = printable(output.lstrip().partition(b"\n")[0])
    return f": {line}" if line else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
