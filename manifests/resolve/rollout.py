"""From the checked `rollout` of a Workload to its value. Called by `workload.py`."""

from manifests import kinds
from manifests.kinds import rollout as model
from manifests.kinds.validate import Declared
from manifests.problems import Code
from manifests.resolve.probe import all_ports
from manifests.resolve.references import Scope
from manifests.types.durations import Duration
from manifests.values.rollouts import CanaryStep, Rollout, Strategy, Supersede


def strategy(declared: Declared, scope: Scope, manifest: kinds.Workload) -> Strategy:
    """The strategy; `recreate` where two revisions cannot run beside each other."""
    given = manifest.spec.rollout
    exclusive = _exclusive(manifest)
    if not exclusive:
        if given.strategy is not None:
            return Strategy(given.strategy)
        if given.canary is not None:
            return Strategy.CANARY
        return Strategy.ACTIVATE if given.staged else Strategy.ROLLING
    if given.strategy == "rolling" or given.staged:
        message = f"{declared.key}: a new replica cannot run beside the old one: {exclusive}"
        hint = "write strategy: recreate, or remove the hostPort or accessMode"
        scope.report(declared, ("spec", "rollout", "strategy"), Code.CONFLICT, message, hint)
    return Strategy.RECREATE


def _exclusive(manifest: kinds.Workload) -> str:
    """The host port or volume that two containers of a replica cannot have at once; empty when there is none."""
    spec = manifest.spec.template.spec
    ports = [port.host_port for port in all_ports(spec) if port.host_port is not None]
    if ports:
        return f"both publish port {ports[0]} of the host"
    volumes = [volume.name for volume in spec.volumes if volume.access_mode == "ReadWriteOncePod"]
    return f"only one may have the volume '{volumes[0]}'" if volumes else ""


def rollout(manifest: kinds.Workload, chosen: Strategy) -> Rollout:
    """The times of the rollout."""
    given = manifest.spec.rollout
    delay = given.activation_delay
    if delay is None:
        delay = Duration(model.DELAY if chosen is Strategy.ACTIVATE else 0)
    steps = given.canary.steps if given.canary is not None else ()
    return Rollout(
        activate_at=0 if given.activate_at is None else int(given.activate_at),
        delay=int(delay),
        precheck=int(given.precheck),
        pending_grace=int(given.pending_grace),
        supersede=Supersede(given.supersede),
        bake=int(given.bake),
        window=int(given.rollback_window),
        progress_deadline=int(given.progress_deadline),
        steps=tuple(CanaryStep(int(step.weight) * 100, int(step.pause)) for step in steps),
    )
