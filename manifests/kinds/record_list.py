"""RecordList: many plain record sets of one zone in one document, so that manifests can hold a zone of 100,000 names.

The model keeps the names as plain YAML values: a model for each record would cost more time and memory than everything else.
`resolve/record_list.py` checks each of them, with its place.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from manifests.kinds.base import Manifest, Model
from manifests.kinds.record import TYPE_NUMBER
from manifests.types import record_types
from manifests.types.durations import MINUTE, Duration
from manifests.types.fields import TTL, Name, Shown, ZoneName

_TEXTS = {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
_RECORDS = {
    "oneOf": [
        *_TEXTS["oneOf"],
        {
            "type": "object",
            "properties": {"ttl": {"type": "string"}, "values": _TEXTS},
            "required": ["values"],
            "additionalProperties": False,
        },
    ]
}
_NAMES = WithJsonSchema(
    {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "type": "object",
            "minProperties": 1,
            "properties": dict.fromkeys(record_types.TYPES, _RECORDS),
            "patternProperties": {TYPE_NUMBER: _RECORDS},
            "additionalProperties": False,
        },
    }
)


class RecordListSpec(Model):
    """A zone, and names with their records."""

    provider: Name | None = Field(None, description="Name of the DNS provider; by default the only one.")
    zone: ZoneName = Field(description="Zone that holds the names.")
    ttl: TTL = Field(Duration(5 * MINUTE), description="Time to live of records that have none of their own.")
    names: Annotated[
        dict[str, Any],
        Field(min_length=1),
        Shown(
            "mapping of DNS name to a mapping of type to a value, a list of values, or a mapping with ttl and values"
        ),
        _NAMES,
    ] = Field(
        description="The records, such as `www.example.com: {A: 192.0.2.1}` or `mail.example.com: {A: {ttl: 1m, values: "
        "[192.0.2.1, 192.0.2.2]}}`. Names are absolute, with or without a final dot; types and values are those of a Record.",
    )
    adopt: bool = Field(
        False,
        description="Takes over existing records of these names and types that no instance owns. An equal one only gets an owner mark; one with "
        "another value or TTL is changed after an operator has approved that.",
    )


class RecordList(Manifest):
    """Many static record sets of one zone. Record sets that leave the list are removed from the zone, within the limits of the Guard."""

    kind: Literal["RecordList"] = Field(description="Kind of the object.")
    spec: RecordListSpec = Field(description="Desired state of the object.")
