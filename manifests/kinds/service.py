"""Service: the containers that are endpoints, their port, and the pools in which they get a weight."""

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
    pool: PoolName = Field(description="Name of the pool in the provider; a pool belongs to one service.")
    slots: PoolName | None = Field(
        None, description="Prefix of the server slots that this service uses, where the provider has slots (haproxy)."
    )
    addresses: Annotated[Items[IPAddress], unique("address")] = Field(
        (), description="Addresses of the balancer for clients; DNS publishes them for the service."
    )


class Address(Model):
    """Address of the endpoints for balancers."""

    from_: Literal["container", "host"] = Field(
        "container",
        alias="from",
        description="`container` is the container's own address and port; `host` is the address of the host and the published "
        "port, as observed.",
    )
    network: NetworkName | None = Field(
        None, description="Network of the containers' own addresses; by default the first one of their template."
    )

    @model_validator(mode="after")
    def _of_container(self) -> Self:
        if self.from_ == "container" or self.network is None:
            return self
        raise bad_value("network does nothing with from: host", "remove network", at=("network",))


class Ramp(Model):
    """Gradual weight of a new or restarted endpoint."""

    duration: Window = Field(description="Time from the first readiness to the full weight.")
    min_share: PercentField = Field(Percent(10), description="Share of the weight to start with.")


class Panic(Model):
    """Behaviour when so many endpoints of a pool fail that the probes are in doubt."""

    threshold: PercentField = Field(
        Percent(50),
        description="Panic begins below this share of ready endpoints, and ends 10 points above it. Endpoints that were "
        "never ready or are leaving do not count. 0% disables panic.",
    )
    mode: Literal["freeze", "spread", "closed"] = Field(
        "freeze",
        description="Weight of failing endpoints in panic: with `freeze` their current weight, with `spread` that of ready "
        "endpoints, with `closed` 0, even if the pool becomes empty.",
    )
    override_pushes: bool = Field(
        False, description="Whether endpoints that push `not-ready` or `startup` also keep their weight in panic."
    )


def _not_empty(selector: dict[str, str]) -> dict[str, str]:
    if selector:
        return selector
    raise bad_value("an empty selector would select every workload", "add at least one label, such as {app: web}")


class ServiceSpec(Model):
    """Containers, port and pools of the service."""

    selector: Annotated[dict[LabelKey, LabelValue], AfterValidator(_not_empty)] = Field(
        description="Labels that a workload's template must have."
    )
    port: PortRef = Field(description="Container port of the endpoints; every selected workload must declare it.")
    address: Address = Field(default_factory=Address, description="Address of the endpoints for balancers.")
    weight: Annotated[int, Field(ge=1, le=256)] = Field(100, description="Weight of a ready endpoint.")
    ramp: Ramp | None = Field(
        None,
        description="Raises the weight of new endpoints step by step; by default they get the full weight at once.",
    )
    panic: Panic = Field(default_factory=Panic, description="Protection against probes that fail everywhere at once.")
    balancers: Annotated[Items[Balancer], unique("pool", "provider", "pool")] = Field(
        (), description="Pools that hold the ready endpoints."
    )


class Service(Manifest):
    """Endpoints of one or more workloads, and the pools that carry them."""

    kind: Literal["Service"] = Field(description="Kind of the object.")
    spec: ServiceSpec = Field(description="Desired state of the object.")
