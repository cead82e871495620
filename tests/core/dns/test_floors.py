"""A planned disruption leaves enough addresses in a name, as read back from its zone."""

from dataclasses import replace

import pytest

from manifests.values.desired import Desired, OnSecretChange, Strategy
from manifests.values.dns import Check, Publish
from providers.actions import ChangeRecords
from providers.facts import PortFact, ProbeFact, RecordKey
from reconciler.core.decide import decide
from reconciler.core.model.reasons import Rule, Waiting
from reconciler.core.model.restart_request import Request
from reconciler.core.model.revision import Revision, RevisionMark, Rollout, Standing
from reconciler.core.model.target_probe import TargetProbe
from tests.builders import FAIL, NOW, PASS, Scene, ago, container
from tests.sim.manifest import NAMES, Spec, shop

NAME = RecordKey("web.example.test.", "A")
REQUEST = {"r1": Request("workload/web", ago(1), "ada", "new certificates")}


def published(scene: Scene, *ordinals: int) -> None:
    """The zone has the addresses of these replicas only."""
    addresses = [fact.address for fact in scene.facts if fact.mark is not None and fact.mark.ordinal in ordinals]
    scene.records[NAME] = scene.records[NAME]._replace(values=tuple(sorted(addresses)))


def granted(desired: Desired, scene: Scene) -> list[str]:
    return sorted(grant.object for grant in decide(desired, scene.observed(), NOW).ledger.grants.values())


def requested(spec: Spec, *ordinals: int) -> tuple[Desired, Scene]:
    """All replicas are ready, these are published, and a restart of all was requested."""
    scene = Scene(spec)
    published(scene, *(ordinals or range(spec.replicas)))
    scene.ledger = replace(scene.ledger, requests=REQUEST)
    return shop(**{name: getattr(spec, name) for name in ("replicas", "max_unavailable", "publish")}).desired(), scene


@pytest.mark.parametrize(
    ("replicas", "budget", "in_zone", "leaving"),
    [
        (3, 1, {0, 1, 2}, {0}),
        (3, 1, {1, 2}, {0}),
        (4, 2, {0, 1, 2, 3}, {0, 1}),
        (4, 2, {1, 2, 3}, {0, 1}),
        (4, 2, {2, 3}, {0, 1}),
        (4, 2, {0, 1, 2}, {0, 3}),
        (2, 2, {0, 1}, {0}),
        (2, 5, {0, 1}, {0}),
        (1, 1, {0}, {0}),
        (1, 3, {0}, {0}),
        (1, 0, {0}, set()),
    ],
)
def test_restarts_leave_replicas_minus_budget_and_at_least_one(replicas, budget, in_zone, leaving):
    """The name loses nothing with a replica that is not published; the single replica comes back, and the name keeps its address."""
    desired, scene = requested(Spec(replicas=replicas, max_unavailable=budget), *in_zone)
    assert granted(desired, scene) == [f"workload/web/{ordinal}" for ordinal in sorted(leaving)]


def test_a_replica_that_is_ready_again_must_be_published_again_first():
    desired, scene = requested(Spec(), 1, 2)
    scene.ledger = replace(scene.ledger, requests={"r1": Request("workload/web/1", ago(1), "ada", "new certificates")})
    decision = decide(desired, scene.observed(), NOW)
    assert not decision.ledger.grants
    [wait] = [wait for wait in decision.waits if wait.waiting is Waiting.PUBLISHED]
    assert "web.example.test. publishes 1 other replica of workload/web, at least 2 must stay" in wait.message
    published(scene, 0, 1, 2)
    assert granted(desired, scene) == ["workload/web/1"]


def checked(desired: Desired, scene: Scene, **verdicts: ProbeFact) -> tuple[Desired, object]:
    """The policy has a check of its own, with these verdicts by ordinal (`r0`)."""
    check = Check(host="web.example.test")
    (policy,) = desired.policies
    desired = replace(desired, policies=(replace(policy, check=check),))
    answers = {TargetProbe(scene.facts[int(name[1:])].address, check): fact for name, fact in verdicts.items()}
    return desired, replace(scene.observed(), target_answers=answers)


@pytest.mark.parametrize("last", [None, FAIL])
def test_a_published_address_that_is_checked_again_is_awaited(last):
    """Without a verdict the check only takes time; with a failure the operator has to look."""
    desired, scene = requested(Spec(), 1, 2)
    scene.ledger = replace(scene.ledger, requests={"r1": Request("workload/web/1", ago(1), "ada", "new certificates")})
    verdicts = {"r1": PASS, "r2": PASS} | ({} if last is None else {"r0": last})
    desired, observed = checked(desired, scene, **verdicts)
    decision = decide(desired, observed, NOW)
    assert not decision.ledger.grants
    if last is None:
        assert Waiting.PUBLISHED in {wait.waiting for wait in decision.waits}
    else:
        [hold] = [hold for hold in decision.holds if hold.rule is Rule.BUDGET]
        assert "at least 2 must stay" in hold.message
        assert "reconcile explain dnspolicy/web" in hold.next_step


def test_an_old_replica_stays_until_the_check_of_the_new_one_passes():
    desired, scene = shop(image="v2").desired(), Scene(Spec())
    fact = container(Spec(image="v2"), 0)
    fact = replace(fact, address="10.0.200.1", ports=(PortFact(8080, "10.0.200.1", 8080),))
    scene.add(Spec(image="v2"), fact)
    passing = {f"r{number}": PASS for number in range(3)}
    desired, observed = checked(desired, scene, **passing)
    assert not decide(desired, observed, NOW).ledger.grants
    _, observed = checked(desired, scene, **passing, r3=PASS)
    values = (*scene.records[NAME].values, "10.0.200.1")
    scene.records[NAME] = scene.records[NAME]._replace(values=tuple(sorted(values)))
    _, observed = checked(desired, scene, **passing, r3=PASS)
    assert len(decide(desired, observed, NOW).ledger.grants) == 1


@pytest.mark.parametrize(("passing", "kept"), [((0, 1, 2), 0), ((0, 1), 0), ((0,), 1)])
def test_a_switch_keeps_old_addresses_while_checks_of_new_ones_fail(passing, kept):
    """The new revision has just got the traffic; the old replicas are ready, and only lost their share."""
    old, new = Spec(), Spec(image="v2")
    desired, scene = shop(image="v2", strategy=Strategy.ACTIVATE).desired(), Scene(old)
    for number in range(3):
        address = f"10.0.200.{number + 1}"
        scene.add(new, replace(container(new, number), address=address, ports=(PortFact(8080, address, 8080),)))
    rows = (
        Revision(old.revision, 1, Standing.SUPERSEDED, ago(900), activated=ago(800), ended=ago(1)),
        Revision(new.revision, 2, Standing.ACTIVE, ago(60), activated=ago(1)),
    )
    rollouts = {new.key: Rollout(active=new.revision, rows=rows)}
    scene.ledger = replace(scene.ledger, revisions={new.key: RevisionMark(2, new.revision)}, rollouts=rollouts)
    verdicts = {f"r{number}": PASS for number in range(3)}
    verdicts |= {f"r{3 + number}": PASS if number in passing else FAIL for number in range(3)}
    desired, observed = checked(desired, scene, **verdicts)
    decision = decide(desired, observed, NOW)
    [change] = [step.action.changes[0] for step in decision.steps if isinstance(step.action, ChangeRecords)]
    assert len([value for value in change.after.values if value.startswith("10.0.62.")]) == kept
    assert len(change.after.values) == len(passing) + kept
    scene.records[NAME] = change.after
    _, observed = checked(desired, scene, **verdicts)
    decision = decide(desired, replace(observed, ledger=decision.ledger), NOW)
    leaving = {grant.generation.container_id for grant in decision.ledger.grants.values()}
    assert not any(fact.address in change.after.values for fact in scene.facts if fact.id in leaving)


def stale_secret(spec: Spec) -> tuple[Desired, Scene]:
    scene, desired = Scene(spec), shop().desired()
    scene.facts = [replace(fact, stale_secrets=("main/PASSWORD",)) for fact in scene.facts]
    (web,) = desired.workloads
    return replace(desired, workloads=(replace(web, on_secret_change=OnSecretChange.RESTART),)), scene


PLANNED = {
    "restart": requested,
    "rolling": lambda spec: (shop(image="v2").desired(), Scene(spec)),
    "recreate": lambda spec: (shop(image="v2", strategy=Strategy.RECREATE).desired(), Scene(spec)),
    "scale down": lambda spec: (shop(replicas=2).desired(), Scene(spec)),
    "secret": stale_secret,
}


@pytest.mark.parametrize("planned", sorted(PLANNED))
def test_a_zone_that_cannot_be_read_holds_planned_disruptions(planned):
    desired, scene = PLANNED[planned](Spec())
    scene.unknown = {NAMES}
    decision = decide(desired, scene.observed(), NOW)
    assert not decision.ledger.grants
    if planned not in {"rolling", "recreate"}:  # a new replica is created before
        held = [
            hold for hold in decision.holds if hold.rule is Rule.UNKNOWN_ZONE and hold.object.startswith("workload/")
        ]
        assert held
        assert all("it is retried automatically" in hold.next_step for hold in held)


@pytest.mark.parametrize("publish", [Publish.BALANCER, None])
def test_a_zone_without_addresses_of_replicas_holds_nothing(publish):
    scene = Scene(Spec())
    scene.ledger = replace(scene.ledger, requests=REQUEST)
    scene.unknown = {NAMES}
    assert len(granted(shop(publish=publish).desired(), scene)) == 1


def test_replicas_that_share_an_address_of_their_host_count_each():
    desired, scene = requested(Spec())
    shared = "10.0.0.9"
    for number, fact in enumerate(scene.facts):
        (port,) = fact.ports
        scene.facts[number] = replace(fact, ports=(PortFact(port.number, shared, 30000 + number),))
    (pool,) = scene.pools
    scene.pools[pool] = [
        member._replace(endpoint=member.endpoint._replace(address=shared, port=30000 + number))
        for number, member in enumerate(scene.pools[pool])
    ]
    scene.records[NAME] = scene.records[NAME]._replace(values=(shared,))
    assert len(granted(desired, scene)) == 1


def test_a_replica_that_is_down_or_not_published_is_replaced_without_delay():
    desired, scene = shop(replicas=2).desired(), Scene(Spec())
    published(scene, 0)
    assert granted(desired, scene) == ["workload/web/2"]
