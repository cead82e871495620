"""Counts single probe results into a verdict. Pure, so that a table in a test covers every rule about streaks.

The engine's child process calls `step` once per finished probe. Values are small integers here, because that process
must start fast and import little; `VALUES` in `engine.py` turns them into `ProbeValue`.

Rules:

- A verdict needs a number of equal results in a row: `failure` fails, or `success` passes. Until then the earlier verdict
  stands (unknown at the start of a generation).
- An unknown or cannot-run result says nothing about the target. It adds nothing to a streak and does not break one, and the
  verdict stands until its results are too old.
- Once the last pass or fail is older than `valid_for`, verdict and streak lapse: failures before and after a gap are never added
  up.
- Without a verdict the value is that of the result: a probe that cannot run says so at once.
"""

from typing import Final, NamedTuple

PASS: Final = 0
FAIL: Final = 1
UNKNOWN: Final = 2
CANNOT_RUN: Final = 3

RESULTS: Final = 4
"""The number of different results."""


class Streak(NamedTuple):
    """The state of one probe on one generation between two results.

    `value` is the verdict, `last` the latest single result, `run` the result that the streak consists of (UNKNOWN: no streak),
    `length` its length, `since` the instant of the last change of the verdict, `counted_at` that of the last pass or fail (steady
    ns).
    """

    value: int
    last: int
    run: int
    length: int
    since: int
    counted_at: int


def initial(at: int) -> Streak:
    """The streak without any result, with which every generation starts."""
    return Streak(UNKNOWN, UNKNOWN, UNKNOWN, 0, at, at)


def step(streak: Streak, result: int, at: int, success: int, failure: int, valid_for: int) -> Streak:
    """The streak after one more result.

    Args:
        streak: before the result.
        result: PASS, FAIL, UNKNOWN or CANNOT_RUN.
        at: steady instant of the result, ns.
        success: passes in a row that make the verdict PASS.
        failure: fails in a row that make the verdict FAIL.
        valid_for: how long a pass or fail counts, ns.
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
