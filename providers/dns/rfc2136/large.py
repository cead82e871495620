"""Changes at one name that do not fit into one message: several updates that keep the set non-empty all along.

Used by `update.py`. A long set is not compared value by value: its prerequisite is the SOA of the version of the zone that was read,
which is short, and which every change of the zone changes. A set is written by differences: new values in place of old ones, then further
additions, then further removals, so that it never has fewer values than before or after. Its owner mark and other short sets of the name are in the first message, so that every value that is written has its mark, also after a kill -9 in
between. The next look then finds a part of the new values, and the next change is the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from manifests.types.record_types import SINGLE
from providers.actions import RecordChange
from providers.dns.common.routing import label
from providers.dns.rfc2136 import wire
from providers.errors import Rejected
from providers.facts import RecordKey, RecordSet

LONG = 2_000
"""Octets of the values of a set, above which it is written by differences. An owner mark is shorter."""

RECORD_OCTETS = 12
"""Octets of a record in an answer beside its value: its name as a pointer, type, class, TTL and length."""

ANSWER = 64_500
"""Octets of the records of one answer: a message of 65,535 also has a header, a question, EDNS and a signature."""

MOVES = 500
"""Most values that change in one message: BIND copies the set for each, and a server must answer within the time-out."""

SOA_OCTETS = 600
"""Room for the SOA in the prerequisites: two names and five numbers (RFC 1035 section 3.3.13)."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The updates of one message, and the long sets before it, as the zone must have them."""

    updates: list[bytes]
    before: Mapping[RecordKey, RecordSet | None]


def is_long(record: RecordSet | None) -> bool:
    """Whether a set is written by differences when the changes at its name do not fit into one message."""
    return record is not None and sum(map(len, record.values)) > LONG


def chunks(
    zone: str,
    group: Sequence[RecordChange],
    result: Mapping[RecordKey, RecordSet | None],
    records: Mapping[RecordKey, RecordSet],
    first: list[bytes],
    room: int,
) -> list[Chunk]:
    """The messages for the changes at one name, in their order.

    Args:
        zone: the zone's canonical name.
        group: the changes at the name.
        result: the sets to write.
        records: the sets as they were read.
        first: the updates of the short sets, which all fit into the first message.
        room: octets of one message for these updates.

    Raises:
        Rejected: the short sets, or one value, do not fit into a message; or a set does not fit into an answer.
    """
    state = {
        change.key: _Growing.of(records.get(change.key))
        for change in group
        if is_long(records.get(change.key)) or is_long(result.get(change.key))
    }
    for key in state:
        _check_answer(zone, key, result.get(key))
    out: list[Chunk] = []
    updates, before, size, moves = list(first), _sets(state), sum(map(len, first)), 0
    for move in _moves(zone, state, result):
        length = sum(map(len, move.records))
        if max(length, size) > room:
            cause = f"its change needs a message of {max(length, size)} octets, at most {room} are possible"
            raise Rejected(f"{move.key.name} in zone {zone}", cause, "publish shorter values at this name")
        moves += 1
        if size + length > room or moves > MOVES:
            moves = 1
            out.append(Chunk(updates, before))
            updates, before, size = [], _sets(state), 0
        updates += move.records
        size += length
        state[move.key].take(move)
    if updates:
        out.append(Chunk(updates, before))
    return out


def _check_answer(zone: str, key: RecordKey, after: RecordSet | None) -> None:
    """Raise unless a set fits into an answer.

    BIND refuses larger ones (SERVFAIL). Knot takes them, and then cannot answer any transfer of the zone: its secondaries stop.
    """
    if after is None:
        return
    size = sum(RECORD_OCTETS + len(wire.value_wire(key.type, value)) for value in after.values)
    if size > ANSWER:
        cause = f"its {len(after.values)} values need an answer of {size} octets, but at most {ANSWER} fit into a DNS message"
        raise Rejected(f"{label(key)} in zone {zone}", cause, "publish fewer or shorter values at this name")


class _Move(NamedTuple):
    """One update of a long set: a value that goes, one that comes (each may be empty), and the TTL of the set then."""

    key: RecordKey
    gone: str
    added: str
    ttl: int
    records: list[bytes]


@dataclass(slots=True)
class _Growing:
    """A long set between two messages."""

    ttl: int
    values: set[str]

    @classmethod
    def of(cls, record: RecordSet | None) -> "_Growing":
        return cls(0, set()) if record is None else cls(record.ttl, set(record.values))

    def take(self, move: _Move) -> None:
        self.values.discard(move.gone)
        self.values |= {move.added} if move.added else set()
        self.ttl = move.ttl


def _sets(state: Mapping[RecordKey, _Growing]) -> dict[RecordKey, RecordSet | None]:
    return {key: RecordSet(of.ttl, tuple(sorted(of.values))) if of.values else None for key, of in state.items()}


def removes_whole(change: RecordChange, result: Mapping[RecordKey, RecordSet | None]) -> bool:
    """Whether a set is removed at once: that needs no values, however many it has."""
    return change.key in result and result[change.key] is None


def replaces_whole(
    change: RecordChange, result: Mapping[RecordKey, RecordSet | None], current: RecordSet | None
) -> bool:
    """Whether a set is written whole in the first message, and not by differences."""
    return change.key.type in SINGLE or not (is_long(current) or is_long(result.get(change.key)))


def _moves(zone: str, state: Mapping[RecordKey, _Growing], result: Mapping[RecordKey, RecordSet | None]) -> list[_Move]:
    """The single updates of the long sets: new values in place of old ones, then further additions, then further removals."""
    grow: list[_Move] = []
    shrink: list[_Move] = []
    for key, current in state.items():
        after = result.get(key)
        if after is None or key.type in SINGLE:
            continue
        owner, kind, ttl = wire.owner_wire(key.name, zone), wire.type_number(key.type), after.ttl
        added = [value for value in after.values if value not in current.values]
        gone = sorted(current.values - set(after.values))
        kept = next((value for value in after.values if value in current.values), None)
        octets = {value: wire.value_wire(key.type, value) for value in (*added, *gone, kept) if value is not None}

        def add(
            value: str, owner: bytes = owner, kind: int = kind, ttl: int = ttl, of: dict[str, bytes] = octets
        ) -> bytes:
            return wire.record_wire(owner, kind, wire.CLASS_IN, ttl, of[value])

        def remove(value: str, owner: bytes = owner, kind: int = kind, of: dict[str, bytes] = octets) -> bytes:
            return wire.record_wire(owner, kind, wire.CLASS_NONE, 0, of[value])

        if kept is not None and current.ttl != ttl:
            # One value goes and comes back with the new TTL, which all values of a set then have (RFC 2181 section 5.2).
            # Knot ignores the TTL of a value that the set already has.
            grow.append(_Move(key, kept, kept, ttl, [remove(kept), add(kept)]))
        pairs = min(len(added), len(gone))
        for old, new in zip(gone, added, strict=False):
            grow.append(_Move(key, old, new, ttl, [remove(old), add(new)]))
        grow += [_Move(key, "", value, ttl, [add(value)]) for value in added[pairs:]]
        shrink += [_Move(key, value, "", ttl, [remove(value)]) for value in gone[pairs:]]
    return grow + shrink
