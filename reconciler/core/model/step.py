"""A step: exactly one action of one provider, with its cause."""

from dataclasses import dataclass

from providers.actions import (
    Action,
    ChangeRecords,
    CutSessions,
    RemoveEndpoint,
    SetWeight,
)
from reconciler.core.model.drift import Moved, Why
from reconciler.core.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Step:
    """One action that is due.

    `id` names object and verb and is the same in every decision that has this step; `follows` are ids of steps that come before it,
    where the plan has them; `journal` says that its outcome must survive a crash. `why` says whether the world or the manifests moved, `moved`
    which fields, where that is known.
    """

    id: str
    object: str
    action: Action
    cause: Reason
    message: str
    follows: tuple[str, ...] = ()
    journal: bool = False
    why: Why = Why.DRIFT
    moved: tuple[Moved, ...] = ()

    @property
    def target(self) -> str:
        """The target that is busy during the call: a container name, `provider/pool/address:port` or `provider/zone`."""
        return target_of(self.action)


def target_of(action: Action) -> str:
    """The target that is busy during this action."""
    # Weights first, and no union: there are thousands of them.
    if isinstance(action, (SetWeight, RemoveEndpoint, CutSessions)):
        return f"{action.provider}/{action.pool}/{action.endpoint.address}:{action.endpoint.port}"
    if isinstance(action, ChangeRecords):
        return f"{action.provider}/{action.zone}"
    return action.name
