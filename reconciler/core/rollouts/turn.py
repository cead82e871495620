"""One turn of a rollout: the history of one workload while a decision changes it, and the holds and waits to report."""

from dataclasses import dataclass, field

from reconciler.core.model.instant import FOREVER
from reconciler.core.model.reasons import Hold, Wait
from reconciler.core.model.revision import Rollout


@dataclass(slots=True)
class Turn:
    """Filled by `rollback`, `activate` and `rolling`, one after the other; `revisions` starts it and reads it.

    `until` is the steady instant at which the first of these answers changes on the same facts. `rechecking`: revisions whose
    replicas are asked once more.
    """

    rollout: Rollout
    holds: list[Hold] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    until: int = FOREVER
    rechecking: set[str] = field(default_factory=set)
