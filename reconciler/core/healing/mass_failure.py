"""Mass failure: many containers of a group that fail at the same time make their probe or a shared dependency suspect.

Restarting them all would turn a doubt into an outage. While at least half of a group (and at least two) fails, one container, the
canary, is restarted; when it becomes available the next one follows, one at a time; when it does not, all restarts are held,
longer each time, and the message says what is suspect. Traffic is kept meanwhile. A group is the replicas of a workload, or the
containers of one node over several workloads. Unknown counts as failed once a container failed, which is the side that holds.
Called by `decide` (`watch`) before the weights, and by `healing/restart_gates` (`hold`) as a gate.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from manifests.values.desired import SECOND
from manifests.values.limits import MassFailure
from providers.facts import ContainerState, Generation, Probes, ProbeValue
from reconciler.core.exits.grants import URGENT
from reconciler.core.health.belief import Belief
from reconciler.core.model.instant import FOREVER, Now, due, elapsed, instant, next_after
from reconciler.core.model.ledger import Ledger, Outbreak
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Hold, Reason, Rule
from reconciler.core.model.want import Want
from reconciler.core.replicas import availability, exit_times, memory
from reconciler.core.replicas.roster import Group, Roster
from reconciler.core.replicas.snapshot import Snapshot

MEMORY = 600 * SECOND
"""How long a mass failure is remembered after it ended: if it returns within that time, its pauses continue."""

_PASS, _FAIL, _UNKNOWN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN
_RUNNING = ContainerState.RUNNING


class Extent(NamedTuple):
    """The extent of a mass failure now: `bad` of `size` running containers, within `window` (ns).

    `unknown` of the bad ones are on nodes that cannot be read.
    """

    bad: int
    size: int
    window: int
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Outbreaks:
    """The mass failures of all groups.

    `rows`: the rows for the ledger. `active`: the extent of each current mass failure. `of`: container id -> its groups with a
    mass failure. `suspect`: ids of containers whose failure is doubted, so that they keep their traffic. `sound`: containers with
    failed liveness, suspect or not, that can serve according to their readiness. `settled_at`: the steady instant after which
    another failure in the group does not belong to the latest ones any more.
    """

    rows: Mapping[str, Outbreak]
    active: Mapping[str, Extent] = field(default_factory=dict)
    of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    suspect: frozenset[str] = frozenset()
    sound: frozenset[str] = frozenset()
    settled_at: Mapping[str, int] = field(default_factory=dict)


def window_of(group: Group) -> int:
    """The span in which failures count as simultaneous: the longest period times failureThreshold of its probes."""
    probes = (probe for container in group.probed for probe in (container.startup, container.liveness))
    return max((probe.period * probe.failure_threshold for probe in probes if probe is not None), default=0)


def _since(probes: Mapping[Generation, Probes], belief: Belief) -> int:
    """The steady instant at which the container began to fail."""
    verdicts = probes.get(belief.fact.generation)
    if verdicts is None:
        return 0
    return max(
        (fact.since for fact in (verdicts.startup, verdicts.liveness) if fact is not None and fact.value is _FAIL),
        default=0,
    )


def _together(instants: Iterable[int], window: int) -> int:
    """The largest number of these instants within one window."""
    ordered = sorted(instants)
    first = most = 0
    for last, at in enumerate(ordered):
        while at - ordered[first] > window:
            first += 1
        most = max(most, last - first + 1)
    return most


class _Watch:
    """One pass over all groups."""

    def __init__(self, limits: MassFailure, observed: Observed, ledger: Ledger, roster: Roster, now: Now) -> None:
        self.limits, self.probes, self.ledger, self.now = limits, observed.probes, ledger, now
        self.rows: dict[str, Outbreak] = {}
        self.active: dict[str, Extent] = {}
        self.of: dict[str, tuple[str, ...]] = {}
        self.suspect: set[str] = set()
        self.settled_at: dict[str, int] = {}
        self.urgent = {
            grant.object: grant
            for grant in ledger.grants.values()
            if grant.cause in URGENT and exit_times.counts_until(grant, roster, now) > now.steady
        }
        self.unknown = {
            memory.replica_of(key, ordinal)
            for key, group in (roster.groups.items() if roster.unseen.nodes else ())
            for ordinal in group.unknown
        }

    def judge(
        self, key: str, members: Mapping[str, Belief], window: int, healthy: Collection[str], unknown: int = 0
    ) -> None:
        """Judge one group, replica -> container.

        Args:
            healthy: the replicas that are available and pass.
            unknown: how many replicas of the group are on nodes that cannot be read.
        """
        row = self.ledger.outbreaks.get(key)
        running = [member for member in members.values() if member.fact.state is _RUNNING]
        failing = [belief for belief in running if belief.live is _FAIL]
        # Replicas that are down in the middle of their restart count as bad.
        between = sum(
            1 for name, belief in members.items() if name in self.urgent and belief.fact.state is not _RUNNING
        )
        size, bad = len(running) + between + unknown, len(failing) + between + unknown
        bad += sum(1 for belief in running if belief.live is _UNKNOWN)
        limit = max(self.limits.minimum, -(-size * self.limits.share // 100))
        instants = [_since(self.probes, belief) for belief in failing]
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
        self.active[key] = Extent(bad, size, window, unknown)
        for belief in failing:
            self.of[belief.fact.id] = (*self.of.get(belief.fact.id, ()), key)
            verdicts = self.probes.get(belief.fact.generation)
            ready = verdicts.readiness if verdicts is not None else None
            if ready is None or ready.value is not _FAIL:
                self.suspect.add(belief.fact.id)

    def _outcome(self, row: Outbreak, healthy: Collection[str]) -> Outbreak:
        """The row with the result of the canary, once its restart is over.

        The result of one on a node that cannot be read is unknown: that is no failure, and another one is tried.
        """
        if not row.canary or row.canary in self.urgent:
            return row
        if row.canary in self.unknown:
            return row._replace(canary="")
        if row.canary in healthy:
            return row._replace(canary="", last=None)
        return row._replace(canary="", failures=row.failures + 1, last=instant(self.now))


def watch(snap: Snapshot, ledger: Ledger) -> Outbreaks:
    """Find the mass failures of all groups. Costs one pass over the beliefs while nothing fails."""
    failing = {
        key
        for key, group in snap.roster.groups.items()
        if any(belief.live is _FAIL for belief in group.current.values())
    }
    if not failing and not ledger.outbreaks:
        return Outbreaks(ledger.outbreaks)
    look = _Watch(snap.desired.guard.mass_failure, snap.observed, ledger, snap.roster, snap.now)
    healthy = {
        memory.replica_of(key, ordinal)
        for key, group in snap.roster.groups.items()
        for ordinal, belief in group.current.items()
        if belief.live is _PASS and availability.available_at(belief, group.workload.min_ready) <= snap.now.steady
    }
    for key in sorted(failing | {outbreak for outbreak in ledger.outbreaks if outbreak in snap.roster.groups}):
        group = snap.roster.groups[key]
        window = window_of(group)
        look.judge(key, _replicas(group), window, healthy, len(group.unknown) if window else 0)
    unseen = snap.roster.unseen
    # What fails on a node that cannot be read is not known: its row stays as it is.
    look.rows |= {
        key: row
        for key, row in (ledger.outbreaks.items() if unseen.nodes else ())
        if key not in snap.roster.groups and unseen.concerns(key)
    }
    for node, used in sorted(_by_node(snap.roster, failing, ledger).items()):
        if node not in unseen.nodes and (len(used.failing) > 1 or f"node/{node}" in ledger.outbreaks):
            look.judge(f"node/{node}", used.members, used.window, healthy)
    suspect = frozenset(look.suspect)
    return Outbreaks(look.rows, look.active, look.of, suspect, _sound(snap, failing), look.settled_at)


def remember(ledger: Ledger, outbreaks: Outbreaks) -> Ledger:
    """The ledger with the mass failures that must be remembered."""
    return ledger if outbreaks.rows == ledger.outbreaks else replace(ledger, outbreaks=outbreaks.rows)


def _sound(snap: Snapshot, failing: Collection[str]) -> frozenset[str]:
    """Containers that fail only by their liveness probe: their readiness passes, or they have no readiness probe."""
    sound: set[str] = set()
    for group in (snap.roster.groups[key] for key in failing):
        for belief in group.current.values():
            if belief.failed is not Reason.LIVENESS_FAILED:
                continue
            probed = snap.roster.container_of(group.workload, belief.fact).readiness is not None
            verdicts = snap.observed.probes.get(belief.fact.generation)
            ready = verdicts.readiness if verdicts is not None else None
            if not probed or (ready is not None and ready.value is _PASS):
                sound.add(belief.fact.id)
    return frozenset(sound)


def _replicas(group: Group) -> dict[str, Belief]:
    return {memory.replica_of(group.workload.key, ordinal): belief for ordinal, belief in group.current.items()}


@dataclass(slots=True)
class _Node:
    """The replicas with probes on one node, the longest window of their groups, and the keys of the groups with a failing one."""

    members: dict[str, Belief] = field(default_factory=dict)
    window: int = 0
    failing: set[str] = field(default_factory=set)


def _by_node(roster: Roster, failing: Collection[str], ledger: Ledger) -> dict[str, _Node]:
    """What runs on every node where containers fail, or where a mass failure is remembered.

    One pass over the replicas: a workload that may use many nodes costs no more than its replicas.
    """
    nodes = {outbreak.partition("/")[2] for outbreak in ledger.outbreaks if outbreak.startswith("node/")}
    if len(failing) > 1:
        nodes |= {
            belief.fact.node
            for key in failing
            for belief in roster.groups[key].current.values()
            if belief.live is _FAIL
        }
    by_node = {node: _Node() for node in nodes}
    for key, group in roster.groups.items() if nodes else ():
        window = window_of(group)
        for name, belief in _replicas(group).items() if window else ():
            used = by_node.get(belief.fact.node)
            if used is not None:
                used.members[name] = belief
                used.window = max(used.window, window)
                if belief.live is _FAIL:
                    used.failing.add(key)
    return by_node


def pause(failures: int, limits: MassFailure) -> int:
    """How long all restarts are held after this number of canaries that did not become available (ns)."""
    return min(limits.max_hold, limits.hold << min(failures - 1, 40))


def hold(snap: Snapshot, ledger: Ledger, outbreaks: Outbreaks, want: Want, ends: Mapping[str, int]) -> Hold | None:
    """The hold of a mass failure on one restart; None when the container may be the canary or there is no mass failure.

    Args:
        ledger: the ledger so far in this decision.
        ends: replica -> the steady instant at which its open grant ends at the latest.
    """
    limits, now = snap.desired.guard.mass_failure, snap.now
    for key in outbreaks.of.get(want.fact.id, ()) if want.fact is not None else ():
        row, extent = ledger.outbreaks[key], outbreaks.active[key]
        many = f"{extent.bad} of {extent.size} containers of {key} started to fail at about the same time"
        if extent.unknown:
            failing = f"{extent.bad - extent.unknown} of {extent.size} containers of {key} fail"
            many = f"{failing}, and {extent.unknown} may fail as well, because their nodes cannot be read"
        if row.canary:
            message = f"{many}; {row.canary} is restarted first, the others follow if it becomes available"
            until = ends.get(row.canary, FOREVER)
            until = next_after(0, SECOND, now) if until == FOREVER else until
            retry = max(until, now.steady + 1)
            return Hold(want.object, want.id, Rule.MASS_FAILURE, message, until=retry, held=want.held)
        if row.last is not None:
            until = due(row.last, pause(row.failures, limits), now)
            if until > now.steady:
                message = (
                    f"{many}; restarting one of them did not help ({row.failures} tried), "
                    "so their probe or a shared dependency is suspect"
                )
                next_step = "check the probe and the shared dependencies; one container is retried automatically"
                return Hold(
                    want.object, want.id, Rule.MASS_FAILURE, message, until=until, next_step=next_step, held=want.held
                )
    return None
