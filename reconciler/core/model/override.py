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
    """An operator's override; only facts rank above it. `until_wall` is its expiry (0 = until released).

    `forced`: the operator wants it even where it takes the last endpoint out of traffic. `waits`: it has no effect yet, because
    nothing else serves; `core/drains` ends this wait. Rows without these fields are of overrides that are in effect.
    """

    force: Force
    at: Instant
    who: str = ""
    reason: str = ""
    until_wall: int = 0
    forced: bool = False
    waits: bool = False

    @property
    def out(self) -> bool:
        """Whether it takes traffic away."""
        return self.force is not Force.UP


def override_row(raw: list[Any]) -> Override:
    """An override from its stored form."""
    return Override(Force(raw[0]), Instant(*raw[1]), *raw[2:])


def held_actions(key: str) -> tuple[str, str]:
    """The actions of holds on an override of this object that waits: a drain, and a force down."""
    return f"drain {key}", f"force {key} down"


VERBS = frozenset({"drain", "force", "release"})
"""The commands about overrides: `drain`, `force` with `up` or `down`, and `release`, which removes an override."""


class OverrideCommand(NamedTuple):
    """One command of an operator: `verb` is one of `VERBS`, `value` the `up` or `down` of `force`, `until_wall` its expiry.

    `forced`: also where it takes the last endpoint out of traffic.
    """

    verb: str
    key: str
    value: str
    at: Instant
    who: str = ""
    reason: str = ""
    until_wall: int = 0
    forced: bool = False


def after(overrides: Mapping[str, Override], command: OverrideCommand) -> Mapping[str, Override]:
    """The overrides after one command. An unknown command changes nothing: the inbox may have commands of a newer version.

    A new override that takes traffic away waits until `core/drains` lets it begin, unless it is forced, or replaces one that is in
    effect. A target that is forced down never waits: a name keeps its last address in any case.
    """
    if command.verb == "release":
        return {key: override for key, override in overrides.items() if command.key not in {key, "*"}}
    force = "drain" if command.verb == "drain" else command.value
    kind = command.key.partition("/")[0]
    if force not in set(Force) or kind not in {"endpoint", "workload", "dnspolicy"}:
        return overrides
    if kind == "dnspolicy" and force == Force.DRAIN:
        return overrides  # a name has no requests in flight: only up and down
    earlier = overrides.get(command.key)
    begun = earlier is not None and earlier.out and not earlier.waits and _lasts(earlier, command.at)
    waits = force != Force.UP and kind != "dnspolicy" and not command.forced and not begun
    given = (command.at, command.who, command.reason, command.until_wall, command.forced, waits)
    return {**overrides, command.key: Override(Force(force), *given)}


def _lasts(override: Override, at: Instant) -> bool:
    return not override.until_wall or override.until_wall > at.wall
