"""Edits of one document in the text of its file: only the edited scalars change, every other byte stays.

A YAML writer would reformat the whole file, so new text is inserted at the positions from the parser (`text.py`). Edits of
anchors, merge keys and multi-line strings are refused. At the end the new text is read again: it must hold exactly the
requested values. Called by `reconcile deploy`.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from manifests.yaml.read import Document, read_file
from manifests.yaml.text import BOM, Node, Refused, parse, with_entry, with_key, with_scalar

Path = tuple[str | int, ...]
"""Keys and places in lists, from the document's root."""


class Put(NamedTuple):
    """Set the string at `path` to `value`. Missing keys are added, with the mappings on the way."""

    path: Path
    value: str


class Rename(NamedTuple):
    """Rename the key at `path` to `key` and set it to the string `value`; it keeps its place."""

    path: Path
    key: str
    value: str


Change = Put | Rename


def find(file: str, data: bytes, kind: str, name: str) -> Document | None:
    """The document of this kind and name in a file; None when there is none.

    Raises:
        Refused: the file cannot be read, or has the document twice.
    """
    documents, problems = read_file(file, data)
    wrong = [problem for problem in problems if not problem.is_warning]
    if wrong:
        raise Refused(wrong[0].lines()[0], "correct the file; reconcile validate lists every problem")
    matching = [document for document in documents if _named(document.value, kind, name)]
    if len(matching) > 1:
        raise Refused(f"{file} has {kind} '{name}' twice", "remove one of the two")
    return matching[0] if matching else None


def edit(file: str, data: bytes, kind: str, name: str, changes: Sequence[Change]) -> bytes:
    """The content of a file after changes to one document.

    Args:
        file: its name, for messages.
        data: its whole content.
        kind: kind of the document.
        name: name of the document.
        changes: applied in this order. A `Put` of the current value changes nothing.

    Raises:
        Refused: the document does not exist, or the change would affect other values.
    """
    before = find(file, data, kind, name)
    if before is None:
        raise Refused(f"there is no {kind} '{name}' in {file}", "name the file that declares it")
    text = data.decode("utf-8")
    head = BOM if text.startswith(BOM) else ""
    text = text.removeprefix(BOM)
    wanted = copy.deepcopy(before.value)
    for change in changes:
        old = copy.deepcopy(wanted)
        _apply(wanted, change)
        if wanted == old:
            continue
        try:
            text = _spliced(text, before.index, change)
        except Refused as refused:
            where = f"{file}: {kind} '{name}': {shown(change.path)}"
            raise Refused(f"{where}: {refused.cause}", refused.next_step) from None
    after = (head + text).encode("utf-8")
    _check(file, data, after, before.index, wanted)
    return after


def shown(path: Path) -> str:
    """A path as messages show it: `spec.template.spec.containers[0].image`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def _named(value: object, kind: str, name: str) -> bool:
    if not isinstance(value, dict) or value.get("kind") != kind:
        return False
    metadata = value.get("metadata")
    return isinstance(metadata, dict) and metadata.get("name") == name


def _apply(value: Any, change: Change) -> None:
    """Apply the change to the value that the new text must hold."""
    inner = value
    for part in change.path[:-1]:
        if isinstance(change, Put) and isinstance(inner, dict) and part not in inner:
            inner[part] = {}
        try:
            inner = inner[part]
        except (KeyError, IndexError, TypeError):
            raise Refused(f"the manifest has no {shown(change.path)}", "correct the manifest") from None
    last = change.path[-1]
    if not isinstance(inner, dict):
        raise Refused(f"{shown(change.path[:-1])} is not a mapping", "correct the manifest")
    if isinstance(change, Put):
        inner[last] = change.value
    elif last not in inner:
        raise Refused(f"the manifest has no {shown(change.path)}", "correct the manifest")
    else:
        del inner[last]
        inner[change.key] = change.value


def _spliced(text: str, index: int, change: Change) -> str:
    """The text after one change, which must differ from the current value."""
    root = parse(text)[index]
    parent, missing = _parent(root, change.path)
    if missing or change.path[-1] not in parent.names():
        if not isinstance(change, Put):
            raise Refused("the key comes from a merge key", "change it by hand")
        return with_entry(text, parent, (*missing, str(change.path[-1])), change.value)
    key, value = parent.entry(change.path[-1])
    text = with_scalar(text, value, change.value)
    return text if isinstance(change, Put) else with_key(text, key, change.key)


def _parent(root: Node, path: Path) -> tuple[Node, tuple[str, ...]]:
    """The deepest mapping on the way that exists in the text, and the missing keys between it and the last key."""
    node = root
    for step, part in enumerate(path[:-1]):
        node.check_plain()
        if isinstance(part, int):
            node = node.children[part]
        elif part in node.names():
            node = node.entry(part)[1]
        else:
            return node, tuple(str(key) for key in path[step:-1])
    node.check_plain()
    if node.kind != "mapping":
        raise Refused("the enclosing value is not a mapping", "change it by hand")
    return node, ()


def _check(file: str, before: bytes, after: bytes, index: int, wanted: object) -> None:
    """Raise Refused unless the new text holds the requested values, and unchanged values in all other documents."""
    old, _ = read_file(file, before)
    new, problems = read_file(file, after)
    values: Mapping[int, object] = {document.index: document.value for document in new}
    expected = {document.index: document.value for document in old} | {index: wanted}
    if any(not problem.is_warning for problem in problems) or values != expected:
        raise Refused(f"{file} would not hold the requested values after this edit", "change it by hand")
