"""Healing: the gates before a restart or recreation for failed health, in their order.

Each gate is a function of one candidate and the counters: it returns a hold, or None to let it pass. The operator reads the first
hold. A disruption passes the gates once: its grant then stands until it is over. Suspensions (suspend, deny, windows) come before,
in `gates`, because they stop every action. `gates` calls `heal`; `disruptions` calls `grace_of`.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import NamedTuple

from manifests.values.desired import SECOND, Container, Desired, Workload
from manifests.values.limits import Mode
from providers.facts import ContainerFact, ProbeValue
from reconciler.core.exits.grants import URGENT
from reconciler.core.healing import mass_failure, restart_counters
from reconciler.core.healing.restart_counters import RestartCounters
from reconciler.core.limits import backoff
from reconciler.core.model.instant import due
from reconciler.core.model.reasons import Hold, Reason, Rule
from reconciler.core.model.want import Want
from reconciler.core.replicas import exit_times, memory, passed_probes


class Candidate(NamedTuple):
    """The argument of a gate: one candidate of one workload, with the counters so far."""

    want: Want
    workload: Workload
    counters: RestartCounters


def _hold(want: Want, rule: Rule, message: str, until: int | None = None, next_step: str = "") -> Hold:
    return Hold(want.object, want.id, rule, message, until=until, next_step=next_step, held=want.held)


def _history_lost(candidate: Candidate) -> Hold | None:
    want, counters = candidate.want, candidate.counters
    if counters.ledger.history_lost is None:
        return None
    until = due(counters.ledger.history_lost, memory.history_lost_for(counters.snap.desired), counters.snap.now)
    message = "the ledger was lost, so the number of recent restarts is unknown"
    return _hold(want, Rule.LEDGER_LOST, message, until)


def _foreign_healer(candidate: Candidate) -> Hold | None:
    want = candidate.want
    healer = want.fact.healer if want.fact is not None else ""
    if not healer:
        return None
    message = f"{healer} already restarts {want.container} for its health"
    return _hold(
        want,
        Rule.FOREIGN_HEALER,
        message,
        next_step=f"remove {want.container} from {healer}, so that reconcile restarts it",
    )


def _prober_fault(candidate: Candidate) -> Hold | None:
    """Probes of many containers of a node that give no result at once point at the prober, not at the containers."""
    want, counters = candidate.want, candidate.counters
    erring, probed = counters.probing.get(want.node, (0, 0))
    if erring < 2 or erring * 2 < probed:
        return None
    message = f"the probes of {erring} of {probed} containers on {want.node} give no result, so the prober is suspect"
    next_step = f"check that the machine that probes {want.node} can reach it and is not overloaded"
    return _hold(want, Rule.PROBER_FAULT, message, next_step=next_step)


def _mass(candidate: Candidate) -> Hold | None:
    want, counters = candidate.want, candidate.counters
    if want.fact is None or want.fact.id not in counters.outbreaks.of:
        return None
    ends: dict[str, int] = {}
    for grant in counters.ledger.grants.values():
        end = exit_times.soonest_end(counters.snap, [grant])
        ends[grant.object] = min(end, ends.get(grant.object, end))
    return mass_failure.hold(counters.snap, counters.ledger, counters.outbreaks, want, ends)


def _turn(candidate: Candidate) -> Hold | None:
    """One restart at a time; more only within the budget, and once the start of a mass failure is ruled out."""
    want, workload, counters = candidate.want, candidate.workload, candidate.counters
    mine = counters.restarts_of(workload.key)
    if not mine:
        return None
    now = counters.snap.now
    until = max(exit_times.soonest_end(counters.snap, mine), now.steady + 1)
    prefix = f"{workload.key}/"
    every = len(counters.open_grants(prefix))
    if every >= workload.max_unavailable:
        message = (
            f"{mine[0].object} is being restarted ({mine[0].cause.value}); {workload.key} has {every} open "
            f"disruption{'' if every == 1 else 's'}, at most {max(1, workload.max_unavailable)} may be open"
        )
        return _hold(want, Rule.RESTART_IN_PROGRESS, message, until)
    settled = counters.outbreaks.settled_at.get(workload.key, now.steady)
    if settled > now.steady:
        message = f"{mine[0].object} is being restarted; other restarts wait until a mass failure is ruled out"
        return _hold(want, Rule.RESTART_IN_PROGRESS, message, min(until, settled))
    return None


def _failed(candidate: Candidate) -> Hold | None:
    want, workload, counters = candidate.want, candidate.workload, candidate.counters
    row = counters.ledger.escalations.get(want.object)
    if row is None or want.fact is None or not backoff.exhausted(row.tries, workload, want.fact):
        return None
    message = f"{want.object} did not become available after {row.tries} restarts in a row; restarts have stopped"
    next_step = f"find the cause, then run: reconcile resume {want.object}; a changed template has the same effect"
    probe = _never_passed(candidate, want.fact)
    if probe:
        revision = want.fact.mark.revision if want.fact.mark is not None else ""
        message += f"; its {probe} probe has never passed{f' in revision {revision[:8]}' if revision else ''}"
        next_step = f"check that its {probe} probe is configured correctly; if it is, {next_step}"
    elif others := _alive_elsewhere(candidate):
        message += f"; {others}"
        next_step = f"check whether {want.node} is the cause: its network, its disk, its load; if not, {next_step}"
    return _hold(want, Rule.FAILED, message, next_step=next_step)


def _never_passed(candidate: Candidate, fact: ContainerFact) -> str:
    """The probe that causes the restart if it never passed in this revision, so that it may be wrong itself; else empty.

    It holds nothing: an application that hangs in its first start looks the same.
    """
    key, counters = candidate.workload.key, candidate.counters
    container = counters.snap.roster.container_of(candidate.workload, fact)
    for name, probe in (("startup", container.startup), ("liveness", container.liveness)):
        if probe is not None and not passed_probes.has_passed(counters.ledger, key, fact, name):
            return name
    return ""


def _alive_elsewhere(candidate: Candidate) -> str:
    """That other replicas are alive and none of them on this node, so that the node may be the cause; else empty."""
    group = candidate.counters.snap.roster.groups[candidate.workload.key]
    nodes = [belief.fact.node for belief in group.current.values() if belief.live is ProbeValue.PASS]
    if not nodes or candidate.want.node in nodes:
        return ""
    return f"{len(nodes)} other replica{' is' if len(nodes) == 1 else 's are'} alive, but none on {candidate.want.node}"


def _back_off(candidate: Candidate) -> Hold | None:
    want, workload, counters = candidate.want, candidate.workload, candidate.counters
    failures = counters.ledger.failures.get(want.object)
    at = backoff.restart_at(want.object, failures, workload.restarts.backoff, counters.snap.now)
    if at <= counters.snap.now.steady or failures is None:
        return None
    return _hold(want, Rule.BACK_OFF, f"{want.object} failed {restart_counters.in_a_row(failures.streak)}", at)


def _attempts(candidate: Candidate) -> Hold | None:
    want, workload, counters = candidate.want, candidate.workload, candidate.counters
    rule, attempts = workload.restarts, counters.ledger.attempts.get(want.object, ())
    if not rule.limit:
        message = f"{want.object} is not restarted for its health: {workload.key} allows no restart"
        return _hold(want, Rule.RESTART_LIMIT, message, next_step=f"raise spec.restarts.limit of {workload.key}")
    at = backoff.attempts_left_at(attempts, rule.limit, rule.window, counters.snap.now)
    if at <= counters.snap.now.steady:
        return None
    return _hold(
        want,
        Rule.RESTART_LIMIT,
        f"{want.object} reached its limit of {rule.limit} restarts in {rule.window // SECOND}s",
        at,
    )


def _node(candidate: Candidate) -> Hold | None:
    want, counters = candidate.want, candidate.counters
    limit, grants = counters.snap.desired.guard.restarts.in_flight, counters.urgent_on(want.node)
    if len(grants) < limit:
        return None
    until = max(exit_times.soonest_end(counters.snap, grants), counters.snap.now.steady + 1)
    message = f"{len(grants)} replicas are being restarted on {want.node} (limit: {limit})"
    return _hold(want, Rule.NODE_RESTART_LIMIT, message, until)


def _rate(candidate: Candidate) -> Hold | None:
    want, workload, counters = candidate.want, candidate.workload, candidate.counters
    limits, taken, now = counters.snap.desired.guard.restarts, counters.ledger.restarted, counters.snap.now
    for name, rate, mine in (
        (
            workload.key,
            limits.workload,
            [restarts for key, restarts in taken.items() if key.partition("|")[2] == workload.key],
        ),
        (
            f"node {want.node}",
            limits.node,
            [restarts for key, restarts in taken.items() if key.partition("|")[0] == want.node],
        ),
        ("all nodes", limits.total, list(taken.values())),
    ):
        at = backoff.next_at([at for restarts in mine for at in restarts], rate, now)
        if at > now.steady:
            message = f"{name} reached its restart rate: {rate.per_minute} a minute, {rate.burst} at once"
            return _hold(want, Rule.RATE, message, at)
    return None


def _observe(candidate: Candidate) -> Hold | None:
    want, workload, counters = candidate.want, candidate.workload, candidate.counters
    why = observes(counters.snap.desired, workload)
    if not why:
        return None
    return _hold(want, Rule.OBSERVE_ONLY, f"{want.container} is due for a restart, but {why}", next_step=_ACT)


_ACT = "set restarts.mode to act and restarts.share to 100 in the Guard, and restarts.mode to act in the workload"


def observes(desired: Desired, workload: Workload) -> str:
    """Why restarts of this workload are only reported and not done; empty when they are done."""
    guard = desired.guard.restarts
    if guard.mode is Mode.OBSERVE:
        return "the Guard only observes (spec.restarts.mode)"
    if workload.restarts.mode is Mode.OBSERVE:
        return f"{workload.key} only observes (spec.restarts.mode)"
    place = int.from_bytes(sha256(workload.key.encode()).digest()[:8]) % 100
    if place >= guard.share:
        return (
            f"{workload.key} is not among the {guard.share}% of workloads that the Guard lets act (spec.restarts.share)"
        )
    return ""


_GATES = (
    _history_lost,
    _foreign_healer,
    _prober_fault,
    _failed,
    _mass,
    _turn,
    _back_off,
    _attempts,
    _node,
    _rate,
    _observe,
)


_LASTING = (_foreign_healer, _failed, _attempts, _observe)
"""Gates with holds that only an operator ends."""

_LIMITS = (_history_lost, _foreign_healer, _attempts, _rate, _observe)


def limit(want: Want, workload: Workload, counters: RestartCounters) -> Hold | None:
    """Ask the limits of restarts about the replacement of a replica that pushed draining and does not exit.

    It is no failure: neither the back-off nor the rules of a mass failure apply. The caller asks the budget, and grants it.
    """
    return _first(_LIMITS, Candidate(want, workload, counters))


def lasting(want: Want, workload: Workload, counters: RestartCounters) -> Hold | None:
    """The hold of a restart for failed health that does not end by itself, whatever else holds it now."""
    candidate = Candidate(want, workload, counters)
    return next((hold for gate in _LASTING if (hold := gate(candidate)) is not None and hold.until is None), None)


def _first(gates: Iterable[Callable[[Candidate], Hold | None]], candidate: Candidate) -> Hold | None:
    """The first hold; one that does not end by itself comes before one that does, because then nothing happens at its end."""
    first = next((hold for gate in gates if (hold := gate(candidate)) is not None), None)
    if first is None or first.until is None:
        return first
    return lasting(*candidate) or first


def heal(want: Want, workload: Workload, counters: RestartCounters) -> Hold | None:
    """Ask all gates about one restart or recreation for failed health; grant it when none holds."""
    hold = _first(_GATES, Candidate(want, workload, counters))
    if hold is None:
        counters.grant(want)
    return hold


def grace_of(container: Container, cause: Reason, pod_grace: int) -> int:
    """How long a container may take to stop (ns): the grace of the failed probe, else that of its pod."""
    if cause not in URGENT:
        return pod_grace
    probe = container.startup if cause is Reason.STARTUP_FAILED else container.liveness
    return probe.grace if probe is not None and probe.grace else pod_grace
