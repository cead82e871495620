"""An answer of another shape is unreachable, and errors of providers stay what they are."""

from typing import Any

import pytest

from providers.errors import Gone, Unreachable
from providers.lib.shapes import expected_shape

NOTHING: Any = None


@pytest.mark.parametrize(
    "wrong", [lambda: {}["Id"], lambda: NOTHING["Id"], lambda: NOTHING.get("x"), lambda: int("x"), lambda: int(1e999)]
)
def test_an_answer_of_another_shape_is_unreachable(wrong):
    with (
        pytest.raises(Unreachable, match="node-a: the answer of the engine is not as expected"),
        expected_shape("node-a", "the engine"),
    ):
        wrong()


def test_other_errors_pass_through():
    with pytest.raises(Gone), expected_shape("node-a", "the engine"):
        raise Gone("web-0", "container does not exist")
    with pytest.raises(OSError, match="no"), expected_shape("node-a", "the engine"):
        raise OSError("no")
