"""What followed from a verdict: in restarts, pools and names, or which rule held it. Used by `events.py` for each changed verdict.

Everything is read from the decision itself: its steps, holds and waits, and the pools and zones that it was made on.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from providers.actions import ChangeRecords, RemoveEndpoint, SetWeight
from providers.facts import ContainerFact, ContainerState, Endpoint, ProbeValue
from reconciler.core.decision import Decision
from reconciler.core.model.reasons import Hold, Wait
from reconciler.core.traffic import pools

NOTHING = "not acted on: no pool, name or restart depends on it now"

NAMES = 3
"""Names that a text lists at most."""


class _Place(NamedTuple):
    """An endpoint of a container in a pool, with its weight there; None = not in the pool, or the pool cannot be read."""

    service: str
    provider: str
    pool: str
    endpoint: Endpoint
    weight: int | None
    readable: bool


class Followed:
    """The reactions of one decision."""

    def __init__(self, decision: Decision) -> None:
        self._decision, self._status = decision, decision.status
        self._grants = {grant.object: grant.cause.value for grant in decision.ledger.grants.values()}

    def text(self, obj: str, container: ContainerFact, probe: str, value: ProbeValue) -> str:
        """The reaction to a verdict, as a text that begins with `acted on` or `not acted on`."""
        done, held = self._restart(obj, probe, value)
        restart_held, failing = bool(held), value is ProbeValue.FAIL
        for place in self._places.get(container.id, ()):
            self._weight(place, container, failing, done, held)
        self._published(container, failing, done, held)
        followed, kept = ", ".join(dict.fromkeys(done)), ", ".join(dict.fromkeys(held))
        if restart_held:
            return f"not acted on: {kept}" + (f"; done: {followed}" if followed else "")
        if followed:
            return f"acted on: {followed}" + (f"; {kept}" if kept else "")
        return f"not acted on: {kept}" if kept else NOTHING

    # --- restarts ---------------------------------------------------------------------------------------------------

    def _restart(self, obj: str, probe: str, value: ProbeValue) -> tuple[list[str], list[str]]:
        if value is not ProbeValue.FAIL or probe == "readiness":
            return [], []
        if obj in self._grants:
            return [f"restart granted ({self._grants[obj]})"], []
        holds = [hold for hold in self._decision.holds if hold.object == obj]
        restarts = [hold for hold in holds if hold.action.startswith(("restart ", "recreate "))] or holds
        return [], [f"{restarts[0].action} is held by {restarts[0].rule}"] if restarts else []

    # --- pools ------------------------------------------------------------------------------------------------------

    @cached_property
    def _places(self) -> Mapping[str, list[_Place]]:
        """The endpoints in pools of each container, by its id."""
        places: dict[str, list[_Place]] = {}
        desired, sight = self._status.desired, self._status.sight
        if desired is None or sight is None:
            return places
        for service in desired.services:
            endpoints = list(pools.endpoints(service, self._status.roster)) if service.balancers else ()
            for balancer in service.balancers:
                pool = sight.pools.get((balancer.provider, balancer.pool))
                weights = {} if pool is None else {member.endpoint: member.weight for member in pool.members}
                for endpoint, belief in endpoints:
                    place = _Place(
                        service.key,
                        balancer.provider,
                        balancer.pool,
                        endpoint,
                        weights.get(endpoint),
                        pool is not None,
                    )
                    places.setdefault(belief.fact.id, []).append(place)
        return places

    @cached_property
    def _weights(self) -> Mapping[tuple[str, str, Endpoint], int]:
        """The weights that steps of this decision set. An endpoint that is removed gets 0."""
        weights: dict[tuple[str, str, Endpoint], int] = {}
        for step in self._decision.steps:
            action = step.action
            if isinstance(action, SetWeight | RemoveEndpoint):
                weight = action.weight if isinstance(action, SetWeight) else 0
                weights[action.provider, action.pool, action.endpoint] = weight
        return weights

    def _weight(self, place: _Place, container: ContainerFact, failing: bool, done: list[str], held: list[str]) -> None:
        pool = f"{place.provider}/{place.pool}"
        weight = self._weights.get((place.provider, place.pool, place.endpoint))
        if weight is not None:
            done.append(f"weight {weight} in {pool}")
            return
        if not place.readable:
            held.append(f"pool {pool} cannot be read")
            return
        if bool(place.weight) is not failing:
            return  # its weight fits the verdict already
        holds = [hold for hold in self._decision.holds if _is_of(hold, place, container)]
        if holds:
            verb = "keeps its weight" if failing else "holds its weight"
            held.append(f"{holds[0].rule} {verb} in {pool}")
            return
        wait = self._wait(container, place.service)
        held.append(f"weight in {pool}: {wait.message}" if wait is not None else f"weight in {pool} stays")

    def _wait(self, container: ContainerFact, service: str) -> Wait | None:
        """What a container waits for before its weight changes."""
        mark = container.mark
        objects = {service, "" if mark is None else f"workload/{mark.workload}/{mark.ordinal}"}
        waits = [wait for wait in self._decision.waits if wait.object in objects and container.name in wait.message]
        return waits[0] if waits else None

    # --- names ------------------------------------------------------------------------------------------------------

    def _published(self, container: ContainerFact, failing: bool, done: list[str], held: list[str]) -> None:
        """Names that this decision withdraws its address from or adds it to, and names that keep the address of a failing one."""
        addresses = set(_addresses(container)) | {
            place.endpoint.address for place in self._places.get(container.id, ())
        }
        withdrawn, added = set[str](), set[str]()
        for step in self._decision.steps:
            for change in step.action.changes if isinstance(step.action, ChangeRecords) else ():
                before = addresses.intersection(change.before.values if change.before is not None else ())
                after = addresses.intersection(change.after.values if change.after is not None else ())
                if before - after:
                    withdrawn.add(change.key.name)
                if after - before:
                    added.add(change.key.name)
        if withdrawn:
            done.append(f"address withdrawn from {_names(withdrawn)}")
        if added:
            done.append(f"address published at {_names(added)}")
        if failing and container.state is ContainerState.RUNNING:
            held.extend(self._keeping(addresses, withdrawn))

    def _keeping(self, addresses: set[str], withdrawn: set[str]) -> Iterator[str]:
        """The rules by which names keep an address."""
        for hold in self._decision.holds:
            kept = hold.action.removeprefix("withdraw ").split(", ") if hold.action.startswith("withdraw ") else ()
            if addresses.intersection(kept):
                yield f"{hold.rule} keeps its address in {hold.object}"
        sight = self._status.sight
        if sight is None:
            return
        objects = {hold.object for hold in self._decision.holds if hold.action.startswith("withdraw ")}
        for zone in sight.zones.values():
            for key, owner in zone.owners.items():
                policy = owner.partition("/")[2]
                shows = key.type in ("A", "AAAA") and addresses.intersection(zone.records[key].values)
                if shows and key.name not in withdrawn and policy not in objects:
                    yield f"its address stays in {key.name}"


def _is_of(hold: Hold, place: _Place, container: ContainerFact) -> bool:
    """Whether a hold is about the weight of a container in a pool."""
    action = hold.action
    if hold.object != place.service or "weight" not in action:
        return False
    if action.startswith(f"weight {container.name} ") or action == f"weight of {container.name}":
        return True
    named, _, pool = action.removeprefix("remove the weight of ").rpartition(" in pool ")
    return pool == place.pool and (container.name in named.split(", ") or " more" in named)


def _addresses(container: ContainerFact) -> Iterator[str]:
    yield from (container.address,) if container.address else ()
    yield from (port.address for port in (*container.ports, *container.published))


def _names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = len(ordered) - NAMES
    return ", ".join(ordered[:NAMES]) + (f" and {more} more" if more > 0 else "")
