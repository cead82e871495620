"""Service: which containers are endpoints, on which port, and in which pools they get a weight."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.engine_scalars import NetworkName
from manifests.fields import IPAddress, Items, LabelKey, LabelValue, Name, PoolName, PortRef
from manifests.kinds.base import Manifest, Model, unique
from manifests.scalars import bad_value


class Balancer(Model):
    """A pool that carries the service's endpoints."""

    provider: Name = Field(description="Name of the endpoints provider.")
    pool: PoolName = Field(description="Name of the pool there; a pool belongs to one service.")
    slots: PoolName | None = Field(
        None, description="Prefix of the pool's server slots that are ours, where the provider has slots (haproxy)."
    )
    addresses: Annotated[Items[IPAddress], unique("address")] = Field(
        (), description="Where clients reach the balancer; what DNS publishes for the service."
    )


class Address(Model):
    """How balancers reach an endpoint."""

    from_: Literal["container", "host"] = Field(
        "container",
        alias="from",
        description="`container` is the container's own address and port; `host` the host's address and the port that is "
        "published there, as it is found published.",
    )
    network: NetworkName | None = Field(
        None, description="The network of the containers' own addresses; by default the first one of their template."
    )

    @model_validator(mode="after")
    def _of_container(self) -> Self:
        if self.from_ == "container" or self.network is None:
            return self
        raise bad_value("an address of the host is in no network", "leave network out", at=("network",))


def _selects(selector: dict[str, str]) -> dict[str, str]:
    if selector:
        return selector
    raise bad_value("an empty selector would select every workload", "name at least one label, such as {app: web}")


class ServiceSpec(Model):
    """Which containers, which port, which pools."""

    selector: Annotated[dict[LabelKey, LabelValue], AfterValidator(_selects)] = Field(
        description="Labels that a workload's template must have."
    )
    port: PortRef = Field(description="Container port of the endpoints; every selected workload must declare it.")
    address: Address = Field(default_factory=Address, description="How balancers reach the endpoints.")
    weight: Annotated[int, Field(ge=1, le=256)] = Field(100, description="Weight of a ready endpoint.")
    balancers: Annotated[Items[Balancer], unique("pool", "provider", "pool")] = Field(
        (), description="Pools to keep equal to the ready endpoints."
    )


class Service(Manifest):
    """Endpoints of one or more workloads, and the pools that carry them."""

    kind: Literal["Service"] = Field(description="What the document declares.")
    spec: ServiceSpec = Field(description="What is wanted.")
