"""RecordLists beside everything else that names records: what cannot stand together is refused before anything is written.

Called by `resolve.py` after `check_names.py`, which has the same rules for policies and single records. Lists are long: sets
of keys are compared as a whole, and a name is looked at by itself only where something at or above it may be in its way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from manifests.kinds import RecordList as Manifest
from manifests.kinds.validate import Declared, Path
from manifests.problems import Code
from manifests.resolve.name_conflicts import Named, published
from manifests.resolve.record_list import written
from manifests.resolve.references import Scope
from manifests.types.rdata import TYPES
from manifests.values.dns import Publish, Record, RecordList
from manifests.values.dns_names import within

_HOST = ("spec", "host")
_ALONE = "CNAME"
_GLUE = ("A", "AAAA")


def check_lists(scope: Scope, lists: Sequence[RecordList], others: Sequence[Named]) -> None:
    """Report names of lists that cannot stand beside other lists, policies and records."""
    if not lists:
        return
    check = _Check(scope, lists, others)
    for index, one in enumerate(lists):
        for other in lists[:index]:
            check.lists(one, other)
        check.zone(one)
        check.delegations(one)
    for single in others:
        check.single(single)
    check.loops()


def _types_at(record_list: RecordList, host: str) -> list[str]:
    return [kind for kind in TYPES if (host, kind, "") in record_list.sets]


class _Check:
    """The lists of one tree, with what the rules ask for again and again."""

    def __init__(self, scope: Scope, lists: Sequence[RecordList], others: Sequence[Named]) -> None:
        self._scope, self._lists, self._others = scope, lists, others
        self._declared = {one.key: one for kind in ("DNSPolicy", "Record", "RecordList") for one in scope.all(kind)}
        self._zones: dict[str, set[str]] = {}
        for any_one in (*lists, *others):
            self._zones.setdefault(any_one.provider, set()).add(any_one.zone)
        self._cuts = {
            (one.provider, one.zone, host): (one.key, values[1])
            for one in lists
            for (host, kind, _), values in one.sets.items()
            if kind == "NS"
        }
        for record in others:
            if isinstance(record, Record) and record.type == "NS" and record.host != record.zone:
                self._cuts[record.provider, record.zone, record.host] = record.key, record.values

    def lists(self, record_list: RecordList, other: RecordList) -> None:
        """A name and type belong to one list, and nothing of another list stands beside a CNAME."""
        if (record_list.provider, record_list.zone) != (other.provider, other.zone):
            return
        twice = record_list.sets.keys() & other.sets.keys()
        for host, kind, _ in sorted(twice):
            self._at(
                record_list, host, kind, Code.CONFLICT, f"{self._named(other)} already has it", "keep one of the two"
            )
        for first, second in ((record_list, other), (other, record_list)):
            for host, kind, _ in first.sets:
                if kind == _ALONE and (here := [at for at in _types_at(second, host) if at != _ALONE]):
                    message = f"{self._named(second)} has {', '.join(here)} there, and nothing stands beside a CNAME"
                    self._at(first, host, kind, Code.CONFLICT, message, "keep one of the two")

    def single(self, single: Named) -> None:
        """A policy or record beside the lists of its provider."""
        for one in self._lists:
            if one.provider != single.provider:
                continue
            for host, kind in published(single):
                here = _types_at(one, host)
                clash = here if kind in ("*", _ALONE) else [at for at in here if at in (kind, _ALONE)]
                if clash:
                    message = f"{single.key}: {self._named(one)} already has {', '.join(clash)} at {host}"
                    self._scope.report(self._declared[single.key], _HOST, Code.CONFLICT, message, "keep one of the two")
        for name in _above(single.host, single.zone):
            key, glue = self._cuts.get((single.provider, single.zone, name), ("", ()))
            is_glue = isinstance(single, Record) and single.type in _GLUE and single.host in glue
            if key.startswith("recordlist/") and not is_glue:
                message = f"{single.key}: {key} delegates {name}, so nobody would see {single.host} in {single.zone}"
                hint = "declare it in the delegated zone"
                self._scope.report(self._declared[single.key], _HOST, Code.CONFLICT, message, hint)

    def zone(self, record_list: RecordList) -> None:
        """A name belongs into the longest of the zones that it lies in."""
        deeper = [
            zone
            for zone in self._zones[record_list.provider]
            if len(zone) > len(record_list.zone) and within(zone, record_list.zone)
        ]
        for host, kind, _ in record_list.sets if deeper else ():
            inside = [zone for zone in deeper if within(host, zone)]
            if inside and not (kind == "NS" and host in inside):
                best = max(inside, key=len)
                message = f"{host} lies in the zone {best}, so nobody would see it in {record_list.zone}"
                self._at(record_list, host, kind, Code.OUTSIDE_ZONE, message, f"put it into a list of zone {best}")

    def delegations(self, record_list: RecordList) -> None:
        """Nothing of a zone is seen at or below a name that it delegates, except glue."""
        for host, kind, _ in record_list.sets if self._cuts else ():
            for name in _above(host, record_list.zone):
                key, glue = self._cuts.get((record_list.provider, record_list.zone, name), ("", ()))
                if not key or (kind == "NS" and host == name) or (kind in _GLUE and host in glue):
                    continue
                message = f"{key} delegates {name}, so nobody would see it in {record_list.zone}"
                self._at(record_list, host, kind, Code.CONFLICT, message, "declare it in the delegated zone")
                break

    def loops(self) -> None:
        """Names that lead back to themselves have no answer. Each name is followed once."""
        leads: dict[str, list[str]] = {}
        owners: dict[str, RecordList] = {}
        for one in self._lists:
            for (host, kind, _), value in one.sets.items():
                if kind == _ALONE:
                    leads.setdefault(host, []).append(value[1][0])
                    owners[host] = one
        for other in self._others:
            if isinstance(other, Record):
                leads.setdefault(other.host, []).extend(other.values if other.type == _ALONE else ())
                continue
            names = (target.hostname for target in other.targets if target.publish is Publish.HOSTNAME)
            leads.setdefault(other.host, []).extend(names)
        for path in _circles(leads):
            first = next((host for host in path if host in owners), None)
            if first is not None:  # otherwise it is reported with the policies and records
                message = f"names point at each other in a circle: {' -> '.join([*path, path[0]])}"
                self._at(owners[first], first, _ALONE, Code.CNAME_LOOP, message, "let one of them have addresses")

    def _named(self, record_list: RecordList) -> str:
        return f"{record_list.key} at {record_list.where}"

    def _at(self, record_list: RecordList, host: str, kind: str, code: Code, message: str, hint: str) -> None:
        declared = self._declared[record_list.key]
        path: Path = (*_path(declared, host), kind)
        self._scope.report(declared, path, code, f"{record_list.key}: {host} {kind}: {message}", hint, key=True)


def _path(declared: Declared, host: str) -> Path:
    manifest = declared.manifest
    name = written(manifest.spec.names, host) if isinstance(manifest, Manifest) else host
    return ("spec", "names", name)


def _above(name: str, zone: str) -> Iterable[str]:
    """The name itself and those above it, below the zone's own."""
    while within(name, zone) and name != zone:
        yield name
        name = name.partition(".")[2]


def _circles(leads: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """The circles of a graph: one for each way back to a name that is being followed."""
    done: set[str] = set()
    for start in sorted(leads):
        if start in done:
            continue
        path: dict[str, Iterator[str]] = {start: iter(leads[start])}
        while path:
            name = next(reversed(path))
            following = next(path[name], None)
            if following is None:
                done.add(name)
                del path[name]
            elif following in path:
                names = list(path)
                yield names[names.index(following) :]
            elif following in leads and following not in done:
                path[following] = iter(leads[following])
