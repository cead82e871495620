"""Foreign containers: which of them are treated like ours, and how far.

Containers of ours may have other names than their marks say (`identity`). Of the others, a workload adopts them, or their owner's label asks for liveness restarts. All later rules then see ordinary facts with a mark and
ordinary workloads; `fact.adopted` and `workload.restart_only` tell the few places where it makes a difference. Called by `decide`
right after the sight, and by `shell/probing` for their probes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from manifests.values.desired import Container, Desired, Template, Workload
from providers.facts import ContainerFact, Mark
from reconciler.core.exits.grants import RESTARTS, UP
from reconciler.core.health.belief import Sight
from reconciler.core.model.adopted import Adopted
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.observed import Observed
from reconciler.core.model.probe_context import Context
from reconciler.core.model.reasons import Hold
from reconciler.core.replicas import adoption, identity, labelled
from reconciler.core.replicas.adoption import NOTHING, Adoption
from reconciler.core.replicas.labelled import Marked
from reconciler.core.replicas.unseen import NOTHING_UNSEEN, Unseen, unseen_of


@dataclass(frozen=True, slots=True)
class ForeignContainers:
    """The manifests and facts for all later rules, with holds and the new rows of the ledger.

    `leaving`, `pending` and `released` are those of `adoption.Adoption`; `containers` are the probes by container id, where they
    are not those of the workload's template. `claimed` and `copies` are those of `identity.Identity`. `unseen` is what may exist on
    nodes that cannot be read.
    """

    desired: Desired
    sight: Sight
    leaving: frozenset[str] = frozenset()
    pending: Mapping[str, Sequence[str]] = field(default_factory=dict)
    released: Sequence[ContainerFact] = ()
    containers: Mapping[str, Container] = field(default_factory=dict)
    holds: Sequence[Hold] = ()
    rows: Mapping[str, Adopted] = field(default_factory=dict)
    claimed: Mapping[str, str] = field(default_factory=dict)
    copies: Sequence[ContainerFact] = ()
    unseen: Unseen = NOTHING_UNSEEN

    def remember(self, ledger: Ledger) -> Ledger:
        """The ledger with the rows of adopted containers."""
        return ledger if self.rows == ledger.adopted else replace(ledger, adopted=dict(self.rows))


def admit(desired: Desired, observed: Observed, sight: Sight) -> ForeignContainers:
    """The foreign containers that are treated like ours."""
    ledger = observed.ledger
    named = identity.identify(desired, sight.runtimes, ledger)
    if named.runtimes is not sight.runtimes:
        sight = replace(sight, runtimes=named.runtimes)
    unseen = unseen_of(sight.unknown_runtimes, ledger)
    adopted = adoption.adopt(desired, sight.runtimes, sight.unknown_runtimes, ledger.adopted, ledger.placed)
    marked = labelled.groups(desired, sight.runtimes, observed.contexts, adopted.facts, ledger.grants)
    if ledger.grants:
        _finish_restarts(desired, sight, ledger, adopted, marked)
    if adopted is NOTHING and not marked.workloads:
        holds, claimed, copies = named.holds, named.claimed, named.copies
        return ForeignContainers(desired, sight, holds=holds, claimed=claimed, copies=copies, unseen=unseen)
    runtimes = dict(sight.runtimes)
    facts = {**adopted.facts, **marked.facts}
    for node in {node for node, _ in facts}:
        runtimes[node] = tuple(facts.get((node, fact.id), fact) for fact in runtimes[node])
    if marked.workloads:
        workloads = sorted([*desired.workloads, *marked.workloads], key=lambda workload: workload.key)
        desired = replace(desired, workloads=tuple(workloads))
    return ForeignContainers(
        desired=desired,
        sight=replace(sight, runtimes=runtimes),
        leaving=frozenset(adopted.leaving),
        pending=adopted.pending,
        released=tuple(adopted.released),
        containers=marked.containers,
        holds=(*adopted.holds, *marked.holds, *named.holds),
        rows=adopted.rows,
        claimed=named.claimed,
        copies=named.copies,
        unseen=unseen,
    )


def _finish_restarts(desired: Desired, sight: Sight, ledger: Ledger, adopted: Adoption, marked: Marked) -> None:
    """Add foreign containers that our restart has stopped and that are no longer adopted or labelled: they are started, then released."""
    declared = {workload.key for workload in (*desired.workloads, *marked.workloads)}
    for facts in sight.runtimes.values():
        for fact in facts:
            grant = ledger.grants.get(fact.id)
            if grant is None or fact.mark is not None or grant.cause not in RESTARTS or fact.state in UP:
                continue
            key, _, ordinal = grant.object.rpartition("/")
            if (fact.node, fact.id) in adopted.facts or (fact.node, fact.id) in marked.facts or key in declared:
                continue
            container = Container(fact.name, ())
            mark = Mark(desired.instance.id, key, int(ordinal), "")
            marked.facts[fact.node, fact.id] = replace(fact, mark=mark, adopted=True)
            marked.containers[fact.id] = container
            if all(workload.key != key for workload in marked.workloads):
                template = Template((), container)
                marked.workloads.append(Workload(key, key, (fact.node,), 1, template, restart_only=True))


def probed(
    desired: Desired,
    runtimes: Mapping[str, Sequence[ContainerFact]],
    unreadable: Iterable[str],
    ledger: Ledger,
    contexts: Mapping[str, Context],
) -> dict[str, tuple[ContainerFact, str, Container]]:
    """The foreign containers that are probed: the fact, the workload's key and the container's probes, by container id.

    Args:
        runtimes: the containers of the nodes that can be read.
        unreadable: the nodes that cannot be read.
    """
    adopted: Adoption = adoption.adopt(desired, runtimes, unreadable, ledger.adopted, ledger.placed)
    marked: Marked = labelled.groups(desired, runtimes, contexts, adopted.facts, ledger.grants)
    workloads = {workload.name: workload for workload in desired.workloads}
    targets: dict[str, tuple[ContainerFact, str, Container]] = {}
    for fact in adopted.facts.values():
        if fact.mark is not None:
            workload = workloads[fact.mark.workload]
            targets[fact.id] = (fact, workload.key, workload.template.container)
    for fact in marked.facts.values():
        if fact.mark is not None:
            targets[fact.id] = (fact, fact.mark.workload, marked.containers[fact.id])
    return targets
