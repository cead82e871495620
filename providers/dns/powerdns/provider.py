"""Zones of a PowerDNS Authoritative Server, over its HTTP API (`type: powerdns`).

This module is what manifests are checked with, so it loads neither HTTP nor DNS code: that is loaded with the first look.
"""

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field

from manifests.kinds.base import Model
from manifests.types import durations
from manifests.types.durations import MILLISECOND, Duration
from manifests.types.errors import bad_value
from manifests.types.fields import Deadline, Shown
from manifests.values.desired import SECOND, Role
from providers.actions import ChangeRecords
from providers.capabilities import Atomic, DNSCapabilities, Write
from providers.dns.late import Late
from providers.facts import ZoneFact
from providers.lib.clock import boottime
from providers.lib.secrets import SecretRef
from providers.spi import Context

if TYPE_CHECKING:
    from providers.dns.powerdns.zones import Zones

BATCH_OCTETS = 1_500_000
"""Octets of one request: the server takes 2 MB unless told otherwise (`webserver-max-bodysize`)."""


def _base_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        usable, parts = None, urlsplit("")
    if not usable or parts.query or parts.fragment or parts.username is not None or not text.isascii():
        raise bad_value("that is no base URL of a server", "write http://127.0.0.1:8081, without user name and query")
    return text.rstrip("/")


BaseURL = Annotated[str, AfterValidator(_base_url), Shown("http or https URL")]
Patience = Annotated[Deadline, AfterValidator(durations.between(100 * MILLISECOND, 60 * SECOND))]


class PowerDNSSettings(Model):
    """Settings of `type: powerdns`: a PowerDNS Authoritative Server whose HTTP API is switched on (`api=yes`)."""

    url: BaseURL = Field(
        default="http://127.0.0.1:8081",
        description="Where the API is, without `/api`. Use https, or a server on this machine: the key is sent with each call.",
    )
    api_key: SecretRef = Field(description="Where the key of the API is (`api-key` in the server's configuration).")
    server_id: str = Field(
        default="localhost",
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="Name of the server within the API. PowerDNS itself has only `localhost`.",
    )
    ca_file: str = Field(
        default="",
        pattern=r"^(/[^\x00]+)?$",
        description="Absolute path of PEM certificates to trust instead of the system's. For https only.",
    )
    timeout: Patience = Field(
        default=Duration(5 * SECOND),
        description="Longest wait for a connection and for each piece of an answer. A whole answer may take five times as long.",
    )


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
        self._wall = wall or (lambda: time.clock_gettime(time.CLOCK_REALTIME))
        self._zones: Late[Zones] = Late(self._load)

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """The named zones without their SOA (its serial is in the fact).

        The serial is asked for first; while it is that of the last complete read, and that read is younger than 15 minutes,
        the zone is not read again. (A zone whose serial the API does not count up is always read.)

        Raises:
            Unreachable: no answer, or the server asks for patience.
            Rejected: the key is refused, or the server does not have the zone; with the zone that it has instead.
        """
        return self._zones().observe(zones)

    def observe_names(self, zone: str, names: Collection[str]) -> ZoneFact:
        """The record sets at some names of a zone, and nothing else. Raises as `observe`."""
        return self._zones().observe_names(zone, names)

    def perform(self, action: ChangeRecords) -> None:
        """Change record sets, and read them back.

        All or nothing when the changes fit into one request of 1.5 MB. Larger ones are split between names: a set, its owner
        mark and all else at its name stay together; an error then says how many of the requests were carried out.

        Raises:
            Conflict, Gone: a set is not as the plan saw it; or what is read back is something else.
            Rejected: the server refuses, or the change breaks a rule of DNS.
            Unreachable: nothing was changed.
            OutcomeUnknown: the change was sent, and its answer or the reading back is missing.
        """
        self._zones().perform(action)

    def check(self, zones: Collection[str]) -> tuple[str, ...]:
        """What keeps these zones from being managed, without changing anything: one text per finding. Raises nothing."""
        return self._zones().check(zones)

    def close(self) -> None:
        """Close connections and forget what was read."""
        self._zones.close()

    def _load(self) -> "Zones":
        from providers.dns.powerdns.zones import Zones  # noqa: PLC0415  (loads httpx and dnspython)

        return Zones(self._settings, self._steady, self._wall, self.capabilities)
