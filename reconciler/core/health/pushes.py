"""Pushes: what instances say of themselves, and the rules by which what they say is taken. Pure; called by `shell/pushing.py`.

A push belongs to one life of one container. Its sender names a *boot* (one run of itself) and counts a *sequence* upwards in
it, so a push that comes again, or late, is told apart and refreshes nothing. How old a push is counts from its receipt by our
own steady clock; what the sender says of time is never used. How far a push is trusted is decided elsewhere (`trust.py`).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from manifests.values.desired import SECOND, Push
from providers.facts import Generation
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.push_fact import PushEvent, PushFact

EARLY = 10 * SECOND
"""How long the push of an instance that no look has shown yet waits for that look: a push can be faster than a look."""

EARLY_SENDERS = 256
"""How many such senders are remembered at once."""

BOOTS_KEPT = 32
"""Earlier boots of one generation that are still refused: a program restarted inside its container has a new one each time."""

SLACK = 2 * SECOND
"""How much later than its first push an engine may say that a container started: it notes the start when that has succeeded."""

RESTORED_WITHIN = 600 * SECOND
"""How long a program may have been down for the pushes before that to count as if they had just been heard."""

RATE = 5
"""Pushes per second of one instance, in the long run. The shipped client pushes changes at once, else every 10 s."""

BURST = 20
"""Pushes of one instance that may come together."""

SUSPECT_LIMIT = 600 * SECOND
"""How long the way of the pushes is suspected at most; then silence is silence, and the probes decide."""


EVENTS = ", ".join(PushEvent)


class Sent(NamedTuple):
    """One message of an authenticated sender, and the steady instant at which it was received."""

    event: PushEvent
    boot: str
    seq: int
    inflight: int | None
    received: int


class Record(NamedTuple):
    """What is known of the pushes of one container.

    `first` is the steady instant at which the current boot was first heard; `bound` tells that a look that began later has
    shown this generation, so that the boot can belong to no other. `earlier` are boots that are over, each with the start of
    the generation it belonged to; `nonce` is that of the credentials it pushes with.
    """

    generation: Generation
    push: PushFact
    first: int
    bound: bool = False
    earlier: tuple[tuple[str, int], ...] = ()
    nonce: str = ""


class ObservedContainer(NamedTuple):
    """The current life of a container: its generation, since when it runs (0 = nobody knows), and when the look at it began."""

    generation: Generation
    running: bool
    running_since: int
    looked_at: int


class Ruling(NamedTuple):
    """The answer to one push: an HTTP status, why in words for the sender, and the record afterwards where it was taken.

    `changed` tells that it says something else than the push before it.
    """

    status: int
    why: str
    record: Record | None = None
    changed: bool = False


TAKEN = "taken"


class Bucket(NamedTuple):
    """A token bucket: `level` in millionths of a token at the steady instant `at`."""

    level: int
    at: int


_TOKEN = 1_000_000
_FULL = BURST * _TOKEN


def take(bucket: Bucket | None, now: int) -> tuple[Bucket, bool]:
    """The bucket after one more push, and whether that push may be looked at. A clock that stands refills nothing."""
    if bucket is None:
        return Bucket(_FULL - _TOKEN, now), True
    elapsed = max(0, now - bucket.at)
    level = min(_FULL, bucket.level + elapsed * RATE * _TOKEN // SECOND)
    if level < _TOKEN:
        return Bucket(level, now), False
    return Bucket(level - _TOKEN, now), True


def is_full(bucket: Bucket, now: int) -> bool:
    """Whether a bucket says no more than none at all, and can be forgotten."""
    return bucket.level + max(0, now - bucket.at) * RATE * _TOKEN // SECOND >= _FULL


def receive(sent: Sent, life: ObservedContainer, known: Record | None, fresh: int, nonce: str = "") -> Ruling:
    """The rule for one push of a container that looks have shown.

    A boot belongs to the life that ran when it was first heard. The latest look may be older than a restart, so until a look
    that began later confirms it, the boot may still move on with the container.

    Args:
        sent: the message.
        life: the container as the latest look has it.
        known: what is remembered of its pushes, of this life or an earlier one.
        fresh: for how long a push outranks the probes (ns).
        nonce: that of the credentials; empty when the kernel says who sends. They sort by the time they were made.

    Returns:
        200 taken; 409 not newer than what was taken, of a boot that is over, or after draining; 410 of an earlier life.
    """
    if known is None:
        if life.running_since > sent.received + SLACK:
            return Ruling(410, "the container has been restarted since")
        return Ruling(200, TAKEN, Record(life.generation, _fact(sent, None), sent.received, nonce=nonce), True)
    if nonce and nonce < known.nonce:
        return Ruling(410, "these credentials belong to an earlier container of this name")
    known, before = settle(known, life), known.push
    started_at = dict(known.earlier).get(sent.boot)
    if started_at is None and known.generation != life.generation and sent.boot == before.boot:
        started_at = known.generation.started_at
    if started_at is not None and started_at != life.generation.started_at:
        return Ruling(410, "this generation is over: the container has been restarted since")
    if started_at is not None:
        return Ruling(409, "a newer run of the sender has pushed since")
    if sent.boot != before.boot and life.running_since > sent.received + SLACK:
        return Ruling(410, "the container has been restarted since")
    if sent.boot == before.boot and sent.seq <= before.seq:
        return Ruling(409, f"seq {sent.seq} is not above {before.seq}, which was taken already")
    same_life = known.generation == life.generation
    if same_life and before.event is PushEvent.DRAINING and sent.event is not PushEvent.DRAINING:
        return Ruling(409, "draining is final for this generation")
    fact = _fact(sent, before if same_life else None)
    record = known._replace(push=fact, nonce=nonce or known.nonce)
    if sent.boot != before.boot:
        earlier = (*known.earlier, (before.boot, known.generation.started_at))[-BOOTS_KEPT:]
        record = Record(life.generation, fact, sent.received, False, earlier, record.nonce)
    return Ruling(200, TAKEN, record, not same_life or _differs(before, fact, fresh))


def _fact(sent: Sent, before: PushFact | None) -> PushFact:
    same = before is not None and before.event is sent.event
    since = before.since if before is not None and same else sent.received
    return PushFact(sent.event, sent.received, since, sent.boot, sent.seq, sent.inflight)


def _differs(before: PushFact, now: PushFact, fresh: int) -> bool:
    """Whether a push says more than that everything is as it was: then somebody should look at it at once."""
    late = now.at - before.at >= fresh
    return late or before.restored or before.event is not now.event or (before.inflight == 0) != (now.inflight == 0)


def settle(record: Record, life: ObservedContainer) -> Record:
    """A record after a look: bound to the life it was heard in, or moved on to the one that had begun before it was heard."""
    confirmed = life.looked_at >= record.first
    if record.generation == life.generation:
        return record._replace(bound=True) if confirmed and not record.bound else record
    moves = (
        not record.bound
        and record.generation.container_id == life.generation.container_id
        and life.running
        and life.running_since <= record.first + SLACK
    )
    return record._replace(generation=life.generation, bound=confirmed) if moves else record


def unseen(first: int, known: bool, now: int) -> Ruling:
    """The rule for a push of a sender that no look shows running, since it was first heard.

    Args:
        first: steady instant of its first push.
        known: whether looks have shown its container, which does not run.
        now: steady instant.
    """
    if now - first < EARLY:
        return Ruling(202, f"kept for {EARLY // SECOND} s, until a look shows this container running")
    return Ruling(410, "this container does not run") if known else Ruling(404, "no such container is known here")


# --- the way of the pushes ------------------------------------------------------------------------------------------


class Channel(NamedTuple):
    """Whether the way of the pushes is suspected: then silence decides nothing. `silent` of `total` senders fell silent together.

    `until` is the steady instant at which the answer changes if nobody is heard.
    """

    suspect: bool
    silent: int
    total: int
    until: int


def channel(senders: Iterable[tuple[Push, PushFact]], now: int) -> Channel:
    """Whether more than half of all senders that repeat their state fell silent together.

    Silent is who was heard and then not for `fresh`; together means within one such window. One sender alone proves
    nothing about the way, so at least two are needed. The same rule as Eureka's self-preservation mode, with the share of
    senders in place of the rate of renewals (https://github.com/Netflix/eureka/wiki/Understanding-Eureka-Peer-to-Peer-Communication).

    Args:
        senders: settings and latest push of every running generation that was ever heard.
        now: steady instant.
    """
    heard = sorted((fact.at + rules.fresh, rules.fresh) for rules, fact in senders if rules.heartbeats)
    lapsed = [one for one in heard if one[0] <= now]
    soonest = min((lapse for lapse, _ in heard if lapse > now), default=FOREVER)
    best, last, low = 0, 0, 0
    for high, (lapse, window) in enumerate(lapsed):
        while lapse - lapsed[low][0] > window:
            low += 1
        if high - low + 1 >= best:
            best, last = high - low + 1, lapse
    total = len(heard)
    if best < 2 or 2 * best <= total:
        return Channel(False, best, total, soonest)
    if now >= last + SUSPECT_LIMIT:
        return Channel(False, best, total, soonest)
    return Channel(True, best, total, min(soonest, last + SUSPECT_LIMIT))


# --- what outlives the program --------------------------------------------------------------------------------------


def restore(record: Record, now: int) -> Record:
    """A remembered record when the program starts.

    Draining, not-ready and startup stay in force: nobody could have heard anything newer meanwhile, so unless that was long
    ago, their age counts from now on. A remembered ready is in force no more: `observed` leaves it out until it is heard
    again, and what is kept of it refuses replays.
    """
    push = record.push
    at = now if now - push.at <= RESTORED_WITHIN else push.at
    return record._replace(push=push._replace(at=at, restored=True), first=0, bound=True)


def observed(records: Mapping[str, Record], lives: Mapping[str, ObservedContainer]) -> dict[Generation, PushFact]:
    """The pushes in force, by generation: those of the lives that go on, without a ready that is only remembered."""
    found: dict[Generation, PushFact] = {}
    for container, record in records.items():
        life = lives.get(container)
        if life is None or life.generation != record.generation:
            continue
        if record.push.restored and record.push.event is PushEvent.READY:
            continue
        found[record.generation] = record.push
    return found
