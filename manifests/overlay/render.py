"""The merged documents as text: canonical YAML with the origin of each field beside it, or the same as values. Called by `reconcile render`.

Canonical: objects by kind and name, fields in the order of the reference, free keys by name, lists as they are, scalars in one spelling. So two
trees with the same result have the same text without its comments, and the text, read as manifests, gives itself.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from manifests.escape import escape
from manifests.kinds import KINDS
from manifests.overlay.shape import ANY, Shape, shape_of
from manifests.problems import Where, key_path
from manifests.yaml.core import KEYWORDS, KEYWORDS_1_1
from manifests.yaml.read import Document

Path = tuple[str | int, ...]

_PLAIN = re.compile(r"[A-Za-z_/][-A-Za-z0-9_./@+]*(?::[-A-Za-z0-9_./@+]+)*")
"""Texts that need no quotes in any version of YAML, unless they are keywords."""
_UNPRINTABLE = re.compile("[\x7f-\x9f\ufeff\ufffe\uffff\u2028\u2029]")


class Rendered(NamedTuple):
    """One object: its key, its value in canonical order, and where each of its scalars and empty values stands."""

    key: str
    value: dict[str, Any]
    origins: tuple[tuple[Path, Where], ...]


def rendered(documents: Sequence[Document]) -> list[Rendered]:
    """Valid documents, in canonical order."""
    order = {kind: number for number, kind in enumerate(KINDS)}

    def place(document: Document) -> tuple[int, str]:
        value: Any = document.value
        return order[value["kind"]], value["metadata"]["name"]

    return [_object(document) for document in sorted(documents, key=place)]


def _object(document: Document) -> Rendered:
    given: Any = document.value
    value = _ordered(given, shape_of(given["kind"]))
    origins = tuple((path, document.origin(path)) for path in _leaves(value, ()))
    return Rendered(f"{given['kind'].lower()}/{given['metadata']['name']}", value, origins)


def _ordered(value: Any, shape: Shape) -> Any:
    if isinstance(value, dict):
        known = [name for name in shape.fields if name in value]
        return {name: _ordered(value[name], shape.of(name)) for name in [*known, *sorted(value.keys() - {*known})]}
    if isinstance(value, list):
        return [_ordered(item, shape.item or ANY) for item in value]
    return value


def _leaves(value: Any, path: Path) -> Iterator[Path]:
    """The paths of all scalars and empty containers."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path


def yaml_text(objects: Sequence[Rendered]) -> str:
    """All objects as documents of YAML; each scalar has `# FILE:LINE` beside it."""
    return "---\n".join(_yaml(item) for item in objects)


def _yaml(item: Rendered) -> str:
    origins = dict(item.origins)
    lines: list[str] = []
    _mapping(item.value, (), "", origins, lines)
    return "".join(f"{line}\n" for line in lines)


def _mapping(value: dict[str, Any], path: Path, indent: str, origins: dict[Path, Where], lines: list[str]) -> None:
    for key, inner in value.items():
        _entry(f"{indent}{_scalar(key)}:", inner, (*path, key), f"{indent}  ", origins, lines)


def _entry(head: str, value: Any, path: Path, indent: str, origins: dict[Path, Where], lines: list[str]) -> None:
    """A key, or the dash of an item, with its value."""
    if isinstance(value, dict) and value:
        if head.endswith("-"):
            first = len(lines)
            _mapping(value, path, indent, origins, lines)
            lines[first] = f"{head} {lines[first].removeprefix(indent)}"
            return
        lines.append(head)
        _mapping(value, path, indent, origins, lines)
    elif isinstance(value, list) and value:
        lines.append(head)
        inside = indent if head.endswith("-") else indent.removesuffix("  ")
        for index, inner in enumerate(value):
            _entry(f"{inside}-", inner, (*path, index), f"{inside}  ", origins, lines)
    else:
        where = origins[path]
        lines.append(f"{head} {_scalar(value)}  # {escape(where.file)}:{where.line}")


def _scalar(value: Any) -> str:
    """A scalar or an empty container, as YAML 1.2 and 1.1 read it alike."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value not in KEYWORDS and value not in KEYWORDS_1_1:
        return value
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def origins_json(item: Rendered) -> dict[str, dict[str, str | int]]:
    """Where each scalar of an object stands, by its path, such as `spec.replicas`."""
    return {
        key_path(path): {"file": where.file, "line": where.line, "column": where.column} for path, where in item.origins
    }
