"""This program on the same incidents: the real loop over in-memory providers in virtual time (`tests/sim`)."""

from collections.abc import Callable
from dataclasses import replace

from manifests.values.desired import SECOND, Desired, Probe, ProbeKind, Workload
from providers.actions import Action, StartContainer, StopContainer
from providers.facts import Generation
from providers.testing.faults import Fault
from reconciler.core.exits.grants import URGENT
from reconciler.probes.schedule import next_due
from reconciler.probes.streak import FAIL, PASS, UNKNOWN
from tests.incidents.score import LAG, Score
from tests.incidents.traces import BEFORE, STARTUP, TIMEOUT, Answer, Cadence, Slot, Trace
from tests.laws.watchdog import Watchdog
from tests.sim.apps import Apps
from tests.sim.manifest import POOLS, Shop, Spec
from tests.sim.prober import SimProber
from tests.sim.world import World

DRAIN_MIN, DRAIN_MAX = 2, 10
"""Seconds of a drain where the balancer counts requests in flight, of which there are none, and where it cannot."""

AFTER = SECOND // 1000
"""A second is counted right after the probes of its beginning, as with the other rules."""

CODES = {Answer.PASS: PASS, Answer.FAIL: FAIL, Answer.TIMEOUT: FAIL, Answer.NONE: UNKNOWN}
LATE = 1000
"""Added to the code of an answer that is a time-out."""


def probe(cadence: Cadence) -> Probe:
    return Probe(
        ProbeKind.HTTP,
        port=8080,
        period=cadence.period * SECOND,
        failure_threshold=cadence.failures,
        timeout=int(TIMEOUT * SECOND),
    )


class IncidentShop(Shop):
    """The workloads of a trace, with its probes."""

    __slots__ = ("trace",)

    trace: Trace

    def desired(self) -> Desired:
        made = Shop.desired(self)
        return replace(made, workloads=tuple(self._probed(workload) for workload in made.workloads))

    def _probed(self, workload: Workload) -> Workload:
        trace = self.trace
        main = replace(
            workload.template.container,
            startup=probe(STARTUP),
            liveness=probe(trace.live),
            readiness=probe(trace.ready),
        )
        template = replace(workload.template, container=main)
        return replace(workload, template=template, drain_min=DRAIN_MIN * SECOND, drain_max=DRAIN_MAX * SECOND)


def shop(trace: Trace, image: str = "v1") -> IncidentShop:
    """The manifests of a trace."""
    if trace.alone:
        names = [f"w{number:02}" for number in range(trace.size)]
        made = IncidentShop(tuple(Spec(name=name, replicas=1, pools=(name,), image=image) for name in names))
    else:
        made = IncidentShop((Spec(replicas=trace.size, image=image),))
    object.__setattr__(made, "trace", trace)
    return made


class IncidentProber(SimProber):
    """Probes keep a phase in their period, as in the probe engine, and time-outs take their time."""

    trace: Trace
    slot: Callable[[str], Slot]
    zero: Callable[[], int]
    asked: dict[tuple[Generation, str], int]

    def _probe(self, key, running, now):
        self.asked = getattr(self, "asked", {})
        period = running.target.probe.period
        if key in self.asked:
            due = self.asked.pop(key)
            self.count(key, running, FAIL, now)
            running.due = max(now, next_due(due, due, period, self._phase(running.target)))
            return
        self.made += 1
        code = self._result(running.target, now)
        if code >= LATE:
            self.asked[key] = now
            running.due = now + running.target.probe.timeout
            return
        self.count(key, running, code, now)
        running.due = next_due(now, now, period, self._phase(running.target))

    def _phase(self, target) -> int:
        """The phase of a target on the steady clock, ns."""
        period = target.probe.period
        for containers in self.outside.nodes.values():
            for container in containers.values():
                if container.id == target.generation.container_id:
                    seconds = self.trace.phase(self.slot(container.name), target.name, period // SECOND)
                    return (self.zero() + int(seconds * SECOND)) % period
        return 0


class Incident(World):
    """The world of one trace. Times in seconds from its beginning, as in the physics."""

    def __init__(self, trace: Trace, score: Score, counted: bool) -> None:
        self.trace, self.score, self.counted = trace, score, counted

        class Prober(IncidentProber):
            pass

        Prober.trace, Prober.slot, Prober.zero = trace, staticmethod(self.slot), staticmethod(lambda: self.base)
        self.prober = Prober
        self.running: dict[str, Generation] = {}
        self.crashing: set[str] = set()
        made = shop(trace)
        super().__init__(made)
        self.good = made.specs[0].revision[:8]
        self.apps = IncidentApps(self)
        self.base = self.clock.now().steady - int(BEFORE * SECOND)
        self.due = self.clock.now().steady + AFTER
        self.synced = -1
        self.checks.append(self.count)

    def seconds(self) -> float:
        return (self.clock.now().steady - self.base) / SECOND

    def slot(self, name: str) -> Slot:
        """The slot of a container."""
        _, workload, revision, ordinal = name.rsplit("-", 3)
        if self.trace.alone:
            return int(workload[1:])
        return int(ordinal) if revision == self.good else ("bad", int(ordinal))

    def sync(self) -> None:
        """Report starts and ends of containers to the physics. Only writes and crashes start and end any."""
        if self.synced == len(self.traffic.writes) and not self.apps.crash_after:
            return
        self.synced = len(self.traffic.writes)
        containers = self.containers()
        for name in [name for name in self.running if name not in containers or not containers[name].up]:
            del self.running[name]
            self.trace.stopped(self.slot(name), self.seconds())
        for name, container in containers.items():
            if container.up and self.running.get(name) != container.generation:
                self.running[name] = container.generation
                self.trace.started(self.slot(name), (container.running_since - self.base) / SECOND)

    def next_event(self) -> int:
        return min(super().next_event(), self.due)

    def happen(self) -> None:
        self.count_requests()
        if self.clock.now().steady >= self.due:
            self.sync()
            hosts = [f"{spec.name}.example.test." for spec in self.shop.specs]
            named = None if self.trace.alone else min(len(self.published(host)) for host in hosts)
            self.score.sample(round(self.seconds()), self.shares(), named)
            self.due += SECOND
        super().happen()

    def shares(self) -> dict[Slot, float]:
        """The weights of all members by slot."""
        pools = self.outside.pools.get(POOLS, {}).values()
        members = [member for pool in pools for member in pool.values()]
        return {self.slot(member.name): float(member.weight) for member in members if member.name and member.weight}

    def count_requests(self) -> None:
        """Files and nginx do not say how many requests are in flight."""
        if not self.counted:
            for pool in self.outside.pools.get(POOLS, {}).values():
                for member in pool.values():
                    member.in_flight = None

    def count(self, action: Action) -> None:
        """Count a stop for health, and a start after a crash."""
        self.count_requests()
        if not self.traffic.writes[-1].effective:
            return
        if isinstance(action, StopContainer):
            step = next((step for step in reversed(self.tape.steps) if step.action == action), None)
            if step is not None and step.cause in URGENT:
                self.score.restart(self.seconds(), self.slot(action.name), step.cause.value)
        elif isinstance(action, StartContainer):
            slot = self.slot(action.name)
            if isinstance(slot, tuple) and action.name in self.crashing:
                self.score.restart(self.seconds(), slot, "", crashed=True)
            self.crashing.add(action.name)

    # --- events -----------------------------------------------------------------------------------------------

    def step_clock(self, value: object) -> None:
        assert isinstance(value, int)
        self.clock.step_wall(value * SECOND)

    def answer_calls(self, value: object) -> None:
        for node in self.nodes:
            if value:
                self.outside.mend_reads(node)
                self.faults[node] = []
            else:
                self.outside.break_reads(node, "no answer")
                self.faults[node] = [Fault.UNREACHABLE] * 100_000

    def deploy(self, value: object) -> None:
        assert isinstance(value, str)
        fresh = shop(self.trace, value)
        if value == "v2":
            revision = fresh.specs[0].revision[:8]
            for number in range(self.trace.size):
                self.apps.crash_after[f"shop-web-{revision}-{number}"] = SECOND
        self.push(fresh)

    def reboot(self, value: object) -> None:
        """All is down for a minute; then the engine, or else the program, starts what ran."""
        now = self.seconds()
        self.reboot_host()
        self.base = self.clock.now().steady - int((now + 60) * SECOND)
        self.synced = -1
        self.sync()
        for second in range(60):
            self.score.sample(now + second, {})
        self.due = self.clock.now().steady + AFTER
        if value:
            for name in sorted(self.containers()):
                self.start_by_hand(name)
        self.synced = -1

    def end_all(self, value: object) -> None:
        """All processes and the program end at once, and nothing runs for a minute: a reboot, as far as a test can make one."""
        now = self.seconds()
        self.kill()
        for node, container in self.placed():
            if container.up:
                self.runtimes[node].exit(container.name)
        self.synced = -1
        self.sync()
        for second in range(60):
            self.score.sample(round(now) + second, {})
        self.clock.advance(60 * SECOND)
        self.due = self.clock.now().steady + AFTER


class IncidentApps(Apps):
    """Applications that answer as the physics says."""

    def __init__(self, world: Incident) -> None:
        super().__init__()
        self.world = world

    def answer(self, name, generation, probe, running_for, steady, asked=None):
        self.world.sync()
        if running_for < 0:
            return FAIL
        # `probe` ends with the name of the probe where an answer is asked for once more
        answer = self.world.trace.ask(self.world.slot(name), probe.rpartition(" ")[2], self.world.seconds())
        return CODES[answer] + (LATE if answer is Answer.TIMEOUT else 0)


def run(trace: Trace, counted: bool = True, world: type[Incident] = Incident) -> tuple[Score, Incident]:
    """One incident, which ends where a law is broken. `counted`: the balancer says how many requests are in flight. The world is closed."""
    score = Score(trace, exit=LAG + (DRAIN_MIN if counted else DRAIN_MAX))
    made = world(trace, score, counted)
    Watchdog(made)
    verbs = {
        "clock": made.step_clock,
        "runtime": made.answer_calls,
        "deploy": made.deploy,
        "reboot": made.reboot,
        "end": made.end_all,
    }
    try:
        made.run(int(-BEFORE * SECOND))
        for event in sorted(trace.events, key=lambda event: event.at):
            made.run(max(0, int((event.at - made.seconds()) * SECOND)))
            verbs[event.verb](event.value)
        made.run(max(0, int((trace.duration - made.seconds()) * SECOND)))
    except AssertionError as error:
        score.law = str(error) or repr(error)
    finally:
        made.close()
    return score, made
