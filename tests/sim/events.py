"""An event loop whose timers follow virtual time, so that short time-outs do not depend on the load of the machine.

Each simulated process (`sim.world.Life`) has its own.
"""

import asyncio
import selectors
from collections.abc import Callable

from manifests.values.desired import SECOND


class _Jumping(selectors.DefaultSelector):
    """A selector that never waits: it advances the time of timers instead."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped = 0.0
        self.readable: Callable[[], bool] = lambda: True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The ready descriptors. Without any, time jumps to the next timer."""
        if timeout is None:
            raise AssertionError("no event is left in this simulated process")
        if not timeout and not self.readable():
            return []  # a system call here would be a tenth of the time of a simulation
        ready = super().select(0)
        if not ready:
            self.jumped += max(0.0, timeout)
        return ready


class SimEvents(asyncio.SelectorEventLoop):
    """`time()` is the simulated steady clock plus the time that timers skipped while nothing else happened."""

    def __init__(self, steady: Callable[[], int]) -> None:
        self._steady = steady
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def listen(self, readable: Callable[[], bool]) -> None:
        """Ask the kernel for readable descriptors only when `readable` is true: there is one descriptor and no thread."""
        self._jumping.readable = readable

    def idle(self) -> bool:
        """Whether no task can go on at once, besides the one that asks."""
        return not self._ready  # type: ignore[attr-defined]

    def time(self) -> float:
        """Seconds."""
        return self._steady() / SECOND + self._jumping.jumped
