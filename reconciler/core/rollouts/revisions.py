"""Revisions: the rollout history of every workload.

A changed template makes a new revision. The history says which one has the traffic, which ones wait and which ones are over, so
that a poll of the source never undoes a decision, and an older revision never comes back by itself. A lost ledger loses only history:
the revision that carries weight is the active one. Called by `decide` once the containers are sorted. For each workload the way
is straight: the remembered history, the declared revision, the facts (`evidence`), a rollback if one is due (`rollback`), the
next step (`activate` or `rolling`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from manifests.values.desired import SECOND, Desired, Workload
from manifests.values.rollouts import STAGED
from providers.facts import ContainerState
from reconciler.core.limits import suspensions
from reconciler.core.model.instant import FOREVER, Instant, Now, instant
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Wait
from reconciler.core.model.revision import ENDED, Revision, RevisionMark, Rollout, Standing, due_at, revision_key
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot
from reconciler.core.rollouts import activate, evidence, host_restart, rollback, rolling
from reconciler.core.rollouts.turn import Turn
from reconciler.core.traffic.pools import endpoints

HISTORY = 10
"""The history lists at most this many revisions; the oldest ones that are over and have no containers go first."""

JUMP = 300 * SECOND
"""A difference between wall and steady clock above this, from one look to the next, is a jump and not a correction."""


_ACTIVE, _SCHEDULED = Standing.ACTIVE, Standing.SCHEDULED


@dataclass(slots=True)
class Followed:
    """The ledger after this look, and the holds and waits to report. Filled while this stage runs, read-only after it.

    `until` is the steady instant at which the first of these answers changes on the same facts.
    """

    ledger: Ledger
    holds: list[Hold] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    until: int = FOREVER


def follow(snap: Snapshot, ledger: Ledger) -> Followed:
    """Bring the history of all workloads up to date, and carry every rollout one step further."""
    clock, jumped = _clock(snap.desired, ledger, snap.now, snap.observed.booted)
    rebooted = ledger.clock is not None and ledger.clock.steady < snap.observed.booted
    out = Followed(ledger)
    rollouts: dict[str, Rollout] = {}
    weighed: Mapping[tuple[str, str], int] | None = None
    for key, group in snap.roster.groups.items():
        before, mark = ledger.rollouts.get(key), ledger.revisions.get(key)
        if group.workload.restart_only or mark is None:
            continue
        if before is None:
            if group.unseen or group.unlisted:
                continue  # containers on nodes that cannot be read may be of the active revision
            weighed = _weighed(snap) if weighed is None else weighed
            before = _rebuilt(group, mark, weighed, snap.now)
        if _complete(group, before, mark):
            rollouts[key] = before
            continue
        after = _declared(group.workload, before, mark, snap.now)
        beside = group.workload.strategy in STAGED
        if beside:
            after = host_restart.note(snap, after, group, rebooted)
        turn = Turn(after)
        if beside:
            known = evidence.gather(snap, ledger, group, after, jumped)
            rollback.judge(turn, known)
            activate.advance(turn, known)
        else:
            rolling.advance(snap, ledger, group, turn)
        rollouts[key] = _trimmed(group, turn.rollout)
        out.holds += turn.holds
        out.waits += turn.waits
        out.until = min(out.until, turn.until)
    if clock != ledger.clock or rollouts != ledger.rollouts:
        out.ledger = replace(ledger, clock=clock, rollouts=rollouts)
    return out


def quiet(desired: Desired, ledger: Ledger, now: Now) -> frozenset[str]:
    """Names that are not probed: those an operator silenced, and revisions (`workload/web@REVISION`) whose precheck is not due."""
    names = set(suspensions.probes_suspended(ledger, now))
    for workload in desired.workloads:
        rollout = ledger.rollouts.get(workload.key) if workload.strategy in STAGED else None
        if rollout is None or not rollout.active:
            continue
        for row in rollout.rows:
            waits = row.standing is Standing.SCHEDULED and row.revision != rollout.active
            if waits and due_at(row, now) - workload.rollout.precheck > now.steady:
                names.add(revision_key(workload.key, row.revision))
    return frozenset(names)


def _clock(desired: Desired, ledger: Ledger, now: Now, booted: int) -> tuple[Instant | None, bool]:
    """The clocks to remember while any time of day matters, and whether they jumped since the last look."""
    if not any(workload.strategy in STAGED for workload in desired.workloads):
        return None, False
    before = ledger.clock
    if before is None or before.steady < booted:
        return instant(now), False
    jumped = abs((now.wall - now.steady) - (before.wall - before.steady)) > JUMP
    return (instant(now) if jumped else before), jumped


def _complete(group: Group, rollout: Rollout, mark: RevisionMark) -> bool:
    """Whether no rollout is under way: the declared revision has all traffic. True for almost all workloads at any time."""
    if (
        rollout.active != mark.revision
        or group.outgoing
        or group.waiting
        or group.kept
        or group.unseen
        or group.unknown
    ):
        return False
    row = rollout.of(mark.revision)
    if row is None or row.number != mark.number or row.standing is not _ACTIVE or rollout.asked:
        return False
    others = any(other.standing is _SCHEDULED for other in rollout.rows)
    settled = (rollout.low, rollout.progressed, rollout.host_restarted) == (None, None, None) and not rollout.back
    return settled and not others and len(rollout.rows) <= HISTORY


def _weighed(snap: Snapshot) -> Mapping[tuple[str, str], int]:
    """The weight that was read back, by (workload's name, revision)."""
    weighed: dict[tuple[str, str], int] = {}
    for service in snap.desired.services:
        pools = (snap.sight.pools.get((balancer.provider, balancer.pool)) for balancer in service.balancers)
        weights = {
            member.endpoint: member.weight
            for pool in pools
            if pool is not None
            for member in pool.members
            if member.ours
        }
        for endpoint, belief in endpoints(service, snap.roster) if weights else ():
            mark = belief.fact.mark
            if mark is not None:
                key = mark.workload, mark.revision
                weighed[key] = weighed.get(key, 0) + weights.get(endpoint, 0)
    return weighed


def _rebuilt(group: Group, mark: RevisionMark, weighed: Mapping[tuple[str, str], int], now: Now) -> Rollout:
    """The history as far as containers and pools show it. The revision with most weight is active.

    Without weights, because there are none or they cannot be read, a running revision that is not declared is active: the declared
    one must be verified first, however many of its replicas run. Of two undeclared revisions the one with more running replicas is
    active; between equals the order of their hashes decides.
    """
    name, wanted, at = group.workload.name, mark.revision, instant(now)
    running: dict[str, int] = {}
    for belief in (*group.members(), *group.kept):
        if belief.fact.mark is not None:
            up = belief.fact.state is ContainerState.RUNNING
            running[belief.fact.mark.revision] = running.get(belief.fact.mark.revision, 0) + up
    if set(running) <= {wanted}:
        return Rollout()
    active = max(
        running,
        key=lambda hash_: (weighed.get((name, hash_), 0), running[hash_] > 0, hash_ != wanted, running[hash_], hash_),
    )
    rollout = Rollout(active=active)
    for revision in sorted(running):
        if revision == active:
            number = mark.number if revision == wanted else 0
            row = Revision(
                revision,
                number,
                Standing.ACTIVE,
                at,
                activated=at,
                why="it had the traffic when the history was rebuilt",
            )
            rollout = rollout.put(row)
        elif revision != wanted:
            why = "it existed beside the active revision when the history was rebuilt"
            rollout = rollout.put(Revision(revision, 0, Standing.SUPERSEDED, at, activated=at, ended=at, why=why))
    return rollout


def _declared(workload: Workload, rollout: Rollout, mark: RevisionMark, now: Now) -> Rollout:
    """The history with the declared revision, and when that may take over.

    A new number makes an old hash a new revision. A failed or expired revision is retried only when the template or the
    time of its activation changes; one that was rolled back only when the template does.
    """
    wanted, at, delay = mark.revision, workload.rollout.activate_at, workload.rollout.delay
    row = rollout.of(wanted)
    image = workload.template.container.engine.image
    fresh = Revision(wanted, mark.number, Standing.SCHEDULED, instant(now), image, at, delay)
    if row is None:
        return rollout.put(fresh)
    if row.number != mark.number:
        if wanted == rollout.active:
            return rollout.put(row._replace(number=mark.number, standing=Standing.ACTIVE, ended=None))
        return (rollout._replace(back="") if rollout.back == wanted else rollout).put(fresh)
    if row.image != image and not row.image:
        row = row._replace(image=image)
    if (row.at, row.delay) != (at, delay):
        if row.rejected and row.standing is Standing.FAILED:
            return rollout.put(row._replace(at=at, delay=delay))
        if row.standing in {Standing.EXPIRED, Standing.FAILED} and wanted != rollout.active:
            return rollout.put(fresh)
        row = row._replace(at=at, delay=delay, due=None)
    return rollout if row is rollout.of(wanted) else rollout.put(row)


def _trimmed(group: Group, rollout: Rollout) -> Rollout:
    """Forget the oldest revisions that have no containers."""
    if len(rollout.rows) <= HISTORY:
        return rollout
    marks = (belief.fact.mark for belief in (*group.members(), *group.kept))
    needed = {mark.revision for mark in marks if mark is not None}
    needed |= {container.revision for container in group.unseen}
    needed |= {rollout.active, rollout.back, group.workload.template.revision}
    gone = [row for row in rollout.rows if row.revision not in needed and row.standing in ENDED]
    dropped = {row.revision for row in gone[: max(0, len(rollout.rows) - HISTORY)]}
    return rollout._replace(rows=tuple(row for row in rollout.rows if row.revision not in dropped))
