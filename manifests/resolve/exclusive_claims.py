"""Resources that only one container of a node can have: host ports and exclusive volumes.

Two workloads with the same claim cannot both run, and the second one would fail at its start. So the conflict is reported
before any action. Called by `resolver.py`; `pod.py` reports conflicts between the replicas of one workload.
"""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from posixpath import normpath
from typing import NamedTuple

from manifests import kinds
from manifests.kinds.pod import PodSpec
from manifests.kinds.validate import Declared, Path
from manifests.problems import Code, key_path
from manifests.resolve.references import Scope
from manifests.values.desired import Workload

_SPEC: Path = ("spec", "template", "spec")


class _Port(NamedTuple):
    """A host port of a workload, with its path in the manifest."""

    owner: Declared
    path: Path
    nodes: frozenset[str]
    address: str


class _Volume(NamedTuple):
    """A volume of a workload. `exclusive`: no other workload may mount it; `writes`: a mount is writable."""

    owner: Declared
    path: Path
    nodes: frozenset[str]
    exclusive: bool
    writes: bool


def check_claims(scope: Scope, workloads: Sequence[Workload]) -> None:
    """Report host ports and exclusive volumes that two workloads of a node claim, with both places."""
    ports: dict[tuple[int, str], list[_Port]] = {}
    volumes: dict[str, list[_Volume]] = {}
    declared = {item.key: item for item in scope.all("Workload")}
    for workload in workloads:
        owner = declared[workload.key]
        # Replicas are spread over the nodes in turn, so with fewer replicas than nodes the last nodes have none.
        nodes = frozenset(workload.nodes[: workload.replicas]) - {""}
        if nodes and isinstance(owner.manifest, kinds.Workload):
            _ports(scope, owner, owner.manifest.spec.template.spec, nodes, ports)
            _volumes(scope, owner, owner.manifest.spec.template.spec, nodes, volumes)


def _ports(
    scope: Scope, owner: Declared, spec: PodSpec, nodes: frozenset[str], known: dict[tuple[int, str], list[_Port]]
) -> None:
    for path, number, protocol, address in _published(spec):
        others = known.setdefault((number, protocol), [])
        other = next((claim for claim in others if claim.nodes & nodes and _overlap(claim.address, address)), None)
        others.append(_Port(owner, path, nodes, address))
        if other is None:
            continue
        shared = ", ".join(sorted(other.nodes & nodes))
        message = f"{owner.key}: {_place(other)} already publishes port {number} ({protocol}) on node {shared}"
        hint = "change the hostPort, hostIP or node of one of them, or put both behind a balancer"
        scope.report(owner, path, Code.CONFLICT, message, hint)


def _published(spec: PodSpec) -> Iterator[tuple[Path, int, str, str]]:
    for index, container in enumerate(spec.containers):
        for place, port in enumerate(container.ports):
            if port.host_port is not None:
                path = (*_SPEC, "containers", index, "ports", place, "hostPort")
                yield path, port.host_port, port.protocol, port.host_ip or ""


def _overlap(address: str, other: str) -> bool:
    """Whether two listeners of a port conflict: no address means all addresses, `0.0.0.0` and `::` all of a family."""
    if not address or not other:
        return True
    first, second = ip_address(address), ip_address(other)
    return first.version == second.version and (first == second or first.is_unspecified or second.is_unspecified)


def _volumes(
    scope: Scope, owner: Declared, spec: PodSpec, nodes: frozenset[str], known: dict[str, list[_Volume]]
) -> None:
    for index, volume in enumerate(spec.volumes):
        source = volume.named or (normpath(volume.host_path.path) if volume.host_path is not None else "")
        mounts = [
            mount for container in spec.containers for mount in container.volume_mounts if mount.name == volume.name
        ]
        if not source or not mounts:
            continue
        exclusive, writes = volume.access_mode == "ReadWriteOncePod", not all(mount.read_only for mount in mounts)
        claim = _Volume(owner, (*_SPEC, "volumes", index), nodes, exclusive, writes)
        others = known.setdefault(source, [])
        other = next(
            (known for known in others if known.owner is not owner and known.nodes & nodes and _conflict(known, claim)),
            None,
        )
        others.append(claim)
        if other is None:
            continue
        shared = ", ".join(sorted(other.nodes & nodes))
        message = (
            f"{owner.key}: {_place(other)} also mounts '{source}' on node {shared}, and accessMode: ReadWriteOncePod "
            "excludes other workloads"
        )
        hint = "mount it readOnly where it is only read, give each workload its own volume, or remove accessMode if they can share it"
        scope.report(owner, claim.path, Code.CONFLICT, message, hint)


def _conflict(volume: _Volume, other: _Volume) -> bool:
    """Whether one is exclusive, and the other is exclusive too or writes. A reader does not conflict with the owner."""
    return (volume.exclusive and (other.exclusive or other.writes)) or (other.exclusive and volume.writes)


def _place(claim: _Port | _Volume) -> str:
    """The owner of a claim, with file, line and path."""
    where = claim.owner.document.origin(claim.path)
    return f"{claim.owner.key} ({where.file}:{where.line}, {key_path(claim.path)})"
