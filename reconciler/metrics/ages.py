"""Since when each hold and each suspension exists. Decisions do not say it for most of them, so it is remembered here.

A new process reads it from the audit, where the beginning of each is an event: a restart of the program makes nothing look young.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.core.model.instant import Now
from reconciler.core.model.reasons import Hold
from reconciler.core.model.suspension_scope import Scope, key_of
from reconciler.shell.monitor import Tick
from reconciler.shell.store.audit import AuditRow, HoldKey


@dataclass(frozen=True, slots=True)
class Ages:
    """Begin instants in seconds of Unix time, of holds and, by object, of suspensions. Never changed in place."""

    holds: Mapping[HoldKey, float] = field(default_factory=dict)
    suspensions: Mapping[str, float] = field(default_factory=dict)

    def follow(self, tick: Tick) -> "Ages":
        """The ages at this tick: what it is the first to have begins now, and what is over is forgotten.

        Before every provider was looked at, a decision does not have all holds: then nothing is over.
        """
        wall = tick.now.wall / 1e9
        holds = {key: self.holds.get(key, wall) for key in map(_key, tick.decision.holds)}
        suspensions = {key: self.suspensions.get(key, wall) for key in tick.decision.ledger.suspensions}
        return Ages(holds if tick.complete else {**self.holds, **holds}, suspensions)

    def since_of(self, hold: Hold, now: Now) -> float:
        """Since when a hold of the latest decision exists: what the rule itself says, else its first decision."""
        if hold.since is not None:
            return (now.wall + hold.since - now.steady) / 1e9
        return self.holds.get(_key(hold), now.wall / 1e9)

    def oldest_suspension(self) -> float | None:
        """Since when the oldest suspension of the latest decision exists; None without one."""
        return min(self.suspensions.values(), default=None)


def from_audit(rows: Iterable[AuditRow]) -> Ages:
    """The holds and suspensions that the audit says have begun and not ended. The oldest row comes first."""
    holds: dict[HoldKey, float] = {}
    suspensions: dict[str, float] = {}
    for row in rows:
        key = HoldKey(row.object, row.step, row.cause)
        if row.kind == "held":
            holds[key] = row.wall / 1e9
        elif row.kind == "released":
            holds.pop(key, None)
        elif row.kind == "suspended":
            suspensions[_suspension(row)] = row.wall / 1e9
        elif row.kind == "resumed":
            suspensions.pop(_suspension(row), None)
    return Ages(holds, suspensions)


def _suspension(row: AuditRow) -> str:
    """The key of the suspension that an event is about: its words end with the scope."""
    words = row.step.split()[-1:]
    scope = next((scope for scope in (Scope.COMMITS, Scope.HEALING) if words == [scope.value]), Scope.ALL)
    return key_of(scope, row.object or "*")


def _key(hold: Hold) -> HoldKey:
    return HoldKey(hold.object, hold.action, hold.rule.value)
