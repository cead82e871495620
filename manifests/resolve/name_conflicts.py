"""Conflicts between the names of all policies and records of a tree, reported before any action.

Called by `resolver.py`; `list_conflicts.py` has the same rules for lists. The rules are those of DNS: no other record
beside a CNAME, no loops of names, no records below a delegation.
"""

from collections.abc import Iterable, Mapping, Sequence

from manifests.kinds.validate import Declared
from manifests.problems import Code
from manifests.resolve.references import Scope
from manifests.values.dns import DNSPolicy, Publish, Record, Routing
from manifests.values.dns_names import balancer_name, place_name, target_name, within

Named = DNSPolicy | Record

_CNAME = "CNAME"
_HOST = ("spec", "host")

GLUE = ("A", "AAAA")
"""Types of records that a zone may have for the name servers of a delegated zone."""

AT_A_CUT = ("NS", "DS")
"""Types that a zone has at a name that it delegates (RFC 4035 section 2.4)."""


def check_names(scope: Scope, policies: Sequence[DNSPolicy], records: Sequence[Record]) -> None:
    """Report names that conflict with each other."""
    declared = {item.key: item for kind in ("DNSPolicy", "Record") for item in scope.all(kind)}
    everything: list[Named] = [*policies, *records]
    _zones(scope, declared, everything)
    _delegations(scope, declared, everything, records)
    _shared(scope, declared, everything)
    _loops(scope, declared, everything)


def published(named: Named) -> Iterable[tuple[str, str]]:
    """(name, type) of all records that a document may publish; type `*` = addresses or a CNAME, depending on health and provider."""
    if isinstance(named, Record):
        return [(named.host, named.type)]
    names = named.routing is not Routing.SIMPLE or any(target.publish is Publish.HOSTNAME for target in named.targets)
    # The apex of a zone has other records too, so the host publishes addresses there and never a CNAME.
    host = [(named.host, "*")] if names and named.host != named.zone else [(named.host, "A"), (named.host, "AAAA")]
    if named.routing is Routing.SIMPLE:
        return host
    places = {place_name(named.host, target.geo) for target in named.targets}
    targets = {
        target_name(named.host, target.name) for target in named.targets if target.publish is not Publish.HOSTNAME
    }
    return [*host, *((name, "*") for name in sorted({balancer_name(named.host), *places, *targets}))]


def _shared(scope: Scope, declared: Mapping[str, Declared], everything: Sequence[Named]) -> None:
    """A name and type belong to one document, and a CNAME (or a name that may become one) has no other record beside it."""
    at: dict[tuple[str, str], dict[str, Named]] = {}
    reported: set[tuple[str, str, str]] = set()
    for named in everything:
        for name, kind in published(named):
            here = at.setdefault((named.provider, name), {})
            conflict = kind if kind in here else "*" if "*" in here else ""
            if not conflict and here and kind in ("*", _CNAME):
                conflict = next(iter(sorted(here)))
            if not conflict:
                conflict = _CNAME
            other = here.get(conflict)
            if other is not None and other.key != named.key and (named.key, other.key, name) not in reported:
                reported.add((named.key, other.key, name))
                _report_shared(scope, declared[named.key], declared[other.key], named, name, kind)
            here.setdefault(kind, named)


def _report_shared(scope: Scope, at: Declared, other: Declared, named: Named, name: str, kind: str) -> None:
    if isinstance(named, DNSPolicy) and other.kind == "DNSPolicy" and name == named.host:
        hint = "put all targets of the name into one policy"
    else:
        hint = "keep one of the two, or use another host: a CNAME or the name of a policy excludes other records"
    published_name = name if kind == "*" else f"{name} {kind}"
    message = f"{at.key}: {other.key} at {other.document.where} already publishes {published_name}"
    if other.kind == "Record" and kind == "*":
        message = f"{at.key}: {other.key} at {other.document.where} already has records at {name}"
    scope.report(at, _HOST, Code.CONFLICT, message, hint)


def _zones(scope: Scope, declared: Mapping[str, Declared], everything: Sequence[Named]) -> None:
    """A name belongs to the longest of the zones that contain it."""
    zones: dict[str, set[str]] = {}
    for named in everything:
        zones.setdefault(named.provider, set()).add(named.zone)
    servers = {
        (named.provider, named.zone, named.host): named.values
        for named in everything
        if isinstance(named, Record) and named.type == "NS"
    }
    for named in everything:
        longer = [zone for zone in zones[named.provider] if len(zone) > len(named.zone) and within(named.host, zone)]
        of_cut = isinstance(named, Record) and any(
            belongs_to_cut(named.type, named.host, zone, servers.get((named.provider, named.zone, zone), ()))
            for zone in longer
        )
        if longer and not of_cut:
            best = max(longer, key=len)
            message = f"{named.key}: {named.host} is in zone {best}; resolvers would not see it in {named.zone}"
            scope.report(declared[named.key], ("spec", "zone"), Code.OUTSIDE_ZONE, message, f"write zone: {best}")


def _delegations(
    scope: Scope, declared: Mapping[str, Declared], everything: Sequence[Named], records: Sequence[Record]
) -> None:
    """Resolvers see no records of a zone at or below a name that it delegates, except glue."""
    cuts = {
        (record.provider, record.zone, record.host): record
        for record in records
        if record.type == "NS" and record.host != record.zone
    }
    if not cuts:
        return
    for named in everything:
        keys = ((named.provider, named.zone, name) for name in names_above(named.host, named.zone))
        cut = next((cuts[key] for key in keys if key in cuts), None)
        if cut is None or cut.key == named.key:
            continue
        if isinstance(named, Record) and belongs_to_cut(named.type, named.host, cut.host, cut.values):
            continue
        where = declared[cut.key].document.where
        message = f"{named.key}: {cut.key} at {where} delegates {cut.host}; resolvers would not see {named.host} in {named.zone}"
        scope.report(declared[named.key], _HOST, Code.CONFLICT, message, "declare it in the delegated zone")


def belongs_to_cut(kind: str, host: str, cut: str, servers: Sequence[str]) -> bool:
    """Whether a record belongs to the delegation of `cut` to `servers`: its NS and DS, and addresses of its servers (glue).

    Resolvers cannot find name servers below the cut without their addresses (RFC 1034 section 4.2.1).
    """
    return (kind in AT_A_CUT and host == cut) or (kind in GLUE and host in servers)


def names_above(name: str, zone: str) -> Iterable[str]:
    """The name itself and the names above it that are below the apex of the zone."""
    while within(name, zone) and name != zone:
        yield name
        name = name.partition(".")[2]


def _loops(scope: Scope, declared: Mapping[str, Declared], everything: Sequence[Named]) -> None:
    """Names that lead back to themselves have no answer."""
    pointers: dict[str, list[tuple[str, Named]]] = {}
    for named in everything:
        if isinstance(named, Record):
            if named.type == _CNAME:
                pointers.setdefault(named.host, []).append((named.values[0], named))
            continue
        for target in named.targets:
            if target.publish is Publish.HOSTNAME:
                pointers.setdefault(named.host, []).append((target.hostname, named))
    reported: set[frozenset[str]] = set()
    for start in sorted(pointers):
        path = _loop(start, pointers)
        if path and frozenset(path) not in reported:
            reported.add(frozenset(path))
            owner = pointers[start][0][1]
            message = f"{owner.key}: names point at each other in a loop: {' -> '.join(path)}"
            scope.report(declared[owner.key], _HOST, Code.CNAME_LOOP, message, "give one of them addresses")


def _loop(start: str, pointers: Mapping[str, Sequence[tuple[str, Named]]]) -> list[str]:
    """The path from a name back to itself; empty when there is none. Each name is visited once."""
    came_from: dict[str, str] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        for following, _ in pointers.get(name, ()):
            if following == start:
                path = [name]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return [*reversed(path), start]
            if following not in came_from:
                came_from[following] = name
                waiting.append(following)
    return []
