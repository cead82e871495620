"""A daemon does not end for faults of its surroundings: it holds what must be remembered, says why, and goes on when they are over."""

import logging
import random
from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from providers.actions import SetWeight
from reconciler.core.model.reasons import Rule
from tests.laws.examples import stride
from tests.laws.helpers import LOOSE, WEB, ready
from tests.sim.manifest import NAMES, NODE, POOLS, Shop, shop
from tests.sim.world import World

MINUTE = 60 * SECOND
PROVIDERS = (NODE, POOLS, NAMES)
FAULTS = 100
"""Faults of one run."""


def rules(world: World) -> set[Rule]:
    """The rules of the holds now."""
    return {hold.rule for hold in world.tape.last.holds}


def same_process(world: World) -> World:
    """The world, whose process must not end from here on."""
    lives = world.lives
    world.checks.append(lambda _: _still(world, lives))
    return world


def _still(world: World, lives: int) -> None:
    assert world.lives == lives


# --- the disk -----------------------------------------------------------------------------------------------------


def test_with_a_full_disk_only_weights_follow_health(worlds):
    world = same_process(ready(worlds(shop())))
    count = len(world.traffic.writes)
    world.memory.full = True
    world.apps.mute.add(WEB.format(1))
    world.runtime.exit(WEB.format(0))
    world.run(MINUTE)
    writes = world.traffic.writes[count:]
    assert writes
    assert all(isinstance(write.action, SetWeight) for write in writes)
    assert world.weights() == {WEB.format(0): 0, WEB.format(1): 0, WEB.format(2): 100}
    held = [hold for hold in world.tape.last.holds if hold.rule is Rule.LEDGER_UNWRITABLE]
    assert {"instance", "workload/web/0"} <= {hold.object for hold in held}
    assert all("no space left" in hold.message and hold.until is not None for hold in held)
    world.apps.mute.clear()
    world.run(MINUTE)
    assert world.weights()[WEB.format(1)] == 100
    world.memory.full = False
    world.run(MINUTE)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}
    assert not world.tape.last.holds


def test_a_full_disk_is_reported_once_and_so_is_its_end(worlds):
    world = ready(worlds(shop()))
    world.memory.full = True
    world.runtime.exit(WEB.format(0))
    notes = len(world.tape.notes)
    world.run(10 * MINUTE)
    assert len([text for level, text in world.tape.notes[notes:] if level >= logging.WARNING]) == 1
    world.memory.full = False
    world.run(MINUTE)
    assert [text for _, text in world.tape.notes[notes:] if "can be written again" in text]
    assert world.memory.audit[-1][1] == "done"


def test_with_a_full_disk_no_weight_is_taken_for_a_plan(worlds):
    world = same_process(ready(worlds(shop(replicas=3, ttl=1, drain=SECOND))))
    world.memory.full = True
    world.push(shop(replicas=1, ttl=1, drain=SECOND))
    world.run(3 * MINUTE)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}
    assert len(world.published()) == 3
    world.memory.full = False
    world.run(3 * MINUTE)
    assert world.weights() == {WEB.format(0): 100}


@pytest.mark.parametrize("after", range(0, 60, 3))
def test_a_disk_that_gets_full_in_the_middle_of_a_rollout_loses_nothing(after, worlds):
    world = ready(worlds(shop(ttl=1, drain=SECOND)))
    world.push(shop(image="v2", ttl=1, drain=SECOND))
    lives = world.lives
    world.run(15 * SECOND + after * SECOND // 2)
    world.memory.full = True
    world.run(2 * MINUTE)
    assert sum(1 for weight in world.weights().values() if weight) >= 2
    count, begun = len(world.traffic.writes), world.memory.begun
    world.run(2 * MINUTE)
    assert (len(world.traffic.writes), world.memory.begun) == (count, begun)
    world.memory.full = False
    world.run(5 * MINUTE)
    assert sorted(world.weights().values()) == [100, 100, 100]
    assert len(world.containers()) == 3
    assert world.lives == lives
    assert not [step for step, outcome in world.memory.journal.values() if not outcome]


def test_an_order_that_cannot_be_recorded_is_not_acknowledged(worlds):
    world = same_process(ready(worlds(shop())))
    world.memory.full = True
    world.memory.say("drain", "workload/web/0", world.clock.now().wall + 600 * SECOND)
    world.run(MINUTE)
    assert len(world.memory.inbox) == 1
    assert world.weights()[WEB.format(0)] == 100
    world.memory.full = False
    world.run(MINUTE)
    assert not world.memory.inbox
    assert world.weights()[WEB.format(0)] == 0


def test_an_order_is_recorded_at_once_when_there_is_space_again(worlds):
    world = ready(worlds(shop()))
    world.memory.full = True
    world.runtime.exit(WEB.format(0))
    world.run(MINUTE)
    world.memory.full = False
    world.memory.say("suspend", "workload/web")
    world.run(1)
    assert not world.memory.inbox
    assert "workload/web" in world.memory.ledger().suspensions


def test_a_kill_while_the_disk_is_full_loses_nothing(worlds):
    world = ready(worlds(shop()))
    world.memory.full = True
    world.apps.mute.add(WEB.format(1))
    world.run(MINUTE)
    world.kill()
    world.memory.full = False
    world.apps.mute.clear()
    world.run(2 * MINUTE)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}


# --- the probe engine, the source, a rule -------------------------------------------------------------------------


def test_a_probe_engine_that_cannot_be_started_is_tried_again(worlds):
    world = same_process(ready(worlds(shop())))
    prober = world.life.prober
    prober.why_silent, prober.unstartable = "the probe engine died: killed by SIGKILL", True
    world.run(5 * MINUTE)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}
    hold = next(hold for hold in world.tape.last.holds if hold.rule is Rule.PROBE_ENGINE)
    assert "Resource temporarily unavailable" in hold.message
    assert hold.until is not None
    prober.unstartable = False
    world.run(MINUTE)
    assert prober.restarts == 1
    assert not world.tape.last.holds


def test_a_source_that_fails_unexpectedly_keeps_the_manifests_in_force(worlds):
    world = same_process(ready(worlds(shop())))
    world.source.error = KeyError("spec")
    world.runtime.exit(WEB.format(0))
    world.run(2 * MINUTE)
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}
    hold = next(hold for hold in world.tape.last.holds if hold.rule is Rule.SOURCE_UNREADABLE)
    assert "KeyError" in hold.message
    world.source.error = None
    world.push(shop(replicas=2))
    world.run(3 * MINUTE)
    assert len(world.weights()) == 2
    assert not world.tape.last.holds


def test_a_rule_that_fails_holds_everything_and_names_the_object(worlds):
    world = same_process(ready(worlds(shop())))
    container = world.containers()[WEB.format(1)]
    container.stale_secrets = 3  # what no provider may return
    world.run(2 * MINUTE)
    hold = next(hold for hold in world.tape.last.holds if hold.rule is Rule.DECISION_FAILED)
    assert hold.object == "workload/web"
    assert "TypeError" in hold.message or "AttributeError" in hold.message
    assert hold.until is not None
    world.memory.say("suspend", "workload/web")
    world.run(SECOND)
    assert not world.memory.inbox, "orders are recorded all the same"
    world.memory.say("resume", "workload/web")
    container.stale_secrets = ()
    world.runtime.exit(WEB.format(0))
    world.run(2 * MINUTE)
    assert not world.tape.last.holds
    assert world.weights() == {WEB.format(n): 100 for n in range(3)}


# --- many faults --------------------------------------------------------------------------------------------------


def busy(image: str = "v1", replicas: int = 3) -> Shop:
    return replace(shop(image=image, replicas=replicas, ttl=1, drain=SECOND), guard=LOOSE, look_pools=SECOND)


class Chaos:
    """Random faults of disk, source, process and ledger, one after the other, some at the same time."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.version, self.replicas = 1, 3
        self.seen: set[Rule] = set()
        self.lives = world.lives

    def fault(self) -> None:
        """One fault: it begins, lasts, and mostly ends before the next one."""
        world, rng = self.world, self.rng
        prober = (world.life or world.start()).prober
        kind = rng.choice(("disk", "source", "engine", "rule", "row", "provider", "kill"))
        container = world.containers()[rng.choice(sorted(world.containers()))] if world.containers() else None
        if kind == "disk":
            world.memory.full = True
        elif kind == "source":
            world.source.error = rng.choice((KeyError("spec"), OSError(5, "Input/output error"), RecursionError()))
        elif kind == "engine":
            prober.why_silent, prober.unstartable = "the probe engine died: killed by SIGKILL", rng.random() < 0.7
        elif kind == "rule" and container is not None:
            container.stale_secrets = 3  # what no provider may return
        elif kind == "row":
            self.damage_rows()
        elif kind == "provider":
            world.outside.break_reads(rng.choice(PROVIDERS))
        elif kind == "kill":
            world.kill_in, world.cut = rng.randrange(20), rng.random() < 0.5
        self.work()
        self.step(rng.choice((SECOND, 7 * SECOND, 40 * SECOND)))
        if rng.random() < 0.8:
            self.mend()
            self.step(rng.choice((SECOND, 20 * SECOND)))

    def damage_rows(self) -> None:
        """Damaged rows are found by the next process."""
        world, rng = self.world, self.rng
        world.kill()
        for key in rng.sample(sorted(world.memory.rows), min(3, len(world.memory.rows))):
            if key[0] not in {"passed", "taken_over", "zones", "approvals", "accepted"}:
                world.memory.rows[key] = rng.choice(('{"a": ', "[[]]", '"?"', "nul"))
        full, world.memory.full = world.memory.full, False
        self.step(SECOND)
        world.memory.full = full

    def work(self) -> None:
        """Something that the program has to react to."""
        world, rng = self.world, self.rng
        event = rng.randrange(5)
        if event == 0 and world.running():
            world.runtime.exit(rng.choice(world.running()))
        elif event == 1:
            self.version += 1
            world.push(busy(f"v{self.version}", self.replicas))
        elif event == 2:
            self.replicas = rng.choice((2, 3, 4))
            world.push(busy(f"v{self.version}", self.replicas))
        elif event == 3 and world.containers():
            world.apps.mute = {rng.choice(sorted(world.containers()))}
        else:
            world.memory.say(rng.choice(("suspend", "resume")), "workload/web", world.clock.now().wall + 30 * SECOND)

    def step(self, duration: int) -> None:
        """Let time pass. A process that was killed at start, as on a full disk, is started again."""
        world = self.world
        world.run(duration)
        if world.tape.last is not None:
            holds = world.tape.last.holds
            self.seen |= {hold.rule for hold in holds}
            assert all(hold.message for hold in holds)

    def mend(self) -> None:
        world = self.world
        world.memory.full, world.source.error, world.apps.mute = False, None, set()
        if world.life is not None:
            world.life.prober.unstartable = False
        for container in world.containers().values():
            container.stale_secrets = ()
        for provider in PROVIDERS:
            world.outside.mend_reads(provider)


@pytest.mark.parametrize("seed", range(0, 24, stride(search=1, ci=2)))
def test_a_hundred_random_faults_end_nothing_and_are_overcome(seed, worlds):
    world = ready(worlds(busy()))
    chaos = Chaos(world, random.Random(seed))
    for _ in range(FAULTS):
        chaos.fault()
    chaos.mend()
    world.kill_in = -1
    world.memory.say("resume", "workload/web")
    world.memory.say("resume", "*")
    world.push(busy("last"))
    world.run(60 * MINUTE)
    assert {Rule.LEDGER_UNWRITABLE, Rule.SOURCE_UNREADABLE, Rule.PROBE_ENGINE, Rule.DECISION_FAILED} <= chaos.seen
    assert sorted(world.weights().values()) == [100, 100, 100]
    assert len(world.containers()) == len(world.published()) == 3
    assert not world.tape.last.steps
    assert not {Rule.LEDGER_UNWRITABLE, Rule.SOURCE_UNREADABLE, Rule.PROBE_ENGINE, Rule.DECISION_FAILED} & rules(world)
