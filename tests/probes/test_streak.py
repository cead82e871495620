"""Streaks and verdicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.probes.streak import CANNOT_RUN, FAIL, PASS, UNKNOWN, Streak, initial, step

LETTERS = {"P": PASS, "F": FAIL, "U": UNKNOWN, "C": CANNOT_RUN}
PERIOD = 10
VALID = 3 * PERIOD + 1


def run(results: str, success: int = 1, failure: int = 3, valid: int = VALID) -> Streak:
    """One result per period; a dot is a period without a result."""
    streak = initial(0)
    for number, letter in enumerate(results, 1):
        if letter != ".":
            streak = step(streak, LETTERS[letter], number * PERIOD, success, failure, valid)
    return streak


@pytest.mark.parametrize(
    ("results", "value", "length"),
    [
        ("", UNKNOWN, 0),
        ("P", PASS, 1),
        ("F", UNKNOWN, 1),
        ("FF", UNKNOWN, 2),
        ("FFF", FAIL, 3),
        ("FFFF", FAIL, 4),
        ("PF", PASS, 1),
        ("PFF", PASS, 2),
        ("PFFF", FAIL, 3),
        ("PFFPFF", PASS, 2),
        ("FFFP", PASS, 1),
        # unknown and cannot-run results neither count nor break a streak
        ("U", UNKNOWN, 0),
        ("FFU", UNKNOWN, 2),
        ("FUFUF", FAIL, 3),
        ("PUU", PASS, 1),
        ("PCC", PASS, 1),
        # no verdict to keep: the value says that the probe cannot run
        ("C", CANNOT_RUN, 0),
        ("CU", UNKNOWN, 0),
        ("FC", CANNOT_RUN, 1),
        ("FCF", UNKNOWN, 2),
        ("FCFF", FAIL, 3),
        # no verdict is kept for ever
        ("PUUU", PASS, 1),
        ("PUUUU", UNKNOWN, 0),
        ("PCCCC", CANNOT_RUN, 0),
        ("FFFUUUU", UNKNOWN, 0),
        ("FF....F", UNKNOWN, 1),
        ("P....P", PASS, 1),
    ],
)
def test_results_add_up_to_a_verdict(results: str, value: int, length: int) -> None:
    streak = run(results)
    assert (streak.value, streak.length) == (value, length)


@pytest.mark.parametrize(
    ("results", "value"), [("P", UNKNOWN), ("PP", PASS), ("FPP", PASS), ("PFP", UNKNOWN), ("FFFP", FAIL)]
)
def test_passes_need_their_own_threshold(results: str, value: int) -> None:
    assert run(results, success=2).value == value


def test_since_is_the_instant_at_which_the_verdict_changed() -> None:
    assert run("FFFFF").since == 3 * PERIOD
    assert run("PPPFF").since == PERIOD


def test_a_lapsed_verdict_is_unknown_since_its_end() -> None:
    assert run("PUUUU").since == PERIOD + VALID


results_of = st.text(alphabet="PFUC", max_size=40)


@given(results_of, st.integers(1, 3), st.integers(1, 4))
def test_the_verdict_is_the_last_threshold_reached(results: str, success: int, failure: int) -> None:
    counted = "".join(letter for letter in results if letter in "PF")
    failed_at = (counted.rfind("F" * failure) + failure) if "F" * failure in counted else -1
    passed_at = (counted.rfind("P" * success) + success) if "P" * success in counted else -1
    value = run(results, success, failure, valid=10_000).value
    if failed_at == passed_at == -1:
        assert value in (UNKNOWN, CANNOT_RUN)
    else:
        assert value == (FAIL if failed_at > passed_at else PASS)


@given(results_of, st.integers(1, 3), st.integers(1, 4))
def test_unknown_and_cannot_run_results_do_not_change_the_verdict(results: str, success: int, failure: int) -> None:
    streak = initial(0)
    clean = initial(0)
    for number, letter in enumerate(results, 1):
        streak = step(streak, LETTERS[letter], number, success, failure, 10_000)
        if letter in "PF":
            clean = step(clean, LETTERS[letter], number, success, failure, 10_000)
    assert (streak.run, streak.length, streak.counted_at) == (clean.run, clean.length, clean.counted_at)
    if clean.value != UNKNOWN:
        assert streak.value == clean.value
    else:
        assert streak.value in (UNKNOWN, CANNOT_RUN)
