"""Pushes: the rules by which the reports of instances about themselves are accepted. Called by `shell/pushing`.

A push belongs to one generation of one container. Its sender names a *boot* (one run of itself) and counts a *sequence* upwards in
it, so a repeated or late push is recognised and refreshes nothing. The age of a push counts from its receipt by our own steady
clock; the sender's time is never used for it. `precedence` decides how much a push counts.

No accepted message is accepted again, with bounded memory: in one boot the sequence only grows. The first message of a boot must
prove that it is new, by a signed time above all times of this container so far, or by a challenge that was given for this one
message. So what is remembered is one time per container, and no list that could overflow.
"""

from collections.abc import Mapping
from typing import NamedTuple

from manifests.values.desired import SECOND
from providers.facts import Generation
from reconciler.core.model.push_fact import PushEvent, PushFact

EARLY = 10 * SECOND
"""How long the push of an instance that was not observed yet waits for the next look: a push can be faster than a look."""

EARLY_SENDERS = 256
"""How many such senders are remembered at once."""

BOOTS_KEPT = 32
"""Earlier boots that are kept, for the exact reason of a refusal. For senders without a signed time they are the only protection
against replays: then none is dropped, and no more boots are accepted."""

TIME_WITHIN = 300 * SECOND
"""How far the signed time of the first message of a boot may be from ours; beyond, the message needs a challenge. A message that was
held back is useless after that. Kerberos allows the same clock skew (RFC 4120, section 8.2)."""

SLACK = 2 * SECOND
"""How much later than the first push an engine's start time may be: the engine notes the start after it has succeeded."""

RESTORED_WITHIN = 600 * SECOND
"""How long the program may have been down for earlier pushes to count as if they had just been received."""

RATE = 5
"""Pushes per second of one instance, in the long run. The shipped client pushes changes at once, else every 10 s."""

BURST = 20
"""Pushes that one instance may send at once."""

EVENTS = ", ".join(PushEvent)


class Sent(NamedTuple):
    """One message of an authenticated sender, and the steady instant at which it was received.

    `time` is the sender's wall clock in the message (ns, 0 = none), `wall` ours at its receipt. `proof` is True when the
    message cannot be a captured one: its challenge was given to this sender and not used yet, or the kernel names the sender. It is False when its
    challenge is another one, and None when the message has none.
    """

    event: PushEvent
    boot: str
    seq: int
    inflight: int | None
    received: int
    time: int = 0
    wall: int = 0
    proof: bool | None = None


class Record(NamedTuple):
    """The pushes of one container, as far as they matter.

    `first` is the steady instant of the first push of the current boot; `bound` says that a look that began later has shown
    this generation, so that the boot can belong to no other. `earlier` are boots that are over, each with the start of the
    generation it belonged to; `nonce` is that of the credentials it pushes with. `time` is the highest signed time of all accepted
    messages (wall ns); 0 = none of them had one.
    """

    generation: Generation
    push: PushFact
    first: int
    bound: bool = False
    earlier: tuple[tuple[str, int], ...] = ()
    nonce: str = ""
    time: int = 0


class ObservedContainer(NamedTuple):
    """A container as the latest look shows it: its generation, since when it runs (0 = unknown), and when the look began."""

    generation: Generation
    running: bool
    running_since: int
    looked_at: int


class Ruling(NamedTuple):
    """The answer to one push: an HTTP status, a message for the sender, and the new record where the push was accepted.

    `changed` says that it differs from the push before it. `doubtful` says that the message may be a captured one: the sender may
    repeat it with `challenge`, which the shell fills in.
    """

    status: int
    why: str
    record: Record | None = None
    changed: bool = False
    doubtful: bool = False
    challenge: str = ""


ACCEPTED = "accepted"


class Bucket(NamedTuple):
    """A token bucket: `level` in millionths of a token at the steady instant `at`."""

    level: int
    at: int


_TOKEN = 1_000_000
_FULL = BURST * _TOKEN


def take(bucket: Bucket | None, now: int) -> tuple[Bucket, bool]:
    """The bucket after one more push, and whether that push may be processed. A clock that stands still refills nothing."""
    if bucket is None:
        return Bucket(_FULL - _TOKEN, now), True
    elapsed = max(0, now - bucket.at)
    level = min(_FULL, bucket.level + elapsed * RATE * _TOKEN // SECOND)
    if level < _TOKEN:
        return Bucket(level, now), False
    return Bucket(level - _TOKEN, now), True


def is_full(bucket: Bucket, now: int) -> bool:
    """Whether a bucket is full again, and can be forgotten."""
    return bucket.level + max(0, now - bucket.at) * RATE * _TOKEN // SECOND >= _FULL


def receive(
    sent: Sent, container: ObservedContainer, known: Record | None, fresh: int, nonce: str = "", began: int = 0
) -> Ruling:
    """The rule for one push of a container that was observed.

    A boot belongs to the generation that ran when it was first heard. The latest look may be older than a restart, so until a
    look that began later confirms it, the boot may still move to the next generation.

    Args:
        sent: the message.
        container: the container as the latest look shows it.
        known: the record of its pushes, of this generation or an earlier one.
        fresh: for how long a push outranks the probes (ns).
        nonce: that of the credentials; empty when the kernel names the sender. Nonces sort by the time they were made.
        began: wall instant since when this program receives pushes: what was accepted before, and is not in the ledger, is unknown.

    Returns:
        200 accepted; 409 not newer than an accepted one, of a boot that is over, after draining, or doubtful; 410 of an earlier
        generation.
    """
    generation = container.generation
    if known is None:
        if container.running_since > sent.received + SLACK:
            return Ruling(410, "the container was restarted after this push")
        if sent.time and (doubt := _doubt(sent, began)):
            return Ruling(409, doubt, doubtful=True)
        time = max(sent.time, began) if sent.time else 0
        return Ruling(200, ACCEPTED, Record(generation, _fact(sent, None), sent.received, nonce=nonce, time=time), True)
    if nonce and nonce < known.nonce:
        return Ruling(410, "these credentials belong to an earlier container of this name")
    known, before = settle(known, container), known.push
    started_at = dict(known.earlier).get(sent.boot)
    if started_at is None and known.generation != generation and sent.boot == before.boot:
        started_at = known.generation.started_at
    if started_at is not None and started_at != generation.started_at:
        return Ruling(410, "this generation is over: the container was restarted")
    if started_at is not None:
        return Ruling(409, "a newer run of the sender has already pushed")
    if sent.boot != before.boot and container.running_since > sent.received + SLACK:
        return Ruling(410, "the container was restarted after this push")
    if sent.boot == before.boot and sent.seq <= before.seq:
        return Ruling(409, f"seq {sent.seq} is not above {before.seq}, the last accepted one")
    same_generation = known.generation == generation
    if same_generation and before.event is PushEvent.DRAINING and sent.event is not PushEvent.DRAINING:
        return Ruling(409, "draining is final for this generation")
    # What was accepted right before a kill of this program may be missing in a restored record: `seq` alone proves nothing then.
    if (sent.boot != before.boot or (before.restored and known.time)) and (doubt := _doubt_after(sent, known)):
        return Ruling(409, doubt, doubtful=True)
    fact = _fact(sent, before if same_generation else None)
    record = known._replace(push=fact, nonce=nonce or known.nonce, time=max(known.time, sent.time))
    if sent.boot != before.boot:
        earlier = (*known.earlier, (before.boot, known.generation.started_at))[-BOOTS_KEPT:]
        record = Record(generation, fact, sent.received, False, earlier, record.nonce, record.time)
    return Ruling(200, ACCEPTED, record, not same_generation or _differs(before, fact, fresh))


def _doubt_after(sent: Sent, known: Record) -> str:
    """Why the first message of a boot may be a captured one, after the messages in `known`; empty when it cannot be."""
    if sent.time or sent.proof is not None:
        return _doubt(sent, known.time)
    if known.time:
        return "time is missing: this container has pushed with a time before, so its next run must too"
    if len(known.earlier) >= BOOTS_KEPT:
        return f"time is missing: without it, at most {BOOTS_KEPT} runs of a container can be distinguished"
    return ""


def _doubt(sent: Sent, after: int) -> str:
    """Why a message with a time or a challenge may be a captured one; empty when it cannot be. `after`: the highest time so far."""
    # A message with a challenge never counts by its time: its sender's clock may be wrong, and its time may still come.
    if sent.proof is not None:
        return "" if sent.proof else "the challenge was used before, is too old, or is not of this container"
    if sent.time <= after:
        return f"time {sent.time} is not above {after}, the last accepted one; repeat the push with the challenge"
    seconds = (sent.time - sent.wall) // SECOND
    if abs(sent.time - sent.wall) > TIME_WITHIN:
        direction = "ahead of" if seconds > 0 else "behind"
        return f"the sender's clock is {abs(seconds)} s {direction} this host's; repeat the push with the challenge"
    return ""


def _fact(sent: Sent, before: PushFact | None) -> PushFact:
    same = before is not None and before.event is sent.event
    since = before.since if before is not None and same else sent.received
    return PushFact(sent.event, sent.received, since, sent.boot, sent.seq, sent.inflight)


def _differs(before: PushFact, now: PushFact, fresh: int) -> bool:
    """Whether a push changes something, so that a decision is due at once."""
    late = now.at - before.at >= fresh
    return late or before.restored or before.event is not now.event or (before.inflight == 0) != (now.inflight == 0)


def settle(record: Record, container: ObservedContainer) -> Record:
    """A record after a look: bound to the generation it was heard in, or moved to the one that had begun before it was heard."""
    confirmed = container.looked_at >= record.first
    if record.generation == container.generation:
        return record._replace(bound=True) if confirmed and not record.bound else record
    moves = (
        not record.bound
        and record.generation.container_id == container.generation.container_id
        and container.running
        and container.running_since <= record.first + SLACK
    )
    return record._replace(generation=container.generation, bound=confirmed) if moves else record


def unseen(first: int, known: bool, now: int) -> Ruling:
    """The rule for a push of a sender that no look shows running.

    Args:
        first: steady instant of its first push.
        known: whether its container was observed, and does not run.
        now: steady instant.
    """
    if now - first < EARLY:
        return Ruling(202, f"kept for {EARLY // SECOND} s until this container is observed running")
    return Ruling(410, "this container does not run") if known else Ruling(404, "no such container is known here")


# --- what outlives the program --------------------------------------------------------------------------------------


def restore(record: Record, now: int, wall: int = 0, stored_wall: int = 0) -> Record:
    """A stored record when the program starts.

    Draining, not-ready and startup still count: the program could not receive anything newer while it was down, so unless that
    was long, their age counts from now on. A stored ready does not count: `observed` leaves it out until the next push, and its
    record only refuses replays. Later messages may have been accepted and not stored, so a signed time must be above the present one
    (by as much as the sender's clock was ahead).

    Args:
        record: the record.
        now: steady instant.
        wall: the wall instant of the same moment.
        stored_wall: wall instant of the record's last push.
    """
    push = record.push
    if record.time:
        record = record._replace(time=max(record.time, wall + max(0, record.time - stored_wall)))
    at = now if now - push.at <= RESTORED_WITHIN else push.at
    return record._replace(push=push._replace(at=at, restored=True), first=0, bound=True)


def observed(records: Mapping[str, Record], containers: Mapping[str, ObservedContainer]) -> dict[Generation, PushFact]:
    """The pushes that count, by generation: those of current generations, without a ready that is only stored."""
    pushes: dict[Generation, PushFact] = {}
    for name, record in records.items():
        container = containers.get(name)
        if container is None or container.generation != record.generation:
            continue
        if record.push.restored and record.push.event is PushEvent.READY:
            continue
        pushes[record.generation] = record.push
    return pushes
