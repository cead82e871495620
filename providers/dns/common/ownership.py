"""Owner marks in a zone: one TXT record set beside each owned record set. Pure; used by `OwnedDNS` in `wrappers/owned.py`.

The mark of (name, TYPE) is at `_reconciler-<type>.<name>`: never at the name itself, so that a CNAME can have one, and below
the zone's own name for a record at the top of the zone. In a wildcard's mark `*` is written `_wildcard`, which is legal
everywhere. Each member of a routed set has its own mark: the mark's name contains a digest of the set identifier (identifiers
may be longer than a label, and contain any character), and the mark's text contains the identifier.

Names below a delegated name (or a DNAME) do not belong to the zone, so the mark of such a set is beside its name instead, at
`_reconciler-<type>-<digest of the first label>.<rest of the name>`, and its text contains the label. The mark of glue, an
address of a name server below the delegation, is beside the delegated name in the same way, with all labels up to that name.
A set that was written before the delegation keeps its mark at the usual place until it is written again: both are read.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from providers.dns.common.routing import label
from providers.errors import Rejected
from providers.facts import RecordKey, RecordSet

PREFIX = "_reconciler-"
WILDCARD = "_wildcard."
SYNTAX = "reconciler/v1 owner="
MEMBER = " set="
"""Between the owner and the set identifier in the mark of a member."""

LABEL = " label="
"""Before the first label of a delegated name, in the mark of such a set."""

CUTS = frozenset({"NS", "DS", "DNAME"})
"""Types that remove the names below theirs from the zone (RFC 1034 section 4.2, RFC 6672 section 2.3)."""

GLUE = frozenset({"A", "AAAA"})
"""Types that a zone may have below a delegation."""

DIGEST = 20
"""Hexadecimal digits of a set identifier's digest (80 bits): a label has 63 characters, and the longest type needs 10."""

MARK_TTL = 300
"""Seconds. Clients do not resolve marks, so the value only bounds how long a resolver shows an operator an old mark."""

UNREADABLE = "?/"
"""Begins the owner of a set whose mark is unreadable. No instance has this id, so such a set is foreign."""

MAX_NAME = 253
"""Characters of a name without its final dot (RFC 1035 section 2.3.4 allows 255 octets on the wire)."""

CHUNK = 255
"""Octets in one character-string of a TXT record (RFC 1035 section 3.3)."""

PLAIN = re.compile(r"[ !#-\[\]-~]{0,255}")
"""A text that needs no escapes and is one character-string."""

FIRST_LABEL = re.compile(r"(?:[^.\\]|\\\d{3}|\\.)*\.")


@dataclass(frozen=True, slots=True)
class Marked:
    """A zone's record sets without the marks; `owners` and `marks` by the set that they belong to."""

    records: dict[RecordKey, RecordSet]
    owners: dict[RecordKey, str]
    marks: dict[RecordKey, RecordSet]


def cut_above(name: str, zone: str, delegated: Collection[str]) -> str:
    """The highest delegated name at or above a name, below the apex of the zone; empty when there is none."""
    cut = ""
    while len(name) > len(zone):
        if name in delegated:
            cut = name
        name = _first_label(name)[1]
    return cut


def mark_key(key: RecordKey, zone: str = "", cut: str = "") -> RecordKey:
    """The key of the mark of a record set.

    `zone` distinguishes the name servers of the zone itself from a delegation; `cut` is the delegated name at or above the
    name of glue.

    Raises:
        Rejected: the set's own name is reserved for marks, or is too long for one.
    """
    target = label(key)
    if key.name.startswith((PREFIX, WILDCARD)):
        raise Rejected(
            target, f"names that begin with {PREFIX} or {WILDCARD} are reserved for owner marks", "rename it"
        )
    name, digest = WILDCARD + key.name[2:] if key.name.startswith("*.") else key.name, ""
    labels = _labels(key, zone, cut)
    if labels:
        name = key.name[len(labels) + 1 :]
        digest = f"-{_digest(labels)}"
    member = f"_{_digest(key.set_id)}" if key.set_id else ""
    mark_name = f"{PREFIX}{key.type.lower()}{digest}{member}.{name}"
    length = len(mark_name.rstrip("."))
    if length > MAX_NAME:
        cause = f"the name of its owner mark would have {length} characters, at most {MAX_NAME} are allowed"
        raise Rejected(target, cause, "shorten the name")
    return RecordKey(mark_name, "TXT")


def mark_places(key: RecordKey, zone: str) -> list[RecordKey]:
    """All keys that the mark of a set may have: the usual one, and for an address those beside a delegation above it."""
    places = [mark_key(key, zone)]
    name = key.name
    while key.type in GLUE and len(name) > len(zone) and name.endswith("." + zone):
        places.append(mark_key(key, zone, name))
        name = _first_label(name)[1]
    return places


def marked_key(key: RecordKey, record: RecordSet | None = None) -> RecordKey | None:
    """The record set that a mark at `key` belongs to; None when `key` cannot be a mark.

    Without the mark itself (`record`), or with an unreadable one, digests replace the label and the set identifier.
    """
    if key.type != "TXT" or not key.name.startswith(PREFIX):
        return None
    first, _, name = key.name.partition(".")
    kind, _, member = first[len(PREFIX) :].partition("_")
    if not kind or not name:
        return None
    text = unquote(record.values[0]) if record is not None and len(record.values) == 1 else ""
    head, _, set_id = text.partition(MEMBER)
    member = set_id if member and _digest(set_id) == member else member
    cut, _, cut_label = kind.partition("-")
    if cut_label and cut.upper() in CUTS | GLUE:
        label_text = head.partition(LABEL)[2]
        return RecordKey(f"{label_text if _digest(label_text) == cut_label else cut_label}.{name}", cut.upper(), member)
    return RecordKey("*." + name[len(WILDCARD) :] if name.startswith(WILDCARD) else name, kind.upper(), member)


def mark_record(owner: str, key: RecordKey | None = None, zone: str = "", cut: str = "") -> RecordSet:
    """The mark that names `owner` (`<instance>/<object key>`) of the set `key`; its key is `mark_key(key, zone, cut)`."""
    text = SYNTAX + owner
    labels = "" if key is None else _labels(key, zone, cut)
    if labels:
        text += LABEL + labels
    if key is not None and key.set_id:
        text += MEMBER + key.set_id
    return RecordSet(MARK_TTL, (quote(text),))


def _labels(key: RecordKey, zone: str, cut: str) -> str:
    """The labels that the name of a mark leaves out, because names below them do not belong to the zone."""
    if key.type in CUTS and key.name != zone:
        return _first_label(key.name)[0]
    if key.type in GLUE and cut:
        return key.name[: len(key.name) - len(_first_label(cut)[1]) - 1]
    return ""


def _first_label(name: str) -> tuple[str, str]:
    """The first label of a name and the rest. A dot that is part of a label is escaped."""
    match = FIRST_LABEL.match(name)
    end = match.end() if match else 0
    return name[: end - 1], name[end:]


def read_mark(record: RecordSet) -> str:
    """The owner that a mark names. Several values or another text give an owner of no instance, so the set is foreign."""
    return _owner_in(record.values)


@lru_cache(maxsize=4096)
def _owner_in(values: tuple[str, ...]) -> str:
    """Cached, because many marks in a zone have the same text."""
    texts = [unquote(value) for value in values]
    if len(texts) == 1 and texts[0].startswith(SYNTAX):
        owner = texts[0][len(SYNTAX) :].partition(MEMBER)[0].partition(LABEL)[0]
        if "/" in owner:
            return owner
    return UNREADABLE + " and ".join(texts)


def split(records: Mapping[RecordKey, RecordSet]) -> Marked:
    """Separate the marks from a zone's record sets. One fast pass: there may be 100,000 sets."""
    plain: dict[RecordKey, RecordSet] = {}
    owners: dict[RecordKey, str] = {}
    marks: dict[RecordKey, RecordSet] = {}
    for key, record in records.items():
        subject = marked_key(key, record) if key.type == "TXT" and key.name.startswith(PREFIX) else None
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
    if PLAIN.fullmatch(text):
        return f'"{text}"'
    raw = text.encode()
    pieces = [raw[start : start + CHUNK] for start in range(0, len(raw), CHUNK)] or [b""]
    return " ".join(f'"{"".join(map(_escape, piece))}"' for piece in pieces)


@lru_cache(maxsize=4096)
def unquote(value: str) -> str:
    """The whole text of a TXT value, its pieces joined. Lenient: an incomplete escape is kept as it is."""
    octets = bytearray()
    quoted = False
    characters: Iterable[str] = iter(value)
    for character in characters:
        if character == '"':
            quoted = not quoted
        elif character == "\\":
            octets += _unescape(characters)
        elif quoted or character != " ":
            octets += character.encode()
    return octets.decode(errors="replace")


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
