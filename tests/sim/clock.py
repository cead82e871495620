"""Virtual time that stops where the simulation wants: on the way there every probe is made and everything due happens."""

import asyncio
from collections.abc import Callable

from reconciler.core.model.instant import FOREVER
from reconciler.shell.clock import VirtualClock


class SimClock(VirtualClock):
    """A `VirtualClock` whose sleeper walks from event to event and waits at the horizon until the test goes on.

    `base_tasks` is how many tasks there are while no call is under way. `next_event` gives the next instant at which something happens by itself, `happen` lets it happen.
    """

    __slots__ = ("base_tasks", "happen", "horizon", "next_event", "paused", "resumed")

    def __init__(self) -> None:
        super().__init__()
        self.horizon = FOREVER
        self.base_tasks = 1
        self.next_event: Callable[[], int] = lambda: FOREVER
        self.happen: Callable[[], None] = lambda: None
        self.paused = asyncio.Event()
        self.resumed = asyncio.Event()

    async def sleep_until(self, steady: int, wake: asyncio.Event) -> None:
        """Let time pass up to the instant, or until `wake` is set, or to the horizon."""
        await self._settle(wake)
        while not wake.is_set():
            now = self.now().steady
            if now >= self.horizon:
                self.resumed.clear()
                self.paused.set()
                await self.resumed.wait()
                continue
            if now >= steady:
                return
            upcoming = min(steady, self.horizon, max(now, self.next_event()))
            self.advance(upcoming - now)
            self.happen()
            await self._settle(wake)

    async def _settle(self, wake: asyncio.Event) -> None:
        """Calls take no virtual time: let all that are under way come to an end, and descriptors be read."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for _ in range(1000):
            if wake.is_set() or len(asyncio.all_tasks()) <= self.base_tasks:
                return
            await asyncio.sleep(0)
        raise AssertionError("calls do not come to an end")
