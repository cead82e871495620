"""The privileges that the containers of each workload have, or had when it last had containers, while the Guard asks for approval of gains.

A container that is created again after all of them are gone gains nothing, so it does not wait for an operator. Containers whose
template is not known may have any privilege: only those of known templates count, so the cover of an approval is never guessed.
`decide` calls `remember`; `core/approvable` asks `gained`.
"""

from collections.abc import Iterable
from dataclasses import replace

from manifests.values.desired import Template, Workload
from manifests.values.limits import Approve
from manifests.values.privileges import Privilege, engine_sockets, privileges_of
from providers.facts import fingerprint
from reconciler.core.model import value_json
from reconciler.core.model.had_privileges import HadPrivileges
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.revision import revision_key
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot


def remember(snap: Snapshot, ledger: Ledger) -> Ledger:
    """The ledger with the privileges of what runs. A workload without containers keeps its row, one that is not declared loses it."""
    if Approve.PRIVILEGE not in snap.desired.guard.approve:
        return replace(ledger, privileges={}) if ledger.privileges else ledger
    rows: dict[str, HadPrivileges] = {}
    sockets: tuple[str, ...] | None = None
    for key, group in snap.roster.groups.items():
        before, revisions = ledger.privileges.get(key), _revisions(group)
        if before is not None and (not revisions or before.revisions == revisions):
            rows[key] = before
        elif revisions:
            if sockets is None:
                sockets = tuple(engine_sockets(snap.desired.providers))
            rows[key] = _row(ledger, group, revisions, before, sockets)
    return ledger if rows == ledger.privileges else replace(ledger, privileges=rows)


def gained(ledger: Ledger, workload: Workload, sockets: Iterable[str]) -> tuple[Privilege, ...]:
    """The privileges of the workload's template that none of its containers has had, in order."""
    row = ledger.privileges.get(workload.key)
    had = frozenset(row.had) if row is not None else frozenset()
    return tuple(
        sorted(item for item in set(privileges_of(workload.template, tuple(sockets))) if _digest(item) not in had)
    )


def _revisions(group: Group) -> tuple[str, ...]:
    marks = (belief.fact.mark for belief in (*group.members(), *group.kept) if not belief.fact.adopted)
    return tuple(sorted({mark.revision for mark in marks if mark is not None}))


def _row(
    ledger: Ledger, group: Group, revisions: tuple[str, ...], before: HadPrivileges | None, sockets: tuple[str, ...]
) -> HadPrivileges:
    templates = [_template(ledger, group, revision) for revision in revisions]
    had = {_digest(item) for template in templates if template is not None for item in privileges_of(template, sockets)}
    if before is not None and (None in templates or group.partly_unseen):
        had.update(before.had)
    return HadPrivileges(revisions, tuple(sorted(had)))


def _template(ledger: Ledger, group: Group, revision: str) -> Template | None:
    if revision == group.workload.template.revision:
        return group.workload.template
    text = ledger.templates.get(revision_key(group.workload.key, revision))
    return None if text is None else value_json.parse(Template, text)


def _digest(item: Privilege) -> str:
    return fingerprint(item.container, item.field.value, item.value, item.detail, str(item.read_only))
