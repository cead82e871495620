"""Limits on actions on running containers: values of `desired.Guard` and `desired.Restarts`.

Apart from `desired.py` because only the gates read them. Pure values: created by `resolve/workload.py` and
`resolve/guard.py`, read by `reconciler.core`. Durations are nanoseconds.
"""

from dataclasses import dataclass
from enum import StrEnum

_SECOND = 1_000_000_000


class Mode(StrEnum):
    """Whether restarts for health are done, or only reported."""

    OBSERVE = "observe"
    ACT = "act"


class Held(StrEnum):
    """Actions that a window can hold.

    HEAL are restarts for health; DRIFT are corrections of containers that moved while the manifests did not; COMMITS are new revisions
    of the manifests as a whole; ROLLOUT are changes of revision, replicas or secrets; PRUNE are deletions.
    """

    HEAL = "heal"
    DRIFT = "drift"
    COMMITS = "commits"
    ROLLOUT = "rollout"
    PRUNE = "prune"


class Approve(StrEnum):
    """Classes of changes that an operator must approve: deletions, gains of privileges, and planned downtime."""

    DELETE = "delete"
    PRIVILEGE = "privilege"
    DOWNTIME = "downtime"


@dataclass(frozen=True, slots=True)
class Escalation:
    """After how many unsuccessful restarts a replica is recreated, and after how many more it is Failed."""

    recreate_after: int = 3
    give_up_after: int = 3


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket: `per_minute` tokens a minute, at most `burst` of them at once."""

    per_minute: int
    burst: int


@dataclass(frozen=True, slots=True)
class RestartLimits:
    """Limits on all restarts for health. `share` is the percentage of workloads, by a stable hash, that act."""

    mode: Mode = Mode.ACT
    share: int = 100
    workload: Rate = Rate(1, 2)
    node: Rate = Rate(6, 6)
    total: Rate = Rate(20, 20)
    in_flight: int = 2


@dataclass(frozen=True, slots=True)
class MassFailure:
    """When failures count as a common failure: `share` percent of a group, at least `minimum`, within its window.

    After an unsuccessful restart, `hold` passes before the next, doubling up to `max_hold`.
    """

    share: int = 50
    minimum: int = 2
    hold: int = 300 * _SECOND
    max_hold: int = 3600 * _SECOND


@dataclass(frozen=True, slots=True)
class Window:
    """A recurring span of time that holds some actions: it begins at each instant of `schedule` (cron) in `timezone`."""

    name: str
    holds: frozenset[Held]
    schedule: str
    duration: int
    timezone: str


DEFAULT_ESCALATION = Escalation()
DEFAULT_RESTARTS = RestartLimits()
DEFAULT_MASS_FAILURE = MassFailure()
