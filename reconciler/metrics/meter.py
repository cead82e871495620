"""The meter: counts what happens, keeps the last tick, and makes the text that a scrape gets. Imported only where metrics are on.

Counters and histograms are prometheus_client's, in a registry of its own, and may be changed from any thread. Gauges are not kept at
all: they are read from the last tick, an immutable value, when a scrape asks. So a tick costs the loop a few microseconds, a scrape
runs on a thread of its own, and neither waits for the other. The text of a metric whose samples did not change is not made again.
"""

import platform
import threading
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector

from manifests.values.desired import SECOND
from providers.facts import Generation, Probes, ProbeValue
from reconciler.core.model.ledger_fold import Outcome
from reconciler.core.model.push_fact import PushEvent
from reconciler.core.model.step import Step
from reconciler.core.status.objects import replicas_of
from reconciler.metrics import catalogue, restarts, state
from reconciler.metrics.ages import Ages
from reconciler.metrics.catalogue import METRICS, Kind, Metric
from reconciler.metrics.restarts import workload_of
from reconciler.metrics.state import PROBES, Samples, Source
from reconciler.probes.messages import Stats
from reconciler.shell.monitor import Tick
from reconciler.shell.store.audit import Event
from reconciler.version import version

PROBE_KINDS = ("tcp", "http", "https", "exec", "invalid", "grpc", "published")
"""The names of the kinds in `probes/messages.py`, in their order."""

_RESULTS = ("pass", "fail", "unknown", "cannot-run")
_EVENTS = frozenset(event.value for event in PushEvent)
NO_SOURCE = Source()
"""A run without a source has the manifests that it began with."""

_STAND_ALONE = {catalogue.PROBE_RESULTS, catalogue.PROBE_DURATION}
"""Metrics whose counts another process keeps."""


class Meter:
    """The metrics of one run.

    Args:
        stats: the latest counters of the probe engine; None before the first ones.
        labels: added to every sample, for files that several instances on a host write.
        waiting: how many messages wait in each channel.
    """

    def __init__(
        self,
        stats: Callable[[], Stats | None],
        labels: Mapping[str, str] | None = None,
        waiting: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._stats, self._constant, self._waiting = stats, dict(labels or {}), waiting
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._kept = {metric: _made(metric, self._registry) for metric in METRICS if _is_kept(metric)}
        self._by_workload: dict[Metric, set[tuple[str, ...]]] = {
            metric: set() for metric in self._kept if metric.labels[:1] == ("workload",)
        }
        self._last: tuple[Tick, Ages, Source] | None = None
        self._read: tuple[tuple[Tick, Ages, Source], state.Gauges] | None = None
        self._before: Mapping[Generation, Probes] = {}
        self._winners: dict[Generation, str] = {}
        self._steps: Samples = {}
        self._revision = ""
        self._making = threading.Lock()
        self._texts: dict[Metric, tuple[Samples, bytes]] = {}
        for actor in restarts.ACTORS:
            self.count(catalogue.RESTARTS_BY_ACTOR, actor, by=0)
        self._run: dict[Metric, Samples] = {catalogue.BUILD: {(version(), platform.python_version()): 1.0}}

    # --- what happens ---------------------------------------------------------------------------------------------

    def ticked(self, tick: Tick, ages: Ages, source: Source = NO_SOURCE) -> None:
        """A tick is over. Called on the loop's thread."""
        self._last = (tick, ages, source)
        self.observe(catalogue.TICK_DURATION, (tick.ended - tick.began) / SECOND)
        self.observe(catalogue.DECIDE_DURATION, tick.deciding / SECOND)
        for restart in restarts.observed(tick):
            self.restarted(restart)
        self._latencies(tick)
        self._overruled(tick)
        if tick.desired.revision != self._revision:
            self._revision = tick.desired.revision
            self._forget({workload.name for workload in tick.desired.workloads})

    def restarted(self, restart: restarts.Restart) -> None:
        """Count restarts."""
        self.count(catalogue.RESTARTS, restart.workload, restart.cause, restart.actor, by=restart.times)
        self.count(catalogue.RESTARTS_BY_ACTOR, restart.actor, by=restart.times)

    def stepped(self, step: Step, outcome: Outcome) -> None:
        """A step is in the audit."""
        labels = (step.id.partition(" ")[0], outcome.kind.value)
        self.count(catalogue.STEPS, *labels)
        self._steps[labels] = self._steps.get(labels, 0) + 1
        if (restart := restarts.of_step(step, outcome)) is not None:
            self.restarted(restart)

    def happened(self, event: Event) -> None:
        """An event is in the audit."""
        workload = workload_of(event.object)
        if event.kind == "verdict":
            probe, verdict = event.step.partition(" ")[0], event.cause.rpartition(" ")[2]
            self.count(catalogue.VERDICT_CHANGES, workload, probe, verdict)
        elif event.kind == "exit":
            self.count(catalogue.EXITS, workload, event.cause)

    def pushed(self, event: str, code: int) -> None:
        """A push was answered. Texts of a sender that name no event count as none."""
        self.count(catalogue.PUSHES, event if event in _EVENTS else "", str(code))

    def ran(self, wall: int, took: int, code: int) -> None:
        """A run has ended: when (wall-clock ns), how long it took (ns) and with which exit code."""
        self._run[catalogue.RUN_LAST] = {(): wall / SECOND}
        self._run[catalogue.RUN_DURATION] = {(): took / SECOND}
        self._run[catalogue.RUN_EXIT] = {(): float(code)}
        self._run[catalogue.RUN_STEPS] = self._steps

    def count(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """Add to a counter."""
        kept = self._kept[metric]
        assert isinstance(kept, Counter)  # noqa: S101  (the catalogue says so)
        if metric in self._by_workload:
            self._by_workload[metric].add(labels)
        (kept.labels(*labels) if labels else kept).inc(by)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        kept = self._kept[metric]
        assert isinstance(kept, Histogram)  # noqa: S101
        (kept.labels(*labels) if labels else kept).observe(value)

    def _latencies(self, tick: Tick) -> None:
        """Measure from each verdict that this decision is the first to see to the calls on its container, if it has any."""
        before, self._before = self._before, tick.decision.status.observed.probes
        steps = tick.decision.steps
        if not steps:
            return
        fresh: dict[Generation, int] = {}
        for generation, probes in self._before.items():
            earlier = before.get(generation)
            if earlier is probes or earlier is None:
                continue
            for name in PROBES:
                fact, old = getattr(probes, name), getattr(earlier, name)
                if fact is not None and fact.value is not (ProbeValue.UNKNOWN if old is None else old.value):
                    fresh[generation] = max(fact.since, fresh.get(generation, 0))
        if not fresh:
            return
        acted_on = {getattr(step.action, "name", "") for step in steps}
        for generation, (_, fact) in replicas_of(tick.decision.status).items():
            if generation in fresh and fact.name in acted_on:
                self.observe(catalogue.LATENCY, max(0, tick.commanded - fresh[generation]) / SECOND)

    def _overruled(self, tick: Tick) -> None:
        """Count replicas for which a push began to overrule the probes, or the probes a push."""
        pushes = tick.decision.status.observed.pushes
        if not pushes and not self._winners:
            return
        winners: dict[Generation, str] = {}
        for name, _, members in state.replicas(tick):
            for belief in members:
                push, claim = pushes.get(belief.fact.generation), belief.claim
                if push is None or claim is None:
                    continue
                pushed = ProbeValue.PASS if push.event is PushEvent.READY else ProbeValue.FAIL
                if ProbeValue.UNKNOWN in (belief.ready, claim.observer) or pushed is claim.observer:
                    continue
                winner = winners[belief.fact.generation] = "push" if belief.ready is pushed else "probe"
                if self._winners.get(belief.fact.generation) != winner:
                    self.count(catalogue.OVERRULED, name, winner)
        self._winners = winners

    def _forget(self, workloads: set[str]) -> None:
        """Drop the series of workloads that are not declared any more."""
        for metric, series in self._by_workload.items():
            for labels in [labels for labels in series if labels[0] and labels[0] not in workloads]:
                series.discard(labels)
                self._kept[metric].remove(*labels)

    # --- the text -------------------------------------------------------------------------------------------------

    def text(self, *, ended: bool = False) -> bytes:
        """All metrics in Prometheus' text format. May be called from any thread; one call at a time works.

        `ended`: only gauges, for a run that is over. Its counters would begin at 0 in every run, and it ticks no more.
        """
        with self._making:
            gauges: dict[Metric, Samples] = dict(self._run)
            last = self._last
            if last is not None:
                if self._read is None or self._read[0] is not last:
                    self._read = (last, state.gauges(*last))
                gauges.update(self._read[1])
            gauges[catalogue.NOTICES_WAITING] = {(name,): float(count) for name, count in self._waiting().items()}
            if ended:
                gauges.pop(catalogue.LAST_TICK, None)
            parts = [self._text_of(metric, samples) for metric, samples in gauges.items() if samples]
            if ended:
                return b"".join(parts)
            self._texts = {metric: text for metric, text in self._texts.items() if metric in gauges}
            stats = self._stats()
            parts.append(self._format([*self._registry.collect(), *(_of_probes(stats) if stats is not None else ())]))
            return b"".join(parts)

    def _text_of(self, metric: Metric, samples: Samples) -> bytes:
        kept = self._texts.get(metric)
        if kept is not None and kept[0] == samples:
            return kept[1]
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in samples.items():
            family.add_metric(labels, value)
        text = self._format([family])
        self._texts[metric] = (samples, text)
        return text

    def _format(self, families: Iterable[Family]) -> bytes:
        """The text of these families, without their `_created` samples, which only double the number of series."""
        chosen = []
        for family in families:
            samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            if self._constant:
                samples = [sample._replace(labels={**self._constant, **sample.labels}) for sample in samples]
            if samples:
                family.samples = samples
                chosen.append(family)
        return generate_latest(_Families(chosen))


class _Families:
    """What `generate_latest` wants of a registry."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        """The families themselves."""
        return self._families


def _is_kept(metric: Metric) -> bool:
    return metric.kind is not Kind.GAUGE and metric not in _STAND_ALONE


def _made(metric: Metric, registry: CollectorRegistry) -> MetricWrapperBase:
    if metric.kind is Kind.COUNTER:
        return Counter(metric.name, metric.help, metric.labels, registry=registry)
    return Histogram(metric.name, metric.help, metric.labels, registry=registry, buckets=metric.buckets)


def _of_probes(stats: Stats) -> Iterable[Family]:
    """The counts of the probe engine, by the kinds that it has probed."""
    results = CounterMetricFamily(
        catalogue.PROBE_RESULTS.name, catalogue.PROBE_RESULTS.help, labels=catalogue.PROBE_RESULTS.labels
    )
    durations = HistogramMetricFamily(
        catalogue.PROBE_DURATION.name, catalogue.PROBE_DURATION.help, labels=catalogue.PROBE_DURATION.labels
    )
    for kind, counts, buckets, total in stats.kinds:
        name = PROBE_KINDS[kind]
        for result, count in zip(_RESULTS, counts, strict=True):
            results.add_metric((name, result), count)
        up_to, rows = 0, []
        for bound, count in zip((*catalogue.PROBE_SECONDS, float("inf")), buckets, strict=True):
            up_to += count
            rows.append(("+Inf" if bound == float("inf") else repr(bound), up_to))
        durations.add_metric((name,), buckets=rows, sum_value=total / SECOND)
    return (results, durations)
