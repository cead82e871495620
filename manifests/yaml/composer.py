"""From the events of the YAML parser to plain values, strictly. Called by `read.py` for the text of one file.

The parser only knows YAML's grammar. This module decides the values of scalars, refuses duplicate and non-string keys and
tags, resolves merge keys and anchors, and sets the limits that keep a small text from becoming a huge value. Creating the
events takes most of the time, so the usual pass keeps no positions: `marks` is None. A second pass over the same text
fills `marks` when a problem needs a position.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from _ruamel_yaml import CParser  # type: ignore[import-not-found]  # it has no types
from ruamel.yaml import YAML
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from manifests.problems import Code
from manifests.yaml.core import KEYWORDS, KEYWORDS_1_1, MISSING, NUMBER_START, ambiguous, number

DEPTH = 100
"""How deep values may be nested."""

DOCUMENTS = 10_000
"""How many documents one file may have."""

ALIAS_NODES = 10_000
"""How many values one document may repeat through aliases, counted after expansion."""

Mark = tuple[int, int]
"""Line and column, counted from 1."""

Marks = dict[int, Any]
"""By id of a mapping: {key: (place of the key, place of the value)}; by id of a list: [place of each item]."""

_TAG = "tag:yaml.org,2002:"
_SPECIAL = frozenset(KEYWORDS) | KEYWORDS_1_1 | {"<<"}
"""Unquoted scalars that are not simply strings."""
_SCALAR_TAGS: dict[str, tuple[type, ...]] = {
    _TAG + "int": (int,),
    _TAG + "float": (int, float),
    _TAG + "bool": (bool,),
    _TAG + "null": (type(None),),
}


@dataclass(frozen=True, slots=True)
class TextProblem:
    """A problem of the text, without the name of the file."""

    place: Mark
    code: Code
    message: str
    hint: str = ""


class Stop(Exception):
    """The rest of the text cannot be read."""

    def __init__(self, problem: TextProblem) -> None:
        super().__init__(problem)
        self.problem = problem


class NeedMarks(Exception):
    """A problem needs the position of an earlier value: compose again with marks."""


@dataclass(slots=True)
class Composed:
    """One document: the place of its value, the value, and whether parts of it could not be read."""

    place: Mark
    value: object
    broken: bool = False


def c_parser_events(text: str) -> Callable[[], Any]:
    """The events of a text, one per call, by the C parser. It follows YAML 1.1 for plain scalars in `[]` and `{}`."""
    events: Callable[[], Any] = CParser(text).get_event
    return events


def python_parser_events(text: str) -> Callable[[], Any]:
    """The same events by the Python parser, about thirty times slower, which follows YAML 1.2 there."""
    events: Callable[[], Any] = iter(YAML(typ="safe", pure=True).parse(text)).__next__
    return events


def _place(event: Any) -> Mark:
    mark = event.start_mark
    return mark.line + 1, mark.column + 1


class Composer:
    """Composes the documents of one text from its events; `documents` and `problems` hold the results, also after `Stop`."""

    __slots__ = ("_anchors", "_broken", "_depth", "_next", "_repeated", "_sizes", "documents", "marks", "problems")

    def __init__(self, events: Callable[[], Any], marks: Marks | None = None) -> None:
        self._next = events
        self._anchors: dict[str, object] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self._repeated = 0
        self._depth = 0
        self._broken = False
        self.marks = marks
        self.documents: list[Composed] = []
        self.problems: list[TextProblem] = []

    def run(self) -> None:
        """Compose every document.

        Raises:
            Stop: a limit was passed. Syntax errors come as the parser raises them.
            NeedMarks: only without marks.
        """
        following = self._next
        following()
        while type(start := following()) is DocumentStartEvent:
            if len(self.documents) == DOCUMENTS:
                hint = "split the file"
                raise Stop(
                    TextProblem(
                        _place(start), Code.TOO_MANY_DOCUMENTS, f"the file has more than {DOCUMENTS} documents", hint
                    )
                )
            if start.version not in (None, (1, 2)):
                hint = "remove the %YAML line"
                self._report(start, Code.YAML_VERSION, "manifests are YAML 1.2, not 1.1", hint)
            self._anchors.clear()
            self._sizes.clear()
            self._repeated = self._depth = 0
            self._broken = False
            root = following()
            value = self._node(root)
            self.documents.append(Composed(_place(root), value, self._broken))
            following()

    def _report(self, event: Any, code: Code, message: str, hint: str = "") -> None:
        self.problems.append(TextProblem(_place(event), code, message, hint))

    def _node(self, event: Any) -> object:
        kind = type(event)
        if kind is ScalarEvent:
            return self._scalar(event)
        if kind is AliasEvent:
            return self._alias(event)
        self._depth += 1
        if self._depth > DEPTH:
            raise Stop(TextProblem(_place(event), Code.TOO_DEEP, f"values are nested more than {DEPTH} levels deep"))
        if event.anchor is not None:
            self._anchors[event.anchor] = MISSING
        node = self._mapping(event) if kind is MappingStartEvent else self._sequence(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._depth -= 1
        return node

    def _scalar(self, event: Any) -> object:
        plain, quoted = event.implicit
        value = event.value
        if plain:
            if value in _SPECIAL or value[0] in NUMBER_START:
                value = self._plain(event, value)
        elif not quoted:
            value = self._tagged(event, value)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _sequence(self, event: Any) -> list[object]:
        items: list[object] = []
        if event.tag is not None and event.tag != _TAG + "seq":
            self._refuse_tag(event)
        places: list[Mark] | None = None
        if self.marks is not None:
            places = self.marks[id(items)] = []
        following, node, scalar = self._next, self._node, self._scalar
        while type(item := following()) is not SequenceEndEvent:
            if places is not None:
                places.append(_place(item))
            items.append(scalar(item) if type(item) is ScalarEvent else node(item))
        return items

    def _mapping(self, event: Any) -> dict[str, object]:
        mapping: dict[str, object] = {}
        if event.tag is not None and event.tag != _TAG + "map":
            self._refuse_tag(event)
        places: dict[str, tuple[Mark, Mark]] | None = None
        if self.marks is not None:
            places = self.marks[id(mapping)] = {}
        merged: list[tuple[Any, object]] = []
        following, node, scalar = self._next, self._node, self._scalar
        while True:
            key_event = following()
            kind = type(key_event)
            if kind is not ScalarEvent:
                if kind in (AliasEvent, MappingStartEvent, SequenceStartEvent):
                    self._complex_key(key_event)
                    continue
                break
            key = key_event.value
            plain, quoted = key_event.implicit
            if plain:
                if (key in _SPECIAL or key[0] in NUMBER_START) and not key_event.style:
                    if key == "<<":
                        merged.append((key_event, node(following())))
                        continue
                    if not self._is_text(key_event, key):
                        node(following())
                        continue
            elif not quoted and key_event.tag != _TAG + "str":
                self._refuse_tag(key_event)
            if key_event.anchor is not None:
                self._anchors[key_event.anchor] = key
            value_event = following()
            if key in mapping:
                self._duplicate(key_event, key, places)
                node(value_event)
                continue
            if places is not None:
                places[key] = _place(key_event), _place(value_event)
            mapping[key] = scalar(value_event) if type(value_event) is ScalarEvent else node(value_event)
        if merged:
            self._merge(mapping, merged)
        return mapping

    # --- keys -----------------------------------------------------------------------------------------------------

    def _is_text(self, event: Any, key: str) -> bool:
        """Whether an unquoted key is a string: all keys of manifests are."""
        if ambiguous(key):
            self._warn(event, key)
        if key not in KEYWORDS and (key[0] not in NUMBER_START or self._number(event, key) is MISSING):
            return True
        shown = f"the key {key}" if key else "an empty key"
        self._report(
            event, Code.BAD_KEY, f"{shown} is not a string, and keys must be strings", f'put it in quotes: "{key}"'
        )
        return False

    def _complex_key(self, event: Any) -> None:
        self._report(event, Code.BAD_KEY, "a key must be a string, not a list, a mapping or an alias")
        self._node(event)
        self._node(self._next())

    def _duplicate(self, event: Any, key: str, places: dict[str, tuple[Mark, Mark]] | None) -> None:
        if places is None:
            raise NeedMarks
        line, column = places[key][0]
        message = f"the key '{key}' is already at line {line}, column {column}"
        self._report(event, Code.DUPLICATE_KEY, message, "keep one of the two")

    def _merge(self, mapping: dict[str, object], merged: list[tuple[Any, object]]) -> None:
        """Merge keys (`<<`): the mapping's own keys win, then earlier mappings of the list."""
        for event, _ in merged[1:]:
            line, column = _place(merged[0][0])
            hint = "write one merge key with a list: <<: [*a, *b]"
            self._report(event, Code.DUPLICATE_KEY, f"the key '<<' is already at line {line}, column {column}", hint)
        event, value = merged[0]
        sources = value if isinstance(value, list) else [value]
        for source in sources:
            if not isinstance(source, dict):
                self._report(event, Code.BAD_ALIAS, "the merge key << needs a mapping, or a list of mappings")
                self._broken = True
                return
            for key, inner in source.items():
                if key in mapping:
                    continue
                mapping[key] = inner
                if self.marks is not None:
                    self.marks[id(mapping)][key] = self.marks[id(source)][key]

    # --- scalars --------------------------------------------------------------------------------------------------

    def _plain(self, event: Any, text: str) -> object:
        value = KEYWORDS.get(text, MISSING)
        if event.style:  # the parser drops a lone ! before a quoted string and then reports it as unquoted
            return text
        if value is not MISSING:
            return value
        if text[0] in NUMBER_START:
            if ambiguous(text):
                self._warn(event, text)
            value = self._number(event, text)
            return text if value is MISSING else value
        if text in KEYWORDS_1_1:
            self._warn(event, text)
        return text

    def _number(self, event: Any, text: str) -> object:
        try:
            return number(text)
        except ValueError as error:
            self._report(event, Code.BAD_NUMBER, str(error), "put it in quotes if it is a string")
            self._broken = True
            return None

    def _tagged(self, event: Any, text: str) -> object:
        if event.tag in ("!", _TAG + "str"):
            return text
        if event.tag not in _SCALAR_TAGS:
            self._refuse_tag(event)
            return text
        value = self._plain(event, text)
        if type(value) in _SCALAR_TAGS[event.tag]:
            return value
        self._report(event, Code.YAML_TAG, f"the value does not fit its tag !!{event.tag.removeprefix(_TAG)}")
        self._broken = True
        return value

    def _warn(self, event: Any, text: str) -> None:
        shown = f"'{text}'" if text in KEYWORDS_1_1 else "this value"
        message = f"{shown} is read as YAML 1.2; YAML 1.1 would read another value"
        self._report(event, Code.YAML_AMBIGUOUS, message, "put it in quotes if it is a string")

    def _refuse_tag(self, event: Any) -> None:
        tag = event.tag.replace(_TAG, "!!") if event.tag.startswith(_TAG) else event.tag
        self._report(event, Code.YAML_TAG, f"the tag {tag} is not allowed in manifests", "remove it")
        self._broken = True

    # --- anchors --------------------------------------------------------------------------------------------------

    def _alias(self, event: Any) -> object:
        name = event.anchor
        if name not in self._anchors:
            hint = "add the anchor earlier in the same document, or remove the alias"
            self._report(event, Code.BAD_ALIAS, f"alias *{name} has no anchor &{name} before it", hint)
            self._broken = True
            return None
        value = self._anchors[name]
        if value is MISSING:
            self._report(event, Code.BAD_ALIAS, f"the anchor &{name} contains itself")
            self._broken = True
            return None
        nodes, height = self._size(value)
        self._repeated += nodes
        if self._repeated > ALIAS_NODES:
            message = f"aliases repeat more than {ALIAS_NODES} values in one document"
            raise Stop(
                TextProblem(
                    _place(event), Code.ALIAS_BUDGET, message, "use fewer aliases, or aliases of smaller values"
                )
            )
        if self._depth + height > DEPTH:
            raise Stop(TextProblem(_place(event), Code.TOO_DEEP, f"aliases nest values more than {DEPTH} levels deep"))
        return value

    def _size(self, value: object) -> tuple[int, int]:
        """How many values it holds after expansion, and how deep; each container is counted once."""
        if not isinstance(value, dict | list):
            return 1, 0
        known = self._sizes.get(id(value))
        if known is not None:
            return known
        inner = [self._size(item) for item in (value.values() if isinstance(value, dict) else value)]
        known = 1 + sum(nodes for nodes, _ in inner), 1 + max((height for _, height in inner), default=0)
        self._sizes[id(value)] = known
        return known
