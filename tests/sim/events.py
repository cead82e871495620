"""An event loop whose timers follow virtual time: what the program allows itself a few milliseconds for must not depend on how busy this machine is.

Each simulated process (`sim.world.Life`) runs on one of its own.
"""

import asyncio
import selectors
from collections.abc import Callable

from manifests.values.desired import SECOND


class _Jumping(selectors.DefaultSelector):
    """A selector that never waits for time to pass: it lets it pass."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped = 0.0
        self.rung: Callable[[], bool] = lambda: True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now. With nothing ready and a timer to come, the timer's instant has come."""
        if timeout is None:
            raise AssertionError("nothing will ever happen again in this simulated process")
        if not timeout and not self.rung():
            return []  # without asking the kernel, which is a tenth of the time of a simulation
        found = super().select(0)
        if not found:
            self.jumped += max(0.0, timeout)
        return found


class SimEvents(asyncio.SelectorEventLoop):
    """`time()` is the simulated steady clock, plus what its timers waited while nothing else happened."""

    def __init__(self, steady: Callable[[], int]) -> None:
        self._steady = steady
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def listen(self, rung: Callable[[], bool]) -> None:
        """From now on a descriptor can be readable only if `rung` says so: there is no other one, and no thread."""
        self._jumping.rung = rung

    def time(self) -> float:
        """Seconds."""
        return self._steady() / SECOND + self._jumping.jumped
