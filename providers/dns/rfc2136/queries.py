"""Reads record sets one by one, from servers that refuse transfers. Used by `provider.py` with `readBack: queries`.

An answer does not prove that a set exists: a wildcard answers for missing names. When the answer equals that of a wildcard
above, an update without changes asks the server whether the set itself exists.

For a delegated name the server answers with a referral, which has the NS set and glue of this zone. When the same server also has
the delegated zone, that zone answers instead: then the server compares the sets that are expected here, by such an update.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from manifests.types.record_types import TABLE
from providers.actions import RecordChange
from providers.dns.common.change import AT_A_CUT, GLUE, in_zone, parents, servers_of
from providers.dns.common.ownership import PREFIX
from providers.dns.common.routing import label
from providers.dns.rfc2136 import wire
from providers.dns.rfc2136.connection import Connection, Signer
from providers.dns.rfc2136.read import Answer, Question, Server, Zone, ask, serial
from providers.dns.rfc2136.refusals import NOERROR, NXDOMAIN, NXRRSET, not_served, read_refused, update_refused
from providers.dns.rfc2136.update import NOTHING, Part, equals, exchange, exists
from providers.errors import Rejected, Unreachable
from providers.facts import RecordKey, RecordSet

DS = TABLE["DS"].number

TRIES = 3
"""How often a look is repeated when the zone changes meanwhile: answers of two versions are not one state of the zone."""


def look(
    server: Server,
    connection: Connection,
    zone: str,
    keys: Iterable[RecordKey],
    changes: Iterable[RecordChange] = (),
    candidates: Mapping[RecordKey, RecordSet | None] = MappingProxyType({}),
) -> Zone:
    """Some record sets of a zone, all of one version. Sets that do not exist are left out.

    Args:
        server, connection, zone: the server, the connection and the zone.
        keys: which sets.
        changes: the planned changes: sets at and above their names are queried, too.
        candidates: what sets may be, for those that queries do not show: the server compares them. A set that exists and
            equals no candidate has TTL 0 and no values.

    Raises:
        Unreachable: an answer is missing, or the zone changes faster than it can be read.
        Rejected: the server refuses, or does not serve the zone; or another of its zones hides a changed name.
    """
    signer = server.signer(server.reading_key, zone)
    wanted, changes = sorted(keys), list(changes)
    questions = dict.fromkeys(Question(key.name, wire.type_number(key.type)) for key in wanted)
    questions |= dict.fromkeys(_beside(zone, changes))
    for _ in range(TRIES):
        first = serial(server, connection, signer, zone)
        inner = _inner_zones(server, connection, signer, zone, questions)
        answers = ask(
            server, connection, signer, zone, (one for one in questions if not _inside(one.name, inner, one.type))
        )
        records = _records(zone, answers, server)
        records = _without_synthesized(server, connection, signer, zone, records)
        hidden = _hidden(questions, answers, inner, records)
        for key in sorted(hidden):
            record = _compared(server, connection, zone, key, candidates.get(key))
            records |= {} if record is None else {key: record}
        _check_inner(zone, changes, inner, records)
        if not questions or serial(server, connection, signer, zone) == first:
            return Zone(first, records, frozenset(hidden))
    raise Unreachable(f"zone {zone}", f"changed {TRIES} times while it was read by queries")


# --- delegations ------------------------------------------------------------------------------------------------------


def _inner_zones(
    server: Server, connection: Connection, signer: Signer | None, zone: str, questions: Iterable[Question]
) -> frozenset[str]:
    """Zones of the same server below this one that answer for some of the questions instead of it."""
    names = {
        above
        for question in questions
        for above in [question.name, *parents(question.name, zone)]
        if above != zone and in_zone(above, zone) and not above.startswith((PREFIX, "*"))
    }
    answers = ask(server, connection, signer, zone, [Question(name, wire.SOA) for name in sorted(names)])
    return frozenset(answer.question.name for answer in answers if answer.authoritative and answer.serial is not None)


def _inside(name: str, inner: frozenset[str], kind: int) -> bool:
    """Whether an inner zone answers a question. A DS belongs to the zone above the delegation (RFC 4035 section 3.1.4.1)."""
    return any(in_zone(name, zone) and not (kind == DS and name == zone) for zone in inner)


def _check_inner(
    zone: str, changes: Sequence[RecordChange], inner: frozenset[str], records: Mapping[RecordKey, RecordSet]
) -> None:
    """Raise `Rejected` for a name that another zone of the server hides, except the parts of a delegation."""
    servers = servers_of(changes, records) if inner else frozenset()
    for change in sorted(changes, key=lambda change: change.key.name.startswith(PREFIX)):
        key = change.key
        hiding = [name for name in inner if in_zone(key.name, name)]
        of_cut = (key.type in GLUE and key.name in servers) or (
            key.type in AT_A_CUT and key.name in hiding and len(hiding) == 1
        )
        if hiding and change.after is not None and not of_cut:
            best = max(hiding, key=len)
            cause = f"the server has a zone {best}, which hides this name"
            raise Rejected(f"{label(key)} in zone {zone}", cause, f"publish it in zone {best}")


def _hidden(
    questions: Iterable[Question],
    answers: Iterable[Answer],
    inner: frozenset[str],
    records: Mapping[RecordKey, RecordSet],
) -> set[RecordKey]:
    """Sets that may exist and that no answer shows: those that an inner zone hides, and glue that a referral leaves out."""
    hidden = {
        RecordKey(one.name, wire.type_text(one.type))
        for one in questions
        if one.type not in (wire.ANY, wire.CNAME) and _inside(one.name, inner, one.type)
    }
    for answer in answers:
        key = RecordKey(answer.question.name, wire.type_text(answer.question.type))
        if key.type in GLUE and not answer.authoritative and key not in records:
            hidden.add(key)
    return hidden


def _compared(
    server: Server, connection: Connection, zone: str, key: RecordKey, candidate: RecordSet | None
) -> RecordSet | None:
    """A set that queries do not show: the candidate if the server finds it equal, a set without values if another exists."""
    if candidate is not None and candidate.values and _holds(server, connection, zone, equals(zone, key, candidate)):
        return candidate
    return RecordSet(0, ()) if _holds(server, connection, zone, [exists(zone, key)]) else None


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
            # A referral has the addresses of the delegated zone's servers: the glue of this zone.
            records |= {key: record for key, record in answer.glue.items() if key.name == answer.question.name}
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
        if not any(record in sources[question] for question in above[key])
        or _holds(server, connection, zone, [exists(zone, key)])
    }


def _wildcards(zone: str, key: RecordKey) -> list[Question]:
    if key.name == zone:
        return []
    names = [f"*.{parent}" for parent in [*parents(key.name, zone), zone]]
    return [Question(name, wire.type_number(key.type)) for name in names if name != key.name]


def _holds(server: Server, connection: Connection, zone: str, prerequisites: list[bytes]) -> bool:
    """Whether some prerequisites hold: an update without changes asks the server."""
    signer = server.signer(server.settings.update_key, zone)
    rcode = exchange(server, connection, signer, zone, Part(prerequisites, [], 0), NOTHING)
    if rcode in (NXRRSET, NXDOMAIN):
        return False
    if rcode != NOERROR:
        raise update_refused(zone, rcode, NOTHING, server.settings.update_key)
    return True
