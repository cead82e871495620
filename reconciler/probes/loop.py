"""The main loop of the engine's child process: one epoll loop that starts probes when they are due and ends them at their deadline.

One turn: wait, take events, take changes of targets, end expired runs, start due probes, send results. A turn does a bounded
amount of work, and turns are at least TICK apart: a thousand small wake-ups cost more than the probes themselves.

When the loop stalled (the host slept, the process was stopped, the CPU was busy) for more than half of a probe's time-out while
that probe ran, its result is void: unknown, not counted.
"""

import os
import select
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from reconciler.probes.answer import Rules
from reconciler.probes.exec import DRAIN_EVERY, ExecProber
from reconciler.probes.http import HttpProber
from reconciler.probes.invalid import InvalidProber
from reconciler.probes.link import Link
from reconciler.probes.messages import (
    DURATION_BOUNDS,
    EXEC,
    GRPC,
    HEARTBEAT,
    HTTP,
    INVALID,
    LATE_BOUNDS,
    NAMED,
    PUBLISHED,
    TCP,
    TLS,
    Spec,
    Stats,
    late_bucket,
)
from reconciler.probes.net import Net, sockaddr
from reconciler.probes.schedule import Schedule
from reconciler.probes.slot import IDLE, WAITING, Pool, Prober, Slot, duration_text
from reconciler.probes.streak import CANNOT_RUN, RESULTS, UNKNOWN, step
from reconciler.probes.tcp import PublishedProber, TcpProber

if TYPE_CHECKING:
    from reconciler.probes.named import NamedProber

TICK = 2_000_000
"""Turns of the loop are at least this far apart, ns."""

FLUSH_EVERY = 20_000_000
"""Results are sent this often (ns), a changed verdict at once."""

STALL = 50_000_000
"""A turn that begins this much later than planned (ns) counts as a stall; less is ordinary scheduling."""

MAX_WAIT = 100_000_000
"""Longest wait while probes run (ns), so that a stall is noticed."""

MAX_TLS = 64
"""Most HTTPS and gRPC probes at a time: this loop computes their handshakes."""

MAX_EXEC = 8
"""Most commands at a time: more would make each other time out."""

_EVENTS = 256  # taken per turn
_STARTS = 128  # probes started per turn and kind
_DUE = 512  # due instants taken per turn


class KindCount:
    """Results and durations of one kind of probe since the child started; see `KindCounts`."""

    __slots__ = ("durations", "results", "total")

    def __init__(self) -> None:
        self.results = [0] * RESULTS
        self.durations = [0] * (len(DURATION_BOUNDS) + 1)
        self.total = 0


class Loop:
    """The child's state. `run` does all the work."""

    def __init__(self, link: Link, wake_fd: int, sockets: int, clock: Callable[[], int]) -> None:
        """Prepare, but start nothing.

        Args:
            link: to the parent.
            wake_fd: becomes readable when a child process has ended (SIGCHLD).
            sockets: most network probes at a time.
            clock: steady instants in ns.
        """
        self._link = link
        self._wake_fd = wake_fd
        self._clock = clock
        self._epoll = select.epoll()
        self._epoll.register(link.sock.fileno(), select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        self._epoll.register(wake_fd, select.EPOLLIN)
        self._table: dict[int, Slot] = {}
        self._slots: dict[int, Slot] = {}
        self._rules: dict[tuple[object, ...], Rules] = {}
        self._durations: dict[int, int] = {}  # one object for equal durations saves a tenth of a target's memory
        self._schedule: Schedule[Slot] = Schedule()
        self._deadlines: dict[int, deque[tuple[int, int, Slot]]] = {}
        self._plain, self._tls, self._exec = Pool(sockets), Pool(min(MAX_TLS, sockets)), Pool(MAX_EXEC)
        self._pools = (self._plain, self._tls, self._exec)
        self._net = Net(self._epoll, self._table, self.finish)
        self._probers: dict[int, Prober] = {
            TCP: TcpProber(self._net),
            HTTP: HttpProber(self._net),
            PUBLISHED: PublishedProber(self._net),
            INVALID: InvalidProber(self.finish),
        }
        self._commands: ExecProber | None = None
        self._names: NamedProber | None = None
        self._now = clock()
        self._stalled = 0
        self._urgent = False
        self._backlog = False
        self._last_flush = self._last_heartbeat = 0
        self._started = self._finished = self._timed_out = self._voided = self._delayed = self._skipped = 0
        self._late = [0] * (len(LATE_BOUNDS) + 1)
        self._late_max = 0
        self._kinds: dict[int, KindCount] = {}

    def run(self) -> None:
        """Probe until the parent ends."""
        clock, poll, table, link = self._clock, self._epoll.poll, self._table, self._link
        control = link.sock.fileno()
        self._flush(self._now)
        while not link.closed:
            turned = self._now
            worked = clock() - turned
            if worked < TICK and not self._backlog:
                time.sleep((TICK - worked) / 1e9)
            wait = 0 if self._backlog or self._net.to_check else self._wait(clock())
            events = poll(wait / 1e9, _EVENTS)
            now = self._now = clock()
            late = now - turned - TICK - wait
            if late > STALL:
                self._stalled += late
            self._backlog = len(events) == _EVENTS
            for fd, mask in events:
                slot = table.get(fd)
                if slot is not None:
                    slot.prober.event(slot, mask)
                elif fd == control:
                    if link.receive():
                        self._urgent = True  # any batch shows the parent that the socket has room again
                    link.flush()
                elif fd == self._wake_fd:
                    self._reap()
                elif self._names is not None and fd == self._names.fd:
                    self._names.resolved()
            self._check_touched()
            self._settle(now)
            self._change()
            self._expire(now)
            self._take_due(now)
            self._start(now)
            self._flush(now)
        self.close()

    def close(self) -> None:
        """End all commands, sockets and threads."""
        if self._commands is not None:
            self._commands.close()
        for slot in list(self._table.values()):
            self._net.drop(slot)
        if self._names is not None:
            self._names.close()
        self._epoll.close()

    def _wait(self, now: int) -> int:
        """How long the loop may wait, ns."""
        until = self._last_heartbeat + HEARTBEAT
        due = self._schedule.next()
        if due is not None and due < until:
            until = due
        if self._link.rows and self._link.free:
            until = min(until, self._last_flush + FLUSH_EVERY)
        running = self._plain.running + self._tls.running + self._exec.running
        if running:
            until = min(until, now + (DRAIN_EVERY if self._exec.running else MAX_WAIT))
            for queue in self._deadlines.values():
                while queue and queue[0][1] != queue[0][2].run:
                    queue.popleft()
                if queue and queue[0][0] < until:
                    until = queue[0][0]
            if self._net.settling:
                until = min(until, self._net.settling[0][0])
        return max(0, until - now)

    def _check_touched(self) -> None:
        """Call `check` for the sockets that probers registered with `Net.check_next_turn` in the last turn."""
        to_check = self._net.to_check
        if not to_check:
            return
        self._net.to_check = []
        for slot, run in to_check:
            if slot.run == run:
                slot.prober.check(slot)

    def _settle(self, now: int) -> None:
        """Call `check` for the connections that stayed open for long enough."""
        settling = self._net.settling
        while settling and settling[0][0] <= now:
            _, slot, run = settling.popleft()
            if slot.run == run:
                slot.prober.check(slot)

    # --- targets ------------------------------------------------------------------------------------------------

    def _change(self) -> None:
        """Take one message of changed targets per turn: the parent sends large changes in pieces."""
        message = self._link.next()
        if message is None:
            return
        add, remove = message
        specs = [Spec._make(row) for row in add]
        streaks = {spec.id: self._slots[spec.inherits_from].streak for spec in specs if spec.inherits_from}
        for number in remove:
            self._remove(number)
        for spec in specs:
            self._add(spec)
            if spec.inherits_from:
                self._slots[spec.id].streak = streaks[spec.id]
        self._backlog = True

    def _add(self, spec: Spec) -> None:
        kind = spec.kind
        pool = self._tls if kind in (TLS, GRPC) else self._exec if kind == EXEC else self._plain
        shared = self._durations.setdefault
        period, timeout, valid_for = (shared(ns, ns) for ns in (spec.period, spec.timeout, spec.valid_for))
        spec = spec._replace(period=period, timeout=timeout, valid_for=valid_for)
        slot = Slot(spec, self._prober(NAMED if spec.name else kind), pool, self._now)
        if kind not in (EXEC, INVALID) and not spec.name:
            slot.sockaddr = sockaddr(spec.address, spec.port)
        if kind in (HTTP, TLS):
            slot.rules = self._rules_of(spec)
        if spec.name or kind not in (TCP, HTTP, PUBLISHED):
            slot.spec = spec
        self._slots[spec.id] = slot
        self._schedule.add(spec.id, slot, max(spec.first, self._now))

    def _rules_of(self, spec: Spec) -> Rules:
        """The rules for an answer; equal rules share one object."""
        key = (spec.expected, spec.max_body, spec.follow)
        rules = self._rules.get(key)
        if rules is None:
            passing = frozenset(status for low, high in spec.expected for status in range(low, high + 1))
            rules = self._rules[key] = Rules(passing, spec.max_body, spec.follow)
        return rules

    def _prober(self, kind: int) -> Prober:
        prober = self._probers.get(kind)
        if prober is not None:
            return prober
        if kind == EXEC:
            prober = self._commands = ExecProber(self.finish)
            self._probers[kind] = prober
            return prober
        if kind == NAMED:
            from reconciler.probes.named import NamedProber  # noqa: PLC0415  (loads threading, queue and ipaddress)

            prober = self._probers[kind] = self._names = NamedProber(self._epoll, self._table, self._net)
            return prober
        from reconciler.probes.stream import StreamProber  # noqa: PLC0415  (loads OpenSSL)

        prober = self._probers[TLS] = self._probers[GRPC] = StreamProber(self._net)
        return prober

    def _remove(self, number: int) -> None:
        slot = self._slots.pop(number)
        slot.gone = True
        self._schedule.item_gone()
        self._link.rows.pop(number, None)
        if slot.stage == WAITING:
            slot.pool.ready.remove(slot)
        elif slot.stage != IDLE:
            slot.prober.abort(slot)

    # --- runs ---------------------------------------------------------------------------------------------------

    def _take_due(self, now: int) -> None:
        """Queue the due probes. A probe that still runs gets one more run afterwards, however many instants it missed."""
        due_slots = self._schedule.take(now, _DUE)
        if len(due_slots) == _DUE:
            self._backlog = True
        for due, slot in due_slots:
            if slot.stage == IDLE:
                slot.stage = WAITING
                slot.due = due
                slot.pool.ready.append(slot)
            else:
                self._skipped += 1
                slot.run_again = slot.stage != WAITING

    def _start(self, now: int) -> None:
        for pool in self._pools:
            ready = pool.ready
            if not ready:
                continue
            for _ in range(min(len(ready), _STARTS)):
                if pool.running >= pool.limit:
                    self._delayed += 1
                    break
                self._begin(ready.popleft(), pool, now)
            else:
                if ready:
                    self._backlog = True

    def _begin(self, slot: Slot, pool: Pool, now: int) -> None:
        late = now - slot.due
        self._late[late_bucket(late)] += 1
        if late > self._late_max:  # noqa: PLR1730  (a call of max() per probe costs more)
            self._late_max = late
        self._started += 1
        pool.running += 1
        slot.run += 1
        slot.stalled = self._stalled
        slot.began = now
        timeout = slot.timeout
        queue = self._deadlines.get(timeout)
        if queue is None:
            queue = self._deadlines[timeout] = deque()
        queue.append((now + timeout, slot.run, slot))
        slot.prober.start(slot)

    def finish(self, slot: Slot, result: int, detail: str) -> None:
        """End the run of a slot and count its result; every prober calls this exactly once per run."""
        slot.stage = IDLE
        slot.pool.running -= 1
        slot.run += 1  # invalidates its entry in the deadline queue
        if slot.gone:
            return
        now = self._now
        self._finished += 1
        stalled_for = self._stalled - slot.stalled
        if stalled_for > slot.timeout >> 1 and result != CANNOT_RUN:
            self._voided += 1
            stall = duration_text(stalled_for // 1_000_000 * 1_000_000)
            result, detail = UNKNOWN, f"void: the probe engine stalled for {stall}"
        counts = self._kinds.get(slot.kind)
        if counts is None:
            counts = self._kinds[slot.kind] = KindCount()
        counts.results[result] += 1
        counts.durations[bisect_left(DURATION_BOUNDS, now - slot.began)] += 1
        counts.total += now - slot.began
        before = slot.streak
        slot.streak = after = step(before, result, now, slot.success, slot.failure, slot.valid_for)
        value, last, streak_of, count, since, _ = after
        if value != before.value:
            self._urgent = True
        self._link.rows[slot.id] = (slot.id, value, last, streak_of, count, since, now, detail)
        if slot.run_again:
            slot.run_again = False
            slot.stage = WAITING
            slot.due = now
            slot.pool.ready.append(slot)
            self._backlog = True

    def _expire(self, now: int) -> None:
        """End the runs whose deadline has passed, after the events of this turn."""
        empty = 0
        for queue in self._deadlines.values():
            while queue and queue[0][0] <= now:
                _, run, slot = queue.popleft()
                if run == slot.run:
                    self._timed_out += 1
                    slot.prober.expire(slot)
            empty += not queue
        if empty > 64:
            self._deadlines = {timeout: queue for timeout, queue in self._deadlines.items() if queue}

    def _reap(self) -> None:
        """Collect child processes that have ended."""
        with suppress(BlockingIOError):
            os.read(self._wake_fd, 4096)
        if self._commands is not None:
            self._commands.reap()

    # --- results ------------------------------------------------------------------------------------------------

    def _flush(self, now: int) -> None:
        """Send results: at once when a verdict changed, else every FLUSH_EVERY; a heartbeat when there are none."""
        if self._exec.running and self._commands is not None:
            self._commands.tick(now)
        link = self._link
        heartbeat_due = now - self._last_heartbeat >= HEARTBEAT
        due = self._urgent or heartbeat_due or (link.rows and now - self._last_flush >= FLUSH_EVERY)
        if not due or not link.free:
            return
        if heartbeat_due:
            self._last_heartbeat = now
            if self._commands is not None:
                self._commands.sweep()
        self._last_flush = now
        self._urgent = False
        link.send(now, self._stats() if heartbeat_due else None)

    def _stats(self) -> Stats:
        running = self._plain.running + self._tls.running + self._exec.running
        return Stats(
            self._started,
            self._finished,
            self._timed_out,
            self._voided,
            self._delayed,
            self._skipped,
            running,
            self._late_max,
            tuple(self._late),
            tuple((kind, tuple(c.results), tuple(c.durations), c.total) for kind, c in self._kinds.items()),
        )
