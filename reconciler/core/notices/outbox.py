"""The queue of each channel: which message is sent next and when, what is tried again, and what is dropped. Called by the notifier.

A message leaves its queue only when it was sent. A kill between the two sends it twice: at least once, never lost. A channel that fails is
tried again with longer and longer pauses; a queue that is too long loses its oldest messages, and a summary names their number.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from manifests.values.desired import SECOND
from manifests.values.notices import Channel, Topic
from reconciler.core.model.instant import FOREVER, Instant, Now, due, elapsed, instant
from reconciler.core.notices.model import MINUTE, OBJECTS, Notice, Phase

QUEUE = 100
"""Messages that wait in one channel at most."""

FIRST_RETRY = 5 * SECOND
LONGEST_RETRY = 15 * MINUTE
"""Pauses (ns) between tries: each is twice the one before."""

LONGEST_WAIT = 60 * MINUTE
"""What a server may ask for (ns)."""

REFUSALS = 5
"""Tries after which a message that the other side refuses for its content is dropped, so that it does not stop all others."""

HOUR = 60 * MINUTE
KEEP = 72 * HOUR
"""Age (ns) at which a message that could not be sent is dropped."""

DROPPED_TITLES = 5


class Post(NamedTuple):
    """One message in a queue, since when, and how often it was tried in vain."""

    notice: Notice
    since: Instant
    tries: int = 0


class Queue(NamedTuple):
    """The queue of one channel.

    `sent` are the instants of the messages of the last hour. `last` is when a try failed last, `wait` how long (ns) the next one waits;
    `error` is why. `dropped` counts messages that were not sent, `titles` are the first of them.
    """

    posts: tuple[Post, ...] = ()
    sent: tuple[Instant, ...] = ()
    last: Instant | None = None
    wait: int = 0
    error: str = ""
    dropped: int = 0
    titles: tuple[str, ...] = ()


def wants(channel: Channel, notice: Notice) -> bool:
    """Whether a channel gets a notice."""
    if notice.phase is Phase.TEST:
        return True
    if notice.topic not in channel.topics:
        return False
    if not channel.objects:
        return True
    keys = [key for key in notice.objects if key.partition("/")[0] in OBJECTS]
    return not keys or any(_pattern(pattern).fullmatch(key) for pattern in channel.objects for key in keys)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """A pattern with `*` for any characters and `?` for one."""
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in text)
    return re.compile("".join(parts), re.DOTALL)


def put(queue: Queue, notices: Iterable[Notice], now: Now, *, busy: bool = False) -> Queue:
    """Add notices. One about an incident takes the place of those that still wait, except of the first while it is sent (`busy`)."""
    posts = list(queue.posts)
    for notice in notices:
        kept = posts[:1] if busy else []
        earlier = [post for post in posts[len(kept) :] if notice.incident and post.notice.incident == notice.incident]
        posts = kept + [post for post in posts[len(kept) :] if post not in earlier]
        first = earlier[0] if earlier else None
        if first is not None and first.notice.phase is Phase.BEGAN and notice.phase in {Phase.MORE, Phase.REMINDER}:
            notice = notice._replace(phase=Phase.BEGAN)  # noqa: PLW2901
        posts.append(Post(notice, instant(now)))
    return _bounded(queue._replace(posts=tuple(posts)), busy)


def _bounded(queue: Queue, busy: bool) -> Queue:
    """Drop the oldest messages beyond the limit; the one that is being sent stays."""
    excess = len(queue.posts) - QUEUE
    if excess <= 0:
        return queue
    start = 1 if busy else 0
    return _drop(queue, queue.posts[start : start + excess])


def _drop(queue: Queue, gone: tuple[Post, ...]) -> Queue:
    titles = (*queue.titles, *(post.notice.title for post in gone))[:DROPPED_TITLES]
    posts = tuple(post for post in queue.posts if not any(post is other for other in gone))
    return queue._replace(posts=posts, dropped=queue.dropped + len(gone), titles=titles)


def expired(queue: Queue, now: Now) -> Queue:
    """Without messages that are too old."""
    old = tuple(post for post in queue.posts if elapsed(post.since, now) >= KEEP)
    return _drop(queue, old) if old else queue


def due_at(queue: Queue, per_hour: int, now: Now) -> int:
    """The steady instant at which the first message may be sent; FOREVER when none waits."""
    if not queue.posts:
        return FOREVER
    at = now.steady
    if queue.last is not None:
        at = max(at, due(queue.last, queue.wait, now))
    if len(queue.sent) >= per_hour:
        at = max(at, due(queue.sent[-per_hour], HOUR, now))
    return at


def next_post(queue: Queue, now: Now) -> Notice:
    """What is sent next: the first message, or before it the summary of those that were dropped."""
    first = queue.posts[0].notice
    if not queue.dropped:
        return first
    shown = tuple(("", title) for title in queue.titles)
    were = "1 notice was" if queue.dropped == 1 else f"{queue.dropped} notices were"
    title = f"{were} dropped, because this channel could not take more"
    return Notice(
        f"dropped {queue.dropped} {first.id}",
        "",
        Phase.DROPPED,
        Topic.PROGRAM,
        "dropped",
        "",
        "",
        title,
        shown,
        queue.dropped - len(shown),
        ("run: reconcile status",),
        (),
        first.began_wall,
        now.wall,
    )


def sent(queue: Queue, notice: Notice, now: Now) -> Queue:
    """After a message was sent. A summary leaves the first message where it is."""
    recent = tuple(at for at in queue.sent if elapsed(at, now) < HOUR)
    after = queue._replace(sent=(*recent, instant(now)), last=None, wait=0, error="")
    if notice.phase is Phase.DROPPED:
        return after._replace(dropped=0, titles=())
    return after._replace(posts=tuple(post for post in queue.posts if post.notice.id != notice.id))


def failed(queue: Queue, notice: Notice, error: str, asked: int, refused: bool, now: Now) -> Queue:
    """After a try in vain.

    Args:
        error: why.
        asked: the pause (ns) that the server asked for; 0 = none.
        refused: the other side refuses this message for its content.
    """
    posts = tuple(post._replace(tries=post.tries + 1) if post.notice.id == notice.id else post for post in queue.posts)
    tries = next((post.tries for post in posts if post.notice.id == notice.id), 1)
    pause = min(FIRST_RETRY << min(tries - 1, 30), LONGEST_RETRY)
    wait = max(pause, min(asked, LONGEST_WAIT))
    after = queue._replace(posts=posts, last=instant(now), wait=wait, error=error)
    if refused and tries >= REFUSALS:
        gone = tuple(post for post in after.posts if post.notice.id == notice.id)
        return _drop(after, gone)
    return after
