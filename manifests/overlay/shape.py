"""How values of a kind merge: which fields its mappings have, and which fields identify the items of its lists.

Made from the models, so that a list which refuses two items with the same key (`unique`) is the list that merges by that key. A list whose items
have a short form (`envFile`) has no keys here: it is replaced whole, however it is written. Called by `merge.py` and `render.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from manifests.kinds import KINDS
from manifests.kinds.base import Unique


@dataclass(frozen=True, slots=True)
class Keys:
    """What identifies an item of a list.

    Attributes:
        label: names an item in messages, such as `container`.
        fields: the fields that identify it together, as manifests spell them.
        defaults: the default of each of these fields that has one.
        name: a further field that identifies an item alone where it has one; empty when there is none.
    """

    label: str
    fields: tuple[str, ...]
    defaults: Mapping[str, object]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of one value.

    Attributes:
        fields: the shapes of a mapping's fields, in the order of the reference; empty for a mapping with free keys.
        item: the shape of the items of a list, or of the values of a mapping with free keys.
        keys: what identifies the items of a list; None when the list is replaced as a whole.
    """

    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    item: "Shape | None" = None
    keys: Keys | None = None

    def of(self, name: str) -> "Shape":
        """The shape of a field; that of any value where nothing is known about it."""
        return self.fields.get(name) or self.item or ANY


ANY = Shape()
"""A value about which nothing is known: mappings merge, lists are replaced."""


def shape_of(kind: str) -> Shape:
    """The shape of a document of a kind."""
    model = KINDS.get(kind)
    return ANY if model is None else _of_model(model)


@cache
def _of_model(model: type[BaseModel]) -> Shape:
    return Shape({info.alias or name: _of_field(info) for name, info in model.model_fields.items()})


def _of_field(info: FieldInfo) -> Shape:
    return _of_annotation(info.annotation, info.metadata)


def _of_annotation(annotation: Any, metadata: Iterable[Any]) -> Shape:
    """The shape of a type with the checks beside it."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _of_annotation(inner, (*more, *metadata))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _of_model(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return _of_union([_of_annotation(argument, metadata) for argument in arguments if argument is not type(None)])
    if origin in (tuple, list):
        return Shape(item=_of_annotation(arguments[0], ()), keys=_keys(arguments[0], list(metadata)))
    if origin is dict:
        return Shape(item=_of_annotation(arguments[1], ()))
    return ANY


def _of_union(shapes: list[Shape]) -> Shape:
    fields = {name: inner for shape in reversed(shapes) for name, inner in shape.fields.items()}
    items = [shape for shape in shapes if shape.item is not None]
    return Shape(fields, items[0].item if items else None, items[0].keys if items else None)


def _keys(item: Any, metadata: list[Any]) -> Keys | None:
    """What identifies the items of a list with these checks."""
    model = next(_models(item), None)
    checks = [check.func for check in metadata if isinstance(check, AfterValidator) and isinstance(check.func, Unique)]
    has_short_form = any(isinstance(check, BeforeValidator) for check in metadata)
    if model is None or has_short_form or not checks or not checks[0].fields:
        return None
    known = model.model_fields
    names = tuple(known[name].alias or name for name in checks[0].fields)
    defaults = {
        alias: known[name].default
        for alias, name in zip(names, checks[0].fields, strict=True)
        if known[name].default not in (PydanticUndefined, None)
    }
    return Keys(checks[0].label, names, defaults, checks[0].name)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Annotated, Union, UnionType):
        for argument in get_args(annotation):
            yield from _models(argument)
