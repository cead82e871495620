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
from providers.dns.common.routing import label
from providers.dns.rfc2136 import read, refusals, update
from providers.dns.rfc2136.connection import Clocks
from providers.dns.rfc2136.names import Names
from providers.dns.rfc2136.queries import TRIES, look
from providers.dns.rfc2136.settings import RFC2136Settings
from providers.dns.rfc2136.transfer import catch_up, transfer
from providers.errors import Conflict, OutcomeUnknown, Overwritten, ProviderError, Rejected, Unreachable
from providers.facts import RecordKey, RecordSet, ZoneFact
from providers.lib.clock import boottime
from providers.spi import Context

BATCH_OCTETS = 65_000
"""About what one message of 64 KB holds beside its header and signature."""

SHORT = 200
"""Names of fewer characters have room for the label of a check below them (a name has at most 255 octets)."""

FULL_READ = 15 * 60 * SECOND
"""After this time (ns) a zone is transferred whole again, even when its serial or its changes need no transfer."""


class _Transferred(NamedTuple):
    """A zone as it was last read, and when its last whole transfer began."""

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
        mark and all else at its name stay together; an error then says how many of the messages were carried out. A set that
        does not fit into one message is written by differences, so that it always has values.

        Raises:
            Conflict, Gone: a set is not as the plan saw it, or became something else while it was written.
            Overwritten: the server said that it wrote, and what is read back is something else.
            Rejected: the server refuses, a key does not fit, or the change breaks a rule of DNS.
            Unreachable: nothing was sent, or the server says that it could not write.
            OutcomeUnknown: the update was sent, and its answer or the reading back is missing; or a later message of several
                could not be sent or written.
        """
        zone = zone_name(action.zone)
        changes = update.canonical_changes(action.changes)
        before = self._query_changes(zone, changes) if self._by_queries else self._whole(zone)
        records = _around(zone, changes, before.records)
        result = changed_sets(zone, records, changes, self.capabilities)
        if not result:
            return
        signer = self._server.signer(self._server.settings.update_key, zone)
        messages = update.parts(zone, changes, result, records, update.room_for(zone, signer))
        # From here on the zone may differ from the one that was read.
        known = self._transferred.pop(zone, None)
        with self._server.connection() as connection:
            for index, part in enumerate(messages):
                done = f"{index} of {len(messages)} messages were carried out before" if index else update.NOTHING
                try:
                    message = part
                    if part.expects is not None:
                        message = update.guarded(part, self._version_with(zone, part.expects))
                    update.send(self._server, connection, signer, zone, message, done)
                except Rejected as error:
                    raise self._explained(zone, error, part, list(result)) from error
                except Unreachable as error:
                    if not index:
                        raise
                    # Unreachable promises that nothing was changed.
                    raise OutcomeUnknown(
                        error.target, error.cause, error.next_step or "the zone is read again automatically"
                    ) from error
        if known is not None:
            self._transferred.setdefault(zone, known)
        self._read_back(zone, result)

    def check(self, zones: Collection[str]) -> tuple[str, ...]:
        """What keeps these zones from being managed, without changing anything: one text per finding, none when all is well.

        Asks each zone for its SOA, transfers it (`readBack: axfr`), and sends an update whose prerequisite cannot hold, so
        that the server says whether the update key is accepted. Texts end with the configuration to add. Raises nothing.
        """
        findings: list[str] = []
        for name in sorted(set(zones)):
            try:
                zone = zone_name(name)
                self._fact(zone)
            except ProviderError as error:
                findings.append(str(error))
                if isinstance(error, Unreachable):
                    continue
            try:
                self._check_update(zone_name(name))
            except ProviderError as error:
                findings.append(str(error))
        return tuple(dict.fromkeys(findings))

    def close(self) -> None:
        """Forget the zones that were read. No connection outlives a call."""
        self._transferred.clear()

    def _explained(self, zone: str, error: Rejected, part: update.Part, written: list[RecordKey]) -> Rejected:
        """The refusal of an update, with what the server says about a harmless one: whether the key has rights at all."""
        refused = refusals.REFUSED_TEXT in error.cause
        if error.whole or (len(written) <= 2 and not refused):
            return error
        if not self._has_rights(zone, [key.name for key in written]):
            whole = len(written) > 2
            return Rejected(error.target, error.cause, error.next_step, whole=whole)
        return refusals.limit_reached(error, part.shows) if refused else error

    def _has_rights(self, zone: str, names: list[str]) -> bool:
        """Whether the key may update some of these names, so that a part of a refused change may be accepted.

        A policy of the server may allow some names only, so names from the start, the middle and the end are tried.
        """
        short = [name for name in names if len(name) < SHORT] or [zone]
        for name in dict.fromkeys((short[0], short[len(short) // 2], short[-1])):
            try:
                self._check_update(zone, name)
            except Rejected:
                continue
            except ProviderError:
                return True  # not known: a few calls more do no harm
            return True
        return False

    def _check_update(self, zone: str, name: str = "") -> None:
        """Raise unless the server would accept our updates below a name. The prerequisite, a zone without SOA, never holds."""
        key = RecordKey(zone, "SOA")
        harmless = update.removal(zone, RecordKey(f"_reconciler-check.{name or zone}", "TXT"))
        part = update.Part(update.equals(zone, key, None), [harmless], 0)
        signer = self._server.signer(self._server.settings.update_key, zone)
        with self._server.connection() as connection:
            try:
                update.send(self._server, connection, signer, zone, part, update.NOTHING)
            except Conflict:
                return
        cause = "the server carried out an update whose prerequisite cannot hold: it does not check prerequisites"
        raise Rejected(f"zone {zone}", cause, "use a server that implements section 3.2 of RFC 2136")

    def _version_with(self, zone: str, expected: Mapping[RecordKey, RecordSet | None]) -> bytes:
        """The SOA of the present version of a zone, in which these sets are as expected.

        Raises:
            Conflict: a set is not as expected.
            Unreachable: the zone changes faster than it can be read.
        """
        signer = self._server.signer(self._server.reading_key, zone)
        for _ in range(TRIES):
            with self._server.connection() as connection:
                serial, soa = read.version(self._server, connection, signer, zone)
            current = self._query(zone, expected, candidates=expected) if self._by_queries else self._whole(zone)
            if current.serial == serial:
                key = _first_difference(expected, current.records)
                if key is None:
                    return soa
                cause = f"was changed by another writer while it was written: expected {show(expected[key])}, found {show(current.records.get(key))}"
                raise Conflict(label(key), cause, "retried automatically")
        raise Unreachable(f"zone {zone}", f"changed {TRIES} times while it was read", "retried automatically")

    def _fact(self, name: str) -> ZoneFact:
        zone = zone_name(name)
        if self._by_queries:
            known = self._names.of(zone)
            current = self._query(zone, known, candidates=known)
            return ZoneFact(name, current.serial, dict(current.records), {}, self.capabilities)
        fact = self._current(zone).fact
        return fact if fact.zone == name else replace(fact, zone=name)

    def _whole(self, zone: str) -> read.Zone:
        return self._current(zone).zone

    def _current(self, zone: str) -> _Transferred:
        """The zone: the known one while its serial is unchanged, else with the changes since, else by a whole transfer."""
        signer = self._server.signer(self._server.reading_key, zone)
        now = self._server.clocks.steady()
        with self._server.connection() as connection:
            serial = read.serial(self._server, connection, signer, zone)
            # Removed first: a failure from here on must not leave an outdated zone behind.
            known = self._transferred.pop(zone, None)
            if known is not None and now - known.at < FULL_READ:
                if known.zone.serial == serial:
                    return self._remember(zone, known)
                updated = catch_up(self._server, connection, signer, zone, known.zone, serial)
                if updated is not None:
                    return self._remember(zone, self._with_fact(zone, updated, known.at))
        with self._server.connection() as connection, collector_paused():
            whole = transfer(self._server, connection, signer, zone)
        return self._remember(zone, self._with_fact(zone, whole, now))

    def _with_fact(self, zone: str, content: read.Zone, at: int) -> _Transferred:
        fact = ZoneFact(zone, content.serial, MappingProxyType(content.records), {}, self.capabilities)
        return _Transferred(content, at, fact)

    def _remember(self, zone: str, known: _Transferred) -> _Transferred:
        """Keep it: while nothing changes, each look returns the same object, so that callers need not compare it."""
        self._transferred[zone] = known
        return known

    def _query(
        self,
        zone: str,
        keys: Iterable[RecordKey],
        changes: Iterable[RecordChange] = (),
        candidates: Mapping[RecordKey, RecordSet | None] = MappingProxyType({}),
    ) -> read.Zone:
        with self._server.connection() as connection:
            return look(self._server, connection, zone, keys, changes, candidates)

    def _query_changes(self, zone: str, changes: list[RecordChange]) -> read.Zone:
        """The sets of some changes, by queries. Their names are saved before anything is written."""
        # Names outside the zone are not queried; they are refused later, with the reason.
        changes = [change for change in changes if in_zone(change.key.name, zone)]
        keys = {change.key for change in changes}
        new = self._names.add(zone, keys)
        known = self._names.of(zone)
        try:
            current = self._query(zone, keys, changes, {**known, **_expected(changes, known)})
        except Rejected:
            self._names.drop(zone, new)  # nothing is written: later looks need not ask for them
            raise
        for change in changes:
            present = current.records.get(change.key)
            # The owner of a set that no look has read is unknown: not even an equal set is adopted silently.
            if change.key in new and change.before is None and present is not None:
                cause = f"exists, but was not observed before: {show(present)}"
                raise Conflict(f"{change.key.name} {change.key.type}", cause, "retried automatically")
        # Saved before it is written: after a kill -9 the next look compares it.
        after = {change.key: change.after for change in changes if change.after is not None}
        self._names.remember(zone, {key: record for key, record in after.items() if key in current.hidden})
        return current

    def _read_back(self, zone: str, result: Mapping[RecordKey, RecordSet | None]) -> None:
        try:
            current = self._query(zone, result, candidates=result) if self._by_queries else self._whole(zone)
            if not self._by_queries and _first_difference(result, current.records) is not None:
                # Only a whole transfer proves the difference: when the server increments its serial later, neither the
                # serial nor the changes contain this update yet.
                self._transferred.pop(zone, None)
                current = self._whole(zone)
        except ProviderError as error:
            cause = f"the update was accepted, but reading it back failed: {error.cause}"
            raise OutcomeUnknown(f"zone {zone}", cause, error.next_step) from error
        key = _first_difference(result, current.records)
        if key is not None:
            present = current.records.get(key)
            cause = f"the server accepted the change, but reading it back differs: expected {show(result[key])}, found {show(present)}"
            step = "retried automatically; if it persists, check for other records and rules of the server at this name"
            raise Overwritten(f"{key.name} {key.type}", cause, step)
        if self._by_queries:
            self._names.drop(zone, {key for key, after in result.items() if after is None})


def _expected(
    changes: Iterable[RecordChange], known: Mapping[RecordKey, RecordSet | None]
) -> dict[RecordKey, RecordSet]:
    """What the changed sets may be, where nothing is remembered of them."""
    return {
        change.key: record
        for change in changes
        if known.get(change.key) is None and (record := change.before or change.after) is not None
    }


def _around(
    zone: str, changes: Iterable[RecordChange], records: Mapping[RecordKey, RecordSet]
) -> dict[RecordKey, RecordSet]:
    """The sets that some changes depend on: those at their names and above. A zone has many more."""
    names = {change.key.name for change in changes}
    names |= {above for name in names for above in parents(name, zone)}
    return {key: record for key, record in records.items() if key[0] in names}


def _first_difference(
    result: Mapping[RecordKey, RecordSet | None], records: Mapping[RecordKey, RecordSet]
) -> RecordKey | None:
    """The first set that differs from the written one; None when all are equal."""
    return next((key for key, after in result.items() if records.get(key) != after), None)
