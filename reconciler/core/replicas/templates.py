"""Templates of revisions that have the traffic, or wait for it, and are not declared any more: to recreate a lost replica of them.

Only where revisions stand beside each other (`activate`, `canary`): there a newer template may be declared for hours while an older one
serves. The ledger keeps them as JSON, written once when a revision is declared; secrets are in it by reference only. If they are lost,
containers go on, and a replica that is gone is reported and not recreated. `decide` calls `keep`; `differences` asks `made_from`.
"""

from collections.abc import Mapping
from dataclasses import replace

from manifests.values.desired import Template, Workload
from manifests.values.rollouts import STAGED
from reconciler.core.model import value_json
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.revision import Standing, revision_key
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot


def keep(snap: Snapshot, ledger: Ledger) -> Ledger:
    """The ledger with the templates of revisions that are declared, serve, wait or are kept, without all others."""
    kept: dict[str, str] = {}
    for key, group in snap.roster.groups.items():
        if group.workload.strategy in STAGED and not group.workload.restart_only:
            kept |= _of(key, group, ledger)
    return ledger if kept == ledger.templates else replace(ledger, templates=kept)


def _of(key: str, group: Group, ledger: Ledger) -> Mapping[str, str]:
    declared, rollout = group.workload.template, ledger.rollouts.get(key)
    revisions = {group.serving}
    if rollout is not None:
        revisions |= {rollout.active, rollout.back}
        revisions |= {row.revision for row in rollout.rows if row.standing is Standing.SCHEDULED}
    marks = (belief.fact.mark for belief in (*group.members(), *group.kept))
    revisions |= {mark.revision for mark in marks if mark is not None}
    known = {
        name: ledger.templates[name]
        for revision in revisions
        if (name := revision_key(key, revision)) in ledger.templates
    }
    current = revision_key(key, declared.revision)
    known[current] = ledger.templates.get(current) or value_json.write(declared)
    return known


def made_from(ledger: Ledger, workload: Workload, revision: str) -> Workload | None:
    """The workload as it was declared for this revision; None when that is not known any more.

    Settings that change on running containers are those declared now.
    """
    text = ledger.templates.get(revision_key(workload.key, revision))
    template = value_json.parse(Template, text) if text is not None else None
    if template is None or template.revision != revision:
        return None
    declared = workload.template
    same = [live.container for live in declared.live] == [live.container for live in template.live]
    live = declared.live if same else template.live
    return replace(workload, template=replace(template, grace=declared.grace, live=live))
