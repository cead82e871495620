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


def ordered(
    overrides: Mapping[str, Override], verb: str, key: str, value: str, who: str, reason: str, until: int, at: Instant
) -> Mapping[str, Override]:
    """The orders after one command. What makes no sense changes nothing: the inbox may hold words of a newer version.

    Args:
        verb: one of `VERBS`.
        key: the object.
        value: `up` or `down` of `force`.
        until: wall clock at which it expires (ns), 0 = never.
        at: when the command was given.
    """
    if verb == "release":
        return {name: one for name, one in overrides.items() if key not in {name, "*"}}
    force = "drain" if verb == "drain" else value
    kind = key.partition("/")[0]
    if force not in set(Force) or kind not in {"endpoint", "workload", "dnspolicy"}:
        return overrides
    if kind == "dnspolicy" and force == Force.DRAIN:
        return overrides  # a name has nothing in flight: there is up and down only
    return {**overrides, key: Override(Force(force), at, who, reason, until)}
