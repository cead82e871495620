"""Memory: additions of this look to the ledger, before anything is decided.

Failures are counted once per generation, when they are first observed; revisions get their numbers; absences start their clock;
rows that are too old to matter are dropped. Called by `decide` only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import TypeVar

from manifests.values.desired import SECOND, Desired
from manifests.values.rollouts import STAGED
from providers.facts import ContainerFact, ContainerState, Known
from reconciler.core.limits.backoff import recent
from reconciler.core.model.instant import Now, elapsed, instant
from reconciler.core.model.ledger import Absence, Failures, Ledger, Suspension
from reconciler.core.model.override import Override
from reconciler.core.model.owned import Owned
from reconciler.core.model.revision import RevisionMark
from reconciler.core.replicas import ends, exclusive_volumes, identity, passed_probes
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot

Expiring = TypeVar("Expiring", Suspension, Override)

_ENDED = {ContainerState.EXITED, ContainerState.RESTARTING}

MEMORY_OF_ATTEMPTS = 3600 * SECOND
"""How long attempts of a replica are kept that no manifest declares any more."""

HISTORY_LOST_FOR = 300 * SECOND
"""How long a lost ledger holds health restarts at least: the default window of attempts."""


def replica_of(workload_key: str, ordinal: int) -> str:
    """The key of a replica, under which attempts and failures are counted."""
    return f"{workload_key}/{ordinal}"


def failures_of(group: Group, fact: ContainerFact) -> str:
    """The key of the streak to which a crash of this container belongs: the replica's if it is the replica, else its own.

    While a revision replaces another, two containers of one ordinal may both be down: counted together, each look would take the
    other one for a new failure.
    """
    ordinal = fact.mark.ordinal if fact.mark is not None else -1
    current = group.current.get(ordinal)
    if current is not None and current.fact is fact:
        return replica_of(group.workload.key, ordinal)
    return f"{group.workload.key}/{fact.name}@{fact.node}"


def _failures(snap: Snapshot, ledger: Ledger) -> Mapping[str, Failures]:
    failures = dict(ledger.failures)
    for group, belief in snap.roster.down:
        fact, backoff = belief.fact, group.workload.restarts.backoff
        if fact.state not in _ENDED or fact.mark is None or not fact.started_at or group.workload.restart_only:
            continue
        grant = ledger.grants.get(fact.id)
        if fact.exit_cause in ends.OURS or (grant is not None and grant.generation == fact.generation):
            continue
        name = failures_of(group, fact)
        before = failures.get(name)
        if before is not None and before.generation == fact.generation:
            continue
        streak = before.streak if before is not None and elapsed(before.last, snap.now) < backoff.reset else 0
        failures[name] = Failures(streak + 1, instant(snap.now), fact.generation)
    resets = {group.workload.key: group.workload.restarts.backoff.reset for group in snap.roster.groups.values()}
    down = {belief.fact.generation for _, belief in snap.roster.down}
    for name, failure in list(failures.items()):
        reset = resets.get(name.rpartition("/")[0], 0)
        if (
            elapsed(failure.last, snap.now) >= reset
            and failure.generation not in down
            and not snap.roster.unseen.may_exist(failure.generation.container_id)
        ):
            del failures[name]
    return failures


def _of_declared(
    failures: Mapping[str, Failures],
    before: Mapping[str, RevisionMark],
    after: Mapping[str, RevisionMark],
    snap: Snapshot,
) -> Mapping[str, Failures]:
    """The failures without those of replicas whose template has just changed: the new one has not failed, so it waits for nothing.

    Where revisions stand beside each other, a replica goes on with its earlier template meanwhile.
    """
    changed = {
        key
        for key, group in snap.roster.groups.items()
        if group.workload.strategy not in STAGED and key in before and after.get(key) is not before[key]
    }
    if not changed or not failures:
        return failures
    return {
        name: row
        for name, row in failures.items()
        if name.rpartition("/")[0] not in changed or not name.rpartition("/")[2].isdecimal()
    }


def _revisions(ledger: Ledger, desired: Desired) -> Mapping[str, RevisionMark]:
    known = ledger.revisions
    revisions: dict[str, RevisionMark] = {}
    for workload in desired.workloads:
        before, wanted = known.get(workload.key), workload.template.revision
        if before is not None and before.revision == wanted:
            revisions[workload.key] = before
        else:
            revisions[workload.key] = RevisionMark(1 if before is None else before.number + 1, wanted)
    return known if revisions == known else revisions


def _attempts(ledger: Ledger, desired: Desired, now: Now) -> Mapping[str, tuple[object, ...]]:
    windows = {workload.key: workload.restarts.window for workload in desired.workloads}
    kept = {
        name: recent(attempts, windows.get(name.rpartition("/")[0], MEMORY_OF_ATTEMPTS), now)
        for name, attempts in ledger.attempts.items()
    }
    return {name: attempts for name, attempts in kept.items() if attempts}


_REMEMBERED = attrgetter(*(field.name for field in fields(Ledger) if field.name != "pushes"))


def is_empty(ledger: Ledger) -> bool:
    """Whether the ledger is empty: the first run, or a lost ledger. Pushes do not count: senders repeat them."""
    return not any(_REMEMBERED(ledger))


def remember(snap: Snapshot, ledger: Ledger) -> Ledger:
    """The ledger with the additions of this look."""
    source, history_lost = ledger.source, ledger.history_lost
    owned = not source and _owns(snap)
    first_run = not source and not owned and not snap.roster.unreadable_nodes
    if is_empty(snap.observed.ledger) and (owned or snap.roster.unreadable_nodes):
        # Containers on a node that cannot be read may be ours: until it is read, an empty ledger counts as lost.
        history_lost = instant(snap.now)
    elif history_lost is not None:
        over = first_run or elapsed(history_lost, snap.now) >= history_lost_for(snap.desired)
        history_lost = None if over else history_lost
    if snap.desired.take_over or first_run:
        source = snap.desired.source
    revisions = _revisions(ledger, snap.desired)
    failures = _failures(snap, ledger) if snap.roster.down or ledger.failures else ledger.failures
    if failures and revisions is not ledger.revisions:
        failures = _of_declared(failures, ledger.revisions, revisions, snap)
    changes = {
        "failures": failures,
        "attempts": _attempts(ledger, snap.desired, snap.now) if ledger.attempts else ledger.attempts,
        "revisions": revisions,
        "suspensions": _unexpired(ledger.suspensions, snap.now),
        "overrides": _unexpired(ledger.overrides, snap.now),
        "source": source,
        "history_lost": history_lost,
        "passed": passed_probes.learn(snap, ledger, revisions),
        "zones": _zones(snap, ledger),
        "owned": _owned(snap, ledger),
        "nodes": _nodes(snap, ledger),
    }
    changed = {name: value for name, value in changes.items() if value != getattr(ledger, name)}
    return replace(ledger, **changed) if changed else ledger  # type: ignore[arg-type]


def _owned(snap: Snapshot, ledger: Ledger) -> Mapping[str, Owned]:
    """The containers of this instance. Those of a node that cannot be read are kept."""
    volumes = exclusive_volumes.declared(snap.desired)
    owned = identity.learn(snap.desired.instance.id, snap.sight.runtimes, ledger.owned, volumes)
    unseen = snap.roster.unseen
    if not unseen.any:
        return owned
    kept = {id_: row for id_, row in ledger.owned.items() if id_ not in owned and unseen.may_exist(id_)}
    return {**kept, **owned} if kept else owned


def _nodes(snap: Snapshot, ledger: Ledger) -> frozenset[str]:
    """The nodes whose containers the ledger lists: all that were read since it began and that providers still declare."""
    known, read, unread = ledger.nodes, snap.sight.runtimes.keys(), snap.sight.unknown_runtimes.keys()
    if len(known) == len(read) and known >= read:
        return known
    return frozenset(node for node in (*read, *(known & unread)))


def _unexpired(commands: Mapping[str, Expiring], now: Now) -> dict[str, Expiring]:
    return {
        key: command for key, command in commands.items() if not command.until_wall or command.until_wall > now.wall
    }


def _owns(snap: Snapshot) -> bool:
    """Whether anything with our mark is observed: a container, a member of a pool, a record set."""
    if snap.roster.orphans or any(
        not belief.fact.adopted for group in snap.roster.groups.values() for belief in group.members()
    ):
        return True
    prefix = f"{snap.desired.instance.id}/"
    pools = (fact.value for fact in snap.observed.pools.values() if isinstance(fact, Known))
    zones = (fact.value for fact in snap.observed.zones.values() if isinstance(fact, Known))
    return any(member.ours for pool in pools for member in pool.members) or any(
        mark.startswith(prefix) for zone in zones for mark in zone.owners.values()
    )


def _zones(snap: Snapshot, ledger: Ledger) -> frozenset[str]:
    """Zones where we publish or still have record sets: a zone is dropped once it was read and has none of ours."""
    prefix = f"{snap.desired.instance.id}/"
    zones = {f"{provider}/{zone}" for provider, zone in snap.desired.zones}
    for name in ledger.zones - zones:
        provider, _, zone = name.partition("/")
        known = snap.observed.zones.get((provider, zone))
        if not isinstance(known, Known) or any(mark.startswith(prefix) for mark in known.value.owners.values()):
            zones.add(name)
    return frozenset(zones)


def history_lost_for(desired: Desired) -> int:
    """How long a lost ledger holds health restarts: the longest window of attempts; after it the counts are complete again."""
    return max([HISTORY_LOST_FOR, *(workload.restarts.window for workload in desired.workloads)])


def absences(snap: Snapshot, ledger: Ledger, absent: Iterable[str]) -> Ledger:
    """The ledger with the absences: the clock of each owned object that the source does not declare starts, goes on or ends.

    An object that is only on nodes that cannot be read keeps its clock.
    """
    revision, now = snap.desired.revision, snap.now
    hidden = snap.roster.unseen.by_workload.keys() - snap.roster.groups.keys()
    kept = {key: row for key, row in ledger.absences.items() if key in hidden and row.revision == revision}
    for key in absent:
        before = ledger.absences.get(key)
        kept[key] = before if before is not None and before.revision == revision else Absence(instant(now), revision)
    return ledger if kept == ledger.absences else replace(ledger, absences=kept)
