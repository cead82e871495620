"""What a workload adopts and where the endpoints of a service are: from checked manifests to values. Called by `build.py`."""

from manifests import kinds
from manifests.kinds.validate import Declared
from manifests.problems import Code
from manifests.resolve.probe import all_ports
from manifests.resolve.references import Scope
from manifests.values import desired


def adopt(declared: Declared, scope: Scope, manifest: kinds.Workload) -> desired.Adopt | None:
    """What the workload takes over; None where it takes over nothing."""
    given = manifest.spec.adopt
    if given is None:
        return None
    if len(manifest.spec.template.spec.containers) > 1:
        message = f"{declared.key}: a container that runs already has no others in its network namespace"
        hint = "use a template with one container, or leave adopt out"
        scope.report(declared, ("spec", "adopt"), Code.CONFLICT, message, hint)
    return desired.Adopt(given.names, tuple(sorted(given.labels.items())), given.replace)


def check_address(declared: Declared, scope: Scope, manifest: kinds.Service, selected: list[Declared]) -> None:
    """Report workloads whose containers cannot be reached as the service says."""
    address, port = manifest.spec.address, manifest.spec.port
    for one in selected:
        if not isinstance(one.manifest, kinds.Workload):
            continue
        spec = one.manifest.spec.template.spec
        if address.network is not None and address.network not in spec.networks:
            known = ", ".join(spec.networks) or "none"
            message = f"{declared.key}: {one.key} is not in network '{address.network}'"
            hint = f"its networks are: {known}"
            scope.report(declared, ("spec", "address", "network"), Code.UNKNOWN_REFERENCE, message, hint)
        if address.from_ != desired.AddressFrom.HOST.value:
            continue
        found = next((item for item in all_ports(spec) if port in (item.container_port, item.name)), None)
        if found is not None and found.host_port is None:
            message = f"{declared.key}: port {port} of {one.key} is not published on its host"
            hint = f"add hostPort to the port in {one.key}, or write address: {{from: container}}"
            scope.report(declared, ("spec", "address", "from"), Code.CONFLICT, message, hint)
