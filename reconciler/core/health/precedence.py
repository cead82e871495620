"""Authority: whose word decides whether a running container is ready. Facts first, then a person, then its own fresh push, then probes.

A push is fresh while it is younger than `fresh`, and says nothing any more once it is older than `stale`. Between the two (both ends
included) the worse of push and probes counts, unless the manifest says otherwise: a probe may then take an endpoint out and not
bring it in. Draining is final for its generation, whatever its age. Words decide readiness, traffic and availability, never liveness.
Called by `activation` for containers that push or that a person gave an order about.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from manifests.values.desired import MiddleZone, Push
from providers.facts import ContainerFact, ContainerState, Generation, ProbeValue
from reconciler.core.health import overrides
from reconciler.core.health.belief import Belief, By, Claim
from reconciler.core.health.pushes import Channel, channel
from reconciler.core.model.instant import FOREVER, Now, due
from reconciler.core.model.override import Force, Override
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.core.model.reasons import Reason

_PASS, _FAIL, _UNKNOWN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN

_SAYS = {
    PushEvent.READY: Reason.PUSHED_READY,
    PushEvent.NOT_READY: Reason.PUSHED_NOT_READY,
    PushEvent.STARTUP: Reason.PUSHED_STARTUP,
    PushEvent.DRAINING: Reason.PUSHED_DRAINING,
}

NO_CHANNEL = Channel(False, 0, 0, FOREVER)
"""Nobody pushes, so nothing can be suspected of the way of the pushes."""


class Ruling(NamedTuple):
    """What a push makes of readiness: `by` whom it is decided, `out` an own fresh word that it is not ready, `until` when it may change."""

    ready: ProbeValue
    by: By
    out: bool
    until: int
    reason: Reason | None = None


def rule(push: PushFact, rules: Push, observer: ProbeValue, suspect: bool, steady: int) -> Ruling:
    """The decision matrix: the latest push, its age and what the probes say of readiness.

    Args:
        push: the latest push of this generation.
        rules: the windows (ns).
        observer: what the probes say.
        suspect: the way of the pushes is suspected, so that silence decides nothing: where it would, nothing changes.
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
    word = _PASS if push.event is PushEvent.READY else _FAIL
    says = _SAYS[push.event]
    if steady < fresh_end:
        return Ruling(word, By.PUSH, word is _FAIL, min(fresh_end, ends), says)
    if suspect:
        if word is observer:
            return Ruling(word, By.BOTH, False, ends, says)
        return Ruling(_UNKNOWN, By.UNDECIDED, False, ends, Reason.PUSH_CHANNEL_SUSPECT)
    if steady > stale_end:
        return Ruling(observer, By.OBSERVER, False, FOREVER)
    until = min(stale_end + 1, ends)
    if rules.middle_zone is MiddleZone.HOLD:
        return Ruling(word, By.PUSH, False, until, says)
    if rules.middle_zone is MiddleZone.OBSERVER:
        return Ruling(observer, By.OBSERVER, False, until)
    if word is _FAIL:
        return Ruling(_FAIL, By.BOTH, False, until, says)
    return Ruling(observer, By.BOTH, False, until)


def apply_push(belief: Belief, push: PushFact | None, rules: Push | None, way: Channel, now: Now) -> Belief:
    """A belief of the probes after the container's own push. Of what does not run, no push says anything."""
    if push is None or rules is None or belief.fact.state is not ContainerState.RUNNING:
        return belief
    steady = now.steady
    ruling = rule(push, rules, belief.ready, way.suspect and rules.heartbeats, steady)
    draining = push.event is PushEvent.DRAINING
    overruled = ruling.ready is not belief.ready and _UNKNOWN not in (ruling.ready, belief.ready)
    since = belief.since
    if ruling.ready is _PASS and push.event is PushEvent.READY and ruling.by is not By.OBSERVER:
        said = max(push.since, belief.fact.running_since)
        since = said if belief.ready is not _PASS else min(said, since)
    until = min(belief.until, ruling.until)
    if steady >= push.at + rules.fresh:
        until = min(until, way.until)  # whether silence counts depends on the others
    reason = belief.reason if ruling.reason is None else ruling.reason
    claim = Claim(ruling.by, ruling.out, draining, belief.ready, overruled, push.since)
    return belief._replace(ready=ruling.ready, since=since, until=until, reason=reason, claim=claim)


_ORDERED = {
    Force.DRAIN: (_FAIL, Reason.DRAINED_BY_OPERATOR),
    Force.DOWN: (_FAIL, Reason.FORCED_DOWN),
    Force.UP: (_PASS, Reason.FORCED_UP),
}


def apply_override(belief: Belief, override: Override, now: Now) -> Belief:
    """A belief after a person's order. What does not run cannot be ordered to be ready."""
    if belief.fact.state is not ContainerState.RUNNING:
        return belief
    ready, reason = _ORDERED[override.force]
    observer = belief.ready if belief.claim is None else belief.claim.observer
    overruled = ready is not observer and observer is not _UNKNOWN
    since = max(due(override.at, 0, now), belief.fact.running_since) if belief.ready is not _PASS else belief.since
    until = min(belief.until, overrides.expires_at(override, now))
    draining = override.force is Force.DRAIN or (belief.claim is not None and belief.claim.draining)
    claim = Claim(By.OVERRIDE, ready is _FAIL, draining, observer, overruled)
    return belief._replace(ready=ready, since=since if ready is _PASS else 0, until=until, reason=reason, claim=claim)


def push_channel(
    senders: Iterable[tuple[Push, ContainerFact]], pushes: Mapping[Generation, PushFact], steady: int
) -> Channel:
    """How far the way of the pushes is to be trusted, from all containers that may push."""
    return channel(
        (
            (rules, pushes[fact.generation])
            for rules, fact in senders
            if fact.state is ContainerState.RUNNING and fact.generation in pushes
        ),
        steady,
    )
