"""What the rules of a switch share: one workload while it is judged, how well a revision is, and what was read back of it.

Used by `switch` and `bake`; `revisions` makes the `Look`.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from manifests.values.desired import Desired, Workload
from providers.facts import ContainerState, Endpoint, PoolFact, ProbeValue
from reconciler.core.health.belief import Belief, By, Sight
from reconciler.core.model.instant import FOREVER, Instant, Now, due
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Rule, Wait
from reconciler.core.model.revision import Revision, Rollout
from reconciler.core.replicas.availability import ripe_at
from reconciler.core.replicas.roster import Group, Roster
from reconciler.core.rollouts.host_restart import excused_until, struck
from reconciler.core.traffic.balancer_checks import shunned
from reconciler.core.traffic.pools import endpoints


class Look(NamedTuple):
    """What one workload is judged by. `jumped` tells that the clocks jumped against each other since the last look."""

    desired: Desired
    roster: Roster
    sight: Sight
    ledger: Ledger
    group: Group
    jumped: bool
    now: Now

    @property
    def workload(self) -> Workload:
        """The workload."""
        return self.group.workload


@dataclass(slots=True)
class Switching:
    """One workload while its switch is carried further: its books, and what is to be said."""

    rollout: Rollout
    holds: list[Hold] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    until: int = FOREVER

    def later(self, at: int, now: Now) -> None:
        """The answer changes at this steady instant."""
        if at > now.steady:
            self.until = min(self.until, at)

    def set(self, row: Revision, **fields: object) -> Revision:
        """Change one row of the books."""
        row = row._replace(**fields)  # type: ignore[arg-type]
        self.rollout = self.rollout.put(row)
        return row


class Health(NamedTuple):
    """The replicas of one revision: how many of `wanted` are available, fail for certain, or are not known to do either."""

    wanted: int
    available: int
    failing: int
    unknown: int
    until: int

    @property
    def whole(self) -> bool:
        """Whether all of them are verified."""
        return self.available >= self.wanted

    @property
    def missing(self) -> int:
        """How many do not exist, or were never started."""
        return self.wanted - self.available - self.failing - self.unknown

    def lost(self, scale: int) -> int:
        """How many are missing of the `scale` that were all verified once; those that were added since are still to come."""
        return max(0, self.missing - max(0, self.wanted - (scale or self.wanted)))


def due_at(row: Revision, now: Now) -> int:
    """The steady instant at which a revision may take over; <= now.steady when it may."""
    return now.steady + row.at - now.wall if row.at else due(row.created, row.delay, now)


def health(
    those: Iterable[Belief],
    wanted: int,
    workload: Workload,
    now: Now,
    leaving: Container[str] = frozenset(),
    shaken: Instant | None = None,
) -> Health:
    """Judge replicas by container and application: what is not known is neither well nor failing.

    One that was created and not started yet is as good as missing: nothing speaks against it. An order that keeps a replica out of
    traffic is about its ordinal, whatever the revision, so it says nothing of this one: what the probes say counts. Of one that
    is on its way out, by its id in `leaving`, nobody knows whether it still runs in a moment. `shaken` is when the host took
    replicas along: of those that it struck it is not known for a while whether they fail.
    """
    available = failing = unknown = 0
    excused = excused_until(shaken, workload, now)
    until = excused or FOREVER
    for belief in those:
        until = min(until, belief.until)
        fact = belief.fact
        if fact.state is ContainerState.CREATED:
            continue
        sick = fact.health is not None and fact.health.value is ProbeValue.FAIL
        ordered = kept_out(belief)
        ready = belief.word.observer if ordered and belief.word is not None else belief.ready
        if fact.state is not ContainerState.RUNNING or sick or ProbeValue.FAIL in (ready, belief.live):
            if excused and shaken is not None and struck(belief, shaken, now):
                unknown += 1
            else:
                failing += 1
        elif ready is ProbeValue.PASS and belief.live is ProbeValue.PASS and fact.id not in leaving:
            ripe = now.steady if ordered else ripe_at(belief, workload.min_ready)
            if ripe <= now.steady:
                available += 1
            else:
                unknown += 1
                until = min(until, ripe)
        else:
            unknown += 1
    return Health(wanted, available, failing, unknown, until)


def kept_out(belief: Belief) -> bool:
    """Whether a person keeps it out of traffic."""
    return belief.word is not None and belief.word.by is By.OVERRIDE and belief.word.out


# --- what is read back --------------------------------------------------------------------------------------------


def _pools(look: Look, revisions: set[str]) -> Iterable[tuple[PoolFact | None, list[tuple[Endpoint, Belief]]]]:
    """Every pool that should have endpoints of these revisions, with those; None for one that cannot be read."""
    key = look.workload.key
    for service in look.desired.services:
        backends = tuple(backend for backend in service.backends if backend.workload == key)
        if not backends or not service.weight:
            continue
        mine = replace(service, backends=backends)
        found = [endpoint for endpoint in endpoints(mine, look.roster) if revision_of(endpoint[1]) in revisions]
        for balancer in service.balancers:
            yield look.sight.pools.get((balancer.provider, balancer.pool)), found


def _weights(look: Look, revisions: set[str]) -> Iterable[tuple[int | None, Belief]]:
    """The weight of every endpoint of these revisions in every pool that should have it; None where it cannot be read."""
    for pool, found in _pools(look, revisions):
        weights = {} if pool is None else {member.endpoint: member.weight for member in pool.members if member.ours}
        for endpoint, belief in found:
            yield (None if pool is None else weights.get(endpoint, 0)), belief


def _shunned(look: Look, revision: str) -> bool:
    """Whether any balancer's own checks keep traffic from replicas of a revision."""
    found = _pools(look, {revision})
    return any(shunned(pool.members, {one for one, _ in those}) for pool, those in found if pool is not None)


def revision_of(belief: Belief) -> str:
    """The revision of a container, empty for one without a mark."""
    return belief.fact.mark.revision if belief.fact.mark is not None else ""


def raised(look: Look, revision: str) -> bool:
    """Whether every replica of a revision was read back with weight in every pool, and gets traffic for it.

    One without an address has none yet. Those that a person keeps out of traffic are not waited for.
    """
    key = look.workload.key
    those = {one.fact.id for one in look.group.of(revision) if not kept_out(one)}
    carrying: set[str] = set()
    for weight, belief in _weights(look, {revision}):
        if not weight and not kept_out(belief):
            return False
        carrying.add(belief.fact.id)
    pooled = any(
        service.balancers and service.weight and any(backend.workload == key for backend in service.backends)
        for service in look.desired.services
    )
    return not pooled or (those <= carrying and not _shunned(look, revision))


def carries(look: Look, revisions: set[str]) -> bool:
    """Whether any replica of these revisions was read back with weight."""
    return any(weight for weight, _ in _weights(look, revisions))


def say_over(it: Switching, look: Look, row: Revision) -> None:
    """A declared revision that does not get the traffic: loudly, at every look, until the manifest changes."""
    key = look.workload.key
    message = f"revision {row.revision[:8]} is {row.standing.value}: {row.why}"
    next_step = f"change the template of {key}, or when it is activated, to have it tried again"
    it.holds.append(Hold(key, f"activate {row.revision[:8]}", Rule.REVISION_NOT_ELIGIBLE, message, next_step=next_step))
