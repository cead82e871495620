"""Zones of a name server that takes dynamic updates (`type: rfc2136`). Tested with BIND and Knot.

What the plan saw travels with each update as prerequisites, so that the server itself refuses to overwrite somebody else's
change; each update is read back. This module is what manifests are checked with, so it loads no DNS code: that is loaded
with the first look.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from manifests.values.desired import Role
from providers.actions import ChangeRecords
from providers.capabilities import Atomic, DNSCapabilities, ReadBack, Write
from providers.dns.late import Late
from providers.dns.rfc2136.settings import RFC2136Settings
from providers.facts import ZoneFact
from providers.lib.clock import boottime
from providers.spi import Context

if TYPE_CHECKING:
    from providers.dns.rfc2136.zones import Zones

BATCH_OCTETS = 65_000
"""About what one message of 64 KB holds beside its header and signature."""


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
        self._settings = settings
        self._context = context
        self._steady = steady
        self._wall = wall
        self._zones: Late[Zones] = Late(self._load)
        if settings.read_back == "queries":
            self.capabilities = replace(self.capabilities, read_back=ReadBack.NAMES)

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """The named zones without their SOA (its serial is in the fact).

        The serial is asked for first; while it is that of the last complete transfer, and that transfer is younger than 15
        minutes, the zone is not transferred again. (The serial alone is no proof: a restored zone may have an old one.)

        Raises:
            Unreachable: no answer, an answer cut short, or the server cannot serve a zone now. Never a part of a zone.
            Rejected: the server refuses, or a key does not fit; with the line of configuration to add.
        """
        return self._zones().observe(zones)

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
        self._zones().perform(action)

    def check(self, zones: Collection[str]) -> tuple[str, ...]:
        """What keeps these zones from being managed, without changing anything: one text per finding, none when all is well.

        Asks each zone for its SOA, transfers it (`readBack: axfr`), and sends an update whose prerequisite cannot hold, so
        that the server says whether the update key is accepted. Texts end with the configuration to add. Raises nothing.
        """
        return self._zones().check(zones)

    def close(self) -> None:
        """Forget what was read. Connections never outlive a call."""
        self._zones.close()

    def _load(self) -> "Zones":
        from providers.dns.rfc2136.zones import Zones, clocks  # noqa: PLC0415  (loads dnspython)

        times = clocks(self._steady, self._wall)
        return Zones(self.name, self._settings, self._context, times, self.capabilities)
