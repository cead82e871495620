"""Other writers: somebody else who changes the weights that are ours, and a balancer that lost them.

What a member weighs is always read; what is remembered here only tells who changed it. After three reversals in five minutes we stop
writing that member and say so: two writers that fight are worse than either. After the balancer's process has changed, weights
that differ were lost and not taken by somebody. Called by `pool`.
"""

from manifests.values.desired import SECOND
from providers.facts import Endpoint
from reconciler.core.model.instant import Now, due, elapsed, instant
from reconciler.core.model.weight_memory import Weighed

REVERSALS = 3
"""How many times somebody else may change a member before we stop; one is enough where another writer is known by name."""

WITHIN = 300 * SECOND
"""The span in which reversals count. After it, the member is written again."""

ASKED = 8
"""How many weights that we asked for are remembered until one of them is read back as wanted."""


def in_force(row: Weighed | None, before: int | None, epoch: str) -> int | None:
    """What a member should go on weighing while nothing is to change: what it weighs, or what it did before its balancer lost that."""
    if row is not None and row.weight >= 0 and row.epoch != epoch:
        return row.weight if row.weight or before is not None else None
    return before


def watch(
    row: Weighed | None, endpoint: Endpoint, before: int | None, wanted: int | None, epoch: str, now: Now
) -> Weighed:
    """What is known of a member after this look.

    Args:
        row: what was known.
        before: its weight as read; None = it is not in the pool.
        wanted: what it should weigh.
    """
    known = row or Weighed(endpoint, -1, epoch)
    if any(elapsed(at, now) >= WITHIN for at in known.reversals):
        known = known._replace(reversals=tuple(at for at in known.reversals if elapsed(at, now) < WITHIN))
    found = before or 0
    if known.weight >= 0 and known.epoch == epoch and found != known.weight and found not in known.asked:
        reversals = (*known.reversals, instant(now))[-REVERSALS:]
        known = known._replace(weight=-1, asked=(), reversals=reversals, before=known.weight, after=found)
    if found == (wanted or 0):
        return known._replace(weight=found, epoch=epoch, asked=())
    asked = wanted or 0
    return known if asked in known.asked else known._replace(asked=(*known.asked, asked)[-ASKED:])


def stopped_until(row: Weighed, writer: str, now: Now) -> int:
    """Until when (steady) we leave a member to another writer; 0 = we do not."""
    limit = 1 if writer else REVERSALS
    if len(row.reversals) < limit:
        return 0
    until = due(row.reversals[-limit], WITHIN, now)
    return until if until > now.steady else 0
