"""The catalogue, the page made from it, promtool's opinion, and the number of series."""

import subprocess
import sys
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from providers.facts import ProbeValue
from reconciler.core.decide import decide
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.reasons import Reason, Rule
from reconciler.core.model.step import Step
from reconciler.metrics import catalogue
from reconciler.metrics.ages import Ages
from reconciler.metrics.catalogue import METRICS, Kind
from reconciler.metrics.meter import PROBE_KINDS, Meter
from reconciler.metrics.monitoring import Monitoring
from reconciler.metrics.reference import with_table
from reconciler.probes import messages, streak
from reconciler.probes.messages import DURATION_BOUNDS, LATE_BOUNDS, Stats
from reconciler.shell.monitor import Tick
from reconciler.shell.store.audit import Event
from tests.builders import NOW, Scene
from tests.metrics.scrapes import Scrape
from tests.sim.clock import VirtualClock
from tests.sim.manifest import Shop, Spec

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "metrics.md"

STATS = Stats(
    *(0,) * 8,
    (0,) * (len(LATE_BOUNDS) + 1),
    tuple(
        (kind, (5, 1, 0, 0), (1, 2, 3, *(0,) * (len(DURATION_BOUNDS) - 2)), 7_000_000)
        for kind in range(len(PROBE_KINDS))
    ),
)


def tick_of(count: int) -> Tick:
    """The first tick of so many workloads, each with one ready replica, a service with a pool of its own, and a name."""
    specs = tuple(Spec(f"w{number}", 1, pools=(f"w{number}",)) for number in range(count))
    scene, desired = Scene(*specs), Shop(specs).desired()
    decision = decide(desired, scene.observed(), NOW)
    steady = NOW.steady
    return Tick(
        decision, desired, NOW, steady - SECOND, 1, decision.ledger.owned, steady, steady, steady, complete=True
    )


def meter_of(tick: Tick, **waiting: int) -> Meter:
    meter = Meter(lambda: STATS, waiting=lambda: waiting)
    meter.ticked(tick, Ages().follow(tick))
    return meter


def everything_happened(meter: Meter, tick: Tick) -> None:
    """Make every counter and histogram have a series."""
    action = tick.decision.status.roster.groups["workload/w0"].current[0].fact
    step = Step("start x", "workload/w0/0", action, Reason.CRASHED, "")  # type: ignore[arg-type]
    meter.stepped(step, Outcome("start x", OutcomeKind.FAILED))
    for probe in ("startup", "liveness", "readiness"):
        for value in ProbeValue:
            meter.happened(Event(1, "verdict", "workload/w0/0", f"{probe} of x", f"pass -> {value.value}", "", ""))
    meter.happened(Event(1, "exit", "workload/w0/0", "end x", "Crashed", "", ""))
    meter.pushed("ready", 200)
    meter.pushed("a text of a stranger", 401)
    meter.ran(NOW.wall, SECOND, 0)
    for metric in METRICS:
        if metric in (catalogue.PROBE_RESULTS, catalogue.PROBE_DURATION):
            continue
        if metric.kind is Kind.COUNTER:
            meter.count(metric, *("w0" for _ in metric.labels))
        elif metric.kind is Kind.HISTOGRAM:
            meter.observe(metric, 0.01, *("w0" for _ in metric.labels))


def test_the_table_of_the_page_is_what_the_catalogue_says():
    """Run `make docs` when this fails."""
    page = PAGE.read_text()
    assert with_table(page) == page


def test_a_page_without_a_place_for_the_table_is_refused():
    with pytest.raises(ValueError, match="no place"):
        with_table("# Metrics\n")


def test_names_are_unique_and_no_label_names_a_container():
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    labels = {label for metric in METRICS for label in metric.labels}
    assert labels.isdisjoint({"container", "container_id", "id", "address", "name", "message", "instance", "job"})


def test_every_metric_of_the_catalogue_is_exported_and_no_other():
    tick = tick_of(2)
    meter = meter_of(tick, ops=1)
    everything_happened(meter, tick)
    names = {line.split()[2] for line in meter.text().decode().splitlines() if line.startswith("# TYPE ")}
    own = {name for name in names if name.startswith("reconciler_")}
    # These have no sample in this world: nothing pushes, holds or is suspended.
    absent = {catalogue.PUSH_NEWEST, catalogue.PUSH_SILENT, catalogue.HOLD_OLDEST, catalogue.SUSPENSION_OLDEST}
    assert own == {metric.name for metric in METRICS if metric not in absent}


@pytest.mark.server("promtool")
def test_promtool_has_no_complaint():
    tick = tick_of(3)
    meter = meter_of(tick)
    everything_happened(meter, tick)
    for text in (meter.text(), meter.text(ended=True)):
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


FIXED, PER_WORKLOAD = 230 + len(Rule), 13
"""Every rule of holds has a series."""


@pytest.mark.parametrize("count", [10, 100, 1_000])
def test_the_number_of_series_grows_with_the_workloads_only(count):
    series = len(Scrape(meter_of(tick_of(count)).text()).samples)
    assert series == FIXED + PER_WORKLOAD * count
    assert f"{round(series, -2):,} for {count:,}" in PAGE.read_text()


def test_texts_from_outside_make_no_series():
    tick = tick_of(1)
    meter = meter_of(tick)
    before = len(Scrape(meter.text()).samples)
    for number in range(100):
        meter.pushed(f"stranger {number}", 401)
        meter.happened(Event(1, "evidence", f"workload/w0/{number}", f"of {number}", "x", "", ""))
    assert len(Scrape(meter.text()).samples) == before + 1


def test_the_text_of_an_unchanged_metric_is_not_made_again():
    tick = tick_of(3)
    meter = meter_of(tick)
    meter.text()
    kept = dict(meter._texts)
    meter.ticked(tick._replace(ended=tick.ended + SECOND), Ages().follow(tick))
    meter.text()
    made = [metric for metric, (_, text) in meter._texts.items() if kept[metric][1] is not text]
    assert made == [catalogue.LAST_TICK]


def test_kinds_of_probes_have_their_names():
    numbers = [getattr(messages, name) for name in ("TCP", "HTTP", "TLS", "EXEC", "INVALID", "GRPC", "PUBLISHED")]
    assert numbers == list(range(len(PROBE_KINDS)))
    assert (streak.PASS, streak.FAIL, streak.UNKNOWN, streak.CANNOT_RUN, streak.RESULTS) == (0, 1, 2, 3, 4)


def test_prometheus_is_imported_only_where_metrics_are_on():
    code = (
        "import sys, reconciler.wire, reconciler.cli.run, reconciler.cli.status;"
        "from reconciler.metrics.monitoring import Monitoring; from reconciler.shell.clock import SystemClock;"
        "print('prometheus_client' in sys.modules);"
        "import dataclasses; from manifests.values.desired import *;"
        "off = Desired('s', 'r', '/', True, Instance('x'), Guard(), (), (), (), ());"
        "m = Monitoring(SystemClock()); m.begin(off); print('prometheus_client' in sys.modules);"
        "on = dataclasses.replace(off, instance=Instance('x', metrics=MetricsListener(('127.0.0.1', 1))));"
        "m.begin(on); print('prometheus_client' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]


def test_a_fault_of_metrics_does_not_reach_the_loop(caplog):
    tick = tick_of(1)
    monitoring = Monitoring(VirtualClock(), textfile=True)
    monitoring.begin(tick.desired)
    assert monitoring.meter is not None
    monitoring.ticked(tick._replace(owned=None))  # type: ignore[arg-type]
    assert monitoring.meter is None
    assert "switched off" in caplog.text
    monitoring.ticked(tick)
    assert monitoring.meter is None
    assert not monitoring.pulse.problem()
