"""A member that is down by the balancer's own checks gets no traffic at any weight: no other member leaves in its favour."""

from dataclasses import replace

import pytest

from manifests.values.traffic import Panic
from reconciler.core.decide import decide
from reconciler.core.model.ledger import Grant
from reconciler.core.model.reasons import Reason, Rule, Waiting
from reconciler.core.model.restart_request import Request
from tests.builders import NOW, Scene, ago
from tests.sim.manifest import Shop, Spec


def shop(replicas: int, max_unavailable: int = 1):
    desired = Shop((Spec(replicas=replicas, publish=None, max_unavailable=max_unavailable),)).desired()
    (service,) = desired.services
    return replace(desired, services=(replace(service, panic=Panic(threshold=0)),))


def scene(states: list[str]) -> Scene:
    """One ready replica with weight for each state that the balancer reports."""
    made = Scene(Spec(replicas=len(states), publish=None))
    made.pools["web"] = [
        member._replace(operational=state) for member, state in zip(made.pools["web"], states, strict=True)
    ]
    return made


def lowered(decision) -> set[str]:
    return {step.action.name[-1] for step in decision.steps if step.id.startswith("weight") and not step.action.weight}


@pytest.mark.parametrize(
    ("states", "out"),
    [
        (["up", "up"], {"0"}),
        (["", ""], {"0"}),
        (["up", "starting"], {"0"}),
        (["up", "checking"], {"0"}),  # the other member gets traffic, and this member fails
        (["up", "down"], set()),
        (["", "down"], set()),
        (["down", "down"], {"0"}),
        (["down", "up"], {"0"}),
        (["up", "down", "up"], {"0"}),
        (["up", "down", "down"], set()),
    ],
)
def test_a_member_keeps_weight_while_the_balancer_checks_of_others_fail(states, out):
    made = scene(states)
    made.sick(0, "readiness")
    decision = decide(shop(len(states)), made.observed(), NOW)
    assert lowered(decision) == out
    held = [hold for hold in decision.holds if hold.rule is Rule.LAST_MEMBER]
    assert len(held) == (not out)
    if held:
        assert "the balancer's own checks of pool web fail for every other ready endpoint" in held[0].message
        assert "the balancer's own checks of pool web fail" in held[0].next_step


@pytest.mark.parametrize(
    ("cause", "states", "out"),
    [
        (Reason.REQUESTED, ["up", "down"], set()),
        (Reason.REQUESTED, ["up", "up"], {"0"}),
        (Reason.LIVENESS_FAILED, ["up", "down"], {"0"}),
    ],
)
def test_a_leaving_member_keeps_weight_too_unless_it_serves_no_traffic(cause, states, out):
    """The grant was given while the other member was still up for the balancer."""
    made = scene(states)
    fact = made.facts[0]
    if cause is Reason.LIVENESS_FAILED:
        made.sick(0)
    grant = Grant("workload/web/0", fact.generation, cause, ago(1), names_out=ago(1))
    made.ledger = replace(made.ledger, grants={fact.id: grant})
    assert lowered(decide(shop(2), made.observed(), NOW)) == out


@pytest.mark.parametrize(
    ("states", "max_unavailable", "first"),
    [
        (["up", "up"], 1, "0"),
        (["", ""], 1, "0"),
        (["up", "down"], 1, "1"),  # the other member may leave: clients lose nothing
        (["", "down"], 1, "1"),
        (["down", "down"], 1, "0"),
        (["up", "down"], 2, "0"),
        (["up", "checking"], 1, "1"),
        (["checking", "checking"], 2, "0"),
        (["up", "up", "down"], 1, "2"),
        (["up", "up", "down"], 2, "0"),
        (["up", "up", "up", "down"], 2, "0"),
    ],
)
def test_a_planned_restart_counts_members_without_traffic_as_unavailable(states, max_unavailable, first):
    made = scene(states)
    made.ledger = replace(made.ledger, requests={"r1": Request("workload/web", ago(1), "ada", "new certificates")})
    decision = decide(shop(len(states), max_unavailable), made.observed(), NOW)
    assert min(grant.object.rpartition("/")[2] for grant in decision.ledger.grants.values()) == first


@pytest.mark.parametrize(
    ("states", "restarting"),
    [
        (["up", "checking"], "1"),  # the unconfirmed member leaves, the confirmed one stays
        (["checking", "checking"], ""),  # either may go down while the other is away
        (["up", "checking", "checking"], ""),
        (["down", "checking", "up"], "0"),
        (["down", "down", "up"], "0"),
    ],
)
def test_an_unconfirmed_member_serves_but_is_not_relied_on(states, restarting):
    made = scene(states)
    made.ledger = replace(made.ledger, requests={"r1": Request("workload/web", ago(1), "ada", "new certificates")})
    decision = decide(shop(len(states)), made.observed(), NOW)
    assert [grant.object.rpartition("/")[2] for grant in decision.ledger.grants.values()] == list(restarting)


def test_a_wait_for_balancer_checks_is_reported():
    made = scene(["up", "down"])
    made.ledger = replace(made.ledger, requests={"r1": Request("workload/web/0", ago(1), "ada", "new certificates")})
    decision = decide(shop(2), made.observed(), NOW)
    assert not decision.ledger.grants
    (wait,) = (wait for wait in decision.waits if wait.waiting is Waiting.BALANCER)
    assert wait.object == "workload/web/0"
    assert wait.message == (
        "1 of 2 available replicas of workload/web do not count: the balancer's own checks fail or have not passed yet"
    )


def test_a_failed_replica_is_restarted_whatever_the_balancer_checks_say():
    made = scene(["up", "down"])
    made.sick(0)
    made.sick(0, "readiness")
    decision = decide(shop(2), made.observed(), NOW)
    assert [grant.object for grant in decision.ledger.grants.values()] == ["workload/web/0"]
