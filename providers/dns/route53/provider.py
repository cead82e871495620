"""Hosted zones of Amazon Route 53 (`type: route53`).

Which hosted zone is meant, how it is read, and how a change is sent and read back. Calls are made by `client.py`; record sets
as Route 53 has them are in `codec.py`.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel

from manifests.values.desired import Role
from manifests.values.geo import GeoKind
from providers.actions import ChangeRecords, RecordChange
from providers.capabilities import Alias, Atomic, DNSCapabilities, Write
from providers.dns.common.change import by_name, canonical_change, changed_sets, in_zone, parents, show, zone_name
from providers.dns.common.routing import label
from providers.dns.route53 import codec
from providers.dns.route53.client import Client, Connect
from providers.dns.route53.settings import Route53Settings
from providers.errors import OutcomeUnknown, Overwritten, ProviderError, Rejected, Unreachable
from providers.facts import RecordKey, RecordSet, ZoneFact
from providers.lib.clock import boottime
from providers.spi import Context

BATCH_CHANGES = 1000
"""Elements of one change batch; replacing a set takes two."""

BATCH_CHARACTERS = 32_000
"""Characters of all values in one change batch."""

PAGE = 300
"""Record sets in one answer."""

MAX_PAGES = 1000
"""Pages of one zone. A larger one is refused: a zone has at most 10,000 sets unless Amazon allows more."""


class _Hosted(NamedTuple):
    """A hosted zone: its id and its approximate number of record sets."""

    id: str
    size: int


Sets = dict[RecordKey, codec.Stored]
"""Record sets, each with its form in Route 53."""


class Route53Zones:
    """Hosted zones of one account. A change deletes the set that the plan saw and creates the new one, in one batch."""

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]] = Route53Settings
    capabilities = DNSCapabilities(
        types=Route53Settings.record_types,
        weight=(0, 255),
        geo=frozenset(GeoKind),
        subdivisions=frozenset({"US"}),
        alias=Alias.ZONE,
        atomic=Atomic.BATCH,
        batch_changes=BATCH_CHANGES,
        batch_octets=BATCH_CHARACTERS,
        write=Write.COMPARED,
    )

    def __init__(
        self,
        name: str,
        settings: Route53Settings,
        context: Context,
        *,
        steady: Callable[[], int] = boottime,
        sleep: Callable[[float], None] = time.sleep,
        connect: Connect | None = None,
    ) -> None:
        del context
        self.name = name
        self._settings = settings
        self._client = Client(settings, steady, sleep, connect)
        self._hosted: dict[str, _Hosted] = {}

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """The named zones without their SOA. Their serial is always 0: Route 53 never increases it.

        Raises:
            Unreachable: no answer, or the account's rate of calls is used up.
            Rejected: the credentials are missing or refused, or there is no such hosted zone, or more than one.
        """
        return tuple(self._fact(asked, self._whole(zone_name(asked))) for asked in sorted(set(zones)))

    def observe_names(self, zone: str, names: Collection[str]) -> ZoneFact:
        """The record sets at some names of a zone, and perhaps others. Raises as `observe`."""
        return self._fact(zone, self._at(zone_name(zone), names))

    def perform(self, action: ChangeRecords) -> None:
        """Change record sets, read them back, and wait until all name servers have them.

        All or nothing when the changes fit into one batch (1000 elements, 32,000 characters). Larger ones are split between
        names: a set, its owner mark and all other sets at its name stay together. An error then says how many batches were done.

        Raises:
            Conflict, Gone: a set is not as the plan saw it, also if it changed during the write.
            Rejected: Route 53 refuses, or the change breaks a rule of DNS.
            Unreachable: nothing was changed: no connection, throttled, or another change of this zone is in progress.
            OutcomeUnknown: the change was sent, and the answer or the read-back is missing, or not all name servers have it.
        """
        zone = zone_name(action.zone)
        target = f"zone {zone}"
        changes = [canonical_change(change) for change in action.changes]
        inside = [change for change in changes if in_zone(change.key.name, zone)]
        sets = self._at(zone, _around(zone, inside))
        result = changed_sets(zone, _records(sets), changes, self.capabilities)
        if not result:
            return
        hosted = self._find(zone)
        batches = self._batches(zone, hosted.id, changes, result, sets)
        sent: list[str] = []
        for batch in batches:
            try:
                sent.append(self._client.change(target, HostedZoneId=hosted.id, ChangeBatch={"Changes": batch}))
            except ProviderError as error:
                if not sent:
                    raise
                cause = f"{error.cause}; {len(sent)} of {len(batches)} batches were carried out before"
                kind = OutcomeUnknown if isinstance(error, Unreachable) else type(error)
                raise kind(target, cause, error.next_step or "retried automatically") from error
        self._read_back(zone, result)
        if self._settings.sync_timeout:
            self._client.wait(target, sent[-1], self._settings.sync_timeout)

    def check(self, zones: Collection[str]) -> tuple[str, ...]:
        """The reasons why these zones cannot be read, one text each; read-only. Raises nothing."""
        problems: list[str] = []
        for asked in sorted(set(zones)):
            try:
                zone = zone_name(asked)
                self._hosted.pop(zone, None)
                self._page(zone, self._find(zone).id, {})
            except ProviderError as error:
                problems.append(str(error))
        return tuple(dict.fromkeys(problems))

    def close(self) -> None:
        """Close connections and forget what was read."""
        self._client.close()
        self._hosted.clear()

    # --- reading ------------------------------------------------------------------------------------------------------

    def _fact(self, asked: str, sets: Sets) -> ZoneFact:
        return ZoneFact(asked, 0, _records(sets), {}, self.capabilities)

    def _find(self, zone: str) -> _Hosted:
        """The hosted zone of a name. Raises `Rejected` when there is none, or more than one."""
        known = self._hosted.get(zone)
        if known is not None:
            return known
        target = f"zone {zone}"
        answer = self._client.read(target, "list_hosted_zones_by_name", DNSName=zone, MaxItems="100")
        private = self._settings.visibility == "private"
        fitting: list[_Hosted] = []
        others: list[str] = []
        for row in answer.get("HostedZones", ()):
            if codec.decimal(str(row["Name"])).lower() != zone:
                continue
            identity = str(row["Id"]).rpartition("/")[2]
            fits = bool(row.get("Config", {}).get("PrivateZone", False)) is private
            if fits and (not self._settings.zone_ids or identity in self._settings.zone_ids):
                fitting.append(_Hosted(identity, int(row.get("ResourceRecordSetCount", 0))))
            else:
                others.append(identity)
        if len(fitting) > 1:
            listed = ", ".join(sorted(hosted.id for hosted in fitting))
            cause = f"{len(fitting)} {self._settings.visibility} hosted zones have this name: {listed}"
            raise Rejected(target, cause, "set zoneIds to the id of one of them", whole=True)
        if not fitting:
            beside = f"; visibility or zoneIds excludes {', '.join(sorted(others))} of this name" if others else ""
            cause = f"these credentials have no {self._settings.visibility} hosted zone of this name{beside}"
            raise Rejected(
                target, cause, "create the zone, or correct the credentials, visibility or zoneIds", whole=True
            )
        self._hosted[zone] = fitting[0]
        return fitting[0]

    def _whole(self, zone: str) -> Sets:
        return self._decoded(zone, self._pages(zone, {}))

    def _at(self, zone: str, names: Collection[str]) -> Sets:
        """The record sets at some names: a call for each, or the whole zone if that takes fewer calls."""
        wanted = sorted(name for name in set(names) if in_zone(name, zone))
        if len(wanted) * PAGE >= self._find(zone).size:
            return self._whole(zone)
        sets: Sets = {}
        for name in wanted:
            rows = self._pages(zone, {"StartRecordName": codec.octal_name(name)}, until=name)
            decoded = self._decoded(zone, rows)
            sets |= {key: stored for key, stored in decoded.items() if key.name == name}
        return sets

    def _pages(self, zone: str, start: Mapping[str, str], until: str = "") -> Iterator[Mapping[str, Any]]:
        """The rows of a zone from `start` on; with `until`, only the rows at that name, where it then starts."""
        following = dict(start)
        hosted = self._find(zone)
        for _ in range(MAX_PAGES):
            answer = self._page(zone, hosted.id, following)
            for row in answer.get("ResourceRecordSets", ()):
                if until and codec.decimal(str(row["Name"])).lower() != until:
                    return
                yield row
            if not answer.get("IsTruncated"):
                return
            marks = ("NextRecordName", "NextRecordType", "NextRecordIdentifier")
            before, following = (
                following,
                {mark.replace("Next", "Start"): answer[mark] for mark in marks if answer.get(mark)},
            )
            if not following or following == before:
                raise Unreachable(f"zone {zone}", "Route 53 says that there are more record sets, but not where")
        raise Unreachable(f"zone {zone}", f"more than {MAX_PAGES * PAGE} record sets")

    def _page(self, zone: str, identity: str, start: Mapping[str, str]) -> Mapping[str, Any]:
        arguments = {"HostedZoneId": identity, "MaxItems": str(PAGE), **start}
        try:
            return self._client.read(f"zone {zone}", "list_resource_record_sets", **arguments)
        except Rejected:
            self._hosted.pop(zone, None)  # the name may have another hosted zone now
            raise

    def _decoded(self, zone: str, rows: Iterable[Mapping[str, Any]]) -> Sets:
        try:
            return dict(codec.decode(row) for row in rows if row.get("Type") != "SOA")
        except ValueError as error:
            raise Unreachable(f"zone {zone}", f"cannot read the answer of Route 53: {error}") from error

    # --- writing ------------------------------------------------------------------------------------------------------

    def _batches(
        self,
        zone: str,
        identity: str,
        changes: Sequence[RecordChange],
        result: Mapping[RecordKey, RecordSet | None],
        sets: Sets,
    ) -> list[list[dict[str, Any]]]:
        """The changes of each batch, in order; in each, deletions come first.

        Raises:
            Rejected: the changes at one name do not fit into a batch.
        """
        room, space = self.capabilities.batch_changes, self.capabilities.batch_octets
        batches: list[list[dict[str, Any]]] = []
        size = 0
        for name, group in by_name(changes).items():
            rows: list[dict[str, Any]] = []
            for key in (change.key for change in group if change.key in result):
                after, before = result[key], sets[key].raw if key in sets else None
                if before is not None:
                    rows.append({"Action": "DELETE", "ResourceRecordSet": dict(before)})
                if after is not None:
                    row = codec.encode(key, after, identity, before)
                    rows.append({"Action": "CREATE", "ResourceRecordSet": row})
            length = sum(codec.characters(row["ResourceRecordSet"]) for row in rows)
            if len(rows) > room or length > space:
                cause = (
                    f"its change needs {len(rows)} elements and {length} characters; the limits are {room} and {space}"
                )
                raise Rejected(f"{name} in zone {zone}", cause, "publish fewer or shorter values at this name")
            if not rows:
                continue
            if batches and len(batches[-1]) + len(rows) <= room and size + length <= space:
                batches[-1] += rows
                size += length
            else:
                batches.append(rows)
                size = length
        return [sorted(rows, key=lambda row: str(row["Action"]) != "DELETE") for rows in batches]

    def _read_back(self, zone: str, result: Mapping[RecordKey, RecordSet | None]) -> None:
        try:
            sets = self._at(zone, {key.name for key in result})
        except ProviderError as error:
            cause = f"Route 53 accepted the change, but reading it back failed: {error.cause}"
            raise OutcomeUnknown(f"zone {zone}", cause, error.next_step) from error
        for key, after in result.items():
            present = sets[key].record if key in sets else None
            if present != after:
                cause = f"Route 53 accepted the change to {show(after)}, but it reads back as {show(present)}"
                raise Overwritten(label(key), cause, "find the other writer of this zone if this happens again")


def _records(sets: Sets) -> dict[RecordKey, RecordSet]:
    return {key: stored.record for key, stored in sets.items()}


def _around(zone: str, changes: Iterable[RecordChange]) -> set[str]:
    """The names that some changes depend on: their own, and those above, which may be delegations."""
    return {name for change in changes for name in [change.key.name, *parents(change.key.name, zone)]}
