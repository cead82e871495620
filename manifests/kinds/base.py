"""What all kinds share: strict, frozen models with Kubernetes-style field names, and the frame of a manifest.

Read by `validate.py` (checks documents), `schema.py` (JSON Schema for editors) and `reference.py` (the generated docs).
Every field has a description: it is shown in all three places.
"""

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
    """What names an object."""

    name: Name = Field(description="Name of the object, unique among the objects of its kind.")


class Manifest(Model):
    """The frame of every manifest. Subclasses narrow `kind` and add `spec`."""

    api_version: Literal["reconciler/v1"] = Field(description="Version of the manifest format.")
    kind: str = Field(description="What the document declares.")
    metadata: Metadata = Field(description="The name of the object.")

    @property
    def key(self) -> str:
        """The identity of the object: its kind in lower case, a slash, its name."""
        return f"{self.kind.lower()}/{self.metadata.name}"


def unique(what: str, *fields: str) -> AfterValidator:
    """A check that no two items of a list are the same in `fields` (the items themselves when none is given)."""

    def check(items: tuple[object, ...]) -> tuple[object, ...]:
        if len(items) < 2:
            return items
        seen: set[object] = set()
        for index, item in enumerate(items):
            value = tuple(getattr(item, field) for field in fields) if fields else item
            if value in seen:
                raise bad_value(f"this {what} is in the list twice", at=(index,))
            seen.add(value)
        return items

    return AfterValidator(check)


def _has_program(command: tuple[str, ...]) -> tuple[str, ...]:
    if command and command[0]:
        return command
    raise bad_value(
        "a command needs a program to run", 'write [program, argument, …], such as ["python3", "server.py"]'
    )


Command = Annotated[Items[Argument], AfterValidator(_has_program)]
"""A program and its arguments: never a line for a shell."""
