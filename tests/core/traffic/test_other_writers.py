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


class Life:
    """One pool over some time: each look shows what a test puts there, and what was decided is remembered."""

    def __init__(self, epoch: str = "") -> None:
        self.scene = Scene(WEB)
        ready = {fact.id: Ready(fact.started_at, ago(90), False) for fact in self.scene.facts}
        self.scene.ledger = replace(self.scene.ledger, ready=ready)
        self.now, self.epoch = NOW, epoch

    def world(self) -> Observed:
        at = self.now.steady
        pool = PoolFact("web", tuple(self.scene.pools["web"]), self.epoch)
        seen = self.scene.observed()
        runtimes = {key: replace(one, observed_at=at) for key, one in seen.runtimes.items()}
        shift = at - SEEN
        probes = {
            key: one._replace(
                readiness=one.readiness._replace(last_at=one.readiness.last_at + shift),
                liveness=one.liveness._replace(last_at=one.liveness.last_at + shift),
            )
            for key, one in seen.probes.items()
        }
        return replace(seen, runtimes=runtimes, probes=probes, pools={(POOLS, "web"): Known(pool, POOLS, at)})

    def look(self, seconds: int = 1):
        """A second later: what is decided, with the ledger kept."""
        self.now = Now(self.now.wall + seconds * SECOND, self.now.steady + seconds * SECOND, NOW.boot)
        decision = decide(DESIRED, self.world(), self.now)
        self.scene.ledger = from_rows(to_rows(decision.ledger))
        return decision

    def weigh(self, number: int, weight: int, **fields) -> None:
        """Somebody else gives a member a weight."""
        self.scene.pools["web"][number] = self.scene.pools["web"][number]._replace(weight=weight, **fields)

    def apply_commands(self, decision) -> None:
        """Our own steps take effect."""
        for step in decision.steps:
            if step.id.startswith("weight"):
                place = [pool.endpoint for pool in self.scene.pools["web"]].index(step.action.endpoint)
                self.weigh(place, step.action.weight)


def cuts(decision) -> dict[str, int]:
    return {step.action.name: step.action.weight for step in decision.steps if step.id.startswith("weight")}


def test_after_three_reversals_in_five_minutes_a_member_is_left_alone_and_the_writer_named():
    life = Life()
    life.look()
    for _ in range(2):
        life.weigh(1, 7)
        decision = life.look(10)
        assert list(cuts(decision).values()) == [100]
        life.apply_commands(decision)
        assert not cuts(life.look(10))
    life.weigh(1, 7)
    stopped = life.look(10)
    assert not cuts(stopped)
    (hold,) = (one for one in stopped.holds if one.rule is Rule.CONFLICTING_WRITER)
    assert "from 100 to 7" in hold.message
    assert hold.until is not None
    assert not cuts(life.look(200))
    assert list(cuts(life.look(100)).values()) == [100]


def test_one_reversal_is_enough_where_another_writer_is_known():
    life = Life()
    life.look()
    life.weigh(1, 7, writer="an agent-check")
    decision = life.look()
    assert not cuts(decision)
    assert any("an agent-check changed this weight once" in hold.message for hold in decision.holds)


def test_a_dead_container_loses_its_weight_whoever_else_writes():
    life = Life()
    life.look()
    life.weigh(1, 7, writer="an agent-check")
    life.look()
    life.scene.change(1, replace(life.scene.facts[1], state=life.scene.facts[1].state.EXITED, running_since=0))
    assert list(cuts(life.look()).values()) == [0]


def test_our_own_steps_and_slow_looks_are_no_reversals():
    life = Life()
    life.look()
    life.scene.sick(1, "readiness")
    assert list(cuts(life.look()).values()) == [0]
    assert list(cuts(life.look()).values()) == [0]
    life.weigh(1, 0)
    life.scene.probes[life.scene.facts[1].generation] = life.scene.probes[life.scene.facts[0].generation]
    assert list(cuts(life.look()).values()) == [100]
    assert not any(row.reversals for row in life.scene.ledger.weighed[KEY])


def test_weights_that_a_restarted_balancer_lost_are_asserted_before_anything_else_and_are_no_reversal():
    life = Life("pid 1")
    life.look()
    life.scene.sick(2, "readiness")
    life.epoch = "pid 2"
    for number in range(3):
        life.weigh(number, 0)
    decision = life.look()
    assert {step.cause for step in decision.steps} >= {Reason.REASSERTED}
    assert decision.steps[0].id.startswith("weight")
    assert cuts(decision)[life.scene.facts[0].name] == 100
    assert cuts(decision)[life.scene.facts[1].name] == 100
    assert not any(row.reversals for row in life.scene.ledger.weighed[KEY])


def test_what_a_balancer_lost_comes_back_also_while_nothing_is_known_of_the_endpoint():
    life = Life("pid 1")
    life.look()
    life.scene.probes[life.scene.facts[0].generation] = life.scene.probes[life.scene.facts[0].generation]._replace(
        readiness=life.scene.probes[life.scene.facts[0].generation].readiness._replace(value=ProbeValue.UNKNOWN)
    )
    life.epoch = "pid 2"
    life.scene.pools["web"].pop(0)
    assert cuts(life.look()) == {life.scene.facts[0].name: 100}


def sick(life: Life):
    """Its liveness has failed for long enough for a restart, which is granted; the decision of that look."""
    life.scene.sick(1, "liveness")
    return life.look()


def about(decision, number: int = 1):
    """Verbs of the steps on a replica, and what holds it."""
    name = f"workload/web/{number}"
    verbs = [step.id.partition(" ")[0] for step in decision.steps if step.object == name]
    return verbs, [one for one in (*decision.holds, *decision.waits) if one.object == name]


def test_a_weight_that_another_writer_keeps_holds_a_restart_for_failed_health_for_one_drain_and_is_recorded():
    life = Life()
    life.look()
    life.weigh(1, 7, writer="an agent-check")
    verbs, (hold,) = about(sick(life))
    assert (verbs, hold.rule, hold.until) == ([], Rule.CONFLICTING_WRITER, life.now.steady + 10 * SECOND)
    assert about(life.look(9))[0] == []
    decision = life.look(1)
    assert about(decision)[0] == ["stop"]
    (stop,) = (step for step in decision.steps if step.id.startswith("stop"))
    assert stop.message.startswith("another writer keeps its weight in pool edge/web")


def test_a_weight_that_another_writer_keeps_holds_what_is_planned_for_as_long_as_it_does():
    life = leaving(0, 0)
    life.look(0)
    for _ in range(5):
        life.weigh(3, 7, writer="an agent-check")
        verbs, holds = about(life.look(60), 3)
        assert verbs == []
    assert [(hold.rule, hold.until, bool(hold.next_step)) for hold in holds] == [(Rule.CONFLICTING_WRITER, None, True)]


def test_a_weight_that_cannot_be_taken_holds_a_restart_for_failed_health_for_one_drain():
    life = Life()
    life.look()
    decision = sick(life)
    (cut,) = (step for step in decision.steps if step.id.startswith("weight"))
    refused = StepFailure(1, instant(life.now), True, "refused")
    life.scene.ledger = replace(life.scene.ledger, step_failures={cut.id: refused})
    assert about(life.look(9))[0] == []
    assert about(life.look(1))[0] == ["stop"]


# --- drains -----------------------------------------------------------------------------------------------------

FACT = container(WEB, 0)
PLACE = Place(KEY, MemberFact(("10.0.0.1", 80), 0, True).endpoint, 3, "pid 1")
TEN = Drain(2 * SECOND, 10 * SECOND)


def grant(**fields) -> Grant:
    out = Grant("workload/web/0", FACT.generation, Reason.SURPLUS, ago(60), ago(60), 0, ago(5), True)
    return out._replace(**fields)


def test_a_drain_ends_when_nothing_has_been_in_flight_for_its_minimum():
    first = leave(grant(), FACT, Exit(in_flight=0), TEN, NOW)
    assert first.wait.until == SEEN + 2 * SECOND
    assert leave(first.grant._replace(quiet=ago(1)), FACT, Exit(in_flight=0), TEN, NOW).wait
    assert leave(first.grant._replace(quiet=ago(2)), FACT, Exit(in_flight=0), TEN, NOW).stop


@pytest.mark.parametrize("count", [1, None])
def test_what_is_in_flight_or_not_known_is_waited_for_to_the_end(count):
    progress = leave(grant(quiet=ago(3)), FACT, Exit(in_flight=count), TEN, NOW)
    assert progress.grant.quiet is None
    assert progress.wait.waiting is Waiting.DRAIN
    assert progress.wait.until == SEEN + 5 * SECOND


def test_after_the_longest_drain_what_is_left_is_cut_and_then_it_stops():
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
def test_the_larger_of_what_balancers_and_the_instance_count_is_in_flight(counts, same, said, expected):
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


def leaving(in_flight: int | None, out: int, epochs: str = f"{KEY}=pid 1") -> Life:
    """A replica too many, at weight 0 for `out` seconds."""
    life = Life("pid 1")
    extra = container(WEB, 3)
    life.scene.add(WEB, extra, weight=0)
    life.weigh(3, 0, in_flight=in_flight)
    given = Grant(
        "workload/web/3", extra.generation, Reason.SURPLUS, ago(60), ago(60), 0, ago(out), True, epochs=epochs
    )
    life.scene.ledger = replace(life.scene.ledger, grants={extra.id: given})
    return life


def verbs(decision) -> list[str]:
    return [step.id.partition(" ")[0] for step in decision.steps if step.object == "workload/web/3"]


def test_sessions_are_cut_where_the_balancer_counts_them_and_a_refusal_does_not_keep_the_container():
    life = leaving(3, 10)
    decision = life.look(0)
    assert verbs(decision) == ["cut"]
    (action,) = (step.action for step in decision.steps if isinstance(step.action, CutSessions))
    assert (action.provider, action.pool) == (POOLS, "web")
    life.scene.ledger = replace(
        life.scene.ledger, step_failures={decision.steps[-1].id: StepFailure(1, ago(0), True, "cannot")}
    )
    assert verbs(life.look(9)) == []
    assert verbs(life.look(1)) == ["stop"]


def test_a_reload_of_the_balancer_makes_its_zero_unknown_for_the_rest_of_the_drain():
    assert leaving(0, 5).look(0).ledger.grants["id-" + container(WEB, 3).name].quiet is not None
    life = leaving(0, 5, epochs=f"{KEY}=pid 0")
    assert life.look(0).ledger.grants["id-" + container(WEB, 3).name].quiet is None
    assert verbs(life.look(4)) == []
    assert verbs(life.look(1)) == ["stop"]
