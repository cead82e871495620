"""Start failures: why replicas of a revision are not created, not started, or do not stay up, as the engine reports it.

`evidence` and `rolling` ask before a revision counts as failed, `status/revisions` to report why a rollout has not ended. Probes
do not count here: a running replica that is not ready has no start failure.
"""

from collections.abc import Iterator
from typing import NamedTuple

from providers.facts import ContainerState, Mark, container_name
from reconciler.core.healing import restart_counters
from reconciler.core.model.ledger import Ledger
from reconciler.core.replicas import memory
from reconciler.core.replicas.roster import Group

LONGEST = 400
"""Characters kept of what an engine says; its whole answer is in the journal of steps."""

_ENDED = {ContainerState.EXITED, ContainerState.RESTARTING}


class StartFailure(NamedTuple):
    """The failure of one replica, and whether another try makes sense.

    `certain`: the cause is the replica: the engine does not start it, or it exits. A create that fails may succeed at any later try.
    `final`: it exited by itself more often in a row than `restarts.limit`.
    """

    message: str
    certain: bool
    final: bool


def worst(group: Group, revision: str, instance: str, ledger: Ledger) -> StartFailure | None:
    """The worst failure of the replicas of one revision; None when there is none."""
    failures = [*_not_created(group, revision, instance, ledger), *_ended(group, revision, ledger)]
    return max(failures, key=lambda failure: (failure.final, failure.certain, failure.message), default=None)


def _not_created(group: Group, revision: str, instance: str, ledger: Ledger) -> Iterator[StartFailure]:
    """Creates and starts that the runtime did not do."""
    if not ledger.step_failures:
        return
    workload = group.workload
    for ordinal in range(workload.replicas):
        name = container_name(Mark(instance, workload.name, ordinal, revision))
        for verb, done in (("create", "created"), ("start", "started")):
            failure = ledger.step_failures.get(f"{verb} {name}")
            if failure is None or not failure.streak:
                continue
            message = f"{name} could not be {done}: {_short(failure.message)}"
            # Nothing is final: an image may be pushed, a network created, a secret set where no look shows it.
            yield StartFailure(message, verb == "start", False)


def _ended(group: Group, revision: str, ledger: Ledger) -> Iterator[StartFailure]:
    """Containers that are down because they exited by themselves."""
    limit = max(1, group.workload.restarts.limit)
    for belief in group.members() if ledger.failures else ():
        fact = belief.fact
        if fact.mark is None or fact.mark.revision != revision or fact.state not in _ENDED:
            continue
        failures = ledger.failures.get(memory.failures_of(group, fact))
        if failures is not None and failures.generation == fact.generation:
            times = restart_counters.in_a_row(failures.streak)
            code = "" if fact.exit_code is None else f", exit code {fact.exit_code}"
            yield StartFailure(f"{fact.name} exited {times}{code}", True, failures.streak > limit)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
