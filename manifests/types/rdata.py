"""Record values of manifests in the canonical spelling that looks at zones have too. Pure.

So desired and observed values can be compared as strings. Providers have the same spelling for every record type
(`providers/dns/common/canonical.py`); this module has the types that manifests may declare, without a DNS library. A test
compares the two.
"""

import ipaddress
import re
from collections.abc import Callable

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
"""Canonical addresses: a zone may have 100,000, and this is several times as fast as `ipaddress`."""

_TAG = re.compile(r"[a-z0-9]{1,15}")
_IDNA_DEVIATIONS = frozenset("\u00df\u03c2\u200c\u200d")
"""Characters whose A-label differs between the two versions of IDNA (UTS 46 section 7)."""

MAX_NAME = 254
"""Characters of a name with its final dot (RFC 1035 section 2.3.4)."""

CHUNK = 255
"""Octets in one character-string of a TXT record (RFC 1035 section 3.3)."""

MAX_TEXT = 60_000
"""Octets of one TXT value: with its owner and the lengths of its pieces it must fit into a record (RFC 1035 section 3.2.1)."""


def record_name(text: str) -> str:
    """An owner name or target: absolute with or without final dot, lower case, A-labels; `_x` labels and a first `*` are legal.

    Raises:
        ValueError: the text is not a DNS name.
    """
    if text == ".":
        return text
    labels = text.removesuffix(".").split(".")
    wild = labels[0] == "*" and len(labels) > 1
    canonical = [_label(label, text) for label in labels[wild:]]
    name = ".".join(["*", *canonical] if wild else canonical) + "."
    if len(name) > MAX_NAME:
        raise ValueError(f"'{text[:60]}…' has more than 253 characters, the limit of a DNS name")
    return name


def txt(text: str) -> str:
    """A text of any length as the value of a TXT record: quoted, in pieces of at most 255 octets of its UTF-8.

    Raises:
        ValueError: the text is too long for a record.
    """
    raw = text.encode()
    if len(raw) > MAX_TEXT:
        raise ValueError(
            f"the value has {len(raw)} octets and does not fit into a record; at most {MAX_TEXT} are allowed"
        )
    pieces = [raw[start : start + CHUNK] for start in range(0, len(raw), CHUNK)] or [b""]
    return " ".join('"' + "".join(map(_octet, piece)) + '"' for piece in pieces)


def mx(preference: int, exchange: str) -> str:
    """A mail server (RFC 1035 section 3.3.9): preference 0 to 65535. Raises `ValueError`."""
    return f"{_number(preference, 65_535, 'preference')} {record_name(exchange)}"


def srv(priority: int, weight: int, port: int, target: str) -> str:
    """A service location (RFC 2782): three numbers 0 to 65535, and a name or `.`. Raises `ValueError`."""
    numbers = ((priority, "priority"), (weight, "weight"), (port, "port"))
    return " ".join(_number(number, 65_535, label) for number, label in numbers) + f" {record_name(target)}"


def caa(flags: int, tag: str, value: str) -> str:
    """Who may issue certificates (RFC 8659 section 4.1): flags 0 to 255, tag in lower case, value as plain text. Raises `ValueError`."""
    if not _TAG.fullmatch(tag.lower()):
        raise ValueError(f"'{tag[:40]}' is not the tag of a CAA record; use issue, issuewild or iodef")
    if len(value.encode()) > CHUNK:
        raise ValueError("the value of a CAA record must have at most 255 octets")
    return f"{_number(flags, 255, 'flags')} {tag.lower()} {txt(value)}"


def value(kind: str, text: str) -> str:
    """The canonical value of a record of one of `TYPES`, from its spelling in a manifest.

    A TXT value is the text itself, without quotes. MX and SRV values are as in a zone file; the value of CAA may be in
    quotes.

    Raises:
        ValueError: the text is not a value of this type, or the type is none of `TYPES`.
    """
    read = _READERS.get(kind)
    if read is None:
        raise ValueError(f"manifests cannot declare records of type {kind}; use {', '.join(TYPES)}")
    return read(text)


def _label(label: str, whole: str) -> str:
    if not _IDNA_DEVIATIONS.isdisjoint(label):
        raise ValueError(
            f"'{whole[:80]}' is ambiguous: IDNA 2003 and 2008 encode it differently; write that label in its xn-- form"
        )
    try:
        plain = label.lower() if label.isascii() else label.encode("idna").decode("ascii").lower()
    except UnicodeError as error:
        raise ValueError(f"'{whole[:80]}' cannot be encoded as a DNS name") from error
    if not _LABEL.fullmatch(plain):
        raise ValueError(f"'{whole[:80]}' is not a DNS name: labels must have 1 to 63 of a-z, 0-9, '-' and '_'")
    return plain


def _octet(octet: int) -> str:
    if octet in b'"\\':
        return "\\" + chr(octet)
    return chr(octet) if 0x20 <= octet < 0x7F else f"\\{octet:03d}"


def _number(number: int, most: int, label: str) -> str:
    if not 0 <= number <= most:
        raise ValueError(f"{label} must be a number from 0 to {most}, not {number}")
    return str(number)


def _parts(kind: str, text: str, shape: str) -> list[str]:
    parts = text.split(None, len(shape.split()) - 1)
    if len(parts) != len(shape.split()):
        raise ValueError(f"'{text[:80]}' is not a value of type {kind}; write: {shape}")
    return parts


def _integer(text: str, label: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ValueError(f"{label} must be a number, not '{text[:40]}'")
    return int(text)


def _ipv4(text: str) -> str:
    if _IPV4.fullmatch(text):
        return text
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError(f"'{text[:80]}' is not an IPv4 address") from None


def _ipv6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise ValueError(f"'{text[:80]}' is not an IPv6 address") from None
    if address.scope_id is not None:
        raise ValueError(f"'{text[:80]}' has a scope, which a record cannot hold")
    return str(address)


def _mx(text: str) -> str:
    preference, exchange = _parts("MX", text, "PREFERENCE NAME")
    return mx(_integer(preference, "preference"), exchange)


def _srv(text: str) -> str:
    priority, weight, port, target = _parts("SRV", text, "PRIORITY WEIGHT PORT NAME")
    return srv(_integer(priority, "priority"), _integer(weight, "weight"), _integer(port, "port"), target)


def _caa(text: str) -> str:
    flags, tag, rest = _parts("CAA", text, "FLAGS TAG VALUE")
    quoted = len(rest) >= 2 and rest[0] == rest[-1] == '"'
    return caa(_integer(flags, "flags"), tag, rest[1:-1] if quoted else rest)


_READERS: dict[str, Callable[[str], str]] = {
    "A": _ipv4,
    "AAAA": _ipv6,
    "CAA": _caa,
    "CNAME": record_name,
    "DNAME": record_name,
    "MX": _mx,
    "NS": record_name,
    "PTR": record_name,
    "SRV": _srv,
    "TXT": txt,
}

TYPES = tuple(_READERS)
"""The types that manifests may declare."""
