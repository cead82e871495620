"""The runtime's own count of restarts: what nobody saw is no attempt, and neither is a count that could not be read for a while."""

from dataclasses import replace

from manifests.values.pod import Live
from reconciler.core.decide import decide
from tests.builders import NOW, Scene
from tests.sim.manifest import Spec, shop

POLICY = (Live("", restart="unless-stopped"),)


def test_a_container_that_could_not_be_inspected_for_a_while_has_spent_no_attempts_afterwards():
    scene, desired = Scene(Spec(replicas=1)), shop(replicas=1).desired()
    whole = replace(scene.facts[0], live=POLICY, restarts=7, adopted=True)
    scene.ledger = replace(scene.ledger, runtime_restarts={whole.id: 7})
    # An engine that does not answer about one container of somebody else's lists it without its start and its count.
    for fact in (whole, replace(whole, started_at=0, running_since=0, restarts=0), whole):
        scene.change(0, fact)
        scene.ledger = decide(desired, scene.observed(), NOW).ledger
        assert not scene.ledger.attempts
        assert scene.ledger.runtime_restarts == {whole.id: 7}
