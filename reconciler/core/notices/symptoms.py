"""What is wrong or waits in one decision, as symptoms: one for each object and kind of cause. Called by the notifier.

A hold that time or progress ends soon is no symptom: a restart in progress, a window, a budget, a back-off.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from manifests.values.desired import SECOND, Desired
from manifests.values.notices import Topic
from providers.facts import Generation, Probes, ProbeValue
from reconciler.core.decision import Decision
from reconciler.core.model.reasons import Hold, Rule
from reconciler.core.model.revision import Standing, why_failed
from reconciler.core.model.source_problem import OBJECT
from reconciler.core.model.suspension_scope import Scope, parse, resume_command, shown
from reconciler.core.notices.model import MINUTE, Symptom, owner
from reconciler.core.replicas.roster import Group
from reconciler.core.status.objects import Condition, WorkloadStatus

_NO_PROBES = Probes()

_WELL = frozenset({Condition.READY, Condition.PROGRESSING, Condition.SUSPENDED})

AT_ONCE = 5 * SECOND
"""How long (ns) a symptom lasts that is a decision of its own, such as a refused revision, before it counts."""


class _Class(NamedTuple):
    """How holds of a rule become symptoms. `of_revision`: each revision of the manifests is a cause of its own."""

    topic: Topic
    kind: str
    patience: int = MINUTE
    of_revision: bool = False


_HEALTH = _Class(Topic.HEALTH, "health")
_CONFLICT = _Class(Topic.CONFLICT, "conflict")
_ROLLOUT = _Class(Topic.ROLLOUT, "rollout", AT_ONCE, of_revision=True)
_APPROVAL = _Class(Topic.HOLD, "approval", AT_ONCE, of_revision=True)
_COMMITS = _Class(Topic.HOLD, "new commits", AT_ONCE, of_revision=True)

CLASSES: dict[Rule, _Class] = {
    Rule.SOURCE_INVALID: _Class(Topic.SOURCE, "source", AT_ONCE, of_revision=True),
    Rule.SOURCE_UNVERIFIED: _Class(Topic.SOURCE, "source", AT_ONCE, of_revision=True),
    Rule.SOURCE_UNREADABLE: _Class(Topic.SOURCE, "source unreadable"),
    Rule.PROGRESS: _ROLLOUT,
    Rule.REVISION_NOT_ELIGIBLE: _ROLLOUT,
    Rule.PROBE_UNPROVEN: _ROLLOUT,
    Rule.MASS_FAILURE: _HEALTH,
    Rule.ALL_FAILING: _HEALTH,
    Rule.NODE_RESTART_LIMIT: _HEALTH,
    Rule.RATE: _HEALTH,
    Rule.RESTART_LIMIT: _HEALTH,
    Rule.FAILED: _HEALTH,
    Rule.OBSERVE_ONLY: _HEALTH,
    Rule.PROBER_FAULT: _HEALTH,
    Rule.STEP_FAILED: _Class(Topic.PROVIDER, "steps", 2 * MINUTE),
    Rule.SECRET_UNKNOWN: _Class(Topic.PROVIDER, "secrets", 2 * MINUTE),
    Rule.FOREIGN_HEALER: _CONFLICT,
    Rule.NAME_TAKEN: _CONFLICT,
    Rule.FOREIGN_RECORD: _CONFLICT,
    Rule.CONFLICTING_WRITER: _CONFLICT,
    Rule.ADOPT_CONFLICT: _CONFLICT,
    Rule.MASS_CHANGE: _APPROVAL,
    Rule.LEDGER_LOST: _Class(Topic.PROGRAM, "history lost"),
    Rule.LEDGER_UNWRITABLE: _Class(Topic.PROGRAM, "state directory"),
    Rule.PROBE_ENGINE: _Class(Topic.PROGRAM, "probe engine"),
    Rule.DECISION_FAILED: _Class(Topic.PROGRAM, "decision"),
    Rule.CLOCK_JUMP: _Class(Topic.PROGRAM, "clock"),
}
"""Rules whose holds are symptoms, also where time ends them."""

SILENT = frozenset(
    {
        Rule.RESTART_IN_PROGRESS,
        Rule.BUDGET,
        Rule.WINDOW,
        Rule.BACK_OFF,
        Rule.START_CONCURRENCY,
        Rule.BUSY,
        Rule.LAST_MEMBER,
        Rule.PANIC,
        Rule.LAST_RECORD,
        Rule.WEIGHT_REMOVAL_LIMIT,
        Rule.PRUNE_OFF,
        Rule.ABSENCE_UNPROVEN,
        Rule.POLICY_KEPT,
        Rule.FIXED_WEIGHTS,
        Rule.UNKNOWN_RUNTIME,
        Rule.UNKNOWN_POOL,
        Rule.UNKNOWN_ZONE,
        Rule.SUSPENDED,
        Rule.DENIED,
        Rule.OVERRIDDEN,
        Rule.DRIFT,
        Rule.FILES_KEPT,
    }
)
"""Rules whose holds are no symptom: they end soon, count as converged, are what the manifests ask for, follow from replicas that are not
healthy, or are reported with their provider or suspension. A new commit that waits for an operator is one under any rule."""


_HOLD_COMMITS = frozenset({Rule.SUSPENDED, Rule.WINDOW})
"""What can hold new commits."""


def symptoms(decision: Decision, desired: Desired) -> tuple[Symptom, ...]:
    """All symptoms of a decision, sorted. Of several of one kind and object the first counts."""
    found: dict[tuple[str, str, str], Symptom] = {}
    for symptom in _all(decision, desired):
        found.setdefault((symptom.kind, symptom.revision, symptom.object), symptom)
    return tuple(sorted(found.values()))


def undecided(decision: Decision) -> frozenset[str]:
    """The workloads whose number of available replicas is unknown: the absence of a symptom says nothing about them."""
    return frozenset(row.key for row in decision.status.workloads if row.unknown or row.condition is Condition.UNKNOWN)


def _all(decision: Decision, desired: Desired) -> Iterator[Symptom]:
    unknown = set(decision.status.unknown)
    yield from _providers(decision)
    for hold in decision.holds:
        symptom = _of_hold(hold, decision, desired)
        if symptom is not None:
            yield symptom
    rollouts = decision.ledger.rollouts
    for workload in decision.status.workloads:
        if workload.condition in _WELL:
            # Most workloads have no symptom: this is all that they cost.
            rollout = rollouts.get(workload.key)
            if rollout is None or all(row.standing is not Standing.FAILED for row in rollout.rows):
                continue
        yield from _of_workload(workload, decision, desired, unknown)
    yield from _orders(decision)


def _of_hold(hold: Hold, decision: Decision, desired: Desired) -> Symptom | None:
    rule, waiting = hold.rule, decision.status.observed.waiting
    if hold.object == OBJECT and waiting is not None and hold.until is None and rule in _HOLD_COMMITS:
        return _symptom(_COMMITS, hold, waiting.revision)
    if rule in SILENT or (rule is Rule.STEP_FAILED and not hold.next_step):
        return None  # a step that failed without being refused is tried again soon
    of_rule = CLASSES.get(rule)
    if of_rule is None:
        if hold.until is not None:
            return None
        of_rule = _Class(Topic.HOLD, f"hold {rule.value}")
    if of_rule is _HEALTH and not hold.object.startswith(("workload/", "container/")):
        return None  # what a pool or name does about replicas that are not healthy
    revision = desired.revision if of_rule.of_revision else ""
    problem = decision.status.observed.source_problem
    if of_rule.of_revision and of_rule.topic is Topic.SOURCE and problem is not None:
        revision = problem.revision
    return _symptom(of_rule, hold, revision)


def _symptom(of_rule: _Class, hold: Hold, revision: str) -> Symptom:
    operator = hold.until is None
    object_ = owner(hold.object)
    return Symptom(
        of_rule.kind, of_rule.topic, object_, hold.message, hold.next_step, operator, revision, of_rule.patience
    )


def _of_workload(
    workload: WorkloadStatus, decision: Decision, desired: Desired, unknown: set[str]
) -> Iterator[Symptom]:
    """A revision that has failed, too few replicas, or a node that cannot be read."""
    ledger, group = decision.ledger, decision.status.roster.groups.get(workload.key)
    failed = why_failed(ledger.rollouts.get(workload.key), workload.revision)
    if failed is not None:
        next_step = f"change the template, or run: reconcile resume {workload.key}"
        yield Symptom(
            _ROLLOUT.kind, _ROLLOUT.topic, workload.key, failed, next_step, True, desired.revision, _ROLLOUT.patience
        )
    if workload.condition is Condition.DEGRADED and failed is None:
        message = f"{workload.available} of {workload.wanted} replicas are available"
        detail = "" if group is None else _detail(group, decision.status.observed.probes)
        next_step = f"run: reconcile explain {workload.key}"
        yield Symptom(
            _HEALTH.kind, _HEALTH.topic, workload.key, f"{message}{f'; {detail}' if detail else ''}", next_step
        )
    for node in sorted({*(() if group is None else group.unreadable_nodes)} & unknown):
        message = f"replicas of it are unknown, because node {node} cannot be read"
        yield Symptom(f"provider {node}", Topic.PROVIDER, workload.key, message)


def _detail(group: Group, probes: Mapping[Generation, Probes]) -> str:
    """What the first replica with a failing probe answers."""
    for _, belief in sorted(group.current.items()):
        verdicts = probes.get(belief.fact.generation, _NO_PROBES)
        for name in ("startup", "liveness", "readiness"):
            fact = getattr(verdicts, name)
            if fact is not None and fact.value is ProbeValue.FAIL and fact.detail:
                return f"{name} of {belief.fact.name}: {fact.detail}"
    return ""


def _providers(decision: Decision) -> Iterator[Symptom]:
    """Nodes, pools and zones that cannot be read: one kind for each provider."""
    for place, reason in decision.status.unknown.items():
        provider = place.partition("/")[0]
        what = f"{place} cannot be read: {reason}"
        next_step = "run: reconcile doctor PATH"
        yield Symptom(f"provider {provider}", Topic.PROVIDER, f"provider/{place}", what, next_step)


def _orders(decision: Decision) -> Iterator[Symptom]:
    """Suspensions and overrides of operators that have no end: a reminder asks whether they are still meant."""
    ledger = decision.ledger
    for key, suspension in ledger.suspensions.items():
        if not suspension.until_wall:
            scope, suspended = parse(key)
            who, reason = suspension.who or "an operator", suspension.reason or "no reason given"
            message = f"{who} suspended {shown(key)}: {reason}"
            object_ = OBJECT if scope is Scope.COMMITS else suspended
            yield Symptom("suspension", Topic.SUSPENSION, object_, message, resume_command(key), True)
    for key, override in ledger.overrides.items():
        if not override.until_wall and not override.waits:
            verb = "drained" if override.force.value == "drain" else f"forced {override.force.value}"
            message = f"{override.who or 'an operator'} {verb} {key}: {override.reason or 'no reason given'}"
            yield Symptom("suspension", Topic.SUSPENSION, key, message, f"reconcile release {key}", True)
