"""Instants in documents for scripts: text, RFC 3339 in UTC. Used for `-o json` and by the listener.

Inside the program an instant is a whole number of ns, under a key that ends with `_wall`. As a JSON number it is beyond 2^53, where
many readers round (RFC 8259, section 6).
"""

from collections.abc import Mapping
from typing import Any

from manifests.values.rollouts import format_moment

OUTPUT_VERSION = 2
"""Version of the JSON documents for scripts; it changes when a field changes its meaning or goes."""

_SUFFIX = "_wall"
_MICROSECOND = 1_000


def instant_text(wall: int) -> str:
    """A wall-clock instant (ns) to the microsecond: `2026-11-27T09:30:00.123456Z`."""
    return format_moment(wall // _MICROSECOND * _MICROSECOND)


def instants_as_text(value: Any) -> Any:
    """A JSON value with the instants of every depth as text: `until_wall` becomes `until`, or `until_at` beside an `until`.

    The instant 0 stands for none and becomes None.
    """
    if isinstance(value, Mapping):
        return {
            _name(key, value): _text(inner) if key.endswith(_SUFFIX) else instants_as_text(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [instants_as_text(inner) for inner in value]
    return value


def _text(value: Any) -> Any:
    """The value of a key of instants: one of them, or many in lists and mappings."""
    if isinstance(value, Mapping):
        return {key: _text(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_text(inner) for inner in value]
    return instant_text(value) if value else None


def _name(key: str, row: Mapping[str, Any]) -> str:
    name = key.removesuffix(_SUFFIX)
    return key if name == key else f"{name}_at" if name in row else name
