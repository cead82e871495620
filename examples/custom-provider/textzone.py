"""A DNS provider in one file: each zone is a text file of lines `name TTL type value`; the first line is `# serial N`.

Decorators add ownership, deadlines and dry run. The provider itself only reads its zones, compares, and writes.
"""

from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from manifests.values.desired import Role
from providers.actions import ChangeRecords
from providers.capabilities import PLAIN
from providers.dns.common.change import changed_sets
from providers.errors import Rejected, Unreachable
from providers.facts import RecordKey, RecordSet, ZoneFact
from providers.lib.files import directory_of, locked, read, replace
from providers.spi import Context


class TextZoneSettings(BaseModel):
    """Settings in the manifest. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str = "textzones"


class TextZone:
    """Zones in files `<directory>/<zone>txt`, for example `example.test.txt`."""

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]] = TextZoneSettings
    capabilities = PLAIN

    def __init__(self, name: str, settings: TextZoneSettings, context: Context) -> None:
        self.name = name
        self._settings = settings
        self._context = context

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """One complete look: a missing file is an empty zone, an unreadable file raises."""
        facts = []
        for zone in sorted(set(zones)):
            path = self._path(zone)
            serial, records = _parse(zone, path, read(zone, path))
            facts.append(ZoneFact(zone, serial, records, {}))
        return tuple(facts)

    def perform(self, action: ChangeRecords) -> None:
        """Compare with the current records, then write all changes at once."""
        path = self._path(action.zone)
        with locked(action.zone, path.parent):
            data = read(action.zone, path)
            serial, records = _parse(action.zone, path, data)
            changed = changed_sets(action.zone, records, action.changes)
            if not changed:
                return
            after = {key: record for key, record in (records | changed).items() if record is not None}
            replace(action.zone, path, _render(serial + 1, after), data)

    def close(self) -> None:
        """Nothing to release."""

    def _path(self, zone: str) -> Path:
        if "/" in zone or "\0" in zone or zone.startswith("."):
            raise Rejected(f"zone {zone!r}", "is not a file name", "use another zone or another provider")
        return directory_of(self.name, self._settings.directory, self._context.state_dir) / f"{zone}txt"


def _parse(zone: str, path: Path, data: bytes | None) -> tuple[int, dict[RecordKey, RecordSet]]:
    if data is None:
        return 0, {}
    records: dict[RecordKey, RecordSet] = {}
    try:
        first, *lines = data.decode().splitlines()
        serial = int(first.removeprefix("# serial "))
        for line in lines:
            name, ttl, kind, value = line.split(" ", 3)
            key = RecordKey(name, kind)
            values = records[key].values if key in records else ()
            records[key] = RecordSet(int(ttl), (*values, value))
    except ValueError as error:
        raise Unreachable(f"zone {zone}", f"{path} is not a zone file: {error}", "repair the file") from error
    return serial, records


def _render(serial: int, records: dict[RecordKey, RecordSet]) -> bytes:
    lines = [f"# serial {serial}"]
    for key, record in sorted(records.items()):
        lines += [f"{key.name} {record.ttl} {key.type} {value}" for value in record.values]
    return ("\n".join(lines) + "\n").encode()
