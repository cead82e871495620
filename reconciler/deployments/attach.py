"""Makes the deployments of a daemon, and hands them the ticks of the loop. Called by `wire.py`."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from manifests.values.desired import SECOND, Desired, Workload
from manifests.values.write_back import Registry
from reconciler.core.image_choices import judged
from reconciler.deployments.choices import Choices, ChoiceStore
from reconciler.deployments.choices import Links as ChoiceLinks
from reconciler.deployments.policies import Client, Policies
from reconciler.deployments.records import RecordFile
from reconciler.deployments.service import Deployments, Links
from reconciler.deployments.writer import Writer
from reconciler.shell.clock import BlockingClock
from reconciler.shell.loop import Loop
from reconciler.shell.monitor import Monitor, Tick
from reconciler.shell.store.audit import Event
from reconciler.tree import Location


class Attached:
    """A monitor around another one, which gets every tick first: deployments follow the manifests in force."""

    def __init__(self, inner: Monitor) -> None:
        self._inner = inner
        self.deployments: Deployments | None = None
        self._desired: Desired | None = None
        self._chosen: tuple[Workload, ...] = ()

    def ticked(self, tick: Tick) -> None:
        """Take a tick."""
        self._inner.ticked(tick)
        if self.deployments is None:
            return
        desired = tick.desired
        if desired is not self._desired:
            self._desired = desired
            self._chosen = tuple(workload for workload in desired.workloads if workload.image_choices)
        rollouts = tick.decision.ledger.rollouts
        self.deployments.in_force(desired, judged(self._chosen, rollouts, tick.now) if self._chosen else ())

    def failed(self, at: int) -> None:
        """A tick ended with an unexpected error."""
        self._inner.failed(at)


def attach(
    loop: Loop, location: Location, state: Path, clock: BlockingClock, note: Callable[[str], None]
) -> Deployments:
    """The deployments of a daemon. Called on the thread of the event loop.

    Args:
        loop: gets events, and reads the source soon after a commit.
        location: of the manifests.
        state: the state directory, whose lock this process holds.
        clock: gives the wall-clock time.
        note: reports what cannot be written or asked; called from this thread only.
    """
    events = asyncio.get_running_loop()

    def later(call: Callable[[], None]) -> None:
        try:
            events.call_soon_threadsafe(call)
        except RuntimeError:
            return  # the daemon ends

    def wall() -> float:
        return clock.now().wall / SECOND

    def report(event: Event) -> None:
        def happened() -> None:
            loop.reporting.happened(event)
            loop.wake.set("a deployment")

        later(happened)

    noted: set[str] = set()

    def said(text: str) -> None:
        if text not in noted:  # a token is looked at with each request
            noted.add(text)
            later(lambda: note(text))

    def connect(registry: Registry) -> Client:
        # Imported here: httpx costs start-up time, and few instances ask a registry.
        from reconciler.registry.client import RegistryClient  # noqa: PLC0415

        return RegistryClient(registry, time.monotonic_ns, wall)

    writer = Writer(location.path, location.instance_file, location.state, location.environment, wall)
    links = Links(report, lambda reason: later(lambda: loop.hurry(reason)), said)
    policies = Policies(connect, time.monotonic, lambda text: later(lambda: note(text)))
    choices = Choices(ChoiceStore(state), policies, ChoiceLinks(*links), wall)
    return Deployments(writer.write, RecordFile(state, note), links, wall, policies, choices)
