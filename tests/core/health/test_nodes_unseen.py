"""A node that no workload names any more and that was not observed yet: its rows stay."""

from dataclasses import replace

import pytest

from manifests.values.desired import Desired, Provider, Role
from reconciler.core.decide import decide
from reconciler.core.model.adopted import Adopted
from reconciler.core.model.reasons import Rule
from tests.builders import NOW, Scene
from tests.sim.manifest import NODE, Shop, Spec


def leaving(**changes: bool) -> Desired:
    desired = Shop((), **changes).desired()
    return replace(desired, providers=(Provider(f"provider/{NODE}", NODE, "docker", Role.RUNTIME, {}),))


@pytest.mark.parametrize("how", ["destroy", "prune"])
def test_an_adopted_container_is_remembered_until_its_node_is_observed(how):
    scene = Scene(Spec(replicas=0))
    rows = {"id-web-1": Adopted("workload/web", 0, NODE, "web-1")}
    scene.ledger = replace(scene.ledger, adopted=rows)
    decision = decide(leaving(**{how: True}), replace(scene.observed(), runtimes={}), NOW)
    assert decision.ledger.adopted == rows
    assert [hold.object for hold in decision.holds if hold.rule is Rule.UNKNOWN_RUNTIME] == [f"provider/{NODE}"]
