"""What a running process knows beside its looks: probe verdicts, pushes and calls under way. A plan made beside it uses them.

A single attempt of a plan decides nothing that needs several results, and a push is received by one process only. So the process that
holds an instance stores its view with its decision when a plan asks for it, and the plan takes from it what is about the same generation
of a container and the same probe; everything else it looks at by itself. `report/reporting.py` writes it, `wire.make_plan` reads it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from providers.facts import Generation, ProbeFact, ProbeValue, fingerprint
from reconciler.core.decision import Decision
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.core.model.reasons import Hold, Rule

KEY = "view"
"""The key of the view in a stored decision."""

_PROBES = ("startup", "liveness", "readiness")


@lru_cache(maxsize=1_024)
def digest_of(question: object) -> str:
    """What a probe, a trial or a check asks, as a short text: equal for equal questions. Secrets are in it by reference only."""
    return fingerprint(repr(question))


@dataclass(frozen=True, slots=True)
class DaemonView:
    """The view of the running process.

    at_wall: when it was stored (ns). revision: of the manifests that the process has in force. verdicts, trials: (generation, name) ->
    (digest of the question, verdict). checks: digest of a target address with its check -> verdict. pushes: generation -> latest push.
    busy, under_way: as in `Observed`. holds: those of its decision.
    """

    at_wall: int
    revision: str
    verdicts: Mapping[tuple[Generation, str], tuple[str, ProbeFact]] = field(default_factory=dict)
    trials: Mapping[tuple[Generation, str], tuple[str, ProbeFact]] = field(default_factory=dict)
    checks: Mapping[str, ProbeFact] = field(default_factory=dict)
    pushes: Mapping[Generation, PushFact] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    under_way: frozenset[str] = frozenset()
    holds: tuple[Hold, ...] = ()

    def verdict(self, generation: Generation, name: str, question: object) -> ProbeFact | None:
        """The verdict of a probe of this generation; None when the process asks something else, or nothing."""
        return _same(self.verdicts.get((generation, name)), question)

    def trial(self, generation: Generation, name: str, question: object) -> ProbeFact | None:
        """The same of what is tried beside the probes that decide."""
        return _same(self.trials.get((generation, name)), question)

    def check(self, question: object) -> ProbeFact | None:
        """The verdict of the check of a target address."""
        return self.checks.get(digest_of(question))

    def only_there(self, decision: Decision, revision: str) -> tuple[Hold, ...]:
        """Holds of the process that a plan's own decision does not have, such as a fault of the process itself.

        Empty where the plan is about other manifests.
        """
        if revision != self.revision:
            return ()
        mine = {(hold.object, hold.action, hold.rule) for hold in decision.holds}
        return tuple(hold for hold in self.holds if (hold.object, hold.action, hold.rule) not in mine)


def _same(known: tuple[str, ProbeFact] | None, question: object) -> ProbeFact | None:
    return known[1] if known is not None and known[0] == digest_of(question) else None


# --- written by the process ---------------------------------------------------------------------------------------------


def write(decision: Decision, now: Now) -> dict[str, Any]:
    """The view of the process that made this decision, as JSON; instants are wall-clock ns, which another process understands."""
    observed, since = decision.status.observed, now.wall - now.steady
    return {
        "verdicts": [[*key, *_fact(fact, since)] for key, fact in _verdicts(decision)],
        "trials": [
            [*generation, name, digest_of(answer.trial), *_fact(answer.fact, since)]
            for generation, answers in observed.trials.items()
            for name, answer in answers.items()
        ],
        "checks": [[digest_of(check), *_fact(fact, since)] for check, fact in observed.target_answers.items()],
        "pushes": [
            [*generation, *push._replace(at=push.at + since, since=push.since + since)]
            for generation, push in observed.pushes.items()
        ],
        "busy": sorted(observed.busy),
        "under_way": sorted(observed.under_way),
    }


def stored(view: Mapping[str, Any], at_wall: int, revision: str) -> str:
    """A view as `read` takes it, without holds: those of another moment are none of a plan's business."""
    return json.dumps({"at_wall": at_wall, "revision": revision, "holds": [], KEY: dict(view)})


def _verdicts(decision: Decision) -> Iterator[tuple[tuple[str, int, str, str], ProbeFact]]:
    """The verdicts of all probes, with the question that each answers."""
    roster, probes = decision.status.roster, decision.status.observed.probes
    for group in roster.groups.values():
        for belief in group.members():
            verdicts = probes.get(belief.fact.generation)
            if verdicts is None:
                continue
            container = roster.container_of(group.workload, belief.fact)
            for name in _PROBES:
                question, fact = getattr(container, name), getattr(verdicts, name)
                if question is not None and fact is not None:
                    yield (*belief.fact.generation, name, digest_of(question)), fact


def _fact(fact: ProbeFact, since: int) -> tuple[Any, ...]:
    lasts = None if fact.valid_for >= FOREVER // 2 else fact.valid_for
    return tuple(fact._replace(since=fact.since + since, last_at=fact.last_at + since, valid_for=lasts))  # type: ignore[arg-type]


# --- read by a plan -------------------------------------------------------------------------------------------------------


def read(text: str, now: Now) -> DaemonView | None:
    """The view in a stored decision; None when it has none, or another version of the program wrote it."""
    try:
        stored = json.loads(text)
        view = stored.get(KEY)
        return None if view is None else _view(stored, view, now)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def _view(stored: Mapping[str, Any], view: Mapping[str, Any], now: Now) -> DaemonView:
    since = now.wall - now.steady

    def fact(raw: list[Any]) -> ProbeFact:
        value, last, streak, threshold, began, last_at, lasts, detail = raw
        times = (began - since, last_at - since, FOREVER if lasts is None else lasts)
        return ProbeFact(ProbeValue(value), ProbeValue(last), streak, threshold, *times, detail)

    def answers(rows: list[list[Any]]) -> dict[tuple[Generation, str], tuple[str, ProbeFact]]:
        found = {(Generation(row[0], row[1]), row[2]): (row[3], fact(row[4:])) for row in rows}
        # A verdict that is too old by now is asked for again.
        return {key: row for key, row in found.items() if row[1].last_at + row[1].valid_for > now.steady}

    pushes = {}
    for container, started, event, at, began, *others in view["pushes"]:
        pushes[Generation(container, started)] = PushFact(PushEvent(event), at - since, began - since, *others)
    return DaemonView(
        at_wall=int(stored["at_wall"]),
        revision=str(stored["revision"]),
        verdicts=answers(view["verdicts"]),
        trials=answers(view["trials"]),
        checks={row[0]: fact(row[1:]) for row in view["checks"]},
        pushes=pushes,
        busy=frozenset(view["busy"]),
        under_way=frozenset(view["under_way"]),
        holds=tuple(_hold(hold, since) for hold in stored["holds"]),
    )


def _hold(raw: Mapping[str, Any], since: int) -> Hold:
    until = raw["until_wall"]
    return Hold(
        raw["object"],
        raw["action"],
        Rule(raw["rule"]),
        raw["message"],
        until=None if until is None else until - since,
        next_step=raw["next_step"] or "",
    )
