"""Floors of a pool, panic among them: many failures at once make the judgement itself doubtful, so weights are kept.

Called by `traffic/pool`, which decides what happens to each member, and by `traffic/pools`.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from manifests.values.desired import SECOND, Balancer, Service
from manifests.values.traffic import Panic
from providers.facts import ContainerState, Endpoint, ProbeValue
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import FOREVER, Instant, Now, due, elapsed
from reconciler.core.model.reasons import Act, HeldAction, Hold, Reason, Rule
from reconciler.core.model.weight_memory import Cut, Weighed
from reconciler.core.replicas.roster import Group

HYSTERESIS = 10
"""Points above the threshold at which panic ends, so that one endpoint at the edge does not turn it on and off."""

SPAN = 10 * SECOND
"""The span in which only a part of a pool's endpoints may lose weight for observed health."""

SHARE = 10
"""That part in percent, at least one endpoint: the most that Envoy's outlier detection ejects
(https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/outlier)."""


def panicking(considered: int, ready: int, failing: int, since: Instant | None, rules: Panic) -> bool:
    """Whether too few endpoints are ready.

    Args:
        considered: endpoints that were ready in this generation and are not leaving service.
        ready: how many of these are ready; an unknown endpoint counts as not ready.
        failing: how many of them fail. Panic begins only when something does.
        since: when the current panic began; None = no panic.
    """
    if not rules.threshold or not considered or (since is None and not failing):
        return False
    bound = rules.threshold if since is None else min(100, rules.threshold + HYSTERESIS)
    return ready * 100 < bound * considered


def recent(cuts: Iterable[Cut], now: Now) -> tuple[Cut, ...]:
    """The cuts that still count."""
    return tuple(cut for cut in cuts if elapsed(cut.at, now) < SPAN)


def spent_until(cuts: Sequence[Cut], size: int, now: Now) -> int:
    """When one more container may lose its weight for observed health: 0 = now, else the steady instant at which to ask again.

    Args:
        cuts: the recent cuts of the pool; their containers may lose their weight in any case.
        size: how many endpoints the pool has.
    """
    if len(cuts) < max(1, size * SHARE // 100):
        return 0
    return min(due(cut.at, SPAN, now) for cut in cuts)


def _verdict(belief: Belief) -> ProbeValue:
    return belief.ready if belief.claim is None else belief.claim.observer


def all_failing(groups: Iterable[Group], unseen: bool) -> bool:
    """Whether every verdict of every probe in this instance is a failure, for at least two containers: then our probing is suspect.

    Containers without a verdict, and those on nodes that cannot be read (`unseen`), may be failing as well: knowing less of them is
    no reason to trust the failure of another container more.
    """
    failing, others = 0, int(unseen)
    for group in groups:
        probes = [
            probe
            for container in group.probed
            for probe in (container.startup, container.liveness, container.readiness)
        ]
        if not any(probes):
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


# --- holds ------------------------------------------------------------------------------------------------------------


class Floor(StrEnum):
    """What keeps failing members in their pool."""

    PANIC = "panic"
    RATE = "rate"
    UNLISTED = "unlisted"
    DOUBT = "doubt"


class Held:
    """Collects which members keep their weight by which floor: one hold for each floor of a pool, not for each member."""

    def __init__(self, service: Service, balancer: Balancer, considered: int, ready: int) -> None:
        self.service, self.balancer, self.considered, self.ready = service, balancer, considered, ready
        self.members: dict[Floor, list[tuple[str, str, Endpoint]]] = {}
        self.until: dict[Floor, int] = {}

    def add(self, floor: Floor, belief: Belief, endpoint: Endpoint, until: int = FOREVER) -> None:
        """Add a member."""
        self.members.setdefault(floor, []).append((belief.fact.name, belief.fact.id, endpoint))
        self.until[floor] = min(until, self.until.get(floor, FOREVER))

    def holds(self) -> list[Hold]:
        """The holds, one for each floor."""
        return [self._hold(floor, sorted(members)) for floor, members in sorted(self.members.items())]

    def _hold(self, floor: Floor, members: list[tuple[str, str, Endpoint]]) -> Hold:
        names = [name for name, _, _ in members]
        who = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        pool, rules = self.balancer.pool, self.service.panic
        action = f"remove the weight of {who} in pool {pool}"
        held = HeldAction(
            Act.WEIGHT,
            tuple(container for _, container, _ in members),
            f"{self.balancer.provider}/{pool}",
            tuple(endpoint for _, _, endpoint in members),
        )
        check = f"check the probes of {self.service.key} and their dependencies"
        match floor:
            case Floor.PANIC:
                message = (
                    f"{self.ready} of {self.considered} endpoints are ready, below {rules.threshold}%; weights are kept"
                )
                return Hold(self.service.key, action, Rule.PANIC, message, next_step=check, held=held)
            case Floor.RATE:
                message = f"at most {SHARE}% of a pool (at least 1 endpoint) may lose weight for failed health in {SPAN // SECOND}s"
                rule = Rule.WEIGHT_REMOVAL_LIMIT
                return Hold(self.service.key, action, rule, message, until=self.until[floor], held=held)
            case Floor.UNLISTED:
                message = (
                    f"a node with endpoints of {self.service.key} cannot be read, and which ones are there is not known; "
                    "weights are kept"
                )
                next_step = "make all its nodes reachable; they are retried automatically"
                return Hold(self.service.key, action, Rule.UNKNOWN_RUNTIME, message, next_step=next_step, held=held)
            case Floor.DOUBT:
                message = "every probe of every container fails, so the prober is suspect; weights are kept"
                return Hold(self.service.key, action, Rule.ALL_FAILING, message, next_step=check, held=held)


def _weight(balancer: Balancer, belief: Belief, endpoint: Endpoint) -> HeldAction:
    return HeldAction(Act.WEIGHT, (belief.fact.id,), f"{balancer.provider}/{balancer.pool}", (endpoint,))


def suspect(service: Service, balancer: Balancer, endpoint: Endpoint, belief: Belief, before: int) -> Hold:
    """The hold of a member whose liveness failure is doubted, because many fail together."""
    name = belief.fact.name
    message = f"{name} keeps its weight: it fails together with many others, so the probe is suspect"
    next_step = (
        "check the probe and its dependencies; a failing readiness probe still takes a container out of the pool"
    )
    action = f"weight {name} {before} -> 0 in pool {balancer.pool}"
    held = _weight(balancer, belief, endpoint)
    return Hold(service.key, action, Rule.MASS_FAILURE, message, next_step=next_step, held=held)


def last_member(
    service: Service,
    balancer: Balancer,
    endpoint: Endpoint,
    belief: Belief,
    before: int,
    why: Reason,
    failing_checks: bool = False,
) -> Hold:
    """The hold of the last member with weight; with `failing_checks`, the balancer's own checks fail for all others."""
    name, pool = belief.fact.name, balancer.pool
    message = (
        f"{name} ({why.value}) keeps weight {before}: no other endpoint of pool {pool} is ready and carries weight"
    )
    next_step = f"bring another endpoint of {service.key} back, or set replicas of its workload to 0"
    if failing_checks:
        message = f"{name} ({why.value}) keeps weight {before}: the balancer's own checks of pool {pool} fail for every other ready endpoint"
        next_step = (
            f"if this lasts for more than a few seconds, find out why the balancer's own checks of pool {pool} fail"
        )
    action = f"weight {name} {before} -> 0 in pool {pool}"
    held = _weight(balancer, belief, endpoint)
    return Hold(service.key, action, Rule.LAST_MEMBER, message, next_step=next_step, held=held)


def conflict(
    obj: str,
    balancer: Balancer,
    belief: Belief,
    weights: tuple[int | None, int | None],
    row: Weighed,
    writer: str,
    until: int,
) -> Hold:
    """The hold of a member that another writer changes. `weights`: the one that was read back, and the wanted one."""
    pool, (before, after) = balancer.pool, weights
    action = f"weight {belief.fact.name} {before or 0} -> {after or 0} in pool {pool}"
    times = "once" if len(row.reversals) == 1 else f"{len(row.reversals)} times in 5 minutes"
    who = writer or "another writer"
    message = (
        f"{who} changed this weight {times}, last from {row.before} to {row.after}; reconcile does not write it for now"
    )
    next_step = f"stop other writers of pool {pool}: an agent-check, a script, an operator on the balancer's socket"
    held = _weight(balancer, belief, row.endpoint)
    return Hold(obj, action, Rule.CONFLICTING_WRITER, message, until=until, next_step=next_step, held=held)
