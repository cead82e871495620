"""The health of one revision's replicas. Called by `evidence` for every revision of a workload."""

from collections.abc import Container, Iterable
from typing import NamedTuple

from manifests.values.desired import Workload
from providers.facts import ContainerState, ProbeValue
from reconciler.core.health.belief import Belief, By
from reconciler.core.model.instant import Now
from reconciler.core.replicas import availability
from reconciler.core.rollouts.host_restart import NONE_EXCUSED, Excused


class Health(NamedTuple):
    """The replicas of one revision: how many of `wanted` are available, fail for certain, or are unknown.

    `existing` counts all containers, started or not. `unseen` of the unknown ones may be on nodes that cannot be read; `listed` of the
    existing ones were last observed there.
    """

    wanted: int
    available: int
    failing: int
    unknown: int
    until: int
    existing: int
    unseen: int = 0
    listed: int = 0

    @property
    def whole(self) -> bool:
        """Whether all of them are verified."""
        return self.available >= self.wanted

    @property
    def missing(self) -> int:
        """How many do not exist, or were never started."""
        return self.wanted - self.available - self.failing - self.unknown

    def lost(self, scale: int) -> int:
        """How many are missing of the `scale` replicas that were all verified once; replicas added since do not count."""
        return max(0, self.missing - max(0, self.wanted - (scale or self.wanted)))


def health(
    replicas: Iterable[Belief],
    workload: Workload,
    now: Now,
    leaving: Container[str] = frozenset(),
    excused: Excused = NONE_EXCUSED,
    unseen: int = 0,
    listed: int = 0,
) -> Health:
    """Judge replicas by container state and probes: an unknown replica is neither available nor failing.

    A replica that was created but not started counts as missing. An override that keeps a replica out of traffic is about its
    ordinal, whatever the revision, so the probes decide here. A replica whose id is in `leaving` is unknown, because it may stop
    at any moment. One that a host restart excuses is unknown instead of failing. `unseen` further ones may be on nodes that cannot be
    read, `listed` of them were observed there.
    """
    available = failing = existing = 0
    unknown = unseen
    until = excused.until
    for belief in replicas:
        existing += 1
        until = min(until, belief.until)
        fact = belief.fact
        if fact.state is ContainerState.CREATED:
            continue
        sick = fact.health is not None and fact.health.value is ProbeValue.FAIL
        overridden = kept_out(belief)
        ready = belief.claim.observer if overridden and belief.claim is not None else belief.ready
        if fact.state is not ContainerState.RUNNING or sick or ProbeValue.FAIL in (ready, belief.live):
            if fact.id in excused.containers:
                unknown += 1
            else:
                failing += 1
        elif ready is ProbeValue.PASS and belief.live is ProbeValue.PASS and fact.id not in leaving:
            available_at = now.steady if overridden else availability.available_at(belief, workload.min_ready)
            if available_at <= now.steady:
                available += 1
            else:
                unknown += 1
                until = min(until, available_at)
        else:
            unknown += 1
    return Health(workload.replicas, available, failing, unknown, until, existing + listed, unseen, listed)


def kept_out(belief: Belief) -> bool:
    """Whether an operator keeps a replica out of traffic."""
    return belief.claim is not None and belief.claim.by is By.OVERRIDE and belief.claim.out


def revision_of(belief: Belief) -> str:
    """The revision of a container, empty for one without a mark."""
    return belief.fact.mark.revision if belief.fact.mark is not None else ""
