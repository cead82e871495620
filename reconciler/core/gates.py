"""Gates, the last stage before the plan: which candidates may go ahead now, and what holds the others.

A gate holds a difference, not a health fact, so a spent budget shows as a hold and never as silence. Gates see candidates only,
the longest-wanted first, so that nobody starves. A disruption is asked for once: its grant then stands until it is over.
Called by `decide` only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from manifests.desired import SECOND, Desired, Workload
from providers.facts import ProbeValue
from reconciler.core import restarts, rollout
from reconciler.core.activation import Roster
from reconciler.core.availability import Availability, ripe_at
from reconciler.core.diff import Kind, Want
from reconciler.core.disruption import DEADLINE, RESTARTS, in_flight
from reconciler.core.guard import Pruning, prune_hold
from reconciler.core.history import amnesia, failures_of
from reconciler.core.instant import FOREVER, Now, due, instant, next_after
from reconciler.core.ledger import Failures, Grant, Ledger
from reconciler.core.switches import suspended
from reconciler.core.trust import Belief
from reconciler.core.verdict import Hold, Rule, Wait, Waiting

STARTS_PER_NODE = 4
"""Containers started at the same time on a node; more gains nothing on common engines and starves what runs."""


@dataclass(slots=True)
class Gated:
    """What came through. Filled while this stage runs, read-only after it."""

    creates: list[Want] = field(default_factory=list)
    starts: list[Want] = field(default_factory=list)
    updates: list[Want] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    granted: bool = False


class _Gate:
    """The counters of one decision while its candidates pass in order."""

    def __init__(
        self,
        desired: Desired,
        crew: Roster,
        counts: Mapping[str, Availability],
        ledger: Ledger,
        pruning: Pruning,
        read_at: int,
        dead: set[str],
        now: Now,
    ) -> None:
        self.desired, self.crew, self.counts, self.now = desired, crew, counts, now
        self.pruning, self.read_at, self.dead = pruning, read_at, dead
        self.grants: dict[str, Grant] = dict(ledger.grants)
        self.attempts = dict(ledger.attempts)
        self.failures: dict[str, Failures] = dict(ledger.failures)
        self.ledger = ledger
        self.started: dict[str, int] = {}
        self.created: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        self.out = Gated()

    # one method per kind of candidate: each holds, or lets pass

    def create(self, want: Want, workload: Workload) -> Hold | Wait | None:
        group = self.crew.groups[workload.key]
        message = rollout.may_create(group, self.counts[workload.key], want.ordinal, self.created.get(workload.key, 0))
        if message:
            return Wait(want.object, Waiting.REPLACEMENT, message)
        self.created[workload.key] = self.created.get(workload.key, 0) + 1
        self.out.creates.append(want)
        return None

    def start(self, want: Want, workload: Workload) -> Hold | Wait | None:
        fact = want.fact
        address = fact.address if fact is not None else ""
        # Engines give a stopped container's address to whoever starts next: without an own address any dead one may be it.
        dead = sorted(self.dead) if not address else sorted(self.dead & {address})
        if dead:
            message = f"a pool still sends traffic to {dead[0]}, where nothing lives"
            return Wait(want.object, Waiting.DEAD_ENDPOINT, message)
        key = want.object if fact is None else failures_of(self.crew.groups[workload.key], fact)
        failures = self.failures.get(key)
        at = restarts.start_at(key, failures, workload.restarts.backoff, self.now)
        if at > self.now.steady and failures is not None:
            message = f"{failures.streak} failures in a row"
            return Hold(want.object, want.id, Rule.BACK_OFF, message, until=at)
        return None

    def concurrency(self, want: Want) -> Hold | None:
        failure = self.ledger.step_failures.get(want.id)
        if failure is not None and restarts.step_at(want.id, failure, self.now) > self.now.steady:
            # Its next try is held anyway, so it takes no room from those that can start.
            return None
        count = self.started.get(want.node, 0)
        if count >= STARTS_PER_NODE:
            message = f"{count} containers are being started on {want.node}"
            return Hold(want.object, want.id, Rule.START_CONCURRENCY, message, until=next_after(0, SECOND, self.now))
        self.started[want.node] = count + 1
        return None

    def restart(self, want: Want, workload: Workload) -> Hold | Wait | None:
        now, ledger = self.now, self.ledger
        if ledger.amnesic is not None:
            until = due(ledger.amnesic, amnesia(self.desired), now)
            message = "the ledger was lost, so how often this was restarted lately is not known"
            return Hold(want.object, want.id, Rule.AMNESIC, message, until=until)
        prefix = f"{workload.key}/"
        # Only restarts: a planned exit may be held for as long as a person likes, and this replica serves nobody meanwhile.
        mine = sorted(
            grant for grant in self.grants.values() if grant.cause in RESTARTS and grant.object.startswith(prefix)
        )
        if mine:
            until = min(due(grant.at, DEADLINE, now) for grant in mine)
            message = f"{mine[0].object} is being restarted ({mine[0].cause.value}), one at a time"
            return Hold(want.object, want.id, Rule.IN_FLIGHT, message, until=max(until, now.steady + 1))
        failures = self.failures.get(want.object)
        backoff = workload.restarts.backoff
        at = restarts.restart_at(want.object, failures, backoff, now)
        if at > now.steady and failures is not None:
            message = f"{failures.streak} failures in a row"
            return Hold(want.object, want.id, Rule.BACK_OFF, message, until=at)
        rule = workload.restarts
        attempts = self.attempts.get(want.object, ())
        at = restarts.attempts_left_at(attempts, rule.limit, rule.window, now)
        if at > now.steady:
            message = f"{rule.limit} restarts in {rule.window // SECOND}s are spent"
            return Hold(want.object, want.id, Rule.ATTEMPTS, message, until=at)
        self.grant(want)
        return None

    def retire(self, want: Want, workload: Workload) -> Hold | Wait | None:
        group, counts = self.crew.groups[workload.key], self.counts[workload.key]
        prefix = f"{workload.key}/"
        belief = _belief(self.crew, want)
        available = belief is not None and ripe_at(belief, workload.min_ready) <= self.now.steady
        unknown = want.ready is ProbeValue.UNKNOWN
        outgoing = {one.fact.id for one in group.outgoing}
        retiring = sum(1 for name in self.grants if name in outgoing)
        message = "" if want.kind is Kind.RECREATE else rollout.replaced(group, counts, retiring)
        if message:
            return Wait(want.object, Waiting.REPLACEMENT, message)
        message = rollout.over_budget(group, counts, available, unknown, self.taken.get(workload.key, 0))
        if message:
            until = counts.until if counts.until < FOREVER else None
            person = f"bring replicas of {workload.key} back, or raise its availability.maxUnavailable"
            return Hold(want.object, want.id, Rule.BUDGET, message, until=until, person=person)
        limit = max(1, workload.max_unavailable)
        if want.fact is not None and (available or unknown) and in_flight(self.grants.values(), prefix) >= limit:
            message = f"{limit} of {workload.key} at a time may be on its way out"
            return Wait(want.object, Waiting.REPLACEMENT, message)
        if available:
            self.taken[workload.key] = self.taken.get(workload.key, 0) + 1
        self.grant(want)
        return None

    def prune(self, want: Want) -> Hold | Wait | None:
        key = want.object.rpartition("/")[0]
        hold = prune_hold(self.desired, self.ledger, self.read_at, key, want.id, self.pruning, self.now)
        if hold is None:
            self.grant(want)
        return hold

    def grant(self, want: Want) -> None:
        """Let one disruption begin: from here on it counts, whatever becomes of it."""
        fact = want.fact
        if fact is None:
            return
        grant = Grant(want.object, fact.generation, want.cause, instant(self.now), recreate=want.kind is Kind.RECREATE)
        self.grants[fact.id] = grant
        if want.kind is Kind.RESTART:
            self.attempts[want.object] = (*self.attempts.get(want.object, ()), instant(self.now))
            before = self.failures.get(want.object)
            row = before.streak if before is not None else 0
            self.failures[want.object] = Failures(row + 1, instant(self.now), fact.generation)
        self.out.granted = True

    def ask(self, want: Want) -> Hold | Wait | None:
        """All gates of one candidate, in order."""
        workload = want.workload
        key = want.object.rpartition("/")[0]
        word = suspended(self.desired, self.ledger, key, want.object, want.node, want.id, self.now)
        if word is None and workload is not None and workload.suspend:
            person = f"set spec.suspend of {key} to false"
            word = Hold(want.object, want.id, Rule.SUSPENDED, f"the manifest suspends {key}", person=person)
        if word is not None and not self.desired.destroy:
            return word
        if workload is None:
            return self.prune(want)
        match want.kind:
            case Kind.CREATE:
                return self.create(want, workload)
            case Kind.START:
                verdict = self.start(want, workload) or self.concurrency(want)
                if verdict is None:
                    self.out.starts.append(want)
                return verdict
            case Kind.UPDATE:
                self.out.updates.append(want)
                return None
            case Kind.RESTART:
                return self.restart(want, workload)
            case Kind.RETIRE | Kind.RECREATE:
                return self.retire(want, workload)


def _belief(crew: Roster, want: Want) -> Belief | None:
    group = crew.groups.get(want.workload.key) if want.workload is not None else None
    if group is None:
        return None
    return next((one for one in group.members() if one.fact is want.fact), None)


def gate(
    desired: Desired,
    crew: Roster,
    counts: Mapping[str, Availability],
    ledger: Ledger,
    wants: list[Want],
    pruning: Pruning,
    read_at: int,
    dead: set[str],
    now: Now,
) -> Gated:
    """Ask every candidate, the longest-wanted first, then by id."""
    since = ledger.wanted
    wanted = {want.id: since[want.id] if want.id in since else instant(now) for want in wants}
    gates = _Gate(desired, crew, counts, ledger, pruning, read_at, dead, now)
    # Unavailable ones go first among equals: taking them away costs nothing.
    for want in sorted(wants, key=lambda one: (wanted[one.id].wall, one.ready is ProbeValue.PASS, one.id)):
        verdict = gates.ask(want)
        if isinstance(verdict, Hold):
            gates.out.holds.append(verdict)
        elif verdict is not None:
            gates.out.waits.append(verdict)
    out = gates.out
    out.starts = [want for want in out.starts if want.fact is None or want.fact.id not in gates.grants]
    changes = {"wanted": wanted, "grants": gates.grants, "attempts": gates.attempts, "failures": gates.failures}
    changed = {name: value for name, value in changes.items() if value != getattr(ledger, name)}
    out.ledger = replace(ledger, **changed) if changed else ledger  # type: ignore[arg-type]
    return out
