"""Names, addresses and texts of records in the canonical spelling that looks at zones have too. Pure.

So desired and observed values can be compared as strings. `record_types.py` makes the values of all record types from these.
"""

import ipaddress
import re

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
    return " ".join(map(quoted, pieces))


def quoted(octets: bytes) -> str:
    """One character-string in quotes, with the escapes of zone files."""
    return '"' + "".join(map(_octet, octets)) + '"'


def caa_tag(text: str) -> str:
    """The property of a CAA record, in lower case (RFC 8659 section 4.1). Raises `ValueError`."""
    if not _TAG.fullmatch(text.lower()):
        raise ValueError(f"'{text[:40]}' is not the tag of a CAA record; use issue, issuewild or iodef")
    return text.lower()


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


def ipv4(text: str) -> str:
    """An IPv4 address. Raises `ValueError`."""
    if _IPV4.fullmatch(text):
        return text
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError(f"'{text[:80]}' is not an IPv4 address") from None


def ipv6(text: str) -> str:
    """An IPv6 address in its shortest form. Raises `ValueError`."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise ValueError(f"'{text[:80]}' is not an IPv6 address") from None
    if address.scope_id is not None:
        raise ValueError(f"'{text[:80]}' has a scope, which a record cannot hold")
    return str(address)
