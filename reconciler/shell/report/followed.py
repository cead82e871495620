"""What followed from a verdict: in restarts, pools and names, or which rule held it. Used by `events.py` for each changed verdict.

Everything is read from values of the decision itself: its steps, holds and waits, and the pools and zones that it was made on. What
its steps did is known only when their calls have ended: `Reaction.text` takes their outcomes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from manifests.values.dns import DNSPolicy, Publish
from providers.actions import ChangeRecords, RemoveEndpoint, SetWeight
from providers.facts import ContainerFact, ContainerState, Endpoint, ProbeValue
from reconciler.core.decision import Decision
from reconciler.core.exits import grants
from reconciler.core.health.belief import Belief
from reconciler.core.model.ledger import Grant
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.reasons import Act, Hold, Wait
from reconciler.core.model.step import Step
from reconciler.core.traffic import pools

NOTHING = "not acted on: no pool, name or restart depends on it now"

NAMES = 3
"""Names that a text lists at most."""

_RESTARTS = frozenset({Act.RESTART, Act.RECREATE})

_PASS, _FAIL = ProbeValue.PASS, ProbeValue.FAIL


class _Place(NamedTuple):
    """An endpoint of a container in a pool, with its weight there; None = not in the pool, or the pool cannot be read."""

    service: str
    provider: str
    pool: str
    endpoint: Endpoint
    belief: Belief
    weight: int | None
    readable: bool

    @property
    def key(self) -> str:
        return f"{self.provider}/{self.pool}"


@dataclass(slots=True)
class Reaction:
    """What followed from one verdict.

    begun: steps of the decision, and what each does. done: what was decided without a call. kept: what stays as it is, and why.
    """

    begun: list[tuple[Step, str]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def text(self, outcomes: Mapping[int, Outcome]) -> str:
        """The reaction as a text that begins with `acted on` or `not acted on`.

        Args:
            outcomes: of the steps in `begun` that have ended, by `id(step)`: the same step may be taken again by a later decision.
        """
        done, kept = list(self.done), []
        for step, text in self.begun:
            outcome = outcomes.get(id(step))
            if outcome is None:
                kept.append(f"{text}: begun, not confirmed yet")
            elif outcome.kind is OutcomeKind.DONE:
                done.append(text)
            else:
                kept.append(f"{text}: {_HOW.get(outcome.kind, 'failed')} ({outcome.message})")
        followed, rest = ", ".join(dict.fromkeys(done)), ", ".join(dict.fromkeys([*kept, *self.kept]))
        if followed:
            return f"acted on: {followed}" + (f"; {rest}" if rest else "")
        return f"not acted on: {rest}" if rest else NOTHING


_HOW = {
    OutcomeKind.SKIPPED: "not done",
    OutcomeKind.UNKNOWN: "it is not known whether it was done",
    OutcomeKind.CONFLICT: "not done, something else changed it first",
}
"""How a step ended, in the text of an event; all others failed."""


class Followed:
    """The reactions of one decision.

    Args:
        decision: with the steps and holds.
        before: the grants of the previous decision that was reported.
    """

    def __init__(self, decision: Decision, before: Mapping[str, Grant]) -> None:
        self._decision, self._status, self._before = decision, decision.status, before

    def reaction(self, container: ContainerFact, probe: str, value: ProbeValue) -> Reaction:
        """The reaction to a verdict of this container."""
        out = Reaction()
        self._restart(container, probe, value, out)
        for place in self._places.get(container.id, ()):
            self._weight(place, value, out)
        self._published(container, value, out)
        if not (out.begun or out.done or out.kept) and self._counts(container, probe):
            out.kept.append("nothing has to change")
        return out

    # --- restarts ---------------------------------------------------------------------------------------------------

    def _restart(self, container: ContainerFact, probe: str, value: ProbeValue, out: Reaction) -> None:
        grant, before = self._decision.ledger.grants.get(container.id), self._before.get(container.id)
        mine = grant is not None and grant.generation == container.generation
        if probe == "readiness" and not mine:
            return
        if grant is not None and mine:
            new = before is None or before.generation != container.generation
            if new and grant.cause in grants.URGENT:
                out.done.append(f"restart granted ({grant.cause.value})")
            elif value is _FAIL:
                way = "a restart of it" if grants.returns(grant) else "its exit"
                out.kept.append(f"{way} is in progress already ({grant.cause.value})")
            return
        over = before is not None and before.generation == container.generation and before.cause in grants.URGENT
        if value is _PASS and before is not None and over:
            out.done.append(f"restart called off ({before.cause.value})")
        if value is not _FAIL:
            return
        holds = [hold for hold in self._decision.holds if _restarts(hold) and container.id in hold.held.containers]
        if holds:
            rules = " and ".join(dict.fromkeys(hold.rule.value for hold in holds))
            out.kept.append(f"{holds[0].action} is held by {rules}")
            return
        wait = self._wait(container, {self._replica(container)})
        if wait is not None:
            out.kept.append(wait.message)
        elif container.id not in self._current:
            out.kept.append("it is not restarted, because another container takes its place")

    def _replica(self, container: ContainerFact) -> str:
        mark = container.mark
        return "" if mark is None else f"workload/{mark.workload}/{mark.ordinal}"

    @cached_property
    def _current(self) -> frozenset[str]:
        """The ids of the containers that their replicas keep."""
        groups = self._status.roster.groups.values()
        return frozenset(belief.fact.id for group in groups for belief in (*group.current.values(), *group.waiting))

    def _counts(self, container: ContainerFact, probe: str) -> bool:
        """Whether a pool, a name, a restart or a rollout may depend on this probe."""
        if probe != "readiness" or self._places.get(container.id):
            return True
        return any(self._policies(container))

    def _policies(self, container: ContainerFact) -> Iterator[DNSPolicy]:
        """The policies that publish the endpoints of a container's services."""
        mark, desired = container.mark, self._status.desired
        if mark is None or desired is None:
            return
        services = {key for key, _ in desired.services_of.get(f"workload/{mark.workload}", ())}
        for policy in desired.policies:
            if any(target.publish is Publish.ENDPOINTS and target.service in services for target in policy.targets):
                yield policy

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
                    where = (service.key, balancer.provider, balancer.pool, endpoint)
                    place = _Place(*where, belief, weights.get(endpoint), pool is not None)
                    places.setdefault(belief.fact.id, []).append(place)
        return places

    @cached_property
    def _weights(self) -> Mapping[tuple[str, str, Endpoint], Step]:
        """The steps of this decision that change or remove a member."""
        return {
            (step.action.provider, step.action.pool, step.action.endpoint): step
            for step in self._decision.steps
            if isinstance(step.action, SetWeight | RemoveEndpoint)
        }

    def _weight(self, place: _Place, value: ProbeValue, out: Reaction) -> None:
        step = self._weights.get((place.provider, place.pool, place.endpoint))
        if step is not None:
            removed = isinstance(step.action, RemoveEndpoint)
            weight = step.action.weight if isinstance(step.action, SetWeight) else 0
            out.begun.append((step, f"removed from {place.key}" if removed else f"weight {weight} in {place.key}"))
            return
        if not place.readable:
            out.kept.append(f"pool {place.key} cannot be read")
            return
        if value not in (_PASS, _FAIL):
            return  # an unknown verdict changes nothing
        holds = [
            hold
            for hold in self._decision.holds
            if hold.held.act is Act.WEIGHT and hold.held.pool == place.key and place.endpoint in hold.held.endpoints
        ]
        if holds:
            rules = " and ".join(dict.fromkeys(hold.rule.value for hold in holds))
            verb = "keep" if place.weight else "hold"
            out.kept.append(f"{rules} {verb}{'' if ' and ' in rules else 's'} its weight in {place.key}")
            return
        if bool(place.weight) is (place.belief.ready is _PASS):
            return  # its weight fits what is believed of it
        target = f"{place.key}/{place.endpoint.address}:{place.endpoint.port}"
        if target in self._status.observed.under_way:
            out.kept.append(f"a call that sets its weight in {place.key} is still running")
            return
        wait = self._wait(place.belief.fact, {place.service, self._replica(place.belief.fact)})
        now = f"its weight in {place.key} is still {place.weight or 0}"
        grant = self._decision.ledger.grants.get(place.belief.fact.id)
        reason = place.belief.reason if grant is None else grant.cause
        out.kept.append(f"{now}: {wait.message}" if wait is not None else f"{now} ({reason.value})")

    def _wait(self, container: ContainerFact, objects: set[str]) -> Wait | None:
        """What a container waits for before its weight changes or it is restarted."""
        waits = [wait for wait in self._decision.waits if wait.object in objects and wait.container == container.id]
        return waits[0] if waits else None

    # --- names ------------------------------------------------------------------------------------------------------

    def _published(self, container: ContainerFact, value: ProbeValue, out: Reaction) -> None:
        """Names that this decision withdraws its address from or adds it to, and names that keep the address of a failing one."""
        addresses = set(_addresses(container)) | {
            place.endpoint.address for place in self._places.get(container.id, ())
        }
        if not addresses:
            return
        changed: set[str] = set()
        for step in self._decision.steps:
            withdrawn, added = set[str](), set[str]()
            for change in step.action.changes if isinstance(step.action, ChangeRecords) else ():
                before = addresses.intersection(change.before.values if change.before is not None else ())
                after = addresses.intersection(change.after.values if change.after is not None else ())
                if before - after:
                    withdrawn.add(change.key.name)
                if after - before:
                    added.add(change.key.name)
            changed |= withdrawn | added
            if withdrawn:
                out.begun.append((step, f"address withdrawn from {_names(withdrawn)}"))
            if added:
                out.begun.append((step, f"address published at {_names(added)}"))
        if value is _PASS and container.id not in self._decision.ledger.grants:
            out.kept.extend(self._lacking(container, addresses, changed))
        if value is _FAIL and container.state is ContainerState.RUNNING:
            out.kept.extend(self._keeping(container, addresses, changed))

    def _lacking(self, container: ContainerFact, addresses: set[str], changed: set[str]) -> Iterator[str]:
        """Names that do not publish an address of a container that passes, although their policies select it."""
        names = self._status.names
        for policy in self._policies(container):
            outcome = None if names is None else names.policies.get(policy.key)
            if outcome is None or policy.host in changed:
                continue
            if outcome.published is None:
                yield f"zone {policy.provider}/{policy.zone} cannot be read"
            elif addresses.isdisjoint(outcome.published):
                rules = " and ".join(
                    dict.fromkeys(
                        hold.rule.value
                        for hold in self._decision.holds
                        if hold.held.act is Act.RECORDS
                        and hold.object == policy.key
                        and addresses.intersection(hold.held.addresses)
                    )
                )
                yield f"its address is not published at {policy.host} yet" + (f" (held by {rules})" if rules else "")

    def _keeping(self, container: ContainerFact, addresses: set[str], changed: set[str]) -> Iterator[str]:
        """The rules by which names keep an address, and the names that keep it without one."""
        sight = self._status.sight
        if sight is None:
            return
        for policy in self._policies(container) if sight.unknown_zones else ():
            if (policy.provider, policy.zone) in sight.unknown_zones:
                yield f"zone {policy.provider}/{policy.zone} cannot be read, so its address may stay in {policy.host}"
        shown = {
            key.name: owner.partition("/")[2]
            for zone in sight.zones.values()
            for key, owner in zone.owners.items()
            if key.type in ("A", "AAAA") and key in zone.records and addresses.intersection(zone.records[key].values)
        }
        for host, owner_key in sorted(shown.items()):
            if host in changed:
                continue
            rules = dict.fromkeys(
                hold.rule.value
                for hold in self._decision.holds
                if hold.held.act is Act.RECORDS
                and hold.object == owner_key
                and addresses.intersection(hold.held.addresses)
            )
            if rules:
                verb = "keep" if len(rules) > 1 else "keeps"
                yield f"{' and '.join(rules)} {verb} its address in {host}"
            else:
                yield f"its address stays in {host}"


def _restarts(hold: Hold) -> bool:
    return hold.held.act in _RESTARTS


def _addresses(container: ContainerFact) -> Iterator[str]:
    yield from (container.address,) if container.address else ()
    yield from (port.address for port in (*container.ports, *container.published))


def _names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = len(ordered) - NAMES
    return ", ".join(ordered[:NAMES]) + (f" and {more} more" if more > 0 else "")
