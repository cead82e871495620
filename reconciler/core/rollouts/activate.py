"""Activation: when a revision that waits beside the active one gets the traffic, and when its activation is called off.

Raise, read back, lower: an activation opens when the waiting revision is due and all its replicas are verified; both revisions
then have their share until every endpoint of the new one was read back with weight; only then is it active, and the old one has
no share any more. Each turn derives the next step from what was read back and from the history, so a crash between any two
steps loses nothing. While anything is in doubt the active revision stays. `revisions` calls `advance` for every workload whose
revisions stand beside each other, after `rollback`.
"""

from dataclasses import replace

from manifests.values.desired import SECOND
from manifests.values.rollouts import Strategy, Supersede, format_moment
from reconciler.core.limits import backoff
from reconciler.core.model.instant import Now, due, instant
from reconciler.core.model.reasons import Hold, Rule, Wait, Waiting
from reconciler.core.model.revision import ENDED, Revision, Rollout, Standing, due_at, keeps
from reconciler.core.rollouts.evidence import Evidence
from reconciler.core.rollouts.health import Health
from reconciler.core.rollouts.turn import Turn


def advance(turn: Turn, evidence: Evidence) -> None:
    """Carry the activation of one workload one step further."""
    if not turn.rollout.active:
        _first(turn, evidence)
        return
    turn.rollout = _give_up(_supersede(turn.rollout, evidence), evidence)
    _report(turn, evidence)
    target = _target(turn, evidence)
    for row in turn.rollout.rows:
        if row.opened is not None and (target is None or row.revision != target.revision):
            turn.rollout = turn.rollout.put(row._replace(opened=None, step=0, stepped=None))
    if target is not None and target.opened is None:
        _open(turn, evidence, target)
    elif target is not None:
        _carry_on(turn, evidence, target)
    for row in turn.rollout.rows:
        # What was asked for one move of traffic says nothing about a later one.
        if row.rechecked is not None and row.revision not in turn.rechecking:
            turn.rollout = turn.rollout.put(row._replace(rechecked=None))


# --- the first revision, and older ones --------------------------------------------------------------------------------


def _first(turn: Turn, evidence: Evidence) -> None:
    """Nothing has the traffic yet: the declared revision takes it as soon as one of its replicas is available."""
    workload, health = evidence.workload, evidence.serving
    turn.until = min(turn.until, health.until)
    row = turn.rollout.of(workload.template.revision)
    if row is not None and (health.available or not workload.replicas):
        turn.rollout = _settle(turn.rollout._replace(active=row.revision), row, evidence.now)


def _settle(rollout: Rollout, row: Revision, now: Now) -> Rollout:
    """This revision becomes active; the one that was active, and older ones that wait, are superseded."""
    at, active = instant(now), rollout.active
    for other in rollout.rows:
        if other.revision == row.revision:
            continue
        if other.standing is Standing.ACTIVE or (other.standing is Standing.SCHEDULED and other.number < row.number):
            why = f"{row.revision[:8]} took over"
            ended = other._replace(standing=Standing.SUPERSEDED, ended=at, why=why)
            rollout = rollout.put(ended._replace(opened=None, due=None, step=0, stepped=None))
        elif other.standing is Standing.FAILED and other.revision == active:
            rollout = rollout.put(other._replace(ended=at, opened=None))
    settled = row._replace(standing=Standing.ACTIVE, activated=at, ended=None, why="", failures=0, failed_at=None)
    rollout = rollout._replace(active=row.revision, back="", low=None)
    return rollout.put(settled._replace(opened=None, due=None, step=0, stepped=None))


def _supersede(rollout: Rollout, evidence: Evidence) -> Rollout:
    """Waiting revisions that are older than the active one, or than a newer declared one, are superseded."""
    active, wanted = rollout.of(rollout.active), evidence.workload.template.revision
    newest = rollout.of(wanted)
    at_once = evidence.workload.rollout.supersede is Supersede.IMMEDIATELY
    for row in rollout.rows:
        if row.standing is not Standing.SCHEDULED or row.revision == wanted:
            continue
        older = active is not None and row.number <= active.number
        if older or at_once or not evidence.health[row.revision].existing:
            by = rollout.active if older or newest is None else wanted
            ended = row._replace(standing=Standing.SUPERSEDED, ended=instant(evidence.now), opened=None, due=None)
            rollout = rollout.put(ended._replace(why=f"{by[:8]} was declared after it"))
    return rollout


def _give_up(rollout: Rollout, evidence: Evidence) -> Rollout:
    """A waiting revision fails when the engine refuses a replica for good, or a replica exits, more often than the limit."""
    for row in rollout.rows:
        failure = evidence.start_failures.get(row.revision)
        if row.standing is not Standing.SCHEDULED or row.revision == rollout.active:
            continue
        if failure is not None and failure.final:
            failed = row._replace(standing=Standing.FAILED, ended=instant(evidence.now), opened=None, due=None)
            rollout = rollout.put(failed._replace(why=f"{failure.message}, while it waited"))
    return rollout


# --- the next revision -------------------------------------------------------------------------------------------------


def _target(turn: Turn, evidence: Evidence) -> Revision | None:
    """The revision that should get the traffic now: the newest one that is due, or the one that gets it back."""
    rollout, workload, now = turn.rollout, evidence.workload, evidence.now
    active = rollout.of(rollout.active)
    newest: Revision | None = None
    for row in rollout.rows:
        if row.standing is not Standing.SCHEDULED or (active is not None and row.number <= active.number):
            continue
        at = due_at(row, now)
        if at <= now.steady:
            newest = row
            continue
        precheck = at - workload.rollout.precheck
        when = f"at {format_moment(row.at)}" if row.at else f"{row.delay // SECOND}s after it was declared"
        message = f"revision {row.revision[:8]} may take over {when}"
        until = precheck if precheck > now.steady else at
        turn.waits.append(Wait(workload.key, Waiting.ACTIVATION, message, until))
    back = rollout.of(rollout.back) if rollout.back else None
    if back is None:
        return newest
    if newest is not None and _health(newest, rollout, evidence).whole:
        turn.rollout = rollout._replace(back="")
        return newest
    if evidence.health[back.revision].existing or back.revision in evidence.leftover:
        return back
    turn.rollout = rollout._replace(back="")
    return newest


def _health(row: Revision, rollout: Rollout, evidence: Evidence) -> Health:
    """The replicas of a revision that may get the traffic.

    A revision that gets it back needs only the replicas that were kept, and of those on nodes that cannot be read so many may be
    missing as the budget allows: a rollback must not wait for one node.
    """
    health = evidence.health[row.revision]
    if row.revision != rollout.back:
        return health
    spare = min(health.listed, evidence.workload.max_unavailable)
    return health._replace(wanted=max(1, min(health.wanted, health.existing) - spare))


def _open(turn: Turn, evidence: Evidence, row: Revision) -> None:
    """Begin the activation, or report why it does not begin."""
    workload, now = evidence.workload, evidence.now
    action = f"activate {row.revision[:8]}"
    health = _health(row, turn.rollout, evidence)
    turn.until = min(turn.until, health.until)
    if row.revision != turn.rollout.back:
        if evidence.holds:
            turn.holds += [replace(hold, action=action) for hold in evidence.holds]
            turn.rollout = turn.rollout if row.due is None else turn.rollout.put(row._replace(due=None))
            return
        if row.due is None:
            row = row._replace(due=instant(now))
            turn.rollout = turn.rollout.put(row)
    if row.failed_at is not None:
        wait = backoff.delay(f"{workload.key}@{row.revision}", row.failures + 1, workload.restarts.backoff)
        until = due(row.failed_at, wait, now)
        if until > now.steady:
            message = f"{row.failures} activation{'' if row.failures == 1 else 's'} of revision {row.revision[:8]} failed, the last because {row.why}"
            turn.holds.append(Hold(workload.key, action, Rule.BACK_OFF, message, until=until))
            return
    if not health.whole:
        _not_verified(turn, evidence, row, health)
        return
    others = {other.revision for other in turn.rollout.rows} - {row.revision, turn.rollout.active}
    if others & evidence.carrying:
        message = f"an older revision still has weight; revision {row.revision[:8]} is activated when that weight is 0"
        turn.waits.append(Wait(workload.key, Waiting.WEIGHT, message))
        return
    if _rechecked(turn, evidence, row):
        row = row._replace(opened=instant(now), step=0, stepped=None, why="", scale=health.wanted)
        turn.rollout = turn.rollout.put(row)


def _rechecked(turn: Turn, evidence: Evidence, row: Revision) -> bool:
    """Whether all replicas of a revision have passed once more, now that more traffic would move to it; else they are asked.

    A revision that gets the traffic back is not held by a probe that cannot run.
    """
    workload, now = evidence.workload, evidence.now
    answers = evidence.rechecks.get(row.revision)
    asks = any(
        probe is not None for container in evidence.probed for probe in (container.liveness, container.readiness)
    )
    if not asks or (answers is not None and answers.passed):
        return True
    turn.rechecking.add(row.revision)
    action, revision = f"activate {row.revision[:8]}", f"revision {row.revision[:8]}"
    if answers is None:
        turn.rollout = turn.rollout.put(row._replace(rechecked=instant(now)))
        message = f"the replicas of {revision} are probed once more before it gets more traffic"
        turn.waits.append(Wait(workload.key, Waiting.VERIFIED, message))
    elif answers.failing:
        message = f"{', '.join(answers.failing)} failed when {revision} was about to get more traffic"
        turn.waits.append(Wait(workload.key, Waiting.VERIFIED, message))
    elif answers.until > now.steady:
        message = f"the replicas of {revision} are probed once more: {len(answers.missing)} results are missing"
        turn.waits.append(Wait(workload.key, Waiting.VERIFIED, message, answers.until))
    elif row.revision == turn.rollout.back:
        return True
    else:
        message = f"no new result of {', '.join(answers.missing)}; {revision} gets no more traffic without one"
        next_step = f"check that the probes of {workload.key} can run"
        turn.holds.append(Hold(workload.key, action, Rule.PROBER_FAULT, message, next_step=next_step))
    return False


def _not_verified(turn: Turn, evidence: Evidence, row: Revision, health: Health) -> None:
    """A due revision whose replicas are not all verified: it waits for the grace period, then it expires or fails."""
    workload, now = evidence.workload, evidence.now
    message = (
        f"{health.available} of {health.wanted} replicas of revision {row.revision[:8]} are verified "
        f"({health.failing} failing, {health.unknown} without a result{_where(evidence, health)}, "
        f"{max(0, health.missing)} missing or not started); "
        f"revision {turn.rollout.active[:8]} keeps the traffic"
    )
    if health.unseen and health.unseen == health.wanted - health.available:
        # Only their nodes are missing. That time does not count against the grace.
        turn.waits.append(Wait(workload.key, Waiting.NODE, message))
        turn.rollout = turn.rollout if row.due is None else turn.rollout.put(row._replace(due=None))
        return
    if row.due is None:
        turn.waits.append(Wait(workload.key, Waiting.VERIFIED, message))
        return
    end = due(row.due, workload.rollout.pending_grace, now)
    if end > now.steady:
        turn.waits.append(Wait(workload.key, Waiting.VERIFIED, message, end))
    elif health.failing or health.missing > 0:
        failure = evidence.start_failures.get(row.revision)
        seconds = workload.rollout.pending_grace // SECOND
        why = f"it was not verified within {seconds}s: {failure.message if failure else message}"
        standing = Standing.EXPIRED if failure is None else Standing.FAILED
        row = row._replace(standing=standing, ended=instant(now), due=None, why=why)
        turn.rollout = turn.rollout.put(row)
        turn.holds.append(_not_eligible(workload.key, row))
    else:
        # Unknown results alone do not end a revision.
        next_step = f"check that the probes of {workload.key} can run"
        action = f"activate {row.revision[:8]}"
        turn.holds.append(Hold(workload.key, action, Rule.PROBER_FAULT, message, next_step=next_step))


def _where(evidence: Evidence, health: Health) -> str:
    """How many replicas have no result because of the nodes that cannot be read, for messages."""
    if not health.unseen:
        return ""
    nodes = evidence.unreadable
    return f", {health.unseen} of them on node{'' if len(nodes) == 1 else 's'} {', '.join(nodes)}, which cannot be read"


def _carry_on(turn: Turn, evidence: Evidence, row: Revision) -> None:
    """Carry on an open activation: take the next step, settle it, or call it off."""
    workload, now, back = evidence.workload, evidence.now, row.revision == turn.rollout.back
    health = _health(row, turn.rollout, evidence)
    turn.until = min(turn.until, health.until)
    steps = workload.rollout.steps if workload.strategy is Strategy.CANARY and not back else ()
    if health.failing or health.lost(row.scale):
        _call_off(turn, evidence, row, health, stepwise=bool(steps))
        return
    if row.revision not in evidence.raised:
        message = f"not every pool gives traffic to all replicas of revision {row.revision[:8]} yet"
        turn.waits.append(Wait(workload.key, Waiting.RAISED, message))
        return
    if row.step < len(steps):
        step = steps[row.step]
        if not health.whole:
            message = (
                f"not all probes of revision {row.revision[:8]} have a result{_where(evidence, health)}; "
                f"its share stays at {step.share / 100:g}%"
            )
            turn.waits.append(Wait(workload.key, Waiting.VERDICT, message))
            turn.rollout = turn.rollout if row.stepped is None else turn.rollout.put(row._replace(stepped=None))
            return
        if row.stepped is None and row.revision in evidence.short:
            message = f"revision {row.revision[:8]} has less than {step.share / 100:g}% of the traffic yet; then its pause begins"
            turn.waits.append(Wait(workload.key, Waiting.RAISED, message))
            return
        stepped = row.stepped or instant(now)
        row = row._replace(stepped=stepped)
        turn.rollout = turn.rollout.put(row)
        until = due(stepped, step.pause, now)
        if until > now.steady:
            message = f"revision {row.revision[:8]} has {step.share / 100:g}% of the traffic"
            turn.waits.append(Wait(workload.key, Waiting.PAUSE, message, until))
            return
        if not _rechecked(turn, evidence, row):
            return
        if row.step + 1 < len(steps):
            turn.rollout = turn.rollout.put(row._replace(step=row.step + 1, stepped=None))
            return
    if health.whole or back:
        turn.rollout = _settle(turn.rollout, row, now)
        return
    active = turn.rollout.active[:8]
    message = (
        f"not all probes of revision {row.revision[:8]} have a result{_where(evidence, health)}; "
        f"revision {active} keeps its weight too"
    )
    turn.waits.append(Wait(workload.key, Waiting.VERDICT, message))


def _call_off(turn: Turn, evidence: Evidence, row: Revision, health: Health, stepwise: bool) -> None:
    """Replicas fail during the activation: the revision loses its traffic at once, and is retried later unless it was a canary."""
    workload, at = evidence.workload, instant(evidence.now)
    why = f"{health.failing + health.lost(row.scale)} of its {health.wanted} replicas failed while it was activated"
    floor = max(1, min(workload.replicas, row.scale or workload.replicas) - workload.max_unavailable)
    if not stepwise:
        called_off = row._replace(opened=None, failures=row.failures + 1, failed_at=at, why=why)
        turn.rollout = turn.rollout.put(called_off)
        return
    if health.available + health.unknown < floor:
        failed = row._replace(standing=Standing.FAILED, ended=at, opened=None, due=None, step=0, stepped=None, why=why)
        turn.rollout = turn.rollout.put(failed)
        turn.holds.append(_not_eligible(workload.key, failed))
        return
    turn.rollout = turn.rollout if row.stepped is None else turn.rollout.put(row._replace(stepped=None))
    available = f"{health.available} of {health.wanted} replicas of revision {row.revision[:8]}"
    turn.waits.append(Wait(workload.key, Waiting.VERIFIED, f"{available} are available; its share is not raised yet"))


# --- reports ---------------------------------------------------------------------------------------------------


def _report(turn: Turn, evidence: Evidence) -> None:
    """Report the declared revision when it has failed or expired, and revisions whose replicas are kept."""
    workload, now, window = evidence.workload, evidence.now, evidence.workload.rollout.window
    row = turn.rollout.of(workload.template.revision)
    if row is not None and row.standing in {Standing.FAILED, Standing.EXPIRED}:
        turn.holds.append(_not_eligible(workload.key, row))
    for row in turn.rollout.rows:
        if row.standing not in ENDED or row.ended is None:
            continue
        until = due(row.ended, window, now)
        if row.revision in evidence.stopped and row.revision != turn.rollout.back:
            message = f"revision {row.revision[:8]} is stopped and kept for rollback"
            turn.waits.append(Wait(workload.key, Waiting.ROLLBACK_WINDOW, message, until))
        if keeps(row, window, now) and until > now.steady:
            turn.until = min(turn.until, until)


def _not_eligible(key: str, row: Revision) -> Hold:
    """The hold of a declared revision that does not get the traffic: reported at every look, until the manifest changes."""
    message = f"revision {row.revision[:8]} has {row.standing.value}: {row.why}"
    next_step = f"change the template or the activation time of {key} to retry it"
    return Hold(key, f"activate {row.revision[:8]}", Rule.REVISION_NOT_ELIGIBLE, message, next_step=next_step)
