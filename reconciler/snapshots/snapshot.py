"""A snapshot: what a host knew at one moment, as far as a plan needs it. Taken by `wire.py` and by the reviewer of merge requests.

A snapshot for export (`masked`) leaves the host, so it has no more than a plan needs: no secrets, no messages of servers, no commands and
labels of other owners' containers, no members and records of other owners.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from manifests.values.desired import Desired
from manifests.values.image_choice import ImageChoice
from providers.facts import ContainerFact, Known, PoolFact, RecordKey, ZoneFact
from providers.wrappers.recorded import Recorded
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import read_rows, to_rows
from reconciler.shell import daemon_view
from reconciler.shell.clock import HostClock
from reconciler.shell.instance_clock import ClockRecord

UNREADABLE = "it could not be read when the snapshot was taken"
"""Takes the place of messages of servers."""

FAILED = "the host knows why it failed"
"""The same of a step that failed, where the plan shows that it is tried later."""

PRIVATE = frozenset({"pushes"})
"""Sections of the ledger that a plan elsewhere does not need."""

_FAILURES = "step_failures"


class SnapshotRefused(Exception):
    """A snapshot that may not be used.

    Args:
        cause: what is wrong with it.
        next_step: what to do.
    """

    def __init__(self, cause: str, next_step: str) -> None:
        super().__init__(cause, next_step)
        self.cause, self.next_step = cause, next_step

    def __str__(self) -> str:
        return f"the snapshot is refused: {self.cause}; next step: {self.next_step}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a host knew at one moment.

    Attributes:
        instance: id of the instance.
        revision, commit: of the manifests in force; commit is empty outside of git.
        at_wall, expires_wall: when it was taken, and from when on it is refused (wall ns); 0 = never.
        clock: of the instance at that moment.
        rows: the ledger, as the store keeps it.
        facts: what the providers answered.
        view: probe verdicts and pushes (`shell/daemon_view.py`).
        manifests: the documents of the tree in force: name and text. Local documents are never in it.
        identity: the source that they are of.
        choices: images of containers that policies chose without a commit.
    """

    instance: str
    revision: str
    commit: str
    at_wall: int
    expires_wall: int
    clock: ClockRecord
    rows: Mapping[tuple[str, str], str]
    facts: Recorded
    view: Mapping[str, Any]
    manifests: tuple[tuple[str, str], ...] = ()
    identity: str = ""
    choices: tuple[ImageChoice, ...] = ()

    def with_manifests(self, documents: tuple[tuple[str, str], ...], identity: str) -> "Snapshot":
        """With the documents of the tree in force, and the identity of their source."""
        return replace(self, manifests=documents, identity=identity)

    def view_text(self) -> str:
        """The view, as a process stores it with its decision."""
        return daemon_view.stored(self.view, self.at_wall, self.revision)


def taken(
    decision: Decision,
    desired: Desired,
    now: Now,
    clock: ClockRecord,
    rows: Mapping[tuple[str, str], str],
    commit: str,
    expires_wall: int = 0,
) -> Snapshot:
    """The snapshot of a decision. `now`, `clock`: the time of the instance at it. `rows`: the ledger that it was made from."""
    observed = decision.status.observed
    unknown: dict[str, str] = {}
    runtimes: dict[str, tuple[ContainerFact, ...]] = {}
    pools: dict[tuple[str, str], PoolFact] = {}
    zones: dict[tuple[str, str], ZoneFact] = {}
    for node, containers in observed.runtimes.items():
        if isinstance(containers, Known):
            runtimes[node] = containers.value
        else:
            unknown[node] = containers.reason
    for key, pool in observed.pools.items():
        if isinstance(pool, Known):
            pools[key] = pool.value
        else:
            unknown["/".join(key)] = pool.reason
    for key, zone in observed.zones.items():
        if isinstance(zone, Known):
            zones[key] = zone.value
        else:
            unknown["/".join(key)] = zone.reason
    facts = Recorded(runtimes, pools, zones, unknown)
    view = daemon_view.write(decision, now)
    choices = tuple(choice for workload in desired.workloads for choice in workload.image_choices)
    whole = Snapshot(
        desired.instance.id, desired.revision, commit, now.wall, expires_wall, clock, dict(rows), facts, view
    )
    return replace(whole, choices=choices)


def masked(snapshot: Snapshot, desired: Desired) -> Snapshot:
    """The snapshot for export. `desired` are the manifests that it was taken with."""
    names = {policy.host for policy in desired.policies} | {record.host for record in desired.records}
    facts, instance = snapshot.facts, snapshot.instance
    adopted = {key for section, key in snapshot.rows if section == "adopted"}
    return replace(
        snapshot,
        choices=tuple(replace(choice, why="", taken_back=()) for choice in snapshot.choices),
        rows=_rows(snapshot.rows),
        facts=Recorded(
            {node: tuple(_container(fact, adopted) for fact in found) for node, found in facts.runtimes.items()},
            {
                key: replace(pool, members=tuple(row for row in pool.members if row.ours))
                for key, pool in facts.pools.items()
            },
            {key: _zone(zone, instance, names) for key, zone in facts.zones.items()},
            dict.fromkeys(facts.unknown, UNREADABLE),
        ),
        view={
            **snapshot.view,
            **{name: _without_details(snapshot.view[name]) for name in ("verdicts", "trials", "checks")},
        },
    )


def _rows(rows: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """The ledger without private sections and messages of servers."""
    failed = {key: row for key, row in rows.items() if key[0] == _FAILURES}
    ledger, _ = read_rows(failed)
    shown = {step: failure._replace(message=FAILED) for step, failure in ledger.step_failures.items()}
    without = {key: row for key, row in to_rows(Ledger(step_failures=shown)).items() if key[0] == _FAILURES}
    return {key: row for key, row in rows.items() if key[0] not in PRIVATE and key not in failed} | without


def _container(fact: ContainerFact, adopted: set[str]) -> ContainerFact:
    """A container without what a plan does not need of it. The settings of its creation have unsalted digests of values."""
    health = None if fact.health is None else fact.health._replace(output="")
    fact = replace(fact, setup=None, image_setup=None, labels=(), health=health)
    if fact.mark is not None or fact.claim is not None or fact.id in adopted or fact.name in adopted:
        return fact
    return ContainerFact(fact.node, fact.name, fact.id, fact.state, fact.started_at, foreign_mark=fact.foreign_mark)


def _zone(zone: ZoneFact, instance: str, names: set[str]) -> ZoneFact:
    """A zone with our record sets, and those at names that the manifests in force declare."""

    def kept(key: RecordKey) -> bool:
        return zone.owners.get(key, "").startswith(f"{instance}/") or key.name in names

    records = {key: record for key, record in zone.records.items() if kept(key)}
    return replace(zone, records=records, owners={key: owner for key, owner in zone.owners.items() if kept(key)})


def _without_details(rows: Iterable[Iterable[Any]]) -> list[list[Any]]:
    """Verdicts without what the probed side answered, which stands last."""
    return [[*list(row)[:-1], ""] for row in rows]


def checked(snapshot: Snapshot, instance: str, wall: int) -> Snapshot:
    """The snapshot, if a plan for this instance may use it at this wall-clock instant (ns). Raises SnapshotRefused."""
    if snapshot.instance != instance:
        cause = f"it is of instance '{snapshot.instance}', and the manifests declare instance '{instance}'"
        raise SnapshotRefused(cause, "give the snapshot of this instance, or the manifests of that one")
    if snapshot.expires_wall and wall >= snapshot.expires_wall:
        minutes = (wall - snapshot.at_wall) // (60 * 10**9)
        raise SnapshotRefused(
            f"it is too old: it was taken {minutes}m ago", "take it again on the host: reconcile snapshot"
        )
    if snapshot.at_wall - wall > 300 * 10**9:
        raise SnapshotRefused("it was taken in the future", "set the clock of this host, or of the other one")
    return snapshot


class PastClock:
    """The clocks of the host of a snapshot, which go on from the moment of the snapshot: a plan is of that moment, and verdicts are as fresh
    as they were. Implements `HostClock`.
    """

    def __init__(self, snapshot: Snapshot, host: HostClock) -> None:
        now, record = host.now(), snapshot.clock
        self._host, self._boot, self.machine = host, record.boot, record.machine
        self._wall = snapshot.at_wall - now.wall
        self._steady = record.host_steady - now.steady

    def now(self) -> Now:
        """One reading of all clocks."""
        wall, steady, _ = self._host.now()
        return Now(wall + self._wall, steady + self._steady, self._boot)

    async def sleep_until(self, steady: int, wake: Any) -> None:
        """As the clock of this host."""
        await self._host.sleep_until(steady - self._steady, wake)

    def pause(self, duration: int) -> None:
        """As the clock of this host."""
        self._host.pause(duration)
