"""What differs between two templates of a workload, field by field, for the reader of a plan. Called by `forecast`.

The values are those of the manifests, under the names that a manifest gives them. Values of secrets are not known here, and what names
a secret is only said to have changed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from manifests.values.desired import SECOND, Template
from reconciler.core.model import value_json

SECRET = "(secret)"  # noqa: S105  (a word, not a password)
"""Stands for whatever names a secret."""

ABSENT = "(none)"

_NAMES = {
    "argv": "command",
    "liveness": "livenessProbe",
    "readiness": "readinessProbe",
    "startup": "startupProbe",
    "number": "containerPort",
    "grace": "terminationGracePeriodSeconds",
    "secret_env": "env",
    "live": "resources",
}
"""Fields of values that a manifest calls otherwise; all others differ in their capitals only."""

_DURATIONS = frozenset({"grace", "initial_delay", "period", "timeout"})

_INNER = frozenset({"revision", "hash_version", "files", "single"})
"""Fields that are made from the others; and the files of a volume, which `file_diffs` compares with their contents."""

_PAIRS = frozenset({"labels", "env", "headers", "secret_env", "log_options"})
"""Lists of (name, value)."""


class FieldChange(NamedTuple):
    """One field with its values as text."""

    field: str
    before: str
    after: str


def changes(before: Template, after: Template) -> tuple[FieldChange, ...]:
    """The fields that differ, in the order of their names."""
    old, new = (dict(_flat(json.loads(value_json.write(template)), ())) for template in (before, after))
    fields = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return tuple(FieldChange(name, *_shown_pair(old.get(name), new.get(name))) for name in fields)


def _shown_pair(before: Any, after: Any) -> tuple[str, str]:
    texts = _shown(before), _shown(after)
    return (SECRET, f"another {SECRET}") if texts == (SECRET, SECRET) else texts


def _shown(value: Any) -> str:
    if value is None:
        return ABSENT
    text = value if isinstance(value, str) else json.dumps(value)
    return SECRET if text.startswith(SECRET) else text


def _flat(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Every field below a value as (its name in a manifest, its value)."""
    for name, inner in value.items():
        if name in _INNER:
            continue
        if name == "container":
            yield from _container(inner, path)
        elif name == "sidecars":
            for sidecar in inner:
                yield from _container(sidecar, path)
        elif name == "engine":
            yield from _flat(inner, path)
        elif name in _PAIRS:
            yield from _pairs(name, inner, path)
        elif isinstance(inner, Mapping):
            yield from _flat(inner, (*path, _name(name)))
        elif (
            isinstance(inner, list) and inner and all(isinstance(item, Mapping) and item.get("name") for item in inner)
        ):
            for item in inner:
                yield from _flat(item, (*path, f"{_name(name)}[{item['name']}]"))
        elif inner not in (None, "", [], 0, False):
            shown = f"{inner / SECOND:g}s" if name in _DURATIONS else inner
            yield ".".join((*path, _name(name))), shown


def _container(container: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    yield from _flat(container, (*path, f"containers[{container['name']}]"))


def _pairs(name: str, pairs: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) < 2:
            yield ".".join((*path, _name(name))), pairs
            return
        key, value = pair[0], pair[1]
        secret = name == "secret_env" or not isinstance(value, str)
        # What names the secret counts for the difference and is not shown.
        yield ".".join((*path, f"{_name(name)}[{key}]")), f"{SECRET}{json.dumps(value)}" if secret else value


def _name(name: str) -> str:
    return _NAMES.get(name) or re.sub(r"_(\w)", lambda match: match[1].upper(), name)
