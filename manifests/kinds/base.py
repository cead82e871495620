"""The base of all kinds: strict, frozen models with Kubernetes-style field names, and the frame of a manifest.

`validate.py` checks documents with the models; `docs/schema.py` (JSON Schema for editors) and `docs/reference.py` (generated
pages) show them. Every field has a description: all three show it.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from manifests.types.errors import bad_value
from manifests.types.fields import Argument, Items, Name

API_VERSION = "reconciler/v1"


class Model(BaseModel):
    """A part of a manifest. Unknown keys are errors; nothing is converted between types; values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel, defer_build=True)


class Metadata(Model):
    """The name of an object."""

    name: Name = Field(description="Name of the object, unique among the objects of its kind.")


class Manifest(Model):
    """The frame of every manifest. Subclasses narrow `kind` and add `spec`."""

    api_version: Literal["reconciler/v1"] = Field(description="Version of the manifest format.")
    kind: str = Field(description="Kind of the object.")
    metadata: Metadata = Field(description="The name of the object.")

    @property
    def key(self) -> str:
        """The identity of the object: its kind in lower case, a slash, its name."""
        return f"{self.kind.lower()}/{self.metadata.name}"


@dataclass(frozen=True, slots=True)
class Unique:
    """The check of `unique`. Environments merge the items of such a list by the same fields (`manifests/overlay/shape.py`)."""

    label: str
    fields: tuple[str, ...]
    name: str = ""

    def __call__(self, items: tuple[object, ...]) -> tuple[object, ...]:
        """The items; an error for the first that is in the list twice."""
        if len(items) < 2:
            return items
        values: set[object] = set()
        for index, item in enumerate(items):
            value = tuple(getattr(item, field) for field in self.fields) if self.fields else item
            if value in values:
                raise bad_value(f"this {self.label} is in the list twice", "remove one of the two", at=(index,))
            values.add(value)
        return items


def unique(label: str, *fields: str, name: str = "") -> AfterValidator:
    """A check that no two items of a list have the same `fields` (or are equal when none is given). `label` names an item.

    `name`: a further field by which an environment may name an item; another check keeps it unique.
    """
    return AfterValidator(Unique(label, fields, name))


def _has_program(command: tuple[str, ...]) -> tuple[str, ...]:
    if command and command[0]:
        return command
    raise bad_value("the command has no program", 'write [program, argument, …], such as ["python3", "server.py"]')


Command = Annotated[Items[Argument], AfterValidator(_has_program)]
"""A program and its arguments, never a shell command line."""
