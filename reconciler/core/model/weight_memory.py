"""What must be remembered about traffic: rows of the ledger, and how they are read back.

Made by `weights` and by people's commands; each can be lost without harm. A container that carries weight was ready before; a
weight that is read back is the last one that was good; overrides are said again by the person who wants them.
"""

from typing import Any, NamedTuple

from providers.facts import Endpoint
from reconciler.core.model.instant import Instant


class Ready(NamedTuple):
    """That one life of a container has been ready: when it started (runtime's wall clock, ns) and since when it was.

    `grows` tells that it carried no weight then, so that its weight grows where its service has a ramp. `resort` is the start of a later life
    that was given weight as the last resort of its pool and has not been ready; 0 if none was.
    """

    started_at: int
    since: Instant
    grows: bool
    resort: int = 0


class Weighed(NamedTuple):
    """What we know of the weight of one member of ours.

    `weight` was read back last as we wanted it, in that process (`epoch`) of the balancer; -1 while that is not so. `asked` are
    the weights that we asked for since. `reversals` are the instants at which it was found to have been changed by somebody else, `before` and `after`
    what the latest of them changed.
    """

    endpoint: Endpoint
    weight: int
    epoch: str
    asked: tuple[int, ...] = ()
    reversals: tuple[Instant, ...] = ()
    before: int = 0
    after: int = 0


class Cut(NamedTuple):
    """That a container lost its weight for its observed health, and when that was decided."""

    container: str
    at: Instant


def ready_row(raw: list[Any]) -> Ready:
    """A row as it was stored."""
    return Ready(raw[0], Instant(*raw[1]), *raw[2:])


def weighed_rows(raw: list[Any]) -> tuple[Weighed, ...]:
    """The members of one pool as they were stored."""
    return tuple(
        Weighed(Endpoint(*place), weight, epoch, tuple(asked), tuple(Instant(*at) for at in reversals), before, after)
        for place, weight, epoch, asked, reversals, before, after in raw
    )


def cut_rows(raw: list[Any]) -> tuple[Cut, ...]:
    """The cuts of one pool as they were stored."""
    return tuple(Cut(container, Instant(*at)) for container, at in raw)
