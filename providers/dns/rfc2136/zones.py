"""Zones of a name server that takes dynamic updates (`type: rfc2136`). Tested with BIND and Knot.

When a zone is read again, how a change is checked, written and read back. What the plan saw travels with each update as
prerequisites, so that the server itself refuses to overwrite another writer's change.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from pydantic import BaseModel

from manifests.gc_pause import collector_paused
from manifests.values.desired import SECOND, Role
from providers.actions import ChangeRecords, RecordChange
from providers.capabilities import Atomic, DNSCapabilities, ReadBack, Write
from providers.dns.common.change import changed_sets, in_zone, parents, show, zone_name
from providers.dns.rfc2136 import read, update
from providers.dns.rfc2136.connection import Clocks
from providers.dns.rfc2136.names import Names
from providers.dns.rfc2136.queries import look
from providers.dns.rfc2136.settings import RFC2136Settings
from providers.dns.rfc2136.transfer import catch_up, transfer
from providers.errors import Conflict, OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.facts import RecordKey, RecordSet, ZoneFact
from providers.lib.clock import boottime
from providers.spi import Context

BATCH_OCTETS = 65_000
"""About what one message of 64 KB holds beside its header and signature."""

FULL_READ = 15 * 60 * SECOND
"""After this time (ns) a zone is transferred whole again, whatever its serial says and whatever changes were told since."""


class _Transferred(NamedTuple):
    """A zone as it was last seen, and when its last whole transfer began."""

    zone: read.Zone
    at: int
    fact: ZoneFact


class RFC2136Zones:
    """Zones on one primary name server, reached over TCP, with TSIG when keys are given.

    With `readBack: axfr` a look is complete. With `readBack: queries` a look knows the serial of the zone and those record
    sets that this instance ever asked for (their names are kept in the state directory); it cannot know others, so that
    records of others at other names are never seen, and never touched either.
    """

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]] = RFC2136Settings
    capabilities = DNSCapabilities(atomic=Atomic.BATCH, batch_octets=BATCH_OCTETS, write=Write.COMPARED)

    def __init__(
        self,
        name: str,
        settings: RFC2136Settings,
        context: Context,
        *,
        steady: Callable[[], int] = boottime,
        wall: Callable[[], int] | None = None,
    ) -> None:
        self.name = name
        clocks = Clocks(steady) if wall is None else Clocks(steady, wall)
        self._server = read.Server(settings, clocks)
        self._by_queries = settings.read_back == "queries"
        self._names = Names(context.state_dir, name)
        if self._by_queries:
            self.capabilities = replace(self.capabilities, read_back=ReadBack.NAMES)
        self._transferred: dict[str, _Transferred] = {}

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """The named zones without their SOA (its serial is in the fact).

        The serial is asked for first; while it is that of the last complete transfer, and that transfer is younger than 15
        minutes, the zone is not transferred again. (The serial alone is no proof: a restored zone may have an old one.)

        Raises:
            Unreachable: no answer, an answer cut short, or the server cannot serve a zone now. Never a part of a zone.
            Rejected: the server refuses, or a key does not fit; with the line of configuration to add.
        """
        return tuple(self._fact(zone) for zone in sorted(set(zones)))

    def perform(self, action: ChangeRecords) -> None:
        """Change record sets, and read them back.

        All or nothing when the changes fit into one message of 64 KB. Larger ones are split between names: a set, its owner
        mark and all else at its name stay together; an error then says how many of the messages were carried out.

        Raises:
            Conflict, Gone: a set is not as the plan saw it, or became something else while it was written; or the server
                said that it wrote, and what is read back is something else.
            Rejected: the server refuses, a key does not fit, or the change breaks a rule of DNS.
            Unreachable: nothing was sent, or the server says that it could not write.
            OutcomeUnknown: the update was sent, and its answer or the reading back is missing; or a later message of several
                could not be sent or written.
        """
        zone = zone_name(action.zone)
        changes = update.canonical_changes(action.changes)
        found = self._asked(zone, changes) if self._by_queries else self._whole(zone)
        records = _around(zone, changes, found.records)
        result = changed_sets(zone, records, changes, self.capabilities)
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
        """What keeps these zones from being managed, without changing anything: one text per finding, none when all is well.

        Asks each zone for its SOA, transfers it (`readBack: axfr`), and sends an update whose prerequisite cannot hold, so
        that the server says whether the update key is accepted. Texts end with the configuration to add. Raises nothing.
        """
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
            return ZoneFact(asked, found.serial, dict(found.records), {}, self.capabilities)
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
            found, at, ZoneFact(zone, found.serial, MappingProxyType(found.records), {}, self.capabilities)
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
