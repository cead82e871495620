"""Conflicts between RecordLists and all other records of a tree, reported before any action.

Called by `resolver.py` after `name_conflicts.py`, which has the same rules for policies and single records. Lists are long:
sets of keys are compared as a whole, and single names are checked only where a zone or delegation below the zone exists.
"""

from collections.abc import Iterator, Mapping, Sequence

from manifests.kinds import RecordList as Manifest
from manifests.kinds.validate import Declared, Path
from manifests.problems import Code
from manifests.resolve.name_conflicts import Named, belongs_to_cut, names_above, published
from manifests.resolve.record_list import written
from manifests.resolve.references import Scope
from manifests.values.dns import Publish, Record, RecordList
from manifests.values.dns_names import within

_HOST = ("spec", "host")
_CNAME = "CNAME"


def check_lists(scope: Scope, lists: Sequence[RecordList], others: Sequence[Named]) -> None:
    """Report names of lists that conflict with other lists, policies and records."""
    if not lists:
        return
    check = _Check(scope, lists, others)
    for index, listed in enumerate(lists):
        for other in lists[:index]:
            check.lists(listed, other)
        check.zone(listed)
        check.delegations(listed)
    for single in others:
        check.single(single)
    check.loops()


class _Check:
    """The lists of one tree, with the zones and delegations that the rules need."""

    def __init__(self, scope: Scope, lists: Sequence[RecordList], others: Sequence[Named]) -> None:
        self._scope, self._lists, self._others = scope, lists, others
        self._declared = {item.key: item for kind in ("DNSPolicy", "Record", "RecordList") for item in scope.all(kind)}
        self._types = {value.key: sorted({kind for _, kind, _ in value.sets}) for value in lists}
        self._zones: dict[str, set[str]] = {}
        for value in (*lists, *others):
            self._zones.setdefault(value.provider, set()).add(value.zone)
        self._cuts = {
            (listed.provider, listed.zone, host): (listed.key, values[1])
            for listed in lists
            for (host, kind, _), values in listed.sets.items()
            if kind == "NS"
        }
        for record in others:
            if isinstance(record, Record) and record.type == "NS" and record.host != record.zone:
                self._cuts[record.provider, record.zone, record.host] = record.key, record.values

    def _types_at(self, record_list: RecordList, host: str) -> list[str]:
        return [kind for kind in self._types[record_list.key] if (host, kind, "") in record_list.sets]

    def lists(self, record_list: RecordList, other: RecordList) -> None:
        """A name and type belong to one list, and a CNAME excludes records of other lists."""
        if (record_list.provider, record_list.zone) != (other.provider, other.zone):
            return
        twice = record_list.sets.keys() & other.sets.keys()
        for host, kind, _ in sorted(twice):
            self._at(
                record_list, host, kind, Code.CONFLICT, f"{self._named(other)} already has it", "keep one of the two"
            )
        for first, second in ((record_list, other), (other, record_list)):
            for host, kind, _ in first.sets:
                if kind == _CNAME and (here := [at for at in self._types_at(second, host) if at != _CNAME]):
                    message = f"{self._named(second)} has {', '.join(here)} at the same name, and a CNAME excludes other records"
                    self._at(first, host, kind, Code.CONFLICT, message, "keep one of the two")

    def single(self, single: Named) -> None:
        """A policy or record against the lists of its provider."""
        for listed in self._lists:
            if listed.provider != single.provider:
                continue
            for host, kind in published(single):
                here = self._types_at(listed, host)
                conflicting = here if kind in ("*", _CNAME) else [at for at in here if at in (kind, _CNAME)]
                if conflicting:
                    message = f"{single.key}: {self._named(listed)} already has {', '.join(conflicting)} at {host}"
                    self._scope.report(self._declared[single.key], _HOST, Code.CONFLICT, message, "keep one of the two")
        for name in names_above(single.host, single.zone):
            key, glue = self._cuts.get((single.provider, single.zone, name), ("", ()))
            of_cut = isinstance(single, Record) and belongs_to_cut(single.type, single.host, name, glue)
            if key.startswith("recordlist/") and not of_cut:
                message = (
                    f"{single.key}: {key} delegates {name}; resolvers would not see {single.host} in {single.zone}"
                )
                hint = "declare it in the delegated zone"
                self._scope.report(self._declared[single.key], _HOST, Code.CONFLICT, message, hint)

    def zone(self, record_list: RecordList) -> None:
        """A name belongs to the longest of the zones that contain it."""
        deeper = [
            zone
            for zone in self._zones[record_list.provider]
            if len(zone) > len(record_list.zone) and within(zone, record_list.zone)
        ]
        for host, kind, _ in record_list.sets if deeper else ():
            inside = [zone for zone in deeper if within(host, zone)]
            cuts = {
                zone: self._cuts.get((record_list.provider, record_list.zone, zone), ("", ()))[1] for zone in inside
            }
            if inside and not any(belongs_to_cut(kind, host, zone, servers) for zone, servers in cuts.items()):
                best = max(inside, key=len)
                message = f"{host} is in zone {best}; resolvers would not see it in {record_list.zone}"
                self._at(record_list, host, kind, Code.OUTSIDE_ZONE, message, f"move it to a list of zone {best}")

    def delegations(self, record_list: RecordList) -> None:
        """Resolvers see no records of a zone at or below a name that it delegates, except glue."""
        for host, kind, _ in record_list.sets if self._cuts else ():
            for name in names_above(host, record_list.zone):
                key, glue = self._cuts.get((record_list.provider, record_list.zone, name), ("", ()))
                if not key or belongs_to_cut(kind, host, name, glue):
                    continue
                message = f"{key} delegates {name}; resolvers would not see it in {record_list.zone}"
                self._at(record_list, host, kind, Code.CONFLICT, message, "declare it in the delegated zone")
                break

    def loops(self) -> None:
        """Names that lead back to themselves have no answer. Each name is followed once."""
        pointers: dict[str, list[str]] = {}
        owners: dict[str, RecordList] = {}
        for listed in self._lists:
            for (host, kind, _), value in listed.sets.items():
                if kind == _CNAME:
                    pointers.setdefault(host, []).append(value[1][0])
                    owners[host] = listed
        for other in self._others:
            if isinstance(other, Record):
                pointers.setdefault(other.host, []).extend(other.values if other.type == _CNAME else ())
                continue
            names = (target.hostname for target in other.targets if target.publish is Publish.HOSTNAME)
            pointers.setdefault(other.host, []).extend(names)
        for path in _loops(pointers):
            first = next((host for host in path if host in owners), None)
            if first is not None:  # `name_conflicts.py` reports loops of policies and records
                message = f"names point at each other in a loop: {' -> '.join([*path, path[0]])}"
                self._at(owners[first], first, _CNAME, Code.CNAME_LOOP, message, "give one of them addresses")

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


def _loops(pointers: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """The loops of a graph: one for each pointer back to a name on the current path."""
    done: set[str] = set()
    for start in sorted(pointers):
        if start in done:
            continue
        path: dict[str, Iterator[str]] = {start: iter(pointers[start])}
        while path:
            name = next(reversed(path))
            following = next(path[name], None)
            if following is None:
                done.add(name)
                del path[name]
            elif following in path:
                names = list(path)
                yield names[names.index(following) :]
            elif following in pointers and following not in done:
                path[following] = iter(pointers[following])
