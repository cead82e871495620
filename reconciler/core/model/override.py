"""Overrides of endpoints, replicas and targets of names: rows of the ledger. `health/overrides` has the rules."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from reconciler.core.model.instant import Instant


class Force(StrEnum):
    """The ways to override the readiness of an endpoint, a replica with all its endpoints, or a target of a name."""

    DRAIN = "drain"
    UP = "up"
    DOWN = "down"


class Override(NamedTuple):
    """An operator's override; only facts rank above it. `until_wall` is its expiry (0 = until released)."""

    force: Force
    at: Instant
    who: str = ""
    reason: str = ""
    until_wall: int = 0


def override_row(raw: list[Any]) -> Override:
    """An override from its stored form."""
    return Override(Force(raw[0]), Instant(*raw[1]), *raw[2:])


VERBS = frozenset({"drain", "force", "release"})
"""The commands about overrides: `drain`, `force` with `up` or `down`, and `release`, which removes an override."""


class OverrideCommand(NamedTuple):
    """One command of an operator: `verb` is one of `VERBS`, `value` the `up` or `down` of `force`, `until_wall` its expiry."""

    verb: str
    key: str
    value: str
    at: Instant
    who: str = ""
    reason: str = ""
    until_wall: int = 0


def after(overrides: Mapping[str, Override], command: OverrideCommand) -> Mapping[str, Override]:
    """The overrides after one command. An unknown command changes nothing: the inbox may have commands of a newer version."""
    if command.verb == "release":
        return {key: override for key, override in overrides.items() if command.key not in {key, "*"}}
    force = "drain" if command.verb == "drain" else command.value
    kind = command.key.partition("/")[0]
    if force not in set(Force) or kind not in {"endpoint", "workload", "dnspolicy"}:
        return overrides
    if kind == "dnspolicy" and force == Force.DRAIN:
        return overrides  # a name has no requests in flight: only up and down
    override = Override(Force(force), command.at, command.who, command.reason, command.until_wall)
    return {**overrides, command.key: override}
