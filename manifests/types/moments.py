"""Points in time in manifests (RFC 3339). Types for `kinds/rollout.py`."""

import re
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from manifests.types.errors import bad_value, wrong_type
from manifests.types.fields import Shown
from manifests.values.desired import SECOND
from manifests.values.rollouts import format_moment

_RFC3339 = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})?", re.ASCII)
_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_EXAMPLE = "write a time such as 2030-01-31T22:00:00+01:00, or with Z for UTC"


class Moment(int):
    """A wall-clock instant in nanoseconds since the epoch; it prints in RFC 3339, in UTC."""

    __slots__ = ()

    def __str__(self) -> str:
        return format_moment(self)

    __repr__ = __str__


def parse_moment(value: object) -> Moment:
    """An instant of RFC 3339 with its offset: without one its meaning depends on the machine."""
    if isinstance(value, Moment):
        return value
    if not isinstance(value, str):
        raise wrong_type("a time such as 2030-01-31T22:00:00+01:00", value)
    match = _RFC3339.fullmatch(value)
    if match is None:
        raise bad_value(f"'{value[:40]}' is not a time of RFC 3339", _EXAMPLE)
    day, time, decimals, offset = match.groups()
    if offset is None:
        raise bad_value(f"'{value}' has no offset from UTC", _EXAMPLE)
    try:
        at = datetime.fromisoformat(f"{day}T{time}{'+00:00' if offset in 'Zz' else offset}")
        whole = (at - _EPOCH) // timedelta(seconds=1)
    except (ValueError, OverflowError) as error:
        raise bad_value(f"'{value}' is not a valid date and time", _EXAMPLE) from error
    if whole <= 0:
        raise bad_value(f"'{value}' is before 1970", _EXAMPLE)
    return Moment(whole * SECOND + int((decimals or ".0")[1:].ljust(9, "0")))


MomentField = Annotated[
    Moment,
    PlainValidator(parse_moment),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": _PATTERN}),
    Shown("time with offset, RFC 3339"),
]
