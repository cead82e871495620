"""Exec probes: commands started without a shell, bounded in time, number and output, and killed with all they started.

- Exit 0 passes, any other end fails, running out of time always fails. What cannot be started (not found, not
  permitted, here or by the runtime in its container) is cannot-run; what we could not start for want of processes or descriptors is unknown.
- A command gets a session of its own, /dev/null as input and one pipe for both outputs, of which 10 KiB are kept and the
  first line is shown. The rest is read and dropped, so that a talkative command does not block.
- A probe leaves nothing running: when its command ends or runs out of time, whatever it started is killed.
- A command that survives SIGKILL (stuck in the kernel) gives up its place after a second; its probe reports unknown
  until it is gone, and is not started a second time.

Only the first word is looked up in the PATH of the target's own environment. Exit is noticed by SIGCHLD, which wakes the
loop through `signal.set_wakeup_fd`.
"""

import errno
import os
import signal
import time
from dataclasses import dataclass

from reconciler.probes import tree
from reconciler.probes.slot import RUNNING, Finish, Slot, printable, spell
from reconciler.probes.streak import CANNOT_RUN, FAIL, PASS, UNKNOWN

MAX_OUTPUT = 10 * 1024
"""Bytes of output kept: Kubernetes' limit."""

DRAIN_EVERY = 20_000_000
"""How often the output of running commands is read, ns."""

GIVE_UP = 1_000_000_000
"""How long a killed command keeps its place, ns."""

_CHUNK = 64 * 1024  # the size of a pipe
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CANNOT_ASK = signal.SIGUSR2  # how a runtime's helper ends when its engine cannot be asked: no verdict on the container
_NOT_STARTED = (126, 127)
_RUNTIME_SAYS = b"OCI runtime"
"""What Docker and Podman say, and end with 126 or 127, when a container has no such program: no verdict on what runs there."""
_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)
_OURS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


@dataclass(slots=True)
class _Run:
    """One started command. `killed_at` is 0 while it may run; `late` says that it ran out of time."""

    slot: Slot
    pid: int
    number: int
    pipe: int
    output: bytes = b""
    killed_at: int = 0
    done: bool = False


class ExecProber:
    """See `Prober`. The loop also calls `woken` after SIGCHLD and `tick` while commands run."""

    def __init__(self, finish: Finish) -> None:
        self._finish = finish
        self._runs: dict[int, _Run] = {}
        self._number = 0
        self._home = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        me = os.getpid()
        self._mark = f"{me}:{tree.start_ticks(me)}"
        tree.kill_leftovers()
        self._adopts = tree.become_subreaper()

    def __len__(self) -> int:
        return len(self._runs)

    def start(self, slot: Slot) -> None:
        """Start the command, or end the run at once with the reason why not."""
        stuck = next((run for run in self._runs.values() if run.slot.id == slot.id), None)
        if stuck is not None:
            self._finish(slot, UNKNOWN, f"process {stuck.pid} of the previous run cannot be killed")
            return
        spec = slot.more
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
        except ValueError as error:  # text that the file system's encoding has no bytes for
            self._finish(slot, CANNOT_RUN, f"cannot run {printable(spec.argv[0])}: {printable(str(error))}")
            return
        except OSError as error:
            ours = error.errno in _OURS
            cause = os.strerror(error.errno or 0).lower()
            self._finish(slot, UNKNOWN if ours else CANNOT_RUN, f"cannot run {printable(spec.argv[0])}: {cause}")
            return
        finally:
            os.fchdir(self._home)
        run = _Run(slot, pid, self._number, pipe)
        slot.extra = run
        self._runs[pid] = run

    def look(self, slot: Slot) -> None:
        """Commands have no socket."""

    def event(self, slot: Slot, mask: int) -> None:
        """Commands have no socket."""

    def expire(self, slot: Slot) -> None:
        """Kill the whole tree; the run ends when its process is gone, or a second later."""
        self._kill(slot.extra)

    def abort(self, slot: Slot) -> None:
        """The target is gone: its command is killed, and keeps its place until it is dead."""
        self._kill(slot.extra)

    def _kill(self, run: _Run) -> None:
        self._read(run)
        run.killed_at = _now()
        tree.kill_tree(run.pid)

    def tick(self, now: int) -> None:
        """Read outputs, and end the runs whose killed process does not die."""
        for run in self._runs.values():
            if run.done:
                continue
            self._read(run)
            if run.killed_at and now - run.killed_at > GIVE_UP:
                self._end(run, FAIL, f"{self._late(run)}; process {run.pid} cannot be killed")

    def woken(self) -> None:
        """Some child has ended: collect all that did, then kill what they left behind."""
        ended = False
        while True:
            try:
                # Look first, kill its group while the number cannot be reused, and only then let it go.
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                break
            pid = found.si_pid
            if pid in self._runs:
                tree.kill_group(pid)
            _, status = os.waitpid(pid, 0)
            run = self._runs.pop(pid, None)
            if run is not None:
                ended = True
                self._ended(run, status)
        if ended:
            self.sweep()

    def sweep(self) -> None:
        """Kill orphans that belong to no running command. They became our children when their parents died."""
        if not self._adopts:
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

    def _ended(self, run: _Run, status: int) -> None:
        self._read(run)
        code = os.waitstatus_to_exitcode(status)
        if run.done:
            return
        if run.killed_at:
            self._end(run, FAIL, self._late(run))
        elif code == 0:
            self._end(run, PASS, "exit 0")
        elif code in _NOT_STARTED and _RUNTIME_SAYS in run.output.partition(b"\n")[0]:
            self._end(run, CANNOT_RUN, "the runtime cannot start it" + _first_line(run.output))
        elif code == -_CANNOT_ASK:
            self._end(run, UNKNOWN, "the runtime did not run it" + _first_line(run.output))
        else:
            how = f"exit {code}" if code > 0 else f"killed by {_signal_name(-code)}"
            self._end(run, FAIL, how + _first_line(run.output))

    def _late(self, run: _Run) -> str:
        return f"timed out after {spell(run.slot.timeout)}{_first_line(run.output)}"

    def _end(self, run: _Run, result: int, detail: str) -> None:
        run.done = True
        os.close(run.pipe)
        run.slot.extra = None
        self._finish(run.slot, result, detail)

    def _read(self, run: _Run) -> None:
        """Take what the command has written, keeping the first MAX_OUTPUT bytes."""
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
        """Kill all that runs. Called when the parent is gone."""
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
        os.close(self._home)


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _find(name: str, path: str) -> str:
    """The file of a command. Raises OSError when no directory of `path` has it."""
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
    """Start a command; returns its pid and the non-blocking end of its output. Raises OSError."""
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
