"""Claims: what only one container at a time may have. Host ports and exclusive volumes of a template, as values to compare.

`manifests/resolve` refuses manifests whose claims conflict as far as it can know; where the replicas really are is known here only.
Called by `placement`, which keeps such replicas apart, and by `exclusive_volumes`, which lets none start too early.
"""

from collections.abc import Iterable
from typing import NamedTuple

from manifests.values.desired import Container, Template, Workload
from manifests.values.rollouts import Strategy


class Claims(NamedTuple):
    """What the containers of one replica claim on their node.

    `ports` are (number, protocol, host address, empty = all addresses); `volumes` are sources of exclusive volumes; `written` are
    sources of other volumes that a container may write to.
    """

    ports: frozenset[tuple[int, str, str]] = frozenset()
    volumes: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()

    @property
    def alone(self) -> bool:
        """Whether a node can have one such replica only."""
        return bool(self.ports or self.volumes)


NOTHING = Claims()

_ALL = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  (compared with, not bound)


def of_template(template: Template) -> Claims:
    """The claims of one replica of a template."""
    containers: tuple[Container, ...] = (template.container, *template.sidecars)
    mounts = [mount for container in containers for mount in container.engine.mounts if mount.source]
    ports = [port for container in containers for port in container.ports if port.host_port]
    if not mounts and not ports:
        return NOTHING
    return Claims(
        frozenset((port.host_port, port.protocol, port.host_ip) for port in ports),
        frozenset(mount.source for mount in mounts if mount.exclusive),
        frozenset(mount.source for mount in mounts if not mount.exclusive and not mount.read_only),
    )


def of_workload(workload: Workload) -> Claims:
    """The claims of one replica that keep others away. A workload with such claims always has the strategy `recreate`."""
    return of_template(workload.template) if workload.strategy is Strategy.RECREATE else NOTHING


def conflict(claims: Claims, other: Claims) -> bool:
    """Whether two containers on one node cannot have both."""
    return shares_volume(claims, other) or any(_overlap(port, busy) for port in claims.ports for busy in other.ports)


def shares_volume(claims: Claims, other: Claims) -> bool:
    """Whether one has a volume for itself that the other one also has, or may write to."""
    return bool(claims.volumes & other.volumes or claims.volumes & other.written or claims.written & other.volumes)


def _overlap(port: tuple[int, str, str], other: tuple[int, str, str]) -> bool:
    same = port[:2] == other[:2]
    return same and (port[2] == other[2] or port[2] in _ALL or other[2] in _ALL)


def any_conflict(claims: Claims, others: Iterable[Claims]) -> bool:
    """Whether one of the others is in conflict."""
    return any(conflict(claims, other) for other in others)
