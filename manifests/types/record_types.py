"""The record types that manifests may declare: one table that drives reading, checks, the providers' spellings and the docs.

A value in a manifest is read field by field and becomes its canonical spelling, which looks at zones have too: desired and
observed values are compared as strings. Providers take from this table the number of each type, where names and blanks may
stand in a value, and which types exist; `providers/dns/common/canonical.py` makes the same spelling with a DNS library, and a
test compares the two. Types without a name are `TYPEn`, with values in the generic form of RFC 3597.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from manifests.types import rdata

Read = Callable[[str], str]
"""From the spelling in a manifest to the canonical one; raises `ValueError`."""


class Field(NamedTuple):
    """One field of a value.

    `host`: the name of a host, so that an address in its place is a mistake. `rest`: it takes all remaining words, and blanks
    in it mean nothing. `optional`: the value may end before it.
    """

    label: str
    read: Read
    host: bool = False
    rest: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class RecordType:
    """One type: its number, its fields in order, the document that defines it, and an example of a value.

    `single`: a name has at most one record. `below`: names below it do not belong to the zone.
    """

    name: str
    number: int
    fields: tuple[Field, ...]
    source: str
    example: str
    single: bool = False
    check: Callable[[list[str]], str] = lambda _fields: ""

    @property
    def shape(self) -> str:
        """The fields as messages and the docs show them."""
        words = (f"[{field.label}]" if field.optional else field.label for field in self.fields)
        return " ".join(words)

    @property
    def hosts(self) -> tuple[int, ...]:
        """The indexes of the fields that name a host."""
        return tuple(index for index, field in enumerate(self.fields) if field.host)

    @property
    def joined(self) -> int:
        """The number of words of a value whose last one is digits that other programs break with blanks; 0 = another type."""
        return len(self.fields) if self.fields[-1].read in (_hex, _base64) else 0

    def read(self, text: str) -> str:
        """The canonical value. Raises `ValueError`."""
        given = _WORD.findall(text)
        wanted = self.fields
        last = wanted[-1]
        if last.rest and len(given) > len(wanted):
            given[len(wanted) - 1 :] = [" ".join(given[len(wanted) - 1 :])]
        least = len(wanted) - sum(field.optional for field in wanted)
        if not least <= len(given) <= len(wanted) or not _clean(text):
            raise ValueError(f"'{text[:80]}' is not a value of type {self.name}; write: {self.shape}")
        read = [field.read(word) for field, word in zip(wanted, given, strict=False)]
        wrong = self.check(read)
        if wrong:
            raise ValueError(wrong)
        return " ".join(word for word in read if word)


_WORD = re.compile(r'(?:[^\s"\\()]|\\.|"(?:[^"\\]|\\.)*")+', re.DOTALL)
"""A word of a zone file: blanks and parentheses, which only join lines, end it unless they are in quotes or escaped."""

_ESCAPE = re.compile(rb"\\([0-9]{3}|.)", re.DOTALL)
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_LOC = re.compile(
    r"(?P<lat>\d+)(?:\s+(?P<lat_m>\d+)(?:\s+(?P<lat_s>\d+(?:\.\d{0,3})?))?)?\s+(?P<ns>[NS])\s+"
    r"(?P<lon>\d+)(?:\s+(?P<lon_m>\d+)(?:\s+(?P<lon_s>\d+(?:\.\d{0,3})?))?)?\s+(?P<ew>[EW])\s+"
    r"(?P<alt>-?\d+(?:\.\d{0,2})?)m?(?:\s+(?P<size>\d+(?:\.\d{0,2})?)m?)?"
    r"(?:\s+(?P<h>\d+(?:\.\d{0,2})?)m?)?(?:\s+(?P<v>\d+(?:\.\d{0,2})?)m?)?"
)
_UNKNOWN = re.compile(r"TYPE(0|[1-9][0-9]{0,4})")
_ALPN = re.compile(r"[A-Za-z0-9][A-Za-z0-9./_+-]{0,254}")
_KEY = re.compile(r"key(0|[1-9][0-9]{0,4})")

PARAMETERS = ("mandatory", "alpn", "no-default-alpn", "port", "ipv4hint", "ech", "ipv6hint")
"""Keys of service parameters by their number (RFC 9460 section 14.3.2). Later ones are written `keyN`."""

_LATER_PARAMETERS = {"dohpath": 7, "ohttp": 8}
"""Registered keys that are read, and spelled `keyN` (RFC 9461 section 5, RFC 9540 section 4)."""

_ALGORITHMS = {
    "RSASHA1": 5,
    "RSASHA1NSEC3SHA1": 7,
    "RSASHA256": 8,
    "RSASHA512": 10,
    "ECDSAP256SHA256": 13,
    "ECDSAP384SHA384": 14,
    "ED25519": 15,
    "ED448": 16,
}
"""Mnemonics of DNSSEC algorithms in use."""

_CERTIFICATES = {
    "PKIX": 1,
    "SPKI": 2,
    "PGP": 3,
    "IPKIX": 4,
    "ISPKI": 5,
    "IPGP": 6,
    "ACPKIX": 7,
    "IACPKIX": 8,
    "URI": 253,
    "OID": 254,
}
"""Mnemonics of certificate types (RFC 4398 section 2.1)."""

_DS_OCTETS = {1: 20, 2: 32, 4: 48}
_TLSA_OCTETS = {1: 32, 2: 64}
_SSHFP_OCTETS = {1: 20, 2: 32}
"""Octets of a digest by the number of its algorithm (RFC 4034, 4509 and 6605; RFC 6698; RFC 4255 and 6594)."""


# --- fields -----------------------------------------------------------------------------------------------------------


def _clean(text: str) -> bool:
    """Whether the words of a text are all of it: no quotation mark is open, and no backslash ends it."""
    return not _WORD.sub("", text).strip("() \t\r\n")


def _number(label: str, octets: int, names: Mapping[str, int] | None = None) -> Field:
    most = (1 << 8 * octets) - 1

    def read(text: str) -> str:
        known = (names or {}).get(text.upper())
        if known is not None:
            return str(known)
        if not (text.isascii() and text.isdigit() and len(text) <= 10):
            raise ValueError(f"{label.lower()} must be a number, not '{text[:40]}'")
        if int(text) > most:
            raise ValueError(f"{label.lower()} must be a number from 0 to {most}, not {int(text)}")
        return str(int(text))

    return Field(label, read)


def _hex(text: str) -> str:
    digits = "".join(text.split()).lower()
    if not _HEX.fullmatch(digits):
        raise ValueError(f"'{text[:40]}' is not a text of hexadecimal digits, two for each octet")
    return digits


def _base64(text: str) -> str:
    joined = "".join(text.split())
    try:
        raw = base64.b64decode(joined.encode(), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not raw:
        raise ValueError(f"'{text[:40]}' is not a text in base64")
    return base64.b64encode(raw).decode()


def _string(text: str) -> str:
    """A character-string, with or without quotes (RFC 1035 section 5.1)."""
    octets = _octets(text)
    if len(octets) > rdata.CHUNK:
        raise ValueError(f"'{text[:40]}…' has more than {rdata.CHUNK} octets")
    return rdata.quoted(octets)


def _uri(text: str) -> str:
    octets = _octets(text)
    if not octets:
        raise ValueError("the target of a URI record must not be empty")
    return rdata.quoted(octets)


def _octets(text: str) -> bytes:
    """The octets of a word; its quotes and escapes removed."""
    raw = text.encode()
    if len(raw) >= 2 and raw[:1] == raw[-1:] == b'"':
        raw = raw[1:-1]

    def octet(match: re.Match[bytes]) -> bytes:
        if not match[1].isdigit():
            return match[1]
        if len(match[1]) != 3 or int(match[1]) > 255:
            raise ValueError(f"'{text[:40]}' has an escape that is not three digits up to 255")
        return bytes([int(match[1])])

    return _ESCAPE.sub(octet, raw)


def _caa_value(text: str) -> str:
    if len(text.encode()) > rdata.CHUNK:
        raise ValueError("the value of a CAA record must have at most 255 octets")
    return rdata.txt(text)


def _caa(text: str) -> str:
    """The value is plain text to the end, without escapes; quotes around it are optional."""
    parts = text.split(None, 2)
    if len(parts) != 3:
        raise ValueError(f"'{text[:80]}' is not a value of type CAA; write: {TABLE['CAA'].shape}")
    quoted = len(parts[2]) >= 2 and parts[2][0] == parts[2][-1] == '"'
    parts[2] = parts[2][1:-1] if quoted else parts[2]
    return " ".join(field.read(part) for field, part in zip(TABLE["CAA"].fields, parts, strict=True))


def _location(text: str) -> str:
    """A place on earth (RFC 1876 section 3). Sizes are rounded down to one digit and zeros, as the record stores them."""
    match = _LOC.fullmatch(text.strip().upper().replace("M", "m"))
    if match is None:
        shape = "DEGREES [MINUTES [SECONDS]] N|S DEGREES [MINUTES [SECONDS]] E|W ALTITUDEm [SIZEm [HORIZONTALm [VERTICALm]]]"
        raise ValueError(f"'{text[:80]}' is not a value of type LOC; write: {shape}")
    angles = [
        _angle(match["lat"], match["lat_m"], match["lat_s"], 90, match["ns"]),
        _angle(match["lon"], match["lon_m"], match["lon_s"], 180, match["ew"]),
    ]
    altitude = Decimal(match["alt"])
    if not Decimal("-100000.00") <= altitude <= Decimal("42849672.95"):
        raise ValueError(f"the altitude must be from -100000.00m to 42849672.95m, not {match['alt']}m")
    sizes = [_size(match[name] or given) for name, given in (("size", "1"), ("h", "10000"), ("v", "10"))]
    shown = [*angles, f"{altitude:.2f}m"]
    if sizes != list(LOCATION_SIZES):
        shown += sizes
    return " ".join(shown)


LOCATION_SIZES = ("1.00m", "10000.00m", "10.00m")
"""Size and precisions of a LOC record that gives none (RFC 1876 section 3); the canonical spelling leaves all three out then."""


def _angle(degrees: str, minutes: str | None, seconds: str | None, most: int, side: str) -> str:
    exact = Decimal((seconds or "0").removesuffix("."))
    full = int(degrees) * 3600 + int(minutes or 0) * 60 + exact
    if int(minutes or 0) > 59 or exact >= 60 or full > most * 3600:
        raise ValueError(f"{degrees} {minutes or 0} {seconds or 0} {side} is not an angle of at most {most} degrees")
    return f"{int(degrees)} {int(minutes or 0)} {exact:.3f} {side}"


def _size(metres: str) -> str:
    centimetres = int(Decimal(metres) * 100)
    if centimetres > 9_000_000_000:
        raise ValueError(f"a size must be at most 90000000.00m, not {metres}m")
    digits = str(centimetres)
    return f"{Decimal(int(digits[0] + '0' * (len(digits) - 1))) / 100:.2f}m"


def _parameters(text: str) -> str:
    """Service parameters in the order of their keys (RFC 9460 sections 2.1 and 7)."""
    found: dict[int, str] = {}
    for word in _WORD.findall(text):
        name, equals, raw = word.partition("=")
        number = _parameter(name.lower())
        if number in found:
            raise ValueError(f"the parameter {name} is given twice")
        found[number] = _parameter_value(number, name, raw if equals else None)
    wanted = found.get(0, "")
    for name in wanted.strip('"').split(",") if wanted else ():
        if _parameter(name) not in found:
            raise ValueError(f"mandatory names the parameter {name}, which is not given")
    if 2 in found and 1 not in found:
        raise ValueError("no-default-alpn needs the parameter alpn")
    return " ".join(
        f"{_parameter_name(number)}={shown}" if shown else _parameter_name(number)
        for number, shown in sorted(found.items())
    )


def _parameter(name: str) -> int:
    if name in PARAMETERS:
        return PARAMETERS.index(name)
    match = _KEY.fullmatch(name)
    number = _LATER_PARAMETERS.get(name, int(match[1]) if match else 65_535)
    if number >= 65_535:
        known = ", ".join((*PARAMETERS, *_LATER_PARAMETERS))
        raise ValueError(f"'{name[:40]}' is not a service parameter; use {known}, or key and a number")
    return number


def _parameter_name(number: int) -> str:
    return PARAMETERS[number] if number < len(PARAMETERS) else f"key{number}"


def _parameter_value(number: int, name: str, raw: str | None) -> str:
    """The canonical value with its quotes; empty for a parameter without one. Raises `ValueError`."""
    if number in (2, 8):
        if raw:
            raise ValueError(f"the parameter {name} has no value")
        return ""
    octets = _octets(raw) if raw is not None else b""
    if number > 6:
        return rdata.quoted(octets) if octets else ""
    text = octets.decode("latin-1")
    if not text:
        raise ValueError(f"the parameter {name} needs a value")
    if number == 5:
        return f'"{_ech(text)}"'
    parts = text.split(",")
    if number == 0:
        numbers = sorted(_parameter(part.strip().lower()) for part in parts)
        if 0 in numbers or len(set(numbers)) < len(numbers):
            raise ValueError("mandatory must not name itself, and each parameter once")
        return '"' + ",".join(map(_parameter_name, numbers)) + '"'
    if number == 1 and not all(_ALPN.fullmatch(part) for part in parts):
        raise ValueError(f"'{text[:40]}' is not a list of protocol ids such as h2,h3")
    if number == 3:
        if len(parts) != 1:
            raise ValueError("port must be one number")
        return f'"{_number("port", 2).read(text)}"'
    if number in (4, 6):
        read = rdata.ipv4 if number == 4 else rdata.ipv6
        parts = [read(part) for part in parts]
    return '"' + ",".join(parts) + '"'


def _ech(text: str) -> str:
    """A list of configurations of Encrypted Client Hello: a length, then for each its version, its length and its content."""
    encoded = _base64(text)
    raw = base64.b64decode(encoded)
    at = 2
    while at + 4 <= len(raw):
        at += 4 + int.from_bytes(raw[at + 2 : at + 4], "big")
    if len(raw) < 6 or int.from_bytes(raw[:2], "big") != len(raw) - 2 or at != len(raw):
        raise ValueError("ech is not a list of configurations in base64")
    return encoded


def _generic(text: str) -> str:
    r"""Octets of any type: `\# LENGTH HEX` (RFC 3597 section 5)."""
    words = text.split()
    if len(words) < 2 or words[0] != "\\#" or not words[1].isdigit():
        raise ValueError(f"'{text[:80]}' is not a value of a type without a name; write: \\# LENGTH HEX")
    digits = _hex(" ".join(words[2:])) if len(words) > 2 else ""
    if int(words[1][:6]) * 2 != len(digits):
        raise ValueError(f"the value has {len(digits) // 2} octets, but gives its length as {words[1][:10]}")
    if len(digits) > 2 * rdata.MAX_TEXT:
        raise ValueError(f"the value has more than {rdata.MAX_TEXT} octets and does not fit into a record")
    return f"\\# {int(words[1])} {digits}".rstrip()


def _digest(sizes: Mapping[int, int], kind: int, value: int, what: str) -> Callable[[list[str]], str]:
    """A check that the digest in field `value` has the length that the number in field `kind` requires."""

    def check(fields: list[str]) -> str:
        octets = sizes.get(int(fields[kind]))
        if octets is None or len(fields[value]) == 2 * octets:
            return ""
        return f"a {what} of kind {fields[kind]} has {octets} octets, not {len(fields[value]) // 2}"

    return check


def _service(fields: list[str]) -> str:
    if fields[0] == "0" and len(fields) > 2 and fields[2]:
        return "a record with priority 0 is an alias and has no parameters"
    return ""


_NAME = Field("NAME", rdata.record_name, host=True)
_TEXT = Field("TEXT", rdata.txt)
_SERVICE = (_number("PRIORITY", 2), _NAME, Field("PARAMETERS", _parameters, rest=True, optional=True))
_CERTIFICATE = (
    _number("USAGE", 1),
    _number("SELECTOR", 1),
    _number("MATCHING", 1),
    Field("HEX", _hex, rest=True),
)
_DIGEST_CHECK = _digest(_TLSA_OCTETS, 2, 3, "digest")

_ROWS = (
    RecordType("A", 1, (Field("ADDRESS", rdata.ipv4),), "RFC 1035", "192.0.2.1"),
    RecordType("AAAA", 28, (Field("ADDRESS", rdata.ipv6),), "RFC 3596", "2001:db8::1"),
    RecordType(
        "CAA",
        257,
        (_number("FLAGS", 1), Field("TAG", rdata.caa_tag), Field("VALUE", _caa_value, rest=True)),
        "RFC 8659",
        "0 issue ca.example",
    ),
    RecordType(
        "CERT",
        37,
        (
            _number("TYPE", 2, _CERTIFICATES),
            _number("KEY-TAG", 2),
            _number("ALGORITHM", 1, _ALGORITHMS),
            Field("BASE64", _base64, rest=True),
        ),
        "RFC 4398",
        "PKIX 0 0 MIIB",
    ),
    RecordType("CNAME", 5, (_NAME,), "RFC 1035", "www.example.net", single=True),
    RecordType("DNAME", 39, (_NAME,), "RFC 6672", "example.net", single=True),
    RecordType(
        "DS",
        43,
        (
            _number("KEY-TAG", 2),
            _number("ALGORITHM", 1, _ALGORITHMS),
            _number("DIGEST-TYPE", 1),
            Field("HEX", _hex, rest=True),
        ),
        "RFC 4034",
        "60485 13 2 d4b7d520e7bb5f0f67674a0cceb1e3e0614b93c4f9e99b8383f6a1e4469da50a",
        check=_digest(_DS_OCTETS, 2, 3, "digest"),
    ),
    RecordType("HINFO", 13, (Field("CPU", _string), Field("OS", _string)), "RFC 8482", '"RFC8482" ""'),
    RecordType("HTTPS", 65, _SERVICE, "RFC 9460", "1 . alpn=h2,h3", check=_service),
    RecordType("LOC", 29, (Field("PLACE", _location),), "RFC 1876", "52 22 23.000 N 4 53 32.000 E -2.00m"),
    RecordType("MX", 15, (_number("PREFERENCE", 2), _NAME), "RFC 1035", "10 mail.example.com"),
    RecordType(
        "NAPTR",
        35,
        (
            _number("ORDER", 2),
            _number("PREFERENCE", 2),
            Field("FLAGS", _string),
            Field("SERVICE", _string),
            Field("REGEXP", _string),
            _NAME,
        ),
        "RFC 3403",
        '100 10 "S" "SIP+D2U" "" _sip._udp.example.com',
    ),
    RecordType("NS", 2, (_NAME,), "RFC 1035", "ns1.child.example.com"),
    RecordType("OPENPGPKEY", 61, (Field("BASE64", _base64, rest=True),), "RFC 7929", "mQINBFit"),
    RecordType("PTR", 12, (_NAME,), "RFC 1035", "host.example.com"),
    RecordType(
        "RP",
        17,
        (Field("MAILBOX", rdata.record_name), Field("NAME", rdata.record_name)),
        "RFC 1183",
        "hostmaster.example.com .",
    ),
    RecordType("SMIMEA", 53, _CERTIFICATE, "RFC 8162", f"3 1 1 {'ab' * 32}", check=_DIGEST_CHECK),
    RecordType(
        "SRV",
        33,
        (_number("PRIORITY", 2), _number("WEIGHT", 2), _number("PORT", 2), _NAME),
        "RFC 2782",
        "0 5 443 host.example.com",
    ),
    RecordType(
        "SSHFP",
        44,
        (_number("ALGORITHM", 1), _number("TYPE", 1), Field("HEX", _hex, rest=True)),
        "RFC 4255",
        f"4 2 {'12' * 32}",
        check=_digest(_SSHFP_OCTETS, 1, 2, "fingerprint"),
    ),
    RecordType("SVCB", 64, _SERVICE, "RFC 9460", "1 dns.example.com alpn=dot port=853", check=_service),
    RecordType("TLSA", 52, _CERTIFICATE, "RFC 6698", f"3 1 1 {'cd' * 32}", check=_DIGEST_CHECK),
    RecordType("TXT", 16, (_TEXT,), "RFC 1035", "v=spf1 -all"),
    RecordType(
        "URI",
        256,
        (_number("PRIORITY", 2), _number("WEIGHT", 2), Field("URI", _uri)),
        "RFC 7553",
        '10 1 "https://www.example.com/"',
    ),
)

TABLE: Mapping[str, RecordType] = {row.name: row for row in _ROWS}
"""The types with a name, by that."""

TYPES = tuple(TABLE)
"""The types with a name that manifests may declare."""

SINGLE = frozenset(row.name for row in _ROWS if row.single)
"""Types of which a name has one value (RFC 1034 section 3.6.2, RFC 6672 section 2.4)."""

OTHERS: Mapping[str, int] = {
    "MD": 3,
    "MF": 4,
    "SOA": 6,
    "MB": 7,
    "MG": 8,
    "MR": 9,
    "NULL": 10,
    "WKS": 11,
    "MINFO": 14,
    "AFSDB": 18,
    "X25": 19,
    "ISDN": 20,
    "RT": 21,
    "NSAP": 22,
    "NSAP-PTR": 23,
    "SIG": 24,
    "KEY": 25,
    "PX": 26,
    "GPOS": 27,
    "NXT": 30,
    "EID": 31,
    "NIMLOC": 32,
    "ATMA": 34,
    "KX": 36,
    "A6": 38,
    "SINK": 40,
    "OPT": 41,
    "APL": 42,
    "IPSECKEY": 45,
    "RRSIG": 46,
    "NSEC": 47,
    "DNSKEY": 48,
    "DHCID": 49,
    "NSEC3": 50,
    "NSEC3PARAM": 51,
    "HIP": 55,
    "NINFO": 56,
    "RKEY": 57,
    "TALINK": 58,
    "CDS": 59,
    "CDNSKEY": 60,
    "CSYNC": 62,
    "ZONEMD": 63,
    "DSYNC": 66,
    "HHIT": 67,
    "BRID": 68,
    "SPF": 99,
    "UINFO": 100,
    "UID": 101,
    "GID": 102,
    "UNSPEC": 103,
    "NID": 104,
    "L32": 105,
    "L64": 106,
    "LP": 107,
    "EUI48": 108,
    "EUI64": 109,
    "AVC": 258,
    "DOA": 259,
    "AMTRELAY": 260,
    "RESINFO": 261,
    "WALLET": 262,
    "CLA": 263,
    "IPN": 264,
    "TA": 32768,
    "DLV": 32769,
}
"""Registered types that manifests cannot declare, by their name: obsolete ones, and those that servers make themselves."""

_NAMES = {row.number: row.name for row in _ROWS} | {number: name for name, number in OTHERS.items()}

_META = range(128, 256)
"""Numbers of types for queries and signatures (RFC 6895 section 3.1)."""

_GENERIC = RecordType("TYPE", 0, (Field("\\# LENGTH HEX", _generic),), "RFC 3597", "\\# 4 c0000201")


def number_name(number: int) -> str:
    """The name of a type by its number: `TYPEn` for one that this table does not have."""
    return _NAMES.get(number) or f"TYPE{number}"


def type_name(text: str) -> str:
    """The name of a type that manifests may declare: one of `TYPES`, or `TYPEn` for a number without a name.

    Raises:
        ValueError: manifests cannot declare such records.
    """
    if text in TABLE:
        return text
    upper = text.upper()
    if upper in TABLE:
        raise ValueError(f"write the type in capitals: {upper}")
    match = _UNKNOWN.fullmatch(text)
    if match is None:
        if upper in OTHERS:
            raise ValueError(f"manifests cannot declare records of type {upper}")
        raise ValueError(f"'{text[:40]}' is not a record type; use {', '.join(TYPES)}, or TYPE and a number")
    number = int(match[1])
    known = _NAMES.get(number)
    if known in TABLE:
        raise ValueError(f"{text} is {known}; write {known}")
    if known is not None:
        raise ValueError(f"{text} is {known}, which manifests cannot declare")
    if number in _META or not 0 < number < 65_535:
        raise ValueError(f"{text} is no type of records: the number must be from 1 to 65534, and not from 128 to 255")
    return text


def record_type(kind: str) -> RecordType:
    """The row of a type; for `TYPEn` that of all types without a name. Raises `ValueError`."""
    row = TABLE.get(kind)
    if row is not None:
        return row
    type_name(kind)
    return _GENERIC


def value(kind: str, text: str) -> str:
    """The canonical value of a record, from its spelling in a manifest.

    A TXT value is the text itself, without quotes. All others are as in a zone file; a name is absolute without a final dot,
    too, and the value of CAA may be without quotes.

    Raises:
        ValueError: the text is not a value of this type, or manifests cannot declare the type.
    """
    read = _READERS.get(kind)
    if read is None:
        record_type(kind)
        read = _generic
    return read(text)


def hosts(kind: str, text: str) -> tuple[str, ...]:
    """The names of hosts in a valid value, as the manifest spells them."""
    row = TABLE.get(kind)
    if row is None or not row.hosts:
        return ()
    words = _WORD.findall(text)
    return tuple(words[index] for index in row.hosts if index < len(words))


def _reader(row: RecordType) -> Read:
    """Values of one field are read as they are: most records of a zone have one, and a text has its own blanks."""
    only = row.fields[0]
    return row.read if len(row.fields) > 1 or only.rest else only.read


_READERS: dict[str, Read] = {row.name: _reader(row) for row in _ROWS} | {"CAA": _caa}
