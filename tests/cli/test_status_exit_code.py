"""`reconcile status --exit-code` for external monitors, and its rules against those of a single run."""

import json

import pytest

from manifests.values.desired import SECOND
from providers.facts import ProbeValue
from reconciler.core.model.reasons import Rule, Waiting
from reconciler.exits import Exit
from reconciler.shell.report.stored_exit import judge
from reconciler.shell.report.summary import decision_json, summarize
from tests.laws.helpers import LOOSE, QUICK, WEB
from tests.sim.manifest import NODE, Shop, Spec
from tests.sim.world import World

HOUR = 3_600 * SECOND


@pytest.fixture
def world():
    made = World(Shop((Spec(backoff=QUICK),), guard=LOOSE))
    made.run(90 * SECOND)
    yield made
    made.close()


def compared(world: World) -> Exit:
    """The code of the stored decision, which is also that of a single run that ends with it."""
    assert world.monitoring is not None
    tick = world.monitoring.last
    assert tick is not None
    stored = json.loads(decision_json(tick.decision, tick.desired, tick.now))
    code, reasons = judge(stored, tick.now.wall, live=True, max_age=HOUR)
    summary = summarize(tick.decision, (), tick.now)
    assert (code, reasons) == (summary.exit, summary.reasons)
    return code


def test_a_converged_world_is_converged(world):
    assert compared(world) is Exit.OK


def test_the_codes_of_incidents_are_those_of_a_single_run(world):
    world.apps.lies[WEB.format(1), "readiness"] = ProbeValue.FAIL
    world.apps.cursed.add(WEB.format(2))
    codes = set()
    for _ in range(60):
        world.run(7 * SECOND)
        codes.add(compared(world))
    assert Exit.UNFINISHED in codes
    world.outside.break_reads(NODE)
    world.run(60 * SECOND)
    assert compared(world) is Exit.UNFINISHED


def test_a_suspension_that_holds_something_needs_an_operator(world):
    world.memory.say("suspend", "*")
    world.runtime.exit(WEB.format(0))
    world.run(60 * SECOND)
    assert compared(world) is Exit.MANUAL


def codes_while_draining(world: World, seconds: int) -> list[Exit]:
    """The codes of the decisions from now on in which a container drains."""
    codes: list[Exit] = []
    for _ in range(seconds):
        world.run(SECOND)
        if any(wait.waiting is Waiting.DRAIN for wait in world.tape.last.waits):
            codes.append(compared(world))
    return codes


@pytest.fixture
def slow_exits():
    made = World(Shop((Spec(replicas=2, drain=60 * SECOND, backoff=QUICK),), guard=LOOSE))
    made.run(90 * SECOND)
    yield made
    made.close()


def test_a_replica_that_drains_for_its_health_is_unfinished(slow_exits):
    slow_exits.apps.sick.add(slow_exits.generation(WEB.format(0)))
    codes = codes_while_draining(slow_exits, 100)
    assert len(codes) > 30
    assert set(codes) == {Exit.UNFINISHED}
    slow_exits.run(90 * SECOND)
    assert compared(slow_exits) is Exit.OK


def test_a_run_that_ends_in_the_drain_of_a_health_restart_is_unfinished(slow_exits):
    slow_exits.apps.sick.add(slow_exits.generation(WEB.format(0)))
    summary = slow_exits.once(45 * SECOND)
    assert [wait.waiting for wait in summary.decision.waits] == [Waiting.DRAIN]
    assert summary.exit is Exit.UNFINISHED
    assert [reason for reason in summary.reasons if "waiting for drain" in reason]


def test_a_replica_that_drains_for_the_manifests_counts_as_converged(slow_exits):
    slow_exits.push(Shop((Spec(replicas=1, drain=60 * SECOND, backoff=QUICK),), guard=LOOSE))
    codes = codes_while_draining(slow_exits, 120)
    assert len(codes) > 30
    assert set(codes) == {Exit.OK}


EMPTY = {"at_wall": 100 * HOUR, "holds": [], "waits": [], "steps": [], "status": {}}


@pytest.mark.parametrize(
    ("live", "age", "code"),
    [(True, 50, Exit.OK), (False, 0, Exit.OK), (False, 1, Exit.OK), (False, 2, Exit.UNFINISHED)],
)
def test_an_old_decision_says_nothing_without_a_daemon(live, age, code):
    assert judge(EMPTY, 100 * HOUR + age * HOUR, live=live, max_age=HOUR)[0] is code


def test_a_rule_of_a_newer_version_is_unfinished():
    hold = {"object": "x", "action": "y", "rule": "NoSuchRule", "message": "z"}
    assert judge({**EMPTY, "holds": [hold]}, 100 * HOUR, live=True, max_age=HOUR)[0] is Exit.UNFINISHED
    assert "NoSuchRule" not in {rule.value for rule in Rule}


def test_a_check_without_a_verdict_is_unfinished():
    stored = {**EMPTY, "status": {"checks": [{"key": "healthcheck/x", "healthy": None, "reason": "not checked yet"}]}}
    code, reasons = judge(stored, 100 * HOUR, live=True, max_age=HOUR)
    assert (code, reasons) == (Exit.UNFINISHED, ("healthcheck/x: has no verdict (not checked yet)",))


def test_the_command_ends_with_the_code_and_gives_the_reasons(stored, reconcile):
    assert reconcile("status", "--instance-id", "small").code == 0
    done = reconcile("status", "--instance-id", "small", "--exit-code")
    assert done.code == 6
    assert f"(exit {done.code})" in done.out.splitlines()[-1]
    document = reconcile("status", "--instance-id", "small", "--exit-code", "-o", "json")
    assert document.code == done.code == document.document["exit_code"]
    assert all(reason in done.out for reason in document.document["reasons"])
