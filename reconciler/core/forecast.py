"""Forecast: the whole plan, as `--dry-run` prints it, made by the same `decide` that acts.

The declared effect of each step is folded into the facts, time jumps to the next instant that matters, and `decide` runs again until
nothing is left, manual action is required, or a bound is reached. So there is one planner, and plan and apply cannot differ while
providers answer as forecast. Called by the command line.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from manifests.values.desired import SECOND, Desired
from manifests.values.dns import Publish
from manifests.values.privileges import engine_sockets
from providers.actions import CreateContainer
from providers.facts import ContainerState, Generation, Known, ProbeFact, Probes, ProbeValue, fingerprint
from reconciler.core import decide, effects, outcome, plan_changes
from reconciler.core.consequences import Consequences
from reconciler.core.decision import Changed, Decision, Manifests, Plan, Planned
from reconciler.core.dns import target_health
from reconciler.core.health import belief
from reconciler.core.limits.approval_classes import Change
from reconciler.core.model.approval import Approval
from reconciler.core.model.instant import FOREVER, Now, instant
from reconciler.core.model.observed import NEVER_READ, Observed
from reconciler.core.model.reasons import Rule
from reconciler.core.model.spec import Answer
from reconciler.core.model.step import Step
from reconciler.core.model.target_probe import TargetProbe
from reconciler.core.replicas import privilege_changes, specs
from reconciler.core.replicas.privilege_changes import PrivilegeChange

HORIZON = 24 * 3600 * SECOND
"""How far a forecast looks."""

STEPS = 1_000
"""How many steps a forecast has at most."""

DECISIONS = 5_000
"""How often a forecast decides at most: far above every real plan."""

_OUTSIDE = {Rule.UNKNOWN_RUNTIME, Rule.UNKNOWN_POOL, Rule.UNKNOWN_ZONE, Rule.BUSY}
"""Holds whose end cannot be foreseen."""


def _still(fact: ProbeFact | None, now: Now) -> ProbeFact | None:
    if fact is None or fact.last_at + fact.valid_for <= now.steady:
        return None
    return fact._replace(valid_for=FOREVER - fact.last_at)


def _freeze(desired: Desired, observed: Observed, now: Now) -> tuple[Desired, Observed]:
    """The same facts without ageing: fresh facts stay fresh, stale ones stay unknown."""
    sight = belief.sight_of(desired, observed, now)
    probes: dict[Generation, Probes] = {}
    for generation, answers in observed.probes.items():
        probes[generation] = Probes(
            _still(answers.startup, now), _still(answers.liveness, now), _still(answers.readiness, now)
        )
    frozen = replace(
        observed,
        runtimes={
            **{key: Known(value, key, now.steady) for key, value in sight.runtimes.items()},
            **sight.unknown_runtimes,
        },
        pools={**{key: Known(value, key[0], now.steady) for key, value in sight.pools.items()}, **sight.unknown_pools},
        zones={**{key: Known(value, key[0], now.steady) for key, value in sight.zones.items()}, **sight.unknown_zones},
        probes=probes,
        target_answers={
            key: fact for key, answer in observed.target_answers.items() if (fact := _still(answer, now)) is not None
        },
    )
    patient = replace(desired.instance, look_runtime=FOREVER // 8, look_endpoints=FOREVER // 8, look_dns=FOREVER // 8)
    return replace(desired, instance=patient), frozen


def _next(decision: Decision, now: Now) -> int | None:
    """The next instant at which to decide, None when time changes nothing."""
    if decision.unsettled:
        return decision.wake_at
    instants = [hold.until for hold in decision.holds if hold.until is not None and hold.rule not in _OUTSIDE]
    instants += [wait.until for wait in decision.waits if wait.until is not None]
    later = [instant for instant in instants if instant > now.steady]
    return min(later) if later else None


def _after(now: Now, steady: int) -> Now:
    return Now(now.wall + steady - now.steady, steady, now.lineage)


def _document(step: Step) -> tuple[str, ...]:
    """The document that a step is about, such as `workload`, `web`."""
    return tuple(step.object.split("/")[:2])


def _target_probes(desired: Desired, decision: Decision) -> frozenset[TargetProbe]:
    """The probes of target addresses as they are now; none where no address comes and goes with a container."""
    if not any(target.publish is Publish.ENDPOINTS for policy in desired.policies for target in policy.targets):
        return frozenset()
    status = decision.status
    roster = status.roster if status is not None else None
    return frozenset(target_health.target_probes(desired, roster, decision.ledger.checks))


def _passing(observed: Observed, new: Iterable[TargetProbe], now: Now) -> Observed:
    """The facts with passing checks of the target addresses that this plan adds, like the probes of containers that it starts."""
    fact = ProbeFact(ProbeValue.PASS, ProbeValue.PASS, 1, 1, now.steady, now.steady, FOREVER, "forecast")
    added = {probe: fact for probe in new if probe not in observed.target_answers}
    return replace(observed, target_answers={**observed.target_answers, **added}) if added else observed


def _proven(observed: Observed, decision: Decision, now: Now) -> Observed:
    """The facts with passing results of what is tried or asked once more, like the probes of containers that are started."""
    roster = decision.status.roster if decision.status is not None else None
    if roster is None:
        return observed
    rollouts = {
        key: rollout for key, rollout in decision.ledger.rollouts.items() if any(row.rechecked for row in rollout.rows)
    }
    if not roster.asked and not rollouts:
        return observed
    fact = ProbeFact(ProbeValue.PASS, ProbeValue.PASS, 1, 1, now.steady, now.steady, FOREVER, "forecast")
    trials = dict(observed.trials)
    for group in roster.groups.values():
        for replica in group.members():
            asked, generation = roster.asked.get(replica.fact.id), replica.fact.generation
            missing = {
                name: Answer(trial, fact)
                for name, trial in (asked.trials if asked is not None else ())
                if (known := trials.get(generation, {}).get(name)) is None or known.trial != trial
            }
            if missing and replica.fact.state is ContainerState.RUNNING:
                trials[generation] = {**trials.get(generation, {}), **missing}
        for row in rollouts[group.workload.key].rows if group.workload.key in rollouts else ():
            for replica in group.of(row.revision) if row.rechecked is not None else ():
                main, generation = roster.container_of(group.workload, replica.fact), replica.fact.generation
                again = {
                    f"{specs.AGAIN}{name}": Answer(probe, fact._replace(last_at=now.steady + 1))
                    for name, probe in (("liveness", main.liveness), ("readiness", main.readiness))
                    if probe is not None
                }
                trials[generation] = {**trials.get(generation, {}), **again}
    return observed if trials == observed.trials else replace(observed, trials=trials)


def _privileges(
    desired: Desired, first: Decision, planned: Sequence[Planned], changed: Iterable[Changed]
) -> tuple[PrivilegeChange, ...]:
    """The privileges of the workloads that get containers, or another revision, beside those of what runs at the first decision."""
    shown = {item.object for item in changed if item.before != item.after}
    shown |= {item.step.object.rpartition("/")[0] for item in planned if isinstance(item.step.action, CreateContainer)}
    sockets = engine_sockets(desired.providers)
    return tuple(
        row
        for key, group in sorted(first.status.roster.groups.items())
        if not group.workload.restart_only and (key in shown or len(group.current) < group.workload.replicas)
        for row in privilege_changes.changes(first.ledger, group, sockets)
    )


def _approved(observed: Observed, changes: Sequence[Change], now: Now) -> Observed:
    """The facts with an approval of these changes, as the operator gives it who applies the plan."""
    items = tuple(change.item for change in changes)
    rows = {**observed.ledger.approvals, fingerprint(*items): Approval(instant(now), items)}
    return replace(observed, ledger=replace(observed.ledger, approvals=rows))


def forecast(
    desired: Desired, observed: Observed, now: Now, in_force: Desired | None = None, *, approving: bool = False
) -> Plan:
    """All steps until convergence, in order, each with the steps before it.

    Args:
        in_force: the manifests that a run put in force last, to say what `desired` changes; None when they are not known.
        approving: go on as if the changes of the Guard's classes were approved, and list them.
    """
    start = now.steady
    revision, declared = desired.revision, desired
    desired, observed = _freeze(desired, observed, now)
    planned: list[Planned] = []
    numbers: dict[str, int] = {}
    times: dict[int, int] = {0: start}
    latest: dict[tuple[str, ...], int] = {}  # the last step of each document, without those of the present decision
    known: frozenset[TargetProbe] | None = None
    changed: dict[str, Changed] | None = None
    where = plan_changes.places(declared)
    consequences = Consequences(declared, observed)
    first: Decision | None = None
    approves: dict[str, Change] = {}
    truncated = f"no convergence after {DECISIONS} decisions"
    for _ in range(DECISIONS):
        decision = decide.decide(desired, observed, now)
        observed = replace(observed, ledger=decision.ledger)
        if first is None or changed is None:
            first = decision
            changed = {item.object: item for item in plan_changes.of_plan(declared, decision, in_force)}
        consequences.decided(decision.status.roster, now)
        probes = _target_probes(desired, decision)
        known = probes if known is None else known
        before = observed
        observed = _proven(_passing(observed, probes - known, now), decision, now)
        if decision.steps:
            begin = len(planned)
            for step in decision.steps:
                after = tuple(sorted({numbers[follow] for follow in step.follows if follow in numbers}))
                if not after and _document(step) in latest:
                    after = (latest[_document(step)],)
                number = len(planned) + 1
                since = max((times[earlier] for earlier in after), default=start)
                fields = plan_changes.fields_of(step, changed, decision.status, observed)
                place = where.get(plan_changes.document_key(step.object), "")
                planned.append(Planned(number, after, now.steady - since, step, fields, str(place)))
                numbers[step.id], times[number] = number, now.steady
            latest |= {_document(done.step): done.number for done in planned[begin:]}
            # Folding a step costs a copy of the facts, so a plan that ends here does without.
            for step in decision.steps if len(planned) < STEPS else ():
                observed = effects.fold(observed, step, now)
            consequences.round([(done.number, done.step) for done in planned[begin:]], observed)
            upcoming: int | None = now.steady + 1
        else:
            upcoming = _next(decision, now) if observed is before else now.steady + 1
        if approving and any(change.item not in approves for change in decision.unapproved):
            approves |= {change.item: change for change in decision.unapproved}
            observed, upcoming = _approved(observed, decision.unapproved, now), now.steady + 1
        if upcoming is None:
            truncated = ""
            break
        if len(planned) >= STEPS:
            truncated = f"the plan has {STEPS} steps, the maximum; apply it and plan again"
            break
        if upcoming - start > HORIZON:
            truncated = "the next change is more than 24 h ahead"
            break
        now = _after(now, upcoming)
        if observed.source_read_at != NEVER_READ and observed.source_problem is None:
            observed = replace(observed, source_read_at=now.steady)
    shown = decision.guard_hash
    rows = tuple((changed or {}).values())
    return Plan(
        revision,
        tuple(planned),
        decision.holds,
        decision.waits,
        shown,
        truncated,
        f"{desired.apply_command} --approve {shown}" if shown else "",
        rows,
        _privileges(desired, first or decision, planned, rows),
        consequences.all(),
        desired.instance.id,
        Manifests("" if in_force is None else in_force.revision),
        Manifests(revision),
        outcome=outcome.of_steps([item.step for item in planned]),
        approves=tuple(sorted(approves.values())),
    )
