"""The snapshot that all rules decide by: what is wanted and what is known at one instant, sorted once.

`decide` makes one for each pass and hands it to every rule. It never changes; the ledger does, and so stands beside it.
"""

from dataclasses import dataclass

from manifests.values.desired import Desired
from reconciler.core.health.belief import Sight
from reconciler.core.model.instant import Now
from reconciler.core.model.observed import Observed
from reconciler.core.replicas.roster import Roster


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at everything.

    desired: the manifests in force, with the workloads that adopt containers or labels ask for. observed: the facts, with the
    ledger as it was before this pass. sight: which of the facts may be used, and until when. roster: every container in its
    place. now: this instant.
    """

    desired: Desired
    observed: Observed
    sight: Sight
    roster: Roster
    now: Now
