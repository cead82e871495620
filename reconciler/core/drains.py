"""Drains: which overrides that take endpoints out of traffic may begin, so that none empties a pool or a name unasked.

The command line asks for `--force` where a drain would take the last endpoint, but several commands may arrive at once, and what
served when it looked may be gone. So an override without `--force` waits here until another endpoint serves in each of its pools
and names. Overrides begin one after the other, in the order of their commands; one that has begun stays in effect until it expires
or is released. Called by `decide` after weights and names.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from manifests.values.desired import Balancer, Service
from manifests.values.dns import Publish
from providers.facts import Endpoint, ProbeValue
from reconciler.core.dns.names import Names
from reconciler.core.health import overrides
from reconciler.core.health.belief import Belief
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.override import Force, Override, held_actions
from reconciler.core.model.reasons import Hold, Rule
from reconciler.core.replicas import memory
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic import balancer_checks
from reconciler.core.traffic.weights import Weights

_PASS = ProbeValue.PASS

Covers = Callable[[Balancer | None, Endpoint, Belief], bool]
"""Whether an override takes this endpoint out: of the pool of this balancer, or of names where there is none."""


class Begun(NamedTuple):
    """The ledger with the overrides that begin now, whether any does, and the holds of those that wait."""

    ledger: Ledger
    any: bool
    holds: tuple[Hold, ...]


def begin(snap: Snapshot, ledger: Ledger, weights: Weights, names: Names) -> Begun:
    """Let overrides begin that leave something serving in each of their pools and names; hold the others."""
    waiting = sorted(
        ((override.at.wall, key, override) for key, override in ledger.overrides.items() if override.waits),
        key=lambda row: row[:2],
    )
    if not waiting:
        return Begun(ledger, False, ())
    scene = _Scene(snap, ledger, weights, names)
    begun: dict[str, Override] = {}
    holds: list[Hold] = []
    for _, key, override in waiting:
        lost = scene.lost_with(key)
        if lost is None:
            continue
        if lost:
            holds.append(_hold(snap, key, override, lost))
        else:
            begun[key] = override._replace(waits=False)
            scene.gone.add(key)
    if begun:
        ledger = replace(ledger, overrides={**ledger.overrides, **begun})
    return Begun(ledger, bool(begun), tuple(holds))


class _Scene:
    """What serves now. `gone`: the keys of the overrides that begin in this decision."""

    def __init__(self, snap: Snapshot, ledger: Ledger, weights: Weights, names: Names) -> None:
        self.snap, self.ledger, self.weights, self.names = snap, ledger, weights, names
        self.gone: set[str] = set()

    def lost_with(self, key: str) -> list[str] | None:
        """What would serve nothing any more, as phrases; None for a key that names no endpoint now, so nothing begins."""
        kind, _, name = key.partition("/")
        if kind == "endpoint":
            places = [
                (service, balancer)
                for service, balancer in self._pools()
                if any(
                    overrides.endpoint_key(balancer.provider, balancer.pool, endpoint) == key
                    for endpoint, _ in self.weights.endpoints[service.key]
                )
            ]
            return self._emptied(key, places) if places else None
        workload = f"{kind}/{name.rpartition('/')[0]}"
        services = {
            service.key
            for service in self.snap.desired.services
            if any(backend.workload == workload for backend in service.backends) and not self._unwanted(service)
        }
        places = [(service, balancer) for service, balancer in self._pools() if service.key in services]
        return [*self._emptied(key, places), *self._unpublished(key, services)]

    def _pools(self) -> Iterator[tuple[Service, Balancer]]:
        for service in sorted(self.snap.desired.services, key=lambda service: service.key):
            for balancer in service.balancers:
                yield service, balancer

    def _unwanted(self, service: Service) -> bool:
        """Whether the manifests want no endpoint of the service."""
        groups = self.snap.roster.groups
        known = [groups[backend.workload] for backend in service.backends if backend.workload in groups]
        return self.snap.desired.destroy or all(group.workload.replicas == 0 for group in known)

    def _out(self, key: str, balancer: Balancer | None, endpoint: Endpoint, belief: Belief) -> bool:
        """Whether this override, or one that begins before it, takes the endpoint out."""
        mark, keys = belief.fact.mark, {key, *self.gone}
        if mark is not None and memory.replica_of(f"workload/{mark.workload}", mark.ordinal) in keys:
            return True
        if balancer is None:
            return False
        place = overrides.endpoint_key(balancer.provider, balancer.pool, endpoint)
        override = overrides.in_force(self.ledger.overrides, place, self.snap.now)
        return place in keys or (override is not None and override.out)

    def _emptied(self, key: str, places: list[tuple[Service, Balancer]]) -> list[str]:
        lost = []
        for service, balancer in places:
            fact = self.snap.sight.pools.get((balancer.provider, balancer.pool))
            if fact is None:
                lost.append(f"pool {balancer.pool} of {balancer.provider} cannot be read")
                continue
            members = {member.endpoint: member for member in fact.members if balancer_checks.carries(member)}
            serving = any(not member.ours for member in members.values()) or any(
                endpoint in members
                and belief.ready is _PASS
                and belief.fact.id not in self.ledger.grants
                and not self._out(key, balancer, endpoint, belief)
                for endpoint, belief in self.weights.endpoints[service.key]
            )
            if not serving:
                lost.append(
                    f"no other endpoint of pool {balancer.pool} of {balancer.provider} is ready and carries weight"
                )
        return lost

    def _unpublished(self, key: str, services: set[str]) -> list[str]:
        gone = {
            belief.fact.id
            for service in services
            for endpoint, belief in self.weights.endpoints[service]
            if self._out(key, None, endpoint, belief)
        }
        lost = []
        for policy in self.snap.desired.policies:
            if not any(target.publish is Publish.ENDPOINTS and target.service in services for target in policy.targets):
                continue
            outcome = self.names.policies.get(policy.key)
            if outcome is None or not any(
                address.value is _PASS
                and not address.leaving
                # While its zone cannot be read, nothing leaves the name, and later it keeps its last address.
                and (outcome.published is None or address.address in outcome.published)
                and not (address.behind and gone.issuperset(address.behind))
                for address in outcome.target_addresses
            ):
                lost.append(f"{policy.host} publishes no other address that is ready")
        return lost


def _hold(snap: Snapshot, key: str, override: Override, lost: list[str]) -> Hold:
    drain, down = held_actions(key)
    if override.force is Force.DRAIN:
        action, command = drain, f"reconcile {drain} --force"
    else:
        action, command = down, f"reconcile {down} --for DURATION --reason REASON --force"
    until = overrides.expires_at(override, snap.now) if override.until_wall else None
    rule = Rule.LAST_RECORD if all("publishes" in phrase for phrase in lost) else Rule.LAST_MEMBER
    next_step = f"bring another endpoint back, or run: {command}; to call it off, run: reconcile release {key}"
    return Hold(key, action, rule, "; ".join(dict.fromkeys(lost)), until=until, next_step=next_step)
