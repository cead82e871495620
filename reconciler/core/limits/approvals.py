"""Approvals: which held changes an operator has approved, item by item, and the hash with which the others can be approved.

An item is one change that needs approval: one container, one pool member, or one record set with its exact values before and after.
An approval covers the items that had its hash, so also any part of them that is left, in every zone and over every pass, for `LASTS`.
An item alone can be approved too: then it is the hash. Another value or another set is another item. An approval of a change of a class
of the Guard is used once: it is over when that change is done, or not wanted any more. `decide` calls `resolve` once; `prune_guard`, `approval_classes` and `dns/publish` ask the result.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

from manifests.values.desired import SECOND, Desired
from providers.facts import ContainerFact, Endpoint, fingerprint
from reconciler.core.model.approval import Approval
from reconciler.core.model.instant import FOREVER, Now, due, elapsed, instant
from reconciler.core.model.ledger import Ledger

LASTS = 24 * 3600 * SECOND
"""How long an approval counts, and how long a hash that was shown can be approved (ns)."""

SHOWN = 16
"""Most hashes that are remembered because they were shown; the oldest go first."""

APPROVED = 200
"""Most approvals that count at a time; the oldest go first. Far above what operators give in a day."""

ITEMS = 50_000
"""Most items that are remembered for hashes that were only shown. A larger hash can be approved while it is shown."""


class Approvals(NamedTuple):
    """The answer for one decision.

    `hash` covers all items that need approval and have none; empty without such. `covered` are the approved items. On the same facts
    the answer holds until the steady instant `until`. `unused` is a hash that an operator approved and that nothing held ever had.
    """

    hash: str
    covered: frozenset[str]
    until: int
    unused: str = ""


def item(*parts: object) -> str:
    """The digest of one change that needs approval."""
    return blake2b("\x00".join(map(str, parts)).encode(), digest_size=8).hexdigest()


def container(fact: ContainerFact | None) -> str:
    """The item of the removal of a container; empty without one."""
    return "" if fact is None else item("container", fact.node, fact.id)


def member(provider: str, pool: str, endpoint: Endpoint) -> str:
    """The item of the removal of a pool member."""
    return item("member", provider, pool, *endpoint)


def command(desired: Desired, approvals: Approvals) -> str:
    """The command line that approves everything that needs it now."""
    return f"{desired.apply_command} --approve {approvals.hash}"


def resolve(
    ledger: Ledger, needed: Collection[str], now: Now, classified: Collection[str] = (), *, complete: bool = False
) -> tuple[Ledger, Approvals]:
    """Apply the approvals to the items that need one; the ledger remembers the hash of the rest.

    Args:
        ledger: has the approvals that operators gave, and the hashes that earlier decisions showed.
        needed: the items of all changes that need approval now, approved or not.
        now: this instant.
        classified: those of the needed items that are changes of a class of the Guard: an approval of one is used once.
        complete: everything can be read, so a change that is not needed any more is done, or not wanted.
    """
    if not needed and not ledger.approvals:
        return ledger, Approvals("", frozenset(), FOREVER)
    rows = {key: row for key, row in ledger.approvals.items() if elapsed(row.at, now) < LASTS}
    for name in [key for key, row in rows.items() if row.approved and row.items is None and key in needed]:
        rows[name] = rows[name]._replace(items=(name,))
    rows = _unused(rows, frozenset(classified), complete)
    given = [row for row in rows.values() if row.approved and row.items is not None]
    covered = frozenset(name for row in given for name in row.items or ()).intersection(needed)
    rest = tuple(sorted(set(needed) - covered))
    shown = fingerprint(*rest) if rest else ""
    row = rows.get(shown)
    if row is not None and row.approved and row.items is None:
        row = rows[shown] = row._replace(items=rest)
        given.append(row)
        covered, shown = covered | frozenset(rest), ""
    elif shown and row is None and len(rest) <= ITEMS:
        rows[shown] = Approval(instant(now), rest, approved=False)
    ends = [due(row.at, LASTS, now) for row in given if not covered.isdisjoint(row.items or ())]
    unused = next((key for key, row in sorted(rows.items()) if row.approved and row.items is None), "")
    ends += [due(rows[unused].at, LASTS, now)] if unused and shown else []
    rows = _bounded(rows)
    if rows != ledger.approvals:
        ledger = replace(ledger, approvals=rows)
    return ledger, Approvals(shown, covered, min(ends, default=FOREVER), unused)


def _unused(rows: Mapping[str, Approval], classified: frozenset[str], complete: bool) -> dict[str, Approval]:
    """The rows without used items, and without approvals that have no item left."""
    kept: dict[str, Approval] = {}
    for key, row in rows.items():
        if row.approved and row.items is not None and (row.once or not classified.isdisjoint(row.items)):
            once = {*row.once, *classified.intersection(row.items)}
            used = once - classified if complete else set()
            items = tuple(item for item in row.items if item not in used)
            if items:
                kept[key] = row._replace(items=items, once=tuple(sorted(once - used)))
        else:
            kept[key] = row
    return kept


def _bounded(rows: Mapping[str, Approval]) -> dict[str, Approval]:
    """The rows without the oldest ones."""
    if len(rows) < SHOWN and sum(len(row.items or ()) for row in rows.values()) <= ITEMS:
        return dict(rows)
    # The wall clock orders rows over a reboot; a wrong order only forgets another row.
    newest = sorted(rows, key=lambda key: (-rows[key].at.wall, key))
    kept = set([key for key in newest if rows[key].approved][:APPROVED])
    items = 0
    for key in [key for key in newest if not rows[key].approved][:SHOWN]:
        items += len(rows[key].items or ())
        if items <= ITEMS:
            kept.add(key)
    return {key: row for key, row in rows.items() if key in kept}
