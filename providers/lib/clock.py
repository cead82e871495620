"""The steady clock of providers, for deadlines, ages and rates. Tests pass another one."""

import time


def boottime() -> int:
    """Nanoseconds of the clock that also counts while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
