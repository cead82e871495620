"""Dynamic updates (RFC 2136) with prerequisites as compare-and-swap: what the plan saw is what the server checks.

Used by `rfc2136.py`. One message is all or nothing, by the protocol. Changes that do not fit into one message (64 KB) are
split between names; a record set, its owner mark and everything else at its name always stay in one message.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from providers.actions import RecordChange
from providers.dns.common.change import by_name, canonical_change
from providers.dns.rfc2136 import wire
from providers.dns.rfc2136.connection import BadSignature, Link, Lost, Signer, number, walk
from providers.dns.rfc2136.read import Server
from providers.dns.rfc2136.refusals import NOERROR, allow_update, bad_signature, code_text, update_refused
from providers.errors import OutcomeUnknown, Rejected
from providers.facts import RecordKey, RecordSet

NOTHING = "nothing was changed"


@dataclass(frozen=True, slots=True)
class Part:
    """The records of one message: what must hold before, and what is done."""

    prerequisites: list[bytes]
    updates: list[bytes]
    size: int


def canonical_changes(changes: Iterable[RecordChange]) -> list[RecordChange]:
    """Changes in canonical spelling. Names without a final dot are absolute too: a manifest knows no origin.

    Raises:
        Rejected: something in them is no name, type or value.
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
        changes: all changes, canonical; those that need no writing are still prerequisites of what is written with them.
        result: what has to be written, from `changed_sets`.
        records: the zone as it was read, for what stands beside a new record.
        room: octets of one message for the records.

    Raises:
        Rejected: the changes at one name do not fit into a message, or a name server must not be left without NS.
    """
    used = {key.name for key in records}
    found: list[Part] = []
    for name, group in by_name(changes).items():
        if not any(change.key in result for change in group):
            continue
        part = _part(zone, group, result, records, used)
        if part.size > room:
            cause = f"its change needs a message of {part.size} octets, and {room} are possible"
            raise Rejected(f"{name} in zone {zone}", cause, "publish fewer or shorter values at this name")
        if found and found[-1].size + part.size <= room:
            last = found.pop()
            part = Part(last.prerequisites + part.prerequisites, last.updates + part.updates, last.size + part.size)
        found.append(part)
    return found


def room_for(zone: str, signer: Signer | None) -> int:
    """Octets that a message to this zone has for records."""
    return wire.MAX_MESSAGE - len(wire.update(0, zone, [], [])) - (signer.size if signer else 0)


def send(server: Server, link: Link, signer: Signer | None, zone: str, part: Part, done: str) -> None:
    """Send one message and judge its answer.

    Args:
        server, link, signer, zone: where to, over what, signed by whom, about what.
        part: the records.
        done: what was written before by the same change, for messages.

    Raises:
        Conflict: a prerequisite does not hold.
        Rejected: the server refuses, or one side does not accept the other's signature.
        Unreachable: the message was not sent, or the server could not write.
        OutcomeUnknown: it was sent, and no usable answer came.
    """
    rcode = exchange(server, link, signer, zone, part, done)
    if rcode != NOERROR:
        raise update_refused(zone, rcode, done, server.settings.update_key)


def exchange(server: Server, link: Link, signer: Signer | None, zone: str, part: Part, done: str) -> int:
    """The code that the server answers one message with. Raises as `send`, but for the code."""
    key = server.settings.update_key
    one = number()
    try:
        verifier = link.send(wire.update(one, zone, part.prerequisites, part.updates), signer)
    except Lost as error:
        raise server.lost(zone, Lost(f"{error}; {done}")) from error
    code = ""
    try:
        message = wire.parse(link.receive())
        code = f" ({code_text(message.rcode)})"
        _, tsig = walk(message, {})
        _expected(message, one)
        # A refusal may come without a signature, for example when the server does not know the key.
        if tsig is not None or message.rcode == NOERROR:
            verifier.check(message, tsig)
    except (Lost, wire.Malformed) as error:
        cause = f"the update was sent, but its answer is missing: {error}"
        raise OutcomeUnknown(f"zone {zone}", cause, "look at the zone") from error
    except BadSignature as error:
        if error.code:
            raise bad_signature(zone, error, key, allow_update(zone, key)) from error
        cause = f"the update was sent, but its answer{code} cannot be trusted: {error}"
        raise OutcomeUnknown(f"zone {zone}", cause, "look at the zone, and compare the key on both sides") from error
    return message.rcode


def _expected(message: wire.Message, one: int) -> None:
    if message.id != one or not message.flags & wire.RESPONSE or message.flags >> 11 & 15 != wire.UPDATE:
        raise wire.Malformed("it sent an answer that nobody asked for")


def exists(zone: str, key: RecordKey) -> bytes:
    """The prerequisite that a set exists, whatever its values."""
    # An empty record of class ANY asks here, as a prerequisite, and removes there, as an update.
    return removal(zone, key)


def removal(zone: str, key: RecordKey) -> bytes:
    """The update that removes a whole set. Nothing happens when there is none."""
    return wire.record_wire(wire.owner_wire(key.name, zone), wire.type_number(key.type), wire.CLASS_ANY, 0, b"")


def equals(zone: str, key: RecordKey, before: RecordSet | None) -> list[bytes]:
    """The prerequisites that a set has exactly these values (their TTL cannot be asked for), or does not exist."""
    owner, kind = wire.owner_wire(key.name, zone), wire.type_number(key.type)
    if before is None:
        return [wire.record_wire(owner, kind, wire.CLASS_NONE, 0, b"")]
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
    return Part(prerequisites, updates, sum(map(len, prerequisites)) + sum(map(len, updates)))


def _alone(zone: str, key: RecordKey, records: Mapping[RecordKey, RecordSet], used: set[str]) -> list[bytes]:
    """What keeps CNAMEs and other types apart at a name that gets something new, against everybody who writes meanwhile.

    Servers ignore such a record silently (RFC 2136 section 3.4.2.2), and so the change would seem to be done.
    """
    owner = wire.owner_wire(key.name, zone)
    if key.type == "CNAME":
        return [] if key.name in used else [wire.record_wire(owner, wire.ANY, wire.CLASS_NONE, 0, b"")]
    if RecordKey(key.name, "CNAME") in records:
        return []
    return [wire.record_wire(owner, wire.CNAME, wire.CLASS_NONE, 0, b"")]


def _top(zone: str, before: RecordSet | None, after: RecordSet | None) -> tuple[list[bytes], list[bytes]]:
    """What adds and what removes name servers of the zone: one by one, as servers ignore the removal of all silently."""
    key = RecordKey(zone, "NS")
    if after is None:
        raise Rejected(f"{zone} NS", "a zone cannot be without name servers", "change the set instead of removing it")
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
