"""Ports, addresses, DNS names and the parts of an HTTP request in manifests."""

import ipaddress
import re

from manifests.types.errors import bad_value, out_of_range, wrong_type

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_SERVICE_NAME = re.compile(r"(?=.*[a-z])[a-z0-9](?:-?[a-z0-9])*")
_IDNA_DEVIATIONS = frozenset("\u00df\u03c2\u200c\u200d")
"""Characters that IDNA 2003 and IDNA 2008 (RFC 3490, RFC 5891) turn into different names."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]{0,4096}")
_URL_PATH = re.compile(r"/[\x21-\x7e]{0,4095}")


def port_name(value: str) -> str:
    """A service name as in RFC 6335, section 5.1: at most 15 characters, at least one letter."""
    if len(value) <= 15 and _SERVICE_NAME.fullmatch(value):
        return value
    raise bad_value(
        f"'{value[:40]}' is not a port name",
        "use at most 15 of a-z, 0-9 and single '-', with at least one letter, such as http",
    )


def port_ref(value: object) -> int | str:
    """A port number, or the name of a port."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong_type("a port number or the name of a port", value)
    if isinstance(value, str):
        if value.isascii() and value.isdigit():
            raise wrong_type("a port number or the name of a port", value, f"write {value} without quotes")
        return port_name(value)
    if 1 <= value <= 65535:
        return value
    raise out_of_range("must be between 1 and 65535")


def ip_address(value: str) -> str:
    """An IPv4 or IPv6 address in its canonical form (RFC 5952), without a scope."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        raise bad_value(
            f"'{value[:80]}' is not an IP address", "write an address such as 203.0.113.10 or 2001:db8::10"
        ) from None
    if address.is_unspecified or address.is_multicast or "%" in value:
        raise bad_value(
            f"'{value}' is not an address that clients can reach", "write a unicast address without a scope"
        )
    return str(address)


def _ascii_label(label: str, whole: str) -> str:
    if not label.isascii():
        if not _IDNA_DEVIATIONS.isdisjoint(label):
            raise bad_value(
                f"'{whole[:80]}' is ambiguous: IDNA 2003 and 2008 encode it differently",
                "write that label in its xn-- form",
            )
        try:
            label = label.encode("idna").decode("ascii")
        except UnicodeError:
            raise bad_value(
                f"'{whole[:80]}' cannot be encoded as a DNS name", "write its labels in their xn-- form"
            ) from None
    label = label.lower()
    if len(label) > 63 or not _LABEL.fullmatch(label):
        raise bad_value(
            f"'{whole[:80]}' is not a host name",
            "write labels of a-z, 0-9 and '-' with dots between them, such as app.example.com",
        )
    return label


def host_name(value: str) -> str:
    """A DNS name in lower case with a final dot, labels in their ASCII form; the first label may be `*`."""
    if not 0 < len(value.removesuffix(".")) <= 1000:
        raise bad_value("a host name must have 1 to 253 characters")
    first, dot, rest = value.removesuffix(".").partition(".")
    wild = first == "*" and bool(dot)
    labels = (rest if wild else value.removesuffix(".")).split(".")
    name = ("*." if wild else "") + ".".join(_ascii_label(label, value) for label in labels) + "."
    if len(name) > 254:
        raise out_of_range(f"'{value[:60]}…' has more than 253 characters, the limit of a DNS name")
    return name


def zone_name(value: str) -> str:
    """The name of a zone: a host name without a wildcard."""
    if value.startswith("*"):
        raise bad_value(f"'{value[:80]}' is a wildcard, not a name", "write a name without *")
    return host_name(value)


def header_name(value: str) -> str:
    """A token as in RFC 9110, section 5.6.2."""
    if _HEADER_NAME.fullmatch(value):
        return value
    raise bad_value(f"'{value[:80]!s}' is not the name of an HTTP header".replace("\n", "\\n").replace("\r", "\\r"))


def header_value(value: str) -> str:
    """A header value without line breaks, so that it cannot add another header."""
    if _HEADER_VALUE.fullmatch(value):
        return value
    raise bad_value("a header value must have at most 4096 printable ASCII characters and no line breaks")


def url_path(value: str) -> str:
    """The path and query of a request, as sent."""
    if _URL_PATH.fullmatch(value):
        return value
    hint = "percent-encode other characters"
    if re.fullmatch(r"[\x21-\x7e]+", value) and value[0] != "/":
        hint = f"write '/{value}'"
    raise bad_value("an HTTP path must start with '/' and have only printable ASCII characters without spaces", hint)
