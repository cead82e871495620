"""Values that only probes have: server names and HTTP statuses. Used by `kinds/probe.py` and `kinds/health_check.py`."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema

from manifests.types import network
from manifests.types.errors import bad_value, out_of_range, wrong_type
from manifests.types.fields import Shown

_RANGE = re.compile(r"([0-9]{3})(?:-([0-9]{3}))?", re.ASCII)
_FIRST, _LAST = 200, 599
_LARGEST_BODY = 64 * 1024

REDIRECTS = (301, 302, 303, 307, 308)
"""Statuses that redirect to another URL (RFC 9110, section 15.4)."""


def server_name(value: str) -> str:
    """A DNS name without its final dot, or an address, for the Host header and the TLS server name."""
    if ":" in value or value.replace(".", "").isdigit():
        return network.ip_address(value)
    if "*" in value:
        raise bad_value(f"'{value[:80]}' is a wildcard, and a request needs one host", "write the full name")
    return network.host_name(value).removesuffix(".")


def status_range(value: object) -> tuple[int, int]:
    """`204` or `"200-299"` as the first and last status of a range."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong_type('a status such as 204, or a range such as "200-299"', value)
    match = _RANGE.fullmatch(str(value))
    if match is None:
        raise bad_value(f"'{str(value)[:40]}' is not a status or a range of statuses", 'write 204 or "200-299"')
    low, high = int(match[1]), int(match[2] or match[1])
    if not _FIRST <= low <= high <= _LAST:
        raise out_of_range(f"must be between {_FIRST} and {_LAST}, and a range must start with the lower status")
    return low, high


ServerName = Annotated[str, AfterValidator(server_name), Shown("DNS name or address")]

StatusRange = Annotated[
    tuple[int, int],
    PlainValidator(status_range),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "integer", "minimum": _FIRST, "maximum": _LAST},
                {"type": "string", "pattern": "^[2-5][0-9]{2}(-[2-5][0-9]{2})?$"},
            ]
        }
    ),
    Shown('status such as 204, or range such as "200-299"'),
]

BodyBytes = Annotated[int, Field(ge=0, le=_LARGEST_BODY), Shown("number of bytes, 0 to 65536")]
"""`maxBodyBytes`: Kubernetes reads 10 KiB (pkg/probe/http, maxRespBodyLength)."""
