"""Recheck: replicas that are about to get traffic are asked once more at that instant.

A verdict may be a whole period old, and with long periods a revision would get all traffic although its replicas have failed for
seconds. So the traffic moves only once every replica has answered once more, by a regular probe or by an extra one that the shell sends
for `Revision.rechecked`. `evidence` gathers the answers, `activate` waits for them.
"""

from typing import NamedTuple

from manifests.values.desired import SECOND, ProbeKind
from providers.facts import ContainerState, ProbeFact, ProbeValue
from reconciler.core.health.belief import By
from reconciler.core.model.instant import due
from reconciler.core.model.revision import Revision
from reconciler.core.replicas import specs
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.rollouts import health

SLACK = SECOND
"""How much longer (ns) than the longest time-out of the probes an answer may take."""

_PUSHED = {By.PUSH, By.BOTH}
_ANSWERS = {ProbeValue.PASS, ProbeValue.FAIL}


class Recheck(NamedTuple):
    """The answers of a revision's replicas since it was rechecked.

    `failing` says of replicas that failed how, `missing` which have not answered; they are waited for until the steady instant
    `until`.
    """

    failing: tuple[str, ...]
    missing: tuple[str, ...]
    until: int

    @property
    def passed(self) -> bool:
        """Whether every replica has passed."""
        return not self.failing and not self.missing


def recheck(snap: Snapshot, group: Group, row: Revision) -> Recheck | None:
    """The answers of the replicas of one revision; None while it is not rechecked.

    A replica's own fresh push counts as its answer, as does an operator's override. The runtime's own health check cannot be asked.
    """
    at = row.rechecked
    if at is None or at.steady < snap.observed.booted:
        return None
    failing: list[str] = []
    missing: list[str] = []
    longest = 0
    for belief in group.of(row.revision):
        fact = belief.fact
        if health.kept_out(belief) or fact.state is not ContainerState.RUNNING:
            continue
        if belief.claim is not None and belief.claim.by is By.OVERRIDE:
            continue
        main = snap.roster.container_of(group.workload, fact)
        for name, probe in (("liveness", main.liveness), ("readiness", main.readiness)):
            if probe is None or probe.kind is ProbeKind.RUNTIME:
                continue
            push = snap.observed.pushes.get(fact.generation)
            pushed = belief.claim is not None and belief.claim.by in _PUSHED
            if name == "readiness" and pushed and push is not None and push.at >= at.steady:
                continue
            longest = max(longest, probe.timeout)
            verdicts, extra = snap.observed.probes.get(fact.generation), None
            answer = snap.observed.trials.get(fact.generation, {}).get(specs.AGAIN + name)
            if answer is not None and answer.trial == probe:
                extra = answer.fact
            regular: ProbeFact | None = getattr(verdicts, name, None)
            newer = [
                result
                for result in (regular, extra)
                if result is not None and result.last in _ANSWERS and result.last_at >= at.steady
            ]
            if not newer:
                missing.append(f"{fact.name} ({name})")
                continue
            newest = max(newer, key=lambda result: (result.last_at, result.last is ProbeValue.FAIL))
            if newest.last is ProbeValue.FAIL:
                failing.append(f"{fact.name} ({name}: {newest.detail})")
    return Recheck(tuple(failing), tuple(missing), due(at, longest + SLACK, snap.now))
