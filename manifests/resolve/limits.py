"""From the checked limits of a Workload and of the Guard to the values of `limits.py`. Called by `build.py` and `resolve.py`."""

from manifests.kinds.guard import GuardSpec, NodeRate, OverallRate, WorkloadRate
from manifests.kinds.workload import Availability, WorkloadSpec
from manifests.types.numbers import Percent
from manifests.values import desired
from manifests.values.limits import Escalation, Held, MassFailure, Mode, Rate, RestartLimits, Window


def max_unavailable(given: Availability, replicas: int) -> int:
    """How many replicas may be unavailable. A share of them rounds to the careful side, but several replicas may lose one."""
    if given.min_available is not None:
        least = given.min_available
        if isinstance(least, Percent):
            least = -(-replicas * least // 100)
        return max(0, replicas - least)
    most = given.max_unavailable
    if not isinstance(most, Percent):
        return most
    count = replicas * most // 100
    return max(count, 1) if replicas > 1 else count


def restarts(spec: WorkloadSpec) -> desired.Restarts:
    """The limits on restarts of one workload."""
    given = spec.restarts
    return desired.Restarts(
        limit=given.limit,
        window=int(given.window),
        backoff=desired.Backoff(int(given.backoff.initial), int(given.backoff.max), int(given.backoff.reset)),
        mode=Mode(given.mode),
        escalation=Escalation(given.escalation.recreate_after, given.escalation.give_up_after),
    )


def guard_restarts(spec: GuardSpec) -> RestartLimits:
    """The limits on all restarts."""
    given = spec.restarts
    return RestartLimits(
        mode=Mode(given.mode),
        share=int(given.share),
        workload=_bucket(given.per_workload),
        node=_bucket(given.per_node),
        total=_bucket(given.overall),
        in_flight=given.in_flight,
    )


def _bucket(given: WorkloadRate | NodeRate | OverallRate) -> Rate:
    return Rate(given.per_minute, given.burst)


def mass_failure(spec: GuardSpec) -> MassFailure:
    """When failures are taken for a common one."""
    given = spec.mass_failure
    return MassFailure(int(given.share), given.minimum, int(given.hold), int(given.max_hold))


def windows(spec: GuardSpec) -> tuple[Window, ...]:
    """The windows, by name."""
    made = [
        Window(
            window.name,
            frozenset(Held(what) for what in window.holds),
            window.schedule,
            int(window.duration),
            window.timezone,
        )
        for window in spec.windows
    ]
    return tuple(sorted(made, key=lambda one: one.name))
