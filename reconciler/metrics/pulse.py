"""Whether the loop works: it ticked recently, and it has decided once. Read by the health endpoints and by the watchdog of systemd.

A loop whose ticks fail is not healthy, but it runs: a restart would lose what it knows, and would not end the cause.
"""

from manifests.values.desired import SECOND
from reconciler.shell.clock import Clock
from reconciler.shell.monitor import Tick

LIMIT = 60 * SECOND
"""Time (ns) without a tick after which the loop counts as stuck: twice its longest sleep."""


class Pulse:
    """The last tick of one run."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = self._tried = self._clock.now().steady
        self._ticked = False
        self.ready = False

    def ticked(self, tick: Tick) -> None:
        """A tick is over."""
        self._last = self._tried = tick.ended
        self._ticked = True
        self.ready = self.ready or tick.complete

    def failed(self, at: int) -> None:
        """A tick failed at this steady instant (ns)."""
        self._tried = at

    @property
    def stuck(self) -> bool:
        """Whether no tick has ended recently, not even with an error."""
        return self._clock.now().steady - self._tried > LIMIT

    def problem(self) -> str:
        """Why the loop does not work; empty when it does. Time before the first tick counts from the start."""
        age = self._clock.now().steady - self._last
        if age <= LIMIT:
            return ""
        since = "the last tick ended" if self._ticked else "there is no tick since the start,"
        return f"{since} {age // SECOND} s ago; the limit is {LIMIT // SECOND} s"

    def not_ready(self) -> str:
        """Why there is no decision to rely on yet; empty once every provider was looked at and a decision was made."""
        return "" if self.ready else "there is no decision yet"
