"""The checks of every DNS provider before it writes, as one pure function: compare the sets, then check the resulting zone.

Called by all DNS providers, also those of third parties, so that they refuse the same changes for the same reasons. Works on
plain record sets whose values are canonical.
"""

from collections.abc import Iterable, Mapping, Sequence

from providers.actions import RecordChange
from providers.capabilities import PLAIN, DNSCapabilities
from providers.dns.common import canonical
from providers.dns.common.ownership import marked_key
from providers.dns.common.routing import check_policies, check_set, label
from providers.errors import Conflict, Gone, Rejected
from providers.facts import RecordKey, RecordSet

BESIDE_CNAME = frozenset({"CNAME", "RRSIG", "NSEC", "KEY"})
"""Types that may share a name with a CNAME (RFC 2181 section 10.1, RFC 4034 section 3)."""

GLUE = frozenset({"A", "AAAA"})
"""Types that a zone may have below a delegation, for its name servers (RFC 1034 section 4.2.1)."""

AT_A_CUT = frozenset({"NS", "DS"})
"""Types for which the parent zone is authoritative at a delegated name (RFC 4035 section 2.4)."""


SHOWN = 8
"""Most values of a set in one message."""

LONGEST = 120
"""Characters of one value in a message."""


def show(record: RecordSet | None) -> str:
    """A record set as one short text for messages."""
    if record is None:
        return "absent"
    words = [f"TTL {record.ttl}"]
    if record.weight is not None:
        words.append(f"weight {record.weight}")
    if record.geo:
        words.append(f"for {record.geo}")
    values = ", ".join(value if len(value) <= LONGEST else f"{value[:LONGEST]}…" for value in record.values[:SHOWN])
    values = values or "values that cannot be read"
    if len(record.values) > SHOWN:
        values += f" and {len(record.values) - SHOWN} more values"
    return f"{'alias of ' if record.alias else ''}{values} ({', '.join(words)})"


def changed_sets(
    zone: str,
    records: Mapping[RecordKey, RecordSet],
    changes: Sequence[RecordChange],
    capabilities: DNSCapabilities = PLAIN,
) -> dict[RecordKey, RecordSet | None]:
    """The sets that must be written, by key; None means remove. Empty when the zone has converged.

    A set that equals `after` is not written, whatever `before` says: so repeating a change is harmless. A change with
    `before == after` only checks.

    Raises:
        Conflict: a set equals neither `before` nor `after` (`Gone` when it does not exist any more).
        Rejected: the change, or the zone after it, breaks a rule of DNS or exceeds the capabilities of the provider.
    """
    result: dict[RecordKey, RecordSet | None] = {}
    checked: set[RecordKey] = set()
    for change in changes:
        _check_change(zone, change, checked, capabilities)
        current = records.get(change.key)
        if current == change.after:
            continue
        if current != change.before:
            raise _conflict(change, current)
        result[change.key] = change.after
    _check_result(zone, records, result)
    return result


def parents(name: str, zone: str) -> list[str]:
    """The names above `name`, nearest first, up to and without the zone's own name."""
    names = []
    rest = name.partition(".")[2]
    while len(rest) > len(zone):
        names.append(rest)
        rest = rest.partition(".")[2]
    return names


def glue_of(change: RecordChange, zone: str) -> set[RecordKey]:
    """The addresses that a change of a delegation makes glue, or that were glue before it."""
    if change.key.type != "NS" or change.key.name == zone:
        return set()
    servers = {name for record in (change.before, change.after) if record is not None for name in record.values}
    return {RecordKey(name, kind) for name in servers if in_zone(name, change.key.name) for kind in GLUE}


def servers_of(changes: Iterable[RecordChange], records: Mapping[RecordKey, RecordSet]) -> frozenset[str]:
    """The name servers of all delegations after some changes, and of the zone itself."""
    after = {change.key: change.after for change in changes}
    sets = [record for key, record in records.items() if key.type == "NS" and key not in after]
    sets += [record for key, record in after.items() if key.type == "NS" and record is not None]
    return frozenset(name for record in sets for name in record.values)


def in_zone(name: str, zone: str) -> bool:
    """Whether an absolute, lower-case name is the zone's own name or lies below it."""
    return name == zone or name.endswith("." + zone)


def zone_name(text: str) -> str:
    """The canonical name of a zone. Raises `Rejected`."""
    try:
        return canonical.absolute(text)
    except ValueError as error:
        raise Rejected(f"zone {text!r}", str(error), "correct the name of the zone") from error


def by_name(changes: Sequence[RecordChange]) -> dict[str, list[RecordChange]]:
    """Changes by name, with their owner marks: each group stays in one request when a change needs several."""
    groups: dict[str, list[RecordChange]] = {}
    for change in changes:
        subject = marked_key(change.key, change.after or change.before)
        groups.setdefault(change.key.name if subject is None else subject.name, []).append(change)
    return groups


def _conflict(change: RecordChange, current: RecordSet | None) -> Conflict:
    kind = Gone if current is None else Conflict
    cause = f"was changed by another writer: expected {show(change.before)}, found {show(current)}"
    return kind(label(change.key), cause, "retried automatically")


def _check_change(zone: str, change: RecordChange, checked: set[RecordKey], capabilities: DNSCapabilities) -> None:
    target = label(change.key)
    if change.key in checked:
        raise Rejected(target, "is changed twice in one request", "change each record set once")
    checked.add(change.key)
    if not in_zone(change.key.name, zone):
        raise Rejected(target, f"is outside the zone {zone}", "use the zone that contains it")
    if change.key.type == "SOA":
        raise Rejected(
            target,
            "the SOA record belongs to the zone itself",
            "remove it from the manifest; the provider sets the serial",
        )
    if change.after is None:
        return
    if not change.after.values:
        raise Rejected(target, "a record set needs a value", "add a value, or remove the set")
    if len(set(change.after.values)) != len(change.after.values):
        raise Rejected(target, "a value is listed twice", "list each value once")
    check_set(change.key, change.after, zone, capabilities)
    if change.key.type == "CNAME" and len(change.after.values) > 1:
        raise Rejected(target, "a name can have only one CNAME", "publish addresses, or one name")


def _check_result(
    zone: str, records: Mapping[RecordKey, RecordSet], result: Mapping[RecordKey, RecordSet | None]
) -> None:
    """Check the zone after the change, at the names that get a new set. One pass over the zone."""
    top = RecordKey(zone, "NS")
    if top in result and result[top] is None:
        raise Rejected(label(top), "a zone needs name servers", "change the set instead of removing it")
    written = {key.name for key, after in result.items() if after is not None}
    if not written:
        return
    above = {parent for name in written for parent in parents(name, zone)}
    types: dict[str, set[str]] = {}
    servers: dict[str, tuple[str, ...]] = {}
    groups: dict[tuple[str, str], dict[RecordKey, RecordSet]] = {}
    for key, record in records.items():
        if (key.name in written or key.name in above) and key not in result:
            types.setdefault(key.name, set()).add(key.type)
            if key.type == "NS":
                servers[key.name] = record.values
            if key.name in written:
                groups.setdefault((key.name, key.type), {})[key] = record
    for key, after in result.items():
        if after is not None:
            types.setdefault(key.name, set()).add(key.type)
            if key.type == "NS":
                servers[key.name] = after.values
            groups.setdefault((key.name, key.type), {})[key] = after
    check_policies({group: groups[group] for group in {(key.name, key.type) for key, after in result.items() if after}})
    for key, after in result.items():
        if after is not None:
            _check_name(zone, key, types, servers)


def _check_name(
    zone: str, key: RecordKey, types: Mapping[str, set[str]], servers: Mapping[str, tuple[str, ...]]
) -> None:
    target = label(key)
    present = types[key.name]
    if key.type == "CNAME" and key.name == zone:
        raise Rejected(target, "a CNAME is not allowed at the top of a zone", "publish addresses there")
    others = sorted(present - BESIDE_CNAME)
    if "CNAME" in present and others:
        raise Rejected(
            target,
            f"a CNAME cannot share its name with other types: the name would have CNAME and {', '.join(others)}",
            "remove one of them, or use another name",
        )
    if key.type == "DS" and "NS" not in present:
        # BIND ignores such a DS silently.
        cause = "a DS belongs to a delegation, and this name has no NS records"
        raise Rejected(target, cause, "publish the NS records of the name as well")
    at_cut = key.type in AT_A_CUT or (key.type in GLUE and key.name in servers.get(key.name, ()))
    if key.name != zone and "NS" in present and not at_cut:
        raise Rejected(target, "the name is delegated by NS records", "publish it in the zone that it is delegated to")
    for parent in parents(key.name, zone):
        above = types.get(parent, set())
        if "DNAME" in above:
            raise Rejected(target, f"{parent} above it has a DNAME record", "use a name that is not below it")
        if "NS" in above and not (key.type in GLUE and key.name in servers.get(parent, ())):
            raise Rejected(
                target, f"{parent} above it has a NS record", "publish it in the zone that it is delegated to"
            )


def canonical_change(change: RecordChange) -> RecordChange:
    """A change in canonical spelling. Names without a final dot are absolute too: a manifest has no origin.

    Raises:
        Rejected: the name, the type or a value is invalid.
    """
    try:
        kind = canonical.type_name(change.key.type.upper())
        key = RecordKey(canonical.absolute(change.key.name), kind, change.key.set_id)
        before = _canonical_set(kind, change.before)
        # Most owner marks are only compared.
        after = before if change.after == change.before else _canonical_set(kind, change.after)
    except ValueError as error:
        raise Rejected(label(change.key), str(error), "correct the record") from error
    return RecordChange(key, before, after, change.owner)


def _canonical_set(kind: str, record: RecordSet | None) -> RecordSet | None:
    if record is None:
        return None
    if any("\n" in value or "\0" in value for value in record.values):
        raise ValueError("a value contains a line end or a NUL character")
    if record.alias:
        return record._replace(values=tuple(canonical.absolute(value) for value in record.values))
    values = tuple(sorted(canonical.text_value(kind, value) for value in record.values))
    return record if values == record.values else record._replace(values=values)
