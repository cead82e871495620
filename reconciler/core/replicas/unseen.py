"""Unseen containers: those on nodes that cannot be read, as they were observed last.

A node that does not answer says nothing about other nodes. So a rule asks what may be on that node: the containers that the ledger
lists there, and the replicas whose place is there. Each of these is unknown; every other container is known to exist or known to be
gone. Only of a node that was never read with this ledger is nothing known (`unlisted`): there any container may be. `foreign` makes
the value for one decision; `roster` gives each workload its part, and the rules ask that.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from providers.facts import Endpoint, Unknown
from reconciler.core.model.adopted import Adopted
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.owned import Owned


class UnseenContainer(NamedTuple):
    """One container as it was observed last.

    `workload` is the key of its workload, `reach` as in `Owned`. `revision` is empty for an adopted container, which may be of any.
    """

    id: str
    node: str
    workload: str
    ordinal: int
    revision: str
    reach: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unseen:
    """What may exist where nothing can be read.

    nodes: the nodes that cannot be read. unlisted: those of them whose containers the ledger does not list. containers: by id;
    by_workload: by the key of their workload. by_reach: by address, and by address and port of the host.
    """

    nodes: Mapping[str, Unknown] = field(default_factory=dict)
    unlisted: frozenset[str] = frozenset()
    containers: Mapping[str, UnseenContainer] = field(default_factory=dict)
    by_workload: Mapping[str, tuple[UnseenContainer, ...]] = field(default_factory=dict)
    by_reach: Mapping[str, UnseenContainer] = field(default_factory=dict)
    _owned: Mapping[str, Owned] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Whether there may be a container that is not observed."""
        return bool(self.containers or self.unlisted)

    def may_exist(self, container: str) -> bool:
        """Whether a container that is not observed may exist, by its id. One that a readable node does not show is gone."""
        if container in self.containers:
            return True
        row = self._owned.get(container)
        return bool(self.unlisted) and (row is None or not row.node)

    def hides(self, grant: Grant) -> bool:
        """Whether a disruption is under way where it cannot be observed."""
        if not self.nodes:
            return False
        return grant.node in self.nodes if grant.node else self.may_exist(grant.generation.container_id)

    def at(self, endpoint: Endpoint) -> UnseenContainer | None:
        """The container that was reached at an endpoint."""
        if not self.by_reach:
            return None
        return self.by_reach.get(endpoint.address) or self.by_reach.get(f"{endpoint.address}:{endpoint.port}")

    def concerns(self, key: str) -> bool:
        """Whether a row of the ledger is about a container that cannot be seen.

        Its key is that of a node (`node/NAME`), of foreign containers (`container/NODE/NAME`), or of a workload or one of its replicas.
        """
        if not self.nodes:
            return False
        kind, _, name = key.partition("/")
        if kind in ("node", "container"):
            return name.partition("/")[0] in self.nodes
        if key in self.by_workload:
            return True
        workload, _, ordinal = key.rpartition("/")
        return any(str(row.ordinal) == ordinal for row in self.by_workload.get(workload, ()))


NOTHING_UNSEEN = Unseen()


def unseen_of(nodes: Mapping[str, Unknown], ledger: Ledger) -> Unseen:
    """What the ledger lists on the nodes that cannot be read. Costs nothing while all of them answer."""
    if not nodes:
        return NOTHING_UNSEEN
    containers = {row.id: row for row in sorted((*_owned(nodes, ledger.owned), *_adopted(nodes, ledger.adopted)))}
    by_workload: dict[str, list[UnseenContainer]] = {}
    by_reach: dict[str, UnseenContainer] = {}
    for row in containers.values():
        by_workload.setdefault(row.workload, []).append(row)
        for place in row.reach:
            by_reach.setdefault(place, row)
    return Unseen(
        nodes,
        frozenset(nodes) - ledger.nodes,
        containers,
        {key: tuple(rows) for key, rows in by_workload.items()},
        by_reach,
        ledger.owned,
    )


def _owned(nodes: Container[str], rows: Mapping[str, Owned]) -> Iterable[UnseenContainer]:
    for id_, row in rows.items():
        if row.node in nodes:
            yield UnseenContainer(id_, row.node, f"workload/{row.workload}", row.ordinal, row.revision, row.reach)


def _adopted(nodes: Container[str], rows: Mapping[str, Adopted]) -> Iterable[UnseenContainer]:
    for id_, row in rows.items():
        if row.node in nodes and not row.left:
            yield UnseenContainer(id_, row.node, row.workload, row.ordinal, "", row.reach)
