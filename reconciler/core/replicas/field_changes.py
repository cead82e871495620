"""Fields of values as a manifest names them, and the fields in which two values differ, for the readers of a plan and of the audit.

`template_changes` makes the names of templates, `setting_changes` those of everything else, `runtime_changes` compares what runs;
`forecast` and `shell/report/origins` ask for the changes.
"""

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

SECRET = "(secret)"  # noqa: S105  (a word, not a password)
"""Stands for whatever names a secret."""

ABSENT = "(none)"

SET = "(set)"
"""Stands for the value of a variable of which only the name is shown."""

NOT_KNOWN = "(not known)"
"""Stands for a value that neither the ledger nor the runtime shows."""


class Effect(StrEnum):
    """What it takes until running containers have the new value of a field."""

    NEW_CONTAINER = "new-container"
    IN_PLACE = "in-place"
    NO_CONTAINER = "no-container"
    NONE = ""

    @property
    def text(self) -> str:
        """The effect in a few words; empty for fields that are not about containers."""
        return _TEXTS[self]


_TEXTS = {
    Effect.NEW_CONTAINER: "forces a new container",
    Effect.IN_PLACE: "updated in place",
    Effect.NO_CONTAINER: "no new container",
    Effect.NONE: "",
}


class FieldChange(NamedTuple):
    """One field with its values as text; `where` is `file:line:column` of the new value, empty while it is not known."""

    field: str
    before: str
    after: str
    effect: Effect = Effect.NONE
    where: str = ""


class Flat(NamedTuple):
    """The fields of one value: all of them, and the names of those that do not have their defaults."""

    values: Mapping[str, Any]
    given: frozenset[str]


EMPTY = Flat({}, frozenset())
"""The fields of a value that is not there."""


def flat(values: Iterable[tuple[str, Any]], given: Iterable[str]) -> Flat:
    """Fields by name, without those that are empty."""
    known = {name: value for name, value in values if value not in (None, "", [], {})}
    return Flat(known, frozenset(given) & known.keys())


def differing(before: Flat, after: Flat) -> list[tuple[str, str, str]]:
    """(name, before, after) of the fields that differ, in the order of their names.

    A part that only one side has, such as a probe, is listed with the fields that it gives, and without all its defaults.
    """
    names = sorted(before.given | after.given)
    pairs = ((name, before.values.get(name), after.values.get(name)) for name in names)
    return [(name, *_shown_pair(old, new)) for name, old, new in pairs if old != new]


def _shown_pair(before: Any, after: Any) -> tuple[str, str]:
    texts = shown(before), shown(after)
    return (SECRET, f"another {SECRET}") if texts == (SECRET, SECRET) else texts


def shown(value: Any) -> str:
    """A value as text; references to secrets are not shown."""
    if value is None:
        return ABSENT
    text = value if isinstance(value, str) else json.dumps(value)
    return SECRET if text.startswith(SECRET) else text


def camel(name: str) -> str:
    """A name of the code as a manifest writes it."""
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def secret(reference: Any) -> str:
    """A reference to a secret: it counts for the difference, and `shown` hides it."""
    return f"{SECRET}{json.dumps(reference, sort_keys=True)}"
