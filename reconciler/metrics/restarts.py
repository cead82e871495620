"""Restarts by cause and actor: those by steps, and those that looks find. Pure; `meter.py` counts what it returns."""

from collections.abc import Iterator
from typing import NamedTuple

from providers.actions import RemoveContainer, StartContainer
from providers.facts import ContainerState
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step
from reconciler.core.replicas import ends
from reconciler.shell.monitor import Tick

RECREATED = {Reason.RECREATE, Reason.DRAIN_DEADLINE, Reason.REQUESTED}
"""Causes with which a removed container is created again. Other removals are of rollouts, or for good."""

ACTORS = ("reconciler", "operator", "runtime", "external")


class Restart(NamedTuple):
    """Restarts of one workload. `actor` is one of ACTORS."""

    workload: str
    cause: str
    actor: str
    times: int = 1


def of_step(step: Step, outcome: Outcome) -> Restart | None:
    """The restart that a step has done: it started a container that ran before, or removed one that is created again."""
    if outcome.kind is not OutcomeKind.DONE:
        return None
    action = step.action
    again = isinstance(action, StartContainer) and action.expect.started_at > 0
    if not again and not (isinstance(action, RemoveContainer) and step.cause in RECREATED):
        return None
    actor = "operator" if step.cause is Reason.REQUESTED else "reconciler"
    return Restart(workload_of(step.object), step.cause.value, actor)


def observed(tick: Tick) -> Iterator[Restart]:
    """The restarts that the looks of a tick found: by the runtime, and by an operator or program beside reconcile."""
    before, after, sight = tick.owned, tick.decision.ledger.owned, tick.decision.status.sight
    if after is before or sight is None:
        return
    changed = {container: row for container, row in after.items() if row is not before.get(container)}
    for fact in (fact for facts in sight.runtimes.values() for fact in facts if fact.id in changed):
        known, mark = before.get(fact.id), fact.mark
        if known is None or mark is None:
            continue
        end, count = ends.end_of(fact), changed[fact.id].restarts - known.restarts
        cause = ends.reason_of(end.exit_code, end.cause) if end is not None else Reason.CRASHED
        if count > 0:
            yield Restart(mark.workload, cause.value, "runtime", count)
    for found in ends.between(before, after, sight.runtimes):
        fact, mark = found.fact, found.fact.mark
        by_runtime = fact.id not in before or changed[fact.id].restarts > before[fact.id].restarts
        if not (found.child or by_runtime) and fact.state is ContainerState.RUNNING and mark is not None:
            yield Restart(mark.workload, found.reason.value, "external")


def workload_of(obj: str) -> str:
    """The name of the workload in the key of a workload or replica; empty for other objects."""
    kind, _, rest = obj.partition("/")
    return rest.partition("/")[0] if kind == "workload" else ""
