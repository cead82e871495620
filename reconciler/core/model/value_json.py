"""Values of manifests as JSON and back, by their types: what the ledger keeps of a manifest that is not declared any more.

Dataclasses are objects by field name, tuples are lists. A field that the text lacks has its default, so that a newer version of the
program reads what an older one wrote. Called by `model/spec`, `replicas/templates` and `replicas/template_changes`.
"""

import json
from dataclasses import MISSING, asdict, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_hints = cache(get_type_hints)


def write(value: Any) -> str:
    """A dataclass as JSON text."""
    return json.dumps(asdict(value), separators=(",", ":"))


def write_short(value: Any) -> str:
    """A dataclass as JSON text without the fields that have their defaults: a tenth of the size, and as quick to write."""
    return json.dumps(_short(value), separators=(",", ":"))


def _short(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_short(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if not is_dataclass(value) or isinstance(value, type):
        return value
    shown: dict[str, Any] = {}
    for name, default in _defaults(type(value)):
        inner = getattr(value, name)
        if inner is not default and inner != default:
            shown[name] = _short(inner)
    return shown


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    """The fields of a dataclass with their defaults; those without a default get a value that equals nothing."""
    return tuple((field.name, _NONE if field.default is MISSING else field.default) for field in fields(kind))


_NONE = object()


def parse(kind: type[T], text: str) -> T | None:
    """A value from its text; None when another version of the program wrote it with other fields."""
    try:
        value = read(kind, json.loads(text))
    except (ValueError, TypeError, KeyError):
        return None
    return value if isinstance(value, kind) else None


def read(kind: Any, raw: Any) -> Any:
    """A value of a type from its parsed JSON. Raises ValueError, TypeError, KeyError."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _either(inner, raw)
    if origin is tuple:
        if not isinstance(raw, list):
            raise TypeError(f"{raw!r} is not a list")
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(read(inner[0], value) for value in raw)
        return tuple(read(item, value) for item, value in zip(inner, raw, strict=True))
    if is_dataclass(kind) and isinstance(kind, type):
        required = {field.name for field in fields(kind) if field.default is field.default_factory is MISSING}
        if not isinstance(raw, dict) or not required <= raw.keys() <= {field.name for field in fields(kind)}:
            raise TypeError(f"these are not the fields of {kind.__name__}")
        hints = _hints(kind)
        return kind(**{name: read(hints[name], value) for name, value in raw.items()})
    if isinstance(kind, type) and issubclass(kind, tuple):
        hints = _hints(kind)
        return kind(*(read(item, value) for item, value in zip(hints.values(), raw, strict=True)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(raw)
    if type(raw) is not kind:
        raise TypeError(f"{raw!r} is not of type {kind}")
    return raw


def _either(kinds: tuple[Any, ...], raw: Any) -> Any:
    """A value of the first of several types that fits."""
    if raw is None and type(None) in kinds:
        return None
    for kind in kinds:
        try:
            return read(kind, raw)
        except (ValueError, TypeError, KeyError):
            continue
    raise TypeError(f"{raw!r} is of none of the types")
