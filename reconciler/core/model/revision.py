"""Revisions of workloads: values of the ledger.

`rollouts/revisions` updates them, `rollouts/activate` decides which revision has the traffic, `replicas/roster` sorts containers by
them. If they are lost, they are rebuilt from the marks on containers and the weights that are read back.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from reconciler.core.model.instant import Instant, Now, due, elapsed

FULL = 10_000
"""The whole share of a revision: what its containers get of the weight of their services."""


class Standing(StrEnum):
    """The state of a revision."""

    SCHEDULED = "scheduled"
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    FAILED = "failed"


ENDED = frozenset({Standing.SUPERSEDED, Standing.EXPIRED, Standing.FAILED})
"""States of revisions that neither have the traffic nor wait for it."""


def revision_key(workload: str, revision: str) -> str:
    """How one revision of a workload is named: `workload/web@1234567890abcdef`."""
    return f"{workload}@{revision}"


class RevisionMark(NamedTuple):
    """The number of a workload's newest revision; going back to an old template gets a new number."""

    number: int
    revision: str


class Revision(NamedTuple):
    """One revision of a workload. `number` orders them: going back to an old template gives the old hash a new number.

    `at` (wall ns, 0 = `delay` ns after `created`) is when it may get the traffic; `due` since when that time has come and nothing
    holds it. `opened` is when its activation began, `failures` counts activations that were called off, `failed_at` is the last of
    them. `step` is the canary step, since `stepped`. `activated` is when it got the traffic last, `ended` when it was replaced last.
    `rechecked` is since when its replicas are asked once more, before its share is raised. `why` is its latest event as text. `scale` is the number of replicas when all of them were verified last (0 = not yet): replicas
    that are added later are not verified. `rejected`: it was rolled back, by an operator or in its bake, so only a commit that changes
    the template lets it be tried again.
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
    rechecked: Instant | None = None
    rejected: bool = False


class Rollout(NamedTuple):
    """The revisions of one workload, by number.

    `active` is the hash of the one that has the traffic (empty = none yet). `back` is the one that gets it back, after a failure
    or an operator's rollback. `low` is since when too few replicas of the active one are available during verification. `ready` is
    the number of available replicas of a rolling rollout, `progressed` when it rose last. `asked` is who asked for a rollback, and
    the reason, until it is decided. `host_restarted` is when a restart of the host stopped replicas, until all of the active revision
    were healthy again.
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
        others = [other for other in self.rows if other.revision != row.revision]
        rows = sorted([*others, row], key=lambda unsorted: (unsorted.number, unsorted.revision))
        return self._replace(rows=tuple(rows))


def rechecked(rollouts: Mapping[str, Rollout]) -> Iterator[str]:
    """The revisions whose replicas are asked once more, as `revision_key`."""
    for key, rollout in rollouts.items():
        for row in rollout.rows:
            if row.rechecked is not None:
                yield revision_key(key, row.revision)


def due_at(row: Revision, now: Now) -> int:
    """The steady instant at which a revision may get the traffic; <= now.steady when it may."""
    return now.steady + row.at - now.wall if row.at else due(row.created, row.delay, now)


def keeps(row: Revision, window: int, now: Now) -> bool:
    """Whether the replicas of a revision that had the traffic are still kept, stopped, for a rollback within `window` ns."""
    return (
        row.standing in ENDED
        and row.activated is not None
        and row.ended is not None
        and elapsed(row.ended, now) < window
    )


def why_failed(rollout: Rollout | None, revision: str) -> str | None:
    """The message that a revision has failed, with the cause; None where it has not."""
    row = rollout.of(revision) if rollout is not None else None
    if row is None or row.standing is not Standing.FAILED:
        return None
    return f"revision {revision[:8]} has failed: {row.why}"


def retry_failed(rollout: Rollout) -> Rollout:
    """The rollout after `reconcile resume`: a failed rolling rollout is tried again; other strategies need a new template."""
    if rollout.progressed is None:
        return rollout
    rows = (
        row._replace(standing=Standing.SCHEDULED, ended=None, why="") if row.standing is Standing.FAILED else row
        for row in rollout.rows[-1:]
    )
    return rollout._replace(progressed=None, rows=(*rollout.rows[:-1], *rows))


def can_roll_back(rollout: Rollout) -> bool:
    """Whether a rollback is possible: a revision waits, or one had the traffic before.

    Whether its replicas are still kept follows from containers and time: `rollouts/rollback` checks these.
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
                rechecked=_instant(row.rechecked),
            )
            for row in rows
        ),
    )
