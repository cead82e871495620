"""The work behind `rfc2136.py`: when to read a zone again, how a change is checked, written and read back."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from manifests.gc_pause import collector_paused
from manifests.values.desired import SECOND
from providers.actions import ChangeRecords, RecordChange
from providers.capabilities import DNSCapabilities
from providers.dns.common.change import changed_sets, in_zone, parents, show, zone_name
from providers.dns.rfc2136 import read, update
from providers.dns.rfc2136.connection import Clocks
from providers.dns.rfc2136.names import Names
from providers.dns.rfc2136.queries import look
from providers.dns.rfc2136.settings import RFC2136Settings
from providers.dns.rfc2136.transfer import catch_up, transfer
from providers.errors import Conflict, OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.facts import RecordKey, RecordSet, ZoneFact
from providers.spi import Context

FULL_READ = 15 * 60 * SECOND
"""After this time (ns) a zone is transferred whole again, whatever its serial says and whatever changes were told since."""


class _Transferred(NamedTuple):
    """A zone as it was last seen, and when its last whole transfer began."""

    zone: read.Zone
    at: int
    fact: ZoneFact


def clocks(steady: Callable[[], int], wall: Callable[[], int] | None) -> Clocks:
    """The clocks of a provider; without `wall`, the machine's."""
    return Clocks(steady) if wall is None else Clocks(steady, wall)


class Zones:
    """The zones of one provider on its name server."""

    def __init__(
        self, name: str, settings: RFC2136Settings, context: Context, times: Clocks, capabilities: DNSCapabilities
    ) -> None:
        self._server = read.Server(settings, times)
        self._by_queries = settings.read_back == "queries"
        self._names = Names(context.state_dir, name)
        self._capabilities = capabilities
        self._transferred: dict[str, _Transferred] = {}

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """See `RFC2136Zones.observe`."""
        return tuple(self._fact(zone) for zone in sorted(set(zones)))

    def perform(self, action: ChangeRecords) -> None:
        """See `RFC2136Zones.perform`."""
        zone = zone_name(action.zone)
        changes = update.canonical_changes(action.changes)
        found = self._asked(zone, changes) if self._by_queries else self._whole(zone)
        records = _around(zone, changes, found.records)
        result = changed_sets(zone, records, changes, self._capabilities)
        if not result:
            return
        signer = self._server.signer(self._server.settings.update_key, zone)
        messages = update.parts(zone, changes, result, records, update.room_for(zone, signer))
        # From here on the zone may differ from what was read, whatever happens.
        known = self._transferred.pop(zone, None)
        with self._server.link() as link:
            for index, part in enumerate(messages):
                done = f"{index} of {len(messages)} messages were carried out before" if index else update.NOTHING
                try:
                    update.send(self._server, link, signer, zone, part, done)
                except Unreachable as error:
                    if not index:
                        raise
                    # Unreachable promises that nothing was changed.
                    raise OutcomeUnknown(error.target, error.cause, error.next_step or "look at the zone") from error
        if known is not None:
            self._transferred[zone] = known
        self._read_back(zone, result)

    def check(self, zones: Collection[str]) -> tuple[str, ...]:
        """See `RFC2136Zones.check`."""
        found: list[str] = []
        for asked in sorted(set(zones)):
            try:
                zone = zone_name(asked)
                self._fact(zone)
            except ProviderError as error:
                found.append(str(error))
                if isinstance(error, Unreachable):
                    continue
            try:
                self._check_update(zone_name(asked))
            except ProviderError as error:
                found.append(str(error))
        return tuple(dict.fromkeys(found))

    def close(self) -> None:
        """Forget what was read. Connections never outlive a call."""
        self._transferred.clear()

    def _check_update(self, zone: str) -> None:
        """Raise unless the server would take our updates. The prerequisite asks for a zone without SOA: it never holds."""
        key = RecordKey(zone, "SOA")
        harmless = update.removal(zone, RecordKey(f"_reconciler-check.{zone}", "TXT"))
        part = update.Part(update.equals(zone, key, None), [harmless], 0)
        signer = self._server.signer(self._server.settings.update_key, zone)
        with self._server.link() as link:
            try:
                update.send(self._server, link, signer, zone, part, update.NOTHING)
            except Conflict:
                return
        cause = "the server carried out an update whose prerequisite cannot hold: it does not check prerequisites"
        raise Rejected(f"zone {zone}", cause, "use a server that implements section 3.2 of RFC 2136")

    def _fact(self, asked: str) -> ZoneFact:
        zone = zone_name(asked)
        if self._by_queries:
            found = self._named(zone, self._names.of(zone))
            return ZoneFact(asked, found.serial, dict(found.records), {}, self._capabilities)
        fact = self._current(zone).fact
        return fact if fact.zone == asked else replace(fact, zone=asked)

    def _whole(self, zone: str) -> read.Zone:
        return self._current(zone).zone

    def _current(self, zone: str) -> _Transferred:
        """The zone: as it was seen before when that is still true, else with what changed since, else by a whole transfer."""
        signer = self._server.signer(self._server.reading_key, zone)
        now = self._server.clocks.steady()
        with self._server.link() as link:
            serial = read.serial(self._server, link, signer, zone)
            # Taken out: what fails from here on must not leave behind what is not true any more.
            known = self._transferred.pop(zone, None)
            if known is not None and now - known.at < FULL_READ:
                if known.zone.serial == serial:
                    return self._remember(zone, known)
                caught = catch_up(self._server, link, signer, zone, known.zone, serial)
                if caught is not None:
                    return self._remember(zone, self._seen(zone, caught, known.at))
        with self._server.link() as link, collector_paused():
            found = transfer(self._server, link, signer, zone)
        return self._remember(zone, self._seen(zone, found, now))

    def _seen(self, zone: str, found: read.Zone, at: int) -> _Transferred:
        return _Transferred(
            found, at, ZoneFact(zone, found.serial, MappingProxyType(found.records), {}, self._capabilities)
        )

    def _remember(self, zone: str, known: _Transferred) -> _Transferred:
        """Keep it: while nothing changes a look gives the very same value, so that nobody has to go through it again."""
        self._transferred[zone] = known
        return known

    def _named(self, zone: str, keys: Iterable[RecordKey], changes: Iterable[RecordChange] = ()) -> read.Zone:
        with self._server.link() as link:
            return look(self._server, link, zone, keys, changes)

    def _asked(self, zone: str, changes: list[RecordChange]) -> read.Zone:
        """The sets that a change is about, by queries. Their names are remembered before anything is written."""
        # What lies outside is no question for this server; it is refused later, with the reason.
        changes = [change for change in changes if in_zone(change.key.name, zone)]
        keys = {change.key for change in changes}
        new = self._names.add(zone, keys)
        found = self._named(zone, keys, changes)
        for change in changes:
            present = found.records.get(change.key)
            # Whose it is could not be judged when nobody had seen it: not even an equal set is taken over silently.
            if change.key in new and change.before is None and present is not None:
                cause = f"exists, which no look had seen before: {show(present)}"
                raise Conflict(f"{change.key.name} {change.key.type}", cause, "look again")
        return found

    def _read_back(self, zone: str, result: Mapping[RecordKey, RecordSet | None]) -> None:
        try:
            found = self._named(zone, result) if self._by_queries else self._whole(zone)
            if not self._by_queries and _other(result, found.records) is not None:
                # Nothing is said against the server before a whole transfer says it: where it counts its serial up later,
                # neither the serial nor the changes tell of this update yet.
                self._transferred.pop(zone, None)
                found = self._whole(zone)
        except ProviderError as error:
            cause = f"the update was accepted, but reading it back failed: {error.cause}"
            raise OutcomeUnknown(f"zone {zone}", cause, error.next_step) from error
        key = _other(result, found.records)
        if key is not None:
            cause = (
                f"the server accepted the change to {show(result[key])}, but now it is {show(found.records.get(key))}"
            )
            step = "look again; if it stays so, see what else the server has or forbids at this name"
            raise Conflict(f"{key.name} {key.type}", cause, step)
        if self._by_queries:
            self._names.drop(zone, {key for key, after in result.items() if after is None})


def _around(
    zone: str, changes: Iterable[RecordChange], records: Mapping[RecordKey, RecordSet]
) -> dict[RecordKey, RecordSet]:
    """The sets that decide about some changes: those at their names and above. A zone has many more."""
    names = {change.key.name for change in changes}
    names |= {above for name in names for above in parents(name, zone)}
    return {key: record for key, record in records.items() if key[0] in names}


def _other(result: Mapping[RecordKey, RecordSet | None], records: Mapping[RecordKey, RecordSet]) -> RecordKey | None:
    """The first set that is not as it was written; None when all are."""
    return next((key for key, after in result.items() if records.get(key) != after), None)
