"""Which declarations the world has converged to, and which ones are new: the memory that separates a change from drift.

A document is *moving* from the revision of the manifests that changed it until nothing differs any more. It costs nothing while the
manifests stay: digests are computed once for each revision. If the rows are lost, everything that differs counts as changed until it
has converged. Called by `decide`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from hashlib import blake2b
from typing import Any

from manifests.values.desired import Desired, Service, Workload
from manifests.values.dns import DNSPolicy, Record, RecordList
from reconciler.core.dns.names import Names
from reconciler.core.model.drift import Applied
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.want import Want
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic.weights import Weights

Document = Workload | Service | DNSPolicy | Record | RecordList

_UNSEEN = frozenset({"where", "name"})
"""Fields that say where a document stands, and not what it declares."""


def begin(desired: Desired, ledger: Ledger) -> Ledger:
    """The ledger with the documents that these manifests declare otherwise than before."""
    if ledger.applied_of == desired.revision:
        return ledger
    lists: dict[int, str] = {}
    declared = {document.key: declaration(document, lists) for document in _documents(desired)}
    moving = frozenset(key for key, row in declared.items() if ledger.applied.get(key) != row)
    kept = {key: row for key, row in ledger.applied.items() if key in declared}
    applied = ledger.applied if len(kept) == len(ledger.applied) else kept
    return replace(ledger, applied=applied, moving=moving, applied_of=desired.revision)


def settle(snap: Snapshot, ledger: Ledger, wants: Iterable[Want], weights: Weights, names: Names) -> Ledger:
    """The ledger in which the documents are applied that the world has converged to."""
    if not ledger.moving:
        return ledger
    differing = {want.workload.key for want in wants if want.workload is not None}
    differing |= {grant.object.rpartition("/")[0] for grant in ledger.grants.values()}
    differing |= {change.object for change in weights.changes}
    differing |= {diff.object for diff in names.changes}
    declared: Mapping[str, Document] = {
        document.key: document for document in _documents(snap.desired) if document.key in ledger.moving
    }
    lists: dict[int, str] = {}
    done = {
        key: declaration(document, lists)
        for key, document in declared.items()
        if key not in differing and _converged(snap, document)
    }
    gone = ledger.moving - declared.keys()
    if not done and not gone:
        return ledger
    return replace(ledger, applied={**ledger.applied, **done}, moving=ledger.moving - done.keys() - gone)


def _documents(desired: Desired) -> Iterator[Document]:
    yield from desired.workloads
    yield from desired.services
    yield from desired.policies
    yield from desired.records
    yield from desired.record_lists


def declaration(document: Document, lists: dict[int, str]) -> Applied:
    """What a document declares, as the ledger keeps it.

    `lists` are the texts of lists of nodes by identity: many workloads may use the same ones, and each list is read once.
    """
    if isinstance(document, Workload):
        template, nodes = document.template, lists.get(id(document.nodes))
        if nodes is None:
            nodes = lists[id(document.nodes)] = ",".join(document.nodes)
        parts: Any = (template.revision, document.replicas, nodes, document.strategy, document.adopt)
        return Applied(_digest(parts), template.live)
    return Applied(_digest([getattr(document, field.name) for field in fields(document) if field.name not in _UNSEEN]))


def _digest(parts: Any) -> str:
    return blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _converged(snap: Snapshot, document: Document) -> bool:
    """Whether what shows the convergence of a document can be read, and a workload has its replicas and no others."""
    sight = snap.sight
    if isinstance(document, Workload):
        group = snap.roster.groups.get(document.key)
        return group is not None and _settled(group)
    if isinstance(document, Service):
        pools = ((balancer.provider, balancer.pool) for balancer in document.balancers)
        return sight.unknown_pools.keys().isdisjoint(pools)
    return (document.provider, document.zone) not in sight.unknown_zones


def _settled(group: Group) -> bool:
    open_ = group.outgoing or group.waiting or group.surplus or group.unknown or group.unseen
    return not open_ and len(group.current) >= group.workload.replicas
