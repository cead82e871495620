"""A changed health check takes no address out of a name before it has passed there."""

from dataclasses import dataclass, field, replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.dns import AllUnhealthy, Check, HealthCheck, Publish, Routing, Target
from providers.facts import ProbeFact
from reconciler.core.decide import decide
from reconciler.core.dns.target_health import target_probes
from reconciler.core.model.dns_memory import CheckRow
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.ledger_fold import Command, apply_commands
from reconciler.core.model.observed import Observed
from reconciler.core.model.reasons import Rule, Waiting
from reconciler.core.model.target_probe import TargetProbe
from tests.builders import NOW, Scene
from tests.core.dns.world import A1, A2, CHECK, FAIL, HOST, PASS, World, answer, policy
from tests.sim.manifest import NODE, Spec, shop

NEW = replace(CHECK, path="/new")
PLAIN = policy(Target("all", Publish.ADDRESSES, addresses=(A1, A2)), routing=Routing.SIMPLE)
KEY = PLAIN.key


@dataclass
class Tried(World):
    """A world whose servers answer by address and path; paths without an entry pass."""

    failing: set[tuple[str, str]] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)

    def observed(self) -> Observed:
        at = self.now.steady - SECOND
        answers: dict[TargetProbe, ProbeFact] = {
            probe: answer(FAIL if (probe.address, probe.check.path) in self.failing else PASS, at)
            for probe in target_probes(self.desired(), None, self.ledger.checks)
            if probe.check.path not in self.silent
        }
        return replace(super().observed(), target_answers=answers)

    def published(self) -> set[str]:
        return {value for key, record in self.sets.items() if key.name == HOST for value in record.values}


@pytest.fixture
def world() -> Tried:
    world = Tried((replace(PLAIN, all_unhealthy=AllUnhealthy.FREEZE),))
    world.settle()
    assert world.published() == {A1, A2}
    return world


def declare(world: Tried, check: Check | None) -> None:
    world.policies = (replace(world.policies[0], check=check),)
    world.revision += "x"


@pytest.mark.parametrize("bad", [{A1}, {A1, A2}])
def test_a_wrong_check_takes_no_address_out(world: Tried, bad: set[str]) -> None:
    world.failing = {(address, "/new") for address in bad}
    declare(world, NEW)
    world.settle()
    assert world.published() == {A1, A2}
    decision = world.decide()
    holds = [hold for hold in decision.holds if hold.rule is Rule.PROBE_UNPROVEN]
    assert {hold.action for hold in holds} == {f"check {address}" for address in bad}
    assert f"reconcile resume {KEY}" in holds[0].next_step
    world.failing |= {(A2, "/")}  # the earlier check still decides where the new one has not passed
    world.settle()
    assert world.published() == ({A1} if A2 in bad else {A1, A2})


def test_a_right_check_takes_over_and_then_decides(world: Tried) -> None:
    declare(world, NEW)
    world.settle()
    assert world.ledger.checks[KEY] == CheckRow(NEW)
    world.failing = {(A1, "/new")}
    world.settle()
    assert world.published() == {A2}


def test_a_check_without_a_result_is_waited_for(world: Tried) -> None:
    world.silent = {"/new"}
    declare(world, NEW)
    decision = world.decide()
    assert not decision.steps
    assert len([wait for wait in decision.waits if wait.waiting is Waiting.VERDICT]) == 2
    paths = {(probe.address, probe.check.path) for probe in target_probes(world.desired(), None, world.ledger.checks)}
    assert paths == {(address, path) for address in (A1, A2) for path in ("/", "/new")}


def test_an_operator_may_accept_a_check_that_fails(world: Tried) -> None:
    world.failing = {(A1, "/new")}
    declare(world, NEW)
    world.settle()
    world.ledger = apply_commands(world.ledger, (Command("resume", KEY),))
    world.settle()
    assert world.published() == {A2}
    assert not world.ledger.accepted
    assert not [hold for hold in world.decide().holds if hold.rule is Rule.PROBE_UNPROVEN]


def test_thresholds_of_a_check_take_effect_at_once(world: Tried) -> None:
    slower = replace(CHECK, interval=90 * SECOND, failure_threshold=9)
    declare(world, slower)
    world.decide()
    assert world.ledger.checks[KEY] == CheckRow(slower)


def test_an_added_check_is_tried_and_a_removed_one_ends(world: Tried) -> None:
    declare(world, None)
    world.settle()
    assert world.ledger.checks[KEY] == CheckRow(None)
    world.failing = {(A1, "/new"), (A2, "/new")}
    declare(world, NEW)
    world.settle()
    assert world.published() == {A1, A2}
    world.failing = {(A1, "/new")}
    world.settle()
    assert world.ledger.checks[KEY] == CheckRow(None, (A2,))
    world.failing = set()
    world.settle()
    assert world.ledger.checks[KEY] == CheckRow(NEW)


def test_a_named_check_is_tried_too() -> None:
    target = Target("all", Publish.ADDRESSES, addresses=(A1, A2), check="healthcheck/edge")
    named = HealthCheck("healthcheck/edge", "edge", A1, CHECK)
    world = Tried(
        (policy(target, check=None, routing=Routing.SIMPLE, all_unhealthy=AllUnhealthy.FREEZE),), checks=(named,)
    )
    world.settle()
    world.failing = {(A1, "/new")}
    world.checks = (replace(named, check=NEW),)
    world.settle()
    assert world.published() == {A1, A2}
    assert {hold.object for hold in world.decide().holds} == {"healthcheck/edge"}


def test_a_crash_keeps_the_check_that_decides(world: Tried) -> None:
    world.failing = {(A1, "/new"), (A2, "/new")}
    declare(world, NEW)
    world.settle()
    world.crash()
    world.settle()
    assert world.published() == {A1, A2}
    assert from_rows(to_rows(world.ledger)).checks == world.ledger.checks


def test_a_row_of_another_version_is_lost_and_the_check_decides() -> None:
    rows = to_rows(Ledger(checks={KEY: CheckRow(CHECK, (A1,))}))
    assert from_rows(rows).checks[KEY] == CheckRow(CHECK, (A1,))
    rows["checks", KEY] = '{"check": {"method": "HEAD"}, "proven": []}'
    assert from_rows(rows).checks == {}


@pytest.mark.parametrize("replicas", [0, 2])
def test_a_node_that_cannot_be_read_proves_nothing(replicas: int) -> None:
    scene = Scene(Spec(replicas=replicas))
    desired = shop(replicas=replicas).desired()
    desired = replace(desired, policies=tuple(replace(policy, check=NEW) for policy in desired.policies))
    key, row = "dnspolicy/web", CheckRow(CHECK, ("192.0.2.1",))
    scene.ledger = replace(scene.ledger, checks={key: row})
    scene.unknown.add(NODE)
    assert decide(desired, scene.observed(), NOW).ledger.checks[key] == row
    scene.unknown.clear()
    after = decide(desired, scene.observed(), NOW).ledger.checks[key]
    assert after == (CheckRow(CHECK) if replicas else CheckRow(NEW))
