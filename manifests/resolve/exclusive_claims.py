"""What only one container of a node can have: a port of the host, and a volume that somebody has alone.

Two workloads that claim the same cannot both run, and whichever starts second fails then, at a time that nobody chose. So it is said
before anything is done. Called by `resolve.py`; what the replicas of one workload take from each other is said by `build_pod.py`.
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
    """A port of the host as a workload publishes it, with its place in the manifest."""

    of: Declared
    path: Path
    nodes: frozenset[str]
    address: str


class _Volume(NamedTuple):
    """A volume of a node as a workload mounts it. `alone`: nobody else may have it; `writes`: it is mounted to be written."""

    of: Declared
    path: Path
    nodes: frozenset[str]
    alone: bool
    writes: bool


def check_claims(scope: Scope, workloads: Sequence[Workload]) -> None:
    """Report ports of the host and exclusive volumes that two workloads of a node claim, each pair with both places."""
    ports: dict[tuple[int, str], list[_Port]] = {}
    volumes: dict[str, list[_Volume]] = {}
    declared = {one.key: one for one in scope.all("Workload")}
    for workload in workloads:
        of = declared[workload.key]
        # Replicas beyond the nodes begin again with the first, so fewer replicas than nodes leave some of them free.
        nodes = frozenset(workload.nodes[: workload.replicas]) - {""}
        if nodes and isinstance(of.manifest, kinds.Workload):
            _ports(scope, of, of.manifest.spec.template.spec, nodes, ports)
            _volumes(scope, of, of.manifest.spec.template.spec, nodes, volumes)


def _ports(
    scope: Scope, of: Declared, spec: PodSpec, nodes: frozenset[str], known: dict[tuple[int, str], list[_Port]]
) -> None:
    for path, number, protocol, address in _published(spec):
        mine = _Port(of, path, nodes, address)
        others = known.setdefault((number, protocol), [])
        other = next((one for one in others if one.nodes & nodes and _overlap(one.address, address)), None)
        others.append(mine)
        if other is None:
            continue
        shared = ", ".join(sorted(other.nodes & nodes))
        message = f"{of.key}: {_place(other)} takes port {number} ({protocol}) of {shared} already"
        hint = "give one of them another hostPort, another hostIP or another node, or let a balancer reach both"
        scope.report(of, path, Code.CONFLICT, message, hint)


def _published(spec: PodSpec) -> Iterator[tuple[Path, int, str, str]]:
    for index, container in enumerate(spec.containers):
        for place, port in enumerate(container.ports):
            if port.host_port is not None:
                path = (*_SPEC, "containers", index, "ports", place, "hostPort")
                yield path, port.host_port, port.protocol, port.host_ip or ""


def _overlap(one: str, other: str) -> bool:
    """Whether two listeners of a port are in each other's way: no address means all of them, `0.0.0.0` and `::` all of a family."""
    if not one or not other:
        return True
    first, second = ip_address(one), ip_address(other)
    return first.version == second.version and (first == second or first.is_unspecified or second.is_unspecified)


def _volumes(scope: Scope, of: Declared, spec: PodSpec, nodes: frozenset[str], known: dict[str, list[_Volume]]) -> None:
    for index, volume in enumerate(spec.volumes):
        source = volume.named or (normpath(volume.host_path.path) if volume.host_path is not None else "")
        mounts = [
            mount for container in spec.containers for mount in container.volume_mounts if mount.name == volume.name
        ]
        if not source or not mounts:
            continue
        alone, writes = volume.access_mode == "ReadWriteOncePod", not all(mount.read_only for mount in mounts)
        mine = _Volume(of, (*_SPEC, "volumes", index), nodes, alone, writes)
        others = known.setdefault(source, [])
        other = next((one for one in others if one.of is not of and one.nodes & nodes and _clash(one, mine)), None)
        others.append(mine)
        if other is None:
            continue
        shared = ", ".join(sorted(other.nodes & nodes))
        message = f"{of.key}: {_place(other)} has '{source}' on {shared} too, and one of them wants it alone"
        hint = "mount it readOnly where it is only read, give each its own volume, or leave accessMode out if they can share it"
        scope.report(of, mine.path, Code.CONFLICT, message, hint)


def _clash(volume: _Volume, other: _Volume) -> bool:
    """Whether one wants alone what the other wants alone too, or writes. Who only reads takes nothing from its owner."""
    return (volume.alone and (other.alone or other.writes)) or (other.alone and volume.writes)


def _place(claim: _Port | _Volume) -> str:
    """Who claims it, and where that is written."""
    line, _ = claim.of.document.place(claim.path)
    return f"{claim.of.key} ({claim.of.document.file}:{line}, {key_path(claim.path)})"
