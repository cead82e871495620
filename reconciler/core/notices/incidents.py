"""Incidents: which symptoms have one cause, and when a notice about it is due. Called by the notifier with each decision.

A dependency that fails takes many objects with it, one after another, as their probes find out. So the first notice waits until no more
objects join (`QUIET`), and an incident is open for those that follow (`JOIN`). What begins later is another incident, also while an old one
lasts, so that an object that has been bad for days hides nothing. An end is believed after `SETTLE`, later with every return.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from manifests.values.desired import SECOND
from manifests.values.notices import Topic
from reconciler.core.model.instant import FOREVER, Now, due, elapsed, instant
from reconciler.core.notices.model import LINES, MINUTE, Closed, Incident, Member, Notice, Phase, Symptom, subject

QUIET = 20 * SECOND
"""Time (ns) without another object after which the first notice is made."""

GATHER = 3 * MINUTE
"""Time (ns) after which the first notice is made although more objects join."""

JOIN = 5 * MINUTE
"""Time (ns) after the latest object within which another one has the same cause."""

UPDATE = 5 * MINUTE
"""Time (ns) between two notices that name more objects of one incident."""

SETTLE = 2 * MINUTE
"""Time (ns) without symptoms after which an incident is over; doubled with every return, up to `LONGEST_SETTLE`."""

LONGEST_SETTLE = 60 * MINUTE

RETURNS = 6 * 60 * MINUTE
"""Time (ns) within which a cause that comes back counts as the same, returned."""

CLOSED = 200
"""Incidents that are over and remembered for `RETURNS`."""

OPEN = 200
MEMBERS = 2000
"""The most open incidents, and objects of one; what is beyond is counted with the last one of its kind."""

TITLES = {
    "source": "the manifests are refused",
    "new commits": "new commits wait for an operator",
    "source unreadable": "the manifests cannot be read",
    "history lost": "the restart history is lost",
    "state directory": "the state directory cannot be written",
    "probe engine": "the probe engine does not run",
    "decision": "a rule of the program fails",
    "clock": "the clock of the host jumped",
}
"""Titles of causes that concern the whole instance."""


class State(NamedTuple):
    """What is remembered of incidents over restarts. `applied` is the revision that was last reported as applied and healthy."""

    open: tuple[Incident, ...] = ()
    closed: tuple[Closed, ...] = ()
    applied: str = ""


@dataclass(slots=True)
class Followed:
    """The state after a decision, the notices for all channels, and the steady instant at which this answer may change."""

    state: State
    notices: list[Notice] = field(default_factory=list)
    wake_at: int = FOREVER


def follow(
    state: State, symptoms: Iterable[Symptom], commit: str, now: Now, undecided: frozenset[str] = frozenset()
) -> Followed:
    """Sort the symptoms of a decision into incidents, and make the notices that are due.

    Args:
        state: what was remembered before.
        symptoms: all symptoms of the decision.
        commit: of the manifests in force, for the text; may be empty.
        now: the time of the decision.
        undecided: objects whose present symptoms are unknown; they keep those that they had.
    """
    by_cause: dict[tuple[str, str], dict[str, Symptom]] = {}
    for symptom in symptoms:
        by_cause.setdefault((symptom.kind, symptom.revision), {})[symptom.object] = symptom
    closed = tuple(row for row in state.closed if elapsed(row.at, now) < RETURNS)
    incidents = [
        _present(incident, by_cause.get((incident.kind, incident.revision), {}), undecided, now)
        for incident in state.open
    ]
    known = {(incident.kind, incident.revision, name) for incident in incidents for name in incident.members}
    for (kind, revision), found in sorted(by_cause.items()):
        fresh = {name: symptom for name, symptom in sorted(found.items()) if (kind, revision, name) not in known}
        if fresh:
            _join(incidents, fresh, closed, now)
    out = Followed(State(applied=state.applied))
    kept: list[Incident] = []
    for incident in incidents:
        after = _judge(incident, commit, now, out)
        if after is not None:
            kept.append(after)
        elif incident.reported is not None:
            closed = (*closed, Closed(incident.kind, incident.revision, incident.named, instant(now), incident.times))
    out.state = State(tuple(kept), closed[-CLOSED:], state.applied)
    return out


def _present(incident: Incident, found: Mapping[str, Symptom], undecided: frozenset[str], now: Now) -> Incident:
    """The incident with what its members show now. Before the first notice, members without a symptom are forgotten."""
    members: dict[str, Member] = {}
    for name, member in incident.members.items():
        symptom = found.get(name)
        if symptom is not None:
            members[name] = Member(symptom.message, symptom.next_step, symptom.operator)
        elif incident.reported is not None and name in undecided:
            members[name] = member
        elif incident.reported is not None:
            members[name] = member if member.gone is not None else member._replace(gone=instant(now))
    return incident if members == incident.members else incident._replace(members=members)


def _join(incidents: list[Incident], fresh: Mapping[str, Symptom], closed: tuple[Closed, ...], now: Now) -> None:
    """Put new symptoms of one kind and revision into the open incident that still takes them, or into a new one."""
    first = next(iter(fresh.values()))
    at = instant(now)
    members = {name: Member(symptom.message, symptom.next_step, symptom.operator) for name, symptom in fresh.items()}
    same = [
        (index, incident)
        for index, incident in enumerate(incidents)
        if (incident.kind, incident.revision) == (first.kind, first.revision)
    ]
    for index, incident in reversed(same):
        full = len(incidents) >= OPEN
        if first.revision or full or elapsed(incident.joined, now) < JOIN:
            room = max(0, MEMBERS - len(incident.members))
            added = dict(list(members.items())[:room])
            incidents[index] = incident._replace(members={**incident.members, **added}, joined=at)
            return
    if len(incidents) >= OPEN:
        return
    returned = [
        row.times + 1
        for row in closed
        if (row.kind, row.revision) == (first.kind, first.revision) and row.objects & fresh.keys()
    ]
    taken = {incident.id for incident in incidents}
    name = f"{first.kind} {first.revision[:12]} {now.wall}".replace("  ", " ")
    while name in taken:
        name += "+"
    members = dict(list(members.items())[:MEMBERS])
    incidents.append(
        Incident(
            name,
            first.kind,
            first.topic,
            first.revision,
            at,
            at,
            members,
            first.patience,
            times=max(returned, default=0),
        )
    )


def _judge(incident: Incident, commit: str, now: Now, out: Followed) -> Incident | None:
    """Make the notice of an incident that is due. None when the incident is over."""
    present = [name for name, member in incident.members.items() if member.gone is None]
    if incident.reported is None:
        if not present:
            return None
        ready = due(incident.began, incident.patience, now)
        quiet = due(incident.joined, QUIET, now) if incident.patience > QUIET else now.steady
        at = max(ready, min(quiet, due(incident.began, incident.patience + GATHER, now)))
        if at > now.steady:
            out.wake_at = min(out.wake_at, at)
            return incident
        if incident.topic is not Topic.SUSPENSION:  # the operator who suspended knows it; only reminders follow
            out.notices.append(notice(incident, Phase.BEGAN, commit, now))
        return incident._replace(reported=instant(now), named=frozenset(incident.members))
    if not present:
        last = [member.gone for member in incident.members.values() if member.gone is not None]
        settle = min(SETTLE << min(incident.times, 20), LONGEST_SETTLE)
        at = max(due(gone, settle, now) for gone in last)
        if at > now.steady:
            out.wake_at = min(out.wake_at, at)
            return incident
        if incident.topic is not Topic.SUSPENSION:
            out.notices.append(notice(incident, Phase.OVER, commit, now))
        return None
    if any(name not in incident.named for name in present):
        at = due(incident.reported, UPDATE, now)
        if at > now.steady:
            out.wake_at = min(out.wake_at, at)
            return incident
        if incident.topic is not Topic.SUSPENSION:
            out.notices.append(notice(incident, Phase.MORE, commit, now))
        return incident._replace(reported=instant(now), named=frozenset(incident.members))
    return incident


def reminders(state: State, channel: str, every: int, commit: str, now: Now) -> tuple[State, list[Notice], int]:
    """The reminders of a channel that are due, and the instant of the next one.

    An incident is reminded of while one of its objects waits for an operator, `every` ns after the first notice and the latest reminder.
    """
    if not every:
        return state, [], FOREVER
    made: list[Notice] = []
    kept: list[Incident] = []
    wake_at = FOREVER
    for incident in state.open:
        waits = any(member.operator and member.gone is None for member in incident.members.values())
        since = incident.reminded.get(channel, incident.reported)
        if waits and since is not None:
            at = due(since, every, now)
            if at <= now.steady:
                made.append(notice(incident, Phase.REMINDER, commit, now))
                incident = incident._replace(reminded={**incident.reminded, channel: instant(now)})  # noqa: PLW2901
                at = now.steady + every
            wake_at = min(wake_at, at)
        kept.append(incident)
    return (state._replace(open=tuple(kept)) if made else state), made, wake_at


def notice(incident: Incident, phase: Phase, commit: str, now: Now) -> Notice:
    """The notice about an incident. It names all its objects; at the end those that had it, before that those that have it."""
    members = {
        name: member for name, member in sorted(incident.members.items()) if phase is Phase.OVER or member.gone is None
    }
    shown = tuple((name, member.message) for name, member in list(members.items())[:LINES])
    steps = dict.fromkeys(member.next_step for member in members.values() if member.next_step)
    title = title_of(incident.kind, tuple(members), next(iter(members.values())).message)
    began = now.wall - elapsed(incident.began, now)
    return Notice(
        f"{incident.id} {phase.value} {now.wall if phase in _REPEATED else ''}".strip(),
        incident.id,
        phase,
        incident.topic,
        incident.kind,
        incident.revision,
        commit,
        title,
        shown,
        len(members) - len(shown),
        tuple(steps)[:5] if phase is not Phase.OVER else (),
        tuple(sorted(incident.members)),
        began,
        now.wall,
    )


_REPEATED = frozenset({Phase.MORE, Phase.REMINDER})


def title_of(kind: str, objects: tuple[str, ...], message: str) -> str:
    """What a cause is called, in one line."""
    named = subject(objects)
    verb = "is" if len(objects) == 1 else "are"
    if kind in TITLES:
        return TITLES[kind]
    if kind.startswith("provider "):
        count = sum(not name.startswith("provider/") for name in objects)
        affected = f"; it affects {count} workload{'s' if count != 1 else ''}" if count else ""
        return f"{kind} cannot be read{affected}"
    if kind == "suspension":
        return f"{'everything' if objects == ('*',) else named} {verb} suspended or overridden by an operator"
    texts = {
        "health": f"{named} {verb} not healthy",
        "rollout": f"the rollout of {named} failed",
        "steps": f"changes of {named} are refused",
        "conflict": f"{named} {verb} in conflict with another writer or owner",
        "secrets": f"secrets of {named} cannot be read",
        "approval": f"changes of {named} wait for an approval",
    }
    return texts.get(kind, f"{named}: {message}" if len(objects) == 1 else f"{named} wait for an operator")


def open_health(state: State) -> Iterator[Incident]:
    """The incidents about health that operators were informed of, and that last."""
    for incident in state.open:
        lasts = any(member.gone is None for member in incident.members.values())
        if incident.topic is Topic.HEALTH and incident.reported is not None and lasts:
            yield incident
