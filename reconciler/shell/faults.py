"""Faults of the program's own surroundings: the state directory, the source, the probe engine, a rule that fails.

None of them ends a daemon. Each is a hold that names the cause and the next try, and `decide` gets them with the facts, so that status,
`explain` and events show them like every other hold. Used by the loop.
"""

import logging
from dataclasses import dataclass, replace
from types import TracebackType

from manifests.values.desired import SECOND
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Rule
from reconciler.core.status.objects import Status

log = logging.getLogger(__name__)

RETRY = 5 * SECOND
"""Time (ns) until the program tries again what its surroundings refused."""

DECIDE_AGAIN = 60 * SECOND
"""Time (ns) until a decision that failed is tried again on the same facts; news make it sooner."""

_UNKNOWN_OBJECT = "instance"

_KINDS = ("workload/", "service/", "dnspolicy/", "record/", "recordlist/", "healthcheck/", "provider/", "node/")
"""How the keys of objects begin."""


class Faults:
    """The faults that last now, by rule."""

    def __init__(self) -> None:
        self._holds: dict[Rule, Hold] = {}

    def __contains__(self, rule: Rule) -> bool:
        return rule in self._holds

    def begin(self, hold: Hold) -> bool:
        """A fault that begins or goes on, with its next try. Returns whether it is news: it begins, or has another cause."""
        before = self._holds.get(hold.rule)
        self._holds[hold.rule] = hold
        return before is None or before.message != hold.message

    def again(self, rule: Rule, until: int) -> None:
        """The fault lasts; its next try is at this steady instant (ns)."""
        self._holds[rule] = replace(self._holds[rule], until=until)

    def end(self, rule: Rule) -> bool:
        """The fault is over. Returns whether there was one."""
        return self._holds.pop(rule, None) is not None

    def due(self, rule: Rule, now: int) -> bool:
        """Whether there is no such fault, or its next try is due at this steady instant (ns)."""
        hold = self._holds.get(rule)
        return hold is None or hold.until is None or hold.until <= now

    def holds(self) -> tuple[Hold, ...]:
        """All of them, for `decide`."""
        return tuple(self._holds[rule] for rule in sorted(self._holds))


@dataclass(slots=True)
class _Failure:
    """The failure of decisions that was logged last, and when."""

    text: str = ""
    at: int = 0


class FailedDecisions:
    """What is in force while `decide` fails: what was decided before, without its steps."""

    def __init__(self) -> None:
        self._logged = _Failure()

    def hold(self, error: Exception, now: Now) -> Hold:
        """The hold that says what failed. The traceback goes to the log, equal ones once a minute."""
        obj = object_of(error.__traceback__)
        place = _place(error.__traceback__)
        text = f"{obj} {place} {type(error).__name__}"
        if text != self._logged.text or now.steady >= self._logged.at + DECIDE_AGAIN:
            self._logged = _Failure(text, now.steady)
            log.error("%s: the decision failed; nothing is done until it succeeds", obj, exc_info=error)
        return Hold(
            obj,
            "decide",
            Rule.DECISION_FAILED,
            f"a rule failed with an unexpected {type(error).__name__} in {place}",
            until=now.steady + DECIDE_AGAIN,
            next_step="report it with the traceback in the log; it is retried automatically",
        )

    def decision(
        self, error: Exception, before: Decision | None, ledger: Ledger, faults: tuple[Hold, ...], now: Now
    ) -> Decision:
        """The decision to do nothing, with the hold that says why."""
        hold = self.hold(error, now)
        kept = () if before is None else before.holds
        others = tuple(old for old in kept if old.rule is not Rule.DECISION_FAILED and old not in faults)
        holds = tuple(
            sorted({*others, *faults, hold}, key=lambda held: (held.object, held.rule, held.action, held.message))
        )
        until = hold.until or now.steady
        if before is None:
            return Decision((), holds, (), Status(), ledger, until)
        return replace(before, steps=(), holds=holds, ledger=ledger, wake_at=until, unsettled=False)


def object_of(trace: TracebackType | None) -> str:
    """The key of the object that the failing rule looked at: from the innermost frame that has one; `instance` when none has."""
    found = _UNKNOWN_OBJECT
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            for key in (value, getattr(value, "key", None), getattr(value, "object", None)):
                if isinstance(key, str) and key.startswith(_KINDS) and "\n" not in key:
                    found = key
        trace = trace.tb_next
    return found


def _place(trace: TracebackType | None) -> str:
    """Module and line of the failing rule."""
    place = "an unknown place"
    while trace is not None:
        place = f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
