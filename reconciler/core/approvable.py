"""Approvable changes: everything in one decision that a class of the Guard names. Called by `decide` only, before the gates.

They are found for all candidates at once, so that one hash covers what waits, whatever the gates let pass first.
"""

from collections.abc import Iterable, Mapping

from manifests.values.desired import Guard
from manifests.values.limits import Approve
from manifests.values.privileges import engine_sockets
from providers.facts import ContainerFact
from reconciler.core.dns.names import Names
from reconciler.core.dns.records import RecordDiff, show_set
from reconciler.core.health.belief import Belief
from reconciler.core.limits import approval_classes, approvals
from reconciler.core.limits.approval_classes import NOTHING, REPLACED, Change, Classified, Subject
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Reason
from reconciler.core.model.want import Kind, Want
from reconciler.core.replicas import availability, had_privileges
from reconciler.core.replicas.availability import Availability
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic.weights import Weights


class _Found:
    """The changes so far."""

    def __init__(self, guard: Guard) -> None:
        self.classes = guard.approve
        self.policy = approval_classes.policy_digest(guard)
        self.changes: dict[Subject, tuple[Change, ...]] = {}
        self.beliefs: dict[str, dict[tuple[str, str], Belief]] = {}

    def belief_of(self, group: Group, fact: ContainerFact) -> Belief | None:
        """What is believed of a container of a workload."""
        known = self.beliefs.get(group.workload.key)
        if known is None:
            known = {(member.fact.node, member.fact.id): member for member in group.members()}
            self.beliefs[group.workload.key] = known
        return known.get((fact.node, fact.id))

    def add(self, class_: Approve, subject: Subject, obj: str, text: str, *outcome: object) -> None:
        """Add a change, when the Guard names its class. `outcome`: what else an approval of it binds."""
        if class_ in self.classes:
            item = approvals.item("class", class_.value, self.policy, obj, *subject, *outcome)
            self.changes[subject] = (*self.changes.get(subject, ()), Change(item, class_, obj, text))


def find(
    snap: Snapshot,
    ledger: Ledger,
    wants: Iterable[Want],
    weights: Weights,
    names: Names,
    counts: Mapping[str, Availability],
) -> Classified:
    """All changes of the classes that the Guard names. Without classes, and while everything is destroyed, there are none."""
    desired = snap.desired
    if not desired.guard.approve or desired.destroy:
        return NOTHING
    found = _Found(desired.guard)
    for want in wants:
        if want.kind is Kind.CREATE:
            _privileges(snap, ledger, want, found)
        elif want.kind in (Kind.RETIRE, Kind.RECREATE):
            _end(snap, want, counts, found)
    for stray in weights.strays if desired.prune else ():
        where = f"{stray.endpoint.address}:{stray.endpoint.port} from {stray.provider}/{stray.pool}"
        subject = approval_classes.member(stray.provider, stray.pool, stray.endpoint)
        found.add(Approve.DELETE, subject, stray.object, f"remove {where}, which no manifest names")
    for stray_set in names.strays if desired.prune else ():
        _record_set(stray_set, found)
    for change in names.changes:
        if change.edited and change.after is None:
            _record_set(change, found)
    return Classified(found.changes) if found.changes else NOTHING


def complete(snap: Snapshot) -> bool:
    """Whether all changes are found: every provider can be read, and the manifests in force are those at the source."""
    sight = snap.sight
    unknown = sight.unknown_runtimes or sight.unknown_pools or sight.unknown_zones
    return not unknown and snap.observed.source_problem is None


def _record_set(diff: RecordDiff, found: _Found) -> None:
    subject = approval_classes.record_set(diff.provider, diff.zone, diff.key)
    text = f"delete {diff.key.name} {diff.key.type}: {show_set(diff.before)}"
    found.add(Approve.DELETE, subject, diff.object, text, diff.before)


def _end(snap: Snapshot, want: Want, counts: Mapping[str, Availability], found: _Found) -> None:
    """A container that goes because of the manifests."""
    fact, workload = want.fact, want.workload
    if fact is None:
        return
    subject = approval_classes.container(fact)
    if workload is None:
        found.add(Approve.DELETE, subject, want.object, f"remove {fact.name}: {want.message}")
        return
    surplus = want.cause is Reason.SURPLUS and want.ordinal >= workload.replicas
    if surplus:
        found.add(Approve.DELETE, subject, want.object, f"remove {fact.name}: {want.message}")
    if Approve.DOWNTIME in found.classes and (surplus or (want.kind is Kind.RECREATE and want.cause in REPLACED)):
        group, count = snap.roster.groups[workload.key], counts[workload.key]
        belief = found.belief_of(group, fact)
        available = belief is not None and availability.available_at(belief, workload.min_ready) <= snap.now.steady
        serves = belief is not None and availability.may_serve(belief) and snap.roster.share(fact) != 0
        # While another replica is being recreated, this one waits for it instead.
        alone = count.total - available <= 0 and not count.leaving
        if serves and (workload.replicas == 0 or alone):
            text = f"stop {fact.name} while no other replica of {workload.key} is available: {want.message}"
            found.add(Approve.DOWNTIME, subject, want.object, text, workload.template.revision, workload.replicas == 0)


def _privileges(snap: Snapshot, ledger: Ledger, want: Want, found: _Found) -> None:
    """The privileges that containers of a new revision get, and that no container of the workload has had."""
    workload = want.workload
    if workload is None or Approve.PRIVILEGE not in found.classes:
        return
    subject = approval_classes.revision(workload.key, workload.template.revision)
    if subject in found.changes:
        return
    gained = had_privileges.gained(ledger, workload, engine_sockets(snap.desired.providers))
    if gained:
        listed = "; ".join(f"{privilege.container}: {privilege.text}" for privilege in gained)
        text = f"create containers of revision {workload.template.revision[:8]} with new privileges: {listed}"
        found.add(Approve.PRIVILEGE, subject, workload.key, text, *gained)
