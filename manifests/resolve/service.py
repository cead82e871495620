"""From a checked Service to its value: the workloads behind it, its pools and the rules of its weights. Called by `resolver.py`."""

from collections.abc import Iterable

from manifests import kinds
from manifests.kinds.service import Balancer
from manifests.kinds.validate import Declared
from manifests.problems import Code
from manifests.resolve.probe import all_ports, port_number, ports_hint
from manifests.resolve.references import Scope
from manifests.values import desired, traffic
from manifests.values.desired import Role


class Selection:
    """Finds the workloads that a selector selects, by their rarest label, so that many services stay cheap."""

    def __init__(self, workloads: Iterable[Declared]) -> None:
        self._by_label: dict[tuple[str, str], dict[str, Declared]] = {}
        for workload in workloads:
            if isinstance(workload.manifest, kinds.Workload):
                for label in workload.manifest.spec.template.metadata.labels.items():
                    self._by_label.setdefault(label, {})[workload.key] = workload

    def of(self, selector: dict[str, str]) -> list[Declared]:
        """The workloads whose template has all of these labels, sorted by key."""
        rarest, *others = sorted((self._by_label.get(label, {}) for label in selector.items()), key=len)
        return [rarest[key] for key in sorted(rarest) if all(key in other for other in others)]


def service(declared: Declared, scope: Scope, selection: Selection) -> desired.Service | None:
    """A service with the workloads behind it."""
    manifest = declared.manifest
    if not isinstance(manifest, kinds.Service):
        return None
    spec = manifest.spec
    selected = selection.of(spec.selector)
    if not selected and not scope.any_invalid("Workload"):
        hint = "compare the selector with spec.template.metadata.labels of the workload"
        message = f"{declared.key}: no workload has the labels of the selector"
        scope.report(declared, ("spec", "selector"), Code.SELECTS_NOTHING, message, hint)
    backends = []
    for workload in selected:
        assert isinstance(workload.manifest, kinds.Workload)  # noqa: S101  (Selection holds nothing else)
        ports = all_ports(workload.manifest.spec.template.spec)
        number = port_number(spec.port, ports)
        if not number:
            message = f"{declared.key}: {workload.key} declares no port {spec.port!r}"
            scope.report(declared, ("spec", "port"), Code.UNKNOWN_PORT, message, ports_hint(spec.port, ports))
        backends.append(desired.Backend(workload.key, number))
    _check_address(declared, scope, manifest, selected)
    for index, balancer in enumerate(spec.balancers):
        scope.provider(balancer.provider, Role.ENDPOINTS, declared, ("spec", "balancers", index, "provider"))
        known = scope.roles.get(balancer.provider) is Role.ENDPOINTS
        if balancer.slots is not None and known and balancer.provider not in scope.with_slots:
            message = f"{declared.key}: pools of provider '{balancer.provider}' have no slots"
            path = ("spec", "balancers", index, "slots")
            scope.report(declared, path, Code.BAD_VALUE, message, "remove slots")
    balancers = sorted(spec.balancers, key=lambda balancer: (balancer.provider, balancer.pool))
    return desired.Service(
        key=declared.key,
        name=declared.name,
        backends=tuple(backends),
        balancers=tuple(
            desired.Balancer(balancer.provider, _pool(balancer), tuple(sorted(balancer.addresses)))
            for balancer in balancers
        ),
        weight=spec.weight,
        address_from=desired.AddressFrom(spec.address.from_),
        network=spec.address.network or "",
        ramp=None if spec.ramp is None else traffic.Ramp(int(spec.ramp.duration), int(spec.ramp.min_share)),
        panic=_panic(declared, scope, manifest),
        where=declared.document.where,
    )


def _pool(balancer: Balancer) -> str:
    """The pool as its provider knows it: `POOL`, or `POOL:SLOTS` where the slots are named."""
    return balancer.pool if balancer.slots is None else f"{balancer.pool}:{balancer.slots}"


def _check_address(declared: Declared, scope: Scope, manifest: kinds.Service, selected: list[Declared]) -> None:
    """Report workloads whose containers balancers cannot reach at the address that the service names."""
    address, port = manifest.spec.address, manifest.spec.port
    for workload in selected:
        if not isinstance(workload.manifest, kinds.Workload):
            continue
        spec = workload.manifest.spec.template.spec
        if address.network is not None and address.network not in spec.networks:
            message = f"{declared.key}: {workload.key} is not in network '{address.network}'"
            hint = f"choose from the networks of {workload.key}: {', '.join(spec.networks)}"
            if not spec.networks:
                hint = f"add networks: [{address.network}] to {workload.key}, or remove network"
            scope.report(declared, ("spec", "address", "network"), Code.UNKNOWN_REFERENCE, message, hint)
        if address.from_ != desired.AddressFrom.HOST.value:
            continue
        declared_port = next((item for item in all_ports(spec) if port in (item.container_port, item.name)), None)
        if declared_port is not None and declared_port.host_port is None:
            message = f"{declared.key}: port {port} of {workload.key} is not published on its host"
            hint = f"add hostPort to the port in {workload.key}, or write address: {{from: container}}"
            scope.report(declared, ("spec", "address", "from"), Code.CONFLICT, message, hint)


def _panic(declared: Declared, scope: Scope, manifest: kinds.Service) -> traffic.Panic:
    """How weights behave while too few endpoints are ready; a warning where pools may become empty."""
    given = manifest.spec.panic
    mode = traffic.PanicMode(given.mode)
    if mode is traffic.PanicMode.CLOSED:
        message = f"{declared.key}: when all endpoints fail, its pools become empty and clients get errors"
        hint = "write mode: freeze to keep the weights of the endpoints"
        scope.report(declared, ("spec", "panic", "mode"), Code.FAILS_CLOSED, message, hint)
    return traffic.Panic(int(given.threshold), mode, given.override_pushes)


def check_shared_pools(scope: Scope) -> None:
    """Report pools (or slots of one prefix in a pool) of two services: each would remove the endpoints of the other."""
    owners: dict[tuple[str, str, str | None], Declared] = {}
    for declared in scope.all("Service"):
        if not isinstance(declared.manifest, kinds.Service):
            continue
        for index, balancer in enumerate(declared.manifest.spec.balancers):
            owner = owners.setdefault((balancer.provider, balancer.pool, balancer.slots), declared)
            if owner is not declared:
                pool = f"pool '{balancer.pool}' of provider '{balancer.provider}'"
                message = f"{declared.key}: {pool} already belongs to {owner.key} at {owner.document.where}"
                path = ("spec", "balancers", index, "pool")
                scope.report(declared, path, Code.CONFLICT, message, "give each service its own pool")


def services_of(services: Iterable[desired.Service]) -> dict[str, tuple[tuple[str, int], ...]]:
    """The (service key, container port) pairs that select each workload, by workload key."""
    selecting: dict[str, list[tuple[str, int]]] = {}
    for declared_service in services:
        for backend in declared_service.backends:
            selecting.setdefault(backend.workload, []).append((declared_service.key, backend.port))
    return {workload: tuple(sorted(selecting[workload])) for workload in sorted(selecting)}
