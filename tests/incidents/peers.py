"""The rules of other tools, on the same physics and in steps of one second, and a rule that knows what a restart would cure.

Each is written from the documentation and, for the instants of back-off, the source:

- docker-autoheal: every AUTOHEAL_INTERVAL (5 s) it restarts each unhealthy container, one after the other, without a limit (README). The
  check is Docker's HEALTHCHECK: unhealthy after `retries` failures, healthy after one pass; failures in the start period do not count.
- kubelet: a failed liveness or startup probe kills the container. It starts again at once, then after 10 s, 20 s, 40 s ... 300 s. The back-off
  is forgotten when a container ends more than twice the maximum (10 min) after its last start ("Pod lifecycle"; `hasExpired` in
  client-go's flowcontrol/backoff.go). Endpoints leave the Service when readiness fails, all of them if need be. A Deployment replaces 25 %
  at once and makes 25 % more.
- Nomad: `check_restart` with limit 3, after a grace; restart: 2 attempts in 30 min, 15 s and up to 25 % more apart, mode `fail`; then
  `reschedule` after 30 s, doubling to 1 h, without a limit. It begins again at 30 s only when the doubled delay exceeds the maximum and the last one was
  longer than that ago (`Allocation.NextDelay`). One is replaced at a time. Consul leaves out whatever is critical after one failure.

Every rule stops a container in 1 s. The engine would take 10 s for a hung one and the kubelet 30 s, so these figures flatter the others.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.incidents.score import Score
from tests.incidents.traces import BEFORE, NEVER, STARTUP, TIMEOUT, Answer, Slot, Trace, dice

STOP = 1.0
PROBES = ("startup", "liveness", "readiness")


@dataclass(slots=True)
class Replica:
    """One replica as a rule sees it: whether it runs, when it starts next (None: never), and what its probes said."""

    slot: Slot
    up: bool = False
    since: float = NEVER
    start_at: float | None = BEFORE
    due: dict[str, float] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)
    """When the time-out of a probe under way is over."""

    failures: dict[str, int] = field(default_factory=dict)
    started: bool = False
    ready: bool = False
    bad: bool = False
    backoff: float = 0.0
    window: float = NEVER
    attempts: int = 0
    rescheduled: float = NEVER

    def begin(self, now: float) -> None:
        """A new process starts."""
        self.up, self.since, self.start_at = True, now, None
        self.started = self.ready = self.bad = False
        self.due, self.late, self.failures = {"startup": now}, {}, dict.fromkeys(PROBES, 0)


class Peer:
    """A rule. Subclasses say when to restart and how long to wait.

    Attributes:
        name: as in the tables.
        balanced: who is not ready gets no requests; otherwise all have the same share for ever.
        unready: failures after which a replica is not ready; None = as its probe says.
    """

    name = ""
    balanced = True
    unready: int | None = None

    def __init__(self, trace: Trace) -> None:
        self.trace, self.score = trace, Score(trace)
        self.replicas = [Replica(slot) for slot in range(trace.size)]
        self.members: set[Slot] = {replica.slot for replica in self.replicas}

    def run(self) -> Score:
        """The whole incident."""
        trace = self.trace
        events = sorted(trace.events)
        happen: dict[str, Callable[[object, float], None]] = {"deploy": self.deploy, "reboot": self.reboot}
        now = BEFORE
        while now < trace.duration:
            while events and events[0].at <= now:
                event = events.pop(0)
                happen.get(event.verb, lambda value, at: None)(event.value, now)
            for replica in list(self.replicas):
                self.live(replica, now)
                if replica.up:
                    self.probe(replica, now)
            if not trace.runtime_silent(now):
                self.act(now)
            self.score.sample(now, self.weights(now))
            now += 1
        return self.score

    # --- what differs -----------------------------------------------------------------------------------------

    def act(self, now: float) -> None:
        """Restart what is to be restarted."""
        for replica in self.replicas:
            if replica.up and replica.bad:
                self.restart(replica, now, now + STOP + self.pause(replica, now))

    def pause(self, replica: Replica, now: float) -> float:
        """How long to wait before the start, after a stop now."""
        return 0.0

    def crashed(self, replica: Replica, now: float) -> None:
        """Its process ended by itself."""
        self.score.restart(now, replica.slot, "", crashed=True)
        replica.start_at = now + self.pause(replica, now)

    def steps(self) -> tuple[int, int]:
        """How many old replicas a rollout stops at once, and how many new ones it starts."""
        return 1, 1

    def late_start(self, replica: Replica, now: float) -> None:
        """The startup probe has failed too often."""
        replica.bad = True

    def ask(self, replica: Replica, probe: str, now: float) -> Answer:
        """Make a probe."""
        return self.trace.ask(replica.slot, probe, now)

    # --- what is common ---------------------------------------------------------------------------------------

    def live(self, replica: Replica, now: float) -> None:
        """Starts that are due, and crashes."""
        due = replica.start_at is not None and now >= replica.start_at
        if due and not replica.up and not self.trace.runtime_silent(now):
            replica.begin(now)
            self.trace.started(replica.slot, now)
        if replica.up and isinstance(replica.slot, tuple) and now - replica.since >= 1:
            replica.up = False
            self.trace.stopped(replica.slot, now)
            self.crashed(replica, now)

    def probe(self, replica: Replica, now: float) -> None:
        """Probes that are due, and time-outs that are over."""
        for name, at in list(replica.late.items()):
            if now >= at:
                del replica.late[name]
                self.count(replica, name, False, now)
        for name, at in list(replica.due.items()):
            if now < at or name not in replica.due:
                continue
            cadence = {"startup": STARTUP, "liveness": self.trace.live, "readiness": self.trace.ready}[name]
            replica.due[name] = following(now, cadence.period, self.trace.phase(replica.slot, name, cadence.period))
            answer = self.ask(replica, name, now)
            if answer is Answer.TIMEOUT:
                replica.late[name] = now + TIMEOUT
            else:
                self.count(replica, name, answer is Answer.PASS, now)

    def count(self, replica: Replica, name: str, passed: bool, now: float) -> None:
        """A probe was answered."""
        failures = replica.failures[name] = 0 if passed else replica.failures[name] + 1
        if name == "startup":
            if passed:
                self.begin_checks(replica, now)
            elif failures >= STARTUP.failures:
                self.late_start(replica, now)
        elif name == "liveness":
            replica.bad = failures >= self.trace.live.failures
        else:
            replica.ready = passed or (replica.ready and failures < (self.unready or self.trace.ready.failures))

    def begin_checks(self, replica: Replica, now: float) -> None:
        """The start is over: liveness and readiness are probed."""
        replica.started = True
        replica.due = {"liveness": now, "readiness": now}

    def restart(self, replica: Replica, now: float, start_at: float | None) -> None:
        """Stop it, and start it later."""
        self.score.restart(now, replica.slot, "liveness")
        replica.up, replica.ready, replica.bad, replica.start_at = False, False, False, start_at
        self.trace.stopped(replica.slot, now)

    def weights(self, now: float) -> dict[Slot, float]:
        """Who gets requests."""
        if not self.balanced:
            return dict.fromkeys(self.members, 1.0)
        return {
            replica.slot: 1.0
            for replica in self.replicas
            if replica.up and replica.ready and replica.slot in self.members
        }

    def reboot(self, engine: object, now: float) -> None:
        """The host reboots in a minute; then everything starts."""
        for replica in self.replicas:
            replica.up, replica.ready, replica.start_at = False, False, now + 60
            self.trace.stopped(replica.slot, now)

    def deploy(self, image: object, now: float) -> None:
        """The bad image is deployed, or taken back."""
        if image == "v2":
            gone, new = self.steps()
            for replica in self.replicas[:gone]:
                replica.up, replica.ready, replica.start_at = False, False, None
                self.trace.stopped(replica.slot, now)
                self.members.discard(replica.slot)
            fresh = [Replica(("bad", number), start_at=now + STOP) for number in range(new)]
            self.replicas += fresh
            self.members |= {replica.slot for replica in fresh}
            return
        for replica in [replica for replica in self.replicas if isinstance(replica.slot, tuple)]:
            self.replicas.remove(replica)
            self.members.discard(replica.slot)
            self.trace.stopped(replica.slot, now)
        for replica in self.replicas:
            if not replica.up:
                replica.start_at = now + STOP
                self.members.add(replica.slot)


def following(now: float, period: int, phase: float) -> float:
    """The next instant of a probe's grid, at least half a period later, as a whole second."""
    earliest = now + period / 2
    return earliest + (int(phase) - earliest) % period


class Autoheal(Peer):
    name = "docker-autoheal"
    balanced = False
    interval = 5.0

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.next_look = 0.0
        self.queue: list[Replica] = []
        self.delay: dict[Slot, float] = {}

    def ask(self, replica: Replica, probe: str, now: float) -> Answer:
        # A HEALTHCHECK runs in the container: the network of a prober does not matter.
        if self.trace.prober_cut(now):
            return Answer.PASS if self.trace.serves(replica.slot, now) else Answer.TIMEOUT
        return super().ask(replica, probe, now)

    def act(self, now: float) -> None:
        if not self.queue and now >= self.next_look:
            self.queue = [replica for replica in self.replicas if replica.up and replica.bad]
            self.next_look = now + self.interval
        if self.queue:
            self.restart(self.queue.pop(0), now, now + STOP)
            self.next_look = now + STOP + self.interval

    def late_start(self, replica: Replica, now: float) -> None:
        """The start period is over: failures count from now on."""
        self.begin_checks(replica, now)

    def steps(self) -> tuple[int, int]:
        return self.trace.size, self.trace.size  # Compose replaces all of them

    def crashed(self, replica: Replica, now: float) -> None:
        """The engine's restart policy: 100 ms, doubling to a minute."""
        self.score.restart(now, replica.slot, "", crashed=True)
        delay = self.delay.get(replica.slot, 0.1)
        self.delay[replica.slot] = min(60.0, delay * 2)
        replica.start_at = now + delay


class Kubelet(Peer):
    name = "kubelet"

    def pause(self, replica: Replica, now: float) -> float:
        if now - replica.since > 600:
            replica.backoff = 0.0
        wait = replica.backoff
        replica.backoff = min(300.0, wait * 2) if wait else 10.0
        return wait

    def steps(self) -> tuple[int, int]:
        gone = self.trace.size // 4
        return gone, gone + -(-self.trace.size // 4)


class Nomad(Peer):
    name = "Nomad"
    unready = 1
    deadline = 600.0

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.deployed = float("inf")

    def late_start(self, replica: Replica, now: float) -> None:
        """The grace is over: checks count from now on."""
        self.begin_checks(replica, now)

    def pause(self, replica: Replica, now: float) -> float:
        if now - replica.window > 1800:
            replica.window, replica.attempts = now, 0
        replica.attempts += 1
        if replica.attempts <= 2:
            return 15.0 * (1 + 0.25 * dice("jitter", self.trace.seed, replica.slot, now))
        replica.window = NEVER  # the next allocation has attempts of its own
        wait = replica.backoff * 2 or 30.0
        if wait > 3600:
            wait = 30.0 if now - replica.rescheduled > 3600 else 3600.0
        replica.backoff, replica.rescheduled = wait, now
        return wait

    def deploy(self, image: object, now: float) -> None:
        if image == "v2":
            self.deployed = now
        super().deploy(image, now)

    def crashed(self, replica: Replica, now: float) -> None:
        self.score.restart(now, replica.slot, "", crashed=True)
        wait = self.pause(replica, now)
        over = wait >= 30 and now + wait > self.deployed + self.deadline
        replica.start_at = None if over else now + wait


class AllKnowing(Peer):
    """Restarts exactly the replicas that a restart cures, all at once, when their probes have noticed, and never empties a pool."""

    name = "all-knowing"

    def act(self, now: float) -> None:
        for replica in self.replicas:
            if replica.up and replica.bad and self.trace.helps(replica.slot, now):
                self.restart(replica, now, now + STOP)

    def weights(self, now: float) -> dict[Slot, float]:
        return super().weights(now) or dict.fromkeys(self.members, 1.0)

    def steps(self) -> tuple[int, int]:
        return 0, 1

    def crashed(self, replica: Replica, now: float) -> None:
        replica.start_at = None


PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Autoheal, Kubelet, Nomad, AllKnowing)}
