"""The canonical spelling of names and values, so that equal records compare equal. Used by all DNS providers.

Names are absolute and lower case. Addresses are in the shortest form. Values of all other types have dnspython's spelling,
with the names inside them in lower case where the type allows that (RFC 4034 section 6.2). Common types take a fast path.
dnspython is imported where it is needed: checking the settings of a provider must not load it.
"""

import base64
import re
import socket
from functools import lru_cache
from io import BytesIO
from ipaddress import IPv6Address
from typing import Any

from manifests.types import rdata as spelling
from manifests.types import record_types

PLAIN_NAME = re.compile(r"(?:[a-z0-9_*-]{1,63}\.)+")
"""Names without escapes, which need no further check of their labels."""

PLAIN_TEXT = re.compile(r'"[ !#-\[\]-~]{0,255}"')
"""One quoted string without escapes: its spelling is canonical."""

NAME_LAST = frozenset(row.name for row in record_types.TABLE.values() if row.hosts == (len(row.fields) - 1,))
"""Types whose value ends with a name."""

ONE_NAME = frozenset(kind for kind in NAME_LAST if len(record_types.TABLE[kind].fields) == 1)

IDNA_DEVIATIONS = frozenset("\u00df\u03c2\u200c\u200d")
"""Characters whose A-label differs between the two versions of IDNA (UTS 46 section 7)."""

MAX_NAME = 254
"""Characters of a name with its final dot (255 octets on the wire, RFC 1035 section 2.3.4)."""

HIGH = re.compile(r"[\x80-\xff]")


def name(text: str, origin: str) -> str:
    """The absolute, lower-case spelling of a name. A name without a final dot is below `origin`; `@` is `origin`.

    Raises:
        ValueError: it is not a domain name.
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
        raise ValueError(f"{text!r} is not a domain name: {error}") from error


def absolute(text: str) -> str:
    """The canonical spelling of a name in a manifest: absolute with or without a final dot, may have international labels.

    Raises:
        ValueError: it is not a domain name, or two versions of IDNA spell it differently.
    """
    return name(text if text.isascii() else ascii_name(text), ".")


def ascii_name(text: str) -> str:
    """A name with its international labels in their ASCII form (A-labels), other labels unchanged.

    Raises:
        ValueError: a label has no A-label, or one that depends on the version of IDNA (RFC 5894 section 7.2).
    """
    labels = []
    for label in text.split("."):
        if not IDNA_DEVIATIONS.isdisjoint(label):
            raise ValueError(f"{text!r} is a different name in two versions of IDNA; write that label in its xn-- form")
        try:
            labels.append(label if label.isascii() else label.encode("idna").decode("ascii"))
        except UnicodeError as error:
            raise ValueError(f"{text!r} is not a domain name") from error
    return ".".join(labels)


def text_value(kind: str, text: str) -> str:
    """The canonical spelling of a value in a manifest: names in it are absolute, and may be international.

    Raises:
        ValueError: it is not a value of this type.
    """
    if kind in NAME_LAST and not text.isascii():
        # The name is the last word; the words before it are numbers.
        head, blank, last = text.rpartition(" ")
        text = head + blank + ascii_name(last)
    # One character per octet, as in the canonical spelling.
    return value(kind, text.encode().decode("latin-1"), ".")


def value(kind: str, text: str, origin: str) -> str:
    """The canonical spelling of the value of one record.

    Args:
        kind: the type, as `type_name` gives it.
        text: the value as in a zone file, on one line and without comments.
        origin: the origin of relative names in it.

    Raises:
        ValueError: it is not a value of this type.
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
        ValueError: the type does not exist, or is for queries only.
    """
    import dns.exception  # noqa: PLC0415
    import dns.rdatatype  # noqa: PLC0415

    try:
        kind = dns.rdatatype.from_text(text)
    except (dns.exception.DNSException, ValueError) as error:
        raise ValueError(f"{text!r} is not a record type") from error
    if dns.rdatatype.is_metatype(kind):
        raise ValueError(f"{text!r} is a type for queries, not for records")
    return record_types.number_name(int(kind))


def escape_high(text: str) -> str:
    """Octets above 127 as `\\DDD`. `text` has one character per octet (Latin-1), so no encoding is guessed."""
    return HIGH.sub(lambda match: f"\\{ord(match[0]):03d}", text)


def _ipv4(text: str) -> str:
    try:
        socket.inet_pton(socket.AF_INET, text)
    except (OSError, ValueError) as error:
        raise ValueError(f"{text!r} is not an IPv4 address") from error
    return text


@lru_cache(maxsize=4096)
def _ipv6(text: str) -> str:
    if "%" in text:
        raise ValueError(f"{text!r} is not an IPv6 address for a zone")
    return str(IPv6Address(text))


def _any(kind: str, text: str, origin: str) -> str:
    import dns.exception  # noqa: PLC0415
    import dns.name  # noqa: PLC0415
    import dns.rdata  # noqa: PLC0415
    import dns.rdataclass  # noqa: PLC0415
    import dns.rdatatype  # noqa: PLC0415

    try:
        number = dns.rdatatype.from_text(kind)
        base = dns.name.from_text(escape_high(origin))
        first = dns.rdata.from_text(dns.rdataclass.IN, number, escape_high(text), base, False)
        return from_rdata(kind, first)
    except (dns.exception.DNSException, ValueError) as error:
        raise ValueError(f"{text!r} is not a value of type {kind}: {error}") from error


def from_rdata(kind: str, rdata: Any) -> str:
    """The canonical spelling of a value that dnspython has read: names in it as for digests, one word for digits of any length.

    Types that `record_types` does not know have the generic form of RFC 3597, also where dnspython knows more of them.
    """
    import dns.rdata  # noqa: PLC0415

    wire: bytes = rdata.to_digestable()
    if kind.startswith("TYPE"):
        return f"\\# {len(wire)} {wire.hex()}".rstrip()
    # A known type may have been read from the generic form.
    value = dns.rdata.from_wire(rdata.rdclass, rdata.rdtype, wire, 0, len(wire))
    special = _SPECIAL.get(kind)
    if special is not None:
        return special(value)
    text = value.to_text()
    row = record_types.TABLE.get(kind)
    if row is None or not row.joined:
        return text
    *words, digits = text.split(" ", row.joined - 1)
    return " ".join([*words, digits.replace(" ", "")])


def _certificate(rdata: Any) -> str:
    """Numbers instead of mnemonics, which differ between programs."""
    encoded = base64.b64encode(rdata.certificate).decode()
    return f"{int(rdata.certificate_type)} {rdata.key_tag} {int(rdata.algorithm)} {encoded}"


def _delegation_signer(rdata: Any) -> str:
    return f"{rdata.key_tag} {int(rdata.algorithm)} {int(rdata.digest_type)} {rdata.digest.hex()}"


def _service(rdata: Any) -> str:
    """Parameters newer than RFC 9460 as `keyN`: programs know different ones."""
    words = [str(int(rdata.priority)), rdata.target.to_text()]
    for key, value in sorted(rdata.params.items()):
        number = int(key)
        name = record_types.PARAMETERS[number] if number < len(record_types.PARAMETERS) else f"key{number}"
        if value is None:
            words.append(name)
        elif number < len(record_types.PARAMETERS):
            words.append(f"{name}={value.to_text()}")
        else:
            octets = BytesIO()
            value.to_wire(octets)
            words.append(f"{name}={spelling.quoted(octets.getvalue())}")
    return " ".join(words)


_SPECIAL = {"CERT": _certificate, "DS": _delegation_signer, "HTTPS": _service, "SVCB": _service}
