"""The heart-beat of a daemon: once a second it measures how late the event loop is, and reports to systemd. Run by `wire.py`.

It runs on the event loop and looks at the loop's last tick, so a watchdog of systemd restarts a daemon that is stuck in either way:
the event loop does not run, or the loop does not tick.
"""

import asyncio
from collections.abc import Callable

from reconciler.core.status.objects import Condition
from reconciler.metrics.monitoring import Monitoring
from reconciler.shell.monitor import Tick
from reconciler.shell.notify import ServiceManager

PERIOD = 1.0
"""Seconds between two beats. The watchdog's interval (WatchdogSec) may be as short as a few of them."""

IDLE = 30.0
"""Seconds between two looks whether there is anything to do."""


async def beat(
    monitoring: Monitoring, manager: ServiceManager, stopping: Callable[[], bool], period: float = PERIOD
) -> None:
    """Run until cancelled. `stopping` says that the daemon ends after its current actions; `period` is in seconds."""
    loop = asyncio.get_running_loop()
    reported, ready, stops = "", False, False
    while True:
        if monitoring.meter is None and not manager.listens:
            await asyncio.sleep(IDLE)  # nothing to measure and no service manager; metrics may be switched on later
            continue
        due = loop.time() + period
        await asyncio.sleep(period)
        monitoring.lagged(loop.time() - due)
        if not manager.listens:
            continue
        lines: list[str] = []
        if not ready and monitoring.pulse.ready:
            ready = True
            lines.append("READY=1")
        if not stops and stopping():
            stops = True
            lines.append("STOPPING=1")
        problem = monitoring.pulse.problem()
        if not monitoring.pulse.stuck:
            lines.append("WATCHDOG=1")
        text = problem or ("stopping" if stops else status_text(monitoring.last))
        if text != reported:
            reported = text
            lines.append(f"STATUS={text}")
        if lines:
            manager.notify(*lines)


def status_text(tick: Tick | None) -> str:
    """The state in one line, as `systemctl status` shows it."""
    if tick is None or not tick.complete:
        return "making the first decision"
    rows = tick.decision.status.workloads
    ready = sum(row.condition is Condition.READY for row in rows)
    holds = len(tick.decision.holds)
    text = f"{ready} of {len(rows)} workloads are ready, revision {tick.desired.revision[:12]}"
    return text + (f", {holds} hold{'s' if holds > 1 else ''}" if holds else "")
