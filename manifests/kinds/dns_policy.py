"""DNSPolicy: a host name and what it points at."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Manifest, Model, unique
from manifests.kinds.health_check import CheckFields
from manifests.types.durations import MINUTE, Duration
from manifests.types.errors import bad_value, out_of_range
from manifests.types.fields import TTL, HostName, IPAddress, Items, Name, Shown, ZoneName
from manifests.types.network import zone_name
from manifests.values.geo import DEFAULT, geo_kind

WEIGHT = 100
"""Weight of a target that has none of its own."""

WORDS = ("publishAll", "freeze", "closed")
"""What `whenAllUnhealthy` may say besides the name of a target."""


def _geo(value: str) -> str:
    code = value.upper()
    if code == DEFAULT or geo_kind(code) is None:
        raise bad_value(
            f"'{value[:20]}' is not the code of a place",
            "write a continent (AF, AN, AS, EU, NA, OC, SA), a country such as DE, or a subdivision such as US-CA",
        )
    return code


def _all_unhealthy(value: str) -> str:
    return value if value in WORDS else _target_name(value)


def _target_name(value: str) -> str:
    if value.replace("-", "").isalnum() and value == value.lower():
        return value
    raise bad_value(
        f"'{value[:40]}' is neither {', '.join(WORDS)} nor the name of a target",
        "write one of these words, or a target",
    )


Geo = Annotated[str, AfterValidator(_geo), Shown("continent, country or subdivision")]
AllUnhealthy = Annotated[str, AfterValidator(_all_unhealthy), Shown("publishAll, freeze, closed, or name of a target")]
Weight = Annotated[int, Field(ge=0, le=1000), Shown("number, 0 to 1000")]
TargetHost = Annotated[str, AfterValidator(zone_name), Shown("DNS name")]


class ServiceTarget(Model):
    """A service as a source of addresses."""

    name: Name = Field(description="Name of the service.")
    publish: Literal["balancer", "endpoints"] | None = Field(
        None,
        description="`balancer`: the addresses of its balancers, while an endpoint is ready. `endpoints`: the addresses "
        "that have a ready endpoint. By default `balancer` when the balancers have addresses, else `endpoints`.",
    )


class Target(Model):
    """One source of addresses: exactly one of `service`, `addresses` and `hostname`."""

    name: Name = Field(description="Name of the target in this policy.")
    service: ServiceTarget | None = Field(None, description="Addresses of a service.")
    addresses: Annotated[Items[IPAddress], unique("address")] | None = Field(None, description="Fixed addresses.")
    hostname: TargetHost | None = Field(None, description="A name elsewhere that has the addresses.")
    weight: Weight | None = Field(
        None,
        description="Share among the targets of one place, by default 100. With 0 it serves only while no other does.",
    )
    geo: Geo | None = Field(None, description="The place whose clients it is for.")
    default: bool = Field(
        False, description="Whether its place also serves clients that no other place is for; exactly one place does."
    )
    health_check: Name | None = Field(
        None, description="HealthCheck that decides about this target, instead of the policy's own check."
    )

    force: Literal["up", "down"] | None = Field(
        None,
        description="A person's word on its health, whatever its check and its service say. `down`: it is not published, and "
        "not among everything either when all others are unhealthy; a name keeps its last target all the same. `up`: it is "
        "healthy; an address of a service still leaves with its last endpoint.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [one for one in (self.service, self.addresses, self.hostname) if one is not None]
        if len(given) != 1:
            raise bad_value("a target has exactly one of service, addresses and hostname")
        if self.addresses is not None and not self.addresses:
            raise out_of_range("a target needs at least one address", at=("addresses",))
        return self


class TreeTTL(Model):
    """Times to live above the addresses of a balanced name."""

    host: TTL = Field(Duration(5 * MINUTE), description="Of the host, which points at the balancer name.")
    balancer: TTL = Field(Duration(5 * MINUTE), description="Of the balancer name, which points at the places.")
    geo: TTL = Field(Duration(MINUTE), description="Of the places, which point at the targets.")


class DNSPolicySpec(Model):
    """The name, its zone and its targets."""

    host: HostName = Field(description="The name to publish; the first label may be `*`.")
    provider: Name | None = Field(None, description="Name of the DNS provider; by default the only one there is.")
    zone: ZoneName = Field(description="Zone that holds the name.")
    ttl: TTL = Field(Duration(MINUTE), description="Time to live of address records.")
    tree_ttl: TreeTTL = Field(
        default_factory=TreeTTL,
        alias="treeTTL",
        description="Times to live above the addresses; not used with simple routing.",
    )
    routing: Literal["simple", "weighted", "geo", "geoWeighted"] | None = Field(
        None,
        description="`simple`: all addresses together. `weighted`: targets by weight. `geo`: by the client's place, targets "
        "of one place equally. `geoWeighted`: both. By default `simple` for one target without a place, else what the "
        "fields of the targets ask for.",
    )
    health_check: CheckFields | None = Field(
        None,
        description="What every address is asked. Of a service's addresses its readiness must hold as well; where one is "
        "not known the other decides.",
    )
    when_all_unhealthy: AllUnhealthy | None = Field(
        None,
        description="`publishAll`: everything. `freeze`: what is published stays. `closed`: nothing. The name of a target: "
        "that one, which then serves in no other case. By default `publishAll` where a check is asked, else `freeze`.",
    )
    targets: Annotated[Items[Target], unique("target name", "name"), Field(min_length=1)] = Field(
        description="Where the addresses come from."
    )


class DNSPolicy(Manifest):
    """A host name whose records follow the health of what they point at."""

    kind: Literal["DNSPolicy"] = Field(description="What the document declares.")
    spec: DNSPolicySpec = Field(description="What is wanted.")
