"""The values of notices: symptoms of one decision, incidents that gather them, and the notices about incidents."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from manifests.values.desired import SECOND
from manifests.values.notices import Topic
from reconciler.core.model.instant import Instant

MINUTE = 60 * SECOND

OBJECTS = frozenset(
    {
        "workload",
        "service",
        "dnspolicy",
        "record",
        "recordlist",
        "healthcheck",
        "container",
        "node",
        "provider",
        "endpoint",
    }
)
"""The kinds of keys that a channel's `objects` choose from. What concerns none of them always counts."""

LINES = 50
"""Objects that a notice names with their own line; the rest is a number."""


class Symptom(NamedTuple):
    """One object, and what is wrong with it or waits.

    Symptoms of the same `kind` and `revision` that begin together have one cause. `revision` is set where the cause is one revision of the
    manifests. `operator` says that only an operator ends it. `patience` is how long (ns) it lasts before it counts.
    """

    kind: str
    topic: Topic
    object: str
    message: str
    next_step: str = ""
    operator: bool = False
    revision: str = ""
    patience: int = MINUTE


class Member(NamedTuple):
    """One object of an incident: its last message, and since when it has no symptom any more."""

    message: str
    next_step: str
    operator: bool
    gone: Instant | None = None


class Incident(NamedTuple):
    """Symptoms of one cause.

    `began` is the first of them, `joined` the latest. `reported` is when a notice named all of `named`; None before the first notice.
    `reminded` has the latest notice by channel. `times` counts how often the same cause has ended and come back within `RETURNS`.
    """

    id: str
    kind: str
    topic: Topic
    revision: str
    began: Instant
    joined: Instant
    members: dict[str, Member]
    patience: int
    reported: Instant | None = None
    named: frozenset[str] = frozenset()
    reminded: dict[str, Instant] = {}  # noqa: RUF012  (never changed in place)
    times: int = 0


class Closed(NamedTuple):
    """An incident that is over: if its cause comes back soon, its end is believed later."""

    kind: str
    revision: str
    objects: frozenset[str]
    at: Instant
    times: int


class Phase(StrEnum):
    """What a notice says of its cause."""

    BEGAN = "began"
    MORE = "more"
    """More objects have it than the notice before named."""
    REMINDER = "reminder"
    OVER = "over"
    APPLIED = "applied"
    DROPPED = "dropped"
    """A summary of notices that were not sent."""
    TEST = "test"


class Notice(NamedTuple):
    """One message. `incident` is the id of what it is about, empty for other messages. `lines` are (object, message); `left` counts the objects beyond them. Times are wall-clock ns."""

    id: str
    incident: str
    phase: Phase
    topic: Topic
    kind: str
    revision: str
    commit: str
    title: str
    lines: tuple[tuple[str, str], ...]
    left: int
    next_steps: tuple[str, ...]
    objects: tuple[str, ...]
    began_wall: int
    at_wall: int


def subject(objects: Iterable[str]) -> str:
    """How a title names objects: the one, or their number and kind."""
    keys = sorted(objects)
    if len(keys) == 1:
        return keys[0]
    kinds = {key.partition("/")[0] for key in keys}
    noun = f"{kinds.pop()}s" if len(kinds) == 1 and kinds <= OBJECTS else "objects"
    return f"{len(keys)} {'DNS policies' if noun == 'dnspolicys' else noun}"


def owner(key: str) -> str:
    """The object that an operator knows: the workload of a replica; other keys as they are."""
    kind, _, rest = key.partition("/")
    return f"{kind}/{rest.partition('/')[0]}" if kind in {"workload", "endpoint"} else key
