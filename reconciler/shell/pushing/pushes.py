"""The pushes of an instance: finds the container of a sender, records its pushes, and gives the loop what to store.

The listener calls it for every authenticated push, the loop at every tick; the rules are in `core/health/pushes.py`. All code runs
on the loop's thread and never blocks; only `remembered` waits, until a tick has stored the pushes.
"""

import asyncio
import hmac
import secrets
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from manifests.values.desired import SECOND, Desired, Push, PushListener, Role
from providers.facts import ContainerFact, ContainerState, Generation, Known, container_name
from reconciler.core.health.pushes import (
    EARLY,
    EARLY_SENDERS,
    Bucket,
    ObservedContainer,
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
"""How often (ns) a repeated state is stored: only its count changed. A new state is stored at once."""

FORGET_AFTER = 60 * SECOND
"""How long (ns) a container that is gone, or a sender without a known container, is remembered."""

LOOK_EVERY = SECOND
"""Pushes cause an early look at most this often (ns)."""

CHALLENGE_FOR = 10 * SECOND
"""How long (ns) a challenge is given again, so that a replay does not take it from the sender that is about to use it. It counts for
twice as long."""

BUSY = Ruling(429, "too many pushes from this container; push less often")
EARLIER = Ruling(410, "these credentials belong to an earlier container of this name")
CROWDED = Ruling(429, "too many senders without a known container; try again later")


class Sender(NamedTuple):
    """An authenticated sender: the name and nonce of its credentials, or the container id from the kernel."""

    name: str = ""
    nonce: str = ""
    container: str = ""

    @property
    def subject(self) -> str:
        """The key of its limits and buffers."""
        return self.name or self.container


class _Container(NamedTuple):
    """One container that may push, as the latest look observed it."""

    node: str
    fact: ContainerFact
    rules: Push


class _Early(NamedTuple):
    """The latest push of a sender that no look has shown running yet; `first` is the steady instant of its first push."""

    first: int
    sender: Sender
    sent: Sent


class Pushing:
    """All pushes of this instance.

    Attributes:
        moved: set when the listener of the Instance changed.
    """

    def __init__(self, looks: Looks, clock: Clock, wake: Wake) -> None:
        self.looks, self.clock, self.wake = looks, clock, wake
        self.moved = asyncio.Event()
        self._desired: Desired | None = None
        self._records: dict[str, Record] = {}
        self._missing: dict[str, int] = {}
        self._early: dict[str, _Early] = {}
        self._buckets: dict[str, Bucket] = {}
        self._challenges: dict[str, tuple[str, int]] = {}
        self._began = clock.now().wall
        self._containers: dict[str, _Container] = {}
        self._names: dict[str, list[str]] = {}
        self._nonces: dict[str, str] = {}
        self._indexed: tuple[object, ...] = ()
        self._urgent = self._repeated = False
        self._stored_at = self._looked_soon_at = 0
        self._unsaved: list[asyncio.Future[None]] = []
        self._saving: list[asyncio.Future[None]] = []
        self._folded = False

    @property
    def listener(self) -> PushListener | None:
        """The listener of the Instance in force."""
        return None if self._desired is None else self._desired.instance.push

    def set_desired(self, desired: Desired) -> None:
        """Use these manifests: their workloads may push, to the listener of their Instance."""
        before = self.listener
        self._desired = desired
        if self.listener != before:
            self.moved.set()

    def restore(self, ledger: Ledger, now: Now) -> None:
        """Take over the pushes in the ledger when the program starts."""
        self._stored_at = now.steady
        for container_id, row in ledger.pushes.items():
            with suppress(ValueError):  # an event of a newer version of the program
                self._put(container_id, _record(row, now))

    # --- one push -------------------------------------------------------------------------------------------------

    def allow(self, subject: str) -> bool:
        """Whether a sender may push now; called once per message, before the message is read."""
        bucket, allowed = take(self._buckets.get(subject), self.clock.now().steady)
        self._buckets[subject] = bucket
        return allowed

    def push(
        self,
        sender: Sender,
        event: PushEvent,
        boot: str,
        seq: int,
        inflight: int | None,
        time: int = 0,
        challenge: str = "",
    ) -> Ruling:
        """Take or refuse one push of an authenticated sender within its rate limit."""
        now = self.clock.now()
        container, gone = self._find(sender)
        # Without credentials the kernel names the sender at this moment: there is no message that another process could repeat.
        proof = None if sender.name else True
        if challenge and sender.name:
            proof = container is not None and self._use(container.fact.id, challenge, now.steady)
        sent = Sent(event, boot, seq, inflight, now.steady, time, now.wall, proof)
        if gone:
            return EARLIER
        if container is None or container.fact.state is not ContainerState.RUNNING:
            return self._keep(sender, sent, container is not None)
        return self._receive(sender, container, sent)

    def name_of(self, container_id: str) -> str:
        """The name of a container that may push; empty when no such container has this id."""
        self._index()
        container = self._containers.get(container_id)
        return "" if container is None else container.fact.name

    def _find(self, sender: Sender) -> tuple[_Container | None, bool]:
        """The sender's container, and whether the sender's container is gone.

        While a replica moves, two nodes have a container of that name: the one that pushed with these credentials is meant, else
        one that has not pushed yet.
        """
        self._index()
        if not sender.name:
            return self._containers.get(sender.container), False
        bound = self._nonces.get(sender.nonce)
        if bound is not None:
            return self._containers.get(bound), bound not in self._containers
        candidates = sorted(
            (container_id in self._records, container_id) for container_id in self._names.get(sender.name, ())
        )
        return (self._containers[candidates[0][1]] if candidates else None), False

    def _receive(self, sender: Sender, container: _Container, sent: Sent) -> Ruling:
        container_id = container.fact.id
        known = self._records.get(container_id)
        ruling = receive(sent, self._life(container), known, container.rules.fresh, sender.nonce, self._began)
        if ruling.doubtful:
            return ruling._replace(challenge=self._challenge(container_id, sent.received))
        if ruling.record is None:
            return ruling
        self._put(container_id, ruling.record)
        if not ruling.record.bound:
            self._look_soon(container.node)
        if ruling.changed:
            self._urgent = True
            self.wake.set(f"{container.fact.name} pushed {sent.event.value}")
        else:
            self._repeated = True
        return ruling

    def _challenge(self, container_id: str, now: int) -> str:
        """The challenge for the next message of a container."""
        challenge, given_at = self._challenges.get(container_id, ("", 0))
        if not challenge or now - given_at >= CHALLENGE_FOR:
            challenge = secrets.token_hex(16)
            self._challenges[container_id] = (challenge, now)
        return challenge

    def _use(self, container_id: str, challenge: str, now: int) -> bool:
        """Use up a challenge. Whether it was the container's, unused and not too old."""
        expected, given_at = self._challenges.get(container_id, ("", 0))
        if not hmac.compare_digest(challenge.encode(), expected.encode()) or now - given_at >= 2 * CHALLENGE_FOR:
            return False
        del self._challenges[container_id]
        return True

    def _put(self, container_id: str, record: Record) -> None:
        self._records[container_id] = record
        if record.nonce:
            self._nonces[record.nonce] = container_id

    def _keep(self, sender: Sender, sent: Sent, known: bool) -> Ruling:
        """Keep a push of a container that no look shows running yet: a push can be faster than a look."""
        early = self._early.get(sender.subject)
        if early is None:
            if len(self._early) >= EARLY_SENDERS:
                return CROWDED
            early = _Early(sent.received, sender, sent)
        ruling = unseen(early.first, known, sent.received)
        if ruling.status == 202:
            self._early[sender.subject] = early._replace(sender=sender, sent=sent)
            self._look_soon("")
        return ruling

    def _look_soon(self, node: str) -> None:
        """Ask for an early look at a node; an empty name means all nodes."""
        now = self.clock.now().steady
        if now < self._looked_soon_at + LOOK_EVERY:
            return
        self._looked_soon_at = now
        for name in self.looks.providers.runtimes if not node else (node,):
            self.looks.look_soon(Role.RUNTIME, name)
        self.wake.set("a push of a new container")

    async def remembered(self, seconds: float) -> bool:
        """Wait at most `seconds` until all pushes taken so far are stored. Whether they are."""
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
        """Bind pushes to the generations of the latest looks. Returns the ledger with the pushes to store."""
        self._index()
        self._settle(now.steady)
        self._sweep(now.steady)
        if not (self._urgent or (self._repeated and now.steady >= self._stored_at + REMEMBER_EVERY)):
            return ledger
        self._stored_at, self._urgent, self._repeated, self._folded = now.steady, False, False, True
        self._saving += self._unsaved
        self._unsaved = []
        rows = {container_id: _row(record, now) for container_id, record in sorted(self._records.items())}
        return ledger if rows == ledger.pushes else replace(ledger, pushes=rows)

    @property
    def waiting(self) -> bool:
        """Whether an answer waits for `saved`."""
        return bool(self._saving)

    def saved(self) -> None:
        """Wake the waiters of `remembered`: the ledger of the last `fold` is on disk."""
        waiting, self._saving, self._folded = self._saving, [], False
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def facts(self) -> dict[Generation, PushFact]:
        """The pushes in force, by generation."""
        if not self._records:
            return {}
        self._index()
        return observed(
            self._records,
            {record: self._life(self._containers[record]) for record in self._records if record in self._containers},
        )

    def _settle(self, now: int) -> None:
        for container_id, record in list(self._records.items()):
            container = self._containers.get(container_id)
            if container is None:
                continue
            settled = settle(record, self._life(container))
            if settled is not record:
                self._put(container_id, settled)
                self._urgent |= settled.generation != record.generation
            elif not record.bound and record.generation == container.fact.generation:
                self._look_soon(container.node)
        for subject, early in list(self._early.items()):
            container, _ = self._find(early.sender)
            if container is not None and container.fact.state is ContainerState.RUNNING:
                del self._early[subject]
                if early.sent.received > now - EARLY:
                    self._receive(early.sender, container, early.sent)

    def _sweep(self, now: int) -> None:
        """Forget containers that are gone, senders without a container, and rate limits that are full again."""
        looks = self.looks
        nodes_known = all(isinstance(looks.runtimes.get(name), Known) for name in looks.providers.runtimes)
        for container_id in list(self._records):
            # The ledger lists the containers of nodes that cannot be read; before its first look at one it lists none.
            listed = container_id in looks.owned or not looks.owned
            if container_id in self._containers or (listed and not nodes_known):
                self._missing.pop(container_id, None)
            elif now - self._missing.setdefault(container_id, now) >= FORGET_AFTER:
                self._nonces.pop(self._records.pop(container_id).nonce, None)
                del self._missing[container_id]
                self._urgent = True
        for subject, early in list(self._early.items()):
            if now - early.first >= FORGET_AFTER:
                del self._early[subject]
        for container_id, (_, given_at) in list(self._challenges.items()):
            if now - given_at >= 2 * CHALLENGE_FOR:
                del self._challenges[container_id]
        for subject, bucket in list(self._buckets.items()):
            if is_full(bucket, now):
                del self._buckets[subject]

    # --- containers -----------------------------------------------------------------------------------------------

    def _index(self) -> None:
        """Rebuild the indexes by id and by name after a change of facts or manifests."""
        desired = self._desired
        if desired is None or self._indexed == (self.looks.version, desired.revision):
            return
        self._indexed = (self.looks.version, desired.revision)
        rules = {workload.name: workload.push for workload in desired.workloads if workload.push is not None}
        if not rules:
            self._containers, self._names = {}, {}
            return
        kept = {
            container_id: container
            for container_id, container in self._containers.items()
            if not isinstance(self.looks.runtimes.get(container.node), Known)
        }
        self._containers = {
            container_id: container for container_id, container in kept.items() if container.node in self.looks.runtimes
        }
        for node, known in self.looks.runtimes.items():
            for fact in known.value if isinstance(known, Known) else ():
                if fact.mark is not None and fact.mark.instance == desired.instance.id and fact.mark.workload in rules:
                    self._containers[fact.id] = _Container(node, fact, rules[fact.mark.workload])
        self._names = {}
        for container_id, container in self._containers.items():
            # Senders give the name that they were created with, which may not be their container's any more.
            mark = container.fact.mark
            name = container.fact.name if mark is None else container_name(mark)
            self._names.setdefault(name, []).append(container_id)

    def _life(self, container: _Container) -> ObservedContainer:
        known = self.looks.runtimes.get(container.node)
        running = container.fact.state is ContainerState.RUNNING
        looked_at = known.observed_at if isinstance(known, Known) else 0
        return ObservedContainer(container.fact.generation, running, container.fact.running_since, looked_at)


def _row(record: Record, now: Now) -> PushRow:
    push = record.push
    return PushRow(
        record.generation,
        push.event.value,
        _instant_of(push.since, now),
        _instant_of(push.at, now),
        push.boot,
        push.seq,
        push.inflight,
        record.nonce,
        record.earlier,
        record.time,
    )


def _instant_of(steady: int, now: Now) -> Instant:
    return Instant(now.wall - (now.steady - steady), steady, now.lineage)


def _record(row: PushRow, now: Now) -> Record:
    """The record of a row of the ledger. Raises ValueError for an unknown event."""
    since, at = (now.steady - elapsed(instant, now) for instant in (row.since, row.at))
    push = PushFact(PushEvent(row.event), at, since, row.boot, row.seq, row.inflight)
    record = Record(row.generation, push, 0, nonce=row.nonce, earlier=row.earlier, time=row.time)
    return restore(record, now.steady, now.wall, row.at.wall)
