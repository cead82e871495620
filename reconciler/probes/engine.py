"""The parent's side of the probe engine: starts the child process, sends it the targets and reads its results.

Created by `reconciler/wire.py`, used by the loop of `reconciler.shell` through `fileno` and `read`. Level-triggered:
`set_targets` takes the complete set of targets, and the engine sends the difference. No method blocks but `close`, whose time is bounded.

The engine is trusted while `silent()` is empty. A child that died, or that has sent no batch for SILENCE, says nothing about
any target: earlier facts count until their own `valid_for` ends.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from manifests.values.desired import SECOND, ProbeKind
from providers.facts import Generation, ProbeFact, ProbeValue
from reconciler.probes.messages import Inbox, Spec, Stats, change
from reconciler.probes.slot import printable
from reconciler.probes.streak import FAIL
from reconciler.probes.target import Target, keeps_streak, same_target, to_spec, valid_for
from reconciler.probes.tree import kill_leftovers

SILENCE = 3 * SECOND
"""A child that has sent no batch for this long (ns) is not trusted: three heartbeats."""

VALUES = (ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN, ProbeValue.CANNOT_RUN)
"""The values of `streak.py`, in their order."""

_PIECE = 250  # changes per message: the child takes one message a turn, and a large one would delay its probes
_READ = 256 * 1024
_ROUNDS = 64  # reads per call, so that a fast child cannot hold the caller
_GRACE = 0.5  # seconds in which the child may end by itself
_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = "import sys; sys.path.append(sys.argv[1]); from reconciler.probes.child import main; main(int(sys.argv[2]))"

Key = tuple[Generation, str]


class ProbeEngine:
    """A running engine.

    Args:
        phase: spread targets over their period by a stable phase. Without it every target is probed at once and keeps
            that cadence: for a single pass, which gains nothing by waiting.

    Raises:
        OSError: the child process cannot be started.
    """

    def __init__(self, *, phase: bool = True) -> None:
        self._phase = phase
        self._numbers = 0
        self._wanted: dict[Key, Target] = {}
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            try:
                # Isolated and without site packages: the child needs the standard library and this package only.
                self._child = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT, _ROOT, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    cwd="/",
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        self._sock = ours
        self._inbox = Inbox()
        self._unsent = memoryview(b"")
        self._numbers_of: dict[Key, int] = {}
        self._live: dict[int, Target] = {}
        self._together = 1
        self._todo: Iterator[Key] = iter(())
        self._died = ""
        self._closed = False
        self.last_batch_at = _steady()
        self.stats: Stats | None = None

    @property
    def pid(self) -> int:
        """The process id of the child, for accounting."""
        return self._child.pid

    @property
    def died(self) -> str:
        """Why the child ended; empty while it runs."""
        return self._died

    def alive(self) -> bool:
        """Whether the child runs. Notices its death at once, without waiting for `read`."""
        if not self._died and self._child.poll() is not None:
            self._mark_dead("")
        return not self._died

    def silent(self) -> str:
        """Why the engine cannot be trusted now; empty when it can."""
        if not self.alive():
            return self._died
        quiet = _steady() - self.last_batch_at
        if quiet > SILENCE:
            return f"the probe engine has sent nothing for {quiet // SECOND}s"
        return ""

    def fileno(self) -> int:
        """A descriptor that is readable when `read` has work. Changes with `restart`."""
        return self._sock.fileno()

    def set_targets(self, targets: Sequence[Target]) -> None:
        """Probe exactly these targets from now on.

        A target whose probe, address, port or way to execute changed is a new target with a new streak. A target whose secrets or
        authorities changed keeps its streak. The newer set replaces unsent changes, so a call costs little more than the comparison.
        """
        wanted = {target.key: target for target in targets}
        numbers, live = self._numbers_of, self._live
        changed = [
            key for key, target in wanted.items() if key not in numbers or not same_target(live[numbers[key]], target)
        ]
        self._wanted = wanted
        self._together = max(1, len(changed))
        self._todo = chain([key for key in numbers if key not in wanted], changed)
        self._send()

    def read(self) -> Mapping[Key, ProbeFact]:
        """The newest fact of each target with a result since the last call. Does not block."""
        facts: dict[Key, ProbeFact] = {}
        for _ in range(_ROUNDS):
            data = self._receive()
            if not data:
                break
            self._inbox.feed(data)
            try:
                while (message := self._inbox.next()) is not None:
                    self._take(message, facts)
            except ValueError as error:
                self._mark_dead(str(error))
        self._send()
        return facts

    def restart(self) -> None:
        """End the child, start another and give it the same targets. All streaks start again from zero.

        Raises:
            OSError: the child process cannot be started.
        """
        self.close()
        self._start()
        self.set_targets(tuple(self._wanted.values()))

    def close(self) -> None:
        """End the child and all its commands, within a second. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._sock.close()
        try:
            self._child.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            self._kill_leftover_commands()
        if self._child.stderr is not None:
            self._child.stderr.close()
        self._died = self._died or "the probe engine is closed"

    # --- the socket ---------------------------------------------------------------------------------------------

    def _receive(self) -> bytes:
        if self._died:
            return b""
        try:
            data = self._sock.recv(_READ)
        except BlockingIOError:
            return b""
        except OSError as error:
            self._mark_dead(str(error))
            return b""
        if not data:
            self._mark_dead("")
        return data

    def _take(self, message: tuple[object, ...], facts: dict[Key, ProbeFact]) -> None:
        made_at, rows, stats = message
        assert isinstance(made_at, int) and isinstance(rows, list)  # noqa: S101, PT018  (our own child)
        self.last_batch_at = made_at
        if isinstance(stats, tuple):
            self.stats = Stats._make(stats)
        for number, value, last, run, count, since, at, detail in rows:
            target = self._live.get(number)
            if target is None:
                continue  # the target was removed meanwhile
            probe = target.probe
            facts[target.key] = ProbeFact(
                VALUES[value],
                VALUES[last],
                count,
                probe.failure_threshold if run == FAIL else probe.success_threshold,
                since,
                at,
                valid_for(probe),
                target.inputs.masked(detail) if target.inputs.secrets else detail,
            )

    def _send(self) -> None:
        """Send the unsent bytes, then the next pieces of the difference, as far as the socket takes them."""
        while not self._died:
            if not self._unsent:
                self._unsent = memoryview(self._next_piece())
                if not self._unsent:
                    return
            try:
                count = self._sock.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self._mark_dead("")
                return
            self._unsent = self._unsent[count:]

    def _next_piece(self) -> bytes:
        """The next piece of the difference between the wanted targets and those of the child, framed."""
        now = _steady()
        add: list[Spec] = []
        remove: list[int] = []
        for key in islice(self._todo, _PIECE):
            number = self._numbers_of.pop(key, 0)
            before = self._live.pop(number, None)
            if before is not None:
                remove.append(number)
            target = self._wanted.get(key)
            if target is None:
                continue
            self._numbers += 1
            self._numbers_of[key] = self._numbers
            self._live[self._numbers] = target
            spec = to_spec(target, self._numbers, now, phase=self._phase, together=self._together)
            inherits = before is not None and keeps_streak(before, target)
            add.append(spec._replace(inherits_from=number) if inherits else spec)
        return change(add, remove) if add or remove else b""

    # --- the process --------------------------------------------------------------------------------------------

    def _mark_dead(self, cause: str) -> None:
        """Make sure that the child has ended, and remember why."""
        if self._died:
            return
        try:
            code = self._child.wait(_GRACE / 5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            code = self._child.wait()
        reason = cause or _last_line(self._child) or _exit_text(code)
        self._died = f"the probe engine died: {reason}"
        self._kill_leftover_commands()

    def _kill_leftover_commands(self) -> None:
        """Kill the commands of a child that could not kill them itself."""
        if any(target.probe.kind is ProbeKind.EXEC for target in self._live.values()):
            kill_leftovers()


def _steady() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _last_line(child: subprocess.Popen[bytes]) -> str:
    """The last line that the dead child wrote to stderr: the end of a traceback."""
    if child.stderr is None:
        return ""
    os.set_blocking(child.stderr.fileno(), False)
    text = child.stderr.read(_READ) or b""
    return printable(text.strip().rpartition(b"\n")[2], 200)
