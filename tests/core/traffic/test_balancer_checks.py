"""What a balancer's own checks call down gets no traffic whatever it weighs: nobody else gives weight away to it."""

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


def scene(words: list[str]) -> Scene:
    """One ready replica with weight for each word that the balancer has of it."""
    made = Scene(Spec(replicas=len(words), publish=None))
    made.pools["web"] = [one._replace(operational=w) for one, w in zip(made.pools["web"], words, strict=True)]
    return made


def lowered(decision) -> set[str]:
    return {step.action.name[-1] for step in decision.steps if step.id.startswith("weight") and not step.action.weight}


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["up", "up"], {"0"}),
        (["", ""], {"0"}),
        (["up", "starting"], {"0"}),
        (["up", "checking"], {"0"}),  # it gets traffic, and this one fails
        (["up", "down"], set()),
        (["", "down"], set()),
        (["down", "down"], {"0"}),
        (["down", "up"], {"0"}),
        (["up", "down", "up"], {"0"}),
        (["up", "down", "down"], set()),
    ],
)
def test_one_that_fails_keeps_its_weight_while_the_balancer_calls_all_others_down(words, out):
    made = scene(words)
    made.sick(0, "readiness")
    decision = decide(shop(len(words)), made.observed(), NOW)
    assert lowered(decision) == out
    held = [hold for hold in decision.holds if hold.rule is Rule.LAST_MEMBER]
    assert len(held) == (not out)
    if held:
        assert "the balancer's own checks of pool web fail for every other ready endpoint" in held[0].message
        assert "the balancer's own checks of pool web fail" in held[0].next_step


@pytest.mark.parametrize(
    ("cause", "words", "out"),
    [
        (Reason.REQUESTED, ["up", "down"], set()),
        (Reason.REQUESTED, ["up", "up"], {"0"}),
        (Reason.LIVENESS_FAILED, ["up", "down"], {"0"}),
    ],
)
def test_one_on_its_way_out_does_as_well_unless_it_serves_nobody(cause, words, out):
    """The grant was given while the balancer still called the other one up."""
    made = scene(words)
    fact = made.facts[0]
    if cause is Reason.LIVENESS_FAILED:
        made.sick(0)
    grant = Grant("workload/web/0", fact.generation, cause, ago(1), names_out=ago(1))
    made.ledger = replace(made.ledger, grants={fact.id: grant})
    assert lowered(decide(shop(2), made.observed(), NOW)) == out


@pytest.mark.parametrize(
    ("words", "max_unavailable", "first"),
    [
        (["up", "up"], 1, "0"),
        (["", ""], 1, "0"),
        (["up", "down"], 1, "1"),  # the other one may go: clients lose nothing with it
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
def test_a_planned_restart_counts_who_gets_no_traffic_as_unavailable(words, max_unavailable, first):
    made = scene(words)
    made.ledger = replace(made.ledger, requests={"r1": Request("workload/web", ago(1), "ada", "new certificates")})
    decision = decide(shop(len(words), max_unavailable), made.observed(), NOW)
    assert min(grant.object.rpartition("/")[2] for grant in decision.ledger.grants.values()) == first


@pytest.mark.parametrize(
    ("words", "restarting"),
    [
        (["up", "checking"], "1"),  # what goes is the one that may be lost anyway, and the other one stays
        (["checking", "checking"], ""),  # either may be called down while the other one is away
        (["up", "checking", "checking"], ""),
        (["down", "checking", "up"], "0"),
        (["down", "down", "up"], "0"),
    ],
)
def test_one_that_no_check_has_confirmed_serves_and_is_not_relied_on(words, restarting):
    made = scene(words)
    made.ledger = replace(made.ledger, requests={"r1": Request("workload/web", ago(1), "ada", "new certificates")})
    decision = decide(shop(len(words)), made.observed(), NOW)
    assert [grant.object.rpartition("/")[2] for grant in decision.ledger.grants.values()] == list(restarting)


def test_what_it_waits_for_is_told():
    made = scene(["up", "down"])
    made.ledger = replace(made.ledger, requests={"r1": Request("workload/web/0", ago(1), "ada", "new certificates")})
    decision = decide(shop(2), made.observed(), NOW)
    assert not decision.ledger.grants
    (wait,) = (one for one in decision.waits if one.waiting is Waiting.BALANCER)
    assert wait.object == "workload/web/0"
    assert wait.message == (
        "1 of 2 available replicas of workload/web do not count: the balancer's own checks fail or have not passed yet"
    )


def test_a_failed_one_is_restarted_all_the_same():
    made = scene(["up", "down"])
    made.sick(0)
    made.sick(0, "readiness")
    decision = decide(shop(2), made.observed(), NOW)
    assert [grant.object for grant in decision.ledger.grants.values()] == ["workload/web/0"]
