"""Merges the documents of an environment over those of the base, object by object. Called by `load.py` and `places.py`.

An object is identified by kind and name; an Instance and a Guard by their kind, because a set has one of each and an environment may rename it.
The cost is one look into a table for each document of the base, and a merge for each of the environment.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from manifests.kinds.validate import unknown_kind
from manifests.overlay.merge import added, merged
from manifests.problems import Code, Problem, did_you_mean, key_path, suggest
from manifests.yaml.read import Document

Key = tuple[str, str]

SINGLE = frozenset({"Instance", "Guard"})
"""Kinds of which a set has one object."""


def key_of(value: Any) -> Key | None:
    """What identifies the object of a document; None when it has no kind or name, so that it is checked as it is."""
    if not isinstance(value, dict):
        return None
    kind, metadata = value.get("kind"), value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(kind, str) or not isinstance(name, str):
        return None
    return kind, "" if kind in SINGLE else name


def overlaid(base: Sequence[Document], overlay: Sequence[Document]) -> tuple[list[Document], list[Problem]]:
    """The documents of the base with those of an environment merged over them, and the problems of the environment.

    In the order of the base; then the objects that only the environment has. Documents that identify no object are left as they are: the
    check of all documents reports them.
    """
    problems: list[Problem] = []
    changes: dict[Key, Document] = {}
    unidentified: list[Document] = []
    for document in overlay:
        key = key_of(document.value)
        if key is None or not isinstance(document.value, dict) or unknown_kind(document, document.value) is not None:
            unidentified.append(document)
        elif key in changes:
            problems.append(_twice(document, changes[key]))
        else:
            changes[key] = document
            problems += _without_effect(document) if _removes(document) else ()
    if not changes:
        return [*base, *unidentified], problems
    result: list[Document] = []
    seen: set[Key] = set()
    for document in base:
        key = key_of(document.value)
        change = changes.get(key) if key is not None else None
        if key is None or change is None:
            result.append(document)
        elif _removes(change):
            seen.add(key)  # also a second one of this name
        elif key in seen:
            result.append(document)
        else:
            seen.add(key)
            both, wrong = merged(document, change)
            problems += wrong
            result.append(both)
    rest = {key: change for key, change in changes.items() if key not in seen}
    if rest:
        names = _names(base)
        for (kind, name), change in rest.items():
            known = names.get(kind, [])
            if _removes(change):
                problems.append(_not_there(change, kind, name, known))
                continue
            guess = suggest(name, known) if name else ""
            note = f"the base has no {kind.lower()}/{name}: did you mean {kind.lower()}/{guess}?" if guess else ""
            result.append(added(change, note))
    return [*result, *unidentified], problems


def _removes(document: Document) -> bool:
    """Whether a document of an environment removes its object: its `spec` is null."""
    return isinstance(document.value, dict) and document.value.get("spec", document) is None


def _without_effect(document: Document) -> Iterator[Problem]:
    """The fields beside the name of an object that is removed."""
    value: Any = document.value
    paths: list[tuple[str, ...]] = [(name,) for name in value if name not in ("apiVersion", "kind", "metadata", "spec")]
    paths += [("metadata", name) for name in value["metadata"] if name != "name"]
    for path in paths:
        where, shown = document.origin(path, key=True), key_path(path)
        message = f"{_subject(document)}: {shown}: the object is removed, so this does nothing"
        hint = "remove this field, or write a spec"
        yield Problem(where.file, where.line, where.column, Code.BAD_VALUE, shown, message, hint)


def _names(documents: Sequence[Document]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for document in documents:
        key = key_of(document.value)
        if key is not None:
            names.setdefault(key[0], []).append(key[1])
    return names


def _subject(document: Document) -> str:
    value: Any = document.value
    return f"{value['kind'].lower()}/{value['metadata']['name']}"


def _twice(document: Document, first: Document) -> Problem:
    message = f"{_subject(document)} is in this environment twice: the other is at {first.where}"
    where = document.where
    hint = "move the fields of both into one document"
    return Problem(where.file, where.line, where.column, Code.DUPLICATE_OBJECT, "", message, hint)


def _not_there(document: Document, kind: str, name: str, known: Sequence[str]) -> Problem:
    where = document.origin(("spec",), key=True)
    message = f"{_subject(document)}: the base has no such object to remove"
    hint = did_you_mean(name, known, f"each {kind} of the base") or "remove this document"
    return Problem(where.file, where.line, where.column, Code.NOTHING_TO_REMOVE, "spec", message, hint)
