"""Forecast: the whole plan, as `--dry-run` prints it, made by the same `decide` that acts.

Each step's declared effect is folded into what is observed, time jumps to the next instant that matters, and it is decided again
until nothing is left, a person is needed, or a bound is reached. So there is one planner, and plan and apply cannot differ
in a world that answers as forecast. Called by the command line.
"""

from collections.abc import Iterable
from dataclasses import replace

from manifests.values.desired import SECOND, Desired
from manifests.values.dns import Publish
from providers.facts import Generation, Known, ProbeFact, Probes, ProbeValue
from reconciler.core import decide, effects
from reconciler.core.decision import Decision, Plan, Planned
from reconciler.core.dns import target_health
from reconciler.core.health import belief
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Rule
from reconciler.core.model.step import Step
from reconciler.core.model.target_probe import TargetProbe

HORIZON = 24 * 3600 * SECOND
"""How far a forecast looks."""

STEPS = 1_000
"""How many steps a forecast has at most."""

DECISIONS = 5_000
"""How often a forecast decides at most: a bound that no real plan comes near."""

_OUTSIDE = {Rule.UNKNOWN_RUNTIME, Rule.UNKNOWN_POOL, Rule.UNKNOWN_ZONE, Rule.BUSY}
"""Holds whose end nobody can foresee."""


def _still(fact: ProbeFact | None, now: Now) -> ProbeFact | None:
    if fact is None or fact.last_at + fact.valid_for <= now.steady:
        return None
    return fact._replace(valid_for=FOREVER - fact.last_at)


def _freeze(desired: Desired, observed: Observed, now: Now) -> tuple[Desired, Observed]:
    """The same knowledge without ageing: what is fresh now stays fresh, what is stale stays unknown."""
    seen = belief.sight_of(desired, observed, now)
    probes: dict[Generation, Probes] = {}
    for generation, one in observed.probes.items():
        probes[generation] = Probes(_still(one.startup, now), _still(one.liveness, now), _still(one.readiness, now))
    frozen = replace(
        observed,
        runtimes={
            **{key: Known(value, key, now.steady) for key, value in seen.runtimes.items()},
            **seen.unknown_runtimes,
        },
        pools={**{key: Known(value, key[0], now.steady) for key, value in seen.pools.items()}, **seen.unknown_pools},
        zones={**{key: Known(value, key[0], now.steady) for key, value in seen.zones.items()}, **seen.unknown_zones},
        probes=probes,
        target_answers={
            key: fact for key, one in observed.target_answers.items() if (fact := _still(one, now)) is not None
        },
    )
    patient = replace(desired.instance, look_runtime=FOREVER // 8, look_endpoints=FOREVER // 8, look_dns=FOREVER // 8)
    return replace(desired, instance=patient), frozen


def _next(decision: Decision, now: Now) -> int | None:
    """The next instant worth looking at, None when no clock helps."""
    if decision.unsettled:
        return decision.wake_at
    instants = [hold.until for hold in decision.holds if hold.until is not None and hold.rule not in _OUTSIDE]
    instants += [wait.until for wait in decision.waits if wait.until is not None]
    later = [instant for instant in instants if instant > now.steady]
    return min(later) if later else None


def _after(now: Now, steady: int) -> Now:
    return Now(now.wall + steady - now.steady, steady, now.boot)


def _before(planned: list[Planned], step: Step, now: Now, times: dict[int, int]) -> tuple[int, ...]:
    """The latest earlier step on the same document: what a step waited for that names none itself."""
    document = step.object.split("/")[:2]
    for one in reversed(planned):
        if times[one.number] < now.steady and one.step.object.split("/")[:2] == document:
            return (one.number,)
    return ()


def _asked(desired: Desired, decision: Decision) -> frozenset[TargetProbe]:
    """What is asked of the addresses of names as they are now; nothing where no address comes and goes with a container."""
    if not any(target.publish is Publish.ENDPOINTS for policy in desired.policies for target in policy.targets):
        return frozenset()
    status = decision.status
    return frozenset(target_health.target_probes(desired, status.roster if status is not None else None))


def _passing(observed: Observed, new: Iterable[TargetProbe], now: Now) -> Observed:
    """The world in which checks of addresses that this plan has made pass, as all probes of what it starts do."""
    fact = ProbeFact(ProbeValue.PASS, ProbeValue.PASS, 1, 1, now.steady, now.steady, FOREVER, "forecast")
    added = {probe: fact for probe in new if probe not in observed.target_answers}
    return replace(observed, target_answers={**observed.target_answers, **added}) if added else observed


def forecast(desired: Desired, observed: Observed, now: Now) -> Plan:
    """All steps from here to the wanted state, in order, with what each waits for."""
    start = now.steady
    revision = desired.revision
    desired, observed = _freeze(desired, observed, now)
    planned: list[Planned] = []
    numbers: dict[str, int] = {}
    times: dict[int, int] = {0: start}
    asked: frozenset[TargetProbe] | None = None
    truncated = f"nothing is settled after {DECISIONS} decisions"
    for _ in range(DECISIONS):
        decision = decide.decide(desired, observed, now)
        observed = replace(observed, ledger=decision.ledger)
        asking = _asked(desired, decision)
        asked = asking if asked is None else asked
        seen = observed
        observed = _passing(observed, asking - asked, now)
        if decision.steps:
            for step in decision.steps:
                after = tuple(sorted({numbers[follow] for follow in step.follows if follow in numbers}))
                if not after:
                    after = _before(planned, step, now, times)
                number = len(planned) + 1
                since = max((times[one] for one in after), default=start)
                planned.append(Planned(number, after, now.steady - since, step))
                observed = effects.fold(observed, step, now)
                numbers[step.id], times[number] = number, now.steady
            upcoming: int | None = now.steady + 1
        else:
            upcoming = _next(decision, now) if observed is seen else now.steady + 1
        if upcoming is None:
            truncated = ""
            break
        if len(planned) >= STEPS:
            truncated = f"{STEPS} steps are planned; apply and plan again"
            break
        if upcoming - start > HORIZON:
            truncated = "the next change lies more than 24 h ahead"
            break
        now = _after(now, upcoming)
        observed = replace(observed, source_read_at=now.steady)
    return Plan(revision, tuple(planned), decision.holds, decision.waits, decision.guard_hash, truncated)
