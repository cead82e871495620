"""A short search of every surface, always over the same inputs. `make fuzz` searches for minutes at random."""

import pytest

from tests.fuzz.__main__ import SURFACES, report
from tests.fuzz.surface import Found, Surface, no_world, search

EXAMPLES = 60


@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.name)
def test_no_input_of_a_surface_breaks_the_program(surface):
    found = search(surface, examples=EXAMPLES)
    assert found.failures == {}, "\n".join(found.failures.values())
    assert found.inputs >= EXAMPLES / 2
    assert found.outcomes["accepted"] > 0, f"only inputs that are refused: {found.outcomes}"
    assert set(found.outcomes) != {"accepted"}, "only inputs that are accepted"


def test_a_fault_is_found_with_its_place_and_its_smallest_input():
    from hypothesis import strategies as st  # noqa: PLC0415

    def check(value: int) -> str:
        if value > 1000:
            raise KeyError(value)
        return "accepted"

    surface = Surface("x", "", "", st.integers(0, 10**6), lambda: no_world(check))
    found = search(surface, examples=400)
    ((place, text),) = found.failures.items()
    assert place.startswith("KeyError at tests/fuzz/test_surfaces.py:")
    assert "value=1001" in text


def test_growth_of_the_memory_is_a_fault():
    from hypothesis import strategies as st  # noqa: PLC0415

    kept: list[bytearray] = []

    def check(value: int) -> str:
        kept.append(bytearray(b"x") * 2**26)
        return "accepted"

    found = search(Surface("x", "", "", st.integers(0, 10**6), lambda: no_world(check)), examples=12)
    kept.clear()
    assert list(found.failures) == ["memory"]


def test_the_report_names_each_surface():
    found = Found()
    found.outcomes["accepted"] = 1200
    text = report(list(SURFACES), {surface.name: found for surface in SURFACES})
    assert all(f"| {surface.name} |" in text for surface in SURFACES)
    assert text.startswith(f"{1200 * len(SURFACES):,} inputs")
