"""Shares of the traffic as whole weights, and pools whose revisions have some."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.traffic.shares import Part, apportion

PARTS = st.lists(st.builds(Part, st.integers(1, 10_000), st.integers(1, 30)), min_size=1, max_size=4)


def test_a_canarys_share_does_not_depend_on_how_many_replicas_there_are():
    assert apportion([Part(9_000, 3), Part(1_000, 1)], 100) == ((100, 100, 100), (33,))
    assert apportion([Part(5_000, 1), Part(5_000, 4)], 100) == ((100,), (25, 25, 25, 25))
    assert apportion([Part(9_999, 1), Part(1, 1)], 100) == ((100,), (1,))


@given(PARTS, st.integers(1, 256))
def test_what_has_a_share_gets_some_traffic_the_largest_gets_all_and_the_sum_is_true(parts, full):
    found = apportion(parts, full)
    flat = [weight for those in found for weight in those]
    assert [len(one) for one in found] == [one.ready for one in parts]
    assert min(flat) >= 1
    assert max(flat) == full
    largest = max(one.share / one.ready for one in parts)
    for part, those in zip(parts, found, strict=True):
        exact = full * part.share / part.ready / largest
        assert all(weight == 1 or abs(weight - exact) < 1 + 1e-6 for weight in those)
        assert max(those) - min(those) <= 1
    if all(full * one.share / one.ready / largest >= 1 for one in parts):
        total = sum(full * one.share / largest for one in parts)
        assert abs(sum(flat) - total) <= 0.5 + 1e-6


@given(PARTS, st.integers(1, 256))
def test_a_larger_share_never_gets_less(parts, full):
    found = apportion(parts, full)
    by_share = sorted((Fraction(one.share, one.ready), weights) for one, weights in zip(parts, found, strict=True))
    for (smaller, less), (larger, more) in pairwise(by_share):
        assert smaller == larger or max(less) <= max(more)  # of equal ones the first gets what is left over
