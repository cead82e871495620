"""Record: one plain record set, so that manifests can hold a whole zone."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from manifests.kinds.base import Manifest, Model
from manifests.types import rdata, record_types
from manifests.types.durations import MINUTE, Duration
from manifests.types.errors import bad_value
from manifests.types.fields import TTL, Items, Name, Shown, ZoneName


def _record_name(value: str) -> str:
    try:
        return rdata.record_name(value)
    except ValueError as error:
        raise bad_value(str(error)) from None


RecordName = Annotated[
    str, AfterValidator(_record_name), Shown("DNS name; labels may begin with _, the first may be *")
]


def _type_name(value: str) -> str:
    try:
        return record_types.type_name(value)
    except ValueError as error:
        raise bad_value(str(error)) from None


TYPE_NUMBER = r"^TYPE[1-9][0-9]{0,4}$"
"""Types without a name (RFC 3597 section 5), for editors; `record_types` has the exact rule."""

RecordTypeName = Annotated[
    str,
    AfterValidator(_type_name),
    Shown(f"{', '.join(record_types.TYPES)}, or `TYPE` and a number"),
    WithJsonSchema({"anyOf": [{"enum": list(record_types.TYPES)}, {"type": "string", "pattern": TYPE_NUMBER}]}),
]


class RecordSpec(Model):
    """A name, a type and its values."""

    host: RecordName = Field(description="The name; absolute, with or without a final dot.")
    provider: Name | None = Field(None, description="Name of the DNS provider; by default the only one.")
    zone: ZoneName = Field(description="Zone that holds the name.")
    type: RecordTypeName = Field(
        description="Type of the records; see [record types](#record-types). A type without a name is `TYPE` and its number."
    )
    ttl: TTL = Field(Duration(5 * MINUTE), description="Time to live of the records.")
    values: Annotated[Items[str], Field(min_length=1)] = Field(
        description="Values as in a zone file, see [record types](#record-types); a TXT value is the text itself, without quotes."
    )
    adopt: bool = Field(
        False,
        description="Takes over existing records of this name and type that no instance owns. An equal one only gets an owner mark; one with "
        "another value or TTL is changed after an operator has approved that.",
    )

    @model_validator(mode="after")
    def _fit(self) -> Self:
        values: set[str] = set()
        for index, value in enumerate(self.values):
            try:
                canonical = record_types.value(self.type, value)
            except ValueError as error:
                raise bad_value(str(error), at=("values", index)) from None
            if canonical in values:
                raise bad_value("this value is in the list twice", "remove one of the two", at=("values", index))
            values.add(canonical)
        if self.type in record_types.SINGLE and len(self.values) > 1:
            raise bad_value(f"a name may have at most one {self.type}", "keep one value", at=("values",))
        return self

    def canonical(self) -> tuple[str, ...]:
        """The values in canonical spelling, sorted."""
        return tuple(sorted(record_types.value(self.type, value) for value in self.values))


class Record(Manifest):
    """One static record set."""

    kind: Literal["Record"] = Field(description="Kind of the object.")
    spec: RecordSpec = Field(description="Desired state of the object.")
