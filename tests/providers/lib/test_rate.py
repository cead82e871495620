"""The token bucket, on an injected clock."""

from manifests.values.desired import SECOND
from providers.lib.rate import Bucket, Rate


def test_the_rate_limit_follows_the_injected_clock() -> None:
    now = [0]
    bucket = Bucket(Rate(per_second=2, burst=2), lambda: now[0])
    assert [bucket.reserve(0) for _ in range(3)] == [0, 0, None]
    assert bucket.reserve(SECOND) == SECOND // 2
    now[0] = SECOND // 2
    assert bucket.reserve(0) is None
    now[0] = SECOND
    assert bucket.reserve(0) == 0
    now[0] = 0
    assert bucket.reserve(0) is None
