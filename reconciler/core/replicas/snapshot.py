"""The snapshot on which all rules decide: manifests and facts at one instant, sorted once.

`decide` makes one for each pass and gives it to every rule. It never changes; the ledger does, so rules get it beside the snapshot.
"""

from dataclasses import dataclass

from manifests.values.desired import Desired
from reconciler.core.health.belief import Sight
from reconciler.core.model.instant import Now
from reconciler.core.model.observed import Observed
from reconciler.core.replicas.roster import Roster


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that one pass knows.

    desired: the manifests in force, with the workloads of labelled containers. observed: the facts, with the ledger as it was
    before this pass. sight: which of the facts may be used, and until when. roster: every container by workload and role. now:
    this instant.
    """

    desired: Desired
    observed: Observed
    sight: Sight
    roster: Roster
    now: Now
