"""Trouble: what keeps replicas of a revision from being made, being started, or staying up, in the engine's own words.

`switch` and `revisions` ask it before they call a revision failed, `revision_rows` to say why one is still on its way. Probes are not
looked at here: a replica that runs and is not well is another matter.
"""

from collections.abc import Iterator
from typing import NamedTuple

from providers.facts import ContainerState, Mark, container_name
from reconciler.core.model.ledger import Ledger
from reconciler.core.replicas.memory import failures_of
from reconciler.core.replicas.roster import Group

LONGEST = 400
"""Characters kept of what an engine says; its whole answer is in the journal of steps."""

_ENDED = {ContainerState.EXITED, ContainerState.RESTARTING}


class Trouble(NamedTuple):
    """One replica's, and whether trying on makes sense.

    `certain`: it lies in the replica, and not only in a registry or an engine that gave no answer before anything was made. `over`:
    it was refused for good, or ended by itself, more often in a row than `restarts.limit`.
    """

    message: str
    certain: bool
    over: bool


def trouble(group: Group, revision: str, instance: str, ledger: Ledger) -> Trouble | None:
    """The worst trouble of the replicas of one revision; None when there is none."""
    found = [*_not_made(group, revision, instance, ledger), *_ended(group, revision, ledger)]
    return max(found, key=lambda one: (one.over, one.certain, one.message), default=None)


def _not_made(group: Group, revision: str, instance: str, ledger: Ledger) -> Iterator[Trouble]:
    """Creates and starts that the runtime did not do."""
    if not ledger.step_failures:
        return
    workload = group.workload
    limit = max(1, workload.restarts.limit)
    for ordinal in range(workload.replicas):
        name = container_name(Mark(instance, workload.name, ordinal, revision))
        for verb, done in (("create", "created"), ("start", "started")):
            failure = ledger.step_failures.get(f"{verb} {name}")
            if failure is None or not failure.streak:
                continue
            message = f"{name} could not be {done}: {_short(failure.message)}"
            yield Trouble(message, failure.stop or verb == "start", failure.stop and failure.streak > limit)


def _ended(group: Group, revision: str, ledger: Ledger) -> Iterator[Trouble]:
    """Containers that are down because they ended by themselves."""
    limit = max(1, group.workload.restarts.limit)
    for belief in group.members() if ledger.failures else ():
        fact = belief.fact
        if fact.mark is None or fact.mark.revision != revision or fact.state not in _ENDED:
            continue
        failures = ledger.failures.get(failures_of(group, fact))
        if failures is not None and failures.generation == fact.generation:
            times = "once" if failures.streak == 1 else f"{failures.streak} times in a row"
            code = "" if fact.exit_code is None else f", with exit code {fact.exit_code}"
            yield Trouble(f"{fact.name} ended {times}{code}", True, failures.streak > limit)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
