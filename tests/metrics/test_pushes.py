"""Metrics of pushes: the newest one, silent senders, and decisions in which push and probes disagree."""

from dataclasses import replace

from manifests.values.desired import SECOND, Push
from providers.facts import Generation
from reconciler.core.decide import decide
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.metrics.ages import Ages
from reconciler.metrics.meter import Meter
from reconciler.shell.monitor import Tick
from tests.builders import NOW, SEEN, Scene
from tests.metrics.scrapes import Scrape
from tests.sim.manifest import Shop, Spec

SPEC = Spec("web", 3)


class Senders:
    """Three replicas that may push; their probes pass until a test changes that."""

    def __init__(self) -> None:
        self.scene = Scene(SPEC)
        desired = Shop((SPEC,)).desired()
        self.desired = replace(desired, workloads=(replace(desired.workloads[0], push=Push()),))
        self.pushes: dict[Generation, PushFact] = {}
        self.meter = Meter(lambda: None)

    def push(self, number: int, event: PushEvent, age: int = 1) -> None:
        at = SEEN - age * SECOND
        self.pushes[self.scene.facts[number].generation] = PushFact(event, at, at, "boot", 1)

    def tick(self) -> Scrape:
        observed = replace(self.scene.observed(), pushes=dict(self.pushes))
        decision = decide(self.desired, observed, NOW)
        tick = Tick(decision, self.desired, NOW, SEEN, 0, decision.ledger.owned, SEEN, SEEN, SEEN, complete=True)
        self.meter.ticked(tick, Ages().follow(tick))
        return Scrape(self.meter.text())


def test_senders_are_silent_until_they_push_and_when_their_push_is_stale():
    senders = Senders()
    assert senders.tick().get("workload_push_silent", workload="web") == 3
    senders.push(0, PushEvent.READY)
    senders.push(1, PushEvent.READY, age=61)
    scrape = senders.tick()
    assert scrape.get("workload_push_silent", workload="web") == 2
    assert scrape.get("workload_push_newest_timestamp_seconds", workload="web") == NOW.wall / SECOND - 1


def test_a_push_that_overrules_the_probes_is_counted_once():
    senders = Senders()
    senders.push(0, PushEvent.NOT_READY)
    senders.push(1, PushEvent.READY)
    for _ in range(3):
        assert senders.tick().by("overruled_total", "workload", "winner") == {("web", "push"): 1}
    senders.push(0, PushEvent.READY)
    senders.tick()
    senders.push(0, PushEvent.NOT_READY)
    assert senders.tick().by("overruled_total", "winner") == {("push",): 2}


def test_probes_that_overrule_a_push_are_counted_as_the_reverse():
    senders = Senders()
    senders.scene.sick(2, "readiness")
    senders.push(2, PushEvent.READY, age=45)  # the worse of push and probes counts
    assert senders.tick().by("overruled_total", "winner") == {("probe",): 1}


def test_a_workload_that_does_not_push_has_no_such_series():
    senders = Senders()
    senders.desired = Shop((SPEC,)).desired()
    assert b"_push_" not in senders.tick().text
