"""The state of notices as a JSON value, and back. Called by the store of notices.

Rows that cannot be read are left out, and the reader says so: a notice may then be sent a second time, but none is lost that is still true.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from manifests.values.notices import Topic
from reconciler.core.model.instant import Instant, read_instant
from reconciler.core.notices.commits import Row
from reconciler.core.notices.incidents import State
from reconciler.core.notices.model import Closed, Incident, Member, Notice, Phase
from reconciler.core.notices.outbox import Post, Queue

T = TypeVar("T")

VERSION = 1


class Remembered(NamedTuple):
    """Everything that notices remember: incidents, a queue for each channel, and the statuses of commits."""

    state: State = State()
    queues: Mapping[str, Queue] = {}
    commits: tuple[Row, ...] = ()


def to_json(remembered: Remembered) -> dict[str, Any]:
    """A value that JSON can write. Tuples become lists."""
    state = remembered.state
    return {
        "version": VERSION,
        "applied": state.applied,
        "open": [
            {
                **incident._asdict(),
                "named": sorted(incident.named),
                "members": {name: list(member) for name, member in incident.members.items()},
                "reminded": dict(incident.reminded),
            }
            for incident in state.open
        ],
        "closed": [{**row._asdict(), "objects": sorted(row.objects)} for row in state.closed],
        "queues": {
            name: {
                **queue._asdict(),
                "posts": [[post.notice._asdict(), post.since, post.tries] for post in queue.posts],
            }
            for name, queue in remembered.queues.items()
        },
        "commits": [row._asdict() for row in remembered.commits],
    }


def from_json(raw: Any) -> tuple[Remembered, list[str]]:
    """The value of `to_json`, and why parts of it could not be read."""
    problems: list[str] = []
    if not isinstance(raw, Mapping) or raw.get("version") != VERSION:
        return Remembered(), ["it is of another version"]
    open_ = _each(raw.get("open"), _incident, problems)
    closed = _each(raw.get("closed"), _closed, problems)
    commits = _each(raw.get("commits"), _row, problems)
    queues: dict[str, Queue] = {}
    stored = raw.get("queues")
    for name, queue in stored.items() if isinstance(stored, Mapping) else ():
        queues |= {str(name): made for made in _each([queue], _queue, problems)}
    applied = raw.get("applied")
    state = State(tuple(open_), tuple(closed), applied if isinstance(applied, str) else "")
    return Remembered(state, queues, tuple(commits)), problems


def _each(raw: Any, read: Callable[[Any], T], problems: list[str]) -> list[T]:
    made: list[T] = []
    for item in raw if isinstance(raw, list) else ():
        try:
            made.append(read(item))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problems.append(f"{type(error).__name__}: {error}")
    return made


def _instant(raw: Any) -> Instant:
    at = read_instant(raw)
    if at is None:
        raise TypeError("an instant is missing")
    return at


def _incident(raw: Any) -> Incident:
    members = {
        str(name): Member(str(member[0]), str(member[1]), bool(member[2]), read_instant(member[3]))
        for name, member in raw["members"].items()
    }
    if not members:
        raise ValueError("an incident has no members")
    return Incident(
        str(raw["id"]),
        str(raw["kind"]),
        Topic(raw["topic"]),
        str(raw["revision"]),
        _instant(raw["began"]),
        _instant(raw["joined"]),
        members,
        int(raw["patience"]),
        read_instant(raw["reported"]),
        frozenset(map(str, raw["named"])),
        {str(name): _instant(at) for name, at in raw["reminded"].items()},
        int(raw["times"]),
    )


def _closed(raw: Any) -> Closed:
    objects = frozenset(map(str, raw["objects"]))
    return Closed(str(raw["kind"]), str(raw["revision"]), objects, _instant(raw["at"]), int(raw["times"]))


def _row(raw: Any) -> Row:
    return Row(
        str(raw["commit"]),
        str(raw["state"]),
        str(raw["text"]),
        _instant(raw["at"]),
        bool(raw["sent"]),
        int(raw["tries"]),
        read_instant(raw["last"]),
        int(raw["wait"]),
    )


def _queue(raw: Any) -> Queue:
    posts = tuple(Post(_notice(notice), _instant(since), int(tries)) for notice, since, tries in raw["posts"])
    return Queue(
        posts,
        tuple(map(_instant, raw["sent"])),
        read_instant(raw["last"]),
        int(raw["wait"]),
        str(raw["error"]),
        int(raw["dropped"]),
        tuple(map(str, raw["titles"])),
    )


def _notice(raw: Any) -> Notice:
    return Notice(
        str(raw["id"]),
        str(raw["incident"]),
        Phase(raw["phase"]),
        Topic(raw["topic"]),
        str(raw["kind"]),
        str(raw["revision"]),
        str(raw["commit"]),
        str(raw["title"]),
        tuple((str(name), str(message)) for name, message in raw["lines"]),
        int(raw["left"]),
        tuple(map(str, raw["next_steps"])),
        tuple(map(str, raw["objects"])),
        int(raw["began_wall"]),
        int(raw["at_wall"]),
    )
