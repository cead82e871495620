"""Foreign containers, right after trust: which of somebody else's containers are treated as if they were ours, and how far.

Two ways lead there: a workload adopts them, or their owner's label asks for liveness restarts. The rest of the path then sees
ordinary facts with a mark and ordinary workloads; `fact.adopted` and `workload.restart_only` tell the few places where it makes a
difference. Called by `decide`, and by the shell to know what to probe.
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
from reconciler.core.replicas import adoption, labelled
from reconciler.core.replicas.adoption import NOTHING, Adoption
from reconciler.core.replicas.labelled import Marked


@dataclass(frozen=True, slots=True)
class ForeignContainers:
    """The answer: the manifests and facts that the rest of the path sees, and what is to be said and remembered.

    `leaving`, `pending` and `released` are those of `adoption.Taken`; `containers` is what is probed, by container id, where it is
    not what the workload's template says.
    """

    desired: Desired
    sight: Sight
    leaving: frozenset[str] = frozenset()
    pending: Mapping[str, Sequence[str]] = field(default_factory=dict)
    released: Sequence[ContainerFact] = ()
    containers: Mapping[str, Container] = field(default_factory=dict)
    holds: Sequence[Hold] = ()
    rows: Mapping[str, Adopted] = field(default_factory=dict)

    def remember(self, ledger: Ledger) -> Ledger:
        """The ledger with what is adopted now."""
        return ledger if self.rows == ledger.adopted else replace(ledger, adopted=dict(self.rows))


def admit(desired: Desired, observed: Observed, sight: Sight) -> ForeignContainers:
    """Find the containers of somebody else that are treated as ours."""
    ledger = observed.ledger
    taken = adoption.take(desired, sight.runtimes, sight.unknown_runtimes, ledger.adopted)
    marked = labelled.groups(desired, sight.runtimes, observed.contexts, taken.facts, ledger.grants)
    if ledger.grants:
        _finish(desired, sight, ledger, taken, marked)
    if taken is NOTHING and not marked.workloads:
        return ForeignContainers(desired, sight)
    runtimes = dict(sight.runtimes)
    facts = {**taken.facts, **marked.facts}
    for node in {node for node, _ in facts}:
        runtimes[node] = tuple(facts.get((node, fact.id), fact) for fact in runtimes[node])
    if marked.workloads:
        workloads = sorted([*desired.workloads, *marked.workloads], key=lambda workload: workload.key)
        desired = replace(desired, workloads=tuple(workloads))
    return ForeignContainers(
        desired=desired,
        sight=replace(sight, runtimes=runtimes),
        leaving=frozenset(taken.leaving),
        pending=taken.pending,
        released=tuple(taken.released),
        containers=marked.containers,
        holds=(*taken.holds, *marked.holds),
        rows=taken.rows,
    )


def _finish(desired: Desired, sight: Sight, ledger: Ledger, taken: Adoption, marked: Marked) -> None:
    """Containers of somebody else that are down by our doing, in the middle of a restart whose reason has gone: nobody adopts them
    any more, or labels count no more. They are started, and then let go.
    """
    declared = {workload.key for workload in (*desired.workloads, *marked.workloads)}
    for facts in sight.runtimes.values():
        for fact in facts:
            grant = ledger.grants.get(fact.id)
            if grant is None or fact.mark is not None or grant.cause not in RESTARTS or fact.state in UP:
                continue
            key, _, ordinal = grant.object.rpartition("/")
            if (fact.node, fact.id) in taken.facts or (fact.node, fact.id) in marked.facts or key in declared:
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
    hidden: Iterable[str],
    ledger: Ledger,
    contexts: Mapping[str, Context],
) -> dict[str, tuple[ContainerFact, str, Container]]:
    """What is probed of somebody else's containers: the fact, the workload's key and the container's probes, by container id.

    Args:
        runtimes: the containers of the nodes that can be seen.
        hidden: the nodes that cannot be seen.
    """
    taken: Adoption = adoption.take(desired, runtimes, hidden, ledger.adopted)
    marked: Marked = labelled.groups(desired, runtimes, contexts, taken.facts, ledger.grants)
    templates = {one.name: one for one in desired.workloads}
    found: dict[str, tuple[ContainerFact, str, Container]] = {}
    for fact in taken.facts.values():
        if fact.mark is not None:
            workload = templates[fact.mark.workload]
            found[fact.id] = (fact, workload.key, workload.template.container)
    for fact in marked.facts.values():
        if fact.mark is not None:
            found[fact.id] = (fact, fact.mark.workload, marked.containers[fact.id])
    return found
