"""Zones as RFC 1035 master files in a directory (`type: zonefile`): the embedded default for names.

Any name server can load them. Operators may edit the files, too: a change touches only the lines of its record sets, is compared
with the present content of the file, and replaces the file atomically under a lock. The new serial is the file's own serial plus
one, so that it also rises after edits by hand.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from manifests.values.desired import Role
from providers.actions import ChangeRecords
from providers.capabilities import Atomic, DNSCapabilities, Write
from providers.dns.common import canonical
from providers.dns.common.change import canonical_change, changed_sets
from providers.dns.zonefile.edit import edit, new_zone, next_serial
from providers.dns.zonefile.lines import ZoneSyntaxError
from providers.dns.zonefile.parser import IncludeError, ZoneText, parse
from providers.errors import ProviderError, Rejected, Unreachable
from providers.facts import RecordKey, RecordSet, ZoneFact
from providers.lib.files import directory_of, locked, read, replace
from providers.spi import Context

ZONE_NAME = re.compile(r"(?=.{2,201}\Z)(?:[a-z0-9_][a-z0-9_-]{0,62}\.)+")
"""Zones whose name is a valid file name everywhere."""

SUFFIX = "zone"


class ZoneFileSettings(BaseModel):
    """Settings of `type: zonefile`. `primary` and `hostmaster` are used only when a zone file is created."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str = Field(
        default="zones",
        min_length=1,
        description="Directory of the zone files. Absolute, or relative to the instance's state directory.",
    )
    primary: str = Field(
        default="localhost.",
        description="Name server in the SOA and NS records of a new zone. Set the real one before the zone is served.",
    )
    hostmaster: str = Field(
        default="",
        description="Mailbox in the SOA record of a new zone, written as a name. Default: hostmaster.<zone>.",
    )

    @field_validator("primary", "hostmaster")
    @classmethod
    def _is_name(cls, text: str) -> str:
        return canonical.name(text, ".") if text else text


class ZoneFiles:
    """Zones in files: `example.test.` is `<directory>/example.test.zone`. A missing file is an empty zone, serial 0."""

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]] = ZoneFileSettings
    capabilities = DNSCapabilities(atomic=Atomic.ACTION, write=Write.COMPARED)

    def __init__(self, name: str, settings: ZoneFileSettings, context: Context) -> None:
        self.name = name
        self._settings = settings
        self._context = context
        # The last parse of each zone, with the digest of its bytes: looks are frequent, changes are rare.
        self._parsed: dict[str, tuple[bytes, ZoneText]] = {}

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """The named zones, completely, without their SOA (its serial is in the fact).

        Raises:
            Unreachable: a file cannot be read or is not a zone file; with the line.
            Rejected: a file uses $INCLUDE or $GENERATE, or a zone's name is not a file name.
        """
        return tuple(self._observe(zone) for zone in sorted(set(zones)))

    def perform(self, action: ChangeRecords) -> None:
        """Change record sets, all or nothing. The first change creates the file.

        Raises:
            Conflict, Gone: a set is not as expected, for example because the file was edited meanwhile.
            Rejected: a record is invalid or breaks a rule of DNS; or as `observe`; or missing permissions.
            Unreachable: the file cannot be read or written, or another writer holds the lock; nothing was changed.
            OutcomeUnknown: see `providers.lib.files.replace`.
        """
        zone = action.zone
        path = self._path(zone)
        changes = [canonical_change(change) for change in action.changes]
        with locked(f"zone {zone}", path.parent):
            data = read(f"zone {zone}", path)
            text = self._new(zone) if data is None else data.decode("latin-1")
            parsed = self._parse(zone, path, text)
            result = changed_sets(zone, parsed.records, changes, self.capabilities)
            if result:
                after = self._edited(zone, path, text, parsed, result)
                replace(f"zone {zone}", path, after.encode("latin-1"), data)

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _observe(self, zone: str) -> ZoneFact:
        path = self._path(zone)
        data = read(f"zone {zone}", path)
        if data is None:
            return ZoneFact(zone, 0, {}, {}, self.capabilities)
        parsed = self._parse(zone, path, data.decode("latin-1"))
        return ZoneFact(zone, parsed.serial, dict(parsed.records), {}, self.capabilities)

    def _edited(
        self, zone: str, path: Path, text: str, before: ZoneText, result: Mapping[RecordKey, RecordSet | None]
    ) -> str:
        serial = next_serial(before.serial)
        edited = edit(text, before, result, serial)
        expected = {key: record for key, record in before.records.items() if key not in result}
        expected |= {key: record for key, record in result.items() if record is not None}
        # The new text is parsed before it is written: whatever syntax the file uses, no other set may change.
        after = self._parse(zone, path, edited)
        if after.records != expected or after.serial != serial:
            cause = (
                f"cannot edit {path} safely: the edited file would not have the expected records; nothing was changed"
            )
            raise Rejected(f"zone {zone}", cause, "edit the file by hand, or simplify its layout")
        return edited

    def _new(self, zone: str) -> str:
        return new_zone(zone, self._settings.primary, self._settings.hostmaster or f"hostmaster.{zone}")

    def _parse(self, zone: str, path: Path, text: str) -> ZoneText:
        digest = hashlib.blake2b(text.encode("latin-1")).digest()
        known = self._parsed.get(zone)
        if known is not None and known[0] == digest:
            return known[1]
        try:
            parsed = parse(text, zone)
        except ZoneSyntaxError as error:
            raise _unreadable(zone, path, text, error) from error
        self._parsed[zone] = (digest, parsed)
        return parsed

    def _path(self, zone: str) -> Path:
        if not ZONE_NAME.fullmatch(zone):
            next_step = "use a zone name of letters, digits, '_' and '-', in lower case, with a final dot"
            raise Rejected(f"zone {zone!r}", "is not a valid name of a zone file", next_step, whole=True)
        directory = directory_of(f"provider {self.name}", self._settings.directory, self._context.state_dir)
        return directory / (zone + SUFFIX)


def _unreadable(zone: str, path: Path, text: str, error: ZoneSyntaxError) -> ProviderError:
    line = text.count("\n", 0, error.at) + 1
    cause = f"{path}:{line}: {error.cause}"
    if isinstance(error, IncludeError):
        return Rejected(f"zone {zone}", cause, "write the records into the file itself", whole=True)
    return Unreachable(f"zone {zone}", cause, "repair the line; until then this zone is not changed")
