"""Revisions whose replicas are not created, not started, or do not stay up. In virtual time."""

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import CanaryStep, Rollout, Strategy
from providers.actions import CreateContainer, StartContainer
from providers.testing.faults import Fault
from reconciler.core.model.reasons import Rule
from reconciler.core.model.revision import Standing
from reconciler.core.status.objects import Condition, rows
from tests.core.rollouts.world import names_of, of, revision, row, staged, standing, up
from tests.sim.manifest import NODE, Shop, shop
from tests.sim.world import World

GRACE = 1200 * SECOND
REFUSED = "exec: no such file"


class Always(list):
    """Every write of a provider goes wrong in this way until the world says otherwise."""

    def __init__(self, fault: Fault) -> None:
        super().__init__([fault])

    def pop(self, index: int = -1) -> Fault:
        return self[index]


def rolling(image: str = "v1", **fields) -> Shop:
    return shop(image=image, rollout=Rollout(progress_deadline=300 * SECOND), **fields)


def activated(image: str = "v1") -> Shop:
    return staged(image, pending_grace=GRACE)


def canary(image: str = "v1") -> Shop:
    steps = (CanaryStep(1_000, 60 * SECOND),)
    return staged(image, strategy=Strategy.CANARY, delay=0, steps=steps, pending_grace=GRACE)


def containers_of(here: World, image: str) -> list[str]:
    return [name for name in here.containers() if revision(image)[:8] in name]


def many(here: World, kind: type, image: str = "v2") -> int:
    return sum(isinstance(step.action, kind) and revision(image)[:8] in step.action.name for step in here.tape.steps)


def reported(here: World, image: str = "v2") -> dict:
    last = here.tape.last
    revisions = rows(last.status, last.holds, here.clock.now())["revisions"]
    return next(row for row in revisions if row["revision"] == revision(image))


@pytest.mark.parametrize("shop_of", [rolling, activated, canary])
def test_a_replica_that_cannot_be_started_leaves_its_reason_and_is_removed(world, shop_of):
    here = world(shop_of())
    here.runtime.refuse_starts(REFUSED)
    here.push(shop_of("v2"))
    here.run(60 * SECOND)
    assert (reported(here)["status"], REFUSED in reported(here)["why"]) == ("scheduled", True)
    here.run(GRACE + 240 * SECOND)
    assert (reported(here)["status"], REFUSED in reported(here)["why"]) == ("failed", True)
    assert containers_of(here, "v2") == []
    made = many(here, CreateContainer)
    assert made == (1 if shop_of is rolling else 3)
    assert len(here.memory.evidence) == made
    assert all(REFUSED in kept["why"] for _, kept in here.memory.evidence)
    assert all(of(here, "v1").values())
    assert up(here, "v1") == 3
    # Neither time nor the next process, nor another look at the same manifest, tries it again.
    here.runtime.refuse_starts("")
    here.restart()
    here.push(shop_of("v2"))
    here.run(1800 * SECOND)
    assert many(here, CreateContainer) == made
    assert standing(here, "v2") is Standing.FAILED
    here.push(shop_of("v3"))
    here.run(400 * SECOND)
    assert standing(here, "v3") is Standing.ACTIVE
    assert standing(here, "v2") is Standing.FAILED


def test_a_replica_that_cannot_be_created_fails_only_its_revision(world):
    here = world(activated())
    here.faults[NODE] = Always(Fault.REJECTED)
    here.push(activated("v2"))
    here.run(GRACE + 240 * SECOND)
    assert (reported(here)["status"], "could not be created" in reported(here)["why"]) == ("failed", True)
    assert up(here, "v1") == 3
    count = many(here, CreateContainer)
    here.run(1800 * SECOND)
    assert many(here, CreateContainer) == count


@pytest.mark.parametrize("fault", [Fault.UNREACHABLE, Fault.REJECTED])
def test_a_create_that_fails_is_no_verdict_on_a_rolling_rollout(world, fault):
    here = world(rolling())
    here.faults[NODE] = Always(fault)
    here.push(rolling("v2"))
    here.run(1200 * SECOND)
    assert (reported(here)["status"], "could not be created" in reported(here)["why"]) == ("scheduled", True)
    assert any(hold.rule is Rule.PROGRESS for hold in here.tape.last.holds)
    del here.faults[NODE]
    here.run(900 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE


def test_an_image_may_come_much_later_than_the_manifest(world):
    here = world(staged())
    here.faults[NODE] = Always(Fault.REJECTED)
    here.push(staged("v2", delay=7 * 86_400 * SECOND))
    here.run(7200 * SECOND)
    assert standing(here, "v2") is Standing.SCHEDULED
    del here.faults[NODE]
    here.run(400 * SECOND)
    assert up(here, "v2") == 3


def test_a_rolling_rollout_that_keeps_exiting_goes_with_its_evidence(world):
    here = world(rolling())
    here.apps.crash_after[names_of("v2")[0]] = SECOND
    here.push(rolling("v2"))
    here.run(900 * SECOND)
    assert (reported(here)["status"], "in a row" in reported(here)["why"]) == ("failed", True)
    assert containers_of(here, "v2") == []
    assert here.memory.evidence[-1][1]["cause"] == "RevisionFailed"
    starts = many(here, StartContainer)
    assert here.tape.last.status.workloads[0].condition is Condition.DEGRADED
    here.run(1800 * SECOND)
    assert (many(here, CreateContainer), many(here, StartContainer)) == (1, starts)
    # The cause is gone, and the operator resumes the rollout.
    here.apps.crash_after.clear()
    here.memory.say("resume", "workload/web")
    here.run(600 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert row(here, "v2").why == ""


def test_a_running_unready_replica_stays_and_its_rollout_can_continue(world):
    here = world(rolling())
    here.apps.mute |= set(names_of("v2"))
    here.push(rolling("v2"))
    here.run(600 * SECOND)
    assert standing(here, "v2") is Standing.FAILED
    assert "fails its probe" in row(here, "v2").why
    assert containers_of(here, "v2") == names_of("v2")[:1]
    here.apps.mute.clear()
    here.run(300 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert (up(here, "v2"), up(here, "v1")) == (3, 0)


def test_where_the_old_one_went_first_the_new_one_is_tried_on(world):
    here = world(rolling(strategy=Strategy.RECREATE, replicas=1, max_unavailable=1))
    bad = names_of("v2")[0]
    here.apps.crash_after[bad] = SECOND
    here.push(rolling("v2", strategy=Strategy.RECREATE, replicas=1, max_unavailable=1))
    here.run(900 * SECOND)
    assert standing(here, "v2") is Standing.FAILED
    assert containers_of(here, "v2") == [bad]
    here.apps.crash_after.clear()
    here.run(600 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE


def test_a_failed_rollout_continues_where_old_replicas_are_removed_by_hand(world):
    here = world(rolling())
    here.apps.crash_after[names_of("v2")[0]] = SECOND
    here.push(rolling("v2"))
    here.run(900 * SECOND)
    assert containers_of(here, "v2") == []
    here.apps.crash_after.clear()
    gone = names_of("v1")[2]
    here.runtime.exit(gone)
    del here.outside.nodes[NODE][gone]
    here.run(600 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert up(here, "v2") == 3


def test_the_active_revision_declared_again_during_a_rollout_does_not_fail(world):
    here = world(rolling())
    here.push(rolling("v2"))
    for _ in range(60):
        if up(here, "v1") < 3:
            break
        here.run(10 * SECOND)
    assert up(here, "v1") == 2, "v2 is on its way"
    here.apps.mute |= set(names_of("v1"))
    here.push(rolling("v1"))
    here.run(600 * SECOND)
    assert any(hold.rule is Rule.PROGRESS for hold in here.tape.last.holds)
    assert standing(here, "v1") is Standing.ACTIVE
    here.apps.mute.clear()
    here.run(300 * SECOND)
    assert (up(here, "v1"), up(here, "v2")) == (3, 0)
    assert standing(here, "v1") is Standing.ACTIVE


def half_way(here: World) -> None:
    """Until the first replica of v2 has taken the place of one of v1."""
    here.push(rolling("v2"))
    for _ in range(60):
        if up(here, "v1") < 3:
            return
        here.run(5 * SECOND)
    raise AssertionError("v2 does not come")


def test_a_ready_replica_that_fails_and_recovers_lets_the_rollout_continue(world):
    here = world(rolling())
    half_way(here)
    here.apps.mute |= set(names_of("v2"))
    here.run(600 * SECOND)
    assert standing(here, "v2") is Standing.FAILED
    assert up(here, "v1")
    here.apps.mute.clear()
    here.run(300 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert (up(here, "v2"), up(here, "v1")) == (3, 0)


def test_a_host_that_was_down_longer_than_the_deadline_fails_no_rollout(world):
    here = world(rolling())
    half_way(here)
    here.run(30 * SECOND)
    here.runtime.refuse_starts(REFUSED)
    here.run(60 * SECOND)
    before = up(here, "v2")
    assert (standing(here, "v2"), before in {1, 2}) == (Standing.SCHEDULED, True)
    here.reboot_host()
    here.clock.step_wall(3600 * SECOND)
    here.runtime.refuse_starts("")
    for name in names_of("v2")[:before]:
        here.start_by_hand(name)
    here.runtime.refuse_starts(REFUSED)
    here.run(60 * SECOND)
    assert (standing(here, "v2"), REFUSED in reported(here)["why"]) == (Standing.SCHEDULED, True)
    assert containers_of(here, "v2") == names_of("v2")
    here.run(300 * SECOND)
    assert standing(here, "v2") is Standing.FAILED, "it had its time, with the host up"
