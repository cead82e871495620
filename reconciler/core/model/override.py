"""What a person ordered about an endpoint, a replica or a target of a name: rows of the ledger. `health/overrides.py` has the rules."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from reconciler.core.model.instant import Instant


class Force(StrEnum):
    """What a person may order about an endpoint, or a replica with all its endpoints."""

    DRAIN = "drain"
    UP = "up"
    DOWN = "down"


class Override(NamedTuple):
    """A person's order, which ranks above everything but facts. `until_wall` is its expiry (0 = until released)."""

    force: Force
    at: Instant
    who: str = ""
    reason: str = ""
    until_wall: int = 0


def override_row(raw: list[Any]) -> Override:
    """An order as it was stored."""
    return Override(Force(raw[0]), Instant(*raw[1]), *raw[2:])


VERBS = frozenset({"drain", "force", "release"})
"""The commands that give orders: `drain`, `force` with `up` or `down`, and `release`, which takes an order back."""


class Order(NamedTuple):
    """One command of an operator: `verb` is one of `VERBS`, `value` the `up` or `down` of `force`, `until_wall` its expiry."""

    verb: str
    key: str
    value: str
    at: Instant
    who: str = ""
    reason: str = ""
    until_wall: int = 0


def after(overrides: Mapping[str, Override], order: Order) -> Mapping[str, Override]:
    """The overrides after one command. One that makes no sense changes nothing: the inbox may hold those of a newer version."""
    if order.verb == "release":
        return {key: override for key, override in overrides.items() if order.key not in {key, "*"}}
    force = "drain" if order.verb == "drain" else order.value
    kind = order.key.partition("/")[0]
    if force not in set(Force) or kind not in {"endpoint", "workload", "dnspolicy"}:
        return overrides
    if kind == "dnspolicy" and force == Force.DRAIN:
        return overrides  # a name has no requests in flight: there is up and down only
    override = Override(Force(force), order.at, order.who, order.reason, order.until_wall)
    return {**overrides, order.key: override}
