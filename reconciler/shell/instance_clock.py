"""The clock of an instance: elapsed time belongs to the ledger, and goes on over processes, reboots and hosts. Made by `wire.py`.

CLOCK_BOOTTIME has a meaning within one boot of one host only. So the store keeps a record of the instance's clock beside the ledger:
the steady time of the instance, the clocks of the host at that moment, and the *lineage*, a random id of this ledger. The next process
works out from it how much time has passed. The loop and all rules see only the time of the instance; `host_facts.py` converts what
providers and probes say. A lost ledger has a lost clock too: the next one begins with a new lineage.
"""

import asyncio
import re
from typing import NamedTuple
from uuid import uuid4

from manifests.values.desired import SECOND
from reconciler.core.model.instant import FOREVER, Instant, Now
from reconciler.shell.clock import HostClock

FIRST = 2**60
"""The steady time of a new instance (ns): more than any host has been up, so that the boot of each host is after zero. Zero stands for
"not running" and the like in facts."""

LONGEST_GAP = 366 * 86_400 * SECOND
"""The most time (ns) that can pass between two processes by the wall clock: one that was set by mistake must not use up the range."""

LATEST = 2**61
"""From this steady time on (36 years after `FIRST`) no gap counts: it is far below FOREVER whatever wall clocks say."""

SKEW = 300 * SECOND
"""Wall clocks of two hosts, or of one before and after a correction, may differ by this much (ns) and still be right."""

_STORED = re.compile(r'\[(\d{18,19}), (\d+), "([^"\\]+)"\]')
"""A moment in a row of the ledger, as `json.dumps` writes it: no other value has the wall clock (ns) before a number and a text.
Quotes within texts are escaped, so it never matches inside of one."""


class ClockRecord(NamedTuple):
    """The clock of an instance as the store keeps it: its steady time at a moment, and the clocks of the host at that moment.

    `wall` is ns since the epoch, `host_steady` CLOCK_BOOTTIME in ns of the boot `boot`. `machine` identifies the host; empty where it is
    unknown.
    """

    lineage: str
    steady: int
    wall: int
    host_steady: int
    boot: str
    machine: str


def offset_now(record: ClockRecord, host: Now, machine: str) -> int:
    """The steady time of the instance minus that of this host (ns).

    The steady time never goes back, whatever the clocks say. What has passed since the record:

    - In the same boot: exactly what CLOCK_BOOTTIME says.
    - On another host, or after a reboot: the difference of the wall clocks. A clock that is behind adds nothing, so it refills no
      limit; what waits, waits longer by the difference. A clock that is ahead looks the same as a long stop, so its difference
      counts as time that has passed, at most `LONGEST_GAP` at once.
    - After a reboot of the same host whose wall clock is evidently wrong (it is behind the record by more than `SKEW`, as on a host
      without a clock battery): at least the time since the boot. Otherwise the time that a host has been up says nothing about the
      instance: another host, or a copy of this one with the same machine id, may have been up for years.
    """
    if host.lineage == record.boot:
        return max(record.steady - record.host_steady, record.steady - host.steady)
    passed = host.wall - record.wall
    if passed < -SKEW and machine and machine == record.machine:
        passed = host.steady + 1  # the boot was after the record
    most = min(LONGEST_GAP, max(0, LATEST - record.steady))
    return record.steady + min(max(passed, 0), most) - host.steady


class InstanceClock:
    """The clock of one instance in one process. Implements `Clock` and `BlockingClock`.

    Attributes:
        offset: the steady time of the instance minus that of the host (ns); never changes.
    """

    __slots__ = ("_host", "_lineage", "_machine", "offset")

    def __init__(self, host: HostClock, record: ClockRecord | None) -> None:
        """Continue the clock of the record; begin a new one without it."""
        now = host.now()
        self._host, self._machine = host, host.machine
        self._lineage = uuid4().hex if record is None else record.lineage
        self.offset = FIRST - now.steady if record is None else offset_now(record, now, host.machine)

    @property
    def booted(self) -> int:
        """The steady instant at which this host booted."""
        return self.offset

    def now(self) -> Now:
        """One reading of all clocks."""
        wall, steady, _ = self._host.now()
        return Now(wall, steady + self.offset, self._lineage)

    async def sleep_until(self, steady: int, wake: asyncio.Event) -> None:
        """Return at the steady instant (ns), or as soon as `wake` is set. Yields to other tasks at least once."""
        await self._host.sleep_until(steady if steady >= FOREVER else steady - self.offset, wake)

    def pause(self, duration: int) -> None:
        """Block the calling thread for `duration` ns."""
        self._host.pause(duration)

    def record(self) -> ClockRecord:
        """What the store keeps of this clock, for the next process."""
        wall, steady, boot = self._host.now()
        return ClockRecord(self._lineage, steady + self.offset, wall, steady, boot, self._machine)

    def of_instance(self, at: Instant) -> Instant:
        """A moment that was noted by a clock of a host, such as that of an operator's command.

        Of this boot it is exact. Of another one only the difference of the wall clocks is known, and a moment is never later than now.
        """
        if at.lineage == self._lineage or not at.lineage:
            return at
        now, host = self.now(), self._host.now()
        if at.lineage == host.lineage:
            return Instant(at.wall, at.steady + self.offset, self._lineage)
        return Instant(at.wall, now.steady - min(max(0, now.wall - at.wall), LONGEST_GAP), self._lineage)

    def of_instance_text(self, row: str) -> str:
        """A row of the ledger (JSON) with its moments in the time of the instance.

        Earlier versions stored moments with the boot id of the host. The texts of all other rows stay as they are.
        """

        def moved(match: re.Match[str]) -> str:
            wall, steady, lineage = self.of_instance(Instant(int(match[1]), int(match[2]), match[3]))
            return f'[{wall}, {steady}, "{lineage}"]'

        return row if '"]' not in row else _STORED.sub(moved, row)
