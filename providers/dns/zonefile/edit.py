"""Changes some record sets in the text of a zone file and nothing else. Pure; used by `provider.py`.

Unchanged records of a changed set keep their lines. A new record replaces a removed one in its line, or the line is removed;
further new records follow the last record of their set, or are appended to the file. New lines are complete (absolute name,
TTL, class), so they mean the same at any position.

A line may depend on the one before it: a record without owner name or TTL inherits those of the record before. When that
record is removed, the missing word is inserted into the line that needs it; every existing octet is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from providers.dns.zonefile.parser import MAX_SERIAL, Entry, ZoneText
from providers.facts import RecordKey, RecordSet


def next_serial(serial: int) -> int:
    """The next serial: larger in the sense of RFC 1982, and never 0, which some software takes for no serial."""
    return serial + 1 if serial < MAX_SERIAL else 1


def new_zone(zone: str, primary: str, hostmaster: str) -> str:
    """The text of a new zone file. Its serial is 0, so that the first edit makes it 1."""
    rows = [
        f"; Zone {zone.rstrip('.')}. You may add lines by hand; reconcile increments the serial with each of its changes.",
        "$TTL 300 ; what DNS servers use for lines without their own TTL",
        f"{zone} 3600 IN SOA {primary} {hostmaster} 0 3600 600 1209600 300",
        f"{zone} 3600 IN NS {primary}",
    ]
    return "\n".join(rows) + "\n"


def edit(text: str, zone: ZoneText, wanted: Mapping[RecordKey, RecordSet | None], serial: int) -> str:
    """The text with the wanted sets and the new serial.

    Args:
        text: the text of `zone`.
        zone: the parsed text.
        wanted: the sets to write, by key, canonical; None removes the set.
        serial: the serial to write.
    """
    newline = "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
    return _Writer(text, zone, serial, newline).write(_plan(zone, wanted))


@dataclass(slots=True)
class _Plan:
    """By index of the entry: removed entries, new lines instead of an entry, new lines after an entry. And lines to append."""

    removed: set[int] = field(default_factory=set)
    replaced: dict[int, list[str]] = field(default_factory=dict)
    after: dict[int, list[str]] = field(default_factory=dict)
    appended: list[str] = field(default_factory=list)


def _plan(zone: ZoneText, wanted: Mapping[RecordKey, RecordSet | None]) -> _Plan:
    numbers: dict[RecordKey, list[int]] = {}
    for number, entry in enumerate(zone.entries):
        if entry.key in wanted:
            numbers.setdefault(entry.key, []).append(number)
    plan = _Plan()
    for key, after in wanted.items():
        _plan_set(plan, zone.entries, key, after, numbers.get(key, []))
    return plan


def _plan_set(plan: _Plan, entries: list[Entry], key: RecordKey, after: RecordSet | None, numbers: list[int]) -> None:
    missing = dict.fromkeys(after.values if after else ())
    kept: list[int] = []
    removed: list[int] = []
    for number in numbers:
        entry = entries[number]
        if after is not None and entry.value in missing and entry.ttl == after.ttl:
            del missing[entry.value]
            kept.append(number)
        else:
            removed.append(number)
    plan.removed.update(removed)
    if after is None or not missing:
        return
    lines = [f"{key.name} {after.ttl} IN {key.type} {value}" for value in missing]
    if removed:
        plan.replaced[removed[0]] = lines
    elif kept:
        plan.after[kept[-1]] = lines
    else:
        plan.appended += lines


class _Writer:
    """Assembles the new text, and keeps track of the owner and TTL that the next line would inherit."""

    def __init__(self, text: str, zone: ZoneText, serial: int, newline: str) -> None:
        self._text = text
        self._zone = zone
        self._serial = str(serial)
        self._newline = newline
        self._out: list[str] = []
        self._owner = ""
        self._ttl = -1

    def write(self, plan: _Plan) -> str:
        at = 0
        for number, entry in enumerate(self._zone.entries):
            self._copy(at, entry.start)
            at = entry.end
            if number in plan.replaced:
                self._replace(entry, plan.replaced[number])
            elif number not in plan.removed:
                self._keep(entry)
            if number in plan.after:
                self._add(entry.key.name, plan.after[number])
        self._copy(at, len(self._text))
        if plan.appended:
            self._add("", plan.appended)
        return "".join(self._out)

    def _copy(self, start: int, end: int) -> None:
        """Copy the text, with the new serial."""
        first, last = self._zone.serial_span
        if start <= first and last <= end:
            self._out += [self._text[start:first], self._serial, self._text[last:end]]
        else:
            self._out.append(self._text[start:end])

    def _keep(self, entry: Entry) -> None:
        needs_owner = entry.owner_end == entry.start and entry.key.name != self._owner
        needs_ttl = entry.ttl_inherited and entry.ttl != self._ttl
        if needs_owner:
            self._out.append(entry.key.name)
        self._copy(entry.start, entry.owner_end)
        if needs_ttl:
            self._out.append(f" {entry.ttl}")
        self._copy(entry.owner_end, entry.end)
        self._owner = entry.key.name
        if needs_ttl or entry.ttl_stated:
            self._ttl = entry.ttl

    def _replace(self, entry: Entry, lines: list[str]) -> None:
        """Write the first new line in place of the record, before the comment that follows it; the others below."""
        self._out.append(lines[0])
        self._copy(entry.body_end, entry.end)
        self._owner = entry.key.name
        self._ttl = int(lines[0].split(" ", 2)[1])
        if len(lines) > 1:
            self._add(entry.key.name, lines[1:])

    def _add(self, owner: str, lines: list[str]) -> None:
        self._end_line()
        self._out += [line + self._newline for line in lines]
        self._owner = owner
        self._ttl = int(lines[-1].split(" ", 2)[1])

    def _end_line(self) -> None:
        last = next((part for part in reversed(self._out) if part), "\n")
        if not last.endswith("\n"):
            self._out.append(self._newline)
