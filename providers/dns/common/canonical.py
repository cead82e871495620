"""One spelling for each name and value, so that equal records compare equal. Used by everything that reads zone text.

Names are absolute and lower case. Addresses are in the shortest form. Values of all other types get dnspython's spelling,
with the names inside them in lower case where the type allows that (RFC 4034 section 6.2). Common types take a short way.
dnspython is imported where it is needed: checking the settings of a provider must not load it.
"""

import re
import socket
from functools import lru_cache
from ipaddress import IPv6Address

PLAIN_NAME = re.compile(r"(?:[a-z0-9_*-]{1,63}\.)+")
"""Names that need no escapes and no further look at their labels."""

PLAIN_TEXT = re.compile(r'"[ !#-\[\]-~]{0,255}"')
"""One quoted string without escapes: the same in every spelling."""

ONE_NAME = frozenset({"CNAME", "DNAME", "NS", "PTR"})
NAME_LAST = ONE_NAME | {"MX", "SRV"}
"""Types whose value ends with a name and has nothing but numbers before it."""

IDNA_DEVIATIONS = frozenset("\u00df\u03c2\u200c\u200d")
"""Characters whose A-label differs between the two versions of IDNA (UTS 46 section 7)."""

MAX_NAME = 254
"""Characters of a name with its final dot (255 octets on the wire, RFC 1035 section 2.3.4)."""

HIGH = re.compile(r"[\x80-\xff]")


def name(text: str, origin: str) -> str:
    """The absolute, lower-case spelling of a name; one without a final dot is below `origin`, `@` is `origin`.

    Raises:
        ValueError: it is no name.
    """
    if text == "@":
        return origin
    lower = text.lower()
    full = lower if lower.endswith(".") else f"{lower}.{origin}" if origin != "." else f"{lower}."
    if len(full) <= MAX_NAME and PLAIN_NAME.fullmatch(full):
        return full
    import dns.exception  # noqa: PLC0415
    import dns.name  # noqa: PLC0415

    try:
        base = dns.name.from_text(escape_high(origin))
        return dns.name.from_text(escape_high(text), base).canonicalize().to_text()
    except dns.exception.DNSException as error:
        raise ValueError(f"{text!r} is no domain name: {error}") from error


def absolute(text: str) -> str:
    """The canonical spelling of a name as a person writes it: absolute with or without a final dot, international labels too.

    Raises:
        ValueError: it is no name, or one that two versions of IDNA spell differently.
    """
    return name(text if text.isascii() else ascii_name(text), ".")


def ascii_name(text: str) -> str:
    """A name with its international labels in their ASCII form (A-labels), other labels as they are.

    Raises:
        ValueError: a label has none, or one that depends on the version of IDNA (RFC 5894 section 7.2).
    """
    labels = []
    for one in text.split("."):
        if not IDNA_DEVIATIONS.isdisjoint(one):
            raise ValueError(f"{text!r} means different names in two standards; write that label in its xn-- form")
        try:
            labels.append(one if one.isascii() else one.encode("idna").decode("ascii"))
        except UnicodeError as error:
            raise ValueError(f"{text!r} cannot be written as a domain name") from error
    return ".".join(labels)


def text_value(kind: str, text: str) -> str:
    """The canonical spelling of a value as a person writes it: names in it are absolute, and may be international.

    Raises:
        ValueError: it is no value of this type.
    """
    if kind in NAME_LAST and not text.isascii():
        # The name is the last word, and the words before it are numbers.
        head, blank, last = text.rpartition(" ")
        text = head + blank + ascii_name(last)
    # One character per octet, as the canonical spelling wants it.
    return value(kind, text.encode().decode("latin-1"), ".")


def value(kind: str, text: str, origin: str) -> str:
    """The canonical spelling of the value of one record.

    Args:
        kind: the type, as `type_name` gives it.
        text: the value as it stands in a zone file, on one line and without comments.
        origin: what relative names in it are below.

    Raises:
        ValueError: it is no value of this type.
    """
    if text.startswith("\\#"):
        return _any(kind, text, origin)  # the generic form of RFC 3597, which is allowed for every type
    if kind == "A":
        return _ipv4(text)
    if kind == "AAAA":
        return _ipv6(text)
    if kind in ONE_NAME and " " not in text and '"' not in text:
        return name(text, origin)
    if kind == "TXT" and PLAIN_TEXT.fullmatch(text):
        return text
    return _any(kind, text, origin)


@lru_cache(maxsize=512)
def type_name(text: str) -> str:
    """The upper-case mnemonic of a type (`TYPEn` for an unknown one).

    Raises:
        ValueError: there is no such type, or it is one of queries only.
    """
    import dns.exception  # noqa: PLC0415
    import dns.rdatatype  # noqa: PLC0415

    try:
        kind = dns.rdatatype.from_text(text)
    except (dns.exception.DNSException, ValueError) as error:
        raise ValueError(f"{text!r} is no record type") from error
    if dns.rdatatype.is_metatype(kind):
        raise ValueError(f"{text!r} is a type for queries, not for records")
    return dns.rdatatype.to_text(kind)


def escape_high(text: str) -> str:
    """Octets above 127 as `\\DDD`. `text` holds one character per octet (Latin-1), so nothing is guessed about encodings."""
    return HIGH.sub(lambda match: f"\\{ord(match[0]):03d}", text)


def _ipv4(text: str) -> str:
    try:
        socket.inet_pton(socket.AF_INET, text)
    except (OSError, ValueError) as error:
        raise ValueError(f"{text!r} is no IPv4 address") from error
    return text


@lru_cache(maxsize=4096)
def _ipv6(text: str) -> str:
    if "%" in text:
        raise ValueError(f"{text!r} is no IPv6 address for a zone")
    return str(IPv6Address(text))


def _any(kind: str, text: str, origin: str) -> str:
    import dns.exception  # noqa: PLC0415
    import dns.name  # noqa: PLC0415
    import dns.rdata  # noqa: PLC0415
    import dns.rdataclass  # noqa: PLC0415
    import dns.rdatatype  # noqa: PLC0415

    number = dns.rdatatype.from_text(kind)
    try:
        base = dns.name.from_text(escape_high(origin))
        first = dns.rdata.from_text(dns.rdataclass.IN, number, escape_high(text), base, False)
        wire = first.to_digestable()
        return dns.rdata.from_wire(dns.rdataclass.IN, number, wire, 0, len(wire)).to_text()
    except (dns.exception.DNSException, ValueError) as error:
        raise ValueError(f"{text!r} is no value of type {kind}: {error}") from error
