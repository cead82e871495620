"""Virtual time: a clock that jumps for tests, and the clock of the simulation, which makes everything happen on the way."""

import asyncio
from collections.abc import Callable

from manifests.values.desired import SECOND
from reconciler.core.model.instant import FOREVER, Now

WAITING_TURNS = 60
"""Turns of the event loop in which all that does not wait for the store has ended."""


class VirtualClock:
    """A clock of a host that jumps: a sleeper is at once at its instant. Implements `HostClock`. All times in ns.

    With several sleepers the earliest goes first, so that time never passes another sleeper's instant.
    """

    __slots__ = ("_boot", "_sleepers", "_steady", "_wall", "machine")

    def __init__(
        self, wall: int = 1_800_000_000 * SECOND, steady: int = 1_000 * SECOND, boot: str = "virtual-boot-1"
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._boot = boot
        self.machine = "virtual-machine-1"
        self._sleepers: list[int] = []

    def now(self) -> Now:
        """One reading of all clocks."""
        return Now(self._wall, self._steady, self._boot)

    def advance(self, duration: int) -> None:
        """Let `duration` ns pass on both clocks."""
        if duration < 0:
            raise ValueError(f"virtual clock: cannot advance by {duration} ns; step_wall moves the wall clock back")
        self._wall += duration
        self._steady += duration

    def step_wall(self, step: int) -> None:
        """Set the wall clock forward or back, as an operator or NTP does. The steady clock does not change."""
        self._wall += step

    def reboot(self, boot: str, downtime: int = 60 * SECOND, steady: int = 10 * SECOND) -> None:
        """Reboot the host: another boot id, the steady clock near zero, the wall clock later by `downtime`."""
        self._boot = boot
        self._steady = steady
        self._wall += downtime

    def move(self, boot: str, machine: str, steady: int, step: int = 0) -> None:
        """Be the clocks of another host, whose wall clock differs by `step`. No time passes."""
        self._boot, self.machine, self._steady = boot, machine, steady
        self._wall += step

    def pause(self, duration: int) -> None:
        """Jump by `duration` ns."""
        self.advance(max(0, duration))

    async def sleep_until(self, steady: int, wake: asyncio.Event) -> None:
        """Jump to the instant unless `wake` is set. For FOREVER, wait for `wake` alone."""
        self._sleepers.append(steady)
        try:
            await asyncio.sleep(0)
            if steady >= FOREVER:
                await wake.wait()
            while not wake.is_set() and self._steady < steady:
                if steady == min(self._sleepers):
                    self.advance(steady - self._steady)
                    return
                await asyncio.sleep(0)
        finally:
            self._sleepers.remove(steady)


class SimClock(VirtualClock):
    """A `VirtualClock` whose sleeper walks from event to event and waits at the horizon until the test goes on.

    `base_tasks` is the number of tasks while no call is under way. `next_event` gives the next instant at which something happens
    by itself; `happen` makes it happen. `waiting` says whether tasks wait for something that takes virtual time: writes of the store.
    `idle` says whether no task of the event loop can go on by itself.
    """

    __slots__ = ("_delayed", "base_tasks", "happen", "horizon", "idle", "next_event", "paused", "resumed", "waiting")

    def __init__(self) -> None:
        super().__init__()
        self.horizon = FOREVER
        self.base_tasks = 1
        self.next_event: Callable[[], int] = lambda: FOREVER
        self.happen: Callable[[], None] = lambda: None
        self.waiting: Callable[[], bool] = lambda: False
        self.idle: Callable[[], bool] = lambda: False
        self.paused = asyncio.Event()
        self.resumed = asyncio.Event()
        self._delayed: list[tuple[int, asyncio.Future[None]]] = []

    async def elapse(self, duration: int) -> None:
        """Wait `duration` ns within a call, while everything else goes on."""
        entry = (self.now().steady + duration, asyncio.get_running_loop().create_future())
        self._delayed.append(entry)
        try:
            # The timer counts only where no sleeper lets time pass, as at the end of a process.
            await asyncio.wait({entry[1]}, timeout=duration / SECOND)
        finally:
            self._delayed.remove(entry)

    async def sleep_until(self, steady: int, wake: asyncio.Event) -> None:
        """Let time pass up to the instant, or until `wake` is set, or to the horizon."""
        self._sleepers.append(steady)
        try:
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
                others = min(self._sleepers)  # another one that is due has its turn first
                answer = min((at for at, _ in self._delayed), default=FOREVER)
                upcoming = min(steady, self.horizon, max(now, min(others, answer, self.next_event())))
                self.advance(upcoming - now)
                self.happen()
                for at, answered in self._delayed:
                    if at <= upcoming and not answered.done():
                        answered.set_result(None)
                await self._settle(wake)
        finally:
            self._sleepers.remove(steady)

    async def _settle(self, wake: asyncio.Event) -> None:
        """Calls take no virtual time: wait until all calls under way have ended, or wait for slow nodes, and descriptors were read."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for turn in range(1000):
            if wake.is_set() or len(asyncio.all_tasks()) <= self.base_tasks:
                return
            if self._delayed and self.idle():
                return
            await asyncio.sleep(0)
            if turn >= WAITING_TURNS and self.waiting():
                return
        raise AssertionError("calls do not end")
