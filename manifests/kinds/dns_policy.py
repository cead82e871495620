"""DNSPolicy: a host name and what it points at."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from manifests.fields import TTL, HostName, IPAddress, Items, Name, ZoneName
from manifests.kinds.base import Manifest, Model, unique
from manifests.scalars import MINUTE, Duration, bad_value, out_of_range


class ServiceTarget(Model):
    """A service as a source of addresses."""

    name: Name = Field(description="Name of the service.")
    publish: Literal["balancer", "endpoints"] | None = Field(
        None,
        description="`balancer`: the addresses of its balancers, while an endpoint is ready. `endpoints`: the addresses "
        "that have a ready endpoint. By default `balancer` when the balancers have addresses, else `endpoints`.",
    )


class Target(Model):
    """One source of addresses: exactly one of `service` and `addresses`."""

    name: Name = Field(description="Name of the target in this policy.")
    service: ServiceTarget | None = Field(None, description="Addresses of a service.")
    addresses: Annotated[Items[IPAddress], unique("address")] | None = Field(None, description="Fixed addresses.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.service is None) == (self.addresses is None):
            raise bad_value("a target has exactly one of service and addresses")
        if self.addresses is not None and not self.addresses:
            raise out_of_range("a target needs at least one address", at=("addresses",))
        return self


class DNSPolicySpec(Model):
    """The name, its zone and its targets."""

    host: HostName = Field(description="The name to publish; the first label may be `*`.")
    provider: Name | None = Field(None, description="Name of the DNS provider; by default the only one there is.")
    zone: ZoneName = Field(description="Zone that holds the name.")
    ttl: TTL = Field(Duration(MINUTE), description="Time to live of the records.")
    targets: Annotated[Items[Target], unique("target name", "name"), Field(min_length=1)] = Field(
        description="Where the addresses come from; all of them are published together."
    )


class DNSPolicy(Manifest):
    """A host name whose address records follow the health of services."""

    kind: Literal["DNSPolicy"] = Field(description="What the document declares.")
    spec: DNSPolicySpec = Field(description="What is wanted.")
