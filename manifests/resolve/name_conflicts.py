"""Names of all documents together: what cannot stand together in one zone is refused before anything is written.

Called by `resolve.py` with the policies and records that it made. Each rule is one of DNS itself: nothing stands beside a
CNAME, names that point at each other in a circle have no answer, what is delegated is answered elsewhere.
"""

from collections.abc import Iterable, Mapping, Sequence

from manifests.kinds.validate import Declared
from manifests.problems import Code
from manifests.resolve.references import Scope
from manifests.values.dns import DNSPolicy, Publish, Record, Routing
from manifests.values.dns_names import balancer_name, place_name, target_name, within

Named = DNSPolicy | Record

_ALONE = ("CNAME",)
_HOST = ("spec", "host")


def check_names(scope: Scope, policies: Sequence[DNSPolicy], records: Sequence[Record]) -> None:
    """Report names that cannot stand together."""
    declared = {one.key: one for kind in ("DNSPolicy", "Record") for one in scope.all(kind)}
    everything: list[Named] = [*policies, *records]
    _zones(scope, declared, everything)
    _delegations(scope, declared, everything, records)
    _shared(scope, declared, everything)
    _loops(scope, declared, everything)


def published(named: Named) -> Iterable[tuple[str, str]]:
    """(name, type) of everything a document may publish; type `*` = addresses or a CNAME, as its health and provider go."""
    if isinstance(named, Record):
        return [(named.host, named.type)]
    names = named.routing is not Routing.SIMPLE or any(target.publish is Publish.HOSTNAME for target in named.targets)
    # At the top of a zone other records stand as well, so there it is addresses, however they come about.
    host = [(named.host, "*")] if names and named.host != named.zone else [(named.host, "A"), (named.host, "AAAA")]
    if named.routing is Routing.SIMPLE:
        return host
    places = {place_name(named.host, target.geo) for target in named.targets}
    targets = {
        target_name(named.host, target.name) for target in named.targets if target.publish is not Publish.HOSTNAME
    }
    return [*host, *((name, "*") for name in sorted({balancer_name(named.host), *places, *targets}))]


def _shared(scope: Scope, declared: Mapping[str, Declared], everything: Sequence[Named]) -> None:
    """A name and type belong to one document, and a CNAME (or what may become one) stands alone at its name."""
    at: dict[tuple[str, str], dict[str, Named]] = {}
    reported: set[tuple[str, str, str]] = set()
    for one in everything:
        for name, kind in published(one):
            here = at.setdefault((one.provider, name), {})
            clash = kind if kind in here else "*" if "*" in here else ""
            if not clash and here and (kind == "*" or kind in _ALONE):
                clash = next(iter(sorted(here)))
            if not clash:
                clash = next((other for other in here if other in _ALONE), "")
            other = here.get(clash)
            if other is not None and other.key != one.key and (one.key, other.key, name) not in reported:
                reported.add((one.key, other.key, name))
                _refuse_shared(scope, declared[one.key], declared[other.key], one, name, kind)
            here.setdefault(kind, one)


def _refuse_shared(scope: Scope, at: Declared, other: Declared, named: Named, name: str, kind: str) -> None:
    if isinstance(named, DNSPolicy) and other.kind == "DNSPolicy" and name == named.host:
        hint = "put all targets of the name into one policy"
    else:
        hint = "nothing stands beside a CNAME or a policy's name: keep one of the two, or use another host"
    what = name if kind == "*" else f"{name} {kind}"
    message = f"{at.key}: {other.key} at {other.document.where} already publishes {what}"
    if other.kind == "Record" and kind == "*":
        message = f"{at.key}: {other.key} at {other.document.where} already has records at {name}"
    scope.report(at, _HOST, Code.CONFLICT, message, hint)


def _zones(scope: Scope, declared: Mapping[str, Declared], everything: Sequence[Named]) -> None:
    """A name belongs into the longest of the zones that it lies in."""
    zones: dict[str, set[str]] = {}
    for one in everything:
        zones.setdefault(one.provider, set()).add(one.zone)
    for one in everything:
        longer = [zone for zone in zones[one.provider] if len(zone) > len(one.zone) and within(one.host, zone)]
        is_cut = isinstance(one, Record) and one.type in ("NS", "DS") and one.host in longer
        if longer and not is_cut:
            best = max(longer, key=len)
            message = f"{one.key}: {one.host} lies in the zone {best}, so nobody would see it in {one.zone}"
            scope.report(declared[one.key], ("spec", "zone"), Code.OUTSIDE_ZONE, message, f"write zone: {best}")


def _delegations(
    scope: Scope, declared: Mapping[str, Declared], everything: Sequence[Named], records: Sequence[Record]
) -> None:
    """Nothing of a zone is seen at or below a name that it delegates, except glue."""
    cuts = {
        (record.provider, record.zone, record.host): record
        for record in records
        if record.type == "NS" and record.host != record.zone
    }
    if not cuts:
        return
    for one in everything:
        cut = next(
            (
                found
                for name in _above(one.host, one.zone)
                if (found := cuts.get((one.provider, one.zone, name))) is not None
            ),
            None,
        )
        if cut is None or cut.key == one.key:
            continue
        if isinstance(one, Record) and (one.type in ("A", "AAAA") and one.host in cut.values):
            continue
        where = declared[cut.key].document.where
        message = f"{one.key}: {cut.key} at {where} delegates {cut.host}, so nobody would see {one.host} in {one.zone}"
        scope.report(declared[one.key], _HOST, Code.CONFLICT, message, "declare it in the delegated zone")


def _above(name: str, zone: str) -> Iterable[str]:
    while within(name, zone) and name != zone:
        yield name
        name = name.partition(".")[2]


def _loops(scope: Scope, declared: Mapping[str, Declared], everything: Sequence[Named]) -> None:
    """Names that lead back to themselves have no answer."""
    leads: dict[str, list[tuple[str, Named]]] = {}
    for one in everything:
        if isinstance(one, Record):
            if one.type in _ALONE:
                leads.setdefault(one.host, []).append((one.values[0], one))
            continue
        for target in one.targets:
            if target.publish is Publish.HOSTNAME:
                leads.setdefault(one.host, []).append((target.hostname, one))
    reported: set[frozenset[str]] = set()
    for start in sorted(leads):
        path = _circle(start, leads)
        if path and frozenset(path) not in reported:
            reported.add(frozenset(path))
            owner = leads[start][0][1]
            message = f"{owner.key}: names point at each other in a circle: {' -> '.join(path)}"
            scope.report(declared[owner.key], _HOST, Code.CNAME_LOOP, message, "let one of them have addresses")


def _circle(start: str, leads: Mapping[str, Sequence[tuple[str, Named]]]) -> list[str]:
    """The path from a name back to itself; empty when there is none. Each name is visited once."""
    came_from: dict[str, str] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        for upcoming, _ in leads.get(name, ()):
            if upcoming == start:
                path = [name]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return [*reversed(path), start]
            if upcoming not in came_from:
                came_from[upcoming] = name
                waiting.append(upcoming)
    return []
