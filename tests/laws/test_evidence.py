"""Evidence is kept before a restart destroys it, and each event is reported once."""

import random
from collections import Counter

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import Strategy
from reconciler.core.model.instant import instant
from reconciler.core.model.restart_request import Request
from reconciler.shell.apply.evidence import LOG_LIMIT
from reconciler.shell.secrets import SECRETS
from tests.laws.helpers import WEB, ready
from tests.sim.manifest import NODE, shop
from tests.sim.world import World


@pytest.fixture
def world():
    made = World(shop())
    ready(made)
    made.memory.events.clear()
    yield made
    made.close()


def sicken(world: World, ordinal: int, *lines: str) -> None:
    name = WEB.format(ordinal)
    world.containers()[name].log.extend(lines)
    world.apps.sick.add(world.generation(name))


def test_a_health_restart_keeps_probe_results_log_and_exit(world):
    sicken(world, 0, "out of file descriptors", "giving up")
    world.run(120 * SECOND)
    [(obj, kept)] = world.memory.evidence
    assert obj == "workload/web/0"
    assert kept["cause"] == "LivenessFailed"
    assert kept["probes"]["liveness"]["verdict"] == "fail"
    assert kept["log"][-2:] == ["out of file descriptors", "giving up"]
    assert kept["end"]["cause"] == "stopped-by-us"


def test_a_crash_keeps_its_exit_code_and_log(world):
    world.containers()[WEB.format(1)].log.append("segmentation fault")
    world.runtime.exit(WEB.format(1))
    world.run(60 * SECOND)
    [(obj, kept)] = world.memory.evidence
    assert (obj, kept["cause"], kept["log"][-1]) == ("workload/web/1", "Crashed", "segmentation fault")
    assert kept["end"]["exit_code"] is not None


def engine_like(restart: str = "unless-stopped") -> World:
    """A world whose runtime starts a container again by itself."""
    made = World(shop(restart=restart))
    made.runtime.in_place = True
    ready(made)
    made.memory.events.clear()
    return made


@pytest.mark.parametrize(("code", "cause"), [(0, "Exited"), (3, "Crashed"), (139, "Crashed")])
def test_an_end_that_the_runtime_repairs_keeps_code_and_log(code, cause):
    world = engine_like()
    name = WEB.format(1)
    world.runtime.say(name, "precious last words")
    world.runtime.exit(name, code)
    world.runtime.say(name, "a new beginning")
    world.run(60 * SECOND)
    [(obj, kept)] = world.memory.evidence
    assert (obj, kept["cause"], kept["end"]) == ("workload/web/1", cause, {"exit_code": code, "cause": "exited"})
    assert kept["log"] == ["precious last words"]
    [event] = [event for event in world.memory.events if event.kind == "exit"]
    assert (event.object, event.cause, event.outcome) == ("workload/web/1", cause, "started again by the runtime")
    assert world.memory.ledger().by_runtime.keys() == {"workload/web/1"}
    world.close()


def test_a_kill_for_memory_of_the_main_process_is_kept_as_one(world):
    world.runtime.say(WEB.format(1), "allocating")
    world.runtime.run_out_of_memory(WEB.format(1))
    world.run(60 * SECOND)
    [(_, kept)] = world.memory.evidence
    assert (kept["cause"], kept["end"]["cause"], kept["log"]) == ("OOMKilled", "oom-killed", ["allocating"])


def test_a_kill_for_memory_of_a_child_is_kept_while_it_runs_on(world):
    name = WEB.format(1)
    before = world.generation(name)
    world.runtime.say(name, "the worker is gone")
    world.runtime.lose_child(name)
    world.run(60 * SECOND)
    [(_, kept)] = world.memory.evidence
    assert (kept["cause"], kept["end"], kept["log"]) == ("OOMKilled", None, ["the worker is gone"])
    assert world.generation(name) == before
    [event] = [event for event in world.memory.events if event.kind == "exit"]
    assert event.outcome == "runs on"


def test_an_end_with_0_is_kept_with_any_starter_of_the_container(world):
    world.runtime.say(WEB.format(1), "done")
    world.runtime.exit(WEB.format(1), 0)
    world.run(60 * SECOND)
    [(_, kept)] = world.memory.evidence
    assert (kept["cause"], kept["end"]["exit_code"], kept["log"]) == ("Exited", 0, ["done"])


def test_an_end_that_nothing_repairs_is_kept(world):
    world.memory.say("suspend", "workload/web")
    world.run(5 * SECOND)
    world.runtime.exit(WEB.format(1), 4)
    world.run(60 * SECOND)
    [(_, kept)] = world.memory.evidence
    assert kept["end"]["exit_code"] == 4


def test_an_end_while_the_program_was_down_is_reported_by_the_next_one():
    world = engine_like()
    world.kill()
    world.runtime.exit(WEB.format(2), 5)
    world.run(60 * SECOND)
    world.restart()
    world.run(60 * SECOND)
    assert [kept["end"]["exit_code"] for _, kept in world.memory.evidence] == [5]
    assert [event.kind for event in world.memory.events].count("exit") == 1
    world.close()


def test_the_programs_own_restarts_are_no_ends(world):
    request = Request("workload/web", instant(world.clock.now()), "ada", "new weights")
    world.memory.request("r-1", request)
    world.run(900 * SECOND)
    assert world.memory.ledger().requests["r-1"].succeeded
    assert not [event for event in world.memory.events if event.kind == "exit"]
    assert world.memory.evidence == []


def removals(world: World) -> list[str]:
    """The containers of which an event says that another program removed them."""
    return [event.step.removeprefix("removal of ") for event in world.memory.events if event.kind == "removed"]


def remove(world: World, name: str) -> None:
    """Another program removes a container."""
    del world.outside.nodes[NODE][name]


@pytest.mark.parametrize("down", [False, True], ids=["a daemon runs", "none runs"])
def test_a_container_that_another_program_removes_is_an_event(world, down):
    name = WEB.format(1)
    if down:
        world.kill()
    remove(world, name)
    world.run(60 * SECOND)
    [event] = [event for event in world.memory.events if event.kind == "removed"]
    assert (event.object, event.outcome) == ("workload/web/1", "not by reconcile")
    assert f"another program removed {name} from {NODE}" in event.message
    assert name in world.running()
    world.restart()
    world.run(60 * SECOND)
    assert removals(world) == [name]


def test_a_container_that_is_removed_in_a_health_restart_is_an_event(world):
    name = WEB.format(1)
    sicken(world, 1)
    for _ in range(60):
        world.run(SECOND)
        if world.memory.ledger().grants:
            break
    remove(world, name)
    world.run(60 * SECOND)
    assert removals(world) == [name]


def test_a_node_that_cannot_be_read_hides_containers_and_removes_none(world):
    world.outside.break_reads(NODE)
    world.run(120 * SECOND)
    world.outside.mend_reads(NODE)
    world.run(60 * SECOND)
    assert removals(world) == []


@pytest.mark.parametrize("seed", range(4))
def test_the_programs_own_removals_are_no_events_over_kills(world, seed):
    dice = random.Random(seed)
    changes = [shop(image="v2"), shop(image="v2", replicas=1), shop(image="v3", replicas=2, strategy=Strategy.RECREATE)]
    for change in changes:
        world.push(change)
        for _ in range(8):
            world.kill_in = dice.randrange(1, 80)
            world.run(30 * SECOND)
        world.kill_in = -1
        world.run(300 * SECOND)
    assert len(world.running()) == 2
    assert removals(world) == []


@pytest.mark.parametrize("seed", range(6))
def test_kills_of_the_program_never_multiply_the_ends(seed):
    world = engine_like()
    dice = random.Random(seed)
    ended = 0
    for _ in range(6):
        world.runtime.exit(WEB.format(dice.randrange(3)), 7)
        ended += 1
        world.kill_in = dice.randrange(1, 60)
        world.run(20 * SECOND)
    world.kill_in = -1
    world.run(60 * SECOND)
    events = [event for event in world.memory.events if event.kind == "exit"]
    assert 0 < len(events) <= ended
    assert all(event.cause == "Crashed" for event in events)
    world.close()


def test_evidence_contains_no_secrets_and_has_a_bounded_size(world):
    SECRETS.add("sentinel-of-the-log")
    sicken(world, 0, *("x" * 1_000 for _ in range(45)), "token=sentinel-of-the-log")
    world.run(120 * SECOND)
    [(_, kept)] = world.memory.evidence
    assert "sentinel" not in str(kept)
    assert kept["log"][-1] == "token=***"
    assert len("\n".join(kept["log"])) <= LOG_LIMIT


def test_a_rollout_keeps_no_evidence(world):
    world.push(shop(image="v2"))
    world.run(300 * SECOND)
    assert world.memory.evidence == []


def test_events_report_the_verdict_and_the_restart(world):
    sicken(world, 0)
    world.run(120 * SECOND)
    verdicts = [event for event in world.memory.events if event.kind == "verdict" and event.object == "workload/web/0"]
    assert [verdict.cause for verdict in verdicts][:1] == ["pass -> fail"]
    assert any("restart granted" in verdict.outcome for verdict in verdicts)
    assert [event.kind for event in world.memory.events].count("evidence") == 1


def test_events_report_what_a_suspension_holds_and_what_was_done(world):
    world.memory.say("suspend", "workload/web")
    sicken(world, 0)
    world.run(120 * SECOND)
    [verdict] = [
        event for event in world.memory.events if event.kind == "verdict" and event.step.startswith("liveness")
    ]
    assert verdict.outcome.startswith("acted on: weight 0 in ")
    assert verdict.outcome.endswith(f"; restart {WEB.format(0)} is held by Suspended")


def test_a_hold_is_reported_at_its_begin_and_end_across_restarts(world):
    world.memory.say("suspend", "workload/web")
    world.run(5 * SECOND)
    world.runtime.exit(WEB.format(0))
    world.run(60 * SECOND)
    world.restart()
    world.run(60 * SECOND)
    world.memory.say("resume", "workload/web")
    world.run(120 * SECOND)
    counts = Counter((event.kind, event.cause) for event in world.memory.events if event.step.startswith("start "))
    assert counts["held", "Suspended"] == counts["released", "Suspended"] == 1


def test_operator_commands_are_reported_once_across_restarts(world):
    world.memory.say("suspend", "workload/web")
    world.memory.request("r1", Request("workload/web/0", instant(world.clock.now()), "ada", "a test", deadline=SECOND))
    world.run(60 * SECOND)
    world.restart()
    world.run(60 * SECOND)
    world.memory.say("resume", "workload/web")
    world.run(60 * SECOND)
    kinds = [event.kind for event in world.memory.events if event.kind in {"suspended", "resumed", "request"}]
    assert Counter(kinds) == {"suspended": 1, "resumed": 1, "request": 3}
