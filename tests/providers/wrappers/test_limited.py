"""Deadlines, busy objects, the rate limit and unexpected errors, with real threads and calls that hang on an event."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

import pytest

from manifests.values.desired import SECOND, Container, Template
from providers.actions import ChangeRecords, CreateContainer, EndpointAction, RuntimeAction, SetWeight, StopContainer
from providers.errors import Conflict, OutcomeUnknown, ProviderError, Unreachable
from providers.facts import ContainerFact, Endpoint, Generation, Mark
from providers.lib.rate import Rate
from providers.spi import Context, Performed
from providers.testing.checks import perform_one, wait_until
from providers.testing.memory import MemoryDNS, MemoryEndpoints, MemorySettings, MemoryWorld
from providers.testing.memory_runtime import MemoryRuntime
from providers.wrappers.limited import LimitedEndpoints, LimitedRuntime, Limits, limited

TINY = SECOND // 2
CREATE = CreateContainer(
    "host-a", "demo-web-01234567-0", Mark("demo", "web", 0, "0123456789"), Template((), Container("web", ())), "/"
)


class Hanging(MemoryRuntime):
    """A runtime whose calls wait for an event before they do their work."""

    def __init__(self, world: MemoryWorld) -> None:
        super().__init__("host-a", MemorySettings(), Context("demo", "/nowhere"), world)
        self.go = threading.Event()
        self.entered = 0

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        self.entered += 1
        self.go.wait()
        return super().observe(names)

    def perform(self, action: RuntimeAction) -> None:
        self.entered += 1
        self.go.wait()
        super().perform(action)

    def close(self) -> None:
        self.go.wait()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    runtime = Hanging(MemoryWorld())
    yield runtime
    runtime.go.set()


@pytest.fixture
def close() -> Iterator[Callable[[LimitedRuntime], LimitedRuntime]]:
    opened: list[LimitedRuntime] = []

    def later(runtime: LimitedRuntime) -> LimitedRuntime:
        opened.append(runtime)
        return runtime

    yield later
    for runtime in opened:
        if isinstance(runtime.inner, Hanging):
            runtime.inner.go.set()
        runtime.close()


Later = Callable[[LimitedRuntime], LimitedRuntime]


def test_a_late_look_is_unreachable_and_refused_while_it_hangs(hanging: Hanging, close: Later) -> None:
    runtime = close(limited(hanging, Limits(deadline=TINY)))
    with pytest.raises(Unreachable, match=r"no answer from provider host-a within 0\.5 s"):
        runtime.observe()
    with pytest.raises(Unreachable, match="has not returned"):
        runtime.observe()
    assert hanging.entered == 1


def test_a_late_action_is_unknown_and_its_object_busy_until_it_returns(hanging: Hanging, close: Later) -> None:
    runtime = close(limited(hanging, Limits(deadline=TINY)))
    with pytest.raises(OutcomeUnknown, match="no answer"):
        runtime.perform(CREATE)
    assert runtime.busy() == {CREATE.name}
    with pytest.raises(OutcomeUnknown, match="has not returned after"):
        runtime.perform(CREATE)
    assert hanging.entered == 1

    hanging.go.set()
    wait_until(lambda: not runtime.busy(), "the late call returns")
    assert [fact.name for fact in runtime.inner.observe()] == [CREATE.name]
    runtime.perform(CREATE)


def test_a_busy_object_does_not_stop_others(hanging: Hanging, close: Later) -> None:
    runtime = close(limited(hanging, Limits(deadline=TINY)))
    with pytest.raises(OutcomeUnknown):
        runtime.perform(CREATE)
    with pytest.raises(OutcomeUnknown, match="no answer"):
        runtime.perform(StopContainer("host-a", "other", Generation("x", 1), 0))
    assert runtime.busy() == {CREATE.name, "other"}


def test_when_every_thread_hangs_a_call_that_never_began_changed_nothing(hanging: Hanging, close: Later) -> None:
    runtime = close(limited(hanging, Limits(deadline=TINY, workers=1)))
    with pytest.raises(OutcomeUnknown):
        runtime.perform(CREATE)
    with pytest.raises(Unreachable, match="nothing was changed"):
        runtime.perform(StopContainer("host-a", "other", Generation("x", 1), 0))
    assert runtime.busy() == {CREATE.name}
    hanging.go.set()
    wait_until(lambda: not runtime.busy(), "the late call returns")
    assert hanging.entered == 1


def test_a_second_call_on_an_object_waits_for_the_first(hanging: Hanging, close: Later) -> None:
    runtime = close(limited(hanging, Limits(deadline=5 * SECOND)))
    threads = [threading.Thread(target=runtime.perform, args=(CREATE,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: hanging.entered == 1, "the first call is inside")
    hanging.go.set()
    for thread in threads:
        thread.join(60)
    assert hanging.entered == 2
    assert len(hanging.world.nodes["host-a"]) == 1


def test_an_action_with_grace_gets_it_on_top_of_the_deadline(hanging: Hanging, close: Later) -> None:
    runtime = close(limited(hanging, Limits(deadline=1)))
    outcome: list[BaseException | None] = []

    def stop() -> None:
        try:
            runtime.perform(StopContainer("host-a", "web", Generation("x", 1), 5 * SECOND))
            outcome.append(None)
        except OutcomeUnknown as error:
            outcome.append(error)

    thread = threading.Thread(target=stop)
    thread.start()
    wait_until(lambda: hanging.entered == 1, "the call is inside")
    hanging.go.set()
    thread.join(60)
    assert outcome == [None]


class Broken(MemoryRuntime):
    """A runtime with a bug."""

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        raise KeyError("password=hunter2")

    def perform(self, action: RuntimeAction) -> None:
        raise SystemExit("password=hunter2")


def test_unexpected_errors_become_provider_errors_with_their_type_only(close: Later) -> None:
    inner = Broken("host-a", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld())
    runtime = close(limited(inner))
    with pytest.raises(Unreachable, match="KeyError") as look:
        runtime.observe()
    with pytest.raises(OutcomeUnknown, match="SystemExit") as write:
        runtime.perform(CREATE)
    assert "hunter2" not in f"{look.value} {write.value}"
    assert isinstance(look.value.__cause__, KeyError)
    assert runtime.busy() == frozenset()


def test_errors_of_the_tree_pass_through_unchanged(close: Later) -> None:
    world = MemoryWorld()
    endpoints = limited(MemoryEndpoints("edge", MemorySettings(), Context("demo", "/nowhere"), world))
    with pytest.raises(Conflict, match="the plan saw weight 5"):
        perform_one(endpoints, SetWeight("edge", "web", Endpoint("192.0.2.1", 80), "", 10, 5))
    endpoints.close()


class HangingPools(MemoryEndpoints):
    """Endpoints whose writes wait for an event."""

    def __init__(self) -> None:
        super().__init__("edge", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld())
        self.go = threading.Event()
        self.batches: list[int] = []

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        self.batches.append(len(actions))
        self.go.wait()
        return super().perform(actions)


@pytest.fixture
def hanging_pools() -> Iterator[HangingPools]:
    pools = HangingPools()
    yield pools
    pools.go.set()


@pytest.fixture
def pools_within(hanging_pools: HangingPools) -> Iterator[Callable[[int], LimitedEndpoints]]:
    opened: list[LimitedEndpoints] = []

    def make(deadline: int) -> LimitedEndpoints:
        pools = limited(hanging_pools, Limits(deadline=deadline))
        opened.append(pools)
        return pools

    yield make
    hanging_pools.go.set()
    for pools in opened:
        pools.close()


PoolsWithin = Callable[[int], LimitedEndpoints]


def put(number: int, before: int | None = None) -> SetWeight:
    return SetWeight("edge", "web", Endpoint(f"192.0.2.{number}", 80), "", 10, before)


def test_a_late_batch_is_unknown_and_its_objects_busy_until_it_returns(
    hanging_pools: HangingPools, pools_within: PoolsWithin
) -> None:
    pools = pools_within(TINY)
    outcomes = pools.perform([put(1), put(2)]).errors
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown] * 2
    assert [outcome.target for outcome in outcomes if outcome] == ["web/192.0.2.1:80", "web/192.0.2.2:80"]
    assert pools.busy() == {"web/192.0.2.1:80", "web/192.0.2.2:80"}
    with pytest.raises(OutcomeUnknown, match="has not returned after"):
        perform_one(pools, put(2))

    hanging_pools.go.set()
    wait_until(lambda: not pools.busy(), "the late batch returns")
    assert pools.perform([put(1), put(2)]).errors == (None, None)
    assert len(hanging_pools.observe(["web"])[0].members) == 2
    assert hanging_pools.batches == [2, 2]  # never the refused one


def test_a_batch_leaves_out_what_is_busy_and_does_the_rest(
    hanging_pools: HangingPools, pools_within: PoolsWithin
) -> None:
    hanging, pools = hanging_pools, pools_within(4 * TINY)
    slow = threading.Thread(target=lambda: pools.perform([put(1), put(2)]).errors)
    slow.start()
    slow.join(60)
    outcomes: list[ProviderError | None] = []
    quick = threading.Thread(target=lambda: outcomes.extend(pools.perform([put(1), put(3), put(2), put(4)]).errors))
    quick.start()
    wait_until(lambda: hanging.batches == [2, 2], "the second batch is inside, with what is not busy")
    hanging.go.set()
    quick.join(60)
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown, type(None), OutcomeUnknown, type(None)]
    wait_until(lambda: not pools.busy(), "the first batch returns")
    assert len(hanging.observe(["web"])[0].members) == 4


def test_batches_on_the_same_objects_go_one_after_another(
    hanging_pools: HangingPools, pools_within: PoolsWithin
) -> None:
    pools = pools_within(5 * SECOND)
    many = [put(1), put(2), put(3)]
    outcomes: list[ProviderError | None] = []
    threads = [
        threading.Thread(target=lambda these: outcomes.extend(pools.perform(these).errors), args=(these,))
        for these in (many, many[::-1], many[1:])
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(hanging_pools.batches) == 1, "one batch is inside")
    hanging_pools.go.set()
    for thread in threads:
        thread.join(60)
    assert outcomes == [None] * 8
    assert pools.busy() == frozenset()


class BrokenPools(MemoryEndpoints):
    """Endpoints with a bug: too few answers, or none at all."""

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        if len(actions) > 2:
            raise Unreachable("edge", "no connection")
        return Performed(super().perform(actions).errors[1:])


def test_a_batch_with_wrong_answers_is_unknown_and_one_that_raises_failed() -> None:
    world = MemoryWorld()
    pools = limited(BrokenPools("edge", MemorySettings(), Context("demo", "/nowhere"), world))
    wrong = pools.perform([put(1), put(2)]).errors
    assert [type(one) for one in wrong] == [OutcomeUnknown] * 2
    assert all("ValueError" in str(one) for one in wrong)
    outcomes = pools.perform([put(1), put(2), put(3)]).errors
    assert [str(outcome) for outcome in outcomes] == ["edge: no connection"] * 3
    assert pools.busy() == frozenset()
    pools.close()
    assert [type(one) for one in pools.perform([put(1), put(2)]).errors] == [Unreachable] * 2


def test_a_batch_is_one_call_for_the_rate_limit() -> None:
    inner = MemoryEndpoints("edge", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld())
    pools = limited(inner, Limits(deadline=SECOND, rate=Rate(0.001, 1), steady=lambda: 0))
    assert pools.perform([put(1), put(2)]).errors == (None, None)
    refused = pools.perform([put(3), put(4)]).errors
    assert [type(one) for one in refused] == [Unreachable] * 2
    assert "web/192.0.2.3:80: the rate limit" in str(refused[0])
    assert pools.busy() == frozenset()
    pools.close()


def test_a_call_that_would_wait_too_long_for_its_turn_is_refused_at_once() -> None:
    inner = MemoryDNS("zone", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld())
    dns = limited(inner, Limits(deadline=SECOND, rate=Rate(0.001, 1), steady=lambda: 0))
    dns.observe(["example.test."])
    with pytest.raises(Unreachable, match="rate limit"):
        dns.observe(["example.test."])
    with pytest.raises(Unreachable, match="rate limit"):
        dns.perform(ChangeRecords("zone", "example.test.", ()))
    assert dns.busy() == frozenset()
    dns.close()


def test_closing_takes_at_most_a_second_and_refuses_later_calls(hanging: Hanging) -> None:
    runtime = limited(hanging, Limits(deadline=TINY))
    with pytest.raises(OutcomeUnknown):
        runtime.perform(CREATE)
    began = time.monotonic()
    runtime.close()
    assert time.monotonic() - began < 10
    with pytest.raises(Unreachable, match="closed"):
        runtime.observe()
    runtime.close()


def test_threads_end_when_closed_and_only_daemons_were_used() -> None:
    inner = MemoryRuntime("ends", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld())
    runtime = limited(inner)
    runtime.observe()
    mine = [thread for thread in threading.enumerate() if thread.name.startswith("ends-")]
    assert mine
    assert all(thread.daemon for thread in mine)
    runtime.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ends-")]


def test_a_hanging_call_does_not_keep_the_interpreter_from_exiting() -> None:
    program = """
import threading
from providers.actions import ChangeRecords
from providers.errors import OutcomeUnknown
from providers.wrappers.limited import Limits, limited
from providers.spi import Context
from providers.testing.memory import MemoryDNS, MemorySettings, MemoryWorld

class Hanging(MemoryDNS):
    def perform(self, action):
        threading.Event().wait()

dns = limited(Hanging("zone", MemorySettings(), Context("demo", "/nowhere"), MemoryWorld()), Limits(deadline=200_000_000))
try:
    dns.perform(ChangeRecords("zone", "example.test.", ()))
except OutcomeUnknown:
    print("left behind")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "left behind\n"


# --- threads ------------------------------------------------------------------------------------------------------


class Stopping(Hanging):
    """Only actions hang."""

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        return MemoryRuntime.observe(self, names)


def test_long_actions_do_not_keep_looks_waiting(close: Later) -> None:
    hanging = Stopping(MemoryWorld())
    runtime = close(limited(hanging, Limits(deadline=60 * SECOND, workers=2)))
    stops = [StopContainer("host-a", f"web-{n}", Generation("x", 1), 0) for n in range(4)]
    threads = [threading.Thread(target=_quietly, args=(runtime, stop)) for stop in stops]
    for thread in threads:
        thread.start()
    wait_until(lambda: hanging.entered == 2, "both threads for actions are inside")
    assert runtime.observe() == ()
    hanging.go.set()
    for thread in threads:
        thread.join(60)


def _quietly(runtime: LimitedRuntime, stop: StopContainer) -> None:
    with suppress(ProviderError):
        runtime.perform(stop)


def test_every_call_is_reported_with_its_time_and_error():
    calls: list[tuple[str, str, float, str]] = []
    world = MemoryWorld()
    runtime = limited(
        MemoryRuntime("host-a", MemorySettings(), Context("demo", "/nowhere"), world),
        Limits(report=lambda *call: calls.append(call)),
    )
    pools = limited(
        MemoryEndpoints("pool", MemorySettings(), Context("demo", "/nowhere"), world),
        Limits(report=lambda *call: calls.append(call)),
    )
    try:
        runtime.observe()
        runtime.perform(CREATE)
        world.break_reads("host-a")
        with pytest.raises(Unreachable):
            runtime.observe()
        pools.perform([SetWeight("pool", "web", Endpoint("10.0.0.1", 80), "x", 100, before=50)])
    finally:
        runtime.close()
        pools.close()
    assert [(provider, call, error) for provider, call, _, error in calls] == [
        ("host-a", "observe", ""),
        ("host-a", "perform", ""),
        ("host-a", "observe", "Unreachable"),
        ("pool", "perform", "Gone"),
    ]
    assert all(0 <= seconds < 30 for _, _, seconds, _ in calls)
