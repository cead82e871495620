"""Two programs that write one record set: the fight ends, also when the other one answers before our write is read back."""

import pytest

from manifests.values.desired import SECOND
from providers.actions import Action, ChangeRecords
from providers.errors import Overwritten
from providers.facts import RecordKey, RecordSet
from reconciler.core.dns.other_writers import REWRITES, WITHIN
from reconciler.core.model.reasons import Rule
from tests.laws.helpers import MINUTE, ready
from tests.sim.manifest import ZONE, shop

WEB = RecordKey(f"web.{ZONE}", "A")
THEIRS = RecordSet(60, ("203.0.113.66",))


@pytest.mark.parametrize("at_once", [True, False], ids=["before it is read back", "later"])
def test_a_fight_ends_after_three_rewrites(worlds, at_once):
    world = ready(worlds(shop(replicas=2)))
    world.zones.plant(ZONE, WEB, THEIRS)
    sound, writes = world.traffic.check, []

    def answered(action: Action) -> None:
        sound(action)
        if isinstance(action, ChangeRecords) and any(change.key == WEB for change in action.changes):
            writes.append(world.clock.now().steady)
            if at_once:
                world.zones.plant(ZONE, WEB, THEIRS)
                raise Overwritten("web A", "the server accepted the change, but it reads back as something else")

    world.traffic.check = answered
    for _ in range(10 * MINUTE // SECOND):
        world.run(SECOND)
        world.zones.plant(ZONE, WEB, THEIRS)
    assert len(writes) == REWRITES
    assert [hold.until for hold in world.tape.last.holds if hold.rule is Rule.CONFLICTING_WRITER]
    world.run(WITHIN)
    assert len(writes) > REWRITES, "it is tried again"
