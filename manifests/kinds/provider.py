"""Provider: a runtime, a balancer or a DNS server, by name."""

from typing import Annotated, Any, Literal

from pydantic import Field

from manifests.kinds.base import Manifest, Model
from manifests.types.fields import Shown


class ProviderSpec(Model):
    """Type and settings of the provider."""

    type: str = Field(description="Type of the provider; it determines the settings.")
    settings: Annotated[dict[str, Any], Shown("mapping, see the provider")] = Field(
        default_factory=dict, description="Settings of the type."
    )


class Provider(Manifest):
    """An external system that is observed and changed: a runtime (a node), a balancer or a DNS server."""

    kind: Literal["Provider"] = Field(description="Kind of the object.")
    spec: ProviderSpec = Field(description="Desired state of the object.")
