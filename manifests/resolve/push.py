"""From the checked `push` of a Workload and of the Instance to values. Called by `workload.py` and `instance.py`."""

from importlib.util import find_spec

from manifests import kinds
from manifests.kinds.instance import split_listen
from manifests.kinds.validate import Declared
from manifests.kinds.workload import Push
from manifests.problems import Code
from manifests.resolve.references import Scope
from manifests.types.durations import MINUTE, Duration
from manifests.values import desired
from manifests.values.desired import SECOND

DRAIN_DEADLINE = 10 * MINUTE
"""How long a replica may run after it pushed `draining`, by default (ns)."""

SERVER = ("starlette", "uvicorn")
"""The packages of the listener: the extra `serve`."""


def push(declared: Declared, scope: Scope, manifest: kinds.Workload) -> desired.Push | None:
    """How long pushes of a workload are trusted. Reports a missing listener, and traffic before the first push."""
    spec = manifest.spec.push
    if spec is None:
        return None
    instances = scope.all("Instance")
    instance = instances[0].manifest if instances else None
    if isinstance(instance, kinds.Instance) and instance.spec.push is None:
        message = f"{declared.key}: the Instance has no push listener to receive its pushes"
        scope.report(declared, ("spec", "push"), Code.UNKNOWN_REFERENCE, message, "write push: {} in the Instance")
    main = manifest.spec.template.spec.containers[0]
    if main.readiness_probe is None and main.startup_probe is None:
        message = f"{declared.key}: a replica counts as ready from its start until its first push"
        hint = "add a readinessProbe that fails until the program can serve requests"
        scope.report(declared, ("spec", "push"), Code.EARLY_TRAFFIC, message, hint)
    return desired.Push(
        fresh=int(spec.fresh),
        middle_zone=desired.MiddleZone(spec.middle_zone),
        stale=int(spec.stale),
        startup_deadline=int(spec.startup_deadline),
        heartbeats=spec.heartbeats,
        drain_deadline=_drain_deadline(declared, scope, manifest, spec),
    )


def _drain_deadline(declared: Declared, scope: Scope, manifest: kinds.Workload, spec: Push) -> int:
    """How long a replica may run after it pushed `draining` (ns). Reports one that is shorter than an exit may take."""
    grace = manifest.spec.template.spec.termination_grace_period_seconds
    least = int(manifest.spec.drain.max) + grace * SECOND
    if spec.drain_deadline is None:
        return max(DRAIN_DEADLINE, least)
    if spec.drain_deadline < least:
        message = (
            f"{declared.key}: push.drainDeadline ({spec.drain_deadline}) is shorter than an exit may take: "
            f"drain.max ({manifest.spec.drain.max}) and terminationGracePeriodSeconds ({grace}) are {Duration(least)}"
        )
        hint = f"set push.drainDeadline to at least {Duration(least)}, or shorten drain.max"
        scope.report(declared, ("spec", "push", "drainDeadline"), Code.BAD_VALUE, message, hint)
    return int(spec.drain_deadline)


def listener(declared: Declared, scope: Scope, manifest: kinds.Instance) -> desired.PushListener | None:
    """Where pushes are received. Reports missing packages."""
    spec = manifest.spec.push
    if spec is None:
        return None
    needs_server(declared, scope, "push")
    return desired.PushListener(spec.socket, None if spec.tcp is None else split_listen(spec.tcp.listen))


def needs_server(declared: Declared, scope: Scope, listener_name: str, *above: str) -> None:
    """Report the packages that a listener of the Instance needs and that are not installed. `above`: the fields that it is in."""
    missing = [name for name in SERVER if find_spec(name) is None]
    if missing:
        message = (
            f"{declared.key}: a {listener_name} listener needs {' and '.join(missing)}, "
            f"which {'is' if len(missing) == 1 else 'are'} not installed"
        )
        hint = "run pip install 'reconciler-gitops[serve]'"
        scope.report(declared, ("spec", *above, listener_name), Code.UNSUPPORTED_FIELD, message, hint)
