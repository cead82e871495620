"""Reads record sets one by one, from servers that refuse transfers. Used by `provider.py` with `readBack: queries`.

An answer does not prove that a set exists: a wildcard answers for missing names. When the answer equals that of a wildcard
above, an update without changes asks the server whether the set itself exists.
"""

from collections.abc import Iterable, Mapping

from providers.actions import RecordChange
from providers.dns.common.change import in_zone, parents
from providers.dns.rfc2136 import wire
from providers.dns.rfc2136.connection import Connection, Signer
from providers.dns.rfc2136.read import Answer, Question, Server, Zone, ask, serial
from providers.dns.rfc2136.refusals import NOERROR, NXDOMAIN, NXRRSET, not_served, read_refused, update_refused
from providers.dns.rfc2136.update import NOTHING, Part, exchange, exists
from providers.errors import Rejected, Unreachable
from providers.facts import RecordKey, RecordSet

TRIES = 3
"""How often a look is repeated when the zone changes meanwhile: answers of two versions are not one state of the zone."""


def look(
    server: Server, connection: Connection, zone: str, keys: Iterable[RecordKey], changes: Iterable[RecordChange] = ()
) -> Zone:
    """Some record sets of a zone, all of one version. Sets that do not exist are left out.

    Args:
        server, connection, zone: the server, the connection and the zone.
        keys: which sets.
        changes: the planned changes: sets at and above their names are queried, too.

    Raises:
        Unreachable: an answer is missing, or the zone changes faster than it can be read.
        Rejected: the server refuses, or does not serve the zone.
    """
    signer = server.signer(server.reading_key, zone)
    questions = dict.fromkeys(Question(key.name, wire.type_number(key.type)) for key in sorted(keys))
    questions |= dict.fromkeys(_beside(zone, changes))
    for _ in range(TRIES):
        first = serial(server, connection, signer, zone)
        records = _records(zone, ask(server, connection, signer, zone, questions), server)
        records = _without_synthesized(server, connection, signer, zone, records)
        if not questions or serial(server, connection, signer, zone) == first:
            return Zone(first, records)
    raise Unreachable(f"zone {zone}", f"changed {TRIES} times while it was read by queries")


def _beside(zone: str, changes: Iterable[RecordChange]) -> Iterable[Question]:
    """Questions that decide whether new sets are allowed: a CNAME at the name, any set beside a CNAME, delegations above."""
    for change in changes:
        if change.after is None:
            continue
        name = change.key.name
        # Servers may answer a query for any type incompletely; the prerequisites of the update cover the rest.
        yield Question(name, wire.ANY if change.key.type == "CNAME" else wire.CNAME)
        for parent in [name, *parents(name, zone)]:
            if parent != zone and in_zone(parent, zone):
                yield Question(parent, wire.NS)


def _records(zone: str, answers: Iterable[Answer], server: Server) -> dict[RecordKey, RecordSet]:
    records: dict[RecordKey, RecordSet] = {}
    for answer in answers:
        if answer.rcode not in (NOERROR, NXDOMAIN):
            raise read_refused(zone, "a query", answer.rcode, server.reading_key)
        delegation = {
            key: record for key, record in answer.referral.items() if key.name != zone and in_zone(key.name, zone)
        }
        if not answer.authoritative and not delegation:
            raise Rejected(f"zone {zone}", "the server is not authoritative for this zone", not_served(zone))
        if not answer.authoritative:
            records |= delegation
            continue
        records |= _own(zone, answer)
    return records


def _own(zone: str, answer: Answer) -> dict[RecordKey, RecordSet]:
    """The sets of an answer at the queried name. When a DNAME above gave the answer: only the DNAME."""
    above = {
        key: record
        for key, record in answer.records.items()
        if key.type == "DNAME" and key.name != answer.question.name and in_zone(key.name, zone)
    }
    if above:
        return above
    return {key: record for key, record in answer.records.items() if key.name == answer.question.name}


def _without_synthesized(
    server: Server, connection: Connection, signer: Signer | None, zone: str, records: Mapping[RecordKey, RecordSet]
) -> dict[RecordKey, RecordSet]:
    above = {key: _wildcards(zone, key) for key in records}
    questions = dict.fromkeys(question for wildcards in above.values() for question in wildcards)
    sources: dict[Question, set[RecordSet]] = {}
    for answer in ask(server, connection, signer, zone, questions):
        sources[answer.question] = set(_own(zone, answer).values()) if answer.authoritative else set()
    return {
        key: record
        for key, record in records.items()
        if not any(record in sources[question] for question in above[key]) or _exists(server, connection, zone, key)
    }


def _wildcards(zone: str, key: RecordKey) -> list[Question]:
    if key.name == zone:
        return []
    names = [f"*.{parent}" for parent in [*parents(key.name, zone), zone]]
    return [Question(name, wire.type_number(key.type)) for name in names if name != key.name]


def _exists(server: Server, connection: Connection, zone: str, key: RecordKey) -> bool:
    signer = server.signer(server.settings.update_key, zone)
    rcode = exchange(server, connection, signer, zone, Part([exists(zone, key)], [], 0), NOTHING)
    if rcode in (NXRRSET, NXDOMAIN):
        return False
    if rcode != NOERROR:
        raise update_refused(zone, rcode, NOTHING, server.settings.update_key)
    return True
