"""Service: which containers are endpoints, on which port, and in which pools they get a weight."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Manifest, Model, unique
from manifests.types.engine import NetworkName
from manifests.types.errors import bad_value
from manifests.types.fields import IPAddress, Items, LabelKey, LabelValue, Name, PercentField, PoolName, PortRef, Window
from manifests.types.numbers import Percent


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


class Ramp(Model):
    """How a new endpoint, also one that was restarted, comes to its full weight."""

    duration: Window = Field(description="Time from being ready for the first time to the full weight.")
    min_share: PercentField = Field(Percent(10), description="Part of its weight that it begins with.")


class Panic(Model):
    """What happens when so many endpoints of a pool fail their probes that their failing is doubted."""

    threshold: PercentField = Field(
        Percent(50),
        description="Panic begins below this share of ready endpoints, and ends 10 points above it. Endpoints that were "
        "never ready or are on their way out do not count. 0% switches panic off.",
    )
    mode: Literal["freeze", "spread", "closed"] = Field(
        "freeze",
        description="What endpoints get in panic that fail: `freeze` the weight that they have, `spread` the same as ready "
        "ones, `closed` nothing, even if the pool becomes empty.",
    )
    override_pushes: bool = Field(
        False, description="Whether endpoints that push `not-ready` or `startup` keep their weight in panic, too."
    )


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
    ramp: Ramp | None = Field(
        None, description="Lets new endpoints come to their weight step by step; by default they get all of it at once."
    )
    panic: Panic = Field(default_factory=Panic, description="Protection against probes that fail everywhere at once.")
    balancers: Annotated[Items[Balancer], unique("pool", "provider", "pool")] = Field(
        (), description="Pools to keep equal to the ready endpoints."
    )


class Service(Manifest):
    """Endpoints of one or more workloads, and the pools that carry them."""

    kind: Literal["Service"] = Field(description="What the document declares.")
    spec: ServiceSpec = Field(description="What is wanted.")
