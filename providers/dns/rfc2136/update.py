"""Dynamic updates (RFC 2136) with prerequisites as compare-and-swap: the server checks the state that the plan expects.

Used by `provider.py` and `queries.py`. By the protocol a message is all or nothing. Changes that do not fit into one message
(64 KB) are split between names; a record set, its owner mark and all other sets at its name stay in one message. Changes at one
name that do not fit are written as `large.py` says.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from providers.actions import RecordChange
from providers.dns.common.change import by_name, canonical_change
from providers.dns.common.routing import label
from providers.dns.rfc2136 import large, wire
from providers.dns.rfc2136.connection import BadSignature, Connection, Lost, Signer, number, walk
from providers.dns.rfc2136.read import Server
from providers.dns.rfc2136.refusals import NOERROR, allow_update, bad_signature, code_text, update_refused
from providers.errors import OutcomeUnknown, Rejected
from providers.facts import RecordKey, RecordSet

NOTHING = "nothing was changed"


@dataclass(frozen=True, slots=True)
class Part:
    """The records of one message: prerequisites and updates.

    `expects`: sets that the zone must have right before, which the SOA of that version proves: `guarded` adds it to the
    prerequisites. None: the prerequisites say all. `shows` names the largest set of the message and its number of values.
    """

    prerequisites: list[bytes]
    updates: list[bytes]
    size: int
    expects: Mapping[RecordKey, RecordSet | None] | None = None
    shows: tuple[int, str] = (0, "")


def canonical_changes(changes: Iterable[RecordChange]) -> list[RecordChange]:
    """Changes in canonical spelling. Names without a final dot are absolute too: a manifest has no origin.

    Raises:
        Rejected: a name, type or value is invalid.
    """
    return [canonical_change(change) for change in changes]


def parts(
    zone: str,
    changes: Sequence[RecordChange],
    result: Mapping[RecordKey, RecordSet | None],
    records: Mapping[RecordKey, RecordSet],
    room: int,
) -> list[Part]:
    """The messages for some changes, in their order.

    Args:
        zone: the zone's canonical name.
        changes: all changes, canonical; those that need no write are prerequisites of the others.
        result: the sets to write, from `changed_sets`.
        records: the zone as it was read, for the sets beside a new one.
        room: octets of one message for the records.

    Raises:
        Rejected: one value does not fit into a message, or the change would remove all name servers of the zone.
    """
    used = {key.name for key in records}
    messages: list[Part] = []
    for group in by_name(changes).values():
        if not any(change.key in result for change in group):
            continue
        part = _part(zone, group, result, records, used)
        if part.size > room:
            messages += _large(zone, group, result, records, used, room)
            continue
        if messages and messages[-1].expects is None and messages[-1].size + part.size <= room:
            last = messages.pop()
            part = Part(
                last.prerequisites + part.prerequisites,
                last.updates + part.updates,
                last.size + part.size,
                shows=max(last.shows, part.shows),
            )
        messages.append(part)
    return messages


def guarded(part: Part, soa: bytes) -> Part:
    """The message for the version of the zone that has this SOA (the value in wire form), and for no other."""
    version = wire.record_wire(wire.ZONE_POINTER, wire.SOA, wire.CLASS_IN, 0, soa)
    return replace(part, prerequisites=[version, *part.prerequisites])


def room_for(zone: str, signer: Signer | None) -> int:
    """Octets of an update message of this zone that are available for records."""
    return wire.MAX_MESSAGE - len(wire.update(0, zone, [], [])) - (signer.size if signer else 0)


def send(server: Server, connection: Connection, signer: Signer | None, zone: str, part: Part, done: str) -> None:
    """Send one message and check its answer.

    Args:
        server, connection, signer, zone: the server, the connection, its signer and the zone.
        part: the records.
        done: the earlier messages of the same change that were carried out, for errors.

    Raises:
        Conflict: a prerequisite does not hold.
        Rejected: the server refuses, or one side does not accept the other's signature.
        Unreachable: the message was not sent, or the server could not write.
        OutcomeUnknown: the message was sent, but got no usable answer.
    """
    rcode = exchange(server, connection, signer, zone, part, done)
    if rcode != NOERROR:
        raise update_refused(zone, rcode, done, server.settings.update_key, part.shows)


def exchange(server: Server, connection: Connection, signer: Signer | None, zone: str, part: Part, done: str) -> int:
    """Send one message; the response code of its answer. Raises as `send`, except for the code."""
    key = server.settings.update_key
    message_id = number()
    try:
        verifier = connection.send(wire.update(message_id, zone, part.prerequisites, part.updates), signer)
    except Lost as error:
        raise server.lost(zone, Lost(f"{error}; {done}")) from error
    code = ""
    try:
        message = wire.parse(connection.receive())
        code = f" ({code_text(message.rcode)})"
        _, tsig = walk(message, {})
        _check_answer(message, message_id)
        # A refusal may be unsigned, for example when the server does not know the key.
        if tsig is not None or message.rcode == NOERROR:
            verifier.check(message, tsig)
    except (Lost, wire.Malformed) as error:
        cause = f"the update was sent, but its answer is missing: {error}"
        raise OutcomeUnknown(f"zone {zone}", cause, "the zone is read again automatically") from error
    except BadSignature as error:
        if error.code:
            raise bad_signature(zone, error, key, allow_update(zone, key)) from error
        cause = f"the update was sent, but its answer{code} cannot be trusted: {error}"
        raise OutcomeUnknown(
            f"zone {zone}", cause, "compare the key on both sides; the zone is read again automatically"
        ) from error
    return message.rcode


def _check_answer(message: wire.Message, message_id: int) -> None:
    if message.id != message_id or not message.flags & wire.RESPONSE or message.flags >> 11 & 15 != wire.UPDATE:
        raise wire.Malformed("the server sent an answer without a request")


def exists(zone: str, key: RecordKey) -> bytes:
    """The prerequisite that a set exists, with any values."""
    # An empty record of class ANY is an existence check as a prerequisite, and a removal as an update.
    return removal(zone, key)


def removal(zone: str, key: RecordKey) -> bytes:
    """The update that removes a whole set. It has no effect when the set does not exist."""
    return wire.record_wire(wire.owner_wire(key.name, zone), wire.type_number(key.type), wire.CLASS_ANY, 0, b"")


def equals(zone: str, key: RecordKey, before: RecordSet | None) -> list[bytes]:
    """The prerequisites that a set has exactly these values (TTLs cannot be checked), or does not exist."""
    owner, kind = wire.owner_wire(key.name, zone), wire.type_number(key.type)
    if before is None:
        return [wire.record_wire(owner, kind, wire.CLASS_NONE, 0, b"")]
    if not before.values:
        return [exists(zone, key)]  # queries do not show its values
    values = (_value(key, value) for value in before.values)
    return [wire.record_wire(owner, kind, wire.CLASS_IN, 0, value) for value in values]


def _part(
    zone: str,
    group: list[RecordChange],
    result: Mapping[RecordKey, RecordSet | None],
    records: Mapping[RecordKey, RecordSet],
    used: set[str],
) -> Part:
    prerequisites: list[bytes] = []
    removals: list[bytes] = []
    additions: list[bytes] = []
    last: list[bytes] = []
    named: set[str] = set()
    for change in group:
        key, current = change.key, records.get(change.key)
        prerequisites += equals(zone, key, current)
        if key not in result:
            continue
        if change.after is not None and current is None and key.name not in named:
            named.add(key.name)
            prerequisites += _alone(zone, key, records, used)
        if key == RecordKey(zone, "NS"):
            added, gone = _top(zone, current, change.after)
            additions += added
            last += gone
            continue
        owner, kind = wire.owner_wire(key.name, zone), wire.type_number(key.type)
        if current is not None:
            removals.append(removal(zone, key))
        if change.after is not None:
            values = (_value(key, value) for value in change.after.values)
            additions += [wire.record_wire(owner, kind, wire.CLASS_IN, change.after.ttl, value) for value in values]
    updates = [*removals, *additions, *last]
    return Part(prerequisites, updates, sum(map(len, prerequisites)) + sum(map(len, updates)), shows=_largest(group))


def _largest(group: Iterable[RecordChange]) -> tuple[int, str]:
    """The number of values of the largest set that is written, and that set."""
    written = ((len(change.after.values), label(change.key)) for change in group if change.after is not None)
    return max(written, default=(0, ""))


def _large(
    zone: str,
    group: list[RecordChange],
    result: Mapping[RecordKey, RecordSet | None],
    records: Mapping[RecordKey, RecordSet],
    used: set[str],
    room: int,
) -> list[Part]:
    """The messages for changes at one name that do not fit into one. Long sets are not compared value by value."""
    short = [change for change in group if large.replaces_whole(change, result, records.get(change.key))]
    whole = [change for change in group if change not in short and large.removes_whole(change, result)]
    head = _part(zone, short, result, records, used)
    first = [*(removal(zone, change.key) for change in whole), *head.updates]
    prerequisites = list(head.prerequisites)
    for change in group:
        if change not in short and change.key in result and change.key not in records:
            prerequisites += [*equals(zone, change.key, None), *_alone(zone, change.key, records, used)]
    left = room - sum(map(len, prerequisites)) - large.SOA_OCTETS
    messages = []
    for index, chunk in enumerate(large.chunks(zone, group, result, records, first, left)):
        needed = [] if index else prerequisites
        size = sum(map(len, needed)) + sum(map(len, chunk.updates))
        messages.append(Part(needed, chunk.updates, size, chunk.before, _largest(group)))
    return messages


def _alone(zone: str, key: RecordKey, records: Mapping[RecordKey, RecordSet], used: set[str]) -> list[bytes]:
    """The prerequisites that keep CNAMEs and other types apart at a name with a new set, against concurrent writers.

    Servers silently ignore a conflicting record (RFC 2136 section 3.4.2.2), so the change would seem to succeed.
    """
    owner = wire.owner_wire(key.name, zone)
    if key.type == "CNAME":
        return [] if key.name in used else [wire.record_wire(owner, wire.ANY, wire.CLASS_NONE, 0, b"")]
    if RecordKey(key.name, "CNAME") in records:
        return []
    return [wire.record_wire(owner, wire.CNAME, wire.CLASS_NONE, 0, b"")]


def _top(zone: str, before: RecordSet | None, after: RecordSet | None) -> tuple[list[bytes], list[bytes]]:
    """The additions and removals of the zone's name servers: one by one, because servers silently ignore the removal of all."""
    key = RecordKey(zone, "NS")
    if after is None:
        raise Rejected(f"{zone} NS", "a zone needs name servers", "change the set instead of removing it")
    added = [
        wire.record_wire(wire.ZONE_POINTER, wire.NS, wire.CLASS_IN, after.ttl, _value(key, value))
        for value in after.values
    ]
    gone = sorted(set(before.values if before else ()) - set(after.values))
    return added, [
        wire.record_wire(wire.ZONE_POINTER, wire.NS, wire.CLASS_NONE, 0, _value(key, value)) for value in gone
    ]


def _value(key: RecordKey, value: str) -> bytes:
    try:
        return wire.value_wire(key.type, value)
    except ValueError as error:
        raise Rejected(f"{key.name} {key.type}", str(error), "correct the record") from error
