"""Activation, the second stage: which containers should be up now, and what each existing one is for.

Replicas of the desired revision are *current*; those of another revision are *outgoing* until their replacements are
available; those beyond `replicas`, doubled or on another node are *surplus*, and so is what is down of a rolling rollout that
failed; those of a workload that is not wanted are
*orphans*. An adopted container that its workload does not name any more makes way like an outgoing one, and is released.

Where whole revisions stand beside each other (strategies `activate` and `canary`), the *current* ones are those that have the
traffic, whatever is declared; those that may get it are *waiting*, and those that had it and are stopped are *kept*. Called by
`decide` only.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from manifests.values.desired import Push, Workload
from manifests.values.rollouts import STAGED, Strategy
from providers.facts import ContainerFact, ContainerState, Mark, ProbeValue, container_name
from reconciler.core.health import overrides, precedence
from reconciler.core.health.belief import Belief, Sight, believe
from reconciler.core.health.precedence import NO_CHANNEL
from reconciler.core.health.pushes import Channel
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.observed import Observed
from reconciler.core.model.revision import FULL, Rollout, Standing, keeps
from reconciler.core.replicas.foreign import ForeignContainers

_DOWN = {ContainerState.CREATED, ContainerState.EXITED}


@dataclass(slots=True)
class Group:
    """The containers of one workload. Filled while this stage runs, read-only after it.

    `current` is keyed by ordinal; the other lists are sorted by (ordinal, name); `unreadable_nodes` are those of the workload that
    cannot be seen. `serving` is the revision of the current ones; `coming` tells that replicas of the declared one are made.
    """

    workload: Workload
    current: dict[int, Belief] = field(default_factory=dict)
    outgoing: list[Belief] = field(default_factory=list)
    surplus: list[Belief] = field(default_factory=list)
    unreadable_nodes: tuple[str, ...] = ()
    waiting: list[Belief] = field(default_factory=list)
    kept: list[Belief] = field(default_factory=list)
    serving: str = ""
    coming: bool = True

    def members(self) -> list[Belief]:
        """All containers of the workload, without those that are kept and stopped."""
        if not (self.outgoing or self.surplus or self.waiting):
            return list(self.current.values())
        return [*self.current.values(), *self.outgoing, *self.surplus, *self.waiting]

    def of(self, revision: str) -> list[Belief]:
        """The replicas of one revision, in the order of their ordinals, as far as they have the traffic or may get it."""
        if revision == self.serving:
            return [self.current[ordinal] for ordinal in sorted(self.current)]
        return [one for one in self.waiting if one.fact.mark is not None and one.fact.mark.revision == revision]


@dataclass(frozen=True, slots=True)
class Roster:
    """Everything this instance runs: a group per workload, orphans, names that somebody else uses, and who is down.

    `leaving`, `pending` and `released` are those of `adoption.Taken`. `shares` gives, for workloads whose revisions have a share
    of the traffic, that of each (of 10,000) by the workload's name; None while it is not known.
    """

    groups: Mapping[str, Group]
    orphans: Sequence[ContainerFact]
    foreign: Mapping[tuple[str, str], ContainerFact]
    unreadable_nodes: tuple[str, ...]
    down: Sequence[tuple[Group, Belief]]
    leaving: frozenset[str] = frozenset()
    pending: Mapping[str, Sequence[str]] = field(default_factory=dict)
    released: Sequence[ContainerFact] = ()
    shares: Mapping[str, Mapping[str, int] | None] = field(default_factory=dict)

    def share(self, fact: ContainerFact) -> int | None:
        """The share of its revision, of 10,000: 10,000 where revisions have none of their own, None while it is not known.

        Without a share a container gets no traffic, whatever it says of itself.
        """
        mark = fact.mark
        if not self.shares or mark is None or mark.workload not in self.shares:
            return FULL
        shares = self.shares[mark.workload]
        return None if shares is None else shares.get(mark.revision, 0)


def node_of(workload: Workload, ordinal: int) -> str:
    """The node a replica lives on."""
    return workload.nodes[ordinal % len(workload.nodes)]


def replica_name(workload: Workload, instance: str, ordinal: int) -> str:
    """The container name of a replica of the desired revision."""
    return container_name(Mark(instance, workload.name, ordinal, workload.template.revision))


def _order(belief: Belief) -> tuple[int, str, str]:
    mark = belief.fact.mark
    return (mark.ordinal if mark else -1, belief.fact.name, belief.fact.node)


def _way(sight: Sight, by_name: Mapping[str, Group], observed: Observed, now: Now) -> Channel:
    """Whether the way of the pushes is suspected."""
    senders: list[tuple[Push, ContainerFact]] = []
    for facts in sight.runtimes.values():
        for fact in facts:
            group = by_name.get(fact.mark.workload) if fact.mark is not None else None
            if group is not None and group.workload.push is not None:
                senders.append((group.workload.push, fact))
    return precedence.push_channel(senders, observed.pushes, now.steady)


class _Stages(NamedTuple):
    """What containers of a workload are for, by their revision, where revisions stand beside each other."""

    serving: str
    waiting: frozenset[str]
    kept: frozenset[str]
    coming: bool
    shares: Mapping[str, int] | None


def _stages(workload: Workload, rollout: Rollout | None, now: Now) -> _Stages:
    wanted = workload.template.revision
    if rollout is None:
        return _Stages(wanted, frozenset(), frozenset(), True, None)
    row = rollout.of(wanted)
    serving = rollout.active or wanted
    waiting = {one.revision for one in rollout.rows if one.standing is Standing.SCHEDULED} | {rollout.back}
    kept = {one.revision for one in rollout.rows if keeps(one, workload.rollout.window, now)}
    coming = serving == wanted or (row is not None and row.standing is Standing.SCHEDULED)
    shares = {serving: FULL}
    for one in rollout.rows:
        if one.opened is None or one.revision == serving:
            continue
        stepwise = workload.strategy is Strategy.CANARY and one.revision != rollout.back
        share = workload.rollout.steps[one.step].share if stepwise and one.step < len(workload.rollout.steps) else FULL
        shares[one.revision] = share
        if stepwise:
            shares[serving] = FULL - share if share < FULL else FULL
    return _Stages(serving, frozenset(waiting - {"", serving}), frozenset(kept - {serving}), coming, shares)


def _place(group: Group, belief: Belief, mark: Mark, stages: _Stages | None, grants: Container[str]) -> None:
    """Put one container where it belongs by its revision, its ordinal and its node."""
    workload, fact = group.workload, belief.fact
    misplaced = mark.ordinal >= workload.replicas or fact.node != node_of(workload, mark.ordinal)
    if mark.revision == group.serving:
        if misplaced:
            group.surplus.append(belief)
        else:
            group.current[mark.ordinal] = belief
    elif stages is not None and mark.revision in stages.waiting:
        (group.surplus if misplaced else group.waiting).append(belief)
    elif stages is not None and mark.revision in stages.kept and fact.state in _DOWN and fact.id not in grants:
        group.kept.append(belief)
    else:
        group.outgoing.append(belief)


def sort_containers(admitted: ForeignContainers, observed: Observed, ledger: Ledger, now: Now) -> Roster:
    """Sort every container that is seen into its place."""
    desired, sight = admitted.desired, admitted.sight
    containers, leaving = admitted.containers, admitted.leaving
    groups = {
        one.key: Group(one, serving=one.template.revision) for one in sorted(desired.workloads, key=attrgetter("key"))
    }
    stages = _all_stages(groups, ledger, now)
    by_name = {group.workload.name: group for group in groups.values()}
    orphans: list[ContainerFact] = []
    foreign: dict[tuple[str, str], ContainerFact] = {}
    down: list[tuple[Group, Belief]] = []
    running = ContainerState.RUNNING
    instance, probes, steady = desired.instance.id, observed.probes, now.steady
    pushes, orders = observed.pushes, ledger.overrides
    way = _way(sight, by_name, observed, now) if pushes else NO_CHANNEL
    for facts in sight.runtimes.values():
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
                belief = precedence.apply_push(belief, pushes.get(fact.generation), workload.push, way, now)
            if orders:
                override = overrides.in_force(orders, f"{workload.key}/{mark.ordinal}", now)
                belief = belief if override is None else precedence.apply_override(belief, override, now)
            if fact.state is not running:
                down.append((group, belief))
            if workload.restart_only:
                group.current[mark.ordinal] = belief
            elif fact.id in leaving:
                first_out = workload.strategy is Strategy.RECREATE
                (group.surplus if first_out else group.outgoing).append(belief)
            else:
                _place(group, belief, mark, stages.get(workload.name), ledger.grants)
    hidden = sight.unknown_runtimes
    for group in groups.values():
        if group.outgoing and group.workload.strategy not in STAGED:
            _stop_trying(group, ledger)
        for those in (group.outgoing, group.surplus, group.waiting, group.kept):
            if len(those) > 1:
                those.sort(key=_order)
        if hidden:
            group.unreadable_nodes = tuple(sorted(node for node in set(group.workload.nodes) if node in hidden))
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
        shares={name: one.shares for name, one in stages.items()},
    )


def _stop_trying(group: Group, ledger: Ledger) -> None:
    """A rolling rollout that failed makes and starts nothing more, and what is down of it goes, while enough others are there.

    Where that is not so any more, because somebody took old ones away, new ones are all there is, and tried again and again.
    """
    books = ledger.rollouts.get(group.workload.key)
    row = books.of(group.workload.template.revision) if books is not None else None
    if row is None or row.standing is not Standing.FAILED:
        return
    old = sum(one.fact.id not in ledger.grants for one in group.outgoing)
    down = {ordinal: one for ordinal, one in group.current.items() if one.fact.state in _DOWN}
    well = sum(ProbeValue.FAIL not in (one.ready, one.live) for one in group.current.values())
    if old + well < group.workload.replicas:
        return
    group.coming = False
    group.surplus += down.values()
    group.current = {ordinal: one for ordinal, one in group.current.items() if ordinal not in down}


def _all_stages(groups: Mapping[str, Group], ledger: Ledger, now: Now) -> dict[str, _Stages]:
    """The stages of every workload that has some, by its name; its group takes what it needs of them."""
    found: dict[str, _Stages] = {}
    for key, group in groups.items():
        workload = group.workload
        if workload.strategy in STAGED and not workload.restart_only:
            stages = found[workload.name] = _stages(workload, ledger.rollouts.get(key), now)
            group.serving, group.coming = stages.serving, stages.coming
    return found
