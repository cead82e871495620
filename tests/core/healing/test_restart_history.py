"""The runtime's own count of restarts: neither an unobserved restart nor an unreadable count is an attempt."""

from dataclasses import replace

from manifests.values.pod import Live
from reconciler.core.decide import decide
from tests.builders import NOW, Scene
from tests.sim.manifest import Spec, shop

POLICY = (Live("", restart="unless-stopped"),)


def test_a_container_that_was_not_inspectable_has_spent_no_attempts():
    scene, desired = Scene(Spec(replicas=1)), shop(replicas=1).desired()
    whole = replace(scene.facts[0], live=POLICY, restarts=7, adopted=True)
    scene.ledger = replace(scene.ledger, runtime_restarts={whole.id: 7})
    # An engine that cannot inspect an adopted container lists it without its start and its count.
    for fact in (whole, replace(whole, started_at=0, running_since=0, restarts=0), whole):
        scene.change(0, fact)
        scene.ledger = decide(desired, scene.observed(), NOW).ledger
        assert not scene.ledger.attempts
        assert scene.ledger.runtime_restarts == {whole.id: 7}
