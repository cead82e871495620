"""When a single run ends, and its exit code."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.dns import Record
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Rule, Wait, Waiting
from reconciler.core.status.objects import Status
from reconciler.exits import Exit
from reconciler.shell.report.summary import Summary, pending, summarize
from tests.core.dns.world import FAIL, NAMES, ZONE, World, geo_world

NOW = Now(1_000 * SECOND, 100 * SECOND, "boot")
SOON = NOW.steady + 30 * SECOND


def waiting(kind: Waiting) -> Decision:
    waits = (Wait("workload/web", kind, "for a while", SOON),)
    return Decision(steps=(), holds=(), waits=waits, status=Status(), ledger=Ledger(), wake_at=SOON)


@pytest.mark.parametrize("kind", [Waiting.ACTIVATION, Waiting.DRAIN, Waiting.TTL, Waiting.PAUSE])
def test_a_run_waits_for_a_wait_that_ends_before_the_deadline(kind):
    assert pending(waiting(kind), SOON)


def test_a_run_does_not_wait_for_the_end_of_a_rollback_window():
    decision = waiting(Waiting.ROLLBACK_WINDOW)
    assert not pending(decision, SOON + 600 * SECOND)
    summary = summarize(decision, (), NOW)
    assert summary.exit is Exit.OK
    assert summary.run_again == (("workload/web: rollback window", SOON),)


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (Rule.POLICY_KEPT, Exit.OK),
        (Rule.FIXED_WEIGHTS, Exit.OK),
        (Rule.TEMPLATE_DIFFERS, Exit.MANUAL),
        (Rule.BACK_OFF, Exit.UNFINISHED),
    ],
)
def test_the_exit_code_depends_on_which_rule_holds(rule, code):
    held = (Hold("workload/web", "change it", rule, "for a reason", next_step="do something"),)
    assert summarize(replace(waiting(Waiting.DRAIN), waits=(), holds=held), (), NOW).exit is code


@pytest.mark.parametrize(("refused", "goes_on"), [("recordlist/all", False), ("recordlist/other", True)])
def test_a_run_does_not_wait_for_what_follows_a_refused_set(refused, goes_on):
    wait = Wait("recordlist/all", Waiting.NAMES, "a. is not published yet, so b. cannot point at it")
    held = Hold(refused, "records", Rule.STEP_FAILED, "refused", until=SOON, next_step="remove the cause")
    decision = replace(waiting(Waiting.DRAIN), waits=(wait,), holds=(held,))
    assert pending(decision, SOON + 600 * SECOND) is goes_on


def left(world: World, name: str = "r0") -> Summary:
    """A run that ends now, after the manifests of all records but `name` are gone."""
    world.records = tuple(record for record in world.records if record.name == name)
    world.revision = "r2"
    return summarize(world.decide(), (), world.now)


def published(prune: bool) -> World:
    names = ("r0", "r1", "r2")
    made = (Record(f"record/{name}", name, f"{name}.{ZONE}", NAMES, ZONE, "A", 60, ("192.0.2.1",)) for name in names)
    world = World((), records=tuple(made), prune=prune)
    world.settle()
    return world


def test_a_run_that_leaves_a_deletion_says_what_is_left():
    summary = left(published(prune=True))
    assert (summary.exit, summary.left) == (Exit.UNFINISHED, "2 record sets to delete")
    assert summary.run_again


def test_what_stays_because_pruning_is_off_is_not_left_over():
    summary = left(published(prune=False))
    assert (summary.exit, summary.left) == (Exit.OK, "")


def test_a_deletion_that_waits_for_a_ttl_beyond_the_deadline_is_left_over():
    world = geo_world()
    world.set_health(a1=FAIL, a2=FAIL)
    world.write(world.decide())
    decision = world.decide()
    assert [wait.waiting for wait in decision.waits if wait.until] == [Waiting.TTL]
    assert not pending(decision, world.now.steady + SECOND)
    summary = summarize(decision, (), world.now)
    assert summary.exit is Exit.UNFINISHED
    assert "to delete" in summary.left


def test_what_must_be_approved_is_left_over_and_a_manual_action():
    world = published(prune=True)
    world.records, world.revision = (), "r2"
    world.decide()
    world.pass_time(61)
    summary = summarize(world.decide(), (), world.now)
    assert (summary.exit, summary.left) == (Exit.MANUAL, "3 record sets to delete")


def test_a_run_does_not_wait_beyond_its_deadline_for_an_address_that_flaps():
    decision = waiting(Waiting.STEADY)
    assert pending(decision, SOON)
    assert not pending(decision, SOON - 1)
    assert summarize(decision, (), NOW).exit is Exit.UNFINISHED
