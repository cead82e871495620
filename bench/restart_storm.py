"""Restarts that a wrong probe causes in its first hour, compared with docker-autoheal and the kubelet.

Run by `make bench`; prints a Markdown table. Nothing is measured: reconciler is the real loop in virtual time over in-memory
providers, the others are models of their rules on the same trace, so the figures are the same on every machine. The rules come
from their documentation: docker-autoheal's README (every AUTOHEAL_INTERVAL of 5 s, restart each unhealthy container, one after
the other) and Kubernetes' "Pod lifecycle" page (kill after failureThreshold failures, restart at once the first time, then after
10 s doubling to 5 min, reset after 10 min of running). Neither considers the other replicas.
"""

from dataclasses import dataclass, replace

from manifests.values.desired import SECOND, Desired
from providers.actions import StartContainer, StopContainer
from providers.facts import ProbeValue
from tests.sim.manifest import Shop, Spec
from tests.sim.world import World

HOUR = 3600
PERIOD, THRESHOLD = 10, 3
STOP, START = 1, 2
"""Seconds that an application takes to stop, and to answer after its start."""


@dataclass
class Storm:
    """The result for one group: the instants of all restarts, and the spans (from, to) in which a replica was down."""

    restarts: list[float]
    down: list[tuple[float, float]]

    def most_down(self) -> int:
        """The largest number of replicas down at once."""
        edges = sorted([(at, 1) for at, _ in self.down] + [(at, -1) for _, at in self.down])
        most = now = 0
        for _, change in edges:
            now += change
            most = max(most, now)
        return most

    def lost(self) -> float:
        """Replica seconds without service."""
        return sum(until - since for since, until in self.down)


def autoheal(replicas: int) -> Storm:
    """docker-autoheal: a loop with a pause of 5 s that restarts every unhealthy container, one after the other."""
    storm = Storm([], [])
    unhealthy = [float(PERIOD * THRESHOLD)] * replicas
    now = 0.0
    while now < HOUR:
        for replica in range(replicas):
            if unhealthy[replica] <= now < HOUR:
                storm.restarts.append(now)
                storm.down.append((now, now + STOP + START))
                now += STOP
                unhealthy[replica] = now + PERIOD * THRESHOLD
        now += 5
    return storm


def kubelet(replicas: int) -> Storm:
    """The kubelet: each container alone, with the back-off of CrashLoopBackOff."""
    storm = Storm([], [])
    for _ in range(replicas):
        started, backoff = 0.0, 0.0
        while (killed := started + PERIOD * THRESHOLD) < HOUR:
            finished = killed + STOP
            storm.restarts.append(killed)
            started = finished + backoff
            storm.down.append((killed, min(started + START, HOUR)))
            backoff = min(300.0, backoff * 2) if backoff else 10.0
    return storm


class WrongProbe(Shop):
    """The usual shop, with the probes of this trace."""

    __slots__ = ()

    def desired(self) -> Desired:
        """Its manifests."""
        made = Shop.desired(self)
        (workload,) = made.workloads
        main = workload.template.container
        assert main.liveness is not None
        assert main.readiness is not None
        liveness = replace(main.liveness, period=PERIOD * SECOND, failure_threshold=THRESHOLD)
        template = replace(workload.template, container=replace(main, liveness=liveness))
        return replace(made, workloads=(replace(workload, template=template),))


def ours(replicas: int) -> Storm:
    """The real loop in a simulated world."""
    world = World(WrongProbe((Spec(replicas=replicas, drain=STOP * SECOND),)))
    world.apps.start_delay = START * SECOND
    storm = Storm([], [])
    try:
        world.run(120 * SECOND)
        begin, count = world.clock.now().steady, len(world.traffic.writes)
        world.apps.lies["*", "liveness"] = ProbeValue.FAIL
        world.run(HOUR * SECOND)
        stopped: dict[str, float] = {}
        for write in world.traffic.writes[count:]:
            at = (write.at - begin) / SECOND
            if isinstance(write.action, StopContainer) and write.effective:
                storm.restarts.append(at)
                stopped[write.action.name] = at
            elif isinstance(write.action, StartContainer) and write.effective:
                since = stopped.pop(write.action.name, at)
                storm.down.append((since, at + STOP + START))
    finally:
        world.close()
    return storm


def main() -> None:
    """Print the report."""
    print("## A wrong liveness probe: restarts in the first hour\n")
    print(
        f"The liveness probe of every replica begins to fail at once (period {PERIOD} s, threshold {THRESHOLD}) and the "
        f"applications are healthy. They take {STOP} s to stop and {START} s to start. Virtual time; the same on every machine.\n"
    )
    print("| replicas | rule | restarts | in the first 5 min | most down at once | replica seconds lost |")
    print("|---|---|---|---|---|---|")
    for replicas in (2, 6, 20):
        for name, storm in (
            ("docker-autoheal", autoheal(replicas)),
            ("kubelet", kubelet(replicas)),
            ("reconciler", ours(replicas)),
        ):
            early = sum(1 for at in storm.restarts if at < 300)
            cells = (replicas, name, len(storm.restarts), early, storm.most_down(), f"{storm.lost():.0f}")
            print("| " + " | ".join(str(cell) for cell in cells) + " |")


if __name__ == "__main__":
    main()
