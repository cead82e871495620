"""What is remembered of the revisions of a workload: values of the ledger, without rules.

`revisions.py` keeps the books, `switch.py` decides who has the traffic, `activation.py` sorts containers by what is written here.
Lost, they are made again from the marks on containers and the weights that are read back.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from reconciler.core.model.instant import Instant, Now, due, elapsed

FULL = 10_000
"""The whole share of a revision: what its containers get of the weight of their services."""


class Standing(StrEnum):
    """Where a revision is in its life."""

    SCHEDULED = "scheduled"
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    FAILED = "failed"


ENDED = frozenset({Standing.SUPERSEDED, Standing.EXPIRED, Standing.FAILED})
"""Standings of revisions that do not wait for traffic and should not have any."""


class RevisionMark(NamedTuple):
    """The number of a workload's newest revision; going back to an old template gets a new number."""

    number: int
    revision: str


class Revision(NamedTuple):
    """One revision of a workload. `number` orders them: going back to an old template gives the old hash a new number.

    `at` (wall ns, 0 = `delay` ns after `created`) is when it may take over; `due` since when that, and nothing of ours holding
    it, has been so. `opened` is when its switch began, `failures` how many switches were called off, `failed_at` when the last one
    was. `step` is the canary's, since `stepped`. `activated` is when it last took over, `ended` when it last stopped being
    wanted. `why` is the last thing that happened to it, in words. `scale` is how many replicas it had when all of them were verified
    last (0 = not yet): of those that are added later nobody knows yet whether the revision is any good there.
    """

    revision: str
    number: int
    standing: Standing
    created: Instant
    image: str = ""
    at: int = 0
    delay: int = 0
    due: Instant | None = None
    opened: Instant | None = None
    failures: int = 0
    failed_at: Instant | None = None
    step: int = 0
    stepped: Instant | None = None
    activated: Instant | None = None
    ended: Instant | None = None
    why: str = ""
    scale: int = 0


class Rollout(NamedTuple):
    """The revisions of one workload, by number.

    `active` is the hash of the one that has the traffic (empty = none yet). `back` is the one that gets it back, after a failure
    or by a person's word. `low` is since when too few replicas of the active one are available while it bakes. `ready` counts the
    available replicas of a rolling rollout and `progressed` is when that rose last. `asked` is who wants it taken back and why,
    until that is looked at. `shaken` is when the host took replicas along, until all of the active revision were well again.
    """

    active: str = ""
    back: str = ""
    low: Instant | None = None
    ready: int = 0
    progressed: Instant | None = None
    asked: tuple[str, str] | None = None
    rows: tuple[Revision, ...] = ()
    host_restarted: Instant | None = None

    def of(self, revision: str) -> Revision | None:
        """The row of a hash."""
        for row in self.rows:
            if row.revision == revision:
                return row
        return None

    def put(self, row: Revision) -> "Rollout":
        """The same with this row in place of the one of its hash."""
        others = [one for one in self.rows if one.revision != row.revision]
        return self._replace(rows=tuple(sorted([*others, row], key=lambda one: (one.number, one.revision))))


def due_at(row: Revision, now: Now) -> int:
    """The steady instant at which a revision may take over; <= now.steady when it may."""
    return now.steady + row.at - now.wall if row.at else due(row.created, row.delay, now)


def keeps(row: Revision, window: int, now: Now) -> bool:
    """Whether the replicas of a revision that had the traffic are kept, stopped, for `window` ns, to give it back."""
    return (
        row.standing in ENDED
        and row.activated is not None
        and row.ended is not None
        and elapsed(row.ended, now) < window
    )


def why_failed(rollout: Rollout | None, revision: str) -> str | None:
    """In words, that a revision has failed and why; None where it has not."""
    row = rollout.of(revision) if rollout is not None else None
    if row is None or row.standing is not Standing.FAILED:
        return None
    return f"revision {revision[:8]} has failed: {row.why}"


def retry_failed(rollout: Rollout) -> Rollout:
    """The same where a person has a rolling rollout that failed tried once more; of whole revisions only the manifest says that."""
    if rollout.progressed is None:
        return rollout
    rows = (
        row._replace(standing=Standing.SCHEDULED, ended=None, why="") if row.standing is Standing.FAILED else row
        for row in rollout.rows[-1:]
    )
    return rollout._replace(progressed=None, rows=(*rollout.rows[:-1], *rows))


def can_roll_back(rollout: Rollout) -> bool:
    """Whether there is anything to take back: a revision that waits, or one that had the traffic before.

    Whether that one is still kept only its containers and the time tell: `bake.take_back` asks these.
    """
    return any(
        row.revision != rollout.active
        and (row.standing is Standing.SCHEDULED or (row.standing is Standing.SUPERSEDED and row.activated is not None))
        for row in rollout.rows
    )


def _instant(raw: Any) -> Instant | None:
    return None if raw is None else Instant(*raw)


def read_rollout(raw: list[Any]) -> Rollout:
    """A rollout from its row. Raises ValueError, TypeError."""
    rollout = Rollout(*raw)
    rows = (Revision(*row) for row in rollout.rows)
    return rollout._replace(
        low=_instant(rollout.low),
        progressed=_instant(rollout.progressed),
        host_restarted=_instant(rollout.host_restarted),
        asked=None if rollout.asked is None else (rollout.asked[0], rollout.asked[1]),
        rows=tuple(
            row._replace(
                standing=Standing(row.standing),
                created=Instant(*row.created),
                due=_instant(row.due),
                opened=_instant(row.opened),
                failed_at=_instant(row.failed_at),
                stepped=_instant(row.stepped),
                activated=_instant(row.activated),
                ended=_instant(row.ended),
            )
            for row in rows
        ),
    )
