"""Floors of a pool, panic among them: when so much fails at once that it is the judgement that is doubted.

Called by `pool`, which says what then happens to each member.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from manifests.values.desired import SECOND, Balancer, Service
from manifests.values.traffic import Panic
from providers.facts import ContainerState, ProbeValue
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import FOREVER, Instant, Now, due, elapsed
from reconciler.core.model.reasons import Hold, Reason, Rule
from reconciler.core.model.weight_memory import Cut, Weighed
from reconciler.core.replicas.roster import Group

HYSTERESIS = 10
"""Points above the threshold at which panic ends, so that one endpoint at the edge does not turn it on and off."""

SPAN = 10 * SECOND
"""The span in which only a part of a pool's endpoints may lose weight for observed health."""

SHARE = 10
"""That part in percent, at least one endpoint: what Envoy's outlier detection ejects at most
(https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/outlier)."""


def panicking(considered: int, ready: int, failing: int, since: Instant | None, rules: Panic) -> bool:
    """Whether too few endpoints are ready.

    Args:
        considered: endpoints that were ready in this generation and are not on their way out.
        ready: how many of these are; one that is not known counts as one that is not.
        failing: how many of them fail. Panic begins only when something does.
        since: when the panic began that goes on; None = there is none.
    """
    if not rules.threshold or not considered or (since is None and not failing):
        return False
    bound = rules.threshold if since is None else min(100, rules.threshold + HYSTERESIS)
    return ready * 100 < bound * considered


def recent(cuts: Iterable[Cut], now: Now) -> tuple[Cut, ...]:
    """The cuts that count now."""
    return tuple(cut for cut in cuts if elapsed(cut.at, now) < SPAN)


def spent_until(cuts: Sequence[Cut], size: int, now: Now) -> int:
    """When one more container may lose its weight for observed health: 0 = now, else the steady instant at which to ask again.

    Args:
        cuts: the recent ones of the pool; who is among them may lose it anyway.
        size: how many endpoints the pool has.
    """
    if len(cuts) < max(1, size * SHARE // 100):
        return 0
    return min(due(cut.at, SPAN, now) for cut in cuts)


def _verdict(belief: Belief) -> ProbeValue:
    return belief.ready if belief.word is None else belief.word.observer


def all_failing(groups: Iterable[Group], blind: bool) -> bool:
    """Whether every verdict of every probe in this instance is a failure, of two containers at least: then it is our probing.

    Those without a verdict, and those on nodes that cannot be seen (`blind`), may be failing as well: to know less of them is no
    reason to trust the failure of another one more.
    """
    failing, others = 0, int(blind)
    for group in groups:
        container = group.workload.template.container
        if container.startup is None and container.liveness is None and container.readiness is None:
            continue
        for belief in group.members():
            if belief.fact.state is not ContainerState.RUNNING:
                continue
            verdict = _verdict(belief)
            if verdict is ProbeValue.PASS:
                return False
            failing += verdict is ProbeValue.FAIL
            others += verdict is not ProbeValue.FAIL
    return failing > 0 and failing + others > 1


# --- what people read -------------------------------------------------------------------------------------------------


class Floor(StrEnum):
    """What keeps members that fail in their pool."""

    PANIC = "panic"
    RATE = "rate"
    BLIND = "blind"
    DOUBT = "doubt"


class Held:
    """Collects who keeps its weight by which floor: one hold for each floor of a pool, not one for each member."""

    def __init__(self, service: Service, balancer: Balancer, considered: int, ready: int) -> None:
        self.service, self.balancer, self.considered, self.ready = service, balancer, considered, ready
        self.names: dict[Floor, list[str]] = {}
        self.until: dict[Floor, int] = {}

    def add(self, floor: Floor, name: str, until: int = FOREVER) -> None:
        """One more member."""
        self.names.setdefault(floor, []).append(name)
        self.until[floor] = min(until, self.until.get(floor, FOREVER))

    def holds(self) -> list[Hold]:
        """All of it in words."""
        return [self._hold(floor, sorted(names)) for floor, names in sorted(self.names.items())]

    def _hold(self, floor: Floor, names: list[str]) -> Hold:
        who = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        pool, rules = self.balancer.pool, self.service.panic
        action = f"take the weight of {who} in pool {pool}"
        check = f"check the probes of {self.service.key} and what they depend on"
        match floor:
            case Floor.PANIC:
                message = (
                    f"{self.ready} of {self.considered} endpoints are ready, below {rules.threshold}%: weights stay"
                )
                return Hold(self.service.key, action, Rule.PANIC, message, next_step=check)
            case Floor.RATE:
                message = f"at most {SHARE}% of a pool (at least one) lose weight for health in {SPAN // SECOND} s"
                return Hold(self.service.key, action, Rule.WEIGHT_REMOVAL_LIMIT, message, until=self.until[floor])
            case Floor.BLIND:
                message = "a node with endpoints of it cannot be read, so nothing is taken away for observed health"
                next_step = "see that all its nodes can be read; it is looked at again by itself"
                return Hold(self.service.key, action, Rule.UNKNOWN_RUNTIME, message, next_step=next_step)
            case Floor.DOUBT:
                message = "every verdict of every probe fails, so it is our probing that is doubted"
                return Hold(self.service.key, action, Rule.ALL_FAILING, message, next_step=check)


def suspect(service: Service, belief: Belief, before: int) -> Hold:
    """Its liveness failure is doubted, because many fail together."""
    name = belief.fact.name
    message = f"{name} fails together with many others, so it is its probe that is doubted and it keeps its weight"
    next_step = "check the probe and what they depend on; a failing readiness probe of its own takes it out of the pool"
    return Hold(service.key, f"weight {name} {before} -> 0", Rule.MASS_FAILURE, message, next_step=next_step)


def last_member(
    service: Service, balancer: Balancer, belief: Belief, before: int, why: Reason, shunned: bool = False
) -> Hold:
    """It is the last one that carries weight; or, `shunned`, the last of those that the balancer gives traffic for it."""
    name, pool = belief.fact.name, balancer.pool
    message = f"no other endpoint of pool {pool} is ready and carries weight, so {name} ({why.value}) keeps {before}"
    next_step = f"bring another endpoint of {service.key} back, or scale it to 0 in its manifest"
    if shunned:
        message = f"the balancer's own checks of pool {pool} call every other ready endpoint down, so {name} ({why.value}) keeps {before}"
        next_step = f"see why the balancer's own checks of pool {pool} fail, if they do not pass in a few seconds"
    return Hold(service.key, f"weight {name} {before} -> 0", Rule.LAST_MEMBER, message, next_step=next_step)


def conflict(obj: str, pool: str, action: str, row: Weighed, writer: str, until: int) -> Hold:
    """Somebody else writes the same member."""
    times = "once" if len(row.reversals) == 1 else f"{len(row.reversals)} times in 5 minutes"
    who = writer or "somebody else"
    message = f"{who} changed it {times}, the last time from {row.before} to {row.after}; it is left alone for now"
    next_step = f"keep other writers off pool {pool}: an agent-check, a script, a person on the balancer's socket"
    return Hold(obj, action, Rule.CONFLICTING_WRITER, message, until=until, next_step=next_step)
