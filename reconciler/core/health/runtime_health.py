"""Runtime health: the result of the runtime's own health check of a container, as a probe verdict.

For probes of kind runtimeHealth: the runtime runs the check, with its own times and counts. Called by `shell/probing/targets` after
every look, which keeps the verdicts of all probes of a generation together.
"""

from providers.facts import ProbeFact, ProbeValue, RuntimeHealth
from reconciler.core.model.instant import FOREVER

STALE = 3
"""Intervals after which the result of a health check that has not run again no longer counts: the runtime has stopped it."""

CADENCES = 3
"""Looks for which a result counts that was fresh when it was observed: the health check may run more often than looks do."""


def verdict(
    health: RuntimeHealth | None, before: ProbeFact | None, observed_at: int, cadence: int, running_since: int
) -> ProbeFact:
    """The verdict on one generation.

    Args:
        health: as observed last, None when the container has no such check.
        before: the verdict of the look before on the same generation.
        observed_at: steady instant of the look, ns.
        cadence: time between two looks at the runtime, ns.
        running_since: steady start of the generation, ns: an earlier result belongs to an earlier generation.

    Returns:
        Pass or fail while the check runs; unknown while it is starting, has no result of this generation, or its last
        run is older than three of its intervals; cannot-run without one. `since` is when the value was first observed.
    """
    if health is None:
        detail = "the container has no health check: add one to its image, or use httpGet, tcpSocket or grpc"
        return _of(ProbeValue.CANNOT_RUN, before, observed_at, FOREVER, 0, detail)
    if health.last_at <= 0 or health.last_at < running_since:
        return _of(ProbeValue.UNKNOWN, before, observed_at, FOREVER, 0, "the health check has not run yet")
    interval = max(health.interval, 1)
    age = observed_at - health.last_at
    if age > STALE * interval:
        detail = f"the health check has not run for {STALE} of its intervals"
        return _of(ProbeValue.UNKNOWN, before, health.last_at, FOREVER, 0, detail)
    valid_for = max(STALE * interval, age + CADENCES * cadence)
    return _of(health.value, before, health.last_at, valid_for, health.streak, health.output)


def _of(
    value: ProbeValue, before: ProbeFact | None, last_at: int, valid_for: int, streak: int, detail: str
) -> ProbeFact:
    since = before.since if before is not None and before.value is value else last_at
    return ProbeFact(value, value, streak, max(streak, 1), since, last_at, valid_for, detail)
