"""Other writers of weights, balancers that lose them, and drains that end when nothing is in flight."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND, Push
from providers.actions import CutSessions
from providers.facts import Known, MemberFact, PoolFact, ProbeValue
from reconciler.core.decide import decide
from reconciler.core.exits.grants import Drain
from reconciler.core.exits.inflight_requests import InflightRequests, Place, count
from reconciler.core.exits.sequence import Exit, leave, restart
from reconciler.core.model.instant import Now, instant
from reconciler.core.model.ledger import Grant, StepFailure
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.observed import Observed
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.core.model.reasons import Reason, Rule, Waiting
from reconciler.core.model.weight_memory import Ready
from tests.builders import NOW, SEEN, Scene, ago, container
from tests.sim.manifest import POOLS, Shop, Spec, workload

WEB = Spec(replicas=3, publish=None)
DESIRED = Shop((WEB,)).desired()
KEY = f"{POOLS}/web"
P, F = ProbeValue.PASS, ProbeValue.FAIL


class Timeline:
    """One pool over time: each look shows the facts of the test, and the ledger is kept from decision to decision."""

    def __init__(self, epoch: str = "") -> None:
        self.scene = Scene(WEB)
        ready = {fact.id: Ready(fact.started_at, ago(90), False) for fact in self.scene.facts}
        self.scene.ledger = replace(self.scene.ledger, ready=ready)
        self.now, self.epoch = NOW, epoch

    def world(self) -> Observed:
        at = self.now.steady
        pool = PoolFact("web", tuple(self.scene.pools["web"]), self.epoch)
        seen = self.scene.observed()
        runtimes = {key: replace(look, observed_at=at) for key, look in seen.runtimes.items()}
        shift = at - SEEN
        probes = {
            key: probes._replace(
                readiness=probes.readiness._replace(last_at=probes.readiness.last_at + shift),
                liveness=probes.liveness._replace(last_at=probes.liveness.last_at + shift),
            )
            for key, probes in seen.probes.items()
        }
        return replace(seen, runtimes=runtimes, probes=probes, pools={(POOLS, "web"): Known(pool, POOLS, at)})

    def look(self, seconds: int = 1):
        """The decision some seconds later, with the ledger kept."""
        self.now = Now(self.now.wall + seconds * SECOND, self.now.steady + seconds * SECOND, NOW.lineage)
        decision = decide(DESIRED, self.world(), self.now)
        self.scene.ledger = from_rows(to_rows(decision.ledger))
        return decision

    def weigh(self, number: int, weight: int, **fields) -> None:
        """Another writer gives a member a weight."""
        self.scene.pools["web"][number] = self.scene.pools["web"][number]._replace(weight=weight, **fields)

    def apply_commands(self, decision) -> None:
        """Our own steps take effect."""
        for step in decision.steps:
            if step.id.startswith("weight"):
                place = [pool.endpoint for pool in self.scene.pools["web"]].index(step.action.endpoint)
                self.weigh(place, step.action.weight)


def cuts(decision) -> dict[str, int]:
    return {step.action.name: step.action.weight for step in decision.steps if step.id.startswith("weight")}


def test_after_three_reversals_a_member_is_left_to_the_other_writer():
    timeline = Timeline()
    timeline.look()
    for _ in range(2):
        timeline.weigh(1, 7)
        decision = timeline.look(10)
        assert list(cuts(decision).values()) == [100]
        timeline.apply_commands(decision)
        assert not cuts(timeline.look(10))
    timeline.weigh(1, 7)
    stopped = timeline.look(10)
    assert not cuts(stopped)
    (hold,) = (hold for hold in stopped.holds if hold.rule is Rule.CONFLICTING_WRITER)
    assert "from 100 to 7" in hold.message
    assert hold.until is not None
    assert not cuts(timeline.look(200))
    assert list(cuts(timeline.look(100)).values()) == [100]


def test_one_reversal_is_enough_where_the_writer_is_known():
    timeline = Timeline()
    timeline.look()
    timeline.weigh(1, 7, writer="an agent-check")
    decision = timeline.look()
    assert not cuts(decision)
    assert any("an agent-check changed this weight once" in hold.message for hold in decision.holds)


def test_a_dead_container_loses_its_weight_beside_other_writers():
    timeline = Timeline()
    timeline.look()
    timeline.weigh(1, 7, writer="an agent-check")
    timeline.look()
    timeline.scene.change(
        1, replace(timeline.scene.facts[1], state=timeline.scene.facts[1].state.EXITED, running_since=0)
    )
    assert list(cuts(timeline.look()).values()) == [0]


def test_our_own_steps_and_slow_looks_are_no_reversals():
    timeline = Timeline()
    timeline.look()
    timeline.scene.sick(1, "readiness")
    assert list(cuts(timeline.look()).values()) == [0]
    assert list(cuts(timeline.look()).values()) == [0]
    timeline.weigh(1, 0)
    timeline.scene.probes[timeline.scene.facts[1].generation] = timeline.scene.probes[
        timeline.scene.facts[0].generation
    ]
    assert list(cuts(timeline.look()).values()) == [100]
    assert not any(row.reversals for row in timeline.scene.ledger.weighed[KEY])


def test_weights_lost_in_a_balancer_restart_are_set_first_as_no_reversal():
    timeline = Timeline("pid 1")
    timeline.look()
    timeline.scene.sick(2, "readiness")
    timeline.epoch = "pid 2"
    for number in range(3):
        timeline.weigh(number, 0)
    decision = timeline.look()
    assert {step.cause for step in decision.steps} >= {Reason.REASSERTED}
    assert decision.steps[0].id.startswith("weight")
    assert cuts(decision)[timeline.scene.facts[0].name] == 100
    assert cuts(decision)[timeline.scene.facts[1].name] == 100
    assert not any(row.reversals for row in timeline.scene.ledger.weighed[KEY])


def test_a_lost_weight_comes_back_also_for_an_unknown_endpoint():
    timeline = Timeline("pid 1")
    timeline.look()
    timeline.scene.probes[timeline.scene.facts[0].generation] = timeline.scene.probes[
        timeline.scene.facts[0].generation
    ]._replace(
        readiness=timeline.scene.probes[timeline.scene.facts[0].generation].readiness._replace(value=ProbeValue.UNKNOWN)
    )
    timeline.epoch = "pid 2"
    timeline.scene.pools["web"].pop(0)
    assert cuts(timeline.look()) == {timeline.scene.facts[0].name: 100}


def sick(timeline: Timeline):
    """The decision of a look in which a replica fails its liveness probe for long enough, so that its restart is granted."""
    timeline.scene.sick(1, "liveness")
    return timeline.look()


def about(decision, number: int = 1):
    """Verbs of the steps on a replica, and what holds it."""
    name = f"workload/web/{number}"
    verbs = [step.id.partition(" ")[0] for step in decision.steps if step.object == name]
    return verbs, [reason for reason in (*decision.holds, *decision.waits) if reason.object == name]


def test_another_writers_weight_holds_a_health_restart_for_one_drain():
    timeline = Timeline()
    timeline.look()
    timeline.weigh(1, 7, writer="an agent-check")
    verbs, (hold,) = about(sick(timeline))
    assert (verbs, hold.rule, hold.until) == ([], Rule.CONFLICTING_WRITER, timeline.now.steady + 10 * SECOND)
    assert about(timeline.look(9))[0] == []
    decision = timeline.look(1)
    assert about(decision)[0] == ["stop"]
    (stop,) = (step for step in decision.steps if step.id.startswith("stop"))
    assert stop.message.startswith("another writer keeps its weight in pool edge/web")


def test_another_writers_weight_holds_a_planned_restart_without_limit():
    timeline = leaving(0, 0)
    timeline.look(0)
    for _ in range(5):
        timeline.weigh(3, 7, writer="an agent-check")
        verbs, holds = about(timeline.look(60), 3)
        assert verbs == []
    assert [(hold.rule, hold.until, bool(hold.next_step)) for hold in holds] == [(Rule.CONFLICTING_WRITER, None, True)]


def test_a_weight_that_cannot_be_removed_holds_a_restart_for_one_drain():
    timeline = Timeline()
    timeline.look()
    decision = sick(timeline)
    (cut,) = (step for step in decision.steps if step.id.startswith("weight"))
    refused = StepFailure(1, instant(timeline.now), True, "refused")
    timeline.scene.ledger = replace(timeline.scene.ledger, step_failures={cut.id: refused})
    assert about(timeline.look(9))[0] == []
    assert about(timeline.look(1))[0] == ["stop"]


# --- drains -----------------------------------------------------------------------------------------------------

FACT = container(WEB, 0)
PLACE = Place(KEY, MemberFact(("10.0.0.1", 80), 0, True).endpoint, 3, "pid 1")
TEN = Drain(2 * SECOND, 10 * SECOND)


def grant(**fields) -> Grant:
    out = Grant("workload/web/0", FACT.generation, Reason.SURPLUS, ago(60), ago(60), 0, ago(5), True)
    return out._replace(**fields)


def test_a_drain_ends_after_its_minimum_without_requests_in_flight():
    first = leave(grant(), FACT, Exit(in_flight=0), TEN, NOW)
    assert first.wait.until == SEEN + 2 * SECOND
    assert leave(first.grant._replace(quiet=ago(1)), FACT, Exit(in_flight=0), TEN, NOW).wait
    assert leave(first.grant._replace(quiet=ago(2)), FACT, Exit(in_flight=0), TEN, NOW).stop


@pytest.mark.parametrize("count", [1, None])
def test_a_drain_waits_to_its_end_for_requests_in_flight_or_unknown(count):
    progress = leave(grant(quiet=ago(3)), FACT, Exit(in_flight=count), TEN, NOW)
    assert progress.grant.quiet is None
    assert progress.wait.waiting is Waiting.DRAIN
    assert progress.wait.until == SEEN + 5 * SECOND


def test_after_the_longest_drain_sessions_are_cut_and_the_container_stops():
    busy = Exit(in_flight=3, busy=(PLACE,))
    cutting = leave(grant(weight_out=ago(10)), FACT, busy, TEN, NOW)
    assert cutting.cut == (PLACE,)
    assert not cutting.stop
    assert leave(grant(weight_out=ago(10)), FACT, Exit(in_flight=0), TEN, NOW).stop
    assert leave(grant(weight_out=ago(20)), FACT, busy, TEN, NOW).stop
    assert leave(grant(weight_out=ago(10)), FACT, Exit(), TEN, NOW).stop


def test_a_restart_drains_the_same_way():
    from reconciler.core.health.belief import Belief  # noqa: PLC0415

    sick = Belief(FACT, F, F, 0, SEEN + SECOND, Reason.LIVENESS_FAILED)
    given = grant(cause=Reason.LIVENESS_FAILED)
    web = replace(workload(WEB), drain_min=2 * SECOND)
    assert restart(given._replace(quiet=ago(2)), sick, Exit(in_flight=0), web, False, NOW).stop
    assert restart(given, sick, Exit(), web, False, NOW).wait.waiting is Waiting.DRAIN


def test_a_drain_that_never_carried_weight_is_no_drain():
    assert leave(grant(pooled=False), FACT, Exit(), TEN, NOW).stop


PUSH = PushFact(PushEvent.DRAINING, SEEN - SECOND, SEEN - SECOND, "boot", 1, inflight=0)


@pytest.mark.parametrize(
    ("counts", "same", "said", "expected"),
    [
        ((0,), True, None, 0),
        ((0,), False, None, None),
        ((2,), False, None, 2),
        ((0, None), True, None, None),
        ((None,), True, None, None),
        ((None,), True, 0, 0),
        ((0,), False, 0, 0),
        ((1,), True, 4, 4),
        ((4,), True, 1, 4),
        ((), True, None, 0),
    ],
)
def test_the_larger_count_of_balancers_and_instance_is_in_flight(counts, same, said, expected):
    flight = InflightRequests(tuple(PLACE._replace(requests=count) for count in counts))
    push = None if said is None else PUSH._replace(inflight=said)
    assert count(flight, same, push, Push(), SEEN) == expected


def test_a_push_that_is_no_longer_fresh_counts_nothing():
    assert (
        count(
            InflightRequests((PLACE._replace(requests=None),)), True, PUSH._replace(at=SEEN - 30 * SECOND), Push(), SEEN
        )
        is None
    )


def leaving(in_flight: int | None, out: int, epochs: str = f"{KEY}=pid 1") -> Timeline:
    """A surplus replica, at weight 0 for `out` seconds."""
    timeline = Timeline("pid 1")
    extra = container(WEB, 3)
    timeline.scene.add(WEB, extra, weight=0)
    timeline.weigh(3, 0, in_flight=in_flight)
    given = Grant(
        "workload/web/3", extra.generation, Reason.SURPLUS, ago(60), ago(60), 0, ago(out), True, epochs=epochs
    )
    timeline.scene.ledger = replace(timeline.scene.ledger, grants={extra.id: given})
    return timeline


def verbs(decision) -> list[str]:
    return [step.id.partition(" ")[0] for step in decision.steps if step.object == "workload/web/3"]


def test_sessions_are_cut_and_a_refusal_does_not_keep_the_container():
    timeline = leaving(3, 10)
    decision = timeline.look(0)
    assert verbs(decision) == ["cut"]
    (action,) = (step.action for step in decision.steps if isinstance(step.action, CutSessions))
    assert (action.provider, action.pool) == (POOLS, "web")
    timeline.scene.ledger = replace(
        timeline.scene.ledger, step_failures={decision.steps[-1].id: StepFailure(1, ago(0), True, "cannot")}
    )
    assert verbs(timeline.look(4)) == []
    assert verbs(timeline.look(6)) == ["stop"]


def test_a_balancer_reload_makes_its_zero_unknown_for_the_rest_of_a_drain():
    assert leaving(0, 5).look(0).ledger.grants["id-" + container(WEB, 3).name].quiet is not None
    timeline = leaving(0, 5, epochs=f"{KEY}=pid 0")
    assert timeline.look(0).ledger.grants["id-" + container(WEB, 3).name].quiet is None
    assert verbs(timeline.look(4)) == []
    assert verbs(timeline.look(1)) == ["stop"]
