"""From a checked Workload to its value: nodes, template, limits on disruption, adoption. Called by `resolver.py`.

As every builder here, it takes one declared object and the scope of the tree. It reports problems to the scope and returns
None when no value can be made; the value of an object with a reported problem is never used.
"""

from collections.abc import Sequence

from manifests import kinds
from manifests.kinds.validate import Declared
from manifests.kinds.workload import Availability, Drain, WorkloadSpec
from manifests.problems import Code
from manifests.resolve import rollout
from manifests.resolve.image_policies import image_policies
from manifests.resolve.pod import TemplateSupport, check_support, template
from manifests.resolve.push import push
from manifests.resolve.references import Scope
from manifests.resolve.repository_files import repository_files
from manifests.types.numbers import Percent
from manifests.values import desired
from manifests.values.desired import SECOND, Role
from manifests.values.drift import DEFAULT_DRIFT, DriftAction, DriftRules
from manifests.values.limits import Escalation, Mode
from manifests.values.nodes import Nodes

CONTAINER_NAME = 63
"""Longest name of a container: it is also a host name on its network (RFC 1123)."""


def workload(declared: Declared, scope: Scope, instance_id: str, support: TemplateSupport) -> desired.Workload | None:
    """A workload with its nodes, its probes' ports and its revision. `instance_id` is empty while it is not known."""
    manifest = declared.manifest
    if not isinstance(manifest, kinds.Workload):
        return None
    spec = manifest.spec
    if instance_id:
        _check_name_length(declared, scope, instance_id, manifest)
    nodes = _nodes(declared, scope, spec.nodes)
    check_support(declared, scope, manifest, nodes, support)
    strategy = rollout.strategy(declared, scope, manifest)
    files = repository_files(declared, scope, spec.template.spec)
    return desired.Workload(
        key=declared.key,
        name=declared.name,
        nodes=nodes,
        replicas=spec.replicas,
        template=template(declared, scope, manifest, files),
        min_ready=spec.min_ready_seconds * SECOND,
        max_unavailable=_max_unavailable(spec.availability, spec.replicas),
        restarts=_restarts(spec),
        drain_max=int(spec.drain.max),
        drain_min=_drain_min(spec.drain),
        suspend=spec.suspend,
        strategy=strategy,
        rollout=rollout.rollout(manifest, strategy),
        on_secret_change=desired.OnSecretChange(spec.on_secret_change),
        push=push(declared, scope, manifest),
        adopt=_adopt(declared, scope, manifest),
        env_origins=files.origins,
        drift=_drift(scope, spec),
        image_policies=image_policies(declared, scope, manifest),
        image_choices=scope.choices.get(declared.key, ()),
        where=declared.document.where,
    )


def _drift(scope: Scope, spec: WorkloadSpec) -> DriftRules:
    """What is done about drift: what the workload says of a field, else the Guard, else the default."""
    guards = [
        declared.manifest.spec.drift for declared in scope.all("Guard") if isinstance(declared.manifest, kinds.Guard)
    ]

    def of(field: str) -> DriftAction:
        given = (getattr(rules, field) for rules in (spec.drift, *guards[:1]))
        return next((DriftAction(action) for action in given if action is not None), getattr(DEFAULT_DRIFT, field))

    return DriftRules(of("resources"), of("networks"), of("image"))


def _nodes(declared: Declared, scope: Scope, names: Sequence[str]) -> Nodes:
    """The nodes of a workload; the same object for equal lists."""
    listed = tuple(names)
    if not listed:
        listed = (scope.only_provider(Role.RUNTIME, declared, ("spec",), "spec.nodes"),)
    known = scope.node_lists.get(listed)
    if known is not None:
        return known
    nodes = Nodes(listed)
    valid = [scope.provider(name, Role.RUNTIME, declared, ("spec", "nodes", at)) for at, name in enumerate(names)]
    if all(valid):
        scope.node_lists[listed] = nodes  # a list with a problem is reported for each workload
    return nodes


def _check_name_length(declared: Declared, scope: Scope, instance_id: str, manifest: kinds.Workload) -> None:
    spec = manifest.spec
    longest = f"{instance_id}-{declared.name}-{'0' * 8}-{max(spec.replicas - 1, 0)}"
    excess = len(longest) - CONTAINER_NAME
    if excess <= 0:
        return
    message = f"{declared.key}: container name '{longest}' has {len(longest)} characters, at most {CONTAINER_NAME} are allowed"
    hint = f"shorten the name of the workload or the id of the Instance by {excess}"
    scope.report(declared, ("metadata", "name"), Code.NAME_TOO_LONG, message, hint)


def _adopt(declared: Declared, scope: Scope, manifest: kinds.Workload) -> desired.Adopt | None:
    """Which containers the workload takes over; None where it adopts none."""
    given = manifest.spec.adopt
    if given is None:
        return None
    if len(manifest.spec.template.spec.containers) > 1:
        message = (
            f"{declared.key}: a template with several containers cannot adopt: a running container has no sidecars"
        )
        hint = "use a template with one container, or remove adopt"
        scope.report(declared, ("spec", "adopt"), Code.CONFLICT, message, hint)
    return desired.Adopt(given.names, tuple(sorted(given.labels.items())), given.replace)


# --- limits on disruption -------------------------------------------------------------------------------------------


def _max_unavailable(given: Availability, replicas: int) -> int:
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


def _restarts(spec: WorkloadSpec) -> desired.Restarts:
    given = spec.restarts
    return desired.Restarts(
        limit=given.limit,
        window=int(given.window),
        backoff=desired.Backoff(int(given.backoff.initial), int(given.backoff.max), int(given.backoff.reset)),
        mode=Mode(given.mode),
        escalation=Escalation(given.escalation.recreate_after, given.escalation.give_up_after),
    )


def _drain_min(given: Drain) -> int:
    """How long a replica must have no requests in flight before it is stopped (ns): the default is at most `max`."""
    return min(int(given.min), int(given.max))
