"""The weights of a decision go to their provider in one call, each with its own outcome."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from manifests.values.desired import SECOND
from providers.actions import EndpointAction, RemoveEndpoint, SetWeight
from providers.errors import Unreachable
from providers.facts import Endpoint, PoolFact
from providers.spi import Context, EndpointProvider, Performed
from providers.testing.faults import Call, Fault, faulty, sequence
from providers.testing.memory import MemoryEndpoints, MemorySettings, MemoryWorld
from providers.wrappers.owned import owned
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step
from reconciler.shell.apply.applier import Applier
from reconciler.shell.looks.facts import Looks
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.providers import Providers
from tests.inline_runner import InlineRunner
from tests.sim.clock import VirtualClock
from tests.sim.manifest import shop
from tests.sim.world import World

DONE, FAILED, UNKNOWN = OutcomeKind.DONE, OutcomeKind.FAILED, OutcomeKind.UNKNOWN
CONFLICT, REJECTED, SKIPPED = OutcomeKind.CONFLICT, OutcomeKind.REJECTED, OutcomeKind.SKIPPED


class Pools(MemoryEndpoints):
    """Endpoints that note every call. `deaf` are pools that cannot be read, `liar` answers and does nothing."""

    def __init__(self, name: str, world: MemoryWorld) -> None:
        super().__init__(name, MemorySettings(), Context("demo", "/nowhere"), world)
        self.looks: list[tuple[str, ...]] = []
        self.batches: list[list[str]] = []
        self.deaf: set[str] = set()
        self.down = self.liar = False
        self.inside: set[str] = set()
        self.busy_inside: Collection[str] = frozenset()

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        self.looks.append(tuple(pools))
        if self.deaf & set(pools):
            raise Unreachable(self.name, "no answer")
        return super().observe(pools)

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        self.batches.append([action.name for action in actions])
        self.inside = set(self.busy_inside)
        if self.down:
            raise Unreachable(self.name, "no connection")
        return Performed((None,) * len(actions)) if self.liar else super().perform(actions)


class Journal:
    """Remembers what was begun and how it ended."""

    def __init__(self) -> None:
        self.entries: list[list[str]] = []

    async def begin(
        self,
        step_id: str,
        object: str,  # noqa: A002
        action: str,
        generation: str,
        cause: str,
        now: Now,
        origin: str = "",
    ) -> int:
        self.entries.append([step_id])
        return len(self.entries)

    async def end(self, entry: int, outcome: str, detail: str = "") -> None:
        self.entries[entry - 1].append(outcome)

    async def sync(self) -> bool:
        return False


class Bench:
    """An `Applier` over endpoints in memory, and what it reported."""

    def __init__(self, *providers: EndpointProvider) -> None:
        clock = VirtualClock()
        looks = Looks(
            Providers({}, {provider.name: provider for provider in providers}, {}), InlineRunner(), clock, Wake()
        )
        looks.set_desired(shop().desired())
        self.journal = Journal()
        self.applier = Applier(looks, self.journal, looks.runner, clock)
        self.looks = looks
        self.started: list[str] = []
        self.finished: list[str] = []
        self.outcomes: dict[str, Outcome] = {}

    def apply(self, *steps: Step, may_go: bool = True) -> list[OutcomeKind]:
        """Do the steps; the kind of each one's outcome, in their order."""

        def finished(step: Step, outcome: Outcome) -> None:
            self.finished.append(step.id)
            self.outcomes[step.id] = outcome

        asyncio.run(
            self.applier.run(
                steps,
                lambda step: self.started.append(step.id),
                finished,
                lambda step, recorded=False: "" if may_go else "a test",
            ),
        )
        assert self.applier.busy == set()
        assert sorted(self.finished) == sorted(step.id for step in steps)
        return [self.outcomes[step.id].kind for step in steps]


def place(number: int) -> Endpoint:
    return Endpoint(f"192.0.2.{number}", 80)


def put(
    number: int,
    weight: int = 10,
    before: int | None = None,
    *,
    pool: str = "web",
    on: str = "edge",
    step: str = "",
    follows: tuple[str, ...] = (),
    journal: bool = False,
) -> Step:
    action = SetWeight(on, pool, place(number), f"web-{number}", weight, before)
    return Step(step or f"weight {number}", "service/web", action, Reason.READY, "ready", follows, journal)


def drop(number: int, follows: tuple[str, ...] = ()) -> Step:
    action = RemoveEndpoint("edge", "web", place(number), f"web-{number}")
    return Step(f"withdraw {number}", "service/web", action, Reason.GONE, "gone", follows)


def weights(pools: MemoryEndpoints, pool: str = "web") -> dict[str, int]:
    return {member.name: member.weight for member in pools.world.pools.get(pools.name, {}).get(pool, {}).values()}


def test_a_thousand_weights_are_one_call_and_two_looks():
    edge = Pools("edge", MemoryWorld())
    bench = Bench(owned(edge, "demo"))
    steps = [
        Step(
            f"weight {n}",
            "service/web",
            SetWeight("edge", "web", Endpoint(f"10.0.{n >> 8}.{n & 255}", 80), f"web-{n}", 7, None),
            Reason.READY,
            "ready",
        )
        for n in range(1000)
    ]
    assert bench.apply(*steps) == [DONE] * 1000
    assert [len(batch) for batch in edge.batches] == [1000]
    assert edge.looks == [("web",), ("web",)]
    assert set(weights(edge).values()) == {7}


def test_a_batch_raises_weights_first_then_keeps_the_decisions_order():
    edge = Pools("edge", MemoryWorld())
    edge.perform([put(4).action, put(5).action])
    edge.batches.clear()
    steps = [put(3), put(4, 5, before=10), put(1), drop(9), put(5, 20, before=10), put(2)]
    assert Bench(edge).apply(*steps) == [DONE] * 6
    assert edge.batches == [["web-3", "web-1", "web-5", "web-2", "web-4"], ["web-9"]], "a removal waits for the disk"


def test_a_single_step_is_one_call_and_one_look():
    edge = Pools("edge", MemoryWorld())
    assert Bench(edge).apply(put(1)) == [DONE]
    assert (edge.batches, edge.looks) == ([["web-1"]], [("web",)])
    assert weights(edge) == {"web-1": 10}


def test_a_step_of_a_provider_that_is_not_configured_is_rejected():
    bench = Bench(Pools("edge", MemoryWorld()))
    assert bench.apply(put(1), put(2, on="other"), put(3, on="other", follows=("weight 1",))) == [
        DONE,
        REJECTED,
        REJECTED,
    ]
    assert {bench.outcomes[f"weight {n}"].message for n in (2, 3)} == {"its provider is not configured"}


def test_each_provider_and_each_pool_gets_its_own():
    world = MemoryWorld()
    edge, other = Pools("edge", world), Pools("other", world)
    bench = Bench(edge, other)
    steps = [put(1), put(2, pool="api"), put(3, on="other"), put(4), put(5, on="other")]
    assert bench.apply(*steps) == [DONE] * 5
    assert (edge.batches, other.batches) == ([["web-1", "web-2", "web-4"]], [["web-3", "web-5"]])
    assert sorted(edge.looks) == [("api",), ("web",)]
    assert other.looks == [("web",)]


def test_each_action_of_a_batch_has_its_own_outcome():
    edge = Pools("edge", MemoryWorld())
    edge.plant("web", place(3), 7, owner="other")
    edge.perform([put(4, 0).action, put(5, 9).action])
    bench = Bench(owned(edge, "demo"))
    kinds = bench.apply(put(1), put(2, 20, before=5), put(3), drop(4), drop(5))
    assert kinds == [DONE, CONFLICT, CONFLICT, DONE, CONFLICT]
    assert weights(edge) == {"web-1": 10, "": 7, "web-5": 9}


def test_a_step_goes_after_the_one_it_follows_or_is_skipped():
    edge = Pools("edge", MemoryWorld())
    for number in (1, 2):
        edge.perform([put(number).action])
    bench = Bench(faulty(edge, sequence(Fault.REJECTED)))
    steps = [put(1, 0, 10), put(2, 0, 10), drop(1, follows=("weight 1",)), drop(2, follows=("weight 2",))]
    assert bench.apply(*steps) == [REJECTED, DONE, SKIPPED, DONE]
    assert edge.batches[2:] == [["web-2"], ["web-2"]]  # the weights in one call, then the removal
    assert weights(edge) == {"web-1": 10}


def test_a_second_step_on_the_same_target_waits_for_the_batch():
    edge = Pools("edge", MemoryWorld())
    bench = Bench(edge)
    steps = [put(1, 10), put(2, 10), put(1, 20, 10, step="again")]
    assert bench.apply(*steps) == [DONE] * 3
    assert edge.batches == [["web-1", "web-2"], ["web-1"]]
    assert weights(edge) == {"web-1": 20, "web-2": 10}


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.REJECTED])
def test_of_steps_that_go_alone_a_pool_gains_before_it_loses(fault: Fault):
    """A cut that follows another step waits for the raises before it. It also goes when the raise fails."""
    edge = Pools("edge", MemoryWorld())
    edge.perform([put(2).action])
    reported: list[str] = []

    def script(call: Call) -> Fault:
        if isinstance(call.action, SetWeight):
            reported.append(call.action.name)
        return fault if reported and reported[-1] == "web-1" else Fault.NONE

    bench = Bench(faulty(edge, script))
    steps = [put(8, pool="api"), put(1, 20, follows=("weight 8",)), put(2, 0, before=10, follows=("weight 8",))]
    assert bench.apply(*steps) == [DONE, DONE if fault is Fault.NONE else REJECTED, DONE]
    assert reported == ["web-8", "web-1", "web-2"]


def test_what_goes_wrong_with_one_step_is_that_steps_outcome():
    edge = Pools("edge", MemoryWorld())
    faults = (Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.UNREACHABLE, Fault.REJECTED, Fault.NONE)
    bench = Bench(faulty(edge, sequence(*faults)))
    kinds = bench.apply(*(put(number) for number in range(1, 6)))
    # The lost reply was read back as done; the lost request was not.
    assert kinds == [DONE, UNKNOWN, FAILED, REJECTED, DONE]
    assert weights(edge) == {"web-1": 10, "web-5": 10}


def test_when_nothing_was_begun_every_step_has_failed():
    edge = Pools("edge", MemoryWorld())
    edge.down = True
    bench = Bench(edge)
    assert bench.apply(put(1), put(2)) == [FAILED, FAILED]
    assert {outcome.message for outcome in bench.outcomes.values()} == {"edge: no connection"}


def test_a_provider_that_says_done_without_doing_it_is_found_out():
    edge = Pools("edge", MemoryWorld())
    edge.perform([put(1).action])
    edge.liar = True
    bench = Bench(edge)
    assert bench.apply(put(1, 20, 10), put(2)) == [FAILED, FAILED]
    assert [bench.outcomes[f"weight {n}"].message for n in (1, 2)] == [
        "done, but read back as weight 10",
        "done, but read back as weight absent",
    ]
    assert bench.looks.next_due() == bench.applier.clock.now().steady


def test_a_failed_read_back_leaves_only_its_pools_steps_unknown():
    edge = Pools("edge", MemoryWorld())
    edge.deaf = {"api"}
    bench = Bench(edge)
    assert bench.apply(put(1), put(2, pool="api"), put(3)) == [DONE, UNKNOWN, DONE]
    assert "reading it back failed" in bench.outcomes["weight 2"].message


def test_every_target_is_busy_while_the_call_runs():
    edge = Pools("edge", MemoryWorld())
    bench = Bench(edge)
    edge.busy_inside = bench.applier.busy
    bench.apply(put(1), put(2))
    assert edge.inside == {"edge/web/192.0.2.1:80", "edge/web/192.0.2.2:80"}


def test_journalled_steps_are_written_before_and_after_the_call():
    edge = Pools("edge", MemoryWorld())
    bench = Bench(faulty(edge, sequence(Fault.NONE, Fault.NONE, Fault.REJECTED)))
    bench.apply(put(1, journal=True), put(2, journal=True), put(3))
    assert bench.journal.entries == [["weight 1", "done"], ["weight 2", "rejected"]]


def test_nothing_is_begun_once_asked_to_stop():
    edge = Pools("edge", MemoryWorld())
    bench = Bench(edge)
    assert bench.apply(put(1), put(2), may_go=False) == [SKIPPED, SKIPPED]
    assert bench.started == []
    assert edge.batches == []


def test_the_whole_loop_brings_replicas_in_together():
    world = World(shop(replicas=3))
    assert world.once().exit == 0
    assert set(world.weights().values()) == {100}
    assert any(size >= 2 for size in world.traffic.batches)
    world.close()


def test_a_process_killed_in_the_middle_of_a_batch_converges_all_the_same():
    """A kill before and after every write and store of a start, and so between any two writes of a batch too."""
    points = 0
    while True:
        world = World(shop(replicas=3))
        world.kill_in = points
        world.run(120 * SECOND)
        reached = world.lives > 1
        assert set(world.weights().values()) == {100}
        assert len(world.running()) == 3
        world.close()
        if not reached:
            break
        points += 2
    assert points > 50
