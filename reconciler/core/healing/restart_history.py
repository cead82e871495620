"""Restart history: how often each replica was restarted, by us and by the runtime, and whether it helped.

Two healers work on one container: we and the runtime with its own restart policy. A restart by the runtime counts as an attempt
of the replica; past the limit its policy is set to `no` and we take over, with our back-off, until the replica has been healthy
for long enough. `decide` calls `recall`; `differences`, `disruptions` and `actions/steps` use the rest.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from manifests.values.desired import Workload
from manifests.values.pod import Live, RuntimeRestart
from providers.facts import ContainerFact, ProbeValue
from reconciler.core.limits import backoff
from reconciler.core.model.instant import Instant, Now, instant
from reconciler.core.model.ledger import Escalation, Ledger
from reconciler.core.replicas import adoption, availability, memory
from reconciler.core.replicas.snapshot import Snapshot

_NO = RuntimeRestart.NO.value


def without_restarts(live: tuple[Live, ...]) -> tuple[Live, ...]:
    """The same settings with the runtime's restart policy switched off."""
    return tuple(setting._replace(restart=_NO) for setting in live)


def restarts_itself(fact: ContainerFact) -> bool:
    """Whether the runtime restarts this container when it exits, and we may switch that off.

    The policy of an adopted container stays: `unless-stopped` does not restart a container that we stop.
    """
    return not fact.adopted and any(setting.restart != _NO for setting in fact.live)


def settings(workload: Workload, replica: str, fact: ContainerFact, ledger: Ledger) -> tuple[Live, ...]:
    """The desired settings of a container: those of its manifest, without restarts by the runtime once we took over."""
    live = adoption.wanted_live(workload, fact)
    return without_restarts(live) if replica in ledger.taken_over else live


def with_policy(wanted: tuple[Live, ...], fact: ContainerFact) -> tuple[Live, ...]:
    """The settings of a container, with the desired restart policy where its own is switched off. Limits stay as they are."""
    policies = {setting.container: setting.restart for setting in wanted}
    return tuple(
        setting._replace(restart=policies.get(setting.container, _NO)) if setting.restart == _NO else setting
        for setting in fact.live
    )


def recall(snap: Snapshot, ledger: Ledger) -> Ledger:
    """The ledger after this look. Costs nothing while neither we nor a runtime restarts a container."""
    attempts, counts, by_runtime = _runtime(snap, ledger)
    changes: dict[str, object] = {
        "attempts": attempts,
        "runtime_restarts": counts,
        "by_runtime": by_runtime,
        "taken_over": _taken(snap, ledger, attempts),
        "escalations": _escalations(snap, ledger) if ledger.escalations else ledger.escalations,
        "restarted": _restarted(ledger, snap.now) if ledger.restarted else ledger.restarted,
    }
    changed = {name: value for name, value in changes.items() if value != getattr(ledger, name)}
    return replace(ledger, **changed) if changed else ledger  # type: ignore[arg-type]


class _Restarts(NamedTuple):
    """Attempts, with the restarts by the runtime since the last look; its counts; and which attempts are the runtime's."""

    attempts: Mapping[str, tuple[Instant, ...]]
    counts: Mapping[str, int]
    by_runtime: Mapping[str, tuple[Instant, ...]]


def _runtime(snap: Snapshot, ledger: Ledger) -> _Restarts:
    """The restarts by the runtime since the last look. A lower count starts over."""
    attempts, counts = ledger.attempts, ledger.runtime_restarts
    added: dict[str, tuple[Instant, ...]] = {}
    changed: dict[str, int] = {}
    counted = 0
    for key, group in snap.roster.groups.items():
        for ordinal, belief in group.current.items():
            fact = belief.fact
            if not fact.live or not fact.started_at:
                continue  # never started, or of another owner and only listed: the count is unknown
            counted += 1
            before = counts.get(fact.id)
            if before == fact.restarts:
                continue
            changed[fact.id] = fact.restarts
            if before is None and (fact.adopted or ledger.history_lost is not None):
                continue  # it started without us: its count says nothing about recent restarts
            more = min(fact.restarts - (before or 0), max(1, group.workload.restarts.limit))
            if more > 0:
                obj = memory.replica_of(key, ordinal)
                added[obj] = (instant(snap.now),) * more
    by_runtime = ledger.by_runtime
    if by_runtime:
        kept = {
            name: tuple(at for at in instants if at in attempts.get(name, ())) for name, instants in by_runtime.items()
        }
        by_runtime = {name: instants for name, instants in kept.items() if instants}
    if added:
        attempts = {**attempts, **{name: (*attempts.get(name, ()), *new) for name, new in added.items()}}
        by_runtime = {**by_runtime, **{name: (*by_runtime.get(name, ()), *new) for name, new in added.items()}}
    if changed:
        counts = {**counts, **changed}
    if len(counts) > counted:
        present = {
            belief.fact.id
            for group in snap.roster.groups.values()
            for belief in group.current.values()
            if belief.fact.live
        }
        unseen, foreign = snap.roster.unseen, bool(snap.roster.unseen.nodes) and snap.desired.instance.enhanced_liveness
        # Foreign containers are not listed in the ledger: their counts stay while a node cannot be read.
        earlier = snap.observed.ledger
        listed = earlier.owned.keys() | earlier.adopted.keys() if foreign else ()
        counts = {
            container: count
            for container, count in counts.items()
            if container in present or unseen.may_exist(container) or (foreign and container not in listed)
        }
    return _Restarts(attempts, counts, by_runtime)


def _taken(snap: Snapshot, ledger: Ledger, attempts: Mapping[str, tuple[Instant, ...]]) -> frozenset[str]:
    """Replicas whose restarts we took over: they spent their attempts under a runtime that restarts; until all is forgotten."""
    taken = {name for name in ledger.taken_over if name in ledger.failures or name in attempts}
    for name, restarts in attempts.items():
        key, _, ordinal = name.rpartition("/")
        group = snap.roster.groups.get(key)
        belief = None if group is None else group.current.get(int(ordinal))
        if group is None or belief is None or group.workload.restart_only or not restarts_itself(belief.fact):
            continue
        rule = group.workload.restarts
        if belief.fact.restarts and len(backoff.recent(restarts, rule.window, snap.now)) >= max(1, rule.limit):
            taken.add(name)
    return ledger.taken_over if taken == ledger.taken_over else frozenset(taken)


def _escalations(snap: Snapshot, ledger: Ledger) -> Mapping[str, Escalation]:
    """Rows end when the replica is available and passes, when its template changes, and with its workload."""
    kept: dict[str, Escalation] = {}
    for name, row in ledger.escalations.items():
        key, _, ordinal = name.rpartition("/")
        group = snap.roster.groups.get(key)
        if group is None:
            if snap.roster.unseen.concerns(name):
                kept[name] = row
            continue
        workload, belief = group.workload, group.current.get(int(ordinal))
        if row.revision != workload.template.revision:
            continue
        if (
            belief is not None
            and belief.live is ProbeValue.PASS
            and availability.available_at(belief, workload.min_ready) <= snap.now.steady
        ):
            continue
        kept[name] = row
    return kept


def _restarted(ledger: Ledger, now: Now) -> Mapping[str, tuple[Instant, ...]]:
    kept = {place: backoff.remembered(restarts, now) for place, restarts in ledger.restarted.items()}
    return {place: restarts for place, restarts in kept.items() if restarts}
