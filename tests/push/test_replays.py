"""No accepted push is accepted again: by a signed time or a challenge, with any clock of the sender and bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND
from providers.facts import Generation
from reconciler.core.health.pushes import (
    BOOTS_KEPT,
    TIME_WITHIN,
    ObservedContainer,
    Record,
    Ruling,
    Sent,
    receive,
    restore,
)
from reconciler.core.model.push_fact import PushEvent

T = 1_000 * SECOND
WALL = 1_800_000_000 * SECOND
FRESH = 30 * SECOND
LIFE = ObservedContainer(Generation("c1", 100), True, T - 100 * SECOND, T)
READY, NOT_READY = PushEvent.READY, PushEvent.NOT_READY


def sent(boot: str, seq: int, after: int, ahead: int = 0, event: PushEvent = READY, proof: bool | None = None) -> Sent:
    """A message sent and received `after` ns after T by a sender whose clock is `ahead` ns ahead."""
    return Sent(event, boot, seq, None, T + after, WALL + after + ahead, WALL + after, proof)


def late(message: Sent, after: int) -> Sent:
    """The same bytes, received again at T + `after`; a challenge in them is used up."""
    proof = None if message.proof is None else False
    return message._replace(received=T + after, wall=WALL + after, proof=proof)


def ruled(message: Sent, record: Record | None, began: int = 0) -> Ruling:
    return receive(message, LIFE, record, FRESH, began=began)


def accepted(*messages: Sent, record: Record | None = None) -> Record:
    for message in messages:
        ruling = ruled(message, record)
        assert ruling.status == 200, ruling
        record = ruling.record
    assert record is not None
    return record


def test_a_captured_message_is_refused_after_any_number_of_boots():
    first = sent("first", 1, 0)
    record = accepted(first)
    for number in range(20 * BOOTS_KEPT):
        record = accepted(sent(f"boot-{number}", 1, 1 + number, event=NOT_READY), record=record)
        assert ruled(late(first, 2 + number), record).status == 409
    assert len(record.earlier) <= BOOTS_KEPT, "the memory is bounded"


def test_without_a_time_a_boot_too_many_is_refused():
    messages = [Sent(READY, f"boot-{number}", 1, None, T + number) for number in range(BOOTS_KEPT + 1)]
    record = accepted(*messages)
    one_more = ruled(Sent(READY, "more", 1, None, T + 100), record)
    assert (one_more.status, one_more.doubtful) == (409, True)
    assert "time is missing" in one_more.why
    assert {ruled(message._replace(received=T + 101), record).status for message in messages} == {409}
    assert ruled(Sent(READY, messages[-1].boot, 2, None, T + 102), record).status == 200, "the running boot goes on"


def test_after_a_time_each_boot_needs_one_and_the_list_no_longer_protects():
    old = Sent(READY, "old", 1, None, T)
    record = accepted(old, sent("new", 1, 1))
    for number in range(2 * BOOTS_KEPT):
        record = accepted(sent(f"boot-{number}", 1, 2 + number), record=record)
    refused = ruled(old._replace(received=T + 100), record)
    assert (refused.status, refused.doubtful) == (409, True)


@pytest.mark.parametrize("gap", [1, 1_000_000])
def test_a_restart_within_the_same_millisecond_pushes_at_once(gap):
    accepted(sent("a", 1, 0), sent("b", 1, gap))


def test_two_boots_at_the_same_instant_need_a_challenge():
    record = accepted(sent("a", 1, 0))
    assert ruled(sent("b", 1, 0), record).doubtful
    assert ruled(sent("b", 1, 0, proof=True), record).status == 200


def test_a_clock_that_steps_back_does_not_disturb_a_running_sender():
    accepted(sent("a", 1, 0), sent("a", 2, SECOND, ahead=-3600 * SECOND))


def test_after_a_clock_stepped_back_the_next_boot_needs_a_challenge():
    record = accepted(sent("a", 1, 0, ahead=100 * SECOND))
    refused = ruled(sent("b", 1, SECOND), record)
    assert (refused.status, refused.doubtful) == (409, True)
    assert "repeat the push with the challenge" in refused.why
    record = accepted(sent("b", 2, 2 * SECOND, proof=True), record=record)
    accepted(sent("b", 3, 3 * SECOND), record=record)


@pytest.mark.parametrize("ahead", [TIME_WITHIN + 1, -TIME_WITHIN - 1, 100 * 365 * 86_400 * SECOND])
def test_a_clock_wrong_by_hours_needs_a_challenge_for_each_boot(ahead):
    assert ruled(sent("a", 1, 0, ahead=ahead), None).doubtful
    proven = sent("a", 2, 1, ahead=ahead, proof=True)
    record = accepted(proven)
    record = accepted(sent("a", 3, 2, ahead=ahead), record=record)
    assert ruled(sent("b", 1, 3, ahead=ahead), record).doubtful
    record = accepted(sent("b", 2, 4, ahead=ahead, proof=True), record=record)
    assert ruled(late(proven, ahead if ahead > 0 else 5), record).status == 409, "also when its time has come"


def test_a_message_held_back_for_longer_than_clocks_differ_is_refused():
    held = sent("b", 1, 0)
    record = accepted(sent("a", 1, -1))
    assert ruled(late(held, TIME_WITHIN), record).status == 200
    assert ruled(late(held, TIME_WITHIN + SECOND), record).doubtful


def test_a_heartbeat_that_was_not_stored_before_a_kill_is_refused_after_it():
    stored = accepted(sent("a", 1, 0))
    lost = sent("a", 2, SECOND)
    accepted(lost, record=stored)
    restored = restore(stored, T + 3 * SECOND, WALL + 3 * SECOND, WALL)
    assert ruled(late(lost, 4 * SECOND), restored).doubtful
    assert ruled(sent("a", 3, 4 * SECOND), restored).status == 200, "the sender needs no challenge"


@pytest.mark.parametrize("ahead", [10 * SECOND, -10 * SECOND])
def test_a_restart_counts_the_difference_of_the_clocks(ahead):
    stored = accepted(sent("a", 1, 0, ahead=ahead))
    lost = sent("a", 2, SECOND, ahead=ahead)
    restored = restore(stored, T + 3 * SECOND, WALL + 3 * SECOND, WALL)
    assert ruled(late(lost, 4 * SECOND), restored).doubtful
    assert ruled(sent("a", 3, 4 * SECOND, ahead=ahead, proof=True), restored).status == 200


def test_after_a_lost_ledger_only_messages_after_the_start_are_accepted():
    captured = sent("a", 5, 0)
    began = WALL + 10 * SECOND
    assert ruled(late(captured, 11 * SECOND), None, began).doubtful
    fresh = ruled(sent("a", 6, 11 * SECOND), None, began)
    assert fresh.status == 200
    assert ruled(late(captured, 12 * SECOND), fresh.record, began).status == 409


STEP = st.tuples(
    st.sampled_from(["a", "b", "c", "d"]),
    st.integers(0, 4),
    st.integers(0, 200),
    st.sampled_from([0, 0, -7200, -200, 200, 7200]),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(STEP, max_size=40))
def test_no_accepted_message_is_ever_accepted_again(steps):
    """With clocks that step, restarts of the daemon that lose what was not stored, and challenges."""
    record = stored = None
    after, captured = 0, []
    for boot, seq, gap, ahead, challenged, restarted in steps:
        after += 1 + gap * SECOND
        if restarted and record is not None:
            stored = record if stored is None or stored.push.event is not record.push.event else stored
            record = restore(stored, T + after, WALL + after, WALL + stored.push.at - T)
            after += 1
        message = sent(boot, seq, after, ahead * SECOND)
        ruling = ruled(message, record)
        if ruling.doubtful and challenged:
            message = message._replace(proof=True)
            ruling = ruled(message, record)
        if ruling.record is not None:
            record = ruling.record
            captured.append(message)
            stored = record  # a kill later in this run may still lose heartbeats: see the test above
        for message in captured:
            for delay in (1, 300 * SECOND, 7200 * SECOND):
                assert ruled(late(message, after + delay), record).status in (409, 410)
