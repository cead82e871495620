"""Pushes as the loop holds them: who may be meant by a sender, what was taken, what must be remembered. Rules: `core/pushes.py`.

Called by the listener for every authenticated push, and by the loop at every tick. All of it runs on the loop's thread, so
nothing here blocks or waits, except for one tick to have remembered what was taken.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from manifests.values.desired import SECOND, Desired, Push, PushListener, Role
from providers.facts import ContainerFact, ContainerState, Generation, Known
from reconciler.core.health.pushes import (
    EARLY,
    EARLY_SENDERS,
    Bucket,
    Life,
    Record,
    Ruling,
    Sent,
    is_full,
    observed,
    receive,
    restore,
    settle,
    take,
    unseen,
)
from reconciler.core.model.instant import Instant, Now, elapsed
from reconciler.core.model.ledger import Ledger, PushRow
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.shell.clock import Clock
from reconciler.shell.looks.facts import Looks
from reconciler.shell.looks.triggers import Wake

REMEMBER_EVERY = 10 * SECOND
"""How often a repeated state is written down: then only its count has changed. A new state is written at once."""

FORGET_AFTER = 60 * SECOND
"""How long a container that no look shows any more, or a sender that nobody knows, is remembered."""

HURRY_EVERY = SECOND
"""A look is asked for because of pushes at most this often."""

BUSY = Ruling(429, "too many pushes from this instance; slow down")
EARLIER = Ruling(410, "these credentials belong to an earlier container of this name")
CROWDED = Ruling(429, "too many senders that nobody knows; try again later")


class Sender(NamedTuple):
    """Who pushes, already authenticated: the name and nonce of its credentials, or the container that the kernel says."""

    name: str = ""
    nonce: str = ""
    container: str = ""

    @property
    def subject(self) -> str:
        """What limits and buffers go by."""
        return self.name or self.container


class _Seen(NamedTuple):
    """One container that may push, as a look had it."""

    node: str
    fact: ContainerFact
    rules: Push


class _Early(NamedTuple):
    first: int
    sender: Sender
    sent: Sent


class Pushing:
    """All pushes of this instance."""

    def __init__(self, looks: Looks, clock: Clock, wake: Wake) -> None:
        self.looks, self.clock, self.wake = looks, clock, wake
        self.moved = asyncio.Event()
        self._desired: Desired | None = None
        self._records: dict[str, Record] = {}
        self._missing: dict[str, int] = {}
        self._early: dict[str, _Early] = {}
        self._buckets: dict[str, Bucket] = {}
        self._seen: dict[str, _Seen] = {}
        self._names: dict[str, list[str]] = {}
        self._nonces: dict[str, str] = {}
        self._indexed: tuple[object, ...] = ()
        self._urgent = self._stirred = False
        self._written = self._hurried = 0
        self._unsaved: list[asyncio.Future[None]] = []
        self._saving: list[asyncio.Future[None]] = []
        self._folded = False

    @property
    def listener(self) -> PushListener | None:
        """Where pushes are to be taken now."""
        return None if self._desired is None else self._desired.instance.push

    def set_desired(self, desired: Desired) -> None:
        """From now on, replicas of these workloads may push, and pushes are taken where this Instance says."""
        before = self.listener
        self._desired = desired
        if self.listener != before:
            self.moved.set()

    def restore(self, ledger: Ledger, now: Now) -> None:
        """Take over what the ledger remembers, when the program starts."""
        self._written = now.steady
        for container, row in ledger.pushes.items():
            with suppress(ValueError):  # an event of a newer version
                self._put(container, _record(row, now))

    # --- one push -------------------------------------------------------------------------------------------------

    def allow(self, subject: str) -> bool:
        """Whether a sender may push now; asked once for each message, before anything of it is looked at."""
        bucket, allowed = take(self._buckets.get(subject), self.clock.now().steady)
        self._buckets[subject] = bucket
        return allowed

    def push(self, sender: Sender, event: PushEvent, boot: str, seq: int, inflight: int | None) -> Ruling:
        """Take or refuse one push of an authenticated sender that may push now."""
        now = self.clock.now().steady
        sent = Sent(event, boot, seq, inflight, now)
        seen, over = self._find(sender)
        if over:
            return EARLIER
        if seen is None or seen.fact.state is not ContainerState.RUNNING:
            return self._keep(sender, sent, seen is not None)
        return self._receive(sender, seen, sent)

    def name_of(self, container: str) -> str:
        """The name of a container that may push; empty when none of them has this id."""
        self._index()
        seen = self._seen.get(container)
        return "" if seen is None else seen.fact.name

    def _find(self, sender: Sender) -> tuple[_Seen | None, bool]:
        """The sender's container, and whether it is one that is gone.

        A name may be on two nodes while a replica moves: then it is the one that has pushed with these credentials, else one
        that has not pushed yet.
        """
        self._index()
        if not sender.name:
            return self._seen.get(sender.container), False
        bound = self._nonces.get(sender.nonce)
        if bound is not None:
            return self._seen.get(bound), bound not in self._seen
        found = sorted((name in self._records, name) for name in self._names.get(sender.name, ()))
        return (self._seen[found[0][1]] if found else None), False

    def _receive(self, sender: Sender, seen: _Seen, sent: Sent) -> Ruling:
        container = seen.fact.id
        known = self._records.get(container)
        ruling = receive(sent, self._life(seen), known, seen.rules.fresh, sender.nonce)
        if ruling.record is None:
            return ruling
        self._put(container, ruling.record)
        if not ruling.record.bound:
            self._hurry(seen.node)
        if ruling.changed:
            self._urgent = True
            self.wake.set(f"{seen.fact.name} says {sent.event.value}")
        else:
            self._stirred = True
        return ruling

    def _put(self, container: str, record: Record) -> None:
        self._records[container] = record
        if record.nonce:
            self._nonces[record.nonce] = container

    def _keep(self, sender: Sender, sent: Sent, known: bool) -> Ruling:
        """A push of somebody whom no look shows running: a push can be faster than a look."""
        early = self._early.get(sender.subject)
        if early is None:
            if len(self._early) >= EARLY_SENDERS:
                return CROWDED
            early = _Early(sent.received, sender, sent)
        ruling = unseen(early.first, known, sent.received)
        if ruling.status == 202:
            self._early[sender.subject] = early._replace(sender=sender, sent=sent)
            self._hurry("")
        return ruling

    def _hurry(self, node: str) -> None:
        """Look at a node (all of them for an empty name) before its cadence says so."""
        now = self.clock.now().steady
        if now < self._hurried + HURRY_EVERY:
            return
        self._hurried = now
        for name in self.looks.providers.runtimes if not node else (node,):
            self.looks.look_soon(Role.RUNTIME, name)
        self.wake.set("a push of somebody new")

    async def remembered(self, seconds: float) -> bool:
        """Wait until what was taken so far is written down, at most that long. Whether it is."""
        if not (self._urgent or self._folded):
            return True
        done = asyncio.get_running_loop().create_future()
        (self._unsaved if self._urgent else self._saving).append(done)
        try:
            async with asyncio.timeout(seconds):
                await done
        except TimeoutError:
            return False
        return True

    # --- one tick -------------------------------------------------------------------------------------------------

    def fold(self, ledger: Ledger, now: Now) -> Ledger:
        """After a look: bind what was heard to the lives that the look shows, and say what is to be remembered."""
        self._index()
        self._settle(now.steady)
        self._sweep(now.steady)
        if not (self._urgent or (self._stirred and now.steady >= self._written + REMEMBER_EVERY)):
            return ledger
        self._written, self._urgent, self._stirred, self._folded = now.steady, False, False, True
        self._saving += self._unsaved
        self._unsaved = []
        rows = {container: _row(record, now) for container, record in sorted(self._records.items())}
        return ledger if rows == ledger.pushes else replace(ledger, pushes=rows)

    def saved(self) -> None:
        """The ledger of the last `fold` is on the disk."""
        waiting, self._saving, self._folded = self._saving, [], False
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def facts(self) -> dict[Generation, PushFact]:
        """The pushes in force, by generation."""
        if not self._records:
            return {}
        self._index()
        return observed(
            self._records, {record: self._life(self._seen[record]) for record in self._records if record in self._seen}
        )

    def _settle(self, now: int) -> None:
        for container, record in list(self._records.items()):
            seen = self._seen.get(container)
            if seen is None:
                continue
            settled = settle(record, self._life(seen))
            if settled is not record:
                self._put(container, settled)
                self._urgent |= settled.generation != record.generation
            elif not record.bound and record.generation == seen.fact.generation:
                self._hurry(seen.node)
        for subject, early in list(self._early.items()):
            seen, _ = self._find(early.sender)
            if seen is not None and seen.fact.state is ContainerState.RUNNING:
                del self._early[subject]
                if early.sent.received > now - EARLY:
                    self._receive(early.sender, seen, early.sent)

    def _sweep(self, now: int) -> None:
        """Forget containers that are gone, senders whom nobody knows, and limits that limit nothing."""
        looks = self.looks
        nodes_known = all(isinstance(looks.runtimes.get(name), Known) for name in looks.providers.runtimes)
        for container in list(self._records):
            if container in self._seen or not nodes_known:
                self._missing.pop(container, None)
            elif now - self._missing.setdefault(container, now) >= FORGET_AFTER:
                self._nonces.pop(self._records.pop(container).nonce, None)
                del self._missing[container]
                self._urgent = True
        for subject, early in list(self._early.items()):
            if now - early.first >= FORGET_AFTER:
                del self._early[subject]
        for subject, bucket in list(self._buckets.items()):
            if is_full(bucket, now):
                del self._buckets[subject]

    # --- containers -----------------------------------------------------------------------------------------------

    def _index(self) -> None:
        """Find containers by id and by name again when a look, or the manifests, changed something."""
        desired = self._desired
        if desired is None or self._indexed == (self.looks.version, desired.revision):
            return
        self._indexed = (self.looks.version, desired.revision)
        rules = {workload.name: workload.push for workload in desired.workloads if workload.push is not None}
        if not rules:
            self._seen, self._names = {}, {}
            return
        kept = {
            one: seen for one, seen in self._seen.items() if not isinstance(self.looks.runtimes.get(seen.node), Known)
        }
        self._seen = {one: seen for one, seen in kept.items() if seen.node in self.looks.runtimes}
        for node, known in self.looks.runtimes.items():
            for fact in known.value if isinstance(known, Known) else ():
                if fact.mark is not None and fact.mark.instance == desired.instance.id and fact.mark.workload in rules:
                    self._seen[fact.id] = _Seen(node, fact, rules[fact.mark.workload])
        self._names = {}
        for one, seen in self._seen.items():
            self._names.setdefault(seen.fact.name, []).append(one)

    def _life(self, seen: _Seen) -> Life:
        known = self.looks.runtimes.get(seen.node)
        running = seen.fact.state is ContainerState.RUNNING
        looked_at = known.observed_at if isinstance(known, Known) else 0
        return Life(seen.fact.generation, running, seen.fact.running_since, looked_at)


def _row(record: Record, now: Now) -> PushRow:
    push = record.push
    return PushRow(
        record.generation,
        push.event.value,
        _kept(push.since, now),
        _kept(push.at, now),
        push.boot,
        push.seq,
        push.inflight,
        record.nonce,
        record.earlier,
    )


def _kept(steady: int, now: Now) -> Instant:
    return Instant(now.wall - (now.steady - steady), steady, now.boot)


def _record(row: PushRow, now: Now) -> Record:
    """What a row remembers. Raises ValueError for an event that this version does not know."""
    since, at = (now.steady - elapsed(one, now) for one in (row.since, row.at))
    push = PushFact(PushEvent(row.event), at, since, row.boot, row.seq, row.inflight)
    return restore(Record(row.generation, push, 0, nonce=row.nonce, earlier=row.earlier), now.steady)
