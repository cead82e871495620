"""The queue of one channel: tries, limits, what is dropped, and which notices a channel wants."""

from dataclasses import replace

from manifests.values.desired import SECOND
from manifests.values.notices import Channel, Topic, Webhook
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.notices import codec, outbox
from reconciler.core.notices.codec import Remembered
from reconciler.core.notices.model import MINUTE, Notice, Phase
from reconciler.core.notices.outbox import HOUR, QUEUE, Queue

CHANNEL = Channel("ops", Webhook("https://hooks.example.com"))


def at(steady: int) -> Now:
    return Now(1_800_000_000 * SECOND + steady, steady, "line")


def notice(number: int, phase: Phase = Phase.BEGAN, *, incident: str = "", objects: tuple[str, ...] = ()) -> Notice:
    cause = incident or f"health {number}"
    title = f"cause {number}"
    return Notice(
        f"{cause} {phase.value}", cause, phase, Topic.HEALTH, "health", "", "", title, (), 0, (), objects, 1, 1
    )


def test_a_message_leaves_its_queue_only_when_it_was_sent():
    queue = outbox.put(Queue(), [notice(1)], at(0))
    assert outbox.due_at(queue, 20, at(0)) == 0
    queue = outbox.failed(queue, notice(1), "no connection", 0, False, at(0))
    assert [post.tries for post in queue.posts] == [1]
    assert outbox.due_at(queue, 20, at(1)) == 5 * SECOND
    queue = outbox.sent(queue, notice(1), at(5 * SECOND))
    assert queue.posts == ()
    assert outbox.due_at(queue, 20, at(6 * SECOND)) == FOREVER


def test_pauses_double_up_to_a_quarter_of_an_hour():
    queue, now, pauses = outbox.put(Queue(), [notice(1)], at(0)), 0, []
    for _ in range(12):
        queue = outbox.failed(queue, notice(1), "no", 0, False, at(now))
        pauses.append((outbox.due_at(queue, 20, at(now)) - now) // SECOND)
        now = outbox.due_at(queue, 20, at(now))
    assert pauses[:4] == [5, 10, 20, 40]
    assert pauses[-1] == 15 * 60


def test_a_server_that_asks_for_a_pause_gets_it_up_to_an_hour():
    queue = outbox.put(Queue(), [notice(1)], at(0))
    assert outbox.due_at(outbox.failed(queue, notice(1), "429", 90 * SECOND, False, at(0)), 20, at(0)) == 90 * SECOND
    assert outbox.due_at(outbox.failed(queue, notice(1), "429", 900 * HOUR, False, at(0)), 20, at(0)) == HOUR


def test_no_more_messages_in_an_hour_than_allowed():
    queue, now, times = outbox.put(Queue(), [notice(number) for number in range(10)], at(0)), 0, []
    while queue.posts:
        now = max(now + SECOND, outbox.due_at(queue, 3, at(now)))
        queue = outbox.sent(queue, queue.posts[0].notice, at(now))
        times.append(now)
    for first, fourth in zip(times, times[3:], strict=False):
        assert fourth - first >= HOUR


def test_what_is_too_much_is_dropped_and_summarized():
    queue = outbox.put(Queue(), [notice(number) for number in range(QUEUE + 7)], at(0))
    assert (len(queue.posts), queue.dropped) == (QUEUE, 7)
    summary = outbox.next_post(queue, at(1))
    assert summary.phase is Phase.DROPPED
    assert summary.title == "7 notices were dropped, because this channel could not take more"
    assert [title for _, title in summary.lines] == [f"cause {number}" for number in range(5)]
    assert summary.left == 2
    queue = outbox.sent(queue, summary, at(2))
    assert (len(queue.posts), queue.dropped) == (QUEUE, 0)
    assert outbox.next_post(queue, at(3)) == notice(7)


def test_a_message_refused_for_its_content_does_not_stop_the_others():
    queue = outbox.put(Queue(), [notice(1), notice(2)], at(0))
    for _ in range(outbox.REFUSALS):
        queue = outbox.failed(queue, notice(1), "400", 0, True, at(0))
    assert [post.notice for post in queue.posts] == [notice(2)]
    assert queue.dropped == 1


def test_the_end_of_a_cause_takes_the_place_of_what_was_not_sent():
    queue = outbox.put(Queue(), [notice(1), notice(2), notice(1, Phase.OVER)], at(0))
    assert [post.notice.phase for post in queue.posts] == [Phase.BEGAN, Phase.OVER]
    queue = outbox.put(Queue(), [notice(1), notice(1, Phase.MORE)], at(0))
    assert [post.notice.phase for post in queue.posts] == [Phase.BEGAN]


def test_a_message_that_is_being_sent_keeps_its_place():
    queue = outbox.put(Queue(), [notice(1)], at(0))
    queue = outbox.put(queue, [notice(1, Phase.OVER)], at(0), busy=True)
    assert [post.notice.phase for post in queue.posts] == [Phase.BEGAN, Phase.OVER]
    full = outbox.put(queue, [notice(number) for number in range(10, 10 + QUEUE)], at(0), busy=True)
    assert full.posts[0].notice == notice(1)


def test_a_message_of_three_days_is_dropped():
    queue = outbox.put(Queue(), [notice(1)], at(0))
    assert outbox.expired(queue, at(71 * HOUR)) == queue
    assert outbox.expired(queue, at(72 * HOUR)).dropped == 1


def test_a_channel_wants_its_topics_and_objects():
    web = notice(1, objects=("workload/web", "workload/api"))
    assert outbox.wants(CHANNEL, web)
    assert not outbox.wants(replace(CHANNEL, topics=(Topic.SOURCE,)), web)
    assert outbox.wants(replace(CHANNEL, objects=("workload/w*",)), web)
    assert not outbox.wants(replace(CHANNEL, objects=("workload/we", "*/x?")), web)
    assert outbox.wants(replace(CHANNEL, objects=("workload/x",)), notice(1, objects=("source/manifests",)))


def test_a_queue_is_the_same_after_it_was_stored():
    queue = outbox.put(Queue(), [notice(number) for number in range(QUEUE + 3)], at(0))
    queue = outbox.failed(outbox.sent(queue, notice(5), at(MINUTE)), notice(6), "no", 7, False, at(2 * MINUTE))
    remembered = Remembered(queues={"ops": queue})
    assert codec.from_json(codec.to_json(remembered)) == (remembered, [])
