"""Activation, the second stage: which containers should be up now, and what each existing one is for.

Replicas of the desired revision are *current*; those of another revision are *outgoing* until their replacements are
available; those beyond `replicas`, doubled or on another node are *surplus*; those of a workload that is not wanted are
*orphans*. An adopted container that its workload does not name any more makes way like an outgoing one, and is released. Called by `decide` only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from manifests.desired import Push, Strategy, Workload
from providers.facts import ContainerFact, ContainerState, Mark, container_name
from reconciler.core.authority import NO_CHANNEL, hear, heed, order
from reconciler.core.foreign import Admitted
from reconciler.core.instant import Now
from reconciler.core.observed import Observed
from reconciler.core.overrides import in_force
from reconciler.core.pushes import Channel
from reconciler.core.trust import Belief, Sight, believe


@dataclass(slots=True)
class Group:
    """The containers of one workload. Filled while this stage runs, read-only after it.

    `current` is keyed by ordinal; `outgoing` and `surplus` are sorted by (ordinal, name); `blind` lists the nodes of the
    workload that cannot be seen.
    """

    workload: Workload
    current: dict[int, Belief] = field(default_factory=dict)
    outgoing: list[Belief] = field(default_factory=list)
    surplus: list[Belief] = field(default_factory=list)
    blind: tuple[str, ...] = ()

    def members(self) -> list[Belief]:
        """All containers of the workload."""
        return [*self.current.values(), *self.outgoing, *self.surplus]


@dataclass(frozen=True, slots=True)
class Roster:
    """Everything this instance runs: a group per workload, orphans, names that somebody else uses, and who is down.

    `leaving`, `pending` and `released` are those of `adoption.Taken`.
    """

    groups: Mapping[str, Group]
    orphans: Sequence[ContainerFact]
    foreign: Mapping[tuple[str, str], ContainerFact]
    blind: tuple[str, ...]
    down: Sequence[tuple[Group, Belief]]
    leaving: frozenset[str] = frozenset()
    pending: Mapping[str, Sequence[str]] = field(default_factory=dict)
    released: Sequence[ContainerFact] = ()


def node_of(workload: Workload, ordinal: int) -> str:
    """The node a replica lives on."""
    return workload.nodes[ordinal % len(workload.nodes)]


def replica_name(workload: Workload, instance: str, ordinal: int) -> str:
    """The container name of a replica of the desired revision."""
    return container_name(Mark(instance, workload.name, ordinal, workload.template.revision))


def _order(belief: Belief) -> tuple[int, str, str]:
    mark = belief.fact.mark
    return (mark.ordinal if mark else -1, belief.fact.name, belief.fact.node)


def _way(seen: Sight, by_name: Mapping[str, Group], observed: Observed, now: Now) -> Channel:
    """Whether the way of the pushes is suspected."""
    senders: list[tuple[Push, ContainerFact]] = []
    for facts in seen.runtimes.values():
        for fact in facts:
            group = by_name.get(fact.mark.workload) if fact.mark is not None else None
            if group is not None and group.workload.push is not None:
                senders.append((group.workload.push, fact))
    return hear(senders, observed.pushes, now.steady)


def roster(admitted: Admitted, observed: Observed, now: Now) -> Roster:
    """Sort every container that is seen into its place."""
    desired, seen = admitted.desired, admitted.seen
    containers, leaving = admitted.containers, admitted.leaving
    groups = {one.key: Group(one) for one in sorted(desired.workloads, key=attrgetter("key"))}
    by_name = {group.workload.name: group for group in groups.values()}
    orphans: list[ContainerFact] = []
    foreign: dict[tuple[str, str], ContainerFact] = {}
    down: list[tuple[Group, Belief]] = []
    running = ContainerState.RUNNING
    instance, probes, steady = desired.instance.id, observed.probes, now.steady
    pushes, orders = observed.pushes, observed.ledger.overrides
    way = _way(seen, by_name, observed, now) if pushes else NO_CHANNEL
    for facts in seen.runtimes.values():
        for fact in facts:
            mark = fact.mark
            if mark is None or mark.instance != instance:
                foreign[fact.node, fact.name] = fact
                continue
            group = by_name.get(mark.workload)
            if group is None:
                orphans.append(fact)
                continue
            workload = group.workload
            container = containers.get(fact.id) if containers else None
            belief = believe(fact, container or workload.template.container, probes, steady)
            if pushes and workload.push is not None:
                belief = heed(belief, pushes.get(fact.generation), workload.push, way, now)
            if orders:
                override = in_force(orders, f"{workload.key}/{mark.ordinal}", now)
                belief = belief if override is None else order(belief, override, now)
            if fact.state is not running:
                down.append((group, belief))
            if workload.restart_only:
                group.current[mark.ordinal] = belief
            elif fact.id in leaving:
                first_out = workload.strategy is Strategy.RECREATE
                (group.surplus if first_out else group.outgoing).append(belief)
            elif mark.revision != workload.template.revision:
                group.outgoing.append(belief)
            elif mark.ordinal >= workload.replicas or fact.node != node_of(workload, mark.ordinal):
                group.surplus.append(belief)
            else:
                group.current[mark.ordinal] = belief
    hidden = seen.unknown_runtimes
    for group in groups.values():
        if len(group.outgoing) > 1:
            group.outgoing.sort(key=_order)
        if len(group.surplus) > 1:
            group.surplus.sort(key=_order)
        if hidden:
            group.blind = tuple(sorted(node for node in set(group.workload.nodes) if node in hidden))
    orphans.sort(key=lambda fact: (fact.name, fact.node))
    down.sort(key=lambda one: (one[1].fact.name, one[1].fact.node))
    return Roster(
        groups,
        tuple(orphans),
        foreign,
        tuple(sorted(hidden)),
        tuple(down),
        leaving=leaving,
        pending=admitted.pending,
        released=admitted.released,
    )
