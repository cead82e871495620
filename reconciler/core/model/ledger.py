"""The ledger: what must be remembered over ticks, restarts of the program and of the host.

`decide` takes it as part of what is observed and returns it advanced; the shell stores its rows and folds in the outcomes
of steps. Every item can be lost without harm: restarts are found again in start times, revisions in labels, the inventory in
labels and ownership records; until they are, an empty ledger beside owned objects means that history was lost, and nothing is restarted.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from providers.facts import Generation
from reconciler.core.model import override, weight_memory
from reconciler.core.model.adopted import Adopted
from reconciler.core.model.dns_memory import NameRow, read_name
from reconciler.core.model.instant import NEVER, Instant, Now, instant, read_instant
from reconciler.core.model.override import Override
from reconciler.core.model.reasons import Reason
from reconciler.core.model.restart_request import Request, read_request
from reconciler.core.model.revision import RevisionMark, Rollout, read_rollout, tried_again
from reconciler.core.model.weight_memory import Cut, Leaving, Ready, Weighed


class Grant(NamedTuple):
    """The permission for one disruption of one generation. It counts against the budget until the disruption is over.

    `names_out` is when the address was first seen out of every name (then `ttl` ns are waited), `weight_out` when the weight
    was first read back as 0 in every pool (then the drain is waited); `pooled` tells that it ever carried weight.
    `recreate` tells that the container is removed and made anew: the grant then goes on, under the id of the removed one,
    until the replica is available again. `grace` and `drain` (ns) are a person's, None = as the manifest says.
    `quiet` is since when nothing is in flight, `epochs` which processes of the balancers counted that when the drain began.
    `only` names the one container of the replica that is meant, as in `StopContainer`; empty = all of them.
    """

    object: str
    generation: Generation
    cause: Reason
    at: Instant
    names_out: Instant | None = None
    ttl: int = 0
    weight_out: Instant | None = None
    pooled: bool = False
    recreate: bool = False
    grace: int | None = None
    drain: int | None = None
    quiet: Instant | None = None
    epochs: str = ""
    only: str = ""


class Failures(NamedTuple):
    """Consecutive failures of one replica: how many, when the last one was seen, and of which generation."""

    streak: int
    last: Instant
    generation: Generation


class Escalation(NamedTuple):
    """Restarts for health in a row after which a replica did not become available; of which revision, since when."""

    tries: int
    revision: str
    since: Instant


class Outbreak(NamedTuple):
    """A mass failure of one group: `canary` is the replica that is restarted first (empty = none under way).

    `failures` counts canaries that did not become available, `last` is when the latest of them was seen (None = it did), and
    `calm` since when the group is not that bad any more.
    """

    since: Instant
    canary: str = ""
    failures: int = 0
    last: Instant | None = None
    calm: Instant | None = None


class StepFailure(NamedTuple):
    """Consecutive failures of one step. `stop` tells that trying the same again cannot help."""

    streak: int
    last: Instant
    stop: bool
    message: str


class Suspension(NamedTuple):
    """A person's word that our actions on an object stop. `until_wall` is its expiry (0 = until resumed).

    `probes` tells that its probes stop as well: then nothing is known of its health.
    """

    who: str
    reason: str
    until_wall: int
    probes: bool = False


class Absence(NamedTuple):
    """Since when an owned object is absent from complete reads of this revision of the source."""

    since: Instant
    revision: str


class PushRow(NamedTuple):
    """The last push of a container: what outlives the program.

    `since` is when this event was first heard in a row, `at` when it was last heard; that and `seq` may lag behind. `nonce` is
    that of the sender's credentials, `earlier` holds (boot, start of its generation) of the senders' runs that are over.
    """

    generation: Generation
    event: str
    since: Instant
    at: Instant
    boot: str
    seq: int
    inflight: int | None
    nonce: str
    earlier: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """All of it. Mappings are never changed in place.

    grants: container id -> open grant (a name may exist on two nodes while a replica moves). attempts: replica -> instants of health restarts. failures: replica -> streak.
    step_failures: step id -> failure. wanted: candidate -> since when it is wanted. suspensions: object key or `*`.
    restarted: `node|workload key` -> instants of restarts for health. escalations: replica. outbreaks: workload key or `node/NAME`.
    runtime_restarts: container id -> the runtime's own count when last seen. taken_over: replicas whose restarting we took over from it.
    revisions, rollouts: workload key. clock: wall against steady time when that was last looked at for a rollout. absences: object -> absence. passed: probe paths that ever passed.
    zones: `provider/zone` where we publish or have published. source: identity of the source whose inventory this is.
    history_lost: since when history is missing. approvals: plan hashes a person approved.
    requests: id -> restart request. pushes: container id -> its last push. adopted: container id -> what a workload took over.
    ready: container id -> since when it has been ready. weighed, cuts: `provider/pool` -> its members' weights, and which lost theirs
    for health lately. panics: `provider/pool` -> since when too few of it are ready. overrides: object -> a person's order.
    names: key of a policy or record -> what its names wait for. pins: `workload key@revision` -> (container, digest) that it is made from.
    templates: `workload key@revision` -> its template as JSON, while it may still be needed and is not declared any more.
    exit_times: workload key -> how its containers leave, by its last manifest.
    """

    grants: Mapping[str, Grant] = field(default_factory=dict)
    attempts: Mapping[str, tuple[Instant, ...]] = field(default_factory=dict)
    failures: Mapping[str, Failures] = field(default_factory=dict)
    step_failures: Mapping[str, StepFailure] = field(default_factory=dict)
    wanted: Mapping[str, Instant] = field(default_factory=dict)
    restarted: Mapping[str, tuple[Instant, ...]] = field(default_factory=dict)
    escalations: Mapping[str, Escalation] = field(default_factory=dict)
    outbreaks: Mapping[str, Outbreak] = field(default_factory=dict)
    runtime_restarts: Mapping[str, int] = field(default_factory=dict)
    taken_over: frozenset[str] = frozenset()
    suspensions: Mapping[str, Suspension] = field(default_factory=dict)
    revisions: Mapping[str, RevisionMark] = field(default_factory=dict)
    rollouts: Mapping[str, Rollout] = field(default_factory=dict)
    clock: Instant | None = None
    absences: Mapping[str, Absence] = field(default_factory=dict)
    pushes: Mapping[str, PushRow] = field(default_factory=dict)
    passed: frozenset[str] = frozenset()
    zones: frozenset[str] = frozenset()
    source: str = ""
    history_lost: Instant | None = None
    approvals: frozenset[str] = frozenset()
    requests: Mapping[str, Request] = field(default_factory=dict)
    adopted: Mapping[str, Adopted] = field(default_factory=dict)
    ready: Mapping[str, Ready] = field(default_factory=dict)
    weighed: Mapping[str, tuple[Weighed, ...]] = field(default_factory=dict)
    cuts: Mapping[str, tuple[Cut, ...]] = field(default_factory=dict)
    panics: Mapping[str, Instant] = field(default_factory=dict)
    overrides: Mapping[str, Override] = field(default_factory=dict)
    names: Mapping[str, NameRow] = field(default_factory=dict)
    pins: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)
    exit_times: Mapping[str, Leaving] = field(default_factory=dict)


# --- outcomes ---------------------------------------------------------------------------------------------------


class OutcomeKind(StrEnum):
    """How a step ended, for its dependents and for the back-off."""

    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


class Outcome(NamedTuple):
    """What came of one step."""

    step: str
    kind: OutcomeKind
    message: str = ""


def fold(ledger: Ledger, outcomes: tuple[Outcome, ...], now: Now) -> Ledger:
    """The ledger after these outcomes: failures start or lengthen a back-off, success ends it."""
    failures = dict(ledger.step_failures)
    for outcome in outcomes:
        if outcome.kind is OutcomeKind.DONE:
            failures.pop(outcome.step, None)
        elif outcome.kind in {OutcomeKind.FAILED, OutcomeKind.REJECTED, OutcomeKind.UNKNOWN}:
            count = failures[outcome.step].streak + 1 if outcome.step in failures else 1
            stop = outcome.kind is OutcomeKind.REJECTED
            failures[outcome.step] = StepFailure(count, instant(now), stop, outcome.message)
        elif outcome.kind is OutcomeKind.CONFLICT:
            # The world moved on: decide anew at once, but do not chase it if that happens again and again.
            count = failures[outcome.step].streak + 1 if outcome.step in failures else 0
            failures[outcome.step] = StepFailure(count, instant(now), False, outcome.message)
    return ledger if failures == ledger.step_failures else replace(ledger, step_failures=failures)


# --- people's commands ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a person, from the inbox: `suspend`, `resume`, `approve`, `restart`, `rollback`, `drain`, `force` or `release`.

    `object` is a key, `*`, or a hash; of a restart it is the id of the request, and `request` what is asked for. `value` is what
    `force` makes of an endpoint: `up` or `down`. `at` is when it was given.
    """

    verb: str
    object: str
    who: str = ""
    reason: str = ""
    until_wall: int = 0
    probes: bool = False
    request: Request | None = None
    value: str = ""
    at: Instant = NEVER


def obey(ledger: Ledger, commands: tuple[Command, ...]) -> Ledger:
    """The ledger after these commands. Unknown verbs change nothing: the inbox may hold those of a newer version.

    Resuming an object also lets its replicas that have failed for good be tried again, and a rolling rollout that has failed.
    """
    suspensions, escalations, rollouts = dict(ledger.suspensions), dict(ledger.escalations), dict(ledger.rollouts)
    approvals, requests, orders = set(ledger.approvals), dict(ledger.requests), ledger.overrides
    for command in commands:
        if command.verb == "suspend":
            suspensions[command.object] = Suspension(command.who, command.reason, command.until_wall, command.probes)
        elif command.verb == "resume":
            suspensions.pop(command.object, None)
            escalations = {name: one for name, one in escalations.items() if not _covers(command.object, name)}
            rollouts |= {key: tried_again(one) for key, one in rollouts.items() if _covers(command.object, key)}
        elif command.verb == "approve":
            approvals.add(command.object)
        elif command.verb == "restart" and command.request is not None:
            requests.setdefault(command.object, command.request)
        elif command.verb == "rollback" and command.object in rollouts:
            asked = (command.who, command.reason)
            rollouts[command.object] = rollouts[command.object]._replace(asked=asked)
        elif command.verb in override.VERBS:
            given = (command.value, command.at, command.who, command.reason, command.until_wall)
            orders = override.after(orders, override.Order(command.verb, command.object, *given))
    return replace(
        ledger,
        suspensions=suspensions,
        approvals=frozenset(approvals),
        requests=requests,
        rollouts=rollouts,
        overrides=orders,
        escalations=escalations if escalations != ledger.escalations else ledger.escalations,
    )


def _covers(object: str, name: str) -> bool:  # noqa: A002
    """Whether a word about an object (a key, or `*` for all) is about this one too."""
    return object in {"*", name} or name.startswith(f"{object}/")


# --- rows -------------------------------------------------------------------------------------------------------


def _grant(raw: list[Any]) -> Grant:
    obj, generation, cause, at, names_out, ttl, weight_out, pooled, *rest = raw  # older rows are shorter
    if len(rest) > 3:
        rest[3] = read_instant(rest[3])
    return Grant(
        obj,
        Generation(*generation),
        Reason(cause),
        Instant(*at),
        read_instant(names_out),
        ttl,
        read_instant(weight_out),
        pooled,
        *rest,
    )


def _push(raw: list[Any]) -> PushRow:
    generation, event, since, at, boot, seq, inflight, nonce, earlier = raw
    over = tuple((name, started_at) for name, started_at in earlier)
    return PushRow(Generation(*generation), event, Instant(*since), Instant(*at), boot, seq, inflight, nonce, over)


_READ: Mapping[str, Any] = {
    "grants": _grant,
    "attempts": lambda raw: tuple(Instant(*one) for one in raw),
    "failures": lambda raw: Failures(raw[0], Instant(*raw[1]), Generation(*raw[2])),
    "step_failures": lambda raw: StepFailure(raw[0], Instant(*raw[1]), raw[2], raw[3]),
    "wanted": lambda raw: Instant(*raw),
    "restarted": lambda raw: tuple(Instant(*one) for one in raw),
    "escalations": lambda raw: Escalation(raw[0], raw[1], Instant(*raw[2])),
    "outbreaks": lambda raw: Outbreak(Instant(*raw[0]), raw[1], raw[2], read_instant(raw[3]), read_instant(raw[4])),
    "runtime_restarts": int,
    "suspensions": lambda raw: Suspension(*raw),
    "requests": read_request,
    "revisions": lambda raw: RevisionMark(*raw),
    "rollouts": read_rollout,
    "absences": lambda raw: Absence(Instant(*raw[0]), raw[1]),
    "adopted": lambda raw: Adopted(*raw)._replace(ports=tuple(raw[6])),
    "pushes": _push,
    "ready": weight_memory.ready_row,
    "weighed": weight_memory.weighed_rows,
    "cuts": weight_memory.cut_rows,
    "panics": lambda raw: Instant(*raw),
    "overrides": override.override_row,
    "names": read_name,
    "pins": lambda raw: tuple((container, digest) for container, digest in raw),
    "templates": str,
    "exit_times": lambda raw: Leaving(*raw),
}
_FLAGS = ("passed", "taken_over", "zones", "approvals")
_SINGLE = "ledger"


def to_rows(
    ledger: Ledger, earlier: tuple[Ledger, Mapping[tuple[str, str], str]] | None = None
) -> dict[tuple[str, str], str]:
    """The ledger as (section, key) -> JSON text, one row per remembered thing.

    Args:
        ledger: what to spell out.
        earlier: a ledger and its rows; sections that are the same object there are taken over, so that the cost follows
            the change.
    """
    same: set[str] = set()
    rows: dict[tuple[str, str], str] = {}
    if earlier is not None:
        before, known = earlier
        same = {one for one in (*_READ, *_FLAGS) if getattr(before, one) is getattr(ledger, one)}
        rows = {key: text for key, text in known.items() if key[0] in same}
    for section in _READ:
        if section not in same:
            for key, value in getattr(ledger, section).items():
                rows[section, key] = json.dumps(value)
    for section in _FLAGS:
        if section not in same:
            for key in getattr(ledger, section):
                rows[section, key] = "true"
    rows[_SINGLE, "source"] = json.dumps(ledger.source)
    rows[_SINGLE, "history_lost"] = json.dumps(ledger.history_lost)
    rows[_SINGLE, "clock"] = json.dumps(ledger.clock)
    return rows


def from_rows(rows: Mapping[tuple[str, str], str]) -> Ledger:
    """The ledger from its rows; rows of sections this version does not know are ignored.

    Raises:
        ValueError, TypeError: a row does not hold what its section promises.
    """
    sections: dict[str, dict[str, Any]] = {section: {} for section in _READ}
    flags: dict[str, set[str]] = {section: set() for section in _FLAGS}
    single: dict[str, Any] = {"source": "", "history_lost": None, "clock": None}
    for (section, key), text in rows.items():
        if section in sections:
            sections[section][key] = _READ[section](json.loads(text))
        elif section in flags:
            flags[section].add(key)
        elif section == _SINGLE and key in single:
            single[key] = json.loads(text)
    return Ledger(
        **sections,
        passed=frozenset(flags["passed"]),
        taken_over=frozenset(flags["taken_over"]),
        zones=frozenset(flags["zones"]),
        approvals=frozenset(flags["approvals"]),
        source=single["source"],
        history_lost=read_instant(single["history_lost"]),
        clock=read_instant(single["clock"]),
    )
