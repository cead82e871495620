"""What `wire.py` connects to a run: the pulse of the loop always, and the meter where metrics are on.

Costs nothing that counts while metrics are off: `meter.py` and prometheus_client are imported with the first listener or textfile.
All methods but `called` run on the loop's thread; none blocks or raises.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from manifests.values.desired import Desired, MetricsListener
from reconciler.core.model.ledger_fold import Outcome
from reconciler.core.model.step import Step
from reconciler.metrics import catalogue
from reconciler.metrics.ages import Ages, from_audit
from reconciler.metrics.memory import CountedMemory
from reconciler.metrics.pulse import Pulse
from reconciler.metrics.source import WatchedSource
from reconciler.probes.messages import Stats
from reconciler.shell.clock import Clock
from reconciler.shell.monitor import Tick
from reconciler.shell.parts import Source
from reconciler.shell.store.audit import AuditRow, Event
from reconciler.shell.store.directory import StoreError
from reconciler.shell.store.ports import Memory

if TYPE_CHECKING:
    from reconciler.metrics.meter import Meter

log = logging.getLogger("reconciler")

LABEL = "reconciler_instance"
"""The label of the instance's id in textfiles: several instances on a host write to one node_exporter."""


class Monitoring:
    """Metrics and health of one run.

    Args:
        clock: for ages.
        textfile: a run that ends writes its metrics to a file; then they are on whatever the Instance says.

    Attributes:
        meter: None while metrics are off.
        moved: set when the listener of the Instance changed.
        stats: returns the latest counters of the probe engine.
        waiting: returns how many messages wait in each channel.
        instance: the id of the Instance; empty while it is not known.
        last: the last tick.
        history: returns the audit, oldest row first; may raise StoreError.
    """

    def __init__(self, clock: Clock, *, textfile: bool = False) -> None:
        self.pulse = Pulse(clock)
        self.meter: Meter | None = None
        self.moved = asyncio.Event()
        self.listener: MetricsListener | None = None
        self.stats: Callable[[], Stats | None] = lambda: None
        self.waiting: Callable[[], Mapping[str, int]] = dict
        self.history: Callable[[], Iterable[AuditRow]] = tuple
        self.instance = ""
        self.last: Tick | None = None
        self._clock, self._textfile = clock, textfile
        self._failed = False
        self._began = clock.now().steady
        self._ages = Ages()
        self._source: WatchedSource | None = None

    def follow_clock(self, clock: Clock) -> None:
        """Use the loop's clock from now on: ticks are dated by it."""
        began = clock.now().steady - (self._clock.now().steady - self._began)
        self._clock, self._began, self.pulse = clock, began, Pulse(clock)

    def begin(self, desired: Desired) -> None:
        """Start with these manifests."""
        with self._guarded():
            self._follow(desired)

    def _follow(self, desired: Desired) -> None:
        listener = desired.instance.metrics
        if self.meter is None and not self._failed and (listener is not None or self._textfile):
            self._start({LABEL: desired.instance.id} if self._textfile else {})
        if listener != self.listener:
            self.listener = listener
            self.moved.set()

    def _start(self, labels: dict[str, str]) -> None:
        from reconciler.metrics.meter import Meter  # noqa: PLC0415  (only where metrics are on)

        try:
            self._ages = from_audit(self.history())
        except StoreError:
            self._ages = Ages()  # the ages begin now; the store reports its own failure
        self.meter = Meter(self.stats, labels, self._waiting_now)

    def _waiting_now(self) -> Mapping[str, int]:
        return self.waiting()  # connected after the meter was made

    # --- decorators of the parts of the loop ----------------------------------------------------------------------

    def memory(self, inner: Memory) -> Memory:
        """The memory with its writes counted."""
        return CountedMemory(inner, self)

    def source(self, inner: Source) -> Source:
        """The source with the result of its last read kept."""
        self._source = WatchedSource(inner)
        return self._source

    # --- what happens ---------------------------------------------------------------------------------------------

    def ticked(self, tick: Tick) -> None:
        """A tick is over."""
        self.pulse.ticked(tick)
        self.last = tick
        with self._guarded():
            self._follow(tick.desired)
            if self.meter is not None:
                self._ages = self._ages.follow(tick)
                self.meter.ticked(tick, self._ages, *(() if self._source is None else (self._source.result,)))

    def failed(self, at: int) -> None:
        """A tick ended with an unexpected error."""
        self.pulse.failed(at)

    def stored(self, table: str, rows: int = 0) -> None:
        """A write of a table of the store."""
        with self._guarded():
            if self.meter is not None:
                self.meter.count(catalogue.STORE_WRITES, table)
                if rows:
                    self.meter.count(catalogue.LEDGER_ROWS, by=rows)

    def stepped(self, step: Step, outcome: Outcome) -> None:
        """A step is in the audit."""
        with self._guarded():
            if self.meter is not None:
                self.meter.stepped(step, outcome)

    def happened(self, event: Event) -> None:
        """An event is in the audit."""
        with self._guarded():
            if self.meter is not None:
                self.meter.happened(event)

    def pushed(self, event: str, code: int) -> None:
        """A push was answered."""
        with self._guarded():
            if self.meter is not None:
                self.meter.pushed(event, code)

    def hooked(self, result: str) -> None:
        """A request to the webhook listener was answered."""
        with self._guarded():
            if self.meter is not None:
                self.meter.count(catalogue.WEBHOOKS, result)

    def noticed(self, channel: str, outcome: str) -> None:
        """A message of a channel was sent, failed or was dropped. Called from any thread."""
        with self._guarded():
            meter = self.meter
            if meter is not None:
                meter.count(catalogue.NOTICES, channel, outcome)

    def ran(self, code: int) -> None:
        """The run has ended with this exit code."""
        if self.meter is not None:
            now = self._clock.now()
            self.meter.ran(now.wall, now.steady - self._began, code)

    def lagged(self, seconds: float) -> None:
        """The event loop ran a timer so much too late."""
        if self.meter is not None:
            self.meter.observe(catalogue.LOOP_LAG, max(0.0, seconds))

    def called(self, provider: str, call: str, seconds: float, error: str) -> None:
        """A call of a provider is over; `error` is the name of its error, empty without one. Called from any thread."""
        with self._guarded():
            meter = self.meter
            if meter is not None:
                meter.observe(catalogue.CALL_DURATION, seconds, provider, call)
                if error:
                    meter.count(catalogue.CALL_ERRORS, provider, call, error)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """A fault of metrics must not end a daemon: it switches them off and is reported, and Prometheus alerts on their absence."""
        try:
            yield
        except Exception:
            self.meter, self._failed = None, True
            log.exception("metrics are switched off until the next start, because they failed")
