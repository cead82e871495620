"""The ledger's rows of traffic, and their stored form. Made by `traffic/pool` and `traffic/pools`.

Each can be lost without harm: a container that carries weight was ready before, and a weight that is read back counts as the last
confirmed one.
"""

from typing import Any, NamedTuple

from providers.facts import Endpoint
from reconciler.core.model.instant import Instant


class Ready(NamedTuple):
    """A generation of a container that has been ready: its start (runtime's wall clock, ns) and since when it was ready.

    `grows` says that it carried no weight then, so that its weight grows where its service has a ramp. `resort` is the start of a
    later generation that got weight as the last resort of its pool and has not been ready; 0 if none did. `full` are the pools
    (`provider/pool`) in which it has carried the full weight of their service: no ramp applies there again.
    """

    started_at: int
    since: Instant
    grows: bool
    resort: int = 0
    full: tuple[str, ...] = ()


class Weighed(NamedTuple):
    """The weight of one member of ours.

    `weight` is the last one that was read back as we set it, in that process (`epoch`) of the balancer; -1 without one. `asked`
    are the weights that we have set since. `reversals` are the instants at which another writer had changed it, `before` and
    `after` the values of the latest such change.
    """

    endpoint: Endpoint
    weight: int
    epoch: str
    asked: tuple[int, ...] = ()
    reversals: tuple[Instant, ...] = ()
    before: int = 0
    after: int = 0


class Cut(NamedTuple):
    """A container that lost its weight for its observed health, and when that was decided."""

    container: str
    at: Instant


def ready_row(raw: list[Any]) -> Ready:
    """A row from its stored form."""
    started_at, since, grows, *rest = raw  # older rows are shorter
    return Ready(started_at, Instant(*since), grows, *rest[:1], *(tuple(pools) for pools in rest[1:2]))


def weighed_rows(raw: list[Any]) -> tuple[Weighed, ...]:
    """The members of one pool from their stored form."""
    return tuple(
        Weighed(Endpoint(*place), weight, epoch, tuple(asked), tuple(Instant(*at) for at in reversals), before, after)
        for place, weight, epoch, asked, reversals, before, after in raw
    )


def cut_rows(raw: list[Any]) -> tuple[Cut, ...]:
    """The cuts of one pool from their stored form."""
    return tuple(Cut(container, Instant(*at)) for container, at in raw)
