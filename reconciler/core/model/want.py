"""A candidate: one difference that a step could remove. Made by `differences` and `healing/restart_requests`; `gates` admits or holds it."""

from enum import StrEnum
from typing import NamedTuple

from manifests.values.desired import Workload
from manifests.values.pod import Live
from providers.facts import ContainerFact, ProbeValue
from reconciler.core.model.drift import Moved, Why
from reconciler.core.model.reasons import Act, HeldAction, Reason


class Kind(StrEnum):
    """The kinds of candidates."""

    CREATE = "create"
    START = "start"
    UPDATE = "update"
    RESTART = "restart"
    RECREATE = "recreate"
    RETIRE = "retire"


_DISRUPTIVE = frozenset({Kind.RESTART, Kind.RECREATE, Kind.RETIRE})


class Want(NamedTuple):
    """One candidate. `fact` is None for a container that does not exist; `workload` is None for an orphan.

    `only` names one container of the replica, as in `StopContainer`; empty = all of them. `why` and `moved` are as in `Step`. `live` are
    the settings that a container gets in place; None = those of its manifest.
    """

    id: str
    object: str
    kind: Kind
    cause: Reason
    message: str
    container: str
    node: str
    ordinal: int
    workload: Workload | None
    fact: ContainerFact | None = None
    ready: ProbeValue = ProbeValue.UNKNOWN
    only: str = ""
    why: Why = Why.DRIFT
    moved: tuple[Moved, ...] = ()
    live: tuple[Live, ...] | None = None

    @property
    def disrupts(self) -> bool:
        """Whether it may stop a running container."""
        return self.kind in _DISRUPTIVE

    @property
    def held(self) -> HeldAction:
        """This candidate as what a hold holds."""
        return HeldAction(Act(self.kind.value), () if self.fact is None else (self.fact.id,))
