"""Over whole runs: a health check that is changed to a wrong one takes no address of a serving replica out of its name."""

from dataclasses import dataclass, replace

import pytest

from manifests.values.desired import SECOND, Desired
from manifests.values.dns import AllUnhealthy, Check
from reconciler.core.model.reasons import Rule
from tests.sim.manifest import Shop, Spec
from tests.sim.world import World

CHECK = Check("web.example.test", "HTTP", 8080, "/", interval=10 * SECOND, failure_threshold=2)


@dataclass(frozen=True, slots=True)
class Checked(Shop):
    """A shop whose name has a health check, or none."""

    check: Check | None = CHECK
    all_unhealthy: AllUnhealthy = AllUnhealthy.FREEZE

    def desired(self) -> Desired:
        desired = Shop.desired(self)
        policies = tuple(
            replace(policy, check=self.check, all_unhealthy=self.all_unhealthy) for policy in desired.policies
        )
        return replace(desired, policies=policies)


@pytest.mark.parametrize("before", [CHECK, None], ids=["changed", "added"])
@pytest.mark.parametrize("all_unhealthy", [AllUnhealthy.FREEZE, AllUnhealthy.PUBLISH_ALL])
def test_a_wrong_check_takes_nothing_and_a_right_one_takes_over(before, all_unhealthy):
    shop = Checked((Spec(ttl=5),), check=before, all_unhealthy=all_unhealthy)
    world = World(shop)
    world.apps.checks_pass = True
    world.apps.bad_checks = {"/wrong"}
    try:
        world.start()
        world.run(120 * SECOND)
        served = world.published()
        assert len(served) == 3
        world.push(replace(shop, check=replace(CHECK, path="/wrong")))
        for number in range(60):
            world.run(5 * SECOND)
            assert world.published() == served
            if number == 30:
                world.kill()
                world.start()
        held = [hold for hold in world.tape.last.holds if hold.rule is Rule.PROBE_UNPROVEN]
        assert {hold.object for hold in held} == {"dnspolicy/web"}
        world.push(replace(shop, check=replace(CHECK, path="/right")))
        world.run(120 * SECOND)
        assert world.memory.ledger().checks["dnspolicy/web"].check.path == "/right"
        assert world.published() == served
        assert not world.tape.last.holds
    finally:
        world.close()
