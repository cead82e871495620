"""A whole revision beside the active one: waiting, the switch, what follows it, and how it is taken back. In virtual time."""

from dataclasses import replace

import pytest

from laws.watchdog import Watchdog
from manifests.desired import SECOND
from manifests.rollouts import CanaryStep, Rollout, Strategy, Supersede
from providers.actions import CreateContainer, RemoveContainer, SetWeight, StartContainer
from reconciler.core.revision import Standing
from reconciler.core.verdict import Rule, Waiting
from sim.manifest import Shop, Spec, shop
from sim.world import World

TIMES = Rollout(delay=120 * SECOND)


def staged(image: str = "v1", **fields) -> Shop:
    times = {name: fields.pop(name) for name in list(fields) if name in Rollout.__dataclass_fields__}
    fields.setdefault("strategy", Strategy.ACTIVATE)
    return shop(image=image, rollout=replace(TIMES, **times), **fields)


def revision(image: str) -> str:
    return Spec(image=image).revision


def of(world: World, image: str) -> dict[str, int]:
    """Weights of the containers of one image."""
    return {name: weight for name, weight in world.weights().items() if revision(image)[:8] in name}


def standing(world: World, image: str) -> Standing | None:
    found = row(world, image)
    return None if found is None else found.standing


def row(world: World, image: str):
    return world.memory.ledger().rollouts["workload/web"].of(revision(image))


def up(world: World, image: str) -> int:
    return sum(revision(image)[:8] in name for name in world.running())


@pytest.fixture
def world():
    made: list[World] = []

    def make(this: Shop) -> World:
        one = World(this)
        one.dog = Watchdog(one)
        made.append(one)
        one.run(90 * SECOND)
        return one

    yield make
    for one in made:
        one.close()


def test_the_first_revision_takes_the_traffic_as_soon_as_it_is_well(world):
    here = world(staged())
    assert of(here, "v1") == dict.fromkeys(of(here, "v1"), 100)
    assert len(of(here, "v1")) == 3
    assert standing(here, "v1") is Standing.ACTIVE
    assert not here.tape.last.waits


def test_a_new_revision_stands_by_without_traffic_and_takes_over_when_it_is_due(world):
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


def test_the_old_revision_drains_is_kept_stopped_and_is_removed_after_the_window(world):
    here = world(staged())
    here.push(staged("v2"))
    here.run(300 * SECOND)
    kept = [name for name in here.containers() if revision("v1")[:8] in name]
    assert len(kept) == 3
    assert up(here, "v1") == 0
    assert any(one.waiting is Waiting.ROLLBACK_WINDOW for one in here.tape.last.waits)
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
    writes = [one.action for one in here.traffic.writes[count:] if isinstance(one.action, SetWeight)]
    directions = ["up" if one.weight else "down" for one in writes]
    assert directions == ["up"] * 3 + ["down"] * 3


# --- when -------------------------------------------------------------------------------------------------------


def probed(world: World, image: str) -> int:
    """How many containers of an image are asked anything."""
    ids = {one.id for name, one in world.containers().items() if revision(image)[:8] in name}
    return len({generation.container_id for generation, _ in world.life.prober.running} & ids)


def test_waiting_replicas_are_probed_from_the_precheck_on_and_activated_at_the_instant(world):
    here = world(staged())
    start = here.clock.now()
    here.push(staged("v2", activate_at=start.wall + 900 * SECOND))
    here.run(60 * SECOND)
    (wait,) = [one for one in here.tape.last.waits if one.waiting is Waiting.ACTIVATION]
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


def test_a_time_in_the_past_is_due_now_and_applying_it_again_changes_nothing(world):
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


def test_another_time_moves_the_switch_and_makes_nothing_anew(world):
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


def test_of_two_that_are_due_together_the_one_that_was_declared_later_wins(world):
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


def test_a_clock_that_steps_back_undoes_no_switch(world):
    here = world(staged())
    here.push(staged("v2", activate_at=here.clock.now().wall + 120 * SECOND))
    here.run(200 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    here.clock.step_wall(-3600 * SECOND)
    here.run(120 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert all(of(here, "v2").values())
    assert not any(of(here, "v1").values())


def test_clocks_that_jump_against_each_other_hold_the_switch_for_one_look(world):
    here = world(staged())
    here.push(staged("v2", activate_at=here.clock.now().wall + 7200 * SECOND))
    here.run(60 * SECOND)
    told = []
    here.tape.decided = lambda decision, now: (told.extend(decision.holds), setattr(here.tape, "last", decision))
    here.clock.step_wall(2 * 7200 * SECOND)
    here.run(120 * SECOND)
    assert any(one.rule is Rule.CLOCK_JUMP for one in told)
    assert standing(here, "v2") is Standing.ACTIVE


# --- whether ----------------------------------------------------------------------------------------------------


def names_of(image: str, replicas: int = 3) -> list[str]:
    return [f"shop-web-{revision(image)[:8]}-{ordinal}" for ordinal in range(replicas)]


def test_a_bad_revision_is_never_let_in_and_expires_loudly(world):
    here = world(staged())
    here.apps.mute |= {names_of("v2")[1]}
    here.push(staged("v2", pending_grace=1800 * SECOND))
    here.run(1700 * SECOND)
    assert standing(here, "v2") is Standing.SCHEDULED
    assert not any(of(here, "v2").values())
    assert any(one.waiting is Waiting.VERIFIED for one in here.tape.last.waits)
    here.run(400 * SECOND)
    assert standing(here, "v2") is Standing.EXPIRED
    (hold,) = [one for one in here.tape.last.holds if one.rule is Rule.REVISION_OVER]
    assert hold.person
    assert "2 of 3 replicas" in hold.message
    here.run(120 * SECOND)
    assert not any(revision("v2")[:8] in name for name in here.containers())
    assert all(of(here, "v1").values())
    # The next poll does not try it again; another time for it does.
    here.apps.mute.clear()
    here.push(staged("v2", pending_grace=1800 * SECOND))
    here.run(600 * SECOND)
    assert standing(here, "v2") is Standing.EXPIRED
    here.push(staged("v2", delay=60 * SECOND))
    here.run(180 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE


def test_the_newest_due_one_that_is_not_well_does_not_let_an_older_one_in(world):
    here = world(staged())
    now = here.clock.now().wall
    times = {"supersede": Supersede.ON_ACTIVATION}
    here.apps.mute |= set(names_of("v3"))
    here.push(staged("v2", activate_at=now + 300 * SECOND, **times))
    here.run(30 * SECOND)
    here.push(staged("v3", activate_at=now + 300 * SECOND, **times))
    here.run(900 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert not any(of(here, "v2").values())


def test_a_waiting_revision_is_not_let_in_early_when_the_active_one_falls_ill(world):
    here = world(staged())
    here.push(staged("v2", delay=3600 * SECOND))
    here.run(60 * SECOND)
    here.apps.sick.add(here.generation(names_of("v1")[0]))
    before = here.generation(names_of("v1")[0])
    here.run(120 * SECOND)
    assert here.generation(names_of("v1")[0]) != before
    assert standing(here, "v1") is Standing.ACTIVE
    assert not any(of(here, "v2").values())


def test_with_both_unwell_the_active_one_keeps_the_traffic(world):
    here = world(staged())
    here.push(staged("v2"))
    here.run(60 * SECOND)
    here.apps.mute |= {*names_of("v1"), *names_of("v2")}
    here.run(600 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert any(of(here, "v1").values())
    assert not any(of(here, "v2").values())


def test_a_waiting_replica_that_crashes_is_started_again_and_in_the_end_its_revision_has_failed(world):
    here = world(staged())
    bad = names_of("v2")[0]
    here.apps.crash_after[bad] = SECOND
    here.push(staged("v2", delay=7200 * SECOND))
    here.run(3600 * SECOND)
    assert standing(here, "v2") is Standing.FAILED
    starts = [one for one in here.traffic.writes if isinstance(one.action, StartContainer) and one.action.name == bad]
    assert 2 <= len(starts) <= 7
    assert not any(revision("v2")[:8] in name for name in here.containers())
    assert all(of(here, "v1").values())


def test_a_workload_that_is_taken_out_of_the_manifests_takes_its_waiting_revision_along(world):
    here = world(staged())
    here.push(staged("v2", delay=7200 * SECOND))
    here.run(60 * SECOND)
    here.push(replace(staged("v2"), destroy=True))
    here.run(600 * SECOND)
    assert here.running() == []


def test_a_suspended_workload_switches_when_it_is_resumed_and_its_grace_has_not_run(world):
    here = world(staged())
    here.push(staged("v2", pending_grace=600 * SECOND))
    here.run(30 * SECOND)
    here.push(staged("v2", pending_grace=600 * SECOND, suspend=True))
    here.run(1800 * SECOND)
    assert standing(here, "v2") is Standing.SCHEDULED
    here.push(staged("v2", pending_grace=600 * SECOND))
    here.run(60 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE


# --- taking it back ---------------------------------------------------------------------------------------------


def test_a_revision_that_turns_bad_within_bake_is_taken_back_without_a_new_container(world):
    here = world(staged())
    old = {name: here.containers()[name].id for name in names_of("v1")}
    here.push(staged("v2"))
    here.run(220 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert up(here, "v1") == 0
    count = len(here.traffic.writes)
    here.apps.mute |= set(names_of("v2"))
    here.run(120 * SECOND)
    assert standing(here, "v2") is Standing.FAILED
    assert standing(here, "v1") is Standing.ACTIVE
    assert all(of(here, "v1").values())
    assert not any(of(here, "v2").values())
    assert {name: here.containers()[name].id for name in names_of("v1")} == old
    assert not any(isinstance(one.action, CreateContainer) for one in here.traffic.writes[count:])
    # It is not tried again until its manifest changes.
    here.apps.mute.clear()
    here.run(3600 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert all(of(here, "v1").values())
    assert any(one.rule is Rule.REVISION_OVER for one in here.tape.last.holds)
    here.push(staged("v3", delay=60 * SECOND))
    here.run(180 * SECOND)
    assert standing(here, "v3") is Standing.ACTIVE


def test_a_revision_that_turns_bad_after_bake_stays(world):
    here = world(staged())
    here.push(staged("v2"))
    here.run(600 * SECOND)
    here.apps.mute |= set(names_of("v2"))
    here.run(300 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert any(of(here, "v2").values())


def test_a_person_takes_the_switch_back_and_the_next_poll_does_not_undo_it(world):
    here = world(staged())
    here.push(staged("v2"))
    here.run(300 * SECOND)
    count = len(here.traffic.writes)
    here.memory.say("rollback", "workload/web")
    here.run(90 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert standing(here, "v2") is Standing.FAILED
    assert "taken back by somebody: a test" in row(here, "v2").why
    assert not any(isinstance(one.action, CreateContainer | RemoveContainer) for one in here.traffic.writes[count:])
    here.push(staged("v2"))
    here.run(1200 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert all(of(here, "v1").values())


def test_a_person_cannot_take_back_what_has_nothing_before_it(world):
    here = world(staged())
    here.memory.say("rollback", "workload/web")
    here.run(60 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert "no revision before it is kept" in row(here, "v1").why


def test_a_waiting_revision_that_is_taken_back_is_not_let_in(world):
    here = world(staged())
    here.push(staged("v2", delay=600 * SECOND))
    here.run(60 * SECOND)
    here.memory.say("rollback", "workload/web")
    here.run(1200 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert standing(here, "v2") is Standing.FAILED
    assert not any(revision("v2")[:8] in name for name in here.containers())


# --- canary -----------------------------------------------------------------------------------------------------

STEPS = (CanaryStep(1_000, 60 * SECOND), CanaryStep(5_000, 60 * SECOND))


def canary(image: str = "v1", **fields) -> Shop:
    return staged(image, strategy=Strategy.CANARY, delay=0, steps=STEPS, **fields)


def test_a_canary_gets_its_shares_one_after_the_other_and_then_everything(world):
    here = world(canary())
    here.push(canary("v2"))
    here.run(50 * SECOND)
    assert set(of(here, "v2").values()) == {11}  # a ninth of the others, so a tenth of all
    assert set(of(here, "v1").values()) == {100}
    here.run(60 * SECOND)
    assert set(of(here, "v2").values()) == set(of(here, "v1").values()) == {100}
    here.run(90 * SECOND)
    assert set(of(here, "v2").values()) == {100}
    assert set(of(here, "v1").values()) <= {0}
    assert standing(here, "v2") is Standing.ACTIVE


def test_a_canary_that_fails_is_back_at_exactly_nothing_and_stays_out(world):
    here = world(canary())
    here.push(canary("v2"))
    here.run(50 * SECOND)
    here.apps.mute |= set(names_of("v2"))
    here.run(60 * SECOND)
    assert set(of(here, "v2").values()) <= {0}
    assert set(of(here, "v1").values()) == {100}
    assert standing(here, "v2") is Standing.FAILED
    here.apps.mute.clear()
    here.run(900 * SECOND)
    assert set(of(here, "v1").values()) == {100}
    assert not any(revision("v2")[:8] in name for name in here.containers())


def test_a_newer_revision_in_the_middle_of_a_canary_starts_from_nothing(world):
    here = world(canary())
    here.push(canary("v2"))
    here.run(120 * SECOND)
    assert set(of(here, "v2").values()) == {100}
    seen = []
    here.checks.append(lambda action: seen.append((dict(of(here, "v2")), dict(of(here, "v3")))))
    here.push(canary("v3"))
    here.run(50 * SECOND)
    assert set(of(here, "v3").values()) == {11}
    assert set(of(here, "v1").values()) == {100}
    assert standing(here, "v2") is Standing.SUPERSEDED
    assert all(not any(two.values()) or not any(three.values()) for two, three in seen)
    here.run(200 * SECOND)
    assert standing(here, "v3") is Standing.ACTIVE


# --- crashes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken_back", [False, True], ids=["switch", "taking it back"])
def test_a_kill_at_every_point_of_a_switch_leaves_it_to_the_next_process(taken_back):
    point = 0
    while True:
        here = World(staged())
        here.dog = Watchdog(here)
        try:
            here.run(90 * SECOND)
            here.push(staged("v2"))
            here.run((280 if taken_back else 112) * SECOND)
            if taken_back:
                here.apps.mute |= set(names_of("v2"))
            lives = here.lives
            here.kill_in = point
            ups: list[int] = []
            here.checks.append(lambda action, ups=ups, here=here: ups.append(sum(map(bool, here.weights().values()))))
            here.run(240 * SECOND)
            died = here.lives > lives
            assert standing(here, "v2") is (Standing.FAILED if taken_back else Standing.ACTIVE), point
            assert standing(here, "v1") is (Standing.ACTIVE if taken_back else Standing.SUPERSEDED), point
            good, other = ("v1", "v2") if taken_back else ("v2", "v1")
            assert all(of(here, good).values()), point
            assert len(of(here, good)) == 3
            assert not any(of(here, other).values()), point
            assert not ups or min(ups) >= 1
        finally:
            here.close()
        if not died:
            break
        point += 1 + point // 6
    assert point > 6


def test_a_lost_ledger_finds_the_active_revision_in_the_weights(world):
    here = world(staged())
    here.push(staged("v2", delay=7200 * SECOND))
    here.run(60 * SECOND)
    here.kill()
    here.memory.rows.clear()
    here.run(120 * SECOND)
    assert standing(here, "v1") is Standing.ACTIVE
    assert standing(here, "v2") is Standing.SCHEDULED
    assert all(of(here, "v1").values())
    assert not any(of(here, "v2").values())


# --- one replica after the other ----------------------------------------------------------------------------------


def test_a_rolling_rollout_keeps_the_books_and_is_called_stuck_in_the_end(world):
    here = world(shop())
    assert standing(here, "v1") is Standing.ACTIVE
    here.apps.mute |= {names_of("v2")[0]}
    here.push(shop(image="v2"))
    here.run(300 * SECOND)
    assert standing(here, "v2") is Standing.SCHEDULED
    assert not here.tape.last.holds
    here.run(500 * SECOND)
    (hold,) = [one for one in here.tape.last.holds if one.rule is Rule.PROGRESS]
    assert hold.person
    assert up(here, "v1") == 3
    here.push(shop(image="v3"))
    here.run(300 * SECOND)
    assert standing(here, "v3") is Standing.ACTIVE
    assert standing(here, "v2") is standing(here, "v1") is Standing.SUPERSEDED
    assert up(here, "v3") == 3
    assert len(here.running()) == 3


def test_an_old_address_leaves_names_only_after_the_new_one_has_joined(world):
    here = world(shop())
    sizes: list[int] = []
    here.checks.append(lambda action: sizes.append(len(here.published())))
    here.push(shop(image="v2"))
    here.run(600 * SECOND)
    assert standing(here, "v2") is Standing.ACTIVE
    assert min(sizes) >= 3
