"""The rules for pushes, without sockets: replays, generations, draining, limits, and silent senders."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND, Push
from providers.facts import Generation
from reconciler.core.health import push_channel
from reconciler.core.health.pushes import (
    BURST,
    EARLY,
    RATE,
    RESTORED_WITHIN,
    SLACK,
    ObservedContainer,
    Record,
    Sent,
    is_full,
    observed,
    receive,
    restore,
    settle,
    take,
    unseen,
)
from reconciler.core.model.instant import FOREVER, Instant
from reconciler.core.model.ledger import Ledger, PushRow
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.push_fact import PushEvent, PushFact
from reconciler.core.replicas.memory import is_empty

T = 1_000 * SECOND
FRESH = 30 * SECOND
FIRST = Generation("c1", 100)
SECOND_LIFE = Generation("c1", 200)
READY, NOT_READY, STARTUP, DRAINING = PushEvent.READY, PushEvent.NOT_READY, PushEvent.STARTUP, PushEvent.DRAINING


def life(generation=FIRST, since=T - 100 * SECOND, looked_at=T, running=True) -> ObservedContainer:
    return ObservedContainer(generation, running, since, looked_at)


def sent(event=READY, boot="b1", seq=1, at=T, inflight=None) -> Sent:
    return Sent(event, boot, seq, inflight, at)


def taken(*messages: Sent, of: ObservedContainer | None = None) -> Record:
    """The record after these messages, all of which must be accepted."""
    record = None
    for message in messages:
        ruling = receive(message, of or life(), record, FRESH)
        assert ruling.status == 200, ruling
        record = ruling.record
    assert record is not None
    return record


def test_the_age_of_the_first_push_counts_from_its_receipt():
    record = taken(sent(STARTUP, at=T + 5))
    assert record.push == PushFact(STARTUP, T + 5, T + 5, "b1", 1)
    assert record.generation == FIRST


def test_a_heartbeat_refreshes_the_age_and_keeps_the_start_of_the_state():
    record = taken(sent(READY, seq=1, at=T), sent(READY, seq=2, at=T + 10 * SECOND))
    assert (record.push.at, record.push.since) == (T + 10 * SECOND, T)


def test_a_replay_is_refused_and_does_not_refresh():
    record = taken(sent(READY, seq=7))
    for seq in (7, 6, 0):
        ruling = receive(sent(READY, seq=seq, at=T + SECOND), life(), record, FRESH)
        assert (ruling.status, ruling.record) == (409, None)


def test_draining_is_final_for_its_generation_and_may_be_repeated():
    record = taken(sent(DRAINING, seq=1))
    for event in (READY, NOT_READY, STARTUP):
        ruling = receive(sent(event, seq=2), life(), record, FRESH)
        assert (ruling.status, ruling.why) == (409, "draining is final for this generation")
    assert receive(sent(DRAINING, seq=2), life(), record, FRESH).status == 200


def test_a_new_generation_is_not_draining():
    record = taken(sent(DRAINING, boot="b1"))
    ruling = receive(sent(READY, "b2", at=T + 60 * SECOND), life(SECOND_LIFE, T + 50 * SECOND), record, FRESH)
    assert ruling.status == 200
    assert ruling.record.generation == SECOND_LIFE


def test_a_late_message_of_an_earlier_generation_stays_refused():
    record = taken(sent(READY, "b1", seq=5))
    after = life(SECOND_LIFE, since=T + 50 * SECOND, looked_at=T + 51 * SECOND)
    assert receive(sent(READY, "b1", seq=6, at=T + 52 * SECOND), after, record, FRESH).status == 410
    record = receive(sent(STARTUP, "b2", at=T + 52 * SECOND), after, record, FRESH).record
    assert receive(sent(READY, "b1", seq=7, at=T + 53 * SECOND), after, record, FRESH).status == 410


def test_an_earlier_boot_in_the_same_generation_is_refused():
    record = taken(sent(READY, "b1", seq=5), sent(STARTUP, "b2", seq=1))
    assert receive(sent(READY, "b1", seq=6), life(), record, FRESH).status == 409


def test_a_push_from_before_the_start_belongs_to_another_generation():
    late = life(since=T + SLACK + 1)
    assert receive(sent(), late, None, FRESH).status == 410
    assert receive(sent(), life(since=T + SLACK), None, FRESH).status == 200


def test_credentials_of_an_earlier_container_are_refused():
    record = taken(sent())._replace(nonce="02")
    assert receive(sent(seq=2), life(), record, FRESH, nonce="01").status == 410
    assert receive(sent(seq=2), life(), record, FRESH, nonce="02").status == 200
    assert receive(sent(seq=2), life(), record, FRESH, nonce="03").record.nonce == "03"


def test_a_push_before_the_look_at_the_restart_moves_to_the_new_generation():
    """The container restarted at T-1; the latest look is older, so the push was first bound to the earlier generation."""
    record = taken(sent(STARTUP, "b2"), of=life(FIRST, looked_at=T - 5 * SECOND))
    assert not record.bound
    moved = settle(record, life(SECOND_LIFE, since=T - SECOND, looked_at=T + SECOND))
    assert (moved.generation, moved.bound) == (SECOND_LIFE, True)


def test_a_push_confirmed_by_a_later_look_does_not_move():
    record = settle(taken(sent(), of=life(looked_at=T - 1)), life(looked_at=T + 1))
    assert record.bound
    assert settle(record, life(SECOND_LIFE, since=T + SECOND, looked_at=T + 2 * SECOND)).generation == FIRST


def test_a_push_does_not_move_to_a_generation_that_began_much_later():
    record = taken(sent(), of=life(looked_at=T - 1))
    assert settle(record, life(SECOND_LIFE, since=T + 10 * SECOND, looked_at=T + 11 * SECOND)).generation == FIRST


def test_only_a_push_that_can_change_a_decision_counts_as_changed():
    first = receive(sent(READY, seq=1), life(), None, FRESH)
    beat = receive(sent(READY, seq=2, at=T + 10 * SECOND), life(), first.record, FRESH)
    late = receive(sent(READY, seq=3, at=T + 40 * SECOND), life(), beat.record, FRESH)
    other = receive(sent(NOT_READY, seq=4, at=T + 41 * SECOND), life(), late.record, FRESH)
    assert [ruling.changed for ruling in (first, beat, late, other)] == [True, False, True, True]


def test_the_end_of_the_last_request_counts_as_changed():
    busy = receive(sent(DRAINING, seq=1, inflight=2), life(), None, FRESH)
    fewer = receive(sent(DRAINING, seq=2, inflight=1), life(), busy.record, FRESH)
    none = receive(sent(DRAINING, seq=3, inflight=0), life(), fewer.record, FRESH)
    assert [ruling.changed for ruling in (fewer, none)] == [False, True]


def test_a_sender_without_a_look_waits_ten_seconds_to_the_nanosecond():
    assert unseen(T, known=False, now=T + EARLY - 1).status == 202
    assert unseen(T, known=False, now=T + EARLY).status == 404
    assert unseen(T, known=True, now=T + EARLY).status == 410


def test_after_a_restart_all_stored_states_but_ready_are_in_force():
    now = T + 20 * SECOND
    records = {
        event.value: restore(taken(sent(event))._replace(generation=Generation(event.value, 1)), now)
        for event in PushEvent
    }
    lives = {event.value: life(Generation(event.value, 1)) for event in PushEvent}
    facts = observed(records, lives)
    assert {fact.event for fact in facts.values()} == {STARTUP, NOT_READY, DRAINING}
    assert all((fact.at, fact.restored) == (now, True) for fact in facts.values())


def test_a_long_downtime_does_not_refresh_old_pushes():
    record = restore(taken(sent(NOT_READY)), T + RESTORED_WITHIN + 1)
    assert record.push.at == T


def test_a_stored_ready_counts_after_a_new_push_and_not_after_a_replay():
    record = restore(taken(sent(READY, seq=9)), T + 5)
    lives = {"c1": life()}
    assert receive(sent(READY, seq=9, at=T + 6), life(), record, FRESH).status == 409
    ruling = receive(sent(READY, seq=10, at=T + 6), life(), record, FRESH)
    assert ruling.changed
    assert observed({"c1": ruling.record}, lives)[FIRST].at == T + 6


def test_pushes_of_an_earlier_generation_are_not_in_force():
    record = taken(sent(DRAINING))
    assert observed({"c1": record}, {"c1": life(SECOND_LIFE)}) == {}
    assert observed({"c1": record}, {}) == {}


# --- silent senders ------------------------------------------------------------------------------------------


def senders(*ages: int) -> list[tuple[Push, PushFact]]:
    return [(Push(), PushFact(READY, T - age * SECOND, T - 900 * SECOND, "b", 1)) for age in ages]


def test_more_than_half_of_the_senders_silent_together_suspends_silence():
    state = push_channel.judge(senders(31, 35, 40, 5), T)
    assert (state.suspect, state.silent, state.total) == (True, 3, 4)
    assert not push_channel.judge(senders(31, 35, 5, 5), T).suspect


def test_senders_silent_one_by_one_do_not_suspend_silence():
    assert not push_channel.judge(senders(31, 120, 210, 5), T).suspect


def test_one_silent_sender_does_not_suspend_silence():
    assert not push_channel.judge(senders(60), T).suspect


def test_a_sender_is_silent_from_the_edge_of_its_window_on():
    assert not push_channel.judge(senders(29, 29), T).suspect
    assert push_channel.judge(senders(29, 29), T).until == T + SECOND
    assert push_channel.judge(senders(30, 30), T).suspect


def test_senders_without_heartbeats_are_not_counted():
    quiet = [(replace(rules, heartbeats=False), fact) for rules, fact in senders(300, 300, 300)]
    assert push_channel.judge([*quiet, *senders(5)], T).total == 1


def test_suspended_silence_ends_by_itself():
    now = T + push_channel.SUSPECT_LIMIT
    state = push_channel.judge(senders(40, 40), now - 10 * SECOND - 1)
    assert state.suspect
    assert state.until == now - 10 * SECOND
    assert not push_channel.judge(senders(40, 40), state.until).suspect


@given(st.lists(st.integers(0, 2_000), max_size=12), st.integers(0, 2_000))
def test_the_channel_state_is_valid_until_its_instant(ages, jump):
    state = push_channel.judge(senders(*ages), T)
    later = T + jump * SECOND
    if later < state.until:
        assert push_channel.judge(senders(*ages), later)._replace(until=0) == state._replace(until=0)
    assert state.until > T
    assert state.until <= FOREVER


# --- limits ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 3 * SECOND), max_size=200))
def test_no_container_exceeds_burst_and_rate_in_any_span(gaps):
    bucket, now, allowed = None, T, []
    for gap in gaps:
        now += gap
        bucket, fine = take(bucket, now)
        if fine:
            allowed.append(now)
    for start in range(len(allowed)):
        for end in range(start, len(allowed)):
            span = allowed[end] - allowed[start]
            assert end - start + 1 <= BURST + RATE * span / SECOND + 1


def test_a_clock_that_steps_back_does_not_refill_the_bucket():
    bucket = None
    for _ in range(BURST):
        bucket, _ = take(bucket, T)
    bucket, allowed = take(bucket, T - 100 * SECOND)
    assert not allowed
    assert not is_full(bucket, T - 200 * SECOND)
    assert is_full(bucket, T + 5 * SECOND)


# --- laws -----------------------------------------------------------------------------------------------------------

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(list(PushEvent)), st.sampled_from(["b1", "b2", "b3"]), st.integers(0, 5), st.integers(0, 20)
    ),
    max_size=30,
)


@given(MESSAGES)
def test_an_accepted_push_is_never_accepted_again(messages):
    record, now, accepted = None, T, set()
    for event, boot, seq, gap in messages:
        now += gap * SECOND
        ruling = receive(Sent(event, boot, seq, None, now), life(), record, FRESH)
        if ruling.record is not None:
            assert (boot, seq) not in accepted
            accepted.add((boot, seq))
            record = ruling.record
        else:
            assert ruling.status in (409, 410)
    for boot, seq in accepted:
        assert receive(Sent(READY, boot, seq, None, now + 1), life(), record, FRESH).status == 409


@given(MESSAGES)
def test_a_draining_generation_drains_for_ever(messages):
    record, draining = None, False
    for event, boot, seq, _ in messages:
        ruling = receive(Sent(event, boot, seq, None, T), life(), record, FRESH)
        record = ruling.record or record
        assert not draining or record.push.event is DRAINING
        draining = draining or (record is not None and record.push.event is DRAINING)


# --- the ledger -----------------------------------------------------------------------------------------------------


def test_a_stored_push_is_a_row_and_does_not_hide_a_lost_ledger():
    moment = Instant(1, 2, "boot")
    row = PushRow(FIRST, "draining", moment, moment, "b1", 7, 3, "0a", (("b0", 100),))
    ledger = Ledger(pushes={"c1": row})
    assert from_rows(to_rows(ledger)) == ledger
    assert is_empty(ledger)


def test_an_older_row_without_a_time_is_read():
    ledger = Ledger(
        pushes={"c1": PushRow(FIRST, "ready", Instant(1, 2, "b"), Instant(1, 2, "b"), "b1", 7, None, "", ())}
    )
    rows = {
        key: json.dumps(json.loads(text)[:-1]) if key[0] == "pushes" else text for key, text in to_rows(ledger).items()
    }
    assert rows != to_rows(ledger)
    assert from_rows(rows) == ledger
