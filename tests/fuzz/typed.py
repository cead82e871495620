"""Whether facts have the types that they declare: a text where a number should be would break a rule later, far from its cause."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any


def assert_typed(value: Any, declared: Any, place: str = "fact") -> None:
    """Assert that a value, and everything in it, has the declared type."""
    origin, inner = typing.get_origin(declared), typing.get_args(declared)
    if origin in (typing.Union, types.UnionType):
        for one in inner:
            try:
                return assert_typed(value, one, place)
            except AssertionError:
                continue
        raise AssertionError(f"{place} is {value!r}, not {declared}")
    if origin is tuple:
        assert isinstance(value, tuple), f"{place} is {value!r}, not {declared}"
        kinds = inner[:1] * len(value) if inner[-1:] == (Ellipsis,) else inner
        assert len(kinds) == len(value), f"{place} has {len(value)} members, not {len(kinds)}"
        for index, (one, kind) in enumerate(zip(value, kinds, strict=True)):
            assert_typed(one, kind, f"{place}[{index}]")
        return None
    if origin is not None and issubclass(origin, Mapping):
        assert isinstance(value, Mapping), f"{place} is {value!r}, not {declared}"
        for key, one in value.items():
            assert_typed(key, inner[0], f"{place} key {key!r}")
            assert_typed(one, inner[1], f"{place}[{key!r}]")
        return None
    kind = origin or declared
    if kind is Any or not isinstance(kind, type):
        return None
    wrong = not isinstance(value, kind) or (kind is int and isinstance(value, bool))
    assert not wrong, f"{place} is {value!r}, not {declared}"
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        for name, hint in typing.get_type_hints(type(value)).items():
            if not name.startswith("_") and typing.get_origin(hint) is not typing.ClassVar:
                assert_typed(getattr(value, name), hint, f"{place}.{name}")
    return None
