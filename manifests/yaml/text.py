"""Positions in the text of a YAML file, and insertions at them. Called by `edit.py` only.

`Node` is one value with the positions of its begin and end. Functions take a text with its nodes and return the new text;
they raise `Refused` where the insertion would affect other values.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from manifests.yaml.composer import c_parser_events, python_parser_events
from manifests.yaml.core import KEYWORDS, MISSING, ambiguous, number
from manifests.yaml.spelling import spelled

BOM = "\ufeff"

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./@+-]*(?::[A-Za-z0-9_./@+-]+)*")
"""Strings that need no quotes outside of [] and {}: image references and names."""


class Refused(Exception):
    """A refused edit: the cause, and the next step."""

    def __init__(self, cause: str, next_step: str) -> None:
        super().__init__(f"{cause}; {next_step}")
        self.cause, self.next_step = cause, next_step


@dataclass(slots=True)
class Node:
    """One value in a text.

    `kind` is scalar, mapping, sequence or alias; `start` and `end` are offsets in characters (`end` of a block mapping is
    meaningless), `column` counts from 0. `style` is of a scalar: `'`, `"`, `|`, `>` or empty. `children` of a mapping are keys and
    values in turn.
    """

    kind: str
    start: int
    end: int
    column: int
    line: int
    style: str = ""
    flow: bool = False
    anchor: bool = False
    tagged: bool = False
    value: str = ""
    children: list["Node"] = field(default_factory=list)

    def names(self) -> list[str]:
        """The keys in the text of a mapping, without merged ones."""
        return [child.value for child in self.children[::2]]

    def entry(self, key: str | int) -> tuple["Node", "Node"]:
        """A key of a mapping and its value."""
        place = 2 * self.names().index(str(key))
        return self.children[place], self.children[place + 1]

    def check_plain(self) -> None:
        """Raise Refused when other values depend on this one, or it depends on others."""
        if self.kind == "alias":
            raise Refused(
                f"line {self.line + 1} repeats another value through an alias",
                "write the value out, or change the anchor",
            )
        if self.anchor:
            raise Refused(f"line {self.line + 1} has an anchor, which other values may repeat", "change it by hand")
        if self.kind == "mapping" and "<<" in self.names():
            raise Refused(f"line {self.line + 1} has a merge key", "change it by hand")

    def last(self) -> "Node":
        """The innermost last value."""
        return self if self.kind in ("scalar", "alias") or self.flow or not self.children else self.children[-1].last()


# --- nodes --------------------------------------------------------------------------------------------------------


def parse(text: str) -> list[Node]:
    """The root of every document. Raises Refused."""
    try:
        return _documents(c_parser_events(text))
    except YAMLError:
        spelling = spelled(text)
    try:
        return _documents(c_parser_events(spelling))
    except YAMLError:
        pass
    try:
        return _documents(python_parser_events(spelling))
    except YAMLError as error:
        raise Refused(f"the file cannot be parsed: {error}", "correct the file") from error


def _documents(following: Callable[[], Any]) -> list[Node]:
    roots: list[Node] = []
    while type(event := following()) is not StreamEndEvent:
        if type(event) is DocumentStartEvent:
            roots.append(_node(following(), following))
        elif type(event) is DocumentEndEvent:
            continue
    return roots


def _node(event: Any, following: Callable[[], Any]) -> Node:
    start, end = event.start_mark, event.end_mark
    node = Node("scalar", start.index, end.index, start.column, start.line, anchor=event.anchor is not None)
    if type(event) is AliasEvent:
        node.kind = "alias"
        return node
    if type(event) is ScalarEvent:
        node.value, node.style = event.value, event.style or ""
        node.tagged = event.tag is not None
        return node
    mapping = type(event) is MappingStartEvent
    assert mapping or type(event) is SequenceStartEvent  # noqa: S101  (there is no other event)
    node.kind, node.flow = ("mapping" if mapping else "sequence"), bool(event.flow_style)
    last = MappingEndEvent if mapping else SequenceEndEvent
    while type(inner := following()) is not last:
        node.children.append(_node(inner, following))
    node.end = inner.end_mark.index
    return node


# --- insertions ------------------------------------------------------------------------------------------------------


def with_scalar(text: str, node: Node, value: str) -> str:
    """The text with another scalar in this place, in the same style where possible."""
    _check_scalar(text, node)
    return text[: node.start] + _scalar(value, node.style, _in_flow(text, node)) + text[node.end :]


def with_key(text: str, key: Node, name: str) -> str:
    """The text with another name for a key. Change its value first: its position is after the key."""
    _check_scalar(text, key)
    return text[: key.start] + _scalar(name, key.style, False) + text[key.end :]


def with_entry(text: str, mapping: Node, keys: tuple[str, ...], value: str) -> str:
    """The text with one more entry at the end of a mapping: `keys` are nested in each other, the last holds `value`."""
    mapping.check_plain()
    if mapping.kind != "mapping":
        raise Refused(f"line {mapping.line + 1} has no mapping", "write a mapping there")
    return _flow_entry(text, mapping, keys, value) if mapping.flow else _block_entry(text, mapping, keys, value)


def _check_scalar(text: str, node: Node) -> None:
    node.check_plain()
    if node.kind != "scalar" or node.start == node.end:
        raise Refused(f"line {node.line + 1} does not hold a single value", "change it by hand")
    if node.tagged:
        raise Refused(f"line {node.line + 1} has a tag", "remove the tag")
    if node.style in ("|", ">") or "\n" in text[node.start : node.end]:
        raise Refused(f"the value in line {node.line + 1} spans several lines", "write it in one line")


def _in_flow(text: str, node: Node) -> bool:
    """Whether a scalar may be between [] or {}: its line has such characters around it."""
    begin, end = text.rfind("\n", 0, node.start) + 1, _line_end(text, node.end)
    return any(char in text[begin : node.start] + text[node.end : end] for char in "[]{},")


def _scalar(value: str, style: str, flow: bool) -> str:
    """A string as YAML: plain where that is safe and was so before."""
    if style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if style == "" and _is_plain(value) and not (flow and ":" in value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _is_plain(value: str) -> bool:
    if not _PLAIN.fullmatch(value) or value in KEYWORDS or ambiguous(value):
        return False
    try:
        return number(value) is MISSING
    except ValueError:
        return False


def _line_end(text: str, offset: int) -> int:
    """The offset of the next line; the length of the text in its last line."""
    newline = text.find("\n", offset)
    return len(text) if newline < 0 else newline + 1


def _flow_entry(text: str, mapping: Node, keys: tuple[str, ...], value: str) -> str:
    quoted = not mapping.children or mapping.children[0].style == '"'
    names = [json.dumps(key) if quoted and mapping.children else key for key in keys]
    entry = f"{names[-1]}: {json.dumps(value, ensure_ascii=False)}"
    for name in reversed(names[:-1]):
        entry = f"{name}: {{{entry}}}"
    if not mapping.children:
        if text[mapping.start] != "{":
            raise Refused(f"line {mapping.line + 1} does not begin with its bracket", "change it by hand")
        return text[: mapping.start + 1] + entry + text[mapping.start + 1 :]
    key, last = mapping.children[-2], mapping.children[-1]
    begin = text.rfind("\n", 0, key.start) + 1
    alone = begin > mapping.start and not text[begin : key.start].strip()
    gap = f",{_newline(text)}{text[begin : key.start]}" if alone else ", "
    return text[: last.end] + gap + entry + text[last.end :]


def _block_entry(text: str, mapping: Node, keys: tuple[str, ...], value: str) -> str:
    first, last = mapping.children[0], mapping.last()
    newline = _newline(text)
    step = 2 if mapping.column == 0 else _step(mapping)
    lines = [f"{' ' * (mapping.column + step * depth)}{name}:" for depth, name in enumerate(keys)]
    lines[-1] += f" {json.dumps(value, ensure_ascii=False)}"
    entry = newline.join(lines)
    if last.style in ("|", ">"):
        # Blank lines at the end of a block scalar may belong to it.
        begin = text.rfind("\n", 0, first.start) + 1
        if text[begin : first.start].strip():
            raise Refused(f"line {first.line + 1} does not begin with its key", "change it by hand")
        return text[:begin] + entry + newline + text[begin:]
    place = _line_end(text, last.end)
    gap = "" if text[:place].endswith("\n") else newline
    return text[:place] + gap + entry + (newline if not gap else "") + text[place:]


def _step(mapping: Node) -> int:
    """The indentation of the file: that of the first mapping inside, else two."""
    for value in mapping.children[1::2]:
        if value.kind == "mapping" and not value.flow and value.children and value.column > mapping.column:
            return value.column - mapping.column
    return 2


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text[: _line_end(text, 0)] else "\n"
