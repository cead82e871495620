"""The incidents as physics: what the applications really do, and what a probe of them sees. `peers.py` and `product.py` run them.

Times are seconds from the beginning of the incident; everything has run since `BEFORE`. A slot is a replica: its number, or
`("bad", number)` for a replica of a bad image. No rule knows more than the answers to probes, except the one that knows everything.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import blake2b
from typing import ClassVar, NamedTuple

BEFORE = -120.0
NEVER = float("-inf")
SIZES = (1, 2, 3, 5, 10, 30)

Slot = Hashable


class Answer(Enum):
    """What a probe gets: it passes, it is refused or gets an error, it waits for its time-out, or it has no result of its own."""

    PASS = "pass"
    FAIL = "fail"
    TIMEOUT = "timeout"
    NONE = "none"


TIMEOUT = 1.0
"""The time-out of a probe: a hung application is noticed so much later than one that refuses."""


class Cadence(NamedTuple):
    """A probe: its period in seconds, and its failureThreshold."""

    period: int
    failures: int

    @property
    def detection(self) -> float:
        """The longest time (s) from a fault to the verdict."""
        return self.period * self.failures + TIMEOUT


STARTUP = Cadence(5, 20)
USUAL = Cadence(10, 3)


class Event(NamedTuple):
    """Something that happens to the world at `at`: `verb` is deploy, runtime, clock or reboot."""

    at: float
    verb: str
    value: object


def dice(*what: object) -> float:
    """A number in [0, 1), the same for every rule."""
    return int.from_bytes(blake2b(repr(what).encode(), digest_size=8).digest()) / 2**64


@dataclass(slots=True)
class Process:
    """The state of one slot: `since` when it runs, `starts` how often it was started, `hung` until it is restarted.

    `passed` is when its readiness probe passed first since its start.
    """

    up: bool = False
    since: float = NEVER
    starts: int = 0
    hung: bool = False
    passed: float | None = None


class Trace:
    """One incident with `size` replicas, whose probes have the phases of `seed`.

    Attributes:
        key: its name in tables.
        title: what happens, in a few words.
        cause_end: when its cause is over; restarts may still be needed then.
        duration: how long it is watched.
        delay: from a start until the application answers.
        live, ready: the probes that it has unless a case has others.
        sizes: the sizes that make sense.
        demand: requests per second of all clients.
        alone: every slot is a workload of its own with a pool of its own.
    """

    key: ClassVar[str] = ""
    title: ClassVar[str] = ""
    cause_end: float = 0.0
    duration: float = 3600.0
    delay: float = 3.0
    live: Cadence = USUAL
    ready: Cadence = USUAL
    sizes: ClassVar[tuple[int, ...]] = SIZES
    demand: float = 100.0
    alone: ClassVar[bool] = False
    events: tuple[Event, ...] = ()

    def __init__(self, size: int, seed: int = 1, cadence: Cadence | None = None) -> None:
        self.size, self.seed = size, seed
        if cadence is not None:
            self.live, self.ready = cadence, replace_failures(self.ready, cadence)
        self.processes: dict[Slot, Process] = {}
        self.load: dict[Slot, float] = {}
        self.phases: dict[tuple[Slot, str], float] = {}
        """Phases (s) of single probes, for a comparison with a real run; the others have one from the seed."""

    # --- what the world reports -------------------------------------------------------------------------------

    def started(self, slot: Slot, now: float) -> None:
        """A process of the slot began."""
        process = self.processes.get(slot) or Process()
        self.processes[slot] = replace(process, up=True, since=now, starts=process.starts + 1, hung=False, passed=None)

    def stopped(self, slot: Slot, now: float) -> None:
        """The process of the slot ended."""
        self.processes[slot] = replace(self.processes.get(slot) or Process(), up=False, passed=None)

    def move(self, now: float, weights: Mapping[Slot, float]) -> None:
        """A second passes: requests are shared by weight, and what is to happen does."""
        total = sum(weights.values())
        self.load = {slot: self.demand * weight / total for slot, weight in weights.items()} if total else {}

    # --- the truth --------------------------------------------------------------------------------------------

    def warm(self, slot: Slot, now: float) -> bool:
        """Whether its start is over."""
        process = self.processes.get(slot)
        return process is not None and process.up and now - process.since >= self.delay

    def serves(self, slot: Slot, now: float) -> bool:
        """Whether it answers requests, as long as they are not too many."""
        return self.warm(slot, now) and not self.processes[slot].hung

    def capacity(self) -> float:
        """Requests per second that one replica can answer."""
        return float("inf")

    def share(self, slot: Slot, now: float) -> float:
        """The part of its requests that it answers."""
        if not self.serves(slot, now):
            return 0.0
        load = self.load.get(slot, 0.0)
        return min(1.0, self.capacity() / load) if load else 1.0

    def helps(self, slot: Slot, now: float) -> bool:
        """Whether a restart of this slot, now, makes it serve; another restart is useless."""
        process = self.processes.get(slot)
        return process is not None and process.up and process.hung

    # --- what probes see --------------------------------------------------------------------------------------

    def phase(self, slot: Slot, probe: str, period: int) -> float:
        """The phase of a probe in its period, seconds from the beginning of the incident.

        Those of a seed are whole seconds, so that the rules that are computed once a second see no probe earlier than the others.
        """
        known = self.phases.get((slot, probe))
        return int(dice("phase", self.seed, slot, probe) * period) if known is None else known % period

    def ask(self, slot: Slot, probe: str, now: float) -> Answer:
        """The answer to a probe (startup, liveness or readiness) that is made now."""
        answer = self.answer(slot, probe, now)
        process = self.processes.get(slot)
        if probe == "readiness" and answer is Answer.PASS and process is not None and process.passed is None:
            process.passed = now
        return answer

    def answer(self, slot: Slot, probe: str, now: float) -> Answer:
        """The same without a trace in the books."""
        if self.serves(slot, now):
            return Answer.PASS
        return Answer.TIMEOUT if self.warm(slot, now) else Answer.FAIL

    def runtime_silent(self, now: float) -> bool:
        """Whether no call of the container runtime is answered."""
        return False

    def prober_cut(self, now: float) -> bool:
        """Whether probes over the network do not arrive, while those inside the container do."""
        return False


def replace_failures(own: Cadence, cadence: Cadence) -> Cadence:
    """The readiness probe at another cadence: a trace whose readiness fails at once keeps that."""
    return Cadence(cadence.period, 1) if own.failures == 1 else cadence


class WrongProbe(Trace):
    key, title = "1", "wrong liveness probe on all, corrected after 60 min"
    cause_end, duration = 3600.0, 5400.0

    def answer(self, slot: Slot, probe: str, now: float) -> Answer:
        if probe == "liveness" and 0 <= now < self.cause_end:
            return Answer.FAIL
        return super().answer(slot, probe, now)


class _Hang(Trace):
    """Some hang at `cause_end` until they are restarted."""

    cause_end = 60.0
    done = False

    def victims(self) -> int:
        return (self.size + 1) // 2

    def move(self, now: float, weights: Mapping[Slot, float]) -> None:
        super().move(now, weights)
        if now >= self.cause_end and not self.done:
            self.done = True
            for slot in range(self.victims()):
                self.processes[slot].hung = True


class HalfHangs(_Hang):
    key, title = "2", "half of the replicas hang after 60 s; a restart heals"


class DegradedDependency(WrongProbe):
    key, title = "3a", "a dependency is down for 20 min: liveness fails, readiness passes, the program serves"
    cause_end, delay = 1200.0, 31.0


class LostDependency(Trace):
    key, title = "3b", "as 3a, and nothing serves meanwhile; all are well after it"
    cause_end, duration, delay = 1200.0, 5400.0, 31.0

    def serves(self, slot: Slot, now: float) -> bool:
        return super().serves(slot, now) and not 0 <= now < self.cause_end

    def answer(self, slot: Slot, probe: str, now: float) -> Answer:
        if not self.warm(slot, now):
            return Answer.FAIL
        return Answer.PASS if probe == "startup" or self.serves(slot, now) else Answer.FAIL


class StuckDependency(LostDependency):
    key, title = "3c", "as 3b, and replicas that ran before stay stuck until they are restarted"

    def serves(self, slot: Slot, now: float) -> bool:
        return super().serves(slot, now) and not self.helps(slot, now)

    def helps(self, slot: Slot, now: float) -> bool:
        process = self.processes.get(slot)
        return process is not None and process.up and now >= 0 and process.since < 0


class SilentCut(Trace):
    key, title = "4a", "the prober's network is cut for 10 min: time-outs; all are well"
    cause_end = 600.0
    seen = Answer.TIMEOUT

    def prober_cut(self, now: float) -> bool:
        return 0 <= now < self.cause_end

    def answer(self, slot: Slot, probe: str, now: float) -> Answer:
        return self.seen if self.prober_cut(now) else super().answer(slot, probe, now)


class NoRoute(SilentCut):
    key, title = "4b", "the prober's network is cut for 10 min: no route; all are well"
    seen = Answer.NONE


class SilentRuntime(Trace):
    key, title = "5a", "the runtime's API is silent for 10 min; all are well"
    cause_end = 600.0
    events = (Event(0, "runtime", False), Event(600, "runtime", True))

    def runtime_silent(self, now: float) -> bool:
        return 0 <= now < self.cause_end


class SilentRuntimeHang(SilentRuntime):
    key, title = "5b", "as 5a, and a fifth of the replicas hangs after 120 s"
    done = False

    def move(self, now: float, weights: Mapping[Slot, float]) -> None:
        super().move(now, weights)
        if now >= 120 and not self.done:
            self.done = True
            for slot in range(max(1, self.size // 5)):
                self.processes[slot].hung = True


class Flap(Trace):
    key, title = "6", "one replica flaps for 60 min: well and hung for 1.5 periods x failureThreshold in turn"
    cause_end, duration = 3600.0, 5400.0
    live, ready = Cadence(5, 2), Cadence(5, 2)

    def bad(self, now: float) -> bool:
        """Whether it is in a bad spell."""
        return 0 <= now < self.cause_end and bool(int(now // (1.5 * self.live.period * self.live.failures)) % 2)

    def serves(self, slot: Slot, now: float) -> bool:
        return super().serves(slot, now) and not (slot == 0 and self.bad(now))


class FlapThenHang(Flap):
    key, title = "6b", "one replica flaps for 5 min as in 6, then hangs; a restart heals"
    cause_end, duration = 300.0, 1800.0
    done = False

    def move(self, now: float, weights: Mapping[Slot, float]) -> None:
        super().move(now, weights)
        if now >= self.cause_end and not self.done:
            self.done = True
            self.processes[0].hung = True


class Leak(Trace):
    key, title = "7a", "a leak: each replica hangs an hour after its start; started 60 s apart"
    cause_end, duration = 3600.0, 10800.0
    apart = 60.0

    def move(self, now: float, weights: Mapping[Slot, float]) -> None:
        super().move(now, weights)
        for slot, process in self.processes.items():
            assert isinstance(slot, int)
            begun = slot * self.apart if process.starts == 1 else process.since
            if process.up and not process.hung and now - begun >= 3600:
                process.hung = True


class LeakAtOnce(Leak):
    key, title = "7b", "the same leak, all started at once"
    apart = 0.0


class Overload(_Hang):
    key, title = "8a", "one hangs after 60 s; without it the rest is overloaded: liveness times out"
    delay, demand, sizes = 31.0, 115.0, (2, 3, 5, 10, 30)
    slow = ("liveness",)

    def victims(self) -> int:
        return 1

    def capacity(self) -> float:
        """All together have 2.6 % more than is asked, at each size: without one of them it is too little."""
        return 115.0 / self.size * 1.026

    def answer(self, slot: Slot, probe: str, now: float) -> Answer:
        answer = super().answer(slot, probe, now)
        over = self.load.get(slot, 0.0) / self.capacity() - 1
        if answer is Answer.PASS and probe in self.slow and dice(self.seed, slot, probe, int(now)) < over / 0.1:
            return Answer.TIMEOUT
        return answer


class OverloadBoth(Overload):
    key, title = "8b", "as 8a: liveness and readiness time out"
    slow = ("liveness", "readiness")


class Surge(Overload):
    key, title = "8c", "25 % more traffic for 10 min: liveness and readiness time out"
    cause_end = 660.0
    slow = ("liveness", "readiness")

    def victims(self) -> int:
        return 0

    def move(self, now: float, weights: Mapping[Slot, float]) -> None:
        self.demand = 115.0 * (1.25 if 60 <= now < self.cause_end else 1.0)
        super().move(now, weights)


class BadImage(Trace):
    key, title = "9", "a bad image that crashes after 1 s is deployed, and taken back after 30 min"
    cause_end = 1800.0
    events = (Event(0, "deploy", "v2"), Event(1800, "deploy", "v1"))

    def serves(self, slot: Slot, now: float) -> bool:
        return isinstance(slot, int) and super().serves(slot, now)


class ClockHang(HalfHangs):
    key, title = "10a", "2 with steps of the wall clock by an hour every 30 s"
    events = tuple(Event(80 + 30 * number, "clock", -3600 if number % 3 == 1 else 3600) for number in range(12))


class ClockWrong(WrongProbe):
    key, title = "10b", "1 with steps of the wall clock by an hour every 2 min"
    events = tuple(Event(60 + 120 * number, "clock", 3600 if number % 2 else -3600) for number in range(30))


class Reboot(Trace):
    key, title = (
        "11a",
        "the host reboots; each workload needs 20 s of work to start, of which the host does 4 s a second",
    )
    cause_end, alone = 60.0, True
    events = (Event(0, "reboot", False),)
    work, at_once = 20.0, 4.0

    def __init__(self, size: int, seed: int = 1, cadence: Cadence | None = None) -> None:
        super().__init__(size, seed, cadence)
        self.done: dict[Slot, float] = {}

    def started(self, slot: Slot, now: float) -> None:
        super().started(slot, now)
        self.done[slot] = 0.0 if now >= 0 else self.work

    def move(self, now: float, weights: Mapping[Slot, float]) -> None:
        self.load = {}
        starting = [slot for slot, done in self.done.items() if done < self.work and self.processes[slot].up]
        for slot in starting:
            self.done[slot] += min(1.0, self.at_once / len(starting))

    def warm(self, slot: Slot, now: float) -> bool:
        process = self.processes.get(slot)
        return process is not None and process.up and self.done[slot] >= self.work


class RebootEngine(Reboot):
    key, title = "11b", "the same, and the engine starts all of them at once"
    events = (Event(0, "reboot", True),)


class FlakyReadiness(Trace):
    key, title = "12", "readiness fails at random (one check in five, failureThreshold 1) for 60 min; all are well"
    cause_end, duration = 3600.0, 5400.0
    ready = Cadence(10, 1)

    def answer(self, slot: Slot, probe: str, now: float) -> Answer:
        check = int(now) // self.ready.period
        if probe == "readiness" and 0 <= now < self.cause_end and dice(self.seed, self.key, slot, check) < 0.2:
            return Answer.FAIL
        return super().answer(slot, probe, now)


TRACES: dict[str, type[Trace]] = {
    trace.key: trace
    for trace in (
        WrongProbe,
        HalfHangs,
        DegradedDependency,
        LostDependency,
        StuckDependency,
        SilentCut,
        NoRoute,
        SilentRuntime,
        SilentRuntimeHang,
        Flap,
        FlapThenHang,
        Leak,
        LeakAtOnce,
        Overload,
        OverloadBoth,
        Surge,
        BadImage,
        ClockHang,
        ClockWrong,
        Reboot,
        RebootEngine,
        FlakyReadiness,
    )
}
