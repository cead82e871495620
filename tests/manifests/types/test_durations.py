"""Durations in manifests: units, refused spellings, and their way back to text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from manifests.types import durations
from manifests.types.durations import MILLISECOND
from manifests.values.desired import SECOND


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("500ms", 500 * MILLISECOND),
        ("30s", 30 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("5m", 300 * SECOND),
        ("7d", 604_800 * SECOND),
        ("0s", 0),
    ],
)
def test_a_duration_is_read_in_nanoseconds(text: str, nanoseconds: int) -> None:
    assert durations.parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "value", ["", "30", "s", "1.5h", "30s1m", "1h 30m", "-5s", "٣s", "1y", 30, 1.5, True, None, ["30s"]]
)
def test_a_bad_duration_is_refused(value: object) -> None:
    with pytest.raises(PydanticCustomError):
        durations.parse_duration(value)


@pytest.mark.parametrize("value", [30, "30"])
def test_the_hint_for_a_duration_without_a_unit_names_one(value: object) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        durations.parse_duration(value)

    assert caught.value.context is not None
    assert "write 30s" in caught.value.context["hint"]


@given(st.integers(0, 10**12))
def test_a_duration_in_milliseconds_survives_format_and_parse(milliseconds: int) -> None:
    assert durations.parse_duration(durations.format_duration(milliseconds * MILLISECOND)) == milliseconds * MILLISECOND
