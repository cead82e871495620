"""Steps: every difference that passed the gates becomes exactly one action.

Each step also names the steps before it in a plan, for the reader and for `apply`, which skips dependents. Called by
`disruptions`, `changes` and `dns/steps`.
"""

from functools import cached_property

from manifests.values.desired import Desired
from manifests.values.dns import DNSPolicy, Publish, Routing, Target
from manifests.values.dns_names import target_name
from providers.actions import (
    CreateContainer,
    CutSessions,
    RemoveContainer,
    RemoveEndpoint,
    SetWeight,
    StartContainer,
    StopContainer,
    UpdateContainer,
)
from providers.facts import ContainerFact, Endpoint, Generation, Mark, RecordKey
from reconciler.core.exits.inflight_requests import Place
from reconciler.core.healing import restart_history
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.reasons import Reason
from reconciler.core.model.revision import why_failed
from reconciler.core.model.step import Step
from reconciler.core.model.want import Want
from reconciler.core.replicas import file_changes, image_pins
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.traffic import pools
from reconciler.core.traffic.weights import MemberChange


def weight_id(provider: str, pool: str, endpoint: Endpoint) -> str:
    """The id of weight steps of one member."""
    return f"weight {provider}/{pool}/{endpoint.address}:{endpoint.port}"


def place_id(place: Place) -> str:
    """The id of weight steps of a member that is leaving service."""
    return f"weight {place.pool}/{place.endpoint.address}:{place.endpoint.port}"


def records_id(provider: str, zone: str, key: RecordKey) -> str:
    """The id of steps on one record set."""
    member = f"/{key.set_id}" if key.set_id else ""
    return f"records {provider}/{zone}/{key.name}/{key.type}{member}"


def _holder(policy: DNSPolicy, target: Target) -> str:
    """The DNS name with the addresses of a target."""
    return policy.host if policy.routing is Routing.SIMPLE else target_name(policy.host, target.name)


class Links:
    """Which steps touch the same replica: computed only when something changes, and once per decision."""

    def __init__(self, snap: Snapshot) -> None:
        self.desired, self.roster = snap.desired, snap.roster

    @cached_property
    def _weights(self) -> tuple[list[str], dict[str, list[int]], dict[str, list[int]]]:
        """The ids of all weight steps in order, and their indexes by container and by address."""
        ids: list[str] = []
        containers: dict[str, list[int]] = {}
        addresses: dict[str, list[int]] = {}
        for service in self.desired.services:
            for endpoint, belief in pools.endpoints(service, self.roster) if service.balancers else ():
                for balancer in service.balancers:
                    containers.setdefault(belief.fact.name, []).append(len(ids))
                    addresses.setdefault(endpoint.address, []).append(len(ids))
                    ids.append(weight_id(balancer.provider, balancer.pool, endpoint))
        return ids, containers, addresses

    def weights_of(self, containers: frozenset[str], addresses: frozenset[str]) -> tuple[str, ...]:
        """Weight steps of these containers or addresses."""
        ids, of_container, of_address = self._weights
        places = {place for name in containers for place in of_container.get(name, ())}
        places.update(place for address in addresses for place in of_address.get(address, ()))
        return tuple(ids[place] for place in sorted(places))

    @cached_property
    def _records(self) -> dict[str, list[str]]:
        """Steps on the names that publish endpoints, by the service's key."""
        ids_of: dict[str, list[str]] = {}
        for policy in self.desired.policies:
            for target in policy.targets:
                if target.publish is Publish.ENDPOINTS:
                    keys = [RecordKey(_holder(policy, target), kind) for kind in ("A", "AAAA")]
                    ids = [records_id(policy.provider, policy.zone, key) for key in keys]
                    ids_of.setdefault(target.service, []).extend(ids)
        return ids_of

    def records_of(self, service: str) -> tuple[str, ...]:
        """Steps on the names that publish endpoints of this service."""
        return tuple(self._records.get(service, ()))

    def records_of_workload(self, key: str) -> tuple[str, ...]:
        """Steps on the names that publish endpoints of this workload."""
        return tuple(step for service, _ in self.desired.services_of.get(key, ()) for step in self.records_of(service))


def create(desired: Desired, want: Want, ledger: Ledger) -> Step | None:
    """Create a missing replica, from the same images as the earlier replicas of its revision."""
    workload = want.workload
    if workload is None:
        return None
    mark = Mark(desired.instance.id, workload.name, want.ordinal, workload.template.revision)
    push = workload.push is not None
    pins = image_pins.pins_of(ledger, workload.key, mark.revision)
    action = CreateContainer(want.node, want.container, mark, workload.template, desired.root, push=push, pins=pins)
    return Step(want.id, want.object, action, want.cause, want.message, journal=True)


def start(want: Want, fact: ContainerFact, links: Links) -> Step:
    """Start a stopped container, after its address has no weight any more."""
    action = StartContainer(fact.node, fact.name, fact.generation, adopted=fact.adopted)
    weights = links.weights_of(frozenset({fact.name}), frozenset())
    follows = (f"create {fact.name}", f"stop {fact.name}", *weights)
    return Step(want.id, want.object, action, want.cause, want.message, follows, journal=True)


def update(want: Want, fact: ContainerFact, ledger: Ledger) -> Step | None:
    """Change settings that the runtime changes in place. It disrupts nothing and is idempotent."""
    if want.workload is None:
        return None
    if want.cause is Reason.NETWORK_LOST:
        # Only the network: other settings are a planned change, which may have to wait.
        action = UpdateContainer(fact.node, fact.name, fact.generation, (), join=fact.unjoined)
    elif want.cause is Reason.FILES_CHANGED:
        files = file_changes.due(want.workload.template, fact)
        if not files:
            return None
        action = UpdateContainer(fact.node, fact.name, fact.generation, (), adopted=fact.adopted, files=files)
    else:
        live = restart_history.settings(want.workload, want.object, fact, ledger) if want.live is None else want.live
        if want.cause is Reason.POLICY_LOST:  # at once; limits are a planned change as well
            live = restart_history.with_policy(live, fact)
        action = UpdateContainer(fact.node, fact.name, fact.generation, live, adopted=fact.adopted)
    return Step(want.id, want.object, action, want.cause, want.message, why=want.why, moved=want.moved)


def quieten(grant: Grant, fact: ContainerFact) -> Step:
    """Switch off the runtime's restart policy before a drain and a stop, so that the container stays down when it exits."""
    live = restart_history.without_restarts(fact.live)
    action = UpdateContainer(fact.node, fact.name, fact.generation, live, adopted=fact.adopted)
    message = "its restart policy is switched off before it is stopped"
    return Step(f"update {fact.name}", grant.object, action, grant.cause, message)


def restart_start(grant: Grant, fact: ContainerFact) -> Step:
    """The second half of a restart."""
    action = StartContainer(fact.node, fact.name, fact.generation, adopted=fact.adopted)
    message = "stopped for a restart"
    return Step(f"start {fact.name}", grant.object, action, grant.cause, message, (f"stop {fact.name}",), journal=True)


def stop(grant: Grant, fact: ContainerFact, grace: int, links: Links, workload_key: str, message: str) -> Step:
    """Stop a container that is out of rotation, or whose rotation stayed unknown for the longest allowed time."""
    action = StopContainer(fact.node, fact.name, grant.generation, grace, adopted=fact.adopted, only=grant.only)
    follows = links.weights_of(frozenset({fact.name}), frozenset())
    if workload_key:
        follows = (*follows, *links.records_of_workload(workload_key))
    return Step(f"stop {fact.name}", grant.object, action, grant.cause, message, follows, journal=True)


def cut(grant: Grant, fact: ContainerFact, place: Place) -> Step:
    """End the sessions of a container that has reached its longest drain."""
    provider, _, pool = place.pool.partition("/")
    action = CutSessions(provider, pool, place.endpoint, fact.name)
    message = f"{place.requests} requests are still in flight after the longest drain"
    identity = f"cut {place_id(place)[7:]}"
    return Step(identity, grant.object, action, grant.cause, message)


def remove(grant: Grant, fact: ContainerFact, ledger: Ledger) -> Step:
    """Remove a stopped container that is no longer wanted."""
    action = RemoveContainer(fact.node, fact.name, Generation(fact.id, fact.started_at), adopted=fact.adopted)
    message = "down and no longer wanted"
    if grant.cause is Reason.NODE_CHANGED:
        message = f"down and no longer wanted on {fact.node}"
    if grant.cause is Reason.REVISION_FAILED and fact.mark is not None:
        failed = why_failed(ledger.rollouts.get(grant.object.rpartition("/")[0]), fact.mark.revision)
        message = f"{message}; {failed}" if failed else message
    return Step(f"remove {fact.name}", grant.object, action, grant.cause, message, (f"stop {fact.name}",), journal=True)


WHY_WEIGHT = {
    Reason.READY: "ready",
    Reason.NOT_READY: "its readiness probe failed",
    Reason.LIVENESS_FAILED: "its liveness probe failed",
    Reason.STARTUP_FAILED: "its startup probe failed",
    Reason.NOT_RUNNING: "it is not running",
    Reason.PAUSED: "the runtime paused it",
    Reason.RESTARTING: "it is about to be restarted",
    Reason.DRAINING: "it is leaving service",
    Reason.GONE: "no container runs there any more",
    Reason.INACTIVE: "its revision has no share of the traffic",
    Reason.CANARY: "ready, with the share of its revision",
    Reason.PRUNED: "no manifest names it",
    Reason.PUSHED_READY: "it reports that it is ready",
    Reason.PUSHED_NOT_READY: "it reports that it is not ready",
    Reason.PUSHED_STARTUP: "it reports that it is starting",
    Reason.PUSHED_DRAINING: "it reports that it is draining",
    Reason.DRAINED_BY_OPERATOR: "an operator drained it",
    Reason.FORCED_UP: "an operator forced it up",
    Reason.FORCED_DOWN: "an operator forced it down",
    Reason.PENDING: "restarted, and not ready yet",
    Reason.RAMP: "ready, and ramping up to its weight",
    Reason.REASSERTED: "the balancer was restarted and lost the weight",
    Reason.SPREAD: "too few endpoints are ready, so all get the same weight",
}
"""Why an endpoint has or gets its weight, for messages."""


def weight(change: MemberChange, links: Links) -> Step:
    """Change or remove one member of a pool."""
    name = change.container or f"{change.endpoint.address}:{change.endpoint.port}"
    message = f"{name}: {WHY_WEIGHT.get(change.reason, change.reason.value)}"
    identity = weight_id(change.provider, change.pool, change.endpoint)
    if change.after is None:
        gone = RemoveEndpoint(change.provider, change.pool, change.endpoint, change.container)
        after = (identity, f"remove {change.container}")
        return Step(f"withdraw {identity[7:]}", change.object, gone, change.reason, message, after)
    action = SetWeight(change.provider, change.pool, change.endpoint, change.container, change.after, change.before)
    follows: tuple[str, ...] = ()
    if change.after > 0:
        follows = (f"start {change.container}",)
    elif change.reason is Reason.DRAINING:
        follows = links.records_of(change.object)
    return Step(identity, change.object, action, change.reason, message, follows)
