"""The privileges of a workload beside those of what runs of it, for the readers of plans and of `explain`.

`forecast` asks `changes`, the command line asks `of_revisions`.

What runs is known by the templates in the ledger. A container whose template is not in it (an adopted one, or a lost ledger) may have
any privilege, and so may those of a node that cannot be read: then a privilege is not called new, but not known to be.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from manifests.values.desired import Template
from manifests.values.privileges import Privilege, privileges_of
from reconciler.core.model import value_json
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.revision import revision_key
from reconciler.core.replicas.roster import Group


class Change(StrEnum):
    """How a privilege differs from what runs."""

    NEW = "new"
    KEPT = "kept"
    REMOVED = "removed"
    UNKNOWN = "unknown"


class PrivilegeChange(NamedTuple):
    """One privilege of a workload. REMOVED ones are those of what runs."""

    object: str
    change: Change
    privilege: Privilege


def changes(ledger: Ledger, group: Group, sockets: Iterable[str]) -> tuple[PrivilegeChange, ...]:
    """The privileges of the declared template, and those that only running containers have, in order."""
    key, known = group.workload.key, tuple(sockets)
    declared = set(privileges_of(group.workload.template, known))
    before, certain = _running(ledger, group, known)
    rows = [PrivilegeChange(key, _change(item, before, certain), item) for item in sorted(declared)]
    return (*rows, *(PrivilegeChange(key, Change.REMOVED, item) for item in sorted(before - declared)))


def of_revisions(ledger: Ledger, workload: str, sockets: Iterable[str]) -> dict[str, tuple[Privilege, ...]]:
    """The privileges of each revision of a workload whose template the ledger has: the declared one, and those that still run."""
    known, prefix = tuple(sockets), revision_key(workload, "")
    templates = {
        name.removeprefix(prefix): value_json.parse(Template, text)
        for name, text in sorted(ledger.templates.items())
        if name.startswith(prefix)
    }
    return {revision: privileges_of(item, known) for revision, item in templates.items() if item is not None}


def _change(privilege: Privilege, before: set[Privilege], certain: bool) -> Change:
    if privilege in before:
        return Change.KEPT
    return Change.NEW if certain else Change.UNKNOWN


def _running(ledger: Ledger, group: Group, sockets: tuple[str, ...]) -> tuple[set[Privilege], bool]:
    """The privileges of the containers that exist, and whether all of their templates are known."""
    found: set[Privilege] = set()
    certain = True
    adopted = any(belief.fact.adopted for belief in group.members())
    marks = (belief.fact.mark for belief in group.members())
    for revision in sorted({mark.revision for mark in marks if mark is not None}):
        template = _template(ledger, group, revision)
        if template is None:
            certain = False
        else:
            found |= set(privileges_of(template, sockets))
    return (set(), False) if adopted else (found, certain and not group.unreadable_nodes)


def _template(ledger: Ledger, group: Group, revision: str) -> Template | None:
    if revision == group.workload.template.revision:
        return group.workload.template
    text = ledger.templates.get(revision_key(group.workload.key, revision))
    return None if text is None else value_json.parse(Template, text)
