"""What of a RecordList must be written together, and what waits for other sets of the list while it is written in parts.

In one request, a server sees an MX and the address of its host together, and the removal of an address together with its
replacement. In parts, the order matters. `dns/list_batches` calls it.
"""

from collections.abc import Iterable, Mapping, Sequence

from providers.facts import ZoneFact
from reconciler.core.dns.records import ADDRESS_TYPES, RecordDiff

POINTING = frozenset({"CNAME", "DNAME", "HTTPS", "MX", "NAPTR", "NS", "SRV", "SVCB"})
"""Types whose values name other names. A server may refuse one whose name in the same zone has no address."""

Group = Sequence[RecordDiff]


def together(groups: Iterable[Group]) -> list[Group]:
    """The groups, those of one name as one where a set of that name is deleted: its replacement might be refused.

    A delegation, its DS and the addresses of its servers below it are one group: such an address is allowed only while the
    delegation names it.
    """
    by_name: dict[str, list[Group]] = {}
    for group in groups:
        by_name.setdefault(group[0].key.name, []).append(group)
    joined: list[Group] = []
    for of_name in by_name.values():
        if len(of_name) > 1 and any(diff.after is None for group in of_name for diff in group):
            joined.append([diff for group in of_name for diff in group])
        else:
            joined += of_name
    return _with_glue(joined)


def _with_glue(groups: list[Group]) -> list[Group]:
    """The groups, those of a delegation and of the addresses of its servers below it as one."""
    delegations = [diff for group in groups for diff in group if diff.key.type == "NS"]
    if not delegations:
        return groups
    cuts: dict[str, str] = {}
    for diff in delegations:
        cuts[diff.key.name] = diff.key.name
        for record in (diff.before, diff.after):
            for server in record.values if record is not None else ():
                if server.endswith("." + diff.key.name):
                    cuts[server] = diff.key.name
    kinds = (*ADDRESS_TYPES, "NS", "DS")
    merged: dict[str, list[RecordDiff]] = {}
    alone: list[Group] = []
    for group in groups:
        cut = next((cuts[diff.key.name] for diff in group if diff.key.name in cuts and diff.key.type in kinds), None)
        if cut is None:
            alone.append(group)
        else:
            merged.setdefault(cut, []).extend(group)
    return alone + list(merged.values())


def ready(groups: list[Group], zone: ZoneFact) -> tuple[list[Group], list[tuple[Group, RecordDiff]]]:
    """The groups that may be written now, and those that wait, each with the change that it waits for.

    A set waits for the address of a name that it points at, and the removal of an address for the change of what points at its
    name. Groups that wait for one another become one group.
    """
    needs = _needs(groups, zone)
    reached = set(range(len(groups))) - needs.keys()
    free = [groups[index] for index in sorted(reached)]
    following = reached
    while following:
        following = {index for index, wanted in needs.items() if index not in reached and wanted.keys() <= reached}
        reached |= following
    circle = [diff for index, group in enumerate(groups) if index not in reached for diff in group]
    waiting = [
        (groups[index], next(iter(wanted.values()))) for index, wanted in sorted(needs.items()) if index in reached
    ]
    return free + ([circle] if circle else []), waiting


def why(group: Group, need: RecordDiff) -> str:
    """Why a group waits for this change."""
    name, kind = group[0].key[:2]
    other = f"{need.key.name} {need.key.type}"
    if need.key.type in ADDRESS_TYPES and need.after is not None:
        return f"{other} is not published yet, so {name} {kind} cannot point at it"
    return f"{other} still points at {name}, so {name} {kind} stays"


def _needs(groups: list[Group], zone: ZoneFact) -> Mapping[int, dict[int, RecordDiff]]:
    """The groups that wait, by index, with the changes of other groups that they wait for, by their index."""
    new: dict[str, tuple[int, RecordDiff]] = {}
    gone: dict[str, int] = {}
    for index, group in enumerate(groups):
        for diff in group:
            name, kind = diff.key[:2]
            if kind in ADDRESS_TYPES and diff.after is None:
                gone[name] = index
            elif kind in ADDRESS_TYPES and not any((name, other, "") in zone.records for other in ADDRESS_TYPES):
                new[name] = index, diff
    needs: dict[int, dict[int, RecordDiff]] = {}
    for index, group in enumerate(groups):
        for diff in group:
            if diff.key.type not in POINTING:
                continue
            for name in _names(diff.after.values if diff.after is not None else ()):
                if name in new and new[name][0] != index:
                    needs.setdefault(index, {})[new[name][0]] = new[name][1]
            for name in _names(diff.before.values if diff.before is not None else ()):
                if name in gone and gone[name] != index:
                    needs.setdefault(gone[name], {})[index] = diff
    return needs


def _names(values: Iterable[str]) -> list[str]:
    """The absolute names in canonical values."""
    return sorted({word for value in values for word in value.split() if word.endswith(".")})
