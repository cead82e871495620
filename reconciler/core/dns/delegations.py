"""What of a delegation waits for another part of it: NS, DS and the addresses of its servers are separate changes. Pure.

A DS is allowed at delegated names only, and below a delegated name only the addresses that the delegation names (RFC 1034 section
4.2.1). A server or provider refuses anything else, so these changes have an order. `dns/write_order` calls it for single records;
in a RecordList the parts are one change (`dns/list_order`).
"""

from collections.abc import Iterable, Mapping, Sequence

from providers.facts import RecordKey, ZoneFact
from reconciler.core.dns.records import ADDRESS_TYPES, RecordDiff

LISTS = "recordlist/"
"""The keys of lists begin so: their own changes of a delegation are one step."""

Cuts = Mapping[str, Mapping[str, RecordDiff]]
"""The changes of NS and DS by delegated name, and by type."""


def changed(diffs: Iterable[RecordDiff], zone: str) -> Cuts:
    """The changes of delegations among all changes of a zone; usually there are none."""
    cuts: dict[str, dict[str, RecordDiff]] = {}
    for diff in diffs:
        if diff.key.type in ("NS", "DS") and diff.key.name != zone:
            cuts.setdefault(diff.key.name, {})[diff.key.type] = diff
    return cuts


def waits(group: Sequence[RecordDiff], cuts: Cuts, zone: ZoneFact) -> str:
    """Why these changes wait for another change of their delegation; empty when they do not, or are one step with it."""
    for diff in group:
        other, why = _need(diff, cuts, zone)
        if other is None or other in group:
            continue
        if other.object != diff.object or not diff.object.startswith(LISTS):
            return why
    return ""


def _need(diff: RecordDiff, cuts: Cuts, zone: ZoneFact) -> tuple[RecordDiff | None, str]:
    """The change that must come first, and why; (None, "") without one."""
    name, kind = diff.key.name, diff.key.type
    servers, signer = cuts.get(name, {}).get("NS"), cuts.get(name, {}).get("DS")
    if kind == "DS" and diff.after is not None and servers is not None and servers.after is not None:
        if servers.key not in zone.records:
            return servers, f"{name} NS is not published yet, and a DS belongs to a delegation"
    elif kind == "NS" and diff.after is None and signer is not None and signer.after is None:
        if signer.key in zone.records:
            return signer, f"{name} DS still belongs to the delegation"
    elif kind in ADDRESS_TYPES:
        return _need_of_glue(diff, cuts, zone)
    return None, ""


def _need_of_glue(diff: RecordDiff, cuts: Cuts, zone: ZoneFact) -> tuple[RecordDiff | None, str]:
    name = diff.key.name
    for cut in _at_and_above(name, zone.zone):
        change, present = cuts.get(cut, {}).get("NS"), zone.records.get(RecordKey(cut, "NS"))
        if change is None or present is None:
            continue
        names_it = name in present.values
        will = change.after is not None and name in change.after.values
        if diff.after is not None and diff.before is None and will and not names_it:
            return (
                change,
                f"{cut} NS does not name {name} yet, and below a delegation only addresses of its servers are allowed",
            )
        if diff.after is None and names_it and not will:
            return change, f"{cut} NS still names {name}"
    return None, ""


def _at_and_above(name: str, zone: str) -> Iterable[str]:
    while len(name) > len(zone):
        yield name
        name = name.partition(".")[2]
