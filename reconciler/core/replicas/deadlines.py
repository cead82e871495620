"""When open grants are over at the latest: what holds others only until then names that instant, and a decision wakes at it.

Called by `decide` and by `healing`.
"""

from collections.abc import Iterable

from manifests.values.desired import Workload
from reconciler.core.exits.grants import deadline_at
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.ledger import Grant
from reconciler.core.replicas.roster import Roster


def workload_of(grant: Grant, crew: Roster) -> Workload | None:
    """The workload of a grant, None when no manifest describes it any more."""
    group = crew.groups.get(grant.object.rpartition("/")[0])
    return None if group is None else group.workload


def soonest_end(grants: Iterable[Grant], crew: Roster, now: Now) -> int:
    """The steady instant at which the first of these is over at the latest; FOREVER when none of them has an end yet."""
    return min((deadline_at(one, workload_of(one, crew), now) for one in grants), default=FOREVER)
