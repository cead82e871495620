"""Templates of revisions that are declared, or were and still have containers: a plan says what differs from them.

Where revisions stand beside each other (`activate`, `canary`), a newer template may be declared for hours while an older one serves: there
a lost replica is recreated from them. The ledger keeps them as JSON, written once when a revision is declared; secrets are in it by
reference only. If they are lost, containers go on, a plan says less, and a replica of an earlier revision that is gone is reported and
not recreated. `decide` calls `keep`; `differences` asks `made_from`, `plan_changes` asks `replaced` and `known`.
"""

from collections.abc import Mapping
from dataclasses import replace

from manifests.values.desired import Template, Workload
from manifests.values.rollouts import STAGED
from providers.facts import ContainerFact
from reconciler.core.model import value_json
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.revision import Standing, revision_key
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot


def keep(snap: Snapshot, ledger: Ledger) -> Ledger:
    """The ledger with the templates of revisions that are declared, serve, wait or are kept, without all others."""
    kept: dict[str, str] = {}
    for key, group in snap.roster.groups.items():
        if group.workload.restart_only:
            continue
        if group.workload.strategy in STAGED:
            kept |= _of(key, group, ledger)
        else:
            _one_by_one(key, group, ledger, kept)
    return ledger if kept == ledger.templates else replace(ledger, templates=kept)


def _of(key: str, group: Group, ledger: Ledger) -> Mapping[str, str]:
    declared, rollout = group.workload.template, ledger.rollouts.get(key)
    revisions = {group.serving}
    if rollout is not None:
        revisions |= {rollout.active, rollout.back}
        revisions |= {row.revision for row in rollout.rows if row.standing is Standing.SCHEDULED}
    marks = (belief.fact.mark for belief in (*group.members(), *group.kept))
    revisions |= {mark.revision for mark in marks if mark is not None}
    revisions |= {container.revision for container in group.unseen}
    known = {
        name: ledger.templates[name]
        for revision in revisions
        if (name := revision_key(key, revision)) in ledger.templates
    }
    current = revision_key(key, declared.revision)
    known[current] = ledger.templates.get(current) or value_json.write(declared)
    return known


def _one_by_one(key: str, group: Group, ledger: Ledger, kept: dict[str, str]) -> None:
    """Keep the declared template, and those of the containers that it replaces. Usually that is one look-up."""
    known, declared = ledger.templates, group.workload.template
    current = revision_key(key, declared.revision)
    kept[current] = known.get(current) or value_json.write_short(declared)
    for belief in (*group.outgoing, *group.surplus) if group.outgoing or group.surplus else ():
        mark = belief.fact.mark
        name = "" if mark is None else revision_key(key, mark.revision)
        if name in known:
            kept[name] = known[name]
    for container in group.unseen:
        name = revision_key(key, container.revision)
        if name in known:
            kept[name] = known[name]


def replaced(group: Group) -> tuple[str, ContainerFact] | None:
    """The revision that the declared one replaces, and a container of it; the most frequent one. None where nothing is replaced."""
    wanted = group.workload.template.revision
    members = (*group.current.values(), *group.outgoing, *group.surplus)
    found = {
        fact.mark.revision: fact
        for fact in (belief.fact for belief in members)
        if fact.mark is not None and fact.mark.revision != wanted
    }
    if not found:
        return None
    revisions = [belief.fact.mark.revision for belief in members if belief.fact.mark is not None]
    before = max(sorted(found), key=revisions.count)
    return before, found[before]


def known(ledger: Ledger, workload: str, revision: str) -> Template | None:
    """The template of a revision, as it was when that was declared; None when the ledger does not have it."""
    text = ledger.templates.get(revision_key(workload, revision))
    return None if text is None else value_json.parse(Template, text)


def made_from(ledger: Ledger, workload: Workload, revision: str) -> Workload | None:
    """The workload as it was declared for this revision; None when that is not known any more.

    Settings that change on running containers are those declared now.
    """
    if workload.strategy not in STAGED:
        return None  # it only waits for its replacement
    text = ledger.templates.get(revision_key(workload.key, revision))
    template = value_json.parse(Template, text) if text is not None else None
    if template is None or template.revision != revision:
        return None
    declared = workload.template
    same = [live.container for live in declared.live] == [live.container for live in template.live]
    live = declared.live if same else template.live
    return replace(workload, template=replace(template, grace=declared.grace, live=live))
