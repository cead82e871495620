"""Parses the text of a zone file: its record sets, and the offsets of each record. Pure; used by `provider.py`.

Values and names are canonical. With the offsets `edit.py` changes some records and keeps every other octet. A line that cannot be
parsed is an error: a part of a zone never counts as the whole.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from providers.capabilities import MAX_TTL
from providers.dns.common import canonical
from providers.dns.common.change import in_zone
from providers.dns.zonefile.lines import Line, ZoneSyntaxError, joined, lines, scan
from providers.facts import RecordKey, RecordSet

TTL = re.compile(r"\d+|(?:\d+[smhdwSMHDW])+")
TTL_PART = re.compile(r"(\d+)([smhdw])")
TTL_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
OTHER_CLASSES = frozenset({"CH", "CS", "HS", "ANY", "NONE"})
MAX_SERIAL = 2**32 - 1


class IncludeError(ZoneSyntaxError):
    """The file uses a directive that adds records from elsewhere, so it cannot be edited by offsets."""


class Entry(NamedTuple):
    """One record and its offsets: `text[start:end]` with the line end, `text[start:body_end]` without comment and line end.

    `owner_end` is the end of the owner name, equal to `start` when the owner is that of the record before. `ttl_stated`:
    the record gives its TTL; `ttl_inherited`: it has the TTL of the record before.
    """

    start: int
    body_end: int
    end: int
    owner_end: int
    key: RecordKey
    ttl: int
    value: str
    ttl_stated: bool
    ttl_inherited: bool


@dataclass(frozen=True, slots=True)
class ZoneText:
    """A parsed zone file: its sets without the SOA, its serial and the offsets of that, and its records in file order.

    Records outside the zone are entries, but in no set: servers ignore them too.
    """

    serial: int
    serial_span: tuple[int, int]
    records: dict[RecordKey, RecordSet]
    entries: list[Entry]


def parse(text: str, zone: str) -> ZoneText:
    """Parse the text of a zone file.

    Args:
        text: the file, one character per octet (Latin-1).
        zone: the zone's name, canonical; the first origin.

    Raises:
        ZoneSyntaxError: it is not a complete zone file of this zone.
        IncludeError: it uses $INCLUDE or $GENERATE.
    """
    if text.startswith("\xef\xbb\xbf"):
        raise ZoneSyntaxError(0, "the file begins with a byte order mark")
    if "\0" in text:
        raise ZoneSyntaxError(text.index("\0"), "the file contains NUL bytes")
    reader = _Reader(text, zone)
    for line in lines(text):
        if line.words[0][0] == "$" and line.first_end > line.start:
            reader.directive(line)
        else:
            reader.record(line)
    return reader.result()


@dataclass(slots=True)
class _Reader:
    """The state from line to line."""

    text: str
    zone: str
    origin: str = ""
    default_ttl: int | None = None
    last_ttl: int | None = None
    owner: str = ""
    serial: int = -1
    serial_span: tuple[int, int] = (0, 0)
    entries: list[Entry] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    keys: dict[tuple[str, str], RecordKey] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.origin = self.zone

    def directive(self, line: Line) -> None:
        word = line.words[0].upper()
        if word in ("$INCLUDE", "$GENERATE"):
            raise IncludeError(line.start, f"{word} is not supported in a zone file of this provider")
        if word not in ("$ORIGIN", "$TTL") or len(line.words) != 2:
            raise ZoneSyntaxError(line.start, f"{line.words[0]} with {len(line.words) - 1} words is not a directive")
        if word == "$TTL":
            self.default_ttl = self._ttl(line, line.words[1])
            return
        self.origin = self._name(line, line.words[1])
        self.names = {}

    def record(self, line: Line) -> None:
        words = line.words
        stated = line.first_end > line.start
        if stated:
            self.owner = self.names.get(words[0]) or self._name(line, words[0])
        if not self.owner:
            raise ZoneSyntaxError(line.start, "the first record has no owner name")
        ttl, at = self._ttl_and_class(line, 1 if stated else 0)
        try:
            kind = canonical.type_name(words[at].upper())
            value = canonical.value(kind, joined(line, at + 1), self.origin)
        except ValueError as error:
            raise ZoneSyntaxError(line.start, str(error)) from error
        if kind == "SOA":
            self._soa(line, at, value, ttl)
        stated_ttl = ttl is not None
        inherited = ttl is None and self.default_ttl is None
        if ttl is None:
            ttl = self.last_ttl if self.default_ttl is None else self.default_ttl
        if ttl is None:
            raise ZoneSyntaxError(line.start, "the record has no TTL, and no $TTL precedes it")
        if stated_ttl:
            self.last_ttl = ttl
        key = self.keys.get((self.owner, kind))
        if key is None:
            key = self.keys[self.owner, kind] = RecordKey(self.owner, kind)
        self.entries.append(
            Entry(line.start, line.body_end, line.end, line.first_end, key, ttl, value, stated_ttl, inherited)
        )

    def result(self) -> ZoneText:
        """Group the records into sets. The TTL of a set is that of its first record, as in servers."""
        if self.serial < 0:
            raise ZoneSyntaxError(len(self.text), f"the file has no SOA record for {self.zone}")
        values_by_key: dict[RecordKey, list[str]] = {}
        ttls: dict[RecordKey, int] = {}
        for entry in self.entries:
            values = values_by_key.get(entry.key)
            if values is None:
                values_by_key[entry.key] = [entry.value]
                ttls[entry.key] = entry.ttl
            else:
                values.append(entry.value)
        records = {
            key: RecordSet(ttls[key], tuple(values) if len(values) == 1 else tuple(sorted(set(values))))
            for key, values in values_by_key.items()
            if key.type != "SOA" and in_zone(key.name, self.zone)
        }
        return ZoneText(self.serial, self.serial_span, records, self.entries)

    def _name(self, line: Line, word: str) -> str:
        try:
            name = canonical.name(word, self.origin)
        except ValueError as error:
            raise ZoneSyntaxError(line.start, str(error)) from error
        self.names[word] = name
        return name

    def _ttl_and_class(self, line: Line, at: int) -> tuple[int | None, int]:
        """TTL and class have either order; each may be missing (RFC 1035 section 5.1)."""
        ttl: int | None = None
        class_given = False
        for place in range(at, len(line.words)):
            word = line.words[place]
            upper = word.upper()
            if ttl is None and word[0].isdigit():
                ttl = self._ttl(line, word)
            elif upper == "IN" and not class_given:
                class_given = True
            elif upper in OTHER_CLASSES:
                raise ZoneSyntaxError(line.start, f"class {upper} is not supported, only IN")
            else:
                return ttl, place
        raise ZoneSyntaxError(line.start, "the record has no type")

    def _ttl(self, line: Line, word: str) -> int:
        if not TTL.fullmatch(word):
            raise ZoneSyntaxError(line.start, f"{word!r} is not a TTL")
        parts = TTL_PART.findall(word.lower())
        seconds = sum(int(count) * TTL_UNIT[unit] for count, unit in parts) if parts else int(word[:20])
        if seconds > MAX_TTL:
            raise ZoneSyntaxError(line.start, f"the TTL {word!r} is too large")
        return seconds

    def _soa(self, line: Line, at: int, value: str, ttl: int | None) -> None:
        if self.owner != self.zone:
            raise ZoneSyntaxError(
                line.start, f"the SOA record is for {self.owner}, but this is the file of {self.zone}"
            )
        if self.serial >= 0:
            raise ZoneSyntaxError(line.start, "the zone has a second SOA record")
        scanned, _ = scan(self.text, line.start)
        if scanned is None or scanned.spans is None or not scanned.words[at + 3].isdigit():
            raise ZoneSyntaxError(line.start, "the serial of the SOA record is not a number")
        self.serial_span = scanned.spans[at + 3]
        fields = value.split(" ")
        self.serial = int(fields[2])
        if ttl is None and self.default_ttl is None and self.last_ttl is None:
            # Without any TTL before it, the last field of the SOA is the default (RFC 1035 section 3.3.13).
            self.default_ttl = int(fields[6])
