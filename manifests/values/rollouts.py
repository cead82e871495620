"""How revisions of a workload replace each other: values of `desired.Workload.rollout`.

Apart from `desired.py` because only the rules of rollouts read them. Pure values: created by `resolve/rollout.py`, read by
`reconciler.core`. Durations are nanoseconds.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

_SECOND = 1_000_000_000
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class Strategy(StrEnum):
    """How a new revision replaces the old one.

    ROLLING: replica by replica, the new one first. RECREATE: replica by replica, the old one out first. ACTIVATE: all new
    replicas beside the old ones, then one activation at a chosen time. CANARY: the same, with the activation in steps of weight.
    """

    ROLLING = "rolling"
    RECREATE = "recreate"
    ACTIVATE = "activate"
    CANARY = "canary"


STAGED = frozenset({Strategy.ACTIVATE, Strategy.CANARY})
"""Strategies where a whole new revision runs beside the old one and gets no traffic before its activation."""


class Supersede(StrEnum):
    """When a newer revision supersedes a waiting older one: at once, or when it is activated itself."""

    IMMEDIATELY = "immediately"
    ON_ACTIVATION = "onActivation"


class CanaryStep(NamedTuple):
    """The share of the new revision (of 10,000) and how long it keeps that share (ns)."""

    share: int
    pause: int


@dataclass(frozen=True, slots=True)
class Rollout:
    """The times of a rollout.

    `activate_at` is a wall-clock instant (ns since the epoch), 0 = `delay` after the first look at the revision. The
    application probes begin `precheck` before that; the activation is tried for `pending_grace`. Within `bake` after the
    activation a failure rolls it back; for `window` after it the old revision is kept, stopped. `progress_deadline` is the
    longest time without progress before a rolling rollout is stuck.
    """

    activate_at: int = 0
    delay: int = 0
    precheck: int = 60 * _SECOND
    pending_grace: int = 3600 * _SECOND
    supersede: Supersede = Supersede.IMMEDIATELY
    bake: int = 300 * _SECOND
    window: int = 600 * _SECOND
    progress_deadline: int = 600 * _SECOND
    steps: tuple[CanaryStep, ...] = ()


DEFAULT_ROLLOUT = Rollout()


def format_moment(wall: int) -> str:
    """An instant (ns since the epoch) in RFC 3339, UTC, with as many decimals as it has."""
    at = _EPOCH + timedelta(seconds=wall // _SECOND)
    rest = wall % _SECOND
    decimals = f".{rest:09}".rstrip("0") if rest else ""
    return f"{at:%Y-%m-%dT%H:%M:%S}{decimals}Z"
