"""Pools that a provider reads back replace a look, unless a later look exists."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from manifests.values.desired import SECOND
from providers.actions import CutSessions, EndpointAction, SetWeight
from providers.errors import OutcomeUnknown, ProviderError
from providers.facts import Endpoint, Known, MemberFact, PoolFact
from providers.spi import Context, Performed
from providers.testing.memory import MemoryEndpoints, MemorySettings, MemoryWorld
from providers.wrappers.limited import Limits, limited
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

PLACES = [Endpoint("192.0.2.1", port) for port in (80, 81)]


class Telling(MemoryEndpoints):
    """Endpoints that tell what they read back.

    `quiet` says nothing, `lazy` answers and does nothing, of `lost` the answers are lost; `meanwhile` happens during a call.
    """

    def __init__(self) -> None:
        super().__init__("edge", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld())
        self.looks = 0
        self.quiet = self.lazy = self.lost = False
        self.meanwhile = lambda: None

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        self.looks += 1
        return super().observe(pools)

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        if self.lost:
            errors: tuple[ProviderError | None, ...] = tuple(OutcomeUnknown("edge", "no answer") for _ in actions)
        else:
            errors = (None,) * len(actions) if self.lazy else super().perform(actions).errors
        pools = () if self.quiet else super().observe([action.pool for action in actions])
        self.meanwhile()
        return Performed(errors, pools)


class NoJournal:
    syncs = 0

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
        raise AssertionError(step_id)

    async def end(self, entry: int, outcome: str, detail: str = "") -> None:
        raise AssertionError(entry)

    async def sync(self) -> bool:
        self.syncs += 1
        return True


class Bench:
    def __init__(self, provider: Telling) -> None:
        self.clock = VirtualClock()
        self.looks = Looks(Providers({}, {"edge": provider}, {}), InlineRunner(), self.clock, Wake())
        self.looks.set_desired(shop().desired())
        self.applier = Applier(self.looks, NoJournal(), self.looks.runner, self.clock)

    def apply(self, *actions: EndpointAction) -> list[OutcomeKind]:
        found: list[OutcomeKind] = []

        def finished(step: Step, outcome: Outcome) -> None:
            found.append(outcome.kind)

        steps = tuple(Step(f"step {n}", "service/web", one, Reason.READY, "ready") for n, one in enumerate(actions))
        asyncio.run(self.applier.run(steps, lambda step: None, finished, lambda step, recorded=False: ""))
        return found

    def weights(self) -> list[int]:
        known = self.looks.pools["edge", "web"]
        assert isinstance(known, Known)
        return [member.weight for member in known.value.members]


def puts(weight: int, before: int | None = None) -> list[SetWeight]:
    return [SetWeight("edge", "web", place, "web-0", weight, before) for place in PLACES]


@pytest.fixture
def telling() -> Telling:
    return Telling()


def test_pools_that_a_provider_reads_back_are_taken_over_without_a_look(telling: Telling) -> None:
    bench = Bench(telling)
    assert bench.apply(*puts(10)) == [OutcomeKind.DONE] * 2
    assert (bench.weights(), telling.looks) == ([10, 10], 0)


def test_a_pool_that_is_not_read_back_is_observed(telling: Telling) -> None:
    bench = Bench(telling)
    telling.quiet = True
    assert bench.apply(*puts(10)) == [OutcomeKind.DONE] * 2
    assert (bench.weights(), telling.looks) == ([10, 10], 1)


def test_a_look_that_began_during_the_call_is_followed_by_another(telling: Telling) -> None:
    bench = Bench(telling)

    def look() -> None:
        bench.clock.advance(SECOND)
        bench.looks.pools["edge", "web"] = Known(PoolFact("web"), "edge", bench.clock.now().steady)

    telling.meanwhile = look
    assert bench.apply(*puts(10)) == [OutcomeKind.DONE] * 2
    assert (bench.weights(), telling.looks) == ([10, 10], 1)


def test_sessions_that_were_cut_read_back_as_none(telling: Telling) -> None:
    bench = Bench(telling)
    bench.apply(*puts(0))
    member = telling.world.pools["edge"]["web"][PLACES[0]]
    member.in_flight = 3
    cut = CutSessions("edge", "web", PLACES[0], "web-0")
    assert bench.apply(cut) == [OutcomeKind.DONE]
    assert member.in_flight == 0


def test_only_weights_go_out_before_the_disk_has_the_ledger(telling: Telling) -> None:
    bench = Bench(telling)
    journal = bench.applier.journal
    assert isinstance(journal, NoJournal)
    assert bench.apply(*puts(0)) == [OutcomeKind.DONE] * 2
    assert journal.syncs == 0
    assert bench.apply(CutSessions("edge", "web", PLACES[0], "web-0")) == [OutcomeKind.DONE]
    assert journal.syncs == 1


def test_sessions_that_stay_open_are_a_failure(telling: Telling) -> None:
    bench = Bench(telling)
    bench.apply(*puts(0))
    telling.lazy = True
    telling.world.pools["edge"]["web"][PLACES[0]].in_flight = 3
    assert bench.apply(CutSessions("edge", "web", PLACES[0], "web-0")) == [OutcomeKind.FAILED]


def test_a_single_weight_is_read_back_without_a_look_too(telling: Telling) -> None:
    bench = Bench(telling)
    assert bench.apply(puts(10)[0]) == [OutcomeKind.DONE]
    assert (bench.weights(), telling.looks) == ([10], 0)


def test_the_decorators_pass_on_what_was_read_back(telling: Telling) -> None:
    wrapped = limited(owned(telling, "demo"), Limits(workers=1))
    try:
        telling.plant("web", Endpoint("198.51.100.1", 80), 5, owner="other")
        foreign = SetWeight("edge", "web", Endpoint("198.51.100.1", 80), "x", 0, 5)
        performed = wrapped.perform([*puts(10), foreign])
        (fact,) = performed.pools
        assert [error is None for error in performed.errors] == [True, True, False]
        assert [member.weight for member in fact.members] == [10, 10, 5]
        assert fact.members[2] == MemberFact(Endpoint("198.51.100.1", 80), 5, False, "", 0)
    finally:
        wrapped.close()


def test_pools_of_a_call_with_unknown_outcome_are_dropped(telling: Telling) -> None:
    telling.lost = True
    wrapped = limited(owned(telling, "demo"), Limits(workers=1))
    try:
        performed = wrapped.perform(puts(10))
        assert [type(error) for error in performed.errors] == [OutcomeUnknown] * 2
        assert performed.pools == ()
    finally:
        wrapped.close()
