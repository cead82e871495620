"""The one function: (desired, observed, now) in, a decision out. Read it from top to bottom: that is the order of the path.

Pure: no I/O, clock, chance or logging. The same input in any order gives the same decision, and it stays the same at every
instant before its `wake_at`. Called by the loop for every tick, by `forecast` for whole plans, by the simulated world in tests.
"""

from collections.abc import Mapping
from dataclasses import replace

from manifests.values.desired import Desired
from providers.actions import SetWeight
from reconciler.core.actions import steps
from reconciler.core.actions.outbox import Outbox
from reconciler.core.decision import Decision
from reconciler.core.differences import differences
from reconciler.core.disruptions import carry_on
from reconciler.core.dns.policies import Names, name_all
from reconciler.core.dns.publish import publish
from reconciler.core.gates import Gated, gate
from reconciler.core.healing import restart_requests
from reconciler.core.healing.mass_failure import watch
from reconciler.core.healing.restart_history import recall
from reconciler.core.health.belief import Sight, trusted
from reconciler.core.in_rotation import arriving, kept_from_traffic
from reconciler.core.limits import windows
from reconciler.core.limits.prune_guard import Pruning, mass_change, prune_hold
from reconciler.core.limits.suspensions import frozen
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Hold, Reason, Rule, Wait
from reconciler.core.model.step import Step
from reconciler.core.replicas import exit_times
from reconciler.core.replicas.availability import Availability, count
from reconciler.core.replicas.exit_times import soonest_end
from reconciler.core.replicas.foreign import admit
from reconciler.core.replicas.image_pins import learn
from reconciler.core.replicas.memory import absences, remember
from reconciler.core.replicas.roster import Roster, sort_containers
from reconciler.core.replicas.templates import keep
from reconciler.core.rollouts import revisions
from reconciler.core.status.objects import assess
from reconciler.core.traffic.pool import Weights
from reconciler.core.traffic.weights import remembered, weigh

_PASSES = 4
"""A pass that grants a disruption is followed by another; one grant rarely allows a further one, so few are enough."""


def decide(desired: Desired, observed: Observed, now: Now) -> Decision:
    """What is due now, what is held and why, and when to look again.

    Args:
        desired: the manifests in force.
        observed: all facts, probe verdicts and the ledger.
        now: this instant.
    """
    before = observed.ledger
    for last in (False,) * (_PASSES - 1) + (True,):
        answer = _look(desired, observed, now, before, last)
        if isinstance(answer, Decision):
            return answer
        # A new grant changes what weights and names should be: look again with it in the ledger.
        observed = replace(observed, ledger=answer)
    raise AssertionError("the last pass always decides")


def _look(desired: Desired, observed: Observed, now: Now, before: Ledger, last: bool) -> Decision | Ledger:
    """One pass over all stages: a decision, or the ledger with new grants when there are any and this is not the last pass.

    `before` is the ledger without the grants of earlier passes.
    """
    # Trust: which facts may be used, foreign ones too.
    admitted = admit(desired, observed, trusted(desired, observed, now))
    desired, sight = admitted.desired, admitted.sight
    roster = sort_containers(admitted, observed, now)  # trust and activation: what each container is, and is for
    ledger = admitted.remember(remember(desired, observed, roster, now))
    rollouts = revisions.follow(
        desired, roster, sight, ledger, now
    )  # which revision has the traffic, and which is next
    if rollouts.ledger.rollouts != ledger.rollouts:
        roster = sort_containers(admitted, replace(observed, ledger=rollouts.ledger), now)
    ledger = rollouts.ledger
    ledger = keep(learn(restart_requests.follow(recall(ledger, roster, now), roster, now), roster), roster)
    ledger = exit_times.learn(ledger, roster)
    outbreaks = watch(desired, observed, roster, ledger, now)
    ledger = ledger if outbreaks.rows == ledger.outbreaks else replace(ledger, outbreaks=outbreaks.rows)
    counts: Mapping[str, Availability]
    counts = {key: count(group, ledger.grants, now) for key, group in roster.groups.items()}  # availability
    weights = weigh(desired, roster, sight, ledger, outbreaks.suspect, outbreaks.sound, now)
    ledger = remembered(ledger, weights, roster, sight)
    names = name_all(desired, roster, sight, weights, ledger, observed.leaves, now)  # DNS omission
    counts = arriving(desired, roster, sight, counts, weights, names, now)
    found = differences(desired, roster, ledger, now)
    found.wants += restart_requests.wants(ledger, roster, found.wants)

    pruned = _pruned(roster, weights, names)
    ledger = absences(ledger, pruned, desired.revision, now)
    pruning = mass_change(desired, ledger, pruned, _owned(roster, sight, desired) if pruned else 0)
    planned = {want.workload.key for want in found.wants if want.workload is not None and want.disrupts}
    shunned = kept_from_traffic(desired, roster, planned, sight)
    gated = gate(desired, observed, roster, counts, ledger, outbreaks, found.wants, pruning, weights.dead, shunned, now)
    if gated.granted and not last:
        return gated.ledger

    out = Outbox(desired, observed, gated.ledger, now)
    carry_on(roster, weights, names, sight, out)
    _members(desired, roster, weights, observed, pruning, out)
    zone_hash = publish(desired, roster, sight, names, observed, pruning, out)
    _containers(desired, roster, gated, out)
    holds = [
        *admitted.holds,
        *rollouts.holds,
        *weights.holds,
        *names.holds,
        *found.holds,
        *gated.holds,
        *out.holds,
        *_unknown(sight),
    ]
    waits = [
        *rollouts.waits,
        *found.waits,
        *gated.waits,
        *out.waits,
        *weights.waits,
        *restart_requests.waits(ledger, roster, now),
    ]

    held = any(hold.rule is Rule.MASS_CHANGE for hold in holds)
    ledger = _forget(out.ledger, out.ids)
    status = assess(desired, replace(observed, ledger=ledger), roster, sight, counts, names)
    due_steps = tuple(sorted(out.steps, key=_order))
    # Also beside what there was before all passes: a grant that ends as soon as it is given would be given again and again.
    moved = all(ledger.grants != one.grants or ledger.rollouts != one.rollouts for one in (observed.ledger, before))
    unsettled = moved and not due_steps
    wake_at = now.steady + 1 if unsettled else _wake_at(desired, sight, roster, counts, holds, waits, ledger, now)
    wake_at = max(min(wake_at, names.until, rollouts.until), now.steady + 1)
    return Decision(
        steps=due_steps,
        holds=tuple(sorted(set(holds), key=lambda hold: (hold.object, hold.rule, hold.action, hold.message))),
        waits=tuple(sorted(set(waits), key=lambda wait: (wait.object, wait.waiting, wait.message))),
        status=status,
        ledger=ledger,
        wake_at=wake_at,
        guard_hash=(pruning.hash if pruning.mass else zone_hash) if held else "",
        unsettled=unsettled,
    )


# --- deletions as a whole -----------------------------------------------------------------------------------------


def _pruned(roster: Roster, weights: Weights, names: Names) -> frozenset[str]:
    """The objects that exist under our mark and that no manifest names."""
    workloads = {f"workload/{fact.mark.workload}" for fact in roster.orphans if fact.mark}
    return frozenset(workloads | {stray.object for stray in weights.strays} | {stray.object for stray in names.strays})


def _owned(roster: Roster, sight: Sight, desired: Desired) -> int:
    """How many objects this instance owns: workloads, pools with members of ours, and owners of record sets."""
    mine = {key: group for key, group in roster.groups.items() if not group.workload.restart_only}
    workloads = {key for key, group in mine.items() if group.current or group.outgoing or group.surplus}
    orphans = {f"workload/{fact.mark.workload}" for fact in roster.orphans if fact.mark}
    pools = {f"pool/{key[1]}" for key, pool in sight.pools.items() if any(member.ours for member in pool.members)}
    prefix = f"{desired.instance.id}/"
    marks = {mark for zone in sight.zones.values() for mark in zone.owners.values() if mark.startswith(prefix)}
    return len(workloads) + len(orphans) + len(pools) + len(marks)


# --- steps --------------------------------------------------------------------------------------------------------


def _members(
    desired: Desired, roster: Roster, weights: Weights, observed: Observed, pruning: Pruning, out: Outbox
) -> None:
    """Pools: what should weigh otherwise, and members that nothing names."""
    links = steps.Links(desired, roster)
    for change in weights.changes:
        word = frozen(desired, out.ledger, change.object, f"weight of {change.container}", out.now)
        if word is not None:
            out.holds.append(word)
        else:
            out.put(steps.weight(change, links))
    for stray in weights.strays:
        action = f"withdraw {stray.container} from {stray.provider}/{stray.pool}"
        hold = prune_hold(desired, out.ledger, observed.source_read_at, stray.object, action, pruning, out.now)
        if hold is not None:
            out.holds.append(hold)
        else:
            out.put(steps.weight(stray, links))


def _containers(desired: Desired, roster: Roster, gated: Gated, out: Outbox) -> None:
    """Creates, starts and changes in place that came through the gates."""
    links = steps.Links(desired, roster)
    for want in gated.creates:
        step = steps.create(desired, want, out.ledger)
        if step is not None:
            out.put(step)
    for want in gated.starts:
        if want.fact is not None:
            out.put(steps.start(want, want.fact, links))
    for want in gated.updates:
        update = steps.update(want, want.fact, out.ledger) if want.fact is not None else None
        if update is not None:
            out.put(update)


# --- the rest -----------------------------------------------------------------------------------------------------


def _unknown(sight: Sight) -> list[Hold]:
    """What cannot be read holds everything that depends on it, and says so."""
    holds: list[Hold] = []
    for rule, unknown in (
        (Rule.UNKNOWN_RUNTIME, dict(sight.unknown_runtimes)),
        (Rule.UNKNOWN_POOL, {"/".join(key): one for key, one in sight.unknown_pools.items()}),
        (Rule.UNKNOWN_ZONE, {"/".join(key): one for key, one in sight.unknown_zones.items()}),
    ):
        for name, one in unknown.items():
            next_step = f"see that provider {one.source} can be read; it is looked at again by itself"
            holds.append(Hold(f"provider/{one.source}", f"change {name}", rule, one.reason, next_step=next_step))
    return holds


def _forget(ledger: Ledger, ids: set[str]) -> Ledger:
    """Drop failures of steps that nobody wants any more."""
    kept = {step: one for step, one in ledger.step_failures.items() if step in ids}
    return ledger if len(kept) == len(ledger.step_failures) else replace(ledger, step_failures=kept)


_PHASES = ("records", "create", "start", "update", "stop", "remove", "withdraw", "weight")


def _order(step: Step) -> tuple[int, str, str]:
    """Weights first, and of these raises before cuts; then names, withdrawals before all else; then containers."""
    verb, action = step.id.partition(" ")[0], step.action
    if isinstance(action, SetWeight):
        return (-2 if action.weight > (action.before or 0) else -1, step.object, step.id)
    if verb == "records" and step.cause is Reason.WITHDRAWN:
        return (0, step.object, step.id)
    return (1 + _PHASES.index(verb) if verb in _PHASES else 1 + len(_PHASES), step.object, step.id)


def _wake_at(
    desired: Desired,
    sight: Sight,
    roster: Roster,
    counts: Mapping[str, Availability],
    holds: list[Hold],
    waits: list[Wait],
    ledger: Ledger,
    now: Now,
) -> int:
    """The first instant at which this answer could change on the same facts."""
    soonest = min([restart_requests.wake_at(ledger, now), sight.until, *(count.until for count in counts.values())])
    if desired.guard.windows:
        soonest = min(soonest, windows.wake_at(desired, now))
    for until in (*(hold.until for hold in holds), *(wait.until for wait in waits)):
        if until is not None:
            soonest = min(soonest, until)
    soonest = min(soonest, soonest_end(ledger.grants.values(), roster, now))
    ends = [suspension.until_wall for suspension in ledger.suspensions.values()] + [
        override.until_wall for override in ledger.overrides.values()
    ]
    for until_wall in ends:
        if until_wall:
            soonest = min(soonest, now.steady + until_wall - now.wall)
    return max(soonest, now.steady + 1)
