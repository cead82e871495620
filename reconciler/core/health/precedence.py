"""Precedence: which source decides whether a running container is ready: facts, then overrides, its own fresh push, probes.

A push is fresh while it is younger than `fresh`, and no longer counts once it is older than `stale`. Between the two (both ends
included) the worse of push and probes counts, unless the manifest says otherwise: a probe may then take an endpoint out and not
bring it in. Draining is final for its generation, whatever its age. Claims decide readiness, traffic and availability, never
liveness. Called by `replicas/roster` for containers that push or that an override is about.
"""

from typing import NamedTuple

from manifests.values.desired import MiddleZone, Push
from providers.facts import ContainerState, ProbeValue
from reconciler.core.health import overrides
from reconciler.core.health.belief import Belief, By, Claim
from reconciler.core.health.push_channel import Channel
from reconciler.core.model.instant import FOREVER, Now, due
from reconciler.core.model.override import Force, Override
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.core.model.reasons import Reason

_PASS, _FAIL, _UNKNOWN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN

_PUSHED = {
    PushEvent.READY: Reason.PUSHED_READY,
    PushEvent.NOT_READY: Reason.PUSHED_NOT_READY,
    PushEvent.STARTUP: Reason.PUSHED_STARTUP,
    PushEvent.DRAINING: Reason.PUSHED_DRAINING,
}


class Ruling(NamedTuple):
    """Readiness after a push: `by` the source that decides, `out` for a fresh push of not ready, `until` when it may change."""

    ready: ProbeValue
    by: By
    out: bool
    until: int
    reason: Reason | None = None


def rule(push: PushFact, rules: Push, observer: ProbeValue, suspect: bool, steady: int) -> Ruling:
    """The decision matrix over the latest push, its age and the readiness that the probes answer.

    Args:
        push: the latest push of this generation.
        rules: the windows (ns).
        observer: readiness as the probes answer it.
        suspect: the push channel is suspect, so silence decides nothing: where it would, nothing changes.
        steady: now (ns).
    """
    fresh_end, stale_end = push.at + rules.fresh, push.at + rules.stale
    if push.event is PushEvent.DRAINING:
        return Ruling(_FAIL, By.PUSH, True, FOREVER, Reason.PUSHED_DRAINING)
    ends = FOREVER
    if push.event is PushEvent.STARTUP:
        ends = push.since + rules.startup_deadline
        if ends <= steady:
            return Ruling(observer, By.OBSERVER, False, FOREVER)
    pushed, reason = (_PASS if push.event is PushEvent.READY else _FAIL), _PUSHED[push.event]
    if steady < fresh_end:
        return Ruling(pushed, By.PUSH, pushed is _FAIL, min(fresh_end, ends), reason)
    if suspect:
        if pushed is observer:
            return Ruling(pushed, By.BOTH, False, ends, reason)
        return Ruling(_UNKNOWN, By.UNDECIDED, False, ends, Reason.PUSH_CHANNEL_SUSPECT)
    if steady > stale_end:
        return Ruling(observer, By.OBSERVER, False, FOREVER)
    until = min(stale_end + 1, ends)
    if rules.middle_zone is MiddleZone.HOLD:
        return Ruling(pushed, By.PUSH, False, until, reason)
    if rules.middle_zone is MiddleZone.OBSERVER:
        return Ruling(observer, By.OBSERVER, False, until)
    if pushed is _FAIL:
        return Ruling(_FAIL, By.BOTH, False, until, reason)
    return Ruling(observer, By.BOTH, False, until)


def apply_push(belief: Belief, push: PushFact | None, rules: Push | None, channel: Channel, now: Now) -> Belief:
    """The belief of the probes after the container's own push. A push of a container that does not run does not count."""
    if push is None or rules is None or belief.fact.state is not ContainerState.RUNNING:
        return belief
    steady = now.steady
    ruling = rule(push, rules, belief.ready, channel.suspect and rules.heartbeats, steady)
    draining = push.event is PushEvent.DRAINING
    overruled = ruling.ready is not belief.ready and _UNKNOWN not in (ruling.ready, belief.ready)
    since = belief.since
    if ruling.ready is _PASS and push.event is PushEvent.READY and ruling.by is not By.OBSERVER:
        pushed_since = max(push.since, belief.fact.running_since)
        since = pushed_since if belief.ready is not _PASS else min(pushed_since, since)
    until = min(belief.until, ruling.until)
    if steady >= push.at + rules.fresh:
        until = min(until, channel.until)  # whether silence counts depends on the other senders
    reason = belief.reason if ruling.reason is None else ruling.reason
    claim = Claim(ruling.by, ruling.out, draining, belief.ready, overruled, push.since)
    return belief._replace(ready=ruling.ready, since=since, until=until, reason=reason, claim=claim)


def drained_since(belief: Belief) -> int:
    """Since when (steady) a running replica has been draining by its own push, which took it out of traffic; 0 = it is not.

    An operator who forces it up wants its traffic, and keeps it.
    """
    claim = belief.claim
    draining = claim is not None and claim.draining and belief.ready is _FAIL
    running = belief.fact.state is ContainerState.RUNNING
    return claim.said_at if claim is not None and draining and running else 0


def overdue_at(belief: Belief, rules: Push | None) -> int:
    """The steady instant from which a replica that pushed draining runs for too long; FOREVER where it did not push that."""
    since = drained_since(belief)
    return since + rules.drain_deadline if since and rules is not None else FOREVER


_OVERRIDDEN = {
    Force.DRAIN: (_FAIL, Reason.DRAINED_BY_OPERATOR),
    Force.DOWN: (_FAIL, Reason.FORCED_DOWN),
    Force.UP: (_PASS, Reason.FORCED_UP),
}


def apply_override(belief: Belief, override: Override, now: Now) -> Belief:
    """The belief after an operator's override. A container that does not run cannot be forced up."""
    if belief.fact.state is not ContainerState.RUNNING:
        return belief
    ready, reason = _OVERRIDDEN[override.force]
    observer = belief.ready if belief.claim is None else belief.claim.observer
    overruled = ready is not observer and observer is not _UNKNOWN
    since = max(due(override.at, 0, now), belief.fact.running_since) if belief.ready is not _PASS else belief.since
    until = min(belief.until, overrides.expires_at(override, now))
    draining = override.force is Force.DRAIN or (belief.claim is not None and belief.claim.draining)
    said_at = 0 if belief.claim is None or not belief.claim.draining else belief.claim.said_at
    claim = Claim(By.OVERRIDE, ready is _FAIL, draining, observer, overruled, said_at)
    return belief._replace(ready=ready, since=since if ready is _PASS else 0, until=until, reason=reason, claim=claim)
