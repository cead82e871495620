"""DNSPolicy: a host name and its targets."""

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

KEYWORDS = ("publishAll", "freeze", "closed")
"""The values of `whenAllUnhealthy` besides the names of targets."""


def _geo(value: str) -> str:
    code = value.upper()
    if code == DEFAULT or geo_kind(code) is None:
        raise bad_value(
            f"'{value[:20]}' is not the code of a place",
            "write a continent (AF, AN, AS, EU, NA, OC, SA), a country such as DE, or a subdivision such as US-CA",
        )
    return code


def _all_unhealthy(value: str) -> str:
    return value if value in KEYWORDS else _target_name(value)


def _target_name(value: str) -> str:
    if value.replace("-", "").isalnum() and value == value.lower():
        return value
    raise bad_value(
        f"'{value[:40]}' is neither {', '.join(KEYWORDS)} nor the name of a target",
        f"write {', '.join(KEYWORDS)} or the name of a target",
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
        description="`balancer` publishes the addresses of its balancers while an endpoint is ready; `endpoints` publishes the "
        "addresses of ready endpoints. By default `balancer` when the balancers have addresses, else `endpoints`.",
    )


class Target(Model):
    """One source of addresses: exactly one of `service`, `addresses` and `hostname`."""

    name: Name = Field(description="Name of the target in this policy.")
    service: ServiceTarget | None = Field(None, description="Addresses of a service.")
    addresses: Annotated[Items[IPAddress], unique("address")] | None = Field(None, description="Fixed addresses.")
    hostname: TargetHost | None = Field(None, description="Another DNS name to point at.")
    weight: Weight | None = Field(
        None,
        description="Share among the targets of one place, by default 100. With 0 the target serves only while no other does.",
    )
    geo: Geo | None = Field(None, description="Place whose clients the target serves.")
    default: bool = Field(
        False, description="Whether its place also serves clients that no other place is for; exactly one place must."
    )
    health_check: Name | None = Field(
        None, description="HealthCheck that decides whether this target is healthy, instead of the check of the policy."
    )

    force: Literal["up", "down"] | None = Field(
        None,
        description="Overrides the health of the target. `down`: it is not published, not even with `publishAll`; a name still "
        "keeps its last target. `up`: it counts as healthy; an address of a service is still withdrawn with its last endpoint.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = [source for source in (self.service, self.addresses, self.hostname) if source is not None]
        if len(sources) != 1:
            raise bad_value("a target must have exactly one of service, addresses and hostname")
        if self.addresses is not None and not self.addresses:
            raise out_of_range("a target must have at least one address", at=("addresses",))
        return self


class TreeTTL(Model):
    """Times to live above the addresses of a balanced name."""

    host: TTL = Field(Duration(5 * MINUTE), description="TTL of the host, which points at the balancer name.")
    balancer: TTL = Field(Duration(5 * MINUTE), description="TTL of the balancer name, which points at the places.")
    geo: TTL = Field(Duration(MINUTE), description="TTL of the places, which point at the targets.")


class DNSPolicySpec(Model):
    """The name, its zone and its targets."""

    host: HostName = Field(description="The name to publish; the first label may be `*`.")
    provider: Name | None = Field(None, description="Name of the DNS provider; by default the only one.")
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
        "of one place equally. `geoWeighted`: both. By default `simple` for one target without a place, else according to the "
        "fields of the targets.",
    )
    health_check: CheckFields | None = Field(
        None,
        description="Check of every address. Addresses of a service must also have a ready endpoint; where one of the two is "
        "unknown the other decides.",
    )
    when_all_unhealthy: AllUnhealthy | None = Field(
        None,
        description="What is published when no target is healthy. `publishAll`: all targets. `freeze`: the current records. "
        "`closed`: nothing. The name of a target: that target, which serves in no other case. By default `publishAll` with a "
        "check, else `freeze`.",
    )
    targets: Annotated[Items[Target], unique("target name", "name"), Field(min_length=1)] = Field(
        description="Sources of the addresses."
    )
    adopt: bool = Field(
        False,
        description="Takes over existing A, AAAA and CNAME records at the names of this policy that no instance owns. An equal one only gets an owner mark; one with "
        "another value or TTL is changed after an operator has approved that.",
    )


class DNSPolicy(Manifest):
    """A host name whose records follow the health of its targets."""

    kind: Literal["DNSPolicy"] = Field(description="Kind of the object.")
    spec: DNSPolicySpec = Field(description="Desired state of the object.")
