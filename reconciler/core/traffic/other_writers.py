"""Other writers: weights of ours that another writer changes, or that a balancer lost in a restart.

The weight of a member is always read; the memory here only shows who changed it. After three reversals in five minutes we stop
writing that member and report it: two writers that fight are worse than either. When the balancer's process has changed, the
balancer lost the weights that differ; no other writer changed them. Called by `traffic/pool`.
"""

from manifests.values.desired import SECOND
from providers.facts import Endpoint
from reconciler.core.model.instant import Now, due, elapsed, instant
from reconciler.core.model.weight_memory import Weighed

REVERSALS = 3
"""How many changes by another writer stop our writes to a member; one is enough where the writer is known by name."""

WITHIN = 300 * SECOND
"""The span in which reversals count. After it, the member is written again."""

ASKED = 8
"""How many requested weights are remembered until the desired one is read back."""


def in_force(row: Weighed | None, before: int | None, epoch: str) -> int | None:
    """The weight that a member keeps while nothing changes: the one read, or the last one before its balancer lost it."""
    if row is not None and row.weight >= 0 and row.epoch != epoch:
        return row.weight if row.weight or before is not None else None
    return before


def carried(row: Weighed | None, before: int | None, epoch: str) -> int:
    """The weight that a member carries by our writes, as read; 0 where another writer or a restart of its balancer set it.

    Without a row, nothing else is known: then what is read counts.
    """
    weight = before or 0
    if row is None or weight in row.asked or (row.weight < 0 and not row.reversals):
        return weight
    return weight if row.epoch == epoch and row.weight == weight else 0


def watch(
    row: Weighed | None, endpoint: Endpoint, before: int | None, wanted: int | None, epoch: str, now: Now
) -> Weighed:
    """The row of a member after this look.

    Args:
        row: the row before this look.
        before: its weight as read; None = it is not in the pool.
        wanted: its desired weight.
    """
    known = row or Weighed(endpoint, -1, epoch)
    if any(elapsed(at, now) >= WITHIN for at in known.reversals):
        known = known._replace(reversals=tuple(at for at in known.reversals if elapsed(at, now) < WITHIN))
    weight = before or 0
    if known.weight >= 0 and known.epoch == epoch and weight != known.weight and weight not in known.asked:
        reversals = (*known.reversals, instant(now))[-REVERSALS:]
        known = known._replace(weight=-1, asked=(), reversals=reversals, before=known.weight, after=weight)
    if weight == (wanted or 0):
        return known._replace(weight=weight, epoch=epoch, asked=())
    asked = wanted or 0
    return known if asked in known.asked else known._replace(asked=(*known.asked, asked)[-ASKED:])


def stopped_until(row: Weighed, writer: str, now: Now) -> int:
    """The steady instant until which we leave a member to another writer; 0 = we write it."""
    limit = 1 if writer else REVERSALS
    if len(row.reversals) < limit:
        return 0
    until = due(row.reversals[-limit], WITHIN, now)
    return until if until > now.steady else 0


def moved(row: Weighed, before: int | None) -> bool:
    """Whether a member has a weight (None = it is not in the pool) that we neither set last nor asked for since."""
    weight = before or 0
    if row.weight < 0:
        return bool(row.reversals) and row.after == weight and weight not in row.asked
    return weight != row.weight and weight not in row.asked
