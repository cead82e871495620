"""Rows that are JSON of another shape are set aside, like those that are no JSON."""

import pytest

from reconciler.core.model.instant import Instant
from reconciler.core.model.ledger import Ledger, Suspension
from reconciler.core.model.ledger_codec import read_rows, to_rows
from reconciler.core.model.row_types import matches, row_type

AT = Instant(1, 2, "clock")


def test_a_row_with_a_member_of_another_type_is_set_aside_alone():
    rows = to_rows(
        Ledger(suspensions={"workload/a": Suspension("ann", "x", 0), "workload/b": Suspension("ann", "x", 0)})
    )
    rows["suspensions", "workload/a"] = '["ann", "x", "tomorrow"]'
    ledger, damaged = read_rows(rows)
    assert set(ledger.suspensions) == {"workload/b"}
    assert damaged == {("suspensions", "workload/a"): "ValueError: a member has another type than the ledger declares"}


@pytest.mark.parametrize(
    ("value", "declared", "right"),
    [
        (1, int, True), (True, int, False), ("1", int, False), (True, bool, True), (None, int | None, True), (1.5, int, False),
        ((1, 2), tuple[int, ...], True), ((1, "2"), tuple[int, ...], False), ([1], tuple[int, ...], False), ((), tuple[int, ...], True),
        ((1, "2"), tuple[int, str], True), ((1,), tuple[int, str], False), ({"a": 1}, dict[str, int], True), ({"a": ""}, dict[str, int], False),
        (frozenset({1}), frozenset[int], True), (frozenset({""}), frozenset[int], False), (AT, Instant, True), (AT._replace(wall=""), Instant, False),
        (Suspension("a", "b", 0), Suspension, True), (Suspension("a", None, 0), Suspension, False),
    ],
)  # fmt: skip
def test_a_value_has_the_declared_type_with_everything_in_it(value, declared, right):
    assert matches(value, declared) is right


def test_the_type_of_a_section_is_that_of_its_values():
    assert row_type(Ledger, "suspensions") is Suspension
