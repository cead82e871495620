"""The switch: when a revision that waits beside the active one gets the traffic, and when that is taken back.

Raise, read back, lower: a switch is opened when the waiting revision is due, and all its replicas are verified; both revisions
then have their share until every endpoint of the new one was read back with weight; only then is it active, and the old one has no
share any more. Every look derives the next step from what is read back and from the books, so a crash between any two steps loses
nothing. While anything is in doubt the active revision stays. `revisions` calls `advance` for every workload of this kind.
"""

from manifests.values.desired import SECOND
from manifests.values.limits import Held
from manifests.values.rollouts import Strategy, Supersede, format_moment
from reconciler.core.health.belief import Belief
from reconciler.core.limits import backoff, windows
from reconciler.core.limits.suspensions import suspended
from reconciler.core.model.instant import Now, due, instant, next_after
from reconciler.core.model.reasons import Hold, Rule, Wait, Waiting
from reconciler.core.model.revision import ENDED, Revision, Standing
from reconciler.core.replicas.roster import keeps
from reconciler.core.rollouts.revision_health import (
    Health,
    Look,
    Switching,
    carries,
    due_at,
    health,
    raised,
    revision_of,
    say_over,
)
from reconciler.core.rollouts.rollback import bake, take_back
from reconciler.core.rollouts.start_failures import trouble


def advance(it: Switching, look: Look) -> None:
    """Carry the switch of one workload one step further."""
    if it.rollout.asked is not None:
        take_back(it, look)
    if not it.rollout.active:
        _first(it, look)
        return
    bake(it, look)
    _supersede(it, look)
    _give_up(it, look)
    _tell(it, look)
    target = _target(it, look)
    for row in it.rollout.rows:
        if row.opened is not None and (target is None or row.revision != target.revision):
            it.set(row, opened=None, step=0, stepped=None)
    if target is None:
        return
    if target.opened is None:
        _open(it, look, target)
        return
    _carry_on(it, look, target)


# --- the first one, and older ones --------------------------------------------------------------------------------


def _first(it: Switching, look: Look) -> None:
    """Nothing has the traffic yet: the declared revision takes it as soon as one of its replicas is well."""
    wanted = look.workload.template.revision
    found = health(look.group.of(wanted), look.workload.replicas, look.workload, look.now)
    it.until = min(it.until, found.until)
    row = it.rollout.of(wanted)
    if row is None or not (found.available or not look.workload.replicas):
        return
    it.rollout = it.rollout._replace(active=wanted)
    _settle(it, row, look.now)


def _settle(it: Switching, row: Revision, now: Now) -> None:
    """This revision has the traffic from here on; waiting older ones, and the one that had it, have not."""
    at = instant(now)
    for one in it.rollout.rows:
        if one.revision == row.revision:
            continue
        if one.standing is Standing.ACTIVE or (one.standing is Standing.SCHEDULED and one.number < row.number):
            why = f"{row.revision[:8]} took over"
            it.set(one, standing=Standing.SUPERSEDED, ended=at, opened=None, due=None, step=0, stepped=None, why=why)
        elif one.standing is Standing.FAILED and one.revision == it.rollout.active:
            it.set(one, ended=at, opened=None)
    it.rollout = it.rollout._replace(active=row.revision, back="", low=None)
    it.set(
        row,
        standing=Standing.ACTIVE,
        activated=at,
        ended=None,
        opened=None,
        due=None,
        failures=0,
        failed_at=None,
        step=0,
        stepped=None,
        why="",
    )


def _supersede(it: Switching, look: Look) -> None:
    """Revisions that were declared earlier than the one that has the traffic, or than a newer one, wait no longer."""
    active = it.rollout.of(it.rollout.active)
    wanted = look.workload.template.revision
    newest = it.rollout.of(wanted)
    at_once = look.workload.rollout.supersede is Supersede.IMMEDIATELY
    for row in it.rollout.rows:
        if row.standing is not Standing.SCHEDULED or row.revision == wanted:
            continue
        older = active is not None and row.number <= active.number
        if older or at_once or not look.group.of(row.revision):
            by = it.rollout.active if older or newest is None else wanted
            why = f"{by[:8]} was declared after it"
            it.set(row, standing=Standing.SUPERSEDED, ended=instant(look.now), opened=None, due=None, why=why)


def _give_up(it: Switching, look: Look) -> None:
    """A waiting revision of which a replica is refused for good, or ends, again and again has failed: it frees what it holds."""
    for row in it.rollout.rows:
        if row.standing is not Standing.SCHEDULED or row.revision == it.rollout.active:
            continue
        found = trouble(look.group, row.revision, look.desired.instance.id, look.ledger)
        if found is not None and found.over:
            why = f"{found.message}, while it waited"
            it.set(row, standing=Standing.FAILED, ended=instant(look.now), opened=None, due=None, why=why)


# --- the next one -------------------------------------------------------------------------------------------------


def _target(it: Switching, look: Look) -> Revision | None:
    """The revision that is to get the traffic now: the newest one that is due, or the one that gets it back."""
    now = look.now
    active = it.rollout.of(it.rollout.active)
    newest: Revision | None = None
    for row in it.rollout.rows:
        if row.standing is not Standing.SCHEDULED or (active is not None and row.number <= active.number):
            continue
        at = due_at(row, now)
        if at <= now.steady:
            newest = row
            continue
        precheck = at - look.workload.rollout.precheck
        when = f"at {format_moment(row.at)}" if row.at else f"{row.delay // SECOND}s after it was declared"
        message = f"revision {row.revision[:8]} may take over {when}"
        until = precheck if precheck > now.steady else at
        it.waits.append(Wait(look.workload.key, Waiting.ACTIVATION, message, until))
    back = it.rollout.of(it.rollout.back) if it.rollout.back else None
    if back is None:
        return newest
    found = [*look.group.of(back.revision), *_those(look, back.revision)]
    if newest is not None and _health(newest, it, look).whole:
        it.rollout = it.rollout._replace(back="")
        return newest
    if found:
        return back
    it.rollout = it.rollout._replace(back="")
    return newest


def _those(look: Look, revision: str) -> list[Belief]:
    """Replicas of a revision that was over until now: they are sorted anew at the next look."""
    every = (*look.group.kept, *look.group.outgoing)
    return [one for one in every if one.fact.mark is not None and one.fact.mark.revision == revision]


def _health(row: Revision, it: Switching, look: Look) -> Health:
    """The replicas of a revision that may get the traffic. Of one that gets it back there are as many as were kept."""
    those = look.group.of(row.revision)
    wanted = look.workload.replicas
    if row.revision == it.rollout.back:
        wanted = max(1, min(wanted, len(those)))
    return health(those, wanted, look.workload, look.now, look.ledger.grants, it.rollout.shaken)


def _held(look: Look, row: Revision) -> Hold | None:
    """What of ours holds a switch however well the replicas are."""
    key, action, now = look.workload.key, f"activate {row.revision[:8]}", look.now
    if look.jumped:
        message = "wall clock and steady clock have jumped against each other, so what is due is looked at once more"
        return Hold(key, action, Rule.CLOCK_JUMP, message, until=next_after(0, SECOND, now))
    word = suspended(look.desired, look.ledger, key, key, "", action, now)
    if word is not None:
        return word
    if look.workload.suspend:
        message = f"the manifest suspends {key}"
        return Hold(key, action, Rule.SUSPENDED, message, next_step=f"set spec.suspend of {key} to false")
    return windows.hold(look.desired, Held.ROLLOUT, key, action, now)


def _open(it: Switching, look: Look, row: Revision) -> None:
    """Begin the switch when nothing speaks against it; otherwise say what does."""
    now, workload = look.now, look.workload
    back = row.revision == it.rollout.back
    found = _health(row, it, look)
    it.until = min(it.until, found.until)
    if not back:
        hold = _held(look, row)
        if hold is not None:
            it.holds.append(hold)
            if row.due is not None:
                it.set(row, due=None)
            return
        if row.due is None:
            row = it.set(row, due=instant(now))
    if row.failed_at is not None:
        wait = backoff.delay(f"{workload.key}@{row.revision}", row.failures + 1, workload.restarts.backoff)
        until = due(row.failed_at, wait, now)
        if until > now.steady:
            message = f"{row.failures} tries were called off, the last one because {row.why}"
            action = f"activate {row.revision[:8]}"
            it.holds.append(Hold(workload.key, action, Rule.BACK_OFF, message, until=until))
            return
    if not found.whole:
        _not_well(it, look, row, found)
        return
    others = {one.revision for one in it.rollout.rows} - {row.revision, it.rollout.active}
    if carries(look, others):
        message = f"a revision that is over still carries weight; {row.revision[:8]} follows"
        it.waits.append(Wait(workload.key, Waiting.WEIGHT, message))
        return
    it.set(row, opened=instant(now), step=0, stepped=None, why="", scale=found.wanted)


def _not_well(it: Switching, look: Look, row: Revision, found: Health) -> None:
    """A due revision whose replicas are not all verified: it is waited for; in the end it expires, or has failed to start."""
    workload, now = look.workload, look.now
    message = (
        f"{found.available} of {found.wanted} replicas of revision {row.revision[:8]} are verified "
        f"({found.failing} failing, {found.unknown} without a verdict, {max(0, found.missing)} not there or not started); "
        f"{it.rollout.active[:8]} stays"
    )
    if row.due is None:
        it.waits.append(Wait(workload.key, Waiting.VERIFIED, message))
        return
    end = due(row.due, workload.rollout.pending_grace, now)
    if end > now.steady:
        it.waits.append(Wait(workload.key, Waiting.VERIFIED, message, end))
    elif found.failing or found.missing > 0:
        worst = trouble(look.group, row.revision, look.desired.instance.id, look.ledger)
        why = (
            f"it was not well within {workload.rollout.pending_grace // SECOND}s: {worst.message if worst else message}"
        )
        standing = Standing.EXPIRED if worst is None else Standing.FAILED
        row = it.set(row, standing=standing, ended=instant(now), due=None, why=why)
        say_over(it, look, row)
    else:
        # Nothing speaks against it but that nothing is known, and that takes nothing away.
        next_step = f"see that the probes of {workload.key} can run"
        it.holds.append(
            Hold(workload.key, f"activate {row.revision[:8]}", Rule.PROBER_FAULT, message, next_step=next_step)
        )


def _carry_on(it: Switching, look: Look, row: Revision) -> None:
    """Go on with a switch that was opened: the next step, the end, or back to where it began."""
    now, workload = look.now, look.workload
    found = _health(row, it, look)
    it.until = min(it.until, found.until)
    steps = workload.rollout.steps if workload.strategy is Strategy.CANARY and row.revision != it.rollout.back else ()
    if found.failing or found.lost(row.scale):
        _setback(it, look, row, found, stepwise=bool(steps))
        return
    if not raised(look, row.revision):
        message = f"not every pool gives traffic to all replicas of revision {row.revision[:8]} yet"
        it.waits.append(Wait(workload.key, Waiting.RAISED, message))
        return
    if row.step < len(steps):
        if not found.whole:
            message = f"the replicas of revision {row.revision[:8]} have no verdict; it stays at {steps[row.step].share / 100:g}%"
            it.waits.append(Wait(workload.key, Waiting.VERDICT, message))
            if row.stepped is not None:
                it.set(row, stepped=None)
            return
        if row.stepped is None:
            row = it.set(row, stepped=instant(now))
        assert row.stepped is not None  # noqa: S101  (set just above; for the type checker)
        until = due(row.stepped, steps[row.step].pause, now)
        if until > now.steady:
            message = f"revision {row.revision[:8]} has {steps[row.step].share / 100:g}% of the traffic"
            it.waits.append(Wait(workload.key, Waiting.PAUSE, message, until))
            return
        if row.step + 1 < len(steps):
            it.set(row, step=row.step + 1, stepped=None)
            return
    if found.whole or row.revision == it.rollout.back:
        _settle(it, row, now)
        return
    message = (
        f"the replicas of revision {row.revision[:8]} have weight and no verdict; {it.rollout.active[:8]} stays too"
    )
    it.waits.append(Wait(workload.key, Waiting.VERDICT, message))


def _setback(it: Switching, look: Look, row: Revision, found: Health, stepwise: bool) -> None:
    """Replicas of a revision that was being let in fail: it is out at once, and tried again later unless it was a canary."""
    workload, at = look.workload, instant(look.now)
    why = f"{found.failing + found.lost(row.scale)} of its {found.wanted} replicas failed while it was let in"
    floor = max(1, min(workload.replicas, row.scale or workload.replicas) - workload.max_unavailable)
    if not stepwise:
        it.set(row, opened=None, failures=row.failures + 1, failed_at=at, why=why)
        return
    if found.available + found.unknown < floor:
        row = it.set(row, standing=Standing.FAILED, ended=at, opened=None, due=None, step=0, stepped=None, why=why)
        say_over(it, look, row)
        return
    if row.stepped is not None:
        it.set(row, stepped=None)
    message = (
        f"{found.available} of {found.wanted} replicas of revision {row.revision[:8]} are well; it gets no more for now"
    )
    it.waits.append(Wait(workload.key, Waiting.VERIFIED, message))


# --- saying it ----------------------------------------------------------------------------------------------------


def _tell(it: Switching, look: Look) -> None:
    """Revisions that are over and declared all the same, and those whose replicas are kept."""
    row = it.rollout.of(look.workload.template.revision)
    if row is not None and row.standing in {Standing.FAILED, Standing.EXPIRED}:
        say_over(it, look, row)
    for belief in look.group.kept:
        kept = it.rollout.of(revision_of(belief))
        if kept is None or kept.ended is None or kept.revision == it.rollout.back:
            continue
        until = due(kept.ended, look.workload.rollout.window, look.now)
        message = f"revision {kept.revision[:8]} is kept, stopped, to take the traffic back"
        it.waits.append(Wait(look.workload.key, Waiting.ROLLBACK_WINDOW, message, until))
    for row in it.rollout.rows:
        if row.standing in ENDED and row.ended is not None and keeps(row, look.workload.rollout.window, look.now):
            it.later(due(row.ended, look.workload.rollout.window, look.now), look.now)
