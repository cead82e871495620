"""A revision that waits beside the active one, its activation, and the time after it. In virtual time."""

from manifests.values.desired import SECOND
from manifests.values.rollouts import Supersede
from providers.actions import SetWeight
from reconciler.core.model.reasons import Rule, Waiting
from reconciler.core.model.revision import Standing
from tests.core.rollouts.world import of, probed, revision, row, staged, standing, up


def test_the_first_revision_takes_the_traffic_as_soon_as_it_is_well(world):
    here = world(staged())
    assert of(here, "v1") == dict.fromkeys(of(here, "v1"), 100)
    assert len(of(here, "v1")) == 3
    assert standing(here, "v1") is Standing.ACTIVE
    assert not here.tape.last.waits


def test_a_new_revision_waits_without_traffic_and_takes_over_when_due(world):
    here = world(staged())
    before = here.published()
    here.push(staged("v2"))
    here.run(100 * SECOND)
    assert up(here, "v1") == up(here, "v2") == 3
    assert not any(of(here, "v2").values())
    assert all(of(here, "v1").values())
    assert here.published() == before
    assert standing(here, "v2") is Standing.SCHEDULED
    here.run(60 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert standing(here, "v1") is Standing.SUPERSEDED
    assert all(of(here, "v2").values())
    assert len(of(here, "v2")) == 3
    assert not any(of(here, "v1").values())
    assert set(here.published()).isdisjoint(before)
    assert len(here.published()) == 3


def test_the_old_revision_drains_is_kept_stopped_and_removed_after_window(world):
    here = world(staged())
    here.push(staged("v2"))
    here.run(300 * SECOND)
    kept = [name for name in here.containers() if revision("v1")[:8] in name]
    assert len(kept) == 3
    assert up(here, "v1") == 0
    assert any(wait.waiting is Waiting.ROLLBACK_WINDOW for wait in here.tape.last.waits)
    assert here.tape.last.status.workloads[0].condition == "Ready"
    here.run(600 * SECOND)
    assert [name for name in here.containers() if revision("v1")[:8] in name] == []
    assert not here.tape.last.waits
    assert standing(here, "v1") is Standing.SUPERSEDED


def test_raises_are_read_back_before_anything_is_lowered(world):
    here = world(staged())
    here.push(staged("v2"))
    here.run(90 * SECOND)
    count = len(here.traffic.writes)
    here.run(120 * SECOND)
    writes = [write.action for write in here.traffic.writes[count:] if isinstance(write.action, SetWeight)]
    directions = ["up" if write.weight else "down" for write in writes]
    assert directions == ["up"] * 3 + ["down"] * 3


# --- when -------------------------------------------------------------------------------------------------------


def test_waiting_replicas_are_probed_from_precheck_and_take_over_on_time(world):
    here = world(staged())
    start = here.clock.now()
    here.push(staged("v2", activate_at=start.wall + 900 * SECOND))
    here.run(60 * SECOND)
    (wait,) = [wait for wait in here.tape.last.waits if wait.waiting is Waiting.ACTIVATION]
    assert wait.until == start.steady + 840 * SECOND
    here.run(779 * SECOND)
    assert (up(here, "v2"), probed(here, "v2")) == (3, 0)
    here.run(2 * SECOND)
    assert probed(here, "v2") == probed(here, "v1") == 3
    here.run(58 * SECOND)
    assert standing(here, "v2") is Standing.SCHEDULED
    here.run(2 * SECOND)
    assert all(of(here, "v2").values())
    assert len(of(here, "v2")) == 3


def test_a_past_time_is_due_now_and_applying_it_again_changes_nothing(world):
    here = world(staged())
    past = here.clock.now().wall - 3600 * SECOND
    here.push(staged("v2", activate_at=past))
    here.run(90 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    here.run(700 * SECOND)
    count = len(here.traffic.writes)
    here.push(staged("v2", activate_at=past))
    here.run(60 * SECOND)
    assert len(here.traffic.writes) == count


def test_another_time_moves_the_activation_and_recreates_nothing(world):
    here = world(staged())
    now = here.clock.now().wall
    here.push(staged("v2", activate_at=now + 7200 * SECOND))
    here.run(60 * SECOND)
    made = {name: one.id for name, one in here.containers().items()}
    here.push(staged("v2", activate_at=now + 300 * SECOND))
    here.run(220 * SECOND)
    assert standing(here, "v2") is Standing.SCHEDULED
    here.run(60 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert {name: one.id for name, one in here.containers().items()} == made


def test_a_program_that_was_down_at_the_time_activates_when_it_is_back(world):
    here = world(staged())
    here.push(staged("v2", activate_at=here.clock.now().wall + 600 * SECOND))
    here.run(60 * SECOND)
    here.kill()
    here.clock.advance(4 * 3600 * SECOND)
    here.run(60 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert up(here, "v2") == 3


def test_an_older_revision_is_never_activated_after_a_newer_one(world):
    here = world(staged())
    now = here.clock.now().wall
    times = {"supersede": Supersede.ON_ACTIVATION}
    here.push(staged("v2", activate_at=now + 900 * SECOND, **times))
    here.run(60 * SECOND)
    here.push(staged("v3", activate_at=now + 300 * SECOND, **times))
    here.run(120 * SECOND)
    assert standing(here, "v2") is standing(here, "v3") is Standing.SCHEDULED
    here.run(240 * SECOND)
    assert standing(here, "v3") is Standing.ACTIVE
    assert standing(here, "v2") is Standing.SUPERSEDED
    here.run(900 * SECOND)
    assert standing(here, "v3") is Standing.ACTIVE
    assert up(here, "v2") == 0
    assert all(of(here, "v3").values())


def test_several_wait_in_line_and_each_takes_over_in_its_turn(world):
    here = world(staged())
    now = here.clock.now().wall
    times = {"supersede": Supersede.ON_ACTIVATION}
    here.push(staged("v2", activate_at=now + 300 * SECOND, **times))
    here.run(60 * SECOND)
    here.push(staged("v3", activate_at=now + 600 * SECOND, **times))
    here.run(270 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert standing(here, "v3") is Standing.SCHEDULED
    here.run(330 * SECOND)
    assert standing(here, "v3") is Standing.ACTIVE
    assert standing(here, "v2") is Standing.SUPERSEDED


def test_of_two_revisions_due_together_the_later_declared_one_wins(world):
    here = world(staged())
    at = here.clock.now().wall + 300 * SECOND
    times = {"supersede": Supersede.ON_ACTIVATION, "activate_at": at}
    here.push(staged("v2", **times))
    here.run(60 * SECOND)
    here.push(staged("v3", **times))
    here.run(270 * SECOND)
    assert standing(here, "v3") is Standing.ACTIVE
    assert standing(here, "v2") is Standing.SUPERSEDED
    assert row(here, "v2").activated is None


def test_a_newer_template_ends_the_waiting_of_an_older_one_at_once(world):
    here = world(staged())
    here.push(staged("v2", delay=3600 * SECOND))
    here.run(60 * SECOND)
    assert up(here, "v2") == 3
    here.push(staged("v3", delay=3600 * SECOND))
    here.run(60 * SECOND)
    assert standing(here, "v2") is Standing.SUPERSEDED
    assert not any(revision("v2")[:8] in name for name in here.containers())
    assert up(here, "v3") == up(here, "v1") == 3


def test_a_template_that_goes_back_to_the_active_one_ends_the_waiting_too(world):
    here = world(staged())
    here.push(staged("v2", delay=3600 * SECOND))
    here.run(60 * SECOND)
    here.push(staged("v1", delay=3600 * SECOND))
    here.run(60 * SECOND)
    assert not any(revision("v2")[:8] in name for name in here.containers())
    assert standing(here, "v1") is Standing.ACTIVE
    assert all(of(here, "v1").values())


def test_a_clock_that_steps_back_undoes_no_activation(world):
    here = world(staged())
    here.push(staged("v2", activate_at=here.clock.now().wall + 120 * SECOND))
    here.run(200 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    here.clock.step_wall(-3600 * SECOND)
    here.run(120 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert all(of(here, "v2").values())
    assert not any(of(here, "v1").values())


def test_a_clock_jump_holds_the_activation_for_one_look(world):
    here = world(staged())
    here.push(staged("v2", activate_at=here.clock.now().wall + 7200 * SECOND))
    here.run(60 * SECOND)
    holds = []
    here.tape.decided = lambda decision, now: (holds.extend(decision.holds), setattr(here.tape, "last", decision))
    here.clock.step_wall(2 * 7200 * SECOND)
    here.run(120 * SECOND)
    assert any(hold.rule is Rule.CLOCK_JUMP for hold in holds)
    assert standing(here, "v2") is Standing.ACTIVE
