"""The parent's side of the probe engine: starts the child process, tells it what to probe, reads what it found.

Used by the loop of `reconciler.shell` (through `fileno` and `read`) and by nothing else. Level-triggered: `set_targets`
takes the complete wanted set, the engine sends the difference. No method blocks but `close`, which is bounded.

The engine is to be believed while `silent()` is empty. A child that died, or that has not sent a batch for SILENCE, says
nothing about any target: its earlier facts count until their own `valid_for` runs out, and no longer.
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
from reconciler.probes.target import Target, same, specify, succeeds, valid_for
from reconciler.probes.tree import kill_leftovers

SILENCE = 3 * SECOND
"""A child that has sent no batch for this long (ns) is not believed: three heartbeats."""

VALUES = (ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN, ProbeValue.CANNOT_RUN)
"""The values of `streak.py`, in their order."""

_PIECE = 250  # changes per message: the child takes one message a turn and must not be held up by it
_READ = 256 * 1024
_ROUNDS = 64  # reads per call, so that a fast child cannot keep the caller
_PATIENCE = 0.5  # seconds the child gets to end by itself
_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = "import sys; sys.path.append(sys.argv[1]); from reconciler.probes.child import main; main(int(sys.argv[2]))"

Key = tuple[Generation, str]


class ProbeEngine:
    """A running engine.

    Args:
        phase: spread targets over their period by a stable phase. Without it every target is probed at once and keeps
            that cadence: for a single pass, where nothing is gained by waiting.

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
        """The child process, for accounting."""
        return self._child.pid

    @property
    def died(self) -> str:
        """Why the child is gone; empty while it lives."""
        return self._died

    def alive(self) -> bool:
        """Whether the child is there. Notices a death at once, without waiting for `read`."""
        if not self._died and self._child.poll() is not None:
            self._bury("")
        return not self._died

    def silent(self) -> str:
        """Why the engine is not to be believed now; empty when it is."""
        if not self.alive():
            return self._died
        quiet = _steady() - self.last_batch_at
        if quiet > SILENCE:
            return f"the probe engine has said nothing for {quiet // SECOND} s"
        return ""

    def fileno(self) -> int:
        """A descriptor that is readable when `read` has something to do. Changes with `restart`."""
        return self._sock.fileno()

    def set_targets(self, targets: Sequence[Target]) -> None:
        """Probe exactly these from now on.

        A target whose probe, address, port or way to execute changed is a new target: its streak starts anew. One whose
        secrets or authorities changed goes on with its streak. What was not sent yet is replaced by the newer set, so calling this often costs nothing but the comparison.
        """
        wanted = {target.key: target for target in targets}
        numbers, live = self._numbers_of, self._live
        fresh = [key for key, target in wanted.items() if key not in numbers or not same(live[numbers[key]], target)]
        self._wanted = wanted
        self._together = max(1, len(fresh))
        self._todo = chain([key for key in numbers if key not in wanted], fresh)
        self._send()

    def read(self) -> Mapping[Key, ProbeFact]:
        """The newest fact of each target that had a result since the last call. Does not block."""
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
                self._bury(str(error))
        self._send()
        return facts

    def restart(self) -> None:
        """End the child, start another and give it the same targets. All streaks start anew.

        Raises:
            OSError: the child process cannot be started.
        """
        self.close()
        self._start()
        self.set_targets(tuple(self._wanted.values()))

    def close(self) -> None:
        """End the child and all it started, within a second. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._sock.close()
        try:
            self._child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            self._clear_up()
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
            self._bury(str(error))
            return b""
        if not data:
            self._bury("")
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
                continue  # a result of a target that was taken away meanwhile
            probe = target.probe
            facts[target.key] = ProbeFact(
                VALUES[value],
                VALUES[last],
                count,
                probe.failure_threshold if run == FAIL else probe.success_threshold,
                since,
                at,
                valid_for(probe),
                target.given.masked(detail) if target.given.secrets else detail,
            )

    def _send(self) -> None:
        """Send what is waiting; prepare the next piece of the difference once the last one has left."""
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
                self._bury("")
                return
            self._unsent = self._unsent[count:]

    def _next_piece(self) -> bytes:
        """The next part of the difference between what is wanted and what the child has, framed."""
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
            spec = specify(target, self._numbers, now, phase=self._phase, together=self._together)
            heir = before is not None and succeeds(before, target)
            add.append(spec._replace(heir_of=number) if heir else spec)
        return change(add, remove) if add or remove else b""

    # --- the process --------------------------------------------------------------------------------------------

    def _bury(self, cause: str) -> None:
        """The child is of no use any more: make sure that it is gone, and remember why."""
        if self._died:
            return
        try:
            code = self._child.wait(_PATIENCE / 5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            code = self._child.wait()
        said = cause or _last_line(self._child) or _ending(code)
        self._died = f"the probe engine died: {said}"
        self._clear_up()

    def _clear_up(self) -> None:
        """Kill the commands of a child that could not do it itself."""
        if any(target.probe.kind is ProbeKind.EXEC for target in self._live.values()):
            kill_leftovers()


def _steady() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _last_line(child: subprocess.Popen[bytes]) -> str:
    """The end of what the dead child wrote to stderr: the last line of a traceback."""
    if child.stderr is None:
        return ""
    os.set_blocking(child.stderr.fileno(), False)
    text = child.stderr.read(_READ) or b""
    return printable(text.strip().rpartition(b"\n")[2], 200)
