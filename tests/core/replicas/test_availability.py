"""Which replicas count as available."""

from dataclasses import replace

from manifests.values.desired import SECOND
from providers.facts import ProbeValue
from reconciler.core.health.belief import Belief
from reconciler.core.model.ledger import Grant
from reconciler.core.model.reasons import Reason
from reconciler.core.replicas.availability import Availability, count
from reconciler.core.replicas.roster import Group
from tests.builders import NOW, SEEN, ago, belief, container
from tests.sim.manifest import Spec, workload

P, F, U = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN
WEB = Spec(startup=True)


def group(*beliefs: Belief, **changes: object) -> Group:
    web = workload(replace(WEB, replicas=len(beliefs), **changes))
    return Group(web, current=dict(enumerate(beliefs)))


def test_only_ready_for_long_enough_and_not_leaving_counts_as_available():
    ready = [(P, 50), (P, 5), (F, 50), (U, 50), (P, 50)]
    beliefs = [belief(container(WEB, number), value, since) for number, (value, since) in enumerate(ready)]
    leaving = beliefs[4].fact
    grants = {leaving.id: Grant("workload/web/4", leaving.generation, Reason.SURPLUS, ago(1))}
    counts = count(group(*beliefs, min_ready=10 * SECOND), grants, NOW)
    assert counts == Availability(current=1, total=1, leaving=1, unknown=1, until=SEEN + 5 * SECOND)
