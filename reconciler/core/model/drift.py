"""Drift, change and health: which of them a difference is, which fields moved, and what the ledger remembers of both.

A *change* is a difference because the manifests moved (or an operator ordered it), *drift* one because the world moved while the
manifests did not. What follows from the health of replicas is *health*: restarts of those that fail, and the weights and names of those that
fail or recover. Made by the room `drift`, read by gates, plans, events and `reconcile drift`.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from manifests.values.pod import Live
from reconciler.core.model.instant import Instant


class Why(StrEnum):
    """What moved: the world, the manifests, or the health of replicas."""

    DRIFT = "drift"
    CHANGE = "change"
    HEALTH = "health"


class Moved(NamedTuple):
    """One field that differs: its value by the manifests and as observed, as text."""

    field: str
    declared: str
    observed: str

    @property
    def text(self) -> str:
        """The field with both values, for a message."""
        return f"{self.field}: {self.declared} declared, {self.observed} observed"


class Drift(NamedTuple):
    """One field of one object that drifted. `answer` is what is done about it, `next_step` what an operator can do; empty = nothing."""

    object: str
    target: str
    moved: Moved
    cause: str
    answer: str
    next_step: str = ""


class Applied(NamedTuple):
    """The declaration of an object that the world converged to last: its digest, and the settings that change on running containers."""

    digest: str
    live: tuple[Live, ...] = ()


class Reverts(NamedTuple):
    """A field of a container that drifted: when it was found differing, and whether it has been as declared since the last time."""

    at: tuple[Instant, ...]
    restored: bool = False


def read_applied(raw: Any) -> Applied:
    """A row from its stored form. Raises `TypeError`, `ValueError`."""
    digest, live = raw
    return Applied(str(digest), tuple(Live(*setting) for setting in live))


def read_reverts(raw: Any) -> Reverts:
    """A row from its stored form. Raises `TypeError`, `ValueError`."""
    at, restored = raw
    return Reverts(tuple(Instant(*moment) for moment in at), bool(restored))
