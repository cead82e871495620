"""Merges one document of an environment over the same object of the base, and keeps where each value stands. Called by `objects.py`.

Mappings merge by key, lists whose items have a key merge by it, everything else is replaced; `null` removes a field, and `$patch: delete` an
item. What is removed must be there, so that a typo is no silent nothing. Neither document is changed, and what both share stays shared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from manifests.overlay.shape import ANY, Keys, Shape, shape_of
from manifests.problems import Code, Problem, Where, did_you_mean, key_path, suggest
from manifests.types.errors import type_name
from manifests.yaml.read import Document

Path = tuple[str | int, ...]

PATCH = "$patch"
"""The key that says what becomes of an item, as in Kubernetes' strategic merge patches."""
DELETE = "delete"
"""The only value of `PATCH`: removes the item."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value stands: a path in a document. `inner`: the origins of what a merged value holds; None where all of it stands there.

    A field that was removed has an origin too: the `null` that removes it.
    """

    document: Document
    path: Path
    inner: Mapping[str | int, "Origin"] | None = None


@dataclass(slots=True)
class MergedDocument(Document):
    """An object of the base with what an environment changes. `where`, `index` and `text` are those of the base.

    Attributes:
        origins: where the values stand.
        others: the documents that were merged, with that of the base.
        notes: what problems below a path say in addition.
    """

    origins: Origin
    others: tuple[Document, ...]
    notes: Mapping[Path, str] = field(default_factory=dict)

    def origin(self, path: Path, *, key: bool = False) -> Where:
        """Where the value at `path`, or its key, stands."""
        if not path:
            return self.where
        at, rest = self.origins, path
        while rest and at.inner is not None and rest[0] in at.inner:
            at, rest = at.inner[rest[0]], rest[1:]
        if at.inner is not None and rest:
            # There is no such value: the nearest one around it, which is merged.
            return at.document.origin(at.path) if at.path else self.where
        return at.document.origin((*at.path, *rest), key=key)

    def place(self, path: Path, *, key: bool = False) -> tuple[int, int]:
        """Line and column of `origin`, in whichever file it is."""
        where = self.origin(path, key=key)
        return where.line, where.column

    def note(self, path: Path) -> str:
        """Which name of the base may be meant, for what only the environment has."""
        return next((self.notes[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.notes), "")

    def texts(self) -> tuple[str, ...]:
        """The texts of all files that the object is made of."""
        return tuple(text for document in self.others for text in document.texts())


def merged(base: Document, overlay: Document) -> tuple[MergedDocument, list[Problem]]:
    """The document `overlay` over `base`, which declares the same object. Both values are mappings."""
    merge = _Merge(base, overlay)
    below: Any = base.value
    over: Any = overlay.value
    value, origins = merge.mapping(below, over, (), (), (), shape_of(str(below["kind"])))
    document = MergedDocument(
        where=base.where,
        value=value,
        broken=base.broken or overlay.broken,
        index=base.index,
        text=base.text,
        origins=origins,
        others=(base, overlay),
        notes={**(base.notes if isinstance(base, MergedDocument) else {}), **merge.notes},
    )
    return document, merge.problems


def added(overlay: Document, note: str) -> Document:
    """An object that only the environment has. `note`: which object of the base may be meant; empty when it is like none."""
    if not note:
        return overlay
    return MergedDocument(
        overlay.where,
        overlay.value,
        overlay.broken,
        overlay.index,
        overlay.text,
        Origin(overlay, ()),
        (overlay,),
        {(): note},
    )


@dataclass(slots=True)
class _Merge:
    """One merge of two documents.

    The paths of its calls: `at` is that of the result, `below` that in the base and `over` that in the overlay.
    """

    base: Document
    overlay: Document
    problems: list[Problem] = field(default_factory=list)
    notes: dict[Path, str] = field(default_factory=dict)

    def mapping(
        self, base: dict[str, Any], overlay: dict[str, Any], at: Path, below: Path, over: Path, shape: Shape
    ) -> tuple[dict[str, Any], Origin]:
        """A mapping over another one."""
        result = dict(base)
        inner: dict[str | int, Origin] = {key: Origin(self.base, (*below, key)) for key in base}
        for key, value in overlay.items():
            here = (*over, key)
            if value is None:
                inner[key] = Origin(self.overlay, here)
                if base.get(key) is None:
                    self._nothing(
                        here, f"there is no '{key}' to remove", key, [name for name in base if base[name] is not None]
                    )
                result.pop(key, None)
                continue
            result[key], inner[key] = self._value(base.get(key), value, (*at, key), (*below, key), here, shape.of(key))
        return result, Origin(self.overlay, over, inner)

    def _value(self, base: Any, value: Any, at: Path, below: Path, over: Path, shape: Shape) -> tuple[Any, Origin]:
        if isinstance(value, dict):
            return self.mapping(base if isinstance(base, dict) else {}, value, at, below, over, shape)
        if isinstance(value, list) and shape.keys is not None and all(isinstance(item, dict) for item in value):
            known = base if isinstance(base, list) and all(isinstance(item, dict) for item in base) else []
            return self._items(known, value, at, below, over, shape)
        return value, Origin(self.overlay, over)

    def _items(
        self, base: list[dict[str, Any]], overlay: list[dict[str, Any]], at: Path, below: Path, over: Path, shape: Shape
    ) -> tuple[list[Any], Origin]:
        """A list whose items have keys over another one: in the order of the base, then what the overlay adds."""
        keys = shape.keys
        assert keys is not None  # noqa: S101  (asked by the caller)
        index = _Index(base, keys)
        changes: dict[int, int] = {}
        removed: set[int] = set()
        new: list[int] = []
        for number, item in enumerate(overlay):
            matches = index.find(item)
            if PATCH in item and not self._may_delete(item, keys, (*over, number)):
                continue
            if len(matches) > 1:
                self._report(
                    (*over, number),
                    Code.CONFLICT,
                    f"more than one {keys.label} of the base fits",
                    f"add {' and '.join(name for name in keys.fields if name not in item)} to say which one",
                )
            elif PATCH in item and (not matches or matches[0] in changes):
                name = _named(item, keys)
                self._nothing((*over, number), f"there is no {keys.label} '{name}' to remove", name, index.names())
            elif PATCH in item:
                removed |= index.equal(matches[0])
            elif matches and matches[0] not in changes and matches[0] not in removed:
                changes[matches[0]] = number
            else:
                new.append(number)  # one that is named twice is an error of the list
        result: list[Any] = []
        inner: dict[str | int, Origin] = {}

        def add(value: Any, origin: Origin) -> None:
            inner[len(result)] = origin
            result.append(value)

        for position, item in enumerate(base):
            if position in changes:
                number = changes[position]
                inside = (*at, len(result)), (*below, position), (*over, number)
                add(*self.mapping(item, overlay[number], *inside, shape.item or ANY))
            elif position not in removed:
                add(item, Origin(self.base, (*below, position)))
        for number in new:
            here = (*at, len(result))
            name = _named(overlay[number], keys)
            guess = suggest(name, index.names()) if base and name else ""
            if guess and guess != name:
                self.notes[here] = f"the base has no {keys.label} '{name}': did you mean '{guess}'?"
            add(*self.mapping({}, overlay[number], here, (), (*over, number), shape.item or ANY))
        return result, Origin(self.overlay, over, inner)

    def _may_delete(self, item: dict[str, Any], keys: Keys, over: Path) -> bool:
        """Whether an item with `$patch` says nothing else than which one to remove. Reports it otherwise."""
        value = item[PATCH]
        if value != DELETE:
            shown = f"'{value[:60]}'" if isinstance(value, str) else type_name(value)
            hint = f"write {PATCH}: {DELETE} to remove the {keys.label}; without {PATCH} it is changed"
            self._report((*over, PATCH), Code.BAD_VALUE, f"{PATCH} cannot be {shown}", hint)
            return False
        more = next((name for name in item if name not in (PATCH, *keys.fields, keys.name)), None)
        if more is not None:
            hint = f"remove this field, or {PATCH}"
            self._report((*over, more), Code.BAD_VALUE, f"the {keys.label} is removed, so this does nothing", hint)
            return False
        return True

    def _nothing(self, over: Path, message: str, name: str, known: Sequence[str]) -> None:
        hint = did_you_mean(name, known, "the base has") or "remove it from the environment"
        self._report(over, Code.NOTHING_TO_REMOVE, message, hint)

    def _report(self, over: Path, code: Code, message: str, hint: str) -> None:
        value: Any = self.overlay.value
        subject = f"{str(value['kind']).lower()}/{value['metadata']['name']}"
        where = self.overlay.origin(over, key=bool(over) and isinstance(over[-1], str))
        path = key_path(over)
        self.problems.append(
            Problem(where.file, where.line, where.column, code, path, f"{subject}: {path}: {message}", hint)
        )


def _named(item: Mapping[str, Any], keys: Keys) -> str:
    """How messages name an item: by its name, else by the fields that identify it."""
    fields = [name for name in ((keys.name,) if keys.name in item else keys.fields) if name in item]
    return "/".join(str(item[name]) for name in fields)


def _comparable(value: object) -> tuple[str, str]:
    """Equal for equal scalars of the same type; never an error."""
    return type(value).__name__, str(value)


class _Index:
    """Finds the items of a list by their keys."""

    def __init__(self, items: Sequence[dict[str, Any]], keys: Keys) -> None:
        self._items, self._keys = items, keys
        self._exact: dict[tuple[tuple[str, str], ...], int] = {}
        self._by_name: dict[tuple[str, str], int] = {}
        for position, item in enumerate(items):
            self._exact.setdefault(self._key(item), position)
            if keys.name and item.get(keys.name) is not None:
                self._by_name.setdefault(_comparable(item[keys.name]), position)

    def _key(self, item: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return tuple(_comparable(item.get(name, self._keys.defaults.get(name))) for name in self._keys.fields)

    def find(self, item: Mapping[str, Any]) -> list[int]:
        """The positions of the items that an item of an environment may mean.

        By its name where it has one. Else by all key fields, with their defaults; else by those that it has and the item of the base has.
        """
        keys = self._keys
        if keys.name and item.get(keys.name) is not None:
            position = self._by_name.get(_comparable(item[keys.name]))
            if position is not None:
                return [position]
        given = [name for name in keys.fields if name in item]
        if not given:
            return []
        position = self._exact.get(self._key(item))
        if position is not None:
            return [position]
        if len(keys.fields) == 1:
            return []
        return [number for number, known in enumerate(self._items) if self._fits(item, known, given)]

    def _fits(self, item: Mapping[str, Any], known: Mapping[str, Any], given: Iterable[str]) -> bool:
        shared = [name for name in given if name in known or name in self._keys.defaults]
        values = self._keys.defaults
        return bool(shared) and all(
            _comparable(item[name]) == _comparable(known.get(name, values.get(name))) for name in shared
        )

    def equal(self, position: int) -> set[int]:
        """The positions of all items with the key of this one: a base that has it twice is an error only without the environment."""
        key = self._key(self._items[position])
        return {number for number, item in enumerate(self._items) if self._key(item) == key}

    def names(self) -> list[str]:
        """The names of all items, for suggestions."""
        return [name for item in self._items if (name := _named(item, self._keys))]
