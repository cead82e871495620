"""A rate limit for calls to another side. Used by `wrappers/calls.py` for a whole provider and by Route 53 for an account."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from manifests.values.desired import SECOND


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket: `per_second` calls on average, at most `burst` at once."""

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        if self.per_second <= 0 or self.burst < 1:
            raise ValueError(f"a rate needs per_second > 0 and burst >= 1, not {self.per_second} and {self.burst}")


class Bucket:
    """A token bucket on an injected clock. Tokens may be reserved ahead: `reserve` says how long to wait for one."""

    def __init__(self, rate: Rate, steady: Callable[[], int]) -> None:
        self._rate = rate
        self._steady = steady
        self._tokens = float(rate.burst)
        self._at = steady()
        self._lock = threading.Lock()

    def reserve(self, patience: int) -> int | None:
        """Nanoseconds until the caller's token is there; None, and nothing reserved, if that is longer than `patience`."""
        with self._lock:
            now = self._steady()
            # A clock that steps back refills nothing.
            gained = max(0, now - self._at) * self._rate.per_second / SECOND
            self._tokens = min(float(self._rate.burst), self._tokens + gained)
            self._at = max(now, self._at)
            missing = 1.0 - self._tokens
            wait = max(0, int(missing * SECOND / self._rate.per_second))
            if wait > patience:
                return None
            self._tokens -= 1.0
            return wait
