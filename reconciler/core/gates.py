"""Gates, the last stage before the plan: which candidates may go ahead now, and what holds the others.

A gate holds a difference, not a health fact, so a spent budget shows as a hold and never as silence. Gates see candidates only,
the longest-wanted first, so that none starves. A disruption passes the gates once: its grant then stands until it is over.
Called by `decide` only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from manifests.values.desired import SECOND, Workload
from manifests.values.limits import Approve, Held
from manifests.values.rollouts import STAGED, Strategy
from providers.facts import ContainerFact, ContainerState, ProbeValue
from reconciler.core.actions.steps import weight_id
from reconciler.core.dns.floors import NameFloors
from reconciler.core.exits.grants import REPLACED, UP, URGENT
from reconciler.core.healing import restart_counters, restart_gates
from reconciler.core.healing.restart_counters import RestartCounters
from reconciler.core.health import precedence
from reconciler.core.health.belief import Belief
from reconciler.core.limits import (
    approval_classes,
    approvals,
    backoff,
    pod_policy,
    prune_guard,
    secret_gate,
    suspensions,
    windows,
)
from reconciler.core.limits.prune_guard import Pruning
from reconciler.core.limits.suspensions import Subject
from reconciler.core.model.drift import Why
from reconciler.core.model.instant import FOREVER, Instant, instant, next_after
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Reason, Rule, Wait, Waiting
from reconciler.core.model.want import Kind, Want
from reconciler.core.replicas import availability, memory
from reconciler.core.replicas.roster import Group
from reconciler.core.rollouts import replacement
from reconciler.core.traffic.weights import DeadMember

STARTS_PER_NODE = 4
"""Containers started at the same time on a node; more gains nothing on common engines and starves what runs."""


_ROLLOUT = frozenset(
    {
        Reason.TEMPLATE_CHANGED,
        Reason.REVISION_FAILED,
        Reason.SECRET_CHANGED,
        Reason.SETTINGS_CHANGED,
        Reason.FILES_CHANGED,
        Reason.SURPLUS,
        Reason.NODE_CHANGED,
    }
)
"""Causes of planned changes, which a window may keep out of some hours. Where the manifests did not move, they are drift."""

_DRIFT = frozenset({Reason.SETTINGS_CHANGED, Reason.SURPLUS, Reason.NODE_CHANGED, Reason.IMAGE_REPLACED})
"""Causes of corrections that a window may hold. The others bring back what runs, or what lets it run."""


@dataclass(slots=True)
class Gated:
    """The candidates that passed, the holds and the waits. Filled while this stage runs, read-only after it."""

    ledger: Ledger
    creates: list[Want] = field(default_factory=list)
    starts: list[Want] = field(default_factory=list)
    updates: list[Want] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    granted: bool = False


class _Members(NamedTuple):
    """The containers of a workload by (node, id), and the ids of the outgoing ones."""

    beliefs: Mapping[tuple[str, str], Belief]
    outgoing: frozenset[str]


class _Gate:
    """The counters of one decision while its candidates pass in order."""

    def __init__(
        self,
        counters: RestartCounters,
        pruning: Pruning,
        dead: Mapping[str, Sequence[DeadMember]],
        failing_checks: Mapping[str, bool],
        name_floors: NameFloors,
    ) -> None:
        self.counters, self.pruning, self.dead = counters, pruning, dead
        self.failing_checks, self.leaving = failing_checks, counters.ledger.grants
        self.name_floors = name_floors
        self.desired, self.roster, self.counts, self.now = (
            counters.snap.desired,
            counters.snap.roster,
            counters.counts,
            counters.snap.now,
        )
        self.started: dict[str, int] = {}
        self.created: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        self.members: dict[str, _Members] = {}
        self.out = Gated(counters.ledger)

    def members_of(self, key: str) -> _Members:
        """The containers of a workload, which stay the same while candidates pass."""
        known = self.members.get(key)
        if known is None:
            group = self.roster.groups[key]
            beliefs = {(member.fact.node, member.fact.id): member for member in group.members()}
            known = self.members[key] = _Members(beliefs, frozenset(belief.fact.id for belief in group.outgoing))
        return known

    def without_traffic(self, workload: Workload, leaving: ContainerFact | None) -> int:
        """How many of the other available replicas fail a balancer's own checks, or have not passed them yet."""
        if not self.failing_checks:
            return 0
        others = [belief for belief in self.members_of(workload.key).beliefs.values() if belief.fact is not leaving]
        failing = [belief for belief in others if belief.fact.id in self.failing_checks]
        available = [
            belief for belief in failing if availability.available_at(belief, workload.min_ready) <= self.now.steady
        ]
        return sum(
            1 for belief in available if belief.fact.id not in self.leaving and self.roster.share(belief.fact) != 0
        )

    # one method per kind of candidate: each holds, or lets pass

    def create(self, want: Want, workload: Workload) -> Hold | Wait | None:
        group = self.roster.groups[workload.key]
        overdue = 0
        if workload.push is not None and group.outgoing:
            overdue_at = [precedence.overdue_at(belief, workload.push) for belief in group.current.values()]
            overdue = sum(at <= self.now.steady for at in overdue_at)
        message = replacement.may_create(group, self.counts[workload.key], self.created.get(workload.key, 0), overdue)
        if message:
            return Wait(want.object, Waiting.REPLACEMENT, message)
        self.created[workload.key] = self.created.get(workload.key, 0) + 1
        self.out.creates.append(want)
        return None

    def start(self, want: Want, workload: Workload) -> Hold | Wait | None:
        fact = want.fact
        message = replacement.may_start(self.roster.groups[workload.key], fact)
        if message:
            return Wait(want.object, Waiting.REPLACEMENT, message)
        dead = self.dead_address(fact) if self.dead else ""
        if dead:
            message = f"a pool still sends traffic to {dead}, where no container runs"
            return Wait(want.object, Waiting.DEAD_ENDPOINT, message)
        key = want.object if fact is None else memory.failures_of(self.roster.groups[workload.key], fact)
        failures = self.counters.ledger.failures.get(key)
        at = backoff.start_at(key, failures, workload.restarts.backoff, self.now)
        if at > self.now.steady and failures is not None:
            message = f"{want.container} failed {restart_counters.in_a_row(failures.streak)}"
            return Hold(want.object, want.id, Rule.BACK_OFF, message, until=at, held=want.held)
        return None

    def dead_address(self, fact: ContainerFact | None) -> str:
        """An address that still gets traffic, meant for another container, and that this one may get; empty if there is none.

        Engines give a stopped container's address to the next one that starts: without an own address it may get any dead one.
        A container that is started again where its own member is takes nothing from another one. It waits for weight 0 as well, but
        not for a pool that cannot be written: with its member dead, that would only lengthen the outage. The same holds for members
        of other replicas of its revision, which are meant for the same program.
        """
        own = fact.address if fact is not None else ""
        reachable = sorted(self.dead) if not own else [own] if own in self.dead else []
        members = [(address, member) for address in reachable for member in self.dead[address]]
        if fact is None or not any(member.container == fact.id for _, member in members):
            return next(iter(reachable), "")
        revision = ("", "") if fact.mark is None else (fact.mark.workload, fact.mark.revision)
        for address, member in members:
            same = member.container == fact.id or (member.container and member.revision == revision != ("", ""))
            if not (same and self.stays(member)):
                return address
        return ""

    def stays(self, member: DeadMember) -> bool:
        """Whether the weight of a dead member stays for now: its last write failed, or an operator suspended it."""
        ledger, identity = self.counters.ledger, weight_id(member.provider, member.pool, member.endpoint)
        return identity in ledger.step_failures or bool(
            suspensions.suspended_document(self.desired, ledger, member.object, identity, self.now)
        )

    def concurrency(self, want: Want) -> Hold | None:
        failure = self.counters.ledger.step_failures.get(want.id)
        if failure is not None and backoff.step_at(want.id, failure, self.now) > self.now.steady:
            # Its next try is held anyway, so it takes no room from containers that can start.
            return None
        count = self.started.get(want.node, 0)
        if count >= STARTS_PER_NODE:
            message = f"{count} containers are already starting on {want.node} (limit: {STARTS_PER_NODE})"
            retry = next_after(0, SECOND, self.now)
            return Hold(want.object, want.id, Rule.START_CONCURRENCY, message, until=retry, held=want.held)
        self.started[want.node] = count + 1
        return None

    def restart(self, want: Want, workload: Workload) -> Hold | Wait | None:
        """A restart or a recreation: for failed health, after a drain that does not end, or because the operator requested it."""
        if want.cause in URGENT:
            return restart_gates.heal(want, workload, self.counters)
        hold = restart_gates.limit(want, workload, self.counters) if want.cause is Reason.DRAIN_DEADLINE else None
        return hold or self.retire(want, workload)

    def lost(self, group: Group) -> set[str]:
        """Containers by id that run and are not leaving yet, and of which nothing is known because their revision's spec is lost."""
        asked, grants = self.roster.asked, self.counters.ledger.grants
        return {
            belief.fact.id
            for belief in (group.outgoing if asked else ())
            if belief.fact.state in UP
            and belief.fact.id not in grants
            and belief.ready is ProbeValue.UNKNOWN
            and belief.fact.id in asked
            and asked[belief.fact.id].container is None
        }

    def retire(self, want: Want, workload: Workload) -> Hold | Wait | None:
        group, counts = self.roster.groups[workload.key], self.counts[workload.key]
        if want.kind is Kind.RECREATE and want.fact is not None and want.fact.state is ContainerState.PAUSED:
            # A grant would end at once, and be requested again at every look.
            message = f"{want.container} is paused; it will be recreated after it is unpaused"
            return Wait(want.object, Waiting.READY, message)
        if want.cause is Reason.VOLUME_IN_USE:
            self.counters.grant(want)  # two that write to one volume are worse than one replica less
            return None
        prefix = f"{workload.key}/"
        members = self.members_of(workload.key)
        belief = None if want.fact is None else members.beliefs.get((want.fact.node, want.fact.id))
        serves = want.fact is None or self.roster.share(want.fact) != 0
        available = (
            serves and belief is not None and availability.available_at(belief, workload.min_ready) <= self.now.steady
        )
        # The balancer's own checks fail: clients lose nothing when it goes.
        spare = want.fact is not None and self.failing_checks.get(want.fact.id, False)
        unknown = serves and want.ready is ProbeValue.UNKNOWN
        message = ""
        never_ran = want.fact is not None and want.fact.state is ContainerState.CREATED
        if want.kind is Kind.RETIRE and want.cause is not Reason.REVISION_FAILED and not never_ran:
            retiring = sum(1 for name in self.counters.ledger.grants if name in members.outgoing)
            message = replacement.replaced(group, counts, retiring)
        if want.kind is Kind.RECREATE and want.cause in REPLACED and want.ordinal not in group.current:
            message = f"{want.container} stays until its replacement has been created"
        beside = workload.strategy is not Strategy.RECREATE
        if want.kind is Kind.RETIRE and want.cause is Reason.NODE_CHANGED and beside and (available or unknown):
            successor = group.current.get(want.ordinal)
            arrives = FOREVER if successor is None else availability.available_at(successor, workload.min_ready)
            if arrives > self.now.steady:
                message = f"{want.container} stays until its replacement is available"
        if message:
            return Wait(want.object, Waiting.REPLACEMENT, message)
        if want.kind is Kind.RETIRE and (lost := self.lost(group)):
            # Nothing is known of these, and each leaves only when an available one takes its place: they count as what they may be.
            counts = counts._replace(total=counts.total + len(lost))
            available = available or (want.fact is not None and want.fact.id in lost)
        taken = self.taken.get(workload.key, 0)
        message = replacement.over_budget(group, counts, available, unknown, taken)
        dark = self.without_traffic(workload, want.fact)
        if (
            not message
            and dark
            and not spare
            and replacement.over_budget(group, counts, available, unknown, taken + dark)
        ):
            replicas = f"{dark} of {counts.total} available replicas of {workload.key}"
            message = f"{replicas} do not count: the balancer's own checks fail or have not passed yet"
            return Wait(want.object, Waiting.BALANCER, message)
        if message:
            until = counts.until if counts.until < FOREVER else None
            next_step = f"bring replicas of {workload.key} back, or raise its availability.maxUnavailable"
            if belief is not None and belief.reason is Reason.SPEC_LOST:
                message = (
                    f"{message}; the probes of {want.container} are not known any more, because the ledger was lost"
                )
            return Hold(want.object, want.id, Rule.BUDGET, message, until=until, next_step=next_step, held=want.held)
        limit = max(1, workload.max_unavailable)
        # An unavailable container may still serve (a last member, a doubted probe): if it runs and comes back, it counts
        # against the budget too. An unavailable container that is replaced has an available one in its place already.
        runs = want.fact is not None and want.fact.state in UP
        counted = available or unknown or (runs and want.kind is not Kind.RETIRE)
        grants = self.counters.open_grants(prefix)
        if not (available or unknown):
            # Its replica may be out of service already: the container of a corrected revision takes nothing more from it.
            grants = [grant for grant in grants if grant.object != want.object]
        if counted and len(grants) >= limit:
            message = f"{workload.key} allows {limit} disruption{'' if limit == 1 else 's'} at a time"
            return Wait(want.object, Waiting.REPLACEMENT, message, self.counters.unseen_until(prefix))
        answer = self.name_floors.keep(want, workload, self.counters.ledger.grants) or self.unreviewed(want)
        if answer is not None:
            return answer
        if serves and belief is not None and availability.may_serve(belief):
            answer = self.downtime(want, workload, counts.total - taken - (1 if available else 0))
        if answer is not None:
            return answer
        if available:
            self.taken[workload.key] = self.taken.get(workload.key, 0) + 1
        self.counters.grant(want)
        return None

    def prune(self, want: Want) -> Hold | Wait | None:
        key = want.object.rpartition("/")[0]
        hold = prune_guard.hold(
            self.desired, self.counters.ledger, self.pruning, key, want.id, approvals.container(want.fact), self.now
        )
        hold = hold or self.unreviewed(want)
        if hold is None:
            self.counters.grant(want)
        return hold

    def unreviewed(self, want: Want) -> Hold | None:
        """The hold of a planned end of a container that no operator has approved, or that the saved plan does not have."""
        if want.fact is None or want.cause not in approval_classes.PLANNED or self.desired.destroy:
            return None
        return approval_classes.hold(
            self.desired,
            self.pruning.classes,
            self.pruning.approvals,
            approval_classes.container(want.fact),
            want.object,
            want.id,
            item=approvals.container(want.fact),
            held=want.held,
        )

    def downtime(self, want: Want, workload: Workload, left: int) -> Wait | None:
        """The wait of a replica that the Guard keeps until another one is available; `left` are available without it.

        Only one that is alone at the beginning of a decision needs an approval: here the others leave first, and come back.
        """
        subject = () if want.fact is None else approval_classes.container(want.fact)
        guarded = Approve.DOWNTIME in self.desired.guard.approve and want.cause in approval_classes.REPLACED
        if left > 0 or not guarded or want.kind is not Kind.RECREATE or subject in self.pruning.classes.changes:
            return None
        message = f"{want.container} stays until another replica of {workload.key} is available again"
        return Wait(want.object, Waiting.REPLACEMENT, message)

    def privileged(self, want: Want, workload: Workload) -> Hold | None:
        """The hold of a container with new privileges. A replica whose old container was already given up gets its new one."""
        subject = approval_classes.revision(workload.key, workload.template.revision)
        if want.kind is not Kind.CREATE or subject not in self.pruning.classes.changes:
            return None
        if any(grant.object == want.object for grant in self.counters.ledger.grants.values()):
            return None
        return approval_classes.hold(
            self.desired,
            self.pruning.classes,
            self.pruning.approvals,
            subject,
            workload.key,
            f"create replicas of revision {workload.template.revision[:8]}",
            held=want.held,
        )

    def held(self, want: Want) -> Held | None:
        """What a window must name to hold this candidate; None when no window holds it."""
        workload = want.workload
        if want.cause in URGENT or want.cause is Reason.DRAIN_DEADLINE:
            return Held.HEAL
        if want.why is Why.DRIFT and want.cause in _DRIFT:
            return Held.DRIFT
        if want.cause in _ROLLOUT:
            return Held.ROLLOUT
        if want.kind is Kind.CREATE and workload is not None and self.roster.groups[workload.key].outgoing:
            return None if workload.strategy in STAGED else Held.ROLLOUT
        return Held.PRUNE if workload is None else None

    def begun(self, want: Want) -> bool:
        """Whether a candidate carries on a rollout that has begun: a window that opens then lets it end, like an open activation."""
        workload = want.workload
        if workload is None or not (want.kind is Kind.CREATE or want.cause is Reason.TEMPLATE_CHANGED):
            return False
        group = self.roster.groups[workload.key]
        return workload.strategy not in STAGED and bool(group.outgoing) and bool(group.current)

    def overrides(self, want: Want) -> list[Hold]:
        """Everything by which operators stop this candidate: suspensions, the deny list and open windows. All of them."""
        if self.desired.destroy:
            return []
        workload, key = want.workload, want.object.rpartition("/")[0]
        heals = want.why is not Why.CHANGE and workload is not None
        subject = Subject(key, want.object, want.node, workload is not None and workload.suspend, heals)
        holds = suspensions.suspended(self.desired, self.counters.ledger, subject, want.id, self.now, want.held)
        held = self.held(want) if self.desired.guard.windows else None
        if held is not None and not (held is Held.ROLLOUT and self.begun(want)):
            holds += windows.holds(self.desired, held, want.object, want.id, self.now, want.held)
        restarts = want.kind in (Kind.RESTART, Kind.RECREATE) and want.cause in URGENT
        if holds and restarts and workload is not None and all(hold.until is not None for hold in holds):
            # Nothing happens when all of these have ended, if a rule holds the restart for good.
            lasting = restart_gates.lasting(want, workload, self.counters)
            holds += [] if lasting is None else [lasting]
        return holds

    def ask(self, want: Want) -> Hold | Wait | None:
        """All gates of one candidate that no operator stops, in order."""
        workload = want.workload
        if workload is None:
            return self.prune(want)
        declared = self.roster.groups[workload.key].workload
        forbidden = pod_policy.hold(want, declared, self.desired, self.counters.ledger.grants.values())
        forbidden = forbidden or self.privileged(want, workload)
        if forbidden is not None:
            return forbidden
        if want.kind is not Kind.RECREATE or want.cause not in REPLACED:
            unusable = secret_gate.hold(want, self.counters.snap.observed.secrets, self.now)
            if unusable is not None:
                return unusable
        match want.kind:
            case Kind.CREATE:
                return self.create(want, workload)
            case Kind.START:
                answer = self.start(want, workload) or self.concurrency(want)
                if answer is None:
                    self.out.starts.append(want)
                return answer
            case Kind.UPDATE:
                self.out.updates.append(want)
                return None
            case Kind.RESTART | Kind.RECREATE:
                return self.restart(want, workload)
            case Kind.RETIRE:
                return self.retire(want, workload)


def _first_wanted(wants: Iterable[Want], wanted: Mapping[str, Instant]) -> Mapping[str, int]:
    """Since when (wall ns) a container of each workload is to leave for another revision."""
    first: dict[str, int] = {}
    for want in wants:
        if want.cause is Reason.TEMPLATE_CHANGED and want.workload is not None:
            at = wanted[want.id].wall
            first[want.workload.key] = min(first.get(want.workload.key, at), at)
    return first


def _since(want: Want, wanted: Mapping[str, Instant], first: Mapping[str, int]) -> int:
    """The age of a candidate (wall ns since the epoch): containers that leave for another revision are equals, whatever their own age.

    Else a newer revision, which corrects one that is stuck, would first take replicas that serve, and last those that are stuck.
    """
    if want.cause is Reason.TEMPLATE_CHANGED and want.workload is not None:
        return first[want.workload.key]
    return wanted[want.id].wall


def ask(
    counters: RestartCounters,
    wants: Sequence[Want],
    pruning: Pruning,
    dead: Mapping[str, Sequence[DeadMember]],
    failing_checks: Mapping[str, bool],
    name_floors: NameFloors,
) -> Gated:
    """Ask every candidate, the longest-wanted first, then by id.

    Args:
        dead: members with weight where no container of this instance runs, by address.
        failing_checks: containers by id that fail balancers' own checks (True) or have not passed them yet (False).
        name_floors: how many published addresses each name keeps.
    """
    since, now = counters.ledger.wanted, counters.snap.now
    wanted = {want.id: since[want.id] if want.id in since else instant(now) for want in wants}
    gates = _Gate(counters, pruning, dead, failing_checks, name_floors)
    first = _first_wanted(wants, wanted)
    # Unavailable containers go first among equals: their disruption costs nothing.
    for want in sorted(wants, key=lambda want: (_since(want, wanted, first), want.ready is ProbeValue.PASS, want.id)):
        stopped = gates.overrides(want)
        if stopped:
            gates.out.holds.extend(stopped)
            continue
        answer = gates.ask(want)
        if isinstance(answer, Hold):
            gates.out.holds.append(answer)
        elif answer is not None:
            gates.out.waits.append(answer)
    out, ledger = gates.out, counters.ledger
    out.starts = [want for want in out.starts if want.fact is None or want.fact.id not in ledger.grants]
    out.ledger = ledger if wanted == since else replace(ledger, wanted=wanted)
    out.granted = counters.granted
    return out
