"""How ownership of a record set is written into a zone: as one TXT record set beside it. Pure; used by `OwnedDNS`.

The mark of (name, TYPE) lies at `_reconciler-<type>.<name>`: never at the name itself, so that it can stand beside a CNAME,
and below the zone's own name for a record at the top of the zone. A wildcard's mark is legal everywhere because its `*` is
spelled `_wildcard`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from providers.errors import Rejected
from providers.facts import RecordKey, RecordSet

PREFIX = "_reconciler-"
WILDCARD = "_wildcard."
SYNTAX = "reconciler/v1 owner="
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
    target = f"{key.name} {key.type}"
    if key.name.startswith((PREFIX, WILDCARD)):
        raise Rejected(target, f"names that begin with {PREFIX} or {WILDCARD} are kept for owner marks", "rename it")
    name = WILDCARD + key.name[2:] if key.name.startswith("*.") else key.name
    found = f"{PREFIX}{key.type.lower()}.{name}"
    if len(found.rstrip(".")) > MAX_NAME:
        raise Rejected(target, f"its owner mark would need a name of {len(found) - 1} characters", "shorten the name")
    return RecordKey(found, "TXT")


def marked_key(key: RecordKey) -> RecordKey | None:
    """The record set that a mark at `key` is about; None when `key` cannot hold a mark."""
    if key.type != "TXT" or not key.name.startswith(PREFIX):
        return None
    label, _, name = key.name.partition(".")
    kind = label[len(PREFIX) :].upper()
    if not kind or not name:
        return None
    return RecordKey("*." + name[len(WILDCARD) :] if name.startswith(WILDCARD) else name, kind)


def mark_record(owner: str) -> RecordSet:
    """The TXT record set that says `owner` (`<instance>/<object key>`)."""
    return RecordSet(MARK_TTL, (quote(SYNTAX + owner),))


def read_mark(record: RecordSet) -> str:
    """The owner that a mark names. Several marks or another text: an owner that is nobody's instance, so foreign."""
    texts = [unquote(value) for value in record.values]
    if len(texts) == 1 and texts[0].startswith(SYNTAX) and "/" in texts[0][len(SYNTAX) :]:
        return texts[0][len(SYNTAX) :]
    return UNREADABLE + " and ".join(texts)


def split(records: Mapping[RecordKey, RecordSet]) -> Marked:
    """Take the marks out of a zone's record sets. One pass."""
    plain: dict[RecordKey, RecordSet] = {}
    owners: dict[RecordKey, str] = {}
    marks: dict[RecordKey, RecordSet] = {}
    for key, record in records.items():
        subject = marked_key(key)
        if subject is None:
            plain[key] = record
            continue
        owners[subject] = read_mark(record)
        marks[subject] = record
    return Marked(plain, owners, marks)


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
