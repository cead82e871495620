"""Exclusive volumes: a container starts only when no other one with its volume runs, or may run where it cannot be seen.

A replica that moves has containers on two nodes for a while, and nodes may share a path (NFS, or two runtimes on one host). So the
containers of one replica exclude each other wherever they are; those of other replicas, of other workloads and of other owners do on the
same node. `actions/outbox` asks `Starts` for every start, whichever rule wants it; `differences` asks `unseen` before a create and
`doubled` for two that run; `replicas/memory` keeps with `declared` what must be known of containers that cannot be seen.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from manifests.values.desired import Desired, Workload
from providers.actions import StartContainer
from providers.facts import ContainerFact, ContainerState, ExitCause, Mark
from reconciler.core.exits.grants import RESTARTS, UP
from reconciler.core.health.belief import Belief
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.reasons import Act, HeldAction, Hold, Rule, Wait, Waiting
from reconciler.core.model.step import Step
from reconciler.core.replicas import claims
from reconciler.core.replicas.claims import Claims
from reconciler.core.replicas.placement import make_readable
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot


def declared(desired: Desired) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """The declared revision and the exclusive volumes of workloads that have some, by the workload's name."""
    of_workload = ((workload, claims.of_workload(workload).volumes) for workload in desired.workloads)
    return {
        workload.name: (workload.template.revision, tuple(sorted(volumes)))
        for workload, volumes in of_workload
        if volumes
    }


def unseen(snap: Snapshot, workload: Workload, replica: str) -> Hold | None:
    """The hold of a replica with an exclusive volume while a container of it may run on a node that cannot be read."""
    if not snap.roster.unreadable_nodes or not claims.of_workload(workload).volumes:
        return None
    volume = min(claims.of_workload(workload).volumes)
    nodes = sorted(_silent(snap, replica).union(snap.roster.unread))
    return _unseen(replica, f"create {replica}", nodes, volume, HeldAction(Act.CREATE)) if nodes else None


def _silent(snap: Snapshot, replica: str) -> frozenset[str]:
    """The nodes that cannot be read and that had a container of this replica."""
    silent = snap.sight.unknown_runtimes
    rows = snap.observed.ledger.owned.values() if silent else ()
    return frozenset(row.node for row in rows if row.node in silent and row.replica == replica)


def _unseen(obj: str, action: str, nodes: list[str], volume: str, held: HeldAction) -> Hold:
    names = ", ".join(nodes)
    message = f"a container of {obj} may still run on node {names}, which cannot be read, and only one container may have volume {volume}"
    gone = ", ".join(f"provider/{node}" for node in nodes)
    next_step = f"{make_readable(nodes)}; if the host is off for good, remove {gone} from the manifests"
    return Hold(obj, action, Rule.VOLUME_IN_USE, message, next_step=next_step, held=held)


def doubled(group: Group, belief: Belief) -> ContainerFact | None:
    """The container at its place that runs with the exclusive volume of this one, which runs too and is not at its place."""
    fact, mark = belief.fact, belief.fact.mark
    if mark is None or fact.state not in UP or not claims.of_workload(group.workload).volumes:
        return None
    at_place = (current.fact for current in group.current.values() if current.fact.state in UP)
    return next(
        (
            other
            for other in at_place
            if other.id != fact.id
            and other.mark is not None
            and (other.mark.ordinal == mark.ordinal or other.node == fact.node)
        ),
        None,
    )


class _Role(IntEnum):
    """What a container is for. One that is down and that its runtime may start holds only those before it."""

    CURRENT = 0
    WAITING = 1
    OUTGOING = 2
    SURPLUS = 3
    ORPHAN = 4
    FOREIGN = 5


class _User(NamedTuple):
    """A container with volumes, and the key of its replica."""

    fact: ContainerFact
    replica: str
    claims: Claims
    role: _Role


class Starts:
    """The starts of one decision: each is asked for once, and those that go ahead count for the next ones."""

    def __init__(self, snap: Snapshot, grants: Mapping[str, Grant]) -> None:
        self.snap, self.grants = snap, grants
        self.ledger: Ledger = snap.observed.ledger
        self.calls = snap.observed.busy | snap.observed.under_way
        self.begun: list[_User] = []

    def ask(self, step: Step, action: StartContainer) -> Hold | Wait | None:
        """What prevents this start; None when it may go ahead."""
        user = self._users.get((action.node, action.expect.container_id))
        if user is None or not (user.claims.volumes or user.claims.written):
            return None
        held = HeldAction(Act.START, (user.fact.id,))
        if user.claims.volumes and (hidden := self._hidden(user)):
            return _unseen(step.object, step.id, hidden, min(user.claims.volumes), held)
        for other in self._others(user):
            if self._runs(user, other):
                return self._held(step, user, other, held)
        for other in self.begun:
            if _excludes(user, other):
                return Wait(step.object, Waiting.REPLACEMENT, f"{other.fact.name} on {other.fact.node} starts first")
        self.begun.append(user)
        return None

    def _hidden(self, user: _User) -> list[str]:
        """Nodes that cannot be read and where a container of this replica may run."""
        nodes = _silent(self.snap, user.replica)
        fact = user.fact
        if fact.state is ContainerState.CREATED or fact.exit_cause is ExitCause.STOPPED_BY_US:
            nodes = nodes.union(self.snap.roster.unread)  # it may have been on its way from there, or to there
        return sorted(nodes)

    def _others(self, user: _User) -> Iterator[_User]:
        for other in self._users.values():
            if _excludes(user, other):
                yield other
        for fact in self._mounting.get(user.fact.node, ()):
            assert fact.setup is not None  # noqa: S101  (`_mounting`; for the type checker)
            sources = frozenset(mount.source for mount in fact.setup.mounts if mount.source and not mount.read_only)
            other = _User(fact, "", Claims(written=sources), _Role.FOREIGN)
            if claims.shares_volume(user.claims, other.claims):
                yield other

    def _runs(self, user: _User, other: _User) -> bool:
        """Whether the other container runs, or may: a call on it is under way, its restart goes on, or its runtime may start it."""
        fact, grant = other.fact, self.grants.get(other.fact.id)
        if fact.state in UP or fact.name in self.calls:
            return True
        mine = self.grants.get(user.fact.id)
        if grant is not None and grant.cause in RESTARTS and not grant.recreate:
            return mine is None or mine.cause not in RESTARTS
        if other.role <= user.role or fact.state is not ContainerState.EXITED:
            return False
        revives = any(settings.restart not in ("", "no") for settings in fact.live)
        return revives and fact.exit_cause is not ExitCause.STOPPED_BY_US

    def _held(self, step: Step, user: _User, other: _User, held: HeldAction) -> Hold | Wait:
        fact = other.fact
        shared = (
            user.claims.volumes & (other.claims.volumes | other.claims.written)
            or other.claims.volumes & user.claims.written
        )
        runs = "runs" if fact.state in UP else "may be started"
        message = f"{fact.name} on {fact.node} {runs}, and only one container may have volume {min(shared)}"
        leaves = other.role is not _Role.FOREIGN and fact.id not in self.snap.roster.leaving
        if (
            leaves
            and other.role is not _Role.ORPHAN
            and other.replica.rpartition("/")[0] == user.replica.rpartition("/")[0]
        ):
            return Wait(step.object, Waiting.REPLACEMENT, message)
        next_step = (
            f"stop {fact.name} on {fact.node} for good, or give {user.replica.rpartition('/')[0]} another volume"
        )
        if other.role is _Role.ORPHAN:
            next_step = f"remove {fact.name} on {fact.node}, or let reconcile remove it: reconcile apply --prune"
        return Hold(step.object, step.id, Rule.VOLUME_IN_USE, message, next_step=next_step, held=held)

    # --- all containers with volumes ------------------------------------------------------------------------------------

    @cached_property
    def _users(self) -> Mapping[tuple[str, str], _User]:
        """The containers of this instance by (node, id), as far as volumes exclude any; empty where no volume is exclusive."""
        rows = self.ledger.owned
        if not declared(self.snap.desired) and not any(row.volumes for row in rows.values()):
            return {}
        return {(user.fact.node, user.fact.id): user for user in self._all()}

    def _all(self) -> Iterator[_User]:
        roster = self.snap.roster
        for group in roster.groups.values():
            if group.workload.restart_only:
                continue
            template = claims.of_template(group.workload.template)
            for belief, role in _members(group):
                yield self._user(belief.fact, belief.fact.mark, template, role)
        for fact in roster.orphans:
            yield self._user(fact, fact.mark, claims.NOTHING, _Role.ORPHAN)
        for fact in roster.foreign.values():
            replica = "" if fact.claim is None else _replica(fact.claim)
            if replica in roster.claimed:
                key = replica.rpartition("/")[0]
                group_of = roster.groups.get(key)
                template = claims.NOTHING if group_of is None else claims.of_template(group_of.workload.template)
                yield self._user(fact, fact.claim, template, _Role.FOREIGN)

    def _user(self, fact: ContainerFact, mark: Mark | None, template: Claims, role: _Role) -> _User:
        """A container with the volumes of its workload, and those that it had when its own revision was declared."""
        row = self.ledger.owned.get(fact.id)
        if row is not None and row.volumes:
            template = template._replace(volumes=template.volumes.union(row.volumes))
        return _User(fact, "" if mark is None else _replica(mark), template, role)

    @cached_property
    def _mounting(self) -> Mapping[str, list[ContainerFact]]:
        """Containers of other owners that mount volumes, by node."""
        by_node: dict[str, list[ContainerFact]] = {}
        for fact in sorted(self.snap.roster.foreign.values(), key=lambda fact: (fact.node, fact.name)):
            if fact.setup is not None and fact.setup.mounts and fact.state in UP:
                by_node.setdefault(fact.node, []).append(fact)
        return by_node


def _members(group: Group) -> Iterator[tuple[Belief, _Role]]:
    roles = (
        (group.current.values(), _Role.CURRENT),
        (group.waiting, _Role.WAITING),
        (group.outgoing, _Role.OUTGOING),
        (group.surplus, _Role.SURPLUS),
        (group.kept, _Role.SURPLUS),
    )
    return ((belief, role) for beliefs, role in roles for belief in beliefs)


def _replica(mark: Mark) -> str:
    return f"workload/{mark.workload}/{mark.ordinal}"


def _excludes(user: _User, other: _User) -> bool:
    """Whether only one of two containers may run: of one replica anywhere, of others on the same node."""
    if other.fact.id == user.fact.id and other.fact.node == user.fact.node:
        return False
    near = other.fact.node == user.fact.node or (other.replica == user.replica != "")
    return near and claims.shares_volume(user.claims, other.claims)
