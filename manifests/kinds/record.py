"""Record: one plain record set, so that manifests can hold a whole zone."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Manifest, Model
from manifests.types import rdata
from manifests.types.durations import MINUTE, Duration
from manifests.types.errors import bad_value
from manifests.types.fields import TTL, Items, Name, Shown, ZoneName

SINGLE = frozenset({"CNAME", "DNAME"})
"""Types of which a name has one value (RFC 1034 section 3.6.2, RFC 6672 section 2.4)."""


def _record_name(value: str) -> str:
    try:
        return rdata.record_name(value)
    except ValueError as error:
        raise bad_value(str(error)) from None


RecordName = Annotated[
    str, AfterValidator(_record_name), Shown("DNS name; labels may begin with _, the first may be *")
]


class RecordSpec(Model):
    """A name, a type and its values."""

    host: RecordName = Field(description="The name; absolute, with or without a final dot.")
    provider: Name | None = Field(None, description="Name of the DNS provider; by default the only one.")
    zone: ZoneName = Field(description="Zone that holds the name.")
    type: Literal["A", "AAAA", "CAA", "CNAME", "DNAME", "MX", "NS", "PTR", "SRV", "TXT"] = Field(
        description="Type of the records."
    )
    ttl: TTL = Field(Duration(5 * MINUTE), description="Time to live of the records.")
    values: Annotated[Items[str], Field(min_length=1)] = Field(
        description="Values as in a zone file, without quotes: an address, a name, `10 mail.example.com` for MX, "
        "`0 5 443 host.example.com` for SRV, `0 issue ca.example` for CAA, the text itself for TXT."
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
                canonical = rdata.value(self.type, value)
            except ValueError as error:
                raise bad_value(str(error), at=("values", index)) from None
            if canonical in values:
                raise bad_value("this value is in the list twice", "remove one of the two", at=("values", index))
            values.add(canonical)
        if self.type in SINGLE and len(self.values) > 1:
            raise bad_value(f"a name may have at most one {self.type}", "keep one value", at=("values",))
        return self

    def canonical(self) -> tuple[str, ...]:
        """The values in canonical spelling, sorted."""
        return tuple(sorted(rdata.value(self.type, value) for value in self.values))


class Record(Manifest):
    """One static record set."""

    kind: Literal["Record"] = Field(description="Kind of the object.")
    spec: RecordSpec = Field(description="Desired state of the object.")
