"""How ownership of a record set is written into a zone: as one TXT record set beside it. Pure; used by `OwnedDNS`.

The mark of (name, TYPE) lies at `_reconciler-<type>.<name>`: never at the name itself, so that it can stand beside a CNAME,
and below the zone's own name for a record at the top of the zone. A wildcard's mark is legal everywhere because its `*` is
spelled `_wildcard`. Each member of a routed set has a mark of its own: a digest of its set identifier is part of the mark's
name (identifiers may be longer than a label, and hold anything), and the identifier itself of the mark's text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from providers.dns.routing import label
from providers.errors import Rejected
from providers.facts import RecordKey, RecordSet

PREFIX = "_reconciler-"
WILDCARD = "_wildcard."
SYNTAX = "reconciler/v1 owner="
MEMBER = " set="
"""Between the owner and the set identifier in the mark of a member."""

DIGEST = 20
"""Hexadecimal digits of a set identifier's digest (80 bits): a label has 63 characters, and the longest type needs 10."""

MARK_TTL = 300
"""Seconds. Nobody resolves marks, so the value only bounds how long a person's resolver shows an old one."""

UNREADABLE = "?/"
"""Begins the owner of a set whose mark cannot be read. No instance has this id, so such a set is foreign."""

MAX_NAME = 253
"""Characters of a name without its final dot (RFC 1035 section 2.3.4 allows 255 octets on the wire)."""

CHUNK = 255
"""Octets in one character-string of a TXT record (RFC 1035 section 3.3)."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A zone's record sets with the marks taken out: `owners` by the set they are about, `marks` as they were found."""

    records: dict[RecordKey, RecordSet]
    owners: dict[RecordKey, str]
    marks: dict[RecordKey, RecordSet]


def mark_key(key: RecordKey) -> RecordKey:
    """Where the mark of a record set lies.

    Raises:
        Rejected: the set's own name is reserved for marks, or leaves no room for one.
    """
    target = label(key)
    if key.name.startswith((PREFIX, WILDCARD)):
        raise Rejected(target, f"names that begin with {PREFIX} or {WILDCARD} are kept for owner marks", "rename it")
    name = WILDCARD + key.name[2:] if key.name.startswith("*.") else key.name
    member = f"_{_digest(key.set_id)}" if key.set_id else ""
    found = f"{PREFIX}{key.type.lower()}{member}.{name}"
    if len(found.rstrip(".")) > MAX_NAME:
        raise Rejected(target, f"its owner mark would need a name of {len(found) - 1} characters", "shorten the name")
    return RecordKey(found, "TXT")


def marked_key(key: RecordKey, record: RecordSet | None = None) -> RecordKey | None:
    """The record set that a mark at `key` is about; None when `key` cannot hold a mark.

    Without the mark itself (`record`), or with one that cannot be read, the set identifier of a member is the digest that
    stands in the mark's name.
    """
    if key.type != "TXT" or not key.name.startswith(PREFIX):
        return None
    first, _, name = key.name.partition(".")
    kind, _, member = first[len(PREFIX) :].partition("_")
    if not kind or not name:
        return None
    if member and record is not None and len(record.values) == 1:
        set_id = unquote(record.values[0]).partition(MEMBER)[2]
        member = set_id if _digest(set_id) == member else member
    return RecordKey("*." + name[len(WILDCARD) :] if name.startswith(WILDCARD) else name, kind.upper(), member)


def mark_record(owner: str, set_id: str = "") -> RecordSet:
    """The TXT record set that says `owner` (`<instance>/<object key>`) of a set, or of the member `set_id` of a routed one."""
    return RecordSet(MARK_TTL, (quote(SYNTAX + owner + (MEMBER + set_id if set_id else "")),))


def read_mark(record: RecordSet) -> str:
    """The owner that a mark names. Several marks or another text: an owner that is nobody's instance, so foreign."""
    texts = [unquote(value) for value in record.values]
    if len(texts) == 1 and texts[0].startswith(SYNTAX):
        owner = texts[0][len(SYNTAX) :].partition(MEMBER)[0]
        if "/" in owner:
            return owner
    return UNREADABLE + " and ".join(texts)


def split(records: Mapping[RecordKey, RecordSet]) -> Marked:
    """Take the marks out of a zone's record sets. One pass."""
    plain: dict[RecordKey, RecordSet] = {}
    owners: dict[RecordKey, str] = {}
    marks: dict[RecordKey, RecordSet] = {}
    for key, record in records.items():
        subject = marked_key(key, record)
        if subject is None:
            plain[key] = record
            continue
        owners[subject] = read_mark(record)
        marks[subject] = record
    return Marked(plain, owners, marks)


def _digest(set_id: str) -> str:
    return sha256(set_id.encode()).hexdigest()[:DIGEST]


def quote(text: str) -> str:
    """A text as the value of a TXT record in presentation form: quoted, escaped, in pieces of at most 255 octets."""
    raw = text.encode()
    pieces = [raw[start : start + CHUNK] for start in range(0, len(raw), CHUNK)] or [b""]
    return " ".join(f'"{"".join(map(_escape, piece))}"' for piece in pieces)


def unquote(value: str) -> str:
    """The whole text of a TXT value, its pieces joined. Lenient: an escape cut short is taken as it is."""
    found = bytearray()
    quoted = False
    characters: Iterable[str] = iter(value)
    for character in characters:
        if character == '"':
            quoted = not quoted
        elif character == "\\":
            found += _unescape(characters)
        elif quoted or character != " ":
            found += character.encode()
    return found.decode(errors="replace")


def _escape(octet: int) -> str:
    if octet in b'"\\':
        return "\\" + chr(octet)
    return chr(octet) if 0x20 <= octet < 0x7F else f"\\{octet:03d}"


def _unescape(characters: Iterable[str]) -> bytes:
    first = next(iter(characters), "")
    if not first.isdigit():
        return first.encode()
    digits = first + next(iter(characters), "") + next(iter(characters), "")
    return bytes([int(digits)]) if digits.isdigit() and len(digits) == 3 and int(digits) < 256 else digits.encode()
