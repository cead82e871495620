"""From single probe results to a verdict: pure counting, so that every rule about streaks is a table in a test.

The engine's child process calls `step` once per finished probe. Values are small integers here, because that process
must start fast and import little; `VALUES` in `engine.py` turns them into `ProbeValue`.

Rules:

- A verdict is reached by that many equal results in a row: `failure` fails, or `success` passes. Until then the earlier
  verdict stands (unknown at the start of a generation).
- An unknown or cannot-run result says nothing about the target. It adds nothing to a streak and does not break one, and
  the verdict stands until the results that made it are too old.
- Once the last counting result is older than `valid_for`, verdict and streak lapse: old failures never add up with new
  ones over a gap.
- Without a verdict that counts, the value is that of the result: a probe that cannot be run says so at once.
"""

from typing import Final, NamedTuple

PASS: Final = 0
FAIL: Final = 1
UNKNOWN: Final = 2
CANNOT_RUN: Final = 3


class Streak(NamedTuple):
    """What is remembered between two results of one probe on one generation.

    `value` is the verdict, `last` the latest single result, `run` the result that the streak is made of (UNKNOWN: there
    is none), `length` its length, `since` the instant at which the verdict became this, `counted_at` when the last pass
    or fail came (steady ns).
    """

    value: int
    last: int
    run: int
    length: int
    since: int
    counted_at: int


def initial(at: int) -> Streak:
    """Nothing is known yet: every generation starts like this."""
    return Streak(UNKNOWN, UNKNOWN, UNKNOWN, 0, at, at)


def step(streak: Streak, result: int, at: int, success: int, failure: int, valid_for: int) -> Streak:
    """The streak after one more result.

    Args:
        streak: before the result.
        result: PASS, FAIL, UNKNOWN or CANNOT_RUN.
        at: steady instant of the result, ns.
        success: passes in a row that make the verdict PASS.
        failure: fails in a row that make the verdict FAIL.
        valid_for: how long a counting result counts, ns.
    """
    value, _, run, length, since, counted_at = streak
    if length and at - counted_at > valid_for:
        since = counted_at + valid_for if value != UNKNOWN else since
        value, run, length = UNKNOWN, UNKNOWN, 0
    if result > FAIL:
        reached = result if value > FAIL else value
        return Streak(reached, result, run, length, since if reached == value else at, counted_at)
    length = length + 1 if result == run else 1
    kept = UNKNOWN if value > FAIL else value
    reached = result if length >= (failure if result else success) else kept
    return Streak(reached, result, result, length, since if reached == value else at, at)
