"""Roster, the second stage: every container of the instance, sorted by workload and role.

Replicas of the desired revision are *current*; those of another revision are *outgoing* until their replacements are
available. Containers beyond `replicas`, doubled or on another node are *surplus*, and so are those that are down of a rolling
rollout that failed. Containers of a workload that is not declared are *orphans*. An adopted container that `spec.adopt` does not
match any more leaves like an outgoing one, and is released.

Where whole revisions stand beside each other (strategies `activate` and `canary`), the *current* ones are those that have the
traffic, whatever is declared; those that may get it are *waiting*, and those that had it and are stopped are *kept*. Called by
`decide` only.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from manifests.values.desired import Container as Probed
from manifests.values.desired import Push, Workload
from manifests.values.rollouts import STAGED, Strategy
from providers.facts import ContainerFact, ContainerState, Generation, Mark, Probes, ProbeValue, container_name
from reconciler.core.health import overrides, precedence, push_channel
from reconciler.core.health.belief import Belief, believe
from reconciler.core.health.push_channel import NO_CHANNEL, Channel
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.observed import Observed
from reconciler.core.model.push_fact import PushFact
from reconciler.core.model.revision import FULL, Rollout, Standing, keeps
from reconciler.core.replicas import specs
from reconciler.core.replicas.foreign import ForeignContainers
from reconciler.core.replicas.placement import Placement
from reconciler.core.replicas.specs import Asked, Specs
from reconciler.core.replicas.unseen import NOTHING_UNSEEN, Unseen, UnseenContainer

_DOWN = {ContainerState.CREATED, ContainerState.EXITED}


@dataclass(slots=True)
class Group:
    """The containers of one workload. Filled while this stage runs, read-only after it.

    `current` is keyed by ordinal; the lists are sorted by (ordinal, name). `unseen` are the containers that were last observed on nodes
    that cannot be read, `unlisted` says that there may be others, because the ledger does not know what is on one of the workload's
    nodes. `unknown` are the replicas of the serving revision that may be on such a node, by ordinal, each with that
    node; `silent` are those nodes of the instance, and `placed` is that of the roster while there are some. `serving` is the revision
    of the current ones; `coming` says that replicas of the declared one are created. `earlier` are the probes of replicas that are not judged by those of the manifest.
    """

    workload: Workload
    current: dict[int, Belief] = field(default_factory=dict)
    outgoing: list[Belief] = field(default_factory=list)
    surplus: list[Belief] = field(default_factory=list)
    unseen: tuple[UnseenContainer, ...] = ()
    unlisted: bool = False
    unknown: Mapping[int, str] = field(default_factory=dict)
    silent: Container[str] = ()
    placed: Mapping[str, str] = field(default_factory=dict)
    waiting: list[Belief] = field(default_factory=list)
    kept: list[Belief] = field(default_factory=list)
    serving: str = ""
    coming: bool = True
    earlier: tuple[Probed, ...] = ()

    @property
    def partly_unseen(self) -> bool:
        """Whether containers of the workload may exist that are not observed."""
        return bool(self.unknown or self.unseen or self.unlisted)

    @property
    def unreadable_nodes(self) -> tuple[str, ...]:
        """The nodes that cannot be read and that containers of the workload are on, or would be created on."""
        return tuple(sorted({*self.unknown.values(), *(container.node for container in self.unseen)}))

    @property
    def unseen_ordinals(self) -> frozenset[int]:
        """The wanted ordinals of which a container of any revision was last observed on a node that cannot be read."""
        return frozenset(row.ordinal for row in self.unseen if row.ordinal < self.workload.replicas)

    def unseen_of(self, revision: str) -> list[UnseenContainer]:
        """The unseen containers that are, or may be, of this revision."""
        return [container for container in self.unseen if container.revision in ("", revision)]

    def unknown_of(self, revision: str) -> Mapping[int, str]:
        """The replicas of this revision that may be on a node that cannot be read, by ordinal, each with that node.

        A replica whose place is there is unknown: it may have been created just before the node stopped answering. One that was
        last observed there is unknown too, although the manifest places it elsewhere now: the workload may still use that node,
        or its replicas are removed before they are created elsewhere.
        """
        if not self.silent:
            return {}
        return self.unknown if revision == self.serving else self.find_unknown(revision)

    def find_unknown(self, revision: str) -> Mapping[int, str]:
        """`unknown_of` as the containers show it. `sort_containers` asks it for the serving revision, once."""
        workload = self.workload
        existing: Collection[int] = self.current.keys()
        if revision != self.serving:
            existing = {belief.fact.mark.ordinal for belief in self.of(revision) if belief.fact.mark is not None}
        if len(existing) >= workload.replicas:
            return {}
        first_out = workload.strategy is Strategy.RECREATE
        observed = {
            row.ordinal: row.node
            for row in (self.unseen if first_out else self.unseen_of(revision))
            if first_out or row.node in workload.nodes
        }
        unknown: dict[int, str] = {}
        for ordinal in range(workload.replicas):
            if ordinal in existing:
                continue
            node = observed.get(ordinal) or self.placed.get(f"{workload.key}/{ordinal}")
            if node is not None and node in self.silent:
                unknown[ordinal] = node
        return unknown

    @property
    def probed(self) -> tuple[Probed, ...]:
        """All probes by which replicas of the workload are judged, as containers."""
        return (self.workload.template.container, *self.earlier)

    def members(self) -> list[Belief]:
        """All containers of the workload but those that are kept and stopped."""
        if not (self.outgoing or self.surplus or self.waiting):
            return list(self.current.values())
        return [*self.current.values(), *self.outgoing, *self.surplus, *self.waiting]

    def of(self, revision: str) -> list[Belief]:
        """The replicas of one revision that have the traffic or may get it, by ordinal."""
        if revision == self.serving:
            return [self.current[ordinal] for ordinal in sorted(self.current)]
        return [
            belief for belief in self.waiting if belief.fact.mark is not None and belief.fact.mark.revision == revision
        ]


@dataclass(frozen=True, slots=True)
class Roster:
    """Every container: a group per workload, orphans, foreign ones by (node, name), and the containers of ours that do not run.

    `leaving`, `pending` and `released` are those of `adoption.Adoption`, `claimed` and `copies` those of `identity.Identity`. `renamed`
    are the replicas that an operator renamed, by (node, name). `shares` gives, for workloads whose revisions have a share
    of the traffic, the share of each (of 10,000) by the workload's name; None while it is not known. `unreadable_nodes` are all
    nodes whose runtime cannot be read. `asked` says of containers, by id, how they are judged and reached, where that is not simply
    as the manifest says; `selected` are their workloads' keys by the services that reach them. `placed` is the node of each
    replica; on `unread` nodes there may be replicas of which nothing is known.
    """

    groups: Mapping[str, Group]
    orphans: Sequence[ContainerFact]
    foreign: Mapping[tuple[str, str], ContainerFact]
    unreadable_nodes: tuple[str, ...]
    down: Sequence[tuple[Group, Belief]]
    leaving: frozenset[str] = frozenset()
    pending: Mapping[str, Sequence[str]] = field(default_factory=dict)
    claimed: Mapping[str, str] = field(default_factory=dict)
    copies: Sequence[ContainerFact] = ()
    renamed: Mapping[tuple[str, str], str] = field(default_factory=dict)
    released: Sequence[ContainerFact] = ()
    shares: Mapping[str, Mapping[str, int] | None] = field(default_factory=dict)
    asked: Mapping[str, Asked] = field(default_factory=dict)
    selected: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unseen: Unseen = NOTHING_UNSEEN
    placed: Mapping[str, str] = field(default_factory=dict)
    unread: Sequence[str] = ()

    def container_of(self, workload: Workload, fact: ContainerFact | None) -> Probed:
        """The container with the probes by which this one is judged; those of the manifest where they are not known any more."""
        asked = self.asked.get(fact.id) if fact is not None else None
        return workload.template.container if asked is None or asked.container is None else asked.container

    def grace_of(self, workload: Workload, fact: ContainerFact | None) -> int:
        """How long the container's pod may take to stop (ns)."""
        asked = self.asked.get(fact.id) if fact is not None else None
        return workload.template.grace if asked is None or asked.spec is None else asked.spec.grace

    def share(self, fact: ContainerFact) -> int | None:
        """The share of the container's revision, of 10,000: 10,000 where revisions have no shares, None while it is not known.

        Without a share a container gets no traffic, whatever it pushes.
        """
        mark = fact.mark
        if not self.shares or mark is None:
            return FULL
        return self.share_of(f"workload/{mark.workload}", mark.revision)

    def share_of(self, key: str, revision: str) -> int | None:
        """The share of a revision of a workload, by its key; as `share`."""
        name = key.removeprefix("workload/")
        if name not in self.shares:
            return FULL
        shares = self.shares[name]
        return None if shares is None else shares.get(revision, 0)


def nodes_in_use(group: Group, placed: Mapping[str, str]) -> list[str]:
    """The nodes that have containers of a workload or get one of its replicas, each once. It may use others, but does not now.

    `placed` is that of the roster.
    """
    workload = group.workload
    places = (placed.get(f"{workload.key}/{ordinal}") for ordinal in range(workload.replicas))
    nodes = dict.fromkeys(node for node in places if node is not None)
    nodes |= dict.fromkeys(belief.fact.node for belief in (*group.members(), *group.kept))
    return list(nodes)


def replica_name(workload: Workload, instance: str, ordinal: int) -> str:
    """The container name of a replica of the desired revision."""
    return container_name(Mark(instance, workload.name, ordinal, workload.template.revision))


def _order(belief: Belief) -> tuple[int, str, str]:
    mark = belief.fact.mark
    return (mark.ordinal if mark else -1, belief.fact.name, belief.fact.node)


def _channel(admitted: ForeignContainers, by_name: Mapping[str, Group], observed: Observed, now: Now) -> Channel:
    """The push channel, from the containers whose workload declares pushes."""
    sight, unseen = admitted.sight, admitted.unseen
    senders: list[tuple[Push, ContainerFact]] = []
    for facts in sight.runtimes.values():
        for fact in facts:
            group = by_name.get(fact.mark.workload) if fact.mark is not None else None
            if group is not None and group.workload.push is not None:
                senders.append((group.workload.push, fact))
    hidden: list[tuple[Push, PushFact]] = []
    for generation, push in observed.pushes.items() if unseen.containers else ():
        container = unseen.containers.get(generation.container_id)
        group = None if container is None else by_name.get(container.workload.removeprefix("workload/"))
        if group is not None and group.workload.push is not None:
            hidden.append((group.workload.push, push))
    return push_channel.of_containers(senders, observed.pushes, now.steady, hidden)


class _Stages(NamedTuple):
    """The roles of revisions of one workload, where revisions stand beside each other."""

    serving: str
    waiting: frozenset[str]
    kept: frozenset[str]
    coming: bool
    shares: Mapping[str, int] | None


def _stages(workload: Workload, rollout: Rollout | None, now: Now) -> _Stages:
    wanted = workload.template.revision
    if rollout is None:
        return _Stages(wanted, frozenset(), frozenset(), True, None)
    declared = rollout.of(wanted)
    serving = rollout.active or wanted
    waiting = {row.revision for row in rollout.rows if row.standing is Standing.SCHEDULED} | {rollout.back}
    kept = {row.revision for row in rollout.rows if keeps(row, workload.rollout.window, now)}
    coming = serving == wanted or (declared is not None and declared.standing is Standing.SCHEDULED)
    steps, shares = workload.rollout.steps, {serving: FULL}
    for row in rollout.rows:
        if row.opened is None or row.revision == serving:
            continue
        stepwise = workload.strategy is Strategy.CANARY and row.revision != rollout.back
        share = steps[row.step].share if stepwise and row.step < len(steps) else FULL
        shares[row.revision] = share
        if stepwise:
            shares[serving] = FULL - share if share < FULL else FULL
    return _Stages(serving, frozenset(waiting - {"", serving}), frozenset(kept - {serving}), coming, shares)


def _place(
    group: Group, belief: Belief, mark: Mark, stages: _Stages | None, grants: Container[str], placed: Mapping[str, str]
) -> None:
    """Add one container to the list of its role, by its revision, its ordinal and its node."""
    workload, fact = group.workload, belief.fact
    misplaced = mark.ordinal >= workload.replicas or fact.node != placed.get(f"{workload.key}/{mark.ordinal}")
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


def sort_containers(
    admitted: ForeignContainers,
    observed: Observed,
    ledger: Ledger,
    spec_of: Specs,
    places: Placement,
    now: Now,
) -> Roster:
    """The roster of every container that is observed. `spec_of` says by what each is judged, `places` where each replica belongs."""
    desired, sight = admitted.desired, admitted.sight
    containers, leaving = admitted.containers, admitted.leaving
    groups = {
        workload.key: Group(workload, serving=workload.template.revision)
        for workload in sorted(desired.workloads, key=attrgetter("key"))
    }
    stages = _all_stages(groups, ledger, now)
    by_name = {group.workload.name: group for group in groups.values()}
    orphans: list[ContainerFact] = []
    foreign: dict[tuple[str, str], ContainerFact] = {}
    renamed: dict[tuple[str, str], str] = {}
    down: list[tuple[Group, Belief]] = []
    running = ContainerState.RUNNING
    instance, probes, steady = desired.instance.id, observed.probes, now.steady
    asked: dict[str, Asked] = {}
    plain = {} if ledger.proven else {name: group.workload.template.revision for name, group in by_name.items()}
    for name in spec_of.changing:
        plain.pop(name, None)
    pushes, overriding = observed.pushes, ledger.overrides
    channel = _channel(admitted, by_name, observed, now) if pushes else NO_CHANNEL
    for facts in sight.runtimes.values():
        for fact in facts:
            mark = fact.mark
            if mark is None or mark.instance != instance:
                foreign[fact.node, fact.name] = fact
                continue
            if fact.claim is not None:
                renamed[fact.node, fact.name] = f"workload/{mark.workload}/{mark.ordinal}"
            group = by_name.get(mark.workload)
            if group is None:
                orphans.append(fact)
                continue
            workload = group.workload
            container = containers.get(fact.id) if containers else None
            verdicts, judged = probes, container
            if container is None:
                judged = workload.template.container
                own = None if plain.get(mark.workload) == mark.revision else spec_of.own(workload, fact)
                if own is not None:
                    asked[fact.id], judged = own, own.container
                    verdicts = _verdicts(own, fact, observed)
            belief = believe(fact, judged, verdicts, steady)
            if pushes and workload.push is not None:
                belief = precedence.apply_push(belief, pushes.get(fact.generation), workload.push, channel, now)
            if overriding:
                override = overrides.in_force(overriding, f"{workload.key}/{mark.ordinal}", now)
                belief = belief if override is None else precedence.apply_override(belief, override, now)
            if fact.state is not running:
                down.append((group, belief))
            if workload.restart_only:
                group.current[mark.ordinal] = belief
            elif fact.id in leaving:
                first_out = workload.strategy is Strategy.RECREATE
                (group.surplus if first_out else group.outgoing).append(belief)
            else:
                _place(group, belief, mark, stages.get(workload.name), ledger.grants, places.nodes)
    unreadable, unseen = sight.unknown_runtimes, admitted.unseen
    for group in groups.values():
        if unreadable:
            _add_unseen(group, unseen, places.nodes)
        if group.outgoing and group.workload.strategy not in STAGED:
            _end_failed_rollout(group, ledger)
        for beliefs in (group.outgoing, group.surplus, group.waiting, group.kept):
            if len(beliefs) > 1:
                beliefs.sort(key=_order)
        if asked:
            group.earlier = _earlier(group, asked)
    orphans.sort(key=lambda fact: (fact.name, fact.node))
    down.sort(key=lambda entry: (entry[1].fact.name, entry[1].fact.node))
    return Roster(
        groups,
        tuple(orphans),
        foreign,
        tuple(sorted(unreadable)),
        tuple(down),
        leaving=leaving,
        pending=admitted.pending,
        claimed=admitted.claimed,
        copies=admitted.copies,
        renamed=renamed,
        released=admitted.released,
        shares={name: of_workload.shares for name, of_workload in stages.items()},
        asked=asked,
        selected=_selected(groups, asked) if asked else {},
        unseen=unseen,
        placed=places.nodes,
        unread=tuple(places.unread),
    )


def _add_unseen(group: Group, unseen: Unseen, placed: Mapping[str, str]) -> None:
    """Add what the nodes that cannot be read may have of one workload."""
    workload = group.workload
    if workload.restart_only:
        return
    group.silent, group.placed = unseen.nodes, placed
    group.unseen = unseen.by_workload.get(workload.key, ())
    group.unlisted = any(node in workload.nodes for node in unseen.unlisted)
    group.unknown = group.find_unknown(group.serving)


def _verdicts(asked: Asked, fact: ContainerFact, observed: Observed) -> Mapping[Generation, Probes]:
    """The verdicts of a container; a trial that has just become its probe brings its own."""
    answers = observed.trials.get(fact.generation)
    if not answers or asked.container is None:
        return observed.probes
    verdicts = observed.probes.get(fact.generation, Probes())
    passed = {
        name: answer.fact
        for name, answer in answers.items()
        if name in specs.PROBES and answer.trial == getattr(asked.container, name)
    }
    return {fact.generation: verdicts._replace(**passed)} if passed else observed.probes


def _earlier(group: Group, asked: Mapping[str, Asked]) -> tuple[Probed, ...]:
    """The distinct probes, other than the manifest's, by which replicas of a workload are judged."""
    own = (asked.get(belief.fact.id) for belief in group.members())
    return tuple(dict.fromkeys(spec.container for spec in own if spec is not None and spec.container is not None))


def _selected(groups: Mapping[str, Group], asked: Mapping[str, Asked]) -> dict[str, list[str]]:
    """The workloads whose containers services reach as an earlier manifest says, by the service's key."""
    selected: dict[str, list[str]] = {}
    for key, group in groups.items():
        specs_of = (asked[belief.fact.id].spec for belief in group.members() if belief.fact.id in asked)
        for service in dict.fromkeys(name for spec in specs_of if spec is not None for name, _ in spec.services):
            selected.setdefault(service, []).append(key)
    return selected


def _end_failed_rollout(group: Group, ledger: Ledger) -> None:
    """A rolling rollout that failed creates and starts nothing more, and its containers that are down go, while enough others are up.

    Where too few are up, because old replicas were removed, the new ones are all there is, and are tried again and again.
    """
    rollout = ledger.rollouts.get(group.workload.key)
    row = rollout.of(group.workload.template.revision) if rollout is not None else None
    if row is None or row.standing is not Standing.FAILED:
        return
    old = sum(belief.fact.id not in ledger.grants for belief in group.outgoing)
    unknown = len(group.unseen_ordinals - group.current.keys())
    down = {ordinal: belief for ordinal, belief in group.current.items() if belief.fact.state in _DOWN}
    well = sum(ProbeValue.FAIL not in (belief.ready, belief.live) for belief in group.current.values())
    if old + well + unknown < group.workload.replicas:
        return
    group.coming = False
    if old + well < group.workload.replicas:
        return  # enough are up only if those on nodes that cannot be read are
    group.surplus += down.values()
    group.current = {ordinal: belief for ordinal, belief in group.current.items() if ordinal not in down}


def _all_stages(groups: Mapping[str, Group], ledger: Ledger, now: Now) -> dict[str, _Stages]:
    """The stages of every workload that has some, by its name; sets `serving` and `coming` of its group."""
    by_name: dict[str, _Stages] = {}
    for key, group in groups.items():
        workload = group.workload
        if workload.strategy in STAGED and not workload.restart_only:
            stages = by_name[workload.name] = _stages(workload, ledger.rollouts.get(key), now)
            group.serving, group.coming = stages.serving, stages.coming
    return by_name
