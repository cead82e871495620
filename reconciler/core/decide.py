"""The one function: (desired, observed, now) in, a decision out. Its order from top to bottom is the order of the stages.

Pure: no I/O, clock, chance or logging. The same input in any order gives the same decision, and it stays the same at every
instant before its `wake_at`. The loop calls it for every tick, `forecast` for whole plans, the simulated world in tests.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from manifests.values.desired import Desired
from providers.actions import SetWeight
from reconciler.core import (
    approvable,
    changes,
    differences,
    disruptions,
    drains,
    gates,
    in_rotation,
    orphans,
    unrecorded,
)
from reconciler.core.actions.outbox import Outbox
from reconciler.core.decision import Decision
from reconciler.core.dns import check_trials, compare, deletions, publish
from reconciler.core.dns.floors import NameFloors
from reconciler.core.drift import applied, listing, why
from reconciler.core.exits import grants
from reconciler.core.healing import mass_failure, restart_history, restart_requests
from reconciler.core.healing.restart_counters import RestartCounters
from reconciler.core.health import belief
from reconciler.core.limits import approvals, commits, prune_guard, windows
from reconciler.core.limits.prune_guard import Pruning
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_fold import keep_acceptances
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Hold, Reason, Rule, Wait
from reconciler.core.model.step import Step
from reconciler.core.replicas import (
    availability,
    exit_times,
    foreign,
    had_privileges,
    image_pins,
    memory,
    placement,
    roster,
    specs,
    templates,
    trials,
)
from reconciler.core.replicas.availability import Availability
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.rollouts import revisions
from reconciler.core.status import objects
from reconciler.core.traffic import pools

_PASSES = 4
"""A pass that grants a disruption is followed by another; one grant rarely allows a further one, so few are enough."""

_LEARN: tuple[Callable[[Snapshot, Ledger], Ledger], ...] = (
    restart_history.recall,
    restart_requests.follow,
    image_pins.learn,
    templates.keep,
    had_privileges.remember,
    exit_times.learn,
)
"""What the ledger learns once every container has its place, in this order: each gets what the one before it returned."""


def decide(desired: Desired, observed: Observed, now: Now) -> Decision:
    """What is due now, what is held and why, and when to decide again.

    Args:
        desired: the manifests in force.
        observed: all facts, probe verdicts and the ledger.
        now: this instant.
    """
    before = observed.ledger
    for last in (False,) * (_PASSES - 1) + (True,):
        answer = _pass(desired, observed, now, before, last)
        if isinstance(answer, Decision):
            return answer
        # A new grant or drain changes what weights and names should be: decide again with it in the ledger.
        observed = replace(observed, ledger=answer)
    raise AssertionError("the last pass always decides")


def _pass(desired: Desired, observed: Observed, now: Now, before: Ledger, last: bool) -> Decision | Ledger:
    """One pass over all stages: a decision, or the ledger with new grants and drains when there are any and this is not the last pass.

    `before` is the ledger without the grants of earlier passes.
    """
    fault = unrecorded.fault_of(observed)

    # Facts: which ones may be used, which containers this instance manages, how each is judged, and which role each has.
    admitted = foreign.admit(desired, observed, belief.sight_of(desired, observed, now))
    known, asked = specs.follow(admitted, observed)
    places = placement.place(admitted.desired, admitted.sight, observed.ledger)
    containers = roster.sort_containers(admitted, observed, known, asked, places, now)
    snap = Snapshot(admitted.desired, observed, admitted.sight, containers, now)

    # The ledger: what this look adds to it, one change after the other.
    ledger = places.remember(admitted.remember(memory.remember(snap, known)))
    rollouts = revisions.follow(snap, ledger)
    if fault is not None:
        rollouts.ledger = ledger  # no revision gets or loses traffic by a decision that cannot be remembered
    if rollouts.ledger.rollouts != ledger.rollouts:
        snap = replace(snap, roster=roster.sort_containers(admitted, observed, rollouts.ledger, asked, places, now))
    ledger = rollouts.ledger
    for learn in _LEARN:
        ledger = learn(snap, ledger)
    outbreaks = mass_failure.watch(snap, ledger)
    ledger = mass_failure.remember(ledger, outbreaks)

    # Traffic and names: the weight of each endpoint, then the record sets of each name.
    counts = availability.count_all(snap, ledger)
    weighed = ledger if fault is None else unrecorded.undisturbed(ledger)
    weights = pools.weigh(snap, weighed, outbreaks.suspect, outbreaks.sound)
    ledger = pools.remember(snap, ledger, weights)
    ledger = check_trials.follow(snap, ledger)
    tried = (trials.report(snap), check_trials.report(snap, ledger))
    if ledger.accepted:
        unseen = {memory.replica_of(row.workload, row.ordinal) for row in containers.unseen.containers.values()}
        ledger = keep_acceptances(ledger, {obj for of_kind in tried for obj in of_kind.objects}, unseen)
    names = compare.compare(snap, ledger, weights)
    drained = drains.Begun(ledger, False, ()) if fault is not None else drains.begin(snap, ledger, weights, names)
    if drained.any and not last:
        return drained.ledger
    ledger = drained.ledger
    counts = in_rotation.count(snap, counts, weights, names)

    # Differences as candidates, each drift or a change, and the gates that let them pass or hold them.
    ledger = applied.begin(snap.desired, ledger)
    missing = differences.find(snap, ledger)
    missing.wants += restart_requests.wants(snap, ledger, missing.wants)
    missing.wants = why.of_wants(missing.wants, why.Movement(snap.desired, ledger))
    ledger = missing.watch.remember(snap, ledger)
    pruned = orphans.of(snap, weights, names)
    ledger = memory.absences(snap, ledger, pruned)
    mass, over_limit = (
        prune_guard.mass(snap.desired, pruned | orphans.unseen(snap), orphans.owned(snap)) if pruned else "",
        deletions.over_limit(snap, names),
    )
    to_approve = deletions.needed(names, over_limit, snap.desired.prune)
    to_approve |= orphans.items(snap, weights, names) if mass else set()
    classes = approvable.find(snap, ledger, missing.wants, weights, names, counts)
    to_approve |= classes.items
    ledger, given = approvals.resolve(ledger, to_approve, now, classes.items, complete=approvable.complete(snap))
    pruning = Pruning(mass, observed.source_read_at, given, classes)
    counters = RestartCounters(snap, counts, ledger, outbreaks)
    failing_checks = in_rotation.failing_checks(snap, missing.disrupted())
    if fault is None:
        gated = gates.ask(counters, missing.wants, pruning, weights.dead, failing_checks, NameFloors(snap, names))
    else:
        gated = gates.Gated(ledger, holds=unrecorded.hold_wants(fault, missing.wants))
    if gated.granted and not last:
        return gated.ledger

    # Steps: open grants first; then weights, names and containers.
    out = Outbox(snap, gated.ledger)
    disruptions.carry_on(snap, weights, names, out)
    changes.members(snap, weights, pruning, out)
    publish.publish(snap, names, pruning, over_limit, out)
    changes.containers(snap, gated, out)
    if fault is not None:
        out.steps, unremembered = unrecorded.hold_steps(fault, out.steps)
        out.holds += unremembered

    stages = (*tried, rollouts, missing, gated, out, weights)
    holds = {hold for stage in (admitted, names, drained, *stages) for hold in stage.holds} | {
        *places.holds,
        *_unknown(snap),
        *observed.faults,
    }
    unread = set[Wait]()
    if observed.source_problem is not None:
        holds.add(observed.source_problem.hold())
    if observed.waiting is not None:
        held_back = commits.holds(observed.waiting, ledger, now)
        holds |= set(held_back)
        unread = set() if held_back else {commits.wait(observed.waiting)}
    waits = {wait for stage in stages for wait in stage.waits} | set(restart_requests.waits(snap, ledger)) | unread
    ledger = _forget(out.ledger, out.ids) if fault is None else out.ledger
    outside = listing.outside(snap, ledger, weights, names)
    explained = why.of_steps(out.steps, missing.wants, why.Movement(snap.desired, ledger), outside)
    due_steps = tuple(sorted(explained, key=_order))
    drifted = listing.find(missing.wants, missing.watch, weights, names, holds, outside)
    ledger = applied.settle(snap, ledger, missing.wants, weights, names)
    # Compared with the ledger before all passes too: a grant that ends as soon as it is given would be given again and again.
    moved = all(ledger.grants != past.grants or ledger.rollouts != past.rollouts for past in (observed.ledger, before))
    unsettled = (moved or drained.any) and not due_steps
    instants = [
        until for until in (*(hold.until for hold in holds), *(wait.until for wait in waits)) if until is not None
    ]
    wake_at = now.steady + 1 if unsettled else min([_wake_at(snap, counts, ledger), *instants])
    unapproved = bool(given.hash) and any(hold.next_step.endswith(given.hash) for hold in holds)
    settled = replace(snap, observed=replace(observed, ledger=ledger))
    return Decision(
        steps=due_steps,
        holds=tuple(sorted(holds, key=lambda hold: (hold.object, hold.rule, hold.action, hold.message))),
        waits=tuple(sorted(waits, key=lambda wait: (wait.object, wait.waiting, wait.message))),
        status=objects.assess(settled, counts, names),
        ledger=ledger,
        wake_at=max(min(wake_at, names.until, rollouts.until, given.until), now.steady + 1),
        guard_hash=given.hash if unapproved else "",
        unsettled=unsettled,
        drift=drifted,
        unapproved=classes.uncovered(given),
    )


def _unknown(snap: Snapshot) -> list[Hold]:
    """A hold for every provider that cannot be read: it holds everything that depends on it."""
    sight = snap.sight
    unread = [
        *((Rule.UNKNOWN_RUNTIME, node, unknown) for node, unknown in sight.unknown_runtimes.items()),
        *((Rule.UNKNOWN_POOL, "/".join(key), unknown) for key, unknown in sight.unknown_pools.items()),
        *((Rule.UNKNOWN_ZONE, "/".join(key), unknown) for key, unknown in sight.unknown_zones.items()),
    ]
    return [
        Hold(
            f"provider/{unknown.source}",
            f"change {name}",
            rule,
            unknown.reason,
            next_step=f"make provider {unknown.source} reachable; it is retried automatically",
        )
        for rule, name, unknown in unread
    ]


def _forget(ledger: Ledger, ids: set[str]) -> Ledger:
    """Drop failures of steps that are no longer candidates."""
    kept = {step: failure for step, failure in ledger.step_failures.items() if step in ids}
    return ledger if len(kept) == len(ledger.step_failures) else replace(ledger, step_failures=kept)


_PHASES = ("records", "create", "start", "update", "signal", "stop", "remove", "withdraw", "weight")


def _order(step: Step) -> tuple[int, str, str]:
    """Weights first, raises before cuts; then names, withdrawals before other changes; then containers."""
    verb, action = step.id.partition(" ")[0], step.action
    if isinstance(action, SetWeight):
        return (-2 if action.weight > (action.before or 0) else -1, step.object, step.id)
    if verb == "records" and step.cause is Reason.WITHDRAWN:
        return (0, step.object, step.id)
    return (1 + _PHASES.index(verb) if verb in _PHASES else 1 + len(_PHASES), step.object, step.id)


def _wake_at(snap: Snapshot, counts: Mapping[str, Availability], ledger: Ledger) -> int:
    """The first instant at which the decision could change on the same facts, without those of holds and waits."""
    now = snap.now
    ends = [suspension.until_wall for suspension in ledger.suspensions.values()]
    ends += [override.until_wall for override in ledger.overrides.values()]
    return min(
        restart_requests.wake_at(ledger, now),
        snap.sight.until,
        exit_times.soonest_end(snap, ledger.grants.values()),
        grants.next_cut(ledger.grants.values(), now),
        windows.wake_at(snap.desired, now) if snap.desired.guard.windows else FOREVER,
        *(count.until for count in counts.values()),
        *(now.steady + until_wall - now.wall for until_wall in ends if until_wall),
    )
