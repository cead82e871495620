"""Shares of the traffic as whole weights, and pools whose revisions have shares."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.traffic.shares import Part, apportion

PARTS = st.lists(st.builds(Part, st.integers(1, 10_000), st.integers(1, 30)), min_size=1, max_size=4)


def test_the_share_of_a_canary_does_not_depend_on_its_number_of_replicas():
    assert apportion([Part(9_000, 3), Part(1_000, 1)], 100) == ((100, 100, 100), (33,))
    assert apportion([Part(5_000, 1), Part(5_000, 4)], 100) == ((100,), (25, 25, 25, 25))
    assert apportion([Part(9_999, 1), Part(1, 1)], 100) == ((100,), (1,))


@given(PARTS, st.integers(1, 256))
def test_every_share_gets_traffic_the_largest_is_full_and_the_sum_is_exact(parts, full):
    weights = apportion(parts, full)
    flat = [weight for part in weights for weight in part]
    assert [len(part) for part in weights] == [part.ready for part in parts]
    assert min(flat) >= 1
    assert max(flat) == full
    largest = max(part.share / part.ready for part in parts)
    for part, equal in zip(parts, weights, strict=True):
        exact = full * part.share / part.ready / largest
        assert all(weight == 1 or abs(weight - exact) < 1 + 1e-6 for weight in equal)
        assert max(equal) - min(equal) <= 1
    if all(full * part.share / part.ready / largest >= 1 for part in parts):
        total = sum(full * part.share / largest for part in parts)
        assert abs(sum(flat) - total) <= 0.5 + 1e-6


@given(PARTS, st.integers(1, 256))
def test_a_larger_share_never_gets_less(parts, full):
    weights = apportion(parts, full)
    by_share = sorted((Fraction(part.share, part.ready), row) for part, row in zip(parts, weights, strict=True))
    for (smaller, less), (larger, more) in pairwise(by_share):
        assert smaller == larger or max(less) <= max(more)  # of equal parts the first gets the remainder
