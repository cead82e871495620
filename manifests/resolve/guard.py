"""From the checked Guard to its value: denied objects, allowed commands, and the limits on restarts. Called by `resolver.py`."""

from manifests import kinds
from manifests.kinds.guard import GuardSpec, NodeRate, OverallRate, WorkloadRate
from manifests.problems import Code, did_you_mean
from manifests.resolve.probe import check_commands
from manifests.resolve.references import Scope
from manifests.values import desired
from manifests.values.limits import Approve, Held, MassFailure, Mode, Rate, RestartLimits, Window


def guard(scope: Scope) -> desired.Guard:
    """The Guard of the tree, or its defaults when there is none."""
    declared = scope.all("Guard")
    manifest = declared[0].manifest if declared else None
    if not isinstance(manifest, kinds.Guard):
        return desired.Guard()
    spec = manifest.spec
    for index, key in enumerate(spec.deny):
        if not scope.incomplete and not scope.has(key) and not key.startswith("container/"):
            hint = did_you_mean(key, scope.keys(), "declared objects")
            message = f"{declared[0].key}: there is no object '{key}'"
            scope.report(declared[0], ("spec", "deny", index), Code.UNKNOWN_REFERENCE, message, hint)
    for workload in scope.all("Workload") if spec.exec_commands is not None else ():
        check_commands(workload, scope, spec.exec_commands or ())
    limits = spec.mass_change
    return desired.Guard(
        spec.suspend,
        frozenset(spec.deny),
        desired.MassChange(int(limits.share), limits.minimum, limits.records, limits.names),
        spec.exec_commands,
        restarts=_restart_limits(spec),
        mass_failure=_mass_failure(spec),
        windows=_windows(spec),
        suspend_commits=spec.suspend_commits,
        suspend_healing=spec.suspend_healing,
        approve=frozenset(map(Approve, spec.approve)),
    )


def _restart_limits(spec: GuardSpec) -> RestartLimits:
    given = spec.restarts
    return RestartLimits(
        mode=Mode(given.mode),
        share=int(given.share),
        workload=_rate(given.per_workload),
        node=_rate(given.per_node),
        total=_rate(given.overall),
        in_flight=given.in_flight,
    )


def _rate(given: WorkloadRate | NodeRate | OverallRate) -> Rate:
    return Rate(given.per_minute, given.burst)


def _mass_failure(spec: GuardSpec) -> MassFailure:
    given = spec.mass_failure
    return MassFailure(int(given.share), given.minimum, int(given.hold), int(given.max_hold))


def _windows(spec: GuardSpec) -> tuple[Window, ...]:
    """The windows, sorted by name."""
    windows = [
        Window(
            window.name,
            frozenset(Held(action) for action in window.holds),
            window.schedule,
            int(window.duration),
            window.timezone,
        )
        for window in spec.windows
    ]
    return tuple(sorted(windows, key=lambda window: window.name))
