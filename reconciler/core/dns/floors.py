"""The floor of a name: how many addresses of a workload it keeps while a planned step takes a replica out of service.

The availability budget counts replicas that are ready. Clients of a name reach only what the zone has: a replica that is ready again
may not be published yet, because its weight, its check or the write of the zone takes longer. So a replica leaves a name only while
enough others are published there, as read back. `gates` asks before each planned disruption.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from manifests.values.desired import Workload
from manifests.values.dns import DNSPolicy, Publish, Target
from providers.facts import ProbeValue
from reconciler.core.dns.names import Names
from reconciler.core.dns.targets import TargetAddress
from reconciler.core.exits import grants
from reconciler.core.exits.grants import UP
from reconciler.core.model.ledger import Grant
from reconciler.core.model.reasons import Hold, Rule, Wait, Waiting
from reconciler.core.model.want import Kind, Want
from reconciler.core.replicas import availability
from reconciler.core.replicas.snapshot import Snapshot


class _Place(NamedTuple):
    """One target of a policy that publishes replicas of a workload.

    `behind` is the target address of each replica, by container id. `ready` are the replicas that their probes call ready.
    `published` are the addresses that clients of the name get and that it keeps, None while its zone cannot be read; `joining` are
    those that it is about to publish.
    """

    policy: DNSPolicy
    behind: Mapping[str, TargetAddress]
    ready: Collection[str]
    published: frozenset[str] | None
    joining: frozenset[str]

    def shows(self, container: str) -> bool:
        """Whether the name keeps this replica's address, and the replica serves there: others may have the same address."""
        target_address = self.behind[container]
        alone = len(target_address.behind) == 1
        return target_address.address in (self.published or ()) and (alone or container in self.ready)

    def comes(self, container: str) -> bool:
        """Whether the replica will be published without an operator: once the zone is written, its weight raised, or its check passes."""
        target_address = self.behind[container]
        return (
            target_address.address in self.joining
            or target_address.without_weight
            or (target_address.unchecked and target_address.value is ProbeValue.UNKNOWN)
        )


class NameFloors:
    """The floors of all names in one decision. Each workload's places are collected when they are first asked for."""

    def __init__(self, snap: Snapshot, names: Names) -> None:
        self._snap, self._names = snap, names
        self._targets: dict[str, list[tuple[DNSPolicy, Target]]] | None = None
        self._places: dict[str, list[_Place]] = {}

    def keep(self, want: Want, workload: Workload, leaving: Mapping[str, Grant]) -> Hold | Wait | None:
        """What keeps a replica in service although its planned disruption passes the budget; None when nothing does.

        Every name keeps `replicas - maxUnavailable` other replicas, and at least one. Only the single replica of a workload whose
        budget allows none may go and come back without another: the name then keeps its address.

        Args:
            leaving: the open grants, also those of this decision.
        """
        fact = want.fact
        if fact is None or fact.state not in UP or not workload.replicas:
            return None
        floor = availability.published_floor(workload)
        if want.kind is not Kind.RETIRE and workload.replicas == 1 <= workload.max_unavailable:
            floor = 0
        for place in self._places_of(workload.key):
            if fact.id not in place.behind:
                continue
            if place.published is None:
                return _unreadable(want, place.policy)
            if not place.shows(fact.id):
                continue  # the name loses nothing
            others = [container for container in place.behind if container != fact.id and container not in leaving]
            kept = sum(1 for container in others if place.shows(container))
            if kept >= floor:
                continue
            coming = sum(1 for container in others if not place.shows(container) and place.comes(container))
            coming += sum(1 for grant in leaving.values() if _of(grant, workload.key) and grants.returns(grant))
            return _too_few(want, workload, place.policy, kept, floor, kept + coming >= floor)
        return None

    def _places_of(self, key: str) -> list[_Place]:
        known = self._places.get(key)
        if known is not None:
            return known
        places = self._places.setdefault(key, [])
        if self._targets is None:
            self._targets = _targets_by_workload(self._snap)
        beliefs = {belief.fact.id: belief for belief in self._snap.roster.groups[key].members()}
        for policy, target in self._targets.get(key, ()):
            outcome = self._names.policies[policy.key]
            behind = {
                container: target_address
                for target_address in outcome.target_addresses
                if target_address.target == target.name
                for container in target_address.behind
                if container in beliefs
            }
            ready = {container for container in behind if beliefs[container].ready is ProbeValue.PASS}
            published, joining = None, frozenset[str]()
            if outcome.published is not None:
                published, joining = outcome.published & outcome.wanted, outcome.wanted - outcome.published
            places.append(_Place(policy, behind, ready, published, joining))
        return places


def _targets_by_workload(snap: Snapshot) -> dict[str, list[tuple[DNSPolicy, Target]]]:
    """The targets that publish replicas of each workload, by its key, in the order of policies.

    A service may reach replicas of an earlier revision that it does not select any more.
    """
    reached: dict[str, set[str]] = {
        service.key: {backend.workload for backend in service.backends} for service in snap.desired.services
    }
    for service, keys in snap.roster.selected.items():
        reached.setdefault(service, set()).update(keys)
    targets: dict[str, list[tuple[DNSPolicy, Target]]] = {}
    for policy in sorted(snap.desired.policies, key=lambda policy: policy.key):
        for target in policy.targets:
            for key in reached.get(target.service, ()) if target.publish is Publish.ENDPOINTS else ():
                targets.setdefault(key, []).append((policy, target))
    return targets


def _of(grant: Grant, key: str) -> bool:
    return grant.object.rpartition("/")[0] == key


def _unreadable(want: Want, policy: DNSPolicy) -> Hold:
    message = f"zone {policy.zone} cannot be read, so it is not known how many other replicas {policy.host} publishes"
    next_step = f"make provider {policy.provider} reachable; it is retried automatically"
    return Hold(want.object, want.id, Rule.UNKNOWN_ZONE, message, next_step=next_step, held=want.held)


def _too_few(want: Want, workload: Workload, policy: DNSPolicy, kept: int, floor: int, soon: bool) -> Hold | Wait:
    """`soon`: whether enough replicas are on their way into the name."""
    replicas = f"{kept} other replica{'' if kept == 1 else 's'} of {workload.key}"
    message = f"{policy.host} publishes {replicas}, at least {floor} must stay"
    if soon:
        return Wait(want.object, Waiting.PUBLISHED, f"{message}; {want.container} stays until more are published")
    next_step = f"find out why no more are published: reconcile explain {policy.key}"
    if workload.replicas - workload.max_unavailable > 1:
        next_step += f"; or raise availability.maxUnavailable of {workload.key}"
    return Hold(want.object, want.id, Rule.BUDGET, message, next_step=next_step, held=want.held)
