"""Messages between the two processes, and the histogram of lateness."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.probes.messages import LATE_BOUNDS, Inbox, Stats, encode, late_bucket

values = st.recursive(
    st.none() | st.integers() | st.text(st.characters(codec="utf-8")) | st.binary(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.tuples(values, values), max_size=5), st.integers(1, 40))
def test_messages_arrive_whole_for_any_split_of_the_bytes(messages: list[tuple[object, ...]], size: int) -> None:
    stream = b"".join(encode(message) for message in messages)
    inbox = Inbox()
    got = []
    for at in range(0, len(stream), size):
        inbox.feed(stream[at : at + size])
        while (message := inbox.next()) is not None:
            got.append(message)
    assert got == messages


@pytest.mark.parametrize("damage", [b"\xff\xff\xff\xff", encode((1,)).replace(b"(", b"[")])
def test_a_damaged_stream_is_noticed(damage: bytes) -> None:
    inbox = Inbox()
    inbox.feed(damage)
    with pytest.raises(ValueError, match="damaged"):
        inbox.next()


def stats(*lates: int) -> Stats:
    late = [0] * (len(LATE_BOUNDS) + 1)
    for lateness in lates:
        late[late_bucket(lateness)] += 1
    return Stats(len(lates), 0, 0, 0, 0, 0, 0, max(lates, default=0), tuple(late))


def test_a_quantile_of_lateness_is_the_bound_of_its_bucket() -> None:
    read = stats(*[100_000] * 98, 4_100_000, 9_000_000_000_000)
    assert read.late_quantile(0.5) == 250_000
    assert read.late_quantile(0.99) == 4_250_000
    assert read.late_quantile(1.0) == 9_000_000_000_000
    assert stats().late_quantile(0.99) == 0


def test_a_quantile_since_an_earlier_reading_counts_only_later_probes() -> None:
    before = stats(*[8_000_000] * 100)
    after = stats(*[8_000_000] * 100, 1_000_000)
    assert after.late_quantile(0.99, before) == 1_000_000
