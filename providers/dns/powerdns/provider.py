"""Zones of a PowerDNS Authoritative Server, over its HTTP API (`type: powerdns`).

When a zone is read again, how a change is checked, sent and read back. Record sets as the API writes them are in `codec.py`.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel

from manifests.gc_pause import collector_paused
from manifests.values.desired import SECOND, Role
from providers.actions import ChangeRecords, RecordChange
from providers.capabilities import Atomic, DNSCapabilities, Write
from providers.dns.common.change import (
    AT_A_CUT,
    GLUE,
    by_name,
    canonical_change,
    changed_sets,
    in_zone,
    parents,
    servers_of,
    show,
    zone_name,
)
from providers.dns.common.ownership import PREFIX
from providers.dns.common.routing import label
from providers.dns.powerdns import codec
from providers.dns.powerdns.settings import PowerDNSSettings
from providers.errors import Conflict, OutcomeUnknown, Overwritten, ProviderError, Rejected, Unreachable
from providers.facts import RecordKey, RecordSet, ZoneFact
from providers.lib.clock import boottime
from providers.lib.http import API, Reply
from providers.lib.secrets import Secret
from providers.spi import Context

BATCH_OCTETS = 1_500_000
"""Octets of one request: the server accepts 2 MB by default (`webserver-max-bodysize`)."""

FULL_READ = 15 * 60 * SECOND
"""After this time (ns) a zone is read again even if its serial is the same: other writers may not use the API."""

BY_NAME = 16
"""Up to this many names are read one by one; for more, the whole zone is read once."""

SEARCH = 1000
"""Results of one search. An answer with this many may be incomplete."""

WRITABLE = frozenset({"NATIVE", "MASTER", "PRIMARY", "PRODUCER"})
"""Kinds of zones whose primary is this server. Other kinds are copies: the next transfer overwrites them."""


class _Read(NamedTuple):
    """A zone's serial and record sets, and when the read began."""

    serial: int
    records: dict[RecordKey, RecordSet]
    at: int


class PowerDNSZones:
    """Zones on one PowerDNS server that is their primary (kinds Native and Master)."""

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]] = PowerDNSSettings
    capabilities = DNSCapabilities(atomic=Atomic.BATCH, batch_octets=BATCH_OCTETS, write=Write.LOOKED)

    def __init__(
        self,
        name: str,
        settings: PowerDNSSettings,
        context: Context,
        *,
        steady: Callable[[], int] = boottime,
        wall: Callable[[], float] | None = None,
    ) -> None:
        del context
        self.name = name
        self._settings = settings
        self._steady = steady
        clock = wall or (lambda: time.clock_gettime(time.CLOCK_REALTIME))
        self._api = API(settings.url, settings.timeout, steady, clock, settings.ca_file)
        server = f"/api/v1/servers/{quote(settings.server_id, safe='')}"
        self._zones_path, self._search_path = f"{server}/zones", f"{server}/search-data"
        self._known: dict[str, _Read] = {}
        self._facts: dict[str, tuple[_Read, ZoneFact]] = {}

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """The named zones without their SOA (its serial is in the fact).

        The serial is read first. While it equals that of the last complete read, and that read is younger than 15 minutes, the
        zone is not read again. A zone whose serial the API does not increase is always read.

        Raises:
            Unreachable: no answer, or the server asks to wait.
            Rejected: the server refuses the key or does not have the zone; the message names the parent zone that it has.
        """
        return tuple(self._fact(zone) for zone in sorted(set(zones)))

    def observe_names(self, zone: str, names: Collection[str]) -> ZoneFact:
        """The record sets at some names of a zone. Raises as `observe`."""
        read = self._at(zone_name(zone), names)
        return ZoneFact(zone, read.serial, read.records, {}, self.capabilities)

    def perform(self, action: ChangeRecords) -> None:
        """Change record sets, and read them back.

        All or nothing when the changes fit into one request of 1.5 MB. Larger ones are split between names: a set, its owner
        mark and all other sets at its name stay together. An error then says how many requests were carried out.

        Raises:
            Conflict, Gone: a set is not as the plan saw it, or reads back differently.
            Rejected: the server refuses, or the change breaks a rule of DNS.
            Unreachable: nothing was changed.
            OutcomeUnknown: the change was sent, and the answer or the read-back is missing.
        """
        zone = zone_name(action.zone)
        changes = [canonical_change(change) for change in action.changes]
        inside = [change for change in changes if in_zone(change.key.name, zone)]
        read = self._at(zone, _around(zone, inside))
        new = {change.key for change in inside if change.after is not None} - read.records.keys()
        read.records.update(self._disabled(zone, new))
        result = changed_sets(zone, read.records, changes, self.capabilities)
        if not result:
            return
        self._check_children(zone, result, servers_of(changes, read.records))
        requests = _requests(zone, changes, result, self.capabilities.batch_octets)
        # From here on the zone may differ from the last read.
        self._known.pop(zone, None)
        for index, rrsets in enumerate(requests):
            done = f"{index} of {len(requests)} requests were carried out before" if index else ""
            try:
                self._send(zone, rrsets, done)
            except Unreachable as error:
                if not index:
                    raise
                # Unreachable promises that nothing was changed.
                raise OutcomeUnknown(error.target, f"{error.cause}; {done}", "retried automatically") from error
        self._read_back(zone, result)

    def check(self, zones: Collection[str]) -> tuple[str, ...]:
        """The reasons why these zones cannot be managed, one text each; read-only. Raises nothing."""
        problems: list[str] = []
        for asked in sorted(set(zones)):
            try:
                zone = zone_name(asked)
                about = self._about(zone)
                if not _counts(about):
                    problems.append(
                        f"zone {zone}: the server does not increase its serial when the API changes it: each look reads the whole"
                        " zone, and secondaries do not transfer it; set its soa_edit_api to DEFAULT"
                    )
                self._whole(zone)
            except ProviderError as error:
                problems.append(str(error))
        return tuple(dict.fromkeys(problems))

    def close(self) -> None:
        """Close connections and forget what was read."""
        self._api.close()
        self._known.clear()
        self._facts.clear()

    # --- reading ------------------------------------------------------------------------------------------------------

    def _fact(self, asked: str) -> ZoneFact:
        read = self._whole(zone_name(asked))
        known = self._facts.get(asked)
        if known is None or known[0] is not read:
            # A look at an unchanged zone returns the same value, so that callers can skip it by identity.
            records = MappingProxyType(dict(read.records))
            known = self._facts[asked] = read, ZoneFact(asked, read.serial, records, {}, self.capabilities)
        return known[1]

    def _whole(self, zone: str) -> _Read:
        now = self._steady()
        about = self._about(zone)
        known = self._known.get(zone)
        fresh = known is not None and now - known.at < FULL_READ and known.serial == _serial(zone, about)
        if known is not None and fresh and _counts(about):
            return known
        with collector_paused():
            read = self._decoded(zone, self._get(zone, ""), now)
        self._known[zone] = read
        return read

    def _at(self, zone: str, names: Collection[str]) -> _Read:
        """The record sets at some names, all of the same serial; the whole zone for many names."""
        wanted = sorted(name for name in set(names) if in_zone(name, zone))
        if len(wanted) > BY_NAME or not wanted:
            return self._whole(zone)
        records: dict[RecordKey, RecordSet] = {}
        serials: set[int] = set()
        now = self._steady()
        for name in wanted:
            read = self._decoded(zone, self._get(zone, f"?rrset_name={quote(name, safe='')}"), now)
            serials.add(read.serial)
            # An old server ignores the query and answers with all records.
            records |= {key: record for key, record in read.records.items() if key.name == name}
        if len(serials) > 1:
            return self._whole(zone)
        return _Read(serials.pop(), records, now)

    def _disabled(self, zone: str, new: set[RecordKey]) -> dict[RecordKey, RecordSet]:
        """The new sets that exist already, disabled. Reads of single names leave them out, and a write replaces them."""
        names = sorted({key.name for key in new})
        present = self._searched(zone, names) if len(names) <= BY_NAME else None
        if present is not None:
            return dict.fromkeys(new & present, RecordSet(0, ()))
        whole = self._whole(zone).records
        return {key: whole[key] for key in new & whole.keys()}

    def _searched(self, zone: str, names: Iterable[str]) -> set[RecordKey] | None:
        """The keys of all records at some names, disabled ones too; None when the server's search does not answer."""
        target = f"zone {zone}"
        keys: set[RecordKey] = set()
        for name in names:
            query = f"?object_type=record&max={SEARCH}&q={quote(name.rstrip('.'), safe='')}"
            reply = self._api.read(target, self._search_path + query, self._headers(target))
            if reply.status != 200 or not isinstance(reply.body, list) or len(reply.body) >= SEARCH:
                return None
            # The search takes a wildcard name as a pattern, and also finds other names.
            rows = [row for row in reply.body if isinstance(row, Mapping) and row.get("zone") == zone]
            keys |= {RecordKey(name, str(row.get("type"))) for row in rows if str(row.get("name", "")).lower() == name}
        return keys

    def _about(self, zone: str) -> Mapping[str, object]:
        return self._get(zone, "?rrsets=false")

    def _get(self, zone: str, query: str) -> Mapping[str, object]:
        """A zone as the API has it. Raises unless the server is its primary."""
        target = f"zone {zone}"
        reply = self._api.read(target, f"{self._path(zone)}{query}", self._headers(target))
        if reply.status == 404:
            cause = f"{self._settings.url} does not have this zone{self._parent_hint(zone)}"
            raise Rejected(target, cause, "create it there", whole=True)
        about = _object(target, reply, self._settings.url)
        if str(about.get("kind", "")).upper() not in WRITABLE:
            cause = f"it is a {about.get('kind')} zone on this server: a copy that the next transfer overwrites"
            raise Rejected(target, cause, "set url to the zone's primary server", whole=True)
        return about

    def _parent_hint(self, name: str) -> str:
        """The zone of the server that contains the name, for messages: the longest suffix."""
        for parent in parents(name, "."):
            try:
                if self._has(parent):
                    return f"; it has {parent}, which contains that name"
            except ProviderError:
                return ""
        return ""

    def _has(self, zone: str) -> bool:
        """Whether the server has a zone of this name."""
        target = f"zone {zone}"
        reply = self._api.read(target, f"{self._zones_path}?zone={quote(zone, safe='')}", self._headers(target))
        if reply.status == 422:
            return False  # no zone can have this name, such as a wildcard
        if reply.status != 200 or not isinstance(reply.body, list):
            raise Unreachable(target, f"{self._settings.url} answers {reply.status} to the request for its zones")
        # An old server ignores the query and answers with all its zones.
        return any(isinstance(row, Mapping) and str(row.get("name", "")).lower() == zone for row in reply.body)

    def _decoded(self, zone: str, about: Mapping[str, object], at: int) -> _Read:
        rrsets = about.get("rrsets")
        if not isinstance(rrsets, list):
            raise Unreachable(f"zone {zone}", f"the answer of {self._settings.url} has no record sets")
        try:
            return _Read(_serial(zone, about), codec.decode(rrsets), at)
        except ValueError as error:
            raise Unreachable(f"zone {zone}", f"cannot read the answer of {self._settings.url}: {error}") from error

    # --- writing ------------------------------------------------------------------------------------------------------

    def _check_children(self, zone: str, result: Mapping[RecordKey, RecordSet | None], servers: frozenset[str]) -> None:
        """Refuse names that another zone of the same server contains: the server would write them and never answer with them.

        Except the parts of a delegation, which other servers of the zone above need: NS, DS and glue.
        """
        written = {
            key.name
            for key, after in result.items()
            if after is not None and key.type not in AT_A_CUT and not (key.type in GLUE and key.name in servers)
        }
        candidates = {above for name in written for above in [name, *parents(name, zone)] if above != zone}
        candidates = {
            name for name in candidates if not name.startswith(PREFIX)
        }  # owner marks: no zone has such a name
        if len(candidates) <= BY_NAME:
            children = {name for name in candidates if self._has(name)}
        else:
            target = f"zone {zone}"
            reply = self._api.read(target, f"{self._zones_path}?dnssec=false", self._headers(target))
            listed = reply.body if isinstance(reply.body, list) else []
            if reply.status != 200 or not listed:
                raise Unreachable(target, f"{self._settings.url} answers {reply.status} to the request for its zones")
            children = candidates & {str(row.get("name", "")).lower() for row in listed if isinstance(row, Mapping)}
        for name in sorted(written, key=lambda name: (name.startswith(PREFIX), name)):
            for above in [name, *parents(name, zone)]:
                if above in children:
                    cause = f"the server has a zone {above}, which hides this name"
                    raise Rejected(f"{name} in zone {zone}", cause, f"publish it in zone {above}")

    def _send(self, zone: str, rrsets: list[dict[str, object]], done: str) -> None:
        target = f"zone {zone}"
        reply = self._api.write(target, "PATCH", self._path(zone), self._headers(target), {"rrsets": rrsets})
        if reply.status in (200, 204):
            return
        said = f"{self._settings.url} answers {reply.status}{f': {reply.error_text}' if reply.error_text else ''}"
        tail = f"; {done}" if done else ""
        if reply.status in (404, 409):
            raise Conflict(target, said + tail, "retried automatically")
        raise Rejected(target, said + tail, "correct the records, or check the server's log")

    def _read_back(self, zone: str, result: Mapping[RecordKey, RecordSet | None]) -> None:
        try:
            read = self._at(zone, {key.name for key in result})
        except ProviderError as error:
            cause = f"the server accepted the change, but reading it back failed: {error.cause}"
            raise OutcomeUnknown(f"zone {zone}", cause, error.next_step) from error
        for key, after in result.items():
            present = read.records.get(key)
            if present != after:
                cause = f"the server accepted the change to {show(after)}, but it reads back as {show(present)}"
                raise Overwritten(label(key), cause, "find the other writer of this zone if this happens again")

    def _path(self, zone: str) -> str:
        return f"{self._zones_path}/{_zone_id(zone)}"

    def _headers(self, target: str) -> dict[str, Secret]:
        return {"X-API-Key": self._settings.api_key.resolve(target)}


def _zone_id(zone: str) -> str:
    """The API's id of a zone: letters, digits, dots and hyphens stay, every other octet becomes `=` and its number."""
    return "".join(octet if octet.isalnum() or octet in ".-" else f"={ord(octet):02X}" for octet in zone)


def _object(target: str, reply: Reply, url: str) -> Mapping[str, object]:
    if reply.status == 200 and isinstance(reply.body, Mapping):
        return reply.body
    said = f"{url} answers {reply.status}{f': {reply.error_text}' if reply.error_text else ''}"
    if 400 <= reply.status < 500:
        raise Rejected(target, said, "set url and serverId to those of a PowerDNS API", whole=True)
    raise Unreachable(target, said)


def _serial(zone: str, about: Mapping[str, object]) -> int:
    serial = about.get("serial")
    if isinstance(serial, int):
        return serial
    raise Unreachable(f"zone {zone}", "the answer of the server has no serial")


def _counts(about: Mapping[str, object]) -> bool:
    """Whether each change over the API increases the serial."""
    return str(about.get("soa_edit_api", "")).upper() not in ("", "OFF")


def _around(zone: str, changes: Iterable[RecordChange]) -> set[str]:
    """The names that some changes depend on: their own, and those above, which may be delegations."""
    return {name for change in changes for name in [change.key.name, *parents(change.key.name, zone)]}


def _requests(
    zone: str, changes: Sequence[RecordChange], result: Mapping[RecordKey, RecordSet | None], room: int
) -> list[list[dict[str, object]]]:
    """The record sets of each request, in order. In each, removals come first, so that another type can follow.

    Raises:
        Rejected: the changes at one name do not fit into a request.
    """
    requests: list[tuple[list[dict[str, object]], int]] = []
    for name, group in by_name(changes).items():
        rrsets = [codec.encode(change.key, result[change.key]) for change in group if change.key in result]
        size = sum(len(json.dumps(rrset)) + 2 for rrset in rrsets)
        if size > room:
            cause = f"its change needs a request of {size} octets; the limit is {room}"
            raise Rejected(f"{name} in zone {zone}", cause, "publish fewer or shorter values at this name")
        if requests and requests[-1][1] + size <= room:
            before, used = requests.pop()
            rrsets, size = before + rrsets, used + size
        if rrsets:
            requests.append((rrsets, size))
    return [sorted(rrsets, key=lambda rrset: rrset["changetype"] != "DELETE") for rrsets, _ in requests]
