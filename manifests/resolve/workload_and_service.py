"""From checked manifests to the values of `desired.py`, with every reference resolved. Called by `resolve.py`.

Each function takes one declared object and the scope of the tree. It reports what is wrong to the scope and returns None
when no value can be made; the value of an object with a reported problem is never used.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from manifests import kinds
from manifests.kinds.service import Balancer
from manifests.kinds.validate import Declared, explain
from manifests.problems import Code, did_you_mean
from manifests.resolve import adopt, limits, rollout, traffic
from manifests.resolve.pod import TemplateSupport, check_support, template
from manifests.resolve.probe import all_ports, port_number, ports_hint
from manifests.resolve.push import push
from manifests.resolve.references import Scope
from manifests.values import desired
from manifests.values.desired import SECOND, Role

SettingsModel = Callable[[str], tuple[Role, type[BaseModel]] | None]
"""Role and settings model of a provider type, or None for an unknown type."""

KnownTypes = Callable[[], Sequence[str]]
"""Names of all provider types, for suggestions."""

CONTAINER_NAME = 63
"""Longest name of a container: it is also a host name on its network (RFC 1123)."""


def provider(
    declared: Declared, scope: Scope, settings_model: SettingsModel, known_types: KnownTypes
) -> desired.Provider | None:
    """A provider whose settings fit its type. Notes its role in the scope."""
    manifest = declared.manifest
    scope.roles[declared.name] = None
    scope.types[declared.name] = ""
    if not isinstance(manifest, kinds.Provider):
        return None
    known = settings_model(manifest.spec.type)
    if known is None:
        hint = did_you_mean(manifest.spec.type, list(known_types()), "known types")
        message = f"{declared.key}: there is no provider type '{manifest.spec.type[:60]}'"
        scope.report(declared, ("spec", "type"), Code.UNKNOWN_TYPE, message, hint)
        return None
    role, model = known
    scope.roles[declared.name] = role
    scope.types[declared.name] = manifest.spec.type
    if getattr(model, "takes_slots", False):
        scope.with_slots.add(declared.name)
    try:
        model.model_validate(manifest.spec.settings)
    except ValidationError as error:
        scope.problems.extend(explain(declared.document, error, model, ("spec", "settings"), declared.key))
        return None
    settings = _canonical(manifest.spec.settings)
    return desired.Provider(declared.key, declared.name, manifest.spec.type, role, settings, declared.document.where)


def _canonical(value: Any) -> Any:
    """The same JSON value with the keys of all mappings in order."""
    if isinstance(value, dict):
        return {key: _canonical(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return value


# --- workloads ----------------------------------------------------------------------------------------------------


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
    return desired.Workload(
        key=declared.key,
        name=declared.name,
        nodes=nodes,
        replicas=spec.replicas,
        template=template(declared, scope, manifest),
        min_ready=spec.min_ready_seconds * SECOND,
        max_unavailable=limits.max_unavailable(spec.availability, spec.replicas),
        restarts=limits.restarts(spec),
        drain_max=int(spec.drain.max),
        drain_min=traffic.drain_min(spec.drain),
        suspend=spec.suspend,
        strategy=strategy,
        rollout=rollout.rollout(manifest, strategy),
        on_secret_change=desired.OnSecretChange(spec.on_secret_change),
        push=push(declared, scope, manifest),
        adopt=adopt.adopt(declared, scope, manifest),
        where=declared.document.where,
    )


def _nodes(declared: Declared, scope: Scope, names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return (scope.only_provider(Role.RUNTIME, declared, ("spec",), "spec.nodes"),)
    for index, name in enumerate(names):
        scope.provider(name, Role.RUNTIME, declared, ("spec", "nodes", index))
    return tuple(names)


def _check_name_length(declared: Declared, scope: Scope, instance_id: str, manifest: kinds.Workload) -> None:
    spec = manifest.spec
    longest = f"{instance_id}-{declared.name}-{'0' * 8}-{max(spec.replicas - 1, 0)}"
    excess = len(longest) - CONTAINER_NAME
    if excess <= 0:
        return
    message = f"{declared.key}: the names of its containers, '{longest}', have more than {CONTAINER_NAME} characters"
    hint = f"shorten the name or the id of the Instance by {excess}"
    scope.report(declared, ("metadata", "name"), Code.NAME_TOO_LONG, message, hint)


# --- services -----------------------------------------------------------------------------------------------------


class Selection:
    """Finds the workloads that a selector selects, by their rarest label, so that many services stay cheap."""

    def __init__(self, declared: Iterable[Declared]) -> None:
        self._by_label: dict[tuple[str, str], dict[str, Declared]] = {}
        for one in declared:
            if isinstance(one.manifest, kinds.Workload):
                for label in one.manifest.spec.template.metadata.labels.items():
                    self._by_label.setdefault(label, {})[one.key] = one

    def of(self, selector: dict[str, str]) -> list[Declared]:
        """The workloads whose template has all of these labels, sorted by key."""
        found = sorted((self._by_label.get(label, {}) for label in selector.items()), key=len)
        return [found[0][key] for key in sorted(found[0]) if all(key in other for other in found[1:])]


def service(declared: Declared, scope: Scope, selection: Selection) -> desired.Service | None:
    """A service with the workloads behind it."""
    manifest = declared.manifest
    if not isinstance(manifest, kinds.Service):
        return None
    spec = manifest.spec
    selected = selection.of(spec.selector)
    if not selected and not scope.any_invalid("Workload"):
        hint = "the labels of a workload are in spec.template.metadata.labels"
        message = f"{declared.key}: no workload has the labels of the selector"
        scope.report(declared, ("spec", "selector"), Code.SELECTS_NOTHING, message, hint)
    backends = []
    for one in selected:
        assert isinstance(one.manifest, kinds.Workload)  # noqa: S101  (Selection holds nothing else)
        ports = all_ports(one.manifest.spec.template.spec)
        number = port_number(spec.port, ports)
        if not number:
            message = f"{declared.key}: {one.key} declares no port {spec.port!r}"
            scope.report(declared, ("spec", "port"), Code.UNKNOWN_PORT, message, ports_hint(spec.port, ports))
        backends.append(desired.Backend(one.key, number))
    adopt.check_address(declared, scope, manifest, selected)
    for index, balancer in enumerate(spec.balancers):
        scope.provider(balancer.provider, Role.ENDPOINTS, declared, ("spec", "balancers", index, "provider"))
        known = scope.roles.get(balancer.provider) is Role.ENDPOINTS
        if balancer.slots is not None and known and balancer.provider not in scope.with_slots:
            message = f"{declared.key}: pools of provider '{balancer.provider}' have no slots"
            path = ("spec", "balancers", index, "slots")
            scope.report(declared, path, Code.BAD_VALUE, message, "leave slots out")
    balancers = sorted(spec.balancers, key=lambda one: (one.provider, one.pool))
    return desired.Service(
        key=declared.key,
        name=declared.name,
        backends=tuple(backends),
        balancers=tuple(desired.Balancer(one.provider, _pool(one), tuple(sorted(one.addresses))) for one in balancers),
        weight=spec.weight,
        address_from=desired.AddressFrom(spec.address.from_),
        network=spec.address.network or "",
        ramp=traffic.ramp(spec),
        panic=traffic.panic(declared, scope, manifest),
        where=declared.document.where,
    )


def _pool(balancer: Balancer) -> str:
    """The pool as its provider knows it: `POOL`, or `POOL:SLOTS` where the slots are named."""
    return balancer.pool if balancer.slots is None else f"{balancer.pool}:{balancer.slots}"
