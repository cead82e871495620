"""The events between two decisions, as rows for the audit: begun and ended holds, changed verdicts, progress of requests.

Pure functions over decisions. `reporting.py` calls `changes` for every decision that it reports; `reconcile events` shows the rows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from providers.facts import ContainerFact, Generation, ProbeFact, Probes, ProbeValue
from reconciler.core.decision import Decision
from reconciler.core.model import suspension_scope
from reconciler.core.model.adopted import Adopted
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Grant, Suspension
from reconciler.core.model.ledger_fold import Command, Outcome
from reconciler.core.model.override import Force, Override
from reconciler.core.model.reasons import Hold
from reconciler.core.model.restart_request import Fate, Request
from reconciler.core.model.source_problem import OBJECT, named
from reconciler.core.model.step import Step
from reconciler.core.replicas.ends import End, Removal
from reconciler.core.status.objects import replicas_of
from reconciler.shell.clock import utc
from reconciler.shell.report.followed import Followed, Reaction
from reconciler.shell.store.audit import Event, HoldKey

PROBES = ("startup", "liveness", "readiness")

ADOPTION = frozenset({"adopted", "left"})
"""Kinds of events that also go to the reporter: another owner's container became a replica, or is no longer one."""


@dataclass(frozen=True, slots=True)
class LastReport:
    """The state of the previous decision that the events are computed from. `held` comes from the store after a restart."""

    held: Mapping[HoldKey, str] = field(default_factory=dict)
    probes: Mapping[Generation, Probes] = field(default_factory=dict)
    requests: Mapping[str, Request] = field(default_factory=dict)
    suspensions: Mapping[str, Suspension] = field(default_factory=dict)
    adopted: Mapping[str, Adopted] = field(default_factory=dict)
    overrides: Mapping[str, Override] = field(default_factory=dict)
    grants: Mapping[str, Grant] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pending:
    """An event whose outcome is known when the calls that follow from it have ended."""

    event: Event
    reaction: Reaction

    @property
    def steps(self) -> list[Step]:
        """The steps whose outcomes its event reports."""
        return [step for step, _ in self.reaction.begun]

    def with_outcomes(self, outcomes: Mapping[int, Outcome]) -> Event:
        """The event with what followed, as far as it is known: outcomes by `id(step)`."""
        return self.event._replace(outcome=self.reaction.text(outcomes))


def changes(before: LastReport, decision: Decision, now: Now) -> tuple[LastReport, list[Event], list[Pending]]:
    """The state of this decision for the next call, the events since the previous decision, and those whose steps have just begun."""
    holds: dict[HoldKey, list[Hold]] = {}
    for hold in decision.holds:
        holds.setdefault(HoldKey(hold.object, hold.action, hold.rule.value), []).append(hold)
    held = {key: "; ".join(hold.message for hold in of_key) for key, of_key in holds.items()}
    events = [_held(hold, now) for key, of_key in holds.items() if key not in before.held for hold in of_key]
    events += [
        Event(now.wall, "released", key.object, key.action, key.rule, "", message)
        for key, message in sorted(before.held.items())
        if key not in held
    ]
    adopted = decision.ledger.adopted
    if adopted is not before.adopted:
        events += _adoptions(before.adopted, adopted, now)
    probes, pending = decision.status.observed.probes, list[Pending]()
    grants = decision.ledger.grants
    if decision.unsettled:
        # The next decision follows at once, and only its steps tell what followed from new verdicts.
        probes, grants = before.probes, before.grants
    elif probes is not before.probes:
        pending = _verdicts(before, decision, now)
        events += [verdict.with_outcomes({}) for verdict in pending if not verdict.steps]
    requests = decision.ledger.requests
    if requests is not before.requests:
        events += _requests(before.requests, requests, now)
    suspensions = decision.ledger.suspensions
    if suspensions is not before.suspensions:
        events += _suspensions(before.suspensions, suspensions, now)
    overrides = decision.ledger.overrides
    if overrides is not before.overrides:
        events += _overrides(before.overrides, overrides, now)
    last = LastReport(held, probes, requests, suspensions, adopted, overrides, grants)
    return last, events, [verdict for verdict in pending if verdict.steps]


def end_event(end: End, now: Now) -> Event:
    """The end of a container or of one of its processes: how, and who started it again."""
    return Event(now.wall, "exit", end.object, f"end {end.fact.name}", end.reason.value, end.again, end.message)


def removal_event(removal: Removal, now: Now) -> Event:
    """Another program removed a container."""
    step = f"removal of {removal.name}"
    return Event(now.wall, "removed", removal.object, step, "Removed", "not by reconcile", removal.message)


def manifests_event(revision: str, commit: str, source: str, now: Now) -> Event:
    """Other manifests are in force than before."""
    name = named(revision, commit)
    return Event(
        now.wall, "manifests", OBJECT, f"use revision {name}", "ManifestsChanged", "in force", f"read from {source}"
    )


def source_event(text: str, now: Now) -> Event:
    """Something happened at the source of the manifests, such as a rewritten history."""
    return Event(now.wall, "source", OBJECT, "read the source", "SourceNews", "", text)


APPROVED_SHOWN = 20
"""Most changes that the event of an approval lists."""


def approved_changes(command: Command, holds: Iterable[Hold]) -> str:
    """What an approval is for, by the holds of the decision before it; empty for another command, and when these do not show it."""
    if command.verb != "approve":
        return ""
    waiting = [hold for hold in holds if hold.item]
    mine = [hold for hold in waiting if hold.item == command.object or hold.item in command.items]
    mine = mine or [hold for hold in waiting if command.object in hold.next_step]
    listed = [f"{hold.object}: {hold.action}: {hold.message}" for hold in mine]
    more = len(listed) - APPROVED_SHOWN
    return "; ".join([*listed[:APPROVED_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def command_event(command: Command, now: Now, approved: str = "") -> Event:
    """The order of an operator, as it was taken: also one that changes nothing, so that each has one line with who gave it.

    `approved`: the changes that an approval is for.
    """
    request, obj, words = command.request, command.object, [command.verb, command.value]
    if request is not None:
        obj = request.object
        words.append(command.object)
        words.append(f"of container {request.only}" if request.only else "")
    elif command.verb == "approve":
        obj, words = "", ["approve", command.object]
    elif obj == "*":
        obj = ""
        words.append("everything")
    elif command.verb in {"suspend", "resume"}:
        words.append(_scope_words(obj).strip())
        obj = _suspended_object(obj)
    words += ["--force" if command.forced else "", "--probes" if command.probes else ""]
    if command.until_wall:
        words.append(f"until {utc(command.until_wall):%Y-%m-%dT%H:%M:%SZ}")
    reason = (command.reason if request is None else request.reason) or "no reason given"
    who = command.who or "unknown"
    if command.verb == "approve":
        reason = f"{reason}; approved: {approved}" if approved else reason
        who = f"{command.value} (user {who})" if command.value else who
    return Event(
        now.wall, "command", obj, " ".join(word for word in words if word), "Ordered", f"by {who}", reason, who
    )


def _adoptions(before: Mapping[str, Adopted], after: Mapping[str, Adopted], now: Now) -> list[Event]:
    """Containers that were adopted, and containers that are no longer replicas."""
    events: list[Event] = []
    adopted_now = {name: row for name, row in after.items() if not row.left}
    adopted_before = {name: row for name, row in before.items() if not row.left}
    for name, row in sorted(adopted_now.items()):
        if name not in adopted_before:
            message = f"{row.name} ({name[:12]}) on {row.node} was adopted as a replica; the container runs on"
            events.append(_adoption("adopted", row, "Adopted", message, now))
    for name, row in sorted(adopted_before.items()):
        if name not in adopted_now:
            tail = "; the container stays unchanged, because reconcile did not create it" if name in after else ""
            message = f"{row.name} ({name[:12]}) on {row.node} is no longer a replica{tail}"
            events.append(_adoption("left", row, "Released", message, now))
    return events


def _adoption(kind: str, row: Adopted, cause: str, message: str, now: Now) -> Event:
    return Event(now.wall, kind, f"{row.workload}/{row.ordinal}", f"adopt {row.name}", cause, "", message)


def _held(hold: Hold, now: Now) -> Event:
    tail = f"; next step: {hold.next_step}" if hold.next_step else ""
    return Event(now.wall, "held", hold.object, hold.action, hold.rule.value, "", f"{hold.message}{tail}")


def _suspensions(before: Mapping[str, Suspension], after: Mapping[str, Suspension], now: Now) -> list[Event]:
    """Suspensions that began, and that were resumed or expired."""
    begun = [
        Event(
            now.wall,
            "suspended",
            _suspended_object(name),
            _suspended_words(name),
            "Suspended",
            f"by {suspension.who or 'unknown'}",
            f"{suspension.reason or 'no reason given'}{', including probes' if suspension.probes else ''}",
        )
        for name, suspension in sorted(after.items())
        if before.get(name) != suspension
    ]
    ended = [
        Event(now.wall, "resumed", _suspended_object(name), _resumed_words(name), "Suspended", "", suspension.reason)
        for name, suspension in sorted(before.items())
        if name not in after
    ]
    return begun + ended


def _suspended_object(key: str) -> str:
    """The object of the event of a suspension; empty when it is of everything."""
    obj = suspension_scope.parse(key).object
    return "" if obj == "*" else obj


def _suspended_words(key: str) -> str:
    return "suspend everything" if key == "*" else "suspend" + _scope_words(key)


def _resumed_words(key: str) -> str:
    return "resume" + _scope_words(key)


def _scope_words(key: str) -> str:
    scope = suspension_scope.parse(key).scope
    return "" if scope is suspension_scope.Scope.ALL else f" {scope.value}"


def _overrides(before: Mapping[str, Override], after: Mapping[str, Override], now: Now) -> list[Event]:
    """Overrides that were given or began, and that were released or expired."""
    begun = [
        Event(
            now.wall,
            "ordered",
            name,
            f"{_verb(override)}{' (held)' if override.waits else ' --force' if override.forced else ''}",
            "Overridden",
            f"by {override.who or 'unknown'}",
            override.reason or "no reason given",
        )
        for name, override in sorted(after.items())
        if before.get(name) != override
    ]
    ended = [
        Event(now.wall, "ended", name, f"release {_verb(override)}", "Overridden", "", override.reason)
        for name, override in sorted(before.items())
        if name not in after
    ]
    return begun + ended


def _verb(override: Override) -> str:
    return override.force.value if override.force is Force.DRAIN else f"force {override.force.value}"


def _requests(before: Mapping[str, Request], after: Mapping[str, Request], now: Now) -> list[Event]:
    """New restart requests, decided members, and finished requests."""
    events: list[Event] = []
    for name, request in sorted(after.items()):
        old = before.get(name)
        if old is request:
            continue
        who = request.who or "unknown"
        if old is None and request.finished is None:
            why = request.reason or "no reason given"
            if request.only:
                why = f"container {request.only}: {why}"
            events.append(
                Event(now.wall, "request", request.object, f"restart {name}", "Requested", f"requested by {who}", why)
            )
        known = {} if old is None or old.members is None else {member.object: member.fate for member in old.members}
        events += [
            Event(now.wall, "request", member.object, f"restart {name}", "Requested", member.fate.value, member.message)
            for member in request.members or ()
            if member.fate is not known.get(member.object) and member.fate is not Fate.WAITING
        ]
        if request.finished is not None and (old is None or old.finished is None):
            result = "succeeded" if request.succeeded else "failed"
            events.append(
                Event(now.wall, "request", request.object, f"restart {name}", "Requested", result, request.message)
            )
    return events


def _verdicts(last: LastReport, decision: Decision, now: Now) -> list[Pending]:
    """Verdicts that changed. The first verdict of a generation counts only when it is not a pass."""
    before, verdicts = last.probes, list[Pending]()
    facts: dict[Generation, tuple[str, ContainerFact]] | None = None
    followed: Followed | None = None
    for generation, probes in decision.status.observed.probes.items():
        earlier = before.get(generation)
        if earlier is probes:
            continue
        for name in PROBES:
            fact: ProbeFact | None = getattr(probes, name)
            if fact is None:
                continue
            old: ProbeFact | None = None if earlier is None else getattr(earlier, name)
            was = ProbeValue.UNKNOWN if old is None else old.value
            if was is fact.value or (was is ProbeValue.UNKNOWN and fact.value is ProbeValue.PASS):
                continue
            if facts is None or followed is None:
                facts, followed = replicas_of(decision.status), Followed(decision, last.grants)
            if generation not in facts:
                continue
            obj, container = facts[generation]
            text = f"{fact.streak}/{fact.threshold}" + (f": {fact.detail}" if fact.detail else "")
            reaction = followed.reaction(container, name, fact.value)
            cause = f"{was.value} -> {fact.value.value}"
            event = Event(now.wall, "verdict", obj, f"{name} of {container.name}", cause, "", text)
            verdicts.append(Pending(event, reaction))
    return sorted(verdicts, key=lambda verdict: verdict.event)
