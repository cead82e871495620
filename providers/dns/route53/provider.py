"""Hosted zones of Amazon Route 53 (`type: route53`).

This module is what manifests are checked with, so it loads neither boto3 nor DNS code: that is loaded with the first look.
"""

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from manifests.kinds.base import Model
from manifests.types import durations
from manifests.types.durations import MILLISECOND, Duration
from manifests.types.errors import bad_value
from manifests.types.fields import Deadline, Items
from manifests.values.desired import SECOND, Role
from manifests.values.geo import GeoKind
from providers.actions import ChangeRecords
from providers.capabilities import Alias, Atomic, DNSCapabilities, Write
from providers.dns.late import Late
from providers.facts import ZoneFact
from providers.lib.clock import boottime
from providers.lib.secrets import SecretRef
from providers.spi import Context

if TYPE_CHECKING:
    from providers.dns.route53.client import Connect
    from providers.dns.route53.zones import Zones

TYPES = frozenset(
    {
        "A",
        "AAAA",
        "CAA",
        "CNAME",
        "DS",
        "HTTPS",
        "MX",
        "NAPTR",
        "NS",
        "PTR",
        "SPF",
        "SRV",
        "SSHFP",
        "SVCB",
        "TLSA",
        "TXT",
    }
)
"""Record types of Route 53, without the SOA, which belongs to the zone itself."""

BATCH_CHANGES = 1000
"""Elements of one change batch; replacing a set takes two."""

BATCH_CHARACTERS = 32_000
"""Characters of all values in one change batch."""

Patience = Annotated[Deadline, AfterValidator(durations.between(100 * MILLISECOND, 60 * SECOND))]
SyncPatience = Annotated[Deadline, AfterValidator(durations.between(0, 300 * SECOND))]


class Route53Settings(Model):
    """Settings of `type: route53`: hosted zones of one AWS account. Credentials are looked for where AWS's own tools do, unless given."""

    access_key_id: SecretRef | None = Field(
        default=None, description="Where the id of an access key is. Goes with `secretAccessKey`."
    )
    secret_access_key: SecretRef | None = Field(default=None, description="Where the access key itself is.")
    session_token: SecretRef | None = Field(
        default=None, description="Where the token of temporary credentials is. Goes with an access key."
    )
    profile: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9._ -]{0,100}$",
        description="Profile of AWS's shared configuration files to use. Default: what the environment says.",
    )
    region: str = Field(
        default="us-east-1",
        pattern=r"^[a-z0-9-]{1,40}$",
        description="Region that names the AWS partition; Route 53 itself is the same for all regions of one.",
    )
    endpoint: str = Field(
        default="",
        pattern=r"^(https?://[\x21-\x7e]+)?$",
        description="URL of the API, for VPC endpoints. Default: Amazon's own.",
    )
    visibility: Literal["public", "private"] = Field(
        default="public",
        description="Which hosted zones are meant where a public and a private one have the same name.",
    )
    zone_ids: Items[str] = Field(
        default=(),
        description="Ids of the only hosted zones to use. Needed where two of the same name have the same visibility.",
    )
    timeout: Patience = Field(
        default=Duration(5 * SECOND), description="Longest wait for a connection and for each answer."
    )
    sync_timeout: SyncPatience = Field(
        default=Duration(20 * SECOND),
        description=(
            "How long a change waits until all of Amazon's name servers have it (INSYNC). When they do not have it by then, its"
            " outcome counts as unknown, and the next look says. 0s does not wait."
        ),
    )

    @model_validator(mode="after")
    def _whole_key(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise bad_value(
                "an access key has two halves", "give both accessKeyId and secretAccessKey, or none of them"
            )
        if self.session_token is not None and self.access_key_id is None:
            raise bad_value("a session token goes with an access key", "give accessKeyId and secretAccessKey as well")
        if self.profile and self.access_key_id is not None:
            raise bad_value("a profile and an access key exclude each other", "give one of them")
        return self


class Route53Zones:
    """Hosted zones of one account. What the plan saw is deleted exactly and what it wants created, in one batch."""

    role: ClassVar[Role] = Role.DNS
    Settings: ClassVar[type[BaseModel]] = Route53Settings
    capabilities = DNSCapabilities(
        types=TYPES,
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
        connect: "Connect | None" = None,
    ) -> None:
        del context
        self.name = name
        self._settings = settings
        self._steady = steady
        self._sleep = sleep
        self._connect = connect
        self._zones: Late[Zones] = Late(self._load)

    def observe(self, zones: Collection[str]) -> tuple[ZoneFact, ...]:
        """The named zones without their SOA. Their serial is 0 here: Route 53 never counts it up.

        Raises:
            Unreachable: no answer, or the account's rate of calls is used up.
            Rejected: the credentials are refused or missing, or there is no such hosted zone, or more than one.
        """
        return self._zones().observe(zones)

    def observe_names(self, zone: str, names: Collection[str]) -> ZoneFact:
        """The record sets at some names of a zone, and perhaps others. Raises as `observe`."""
        return self._zones().observe_names(zone, names)

    def perform(self, action: ChangeRecords) -> None:
        """Change record sets, read them back, and wait until all name servers have them.

        All or nothing when the changes fit into one batch (1000 elements, 32,000 characters). Larger ones are split between
        names: a set, its owner mark and all else at its name stay together; an error then says how many were carried out.

        Raises:
            Conflict, Gone: a set is not as the plan saw it, also when it changed in the moment of writing.
            Rejected: Route 53 refuses, or the change breaks a rule of DNS.
            Unreachable: nothing was changed: no connection, throttled, or another change of this zone is being worked on.
            OutcomeUnknown: the change was sent, and its answer or reading back is missing, or not all name servers have it.
        """
        self._zones().perform(action)

    def check(self, zones: Collection[str]) -> tuple[str, ...]:
        """What keeps these zones from being read, without changing anything: one text per finding. Raises nothing."""
        return self._zones().check(zones)

    def close(self) -> None:
        """Close connections and forget what was read."""
        self._zones.close()

    def _load(self) -> "Zones":
        from providers.dns.route53.client import Client  # noqa: PLC0415  (loads boto3)
        from providers.dns.route53.zones import Zones  # noqa: PLC0415  (loads dnspython)

        client = Client(self._settings, self._steady, self._sleep, self._connect)
        return Zones(self._settings, client, self.capabilities)
