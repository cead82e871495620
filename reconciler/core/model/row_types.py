"""Whether a value that was read from a row has the types that the ledger declares. Used by `ledger_codec.py`.

A damaged row may still be JSON, with a text where a number should be. Such a value would fail in a rule, at each decision; found here, only
its row is set aside. Pure.
"""

import types
import typing
from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any


@cache
def members(kind: Hashable) -> Mapping[str, Any]:
    """The declared types of the members of a dataclass or named tuple; empty for another type."""
    if not isinstance(kind, type) or not (hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields")):
        return {}
    hints = typing.get_type_hints(kind)
    return {name: hint for name, hint in hints.items() if typing.get_origin(hint) is not typing.ClassVar}


@cache
def _parts(declared: Hashable) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(declared), typing.get_args(declared)


def row_type(ledger: type, section: str) -> Any:
    """The declared type of the values of one section: the X of `section: Mapping[str, X]`."""
    return typing.get_args(members(ledger)[section])[1]


def matches(value: Any, declared: Any) -> bool:
    """Whether a value, and everything in it, has the declared type. A bool is no int. What is declared loosely matches everything."""
    origin, inner = _parts(declared)
    if origin in (typing.Union, types.UnionType):
        return any(matches(value, one) for one in inner)
    if origin is tuple:
        kinds = inner[:1] * len(value) if inner[-1:] == (Ellipsis,) and isinstance(value, tuple) else inner
        return (
            isinstance(value, tuple)
            and len(kinds) == len(value)
            and all(matches(one, kind) for one, kind in zip(value, kinds, strict=True))
        )
    kind = origin or declared
    if not isinstance(kind, type):
        return True
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return False
    if isinstance(value, Mapping) and len(inner) == 2:
        return all(matches(key, inner[0]) and matches(one, inner[1]) for key, one in value.items())
    if isinstance(value, frozenset) and inner:
        return all(matches(one, inner[0]) for one in value)
    own: Any = type(value)
    return all(matches(getattr(value, name), hint) for name, hint in members(own).items())
