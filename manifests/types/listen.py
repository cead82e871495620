"""Addresses that a listener of the Instance listens on: `ADDRESS:PORT`. Used by the kinds with a listener."""

from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from manifests.types.errors import bad_value
from manifests.types.fields import Shown


def split_address(value: str) -> tuple[str, int]:
    """The address and port of `ADDRESS:PORT`, of `[ADDRESS]:PORT` for IPv6. Raises a bad-value error."""
    address, _, port = value.rpartition(":")
    bracketed = address.startswith("[") and address.endswith("]")
    hint = "write ADDRESS:PORT, such as 127.0.0.1:9902 or '[::1]:9902'"
    try:
        parsed = ip_address(address[1:-1] if bracketed else address)
    except ValueError:
        raise bad_value(f"'{value[:60]}' has no IP address before its port", hint) from None
    if bracketed != (parsed.version == 6):
        raise bad_value(f"'{value[:60]}': brackets go around IPv6 addresses only", hint)
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65_535):
        raise bad_value(f"'{value[:60]}' has no port from 1 to 65535", hint)
    return str(parsed), int(port)


SPELLING = WithJsonSchema({"type": "string", "pattern": "^(\\[[0-9a-fA-F:.]+\\]|[0-9.]+):[0-9]{1,5}$"})
"""The schema of such an address."""


def _address(value: str) -> str:
    split_address(value)
    return value


ListenAny = Annotated[
    str,
    AfterValidator(_address),
    SPELLING,
    Shown("IP address and port"),
]
