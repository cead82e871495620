"""Mass failure: many containers of a group that turn bad at the same time point at their probe or at something they share.

Restarting them all would turn a doubt into an outage. While at least half of a group (and at least two) is bad, one of them, the
canary, is restarted; when it becomes available the next one follows, one at a time; when it does not, everything is held, longer
each time, and the message says what is suspect. Traffic is kept meanwhile. A group is the replicas of a workload, or the
containers of one node over several workloads. Unknown counts as bad once something failed: on the side that holds.
Called by `decide` (`watch`) before the weights, and by `healing` (`hold`) as a gate.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from manifests.values.desired import SECOND, Container
from manifests.values.limits import MassFailure
from providers.facts import ContainerState, Generation, Probes, ProbeValue
from reconciler.core.exits.grants import URGENT
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import FOREVER, Now, due, elapsed, instant, next_after
from reconciler.core.model.ledger import Ledger, Outbreak
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Hold, Reason, Rule
from reconciler.core.model.want import Want
from reconciler.core.replicas import availability, memory
from reconciler.core.replicas.roster import Group, Roster
from reconciler.core.replicas.snapshot import Snapshot

MEMORY = 600 * SECOND
"""How long a mass failure is remembered after it ended: if it comes back by then, its pauses go on where they were."""

_PASS, _FAIL, _UNKNOWN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN
_RUNNING = ContainerState.RUNNING


class Extent(NamedTuple):
    """How far a mass failure goes now: `bad` of `size` running containers, within `window` (ns)."""

    bad: int
    size: int
    window: int


@dataclass(frozen=True, slots=True)
class Outbreaks:
    """The answer for all groups.

    `rows` is what must be remembered; `active` gives the extent of each mass failure that goes on; `of` the groups with one that
    a container belongs to; `suspect` the ids of containers whose failing is in doubt, so that they keep their traffic;
    `sound` are containers with failed liveness, suspect or not, whose readiness says that they can serve;
    `settled_at` the steady instant after which another failure in the group is no part of the latest ones any more.
    """

    rows: Mapping[str, Outbreak]
    active: Mapping[str, Extent] = field(default_factory=dict)
    of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    suspect: frozenset[str] = frozenset()
    sound: frozenset[str] = frozenset()
    settled_at: Mapping[str, int] = field(default_factory=dict)


def window_of(container: Container) -> int:
    """The span in which failures count as simultaneous: the longest period times failureThreshold of its probes."""
    probes = (container.startup, container.liveness)
    return max((probe.period * probe.failure_threshold for probe in probes if probe is not None), default=0)


def _since(probes: Mapping[Generation, Probes], belief: Belief) -> int:
    """The steady instant at which it turned bad."""
    verdicts = probes.get(belief.fact.generation)
    if verdicts is None:
        return 0
    return max(
        (one.since for one in (verdicts.startup, verdicts.liveness) if one is not None and one.value is _FAIL),
        default=0,
    )


def _together(instants: Iterable[int], window: int) -> int:
    """The most of these instants that lie within one window."""
    ordered = sorted(instants)
    first = most = 0
    for last, at in enumerate(ordered):
        while at - ordered[first] > window:
            first += 1
        most = max(most, last - first + 1)
    return most


class _Watch:
    """One look at all groups."""

    def __init__(self, limits: MassFailure, observed: Observed, ledger: Ledger, blind: bool, now: Now) -> None:
        self.limits, self.probes, self.ledger, self.blind, self.now = limits, observed.probes, ledger, blind, now
        self.rows: dict[str, Outbreak] = {}
        self.active: dict[str, Extent] = {}
        self.of: dict[str, tuple[str, ...]] = {}
        self.suspect: set[str] = set()
        self.settled_at: dict[str, int] = {}
        self.urgent = {grant.object: grant for grant in ledger.grants.values() if grant.cause in URGENT}

    def judge(self, key: str, members: Mapping[str, Belief], window: int, healthy: Collection[str]) -> None:
        """One group, replica -> container. `healthy` are the replicas that are available and pass."""
        row = self.ledger.outbreaks.get(key)
        running = [member for member in members.values() if member.fact.state is _RUNNING]
        failing = [one for one in running if one.live is _FAIL]
        # Those that are down in the middle of their restart are not well yet.
        between = sum(1 for name, one in members.items() if name in self.urgent and one.fact.state is not _RUNNING)
        size, bad = len(running) + between, len(failing) + between
        bad += sum(1 for one in running if one.live is _UNKNOWN)
        limit = max(self.limits.minimum, -(-size * self.limits.share // 100))
        instants = [_since(self.probes, one) for one in failing]
        together = _together(instants, window) + bad - len(failing) if failing else 0
        if failing:
            self.settled_at[key] = max(instants) + window
        if row is None:
            if together < limit:
                return
            row = Outbreak(instant(self.now))
            started = self.urgent.keys() & members.keys()
            if started:
                row = row._replace(canary=min(started))
        row = self._outcome(row, healthy)
        goes_on = bool(failing) and (bad >= limit or bool(row.canary))
        if not goes_on:
            calm = row.calm or instant(self.now)
            if not row.canary and elapsed(calm, self.now) >= MEMORY:
                return
            self.rows[key] = row._replace(calm=calm)
            return
        self.rows[key] = row._replace(calm=None)
        self.active[key] = Extent(bad, size, window)
        for one in failing:
            self.of[one.fact.id] = (*self.of.get(one.fact.id, ()), key)
            verdicts = self.probes.get(one.fact.generation)
            ready = verdicts.readiness if verdicts is not None else None
            if ready is None or ready.value is not _FAIL:
                self.suspect.add(one.fact.id)

    def _outcome(self, row: Outbreak, healthy: Collection[str]) -> Outbreak:
        """What became of the canary, once its restart is over. What cannot be seen is judged later."""
        if not row.canary or row.canary in self.urgent or self.blind:
            return row
        if row.canary in healthy:
            return row._replace(canary="", last=None)
        return row._replace(canary="", failures=row.failures + 1, last=instant(self.now))


def watch(snap: Snapshot, ledger: Ledger) -> Outbreaks:
    """Look at all groups. Costs one pass over the beliefs while nothing fails."""
    failing = {
        key for key, group in snap.roster.groups.items() if any(one.live is _FAIL for one in group.current.values())
    }
    if not failing and not ledger.outbreaks:
        return Outbreaks(ledger.outbreaks)
    look = _Watch(snap.desired.guard.mass_failure, snap.observed, ledger, bool(snap.roster.unreadable_nodes), snap.now)
    healthy = {
        memory.replica_of(key, ordinal)
        for key, group in snap.roster.groups.items()
        for ordinal, one in group.current.items()
        if one.live is _PASS and availability.available_at(one, group.workload.min_ready) <= snap.now.steady
    }
    for key in sorted(failing | {outbreak for outbreak in ledger.outbreaks if outbreak in snap.roster.groups}):
        group = snap.roster.groups[key]
        look.judge(key, _replicas(group), window_of(group.workload.template.container), healthy)
    for node, groups in sorted(_by_node(snap.roster, failing, ledger).items()):
        members = {name: one for group in groups for name, one in _replicas(group).items() if one.fact.node == node}
        bad = [
            group
            for group in groups
            if any(one.live is _FAIL and one.fact.node == node for one in group.current.values())
        ]
        if len(bad) > 1 or f"node/{node}" in ledger.outbreaks:
            window = max((window_of(group.workload.template.container) for group in groups), default=0)
            look.judge(f"node/{node}", members, window, healthy)
    suspect = frozenset(look.suspect)
    return Outbreaks(look.rows, look.active, look.of, suspect, _sound(snap, failing), look.settled_at)


def remember(ledger: Ledger, outbreaks: Outbreaks) -> Ledger:
    """The ledger with the mass failures that must be remembered."""
    return ledger if outbreaks.rows == ledger.outbreaks else replace(ledger, outbreaks=outbreaks.rows)


def _sound(snap: Snapshot, failing: Collection[str]) -> frozenset[str]:
    """Who could serve if only its liveness did not count: ready, or never asked whether it is."""
    found: set[str] = set()
    for group in (snap.roster.groups[key] for key in failing):
        asked = group.workload.template.container.readiness is not None
        for belief in group.current.values():
            if belief.failed is not Reason.LIVENESS_FAILED:
                continue
            verdicts = snap.observed.probes.get(belief.fact.generation)
            ready = verdicts.readiness if verdicts is not None else None
            if not asked or (ready is not None and ready.value is _PASS):
                found.add(belief.fact.id)
    return frozenset(found)


def _replicas(group: Group) -> dict[str, Belief]:
    return {memory.replica_of(group.workload.key, ordinal): one for ordinal, one in group.current.items()}


def _by_node(roster: Roster, failing: Collection[str], ledger: Ledger) -> dict[str, list[Group]]:
    """The groups with probes on every node where containers of several workloads fail, or where a mass failure is remembered."""
    nodes = {outbreak.partition("/")[2] for outbreak in ledger.outbreaks if outbreak.startswith("node/")}
    if len(failing) > 1:
        nodes |= {one.fact.node for key in failing for one in roster.groups[key].current.values() if one.live is _FAIL}
    found: dict[str, list[Group]] = {node: [] for node in nodes}
    for _, group in sorted(roster.groups.items()) if nodes else ():
        if window_of(group.workload.template.container):
            for node in nodes.intersection(group.workload.nodes):
                found[node].append(group)
    return found


def pause(failures: int, limits: MassFailure) -> int:
    """How long everything is held after so many canaries that did not become available (ns)."""
    return min(limits.max_hold, limits.hold << min(failures - 1, 40))


def hold(snap: Snapshot, ledger: Ledger, outbreaks: Outbreaks, want: Want, ends: Mapping[str, int]) -> Hold | None:
    """The hold of a mass failure on one restart, None when this one may be the canary or there is no mass failure.

    Args:
        ledger: as it is by now in this decision.
        ends: replica -> steady instant at which its open grant is over at the latest.
    """
    limits, now = snap.desired.guard.mass_failure, snap.now
    for key in outbreaks.of.get(want.fact.id, ()) if want.fact is not None else ():
        row, extent = ledger.outbreaks[key], outbreaks.active[key]
        many = f"{extent.bad} of {extent.size} containers of {key} started to fail at about the same time"
        if row.canary:
            message = f"{many}; {row.canary} is restarted first, the others follow if it becomes available"
            until = ends.get(row.canary, FOREVER)
            until = next_after(0, SECOND, now) if until == FOREVER else until
            return Hold(want.object, want.id, Rule.MASS_FAILURE, message, until=max(until, now.steady + 1))
        if row.last is not None:
            until = due(row.last, pause(row.failures, limits), now)
            if until > now.steady:
                message = (
                    f"{many}; restarting one of them did not help ({row.failures} tried), "
                    "so their probe or a shared dependency is suspect"
                )
                next_step = "check the probe and the shared dependencies; one container is retried automatically"
                return Hold(want.object, want.id, Rule.MASS_FAILURE, message, until=until, next_step=next_step)
    return None
