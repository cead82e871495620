"""Provider: a runtime, a balancer or a DNS server, by name."""

from typing import Annotated, Any, Literal

from pydantic import Field

from manifests.kinds.base import Manifest, Model
from manifests.types.fields import Shown


class ProviderSpec(Model):
    """Which provider, and how it is set up."""

    type: str = Field(description="Type of the provider; it decides which settings there are.")
    settings: Annotated[dict[str, Any], Shown("mapping, see the provider")] = Field(
        default_factory=dict, description="Settings of the type, checked by it."
    )


class Provider(Manifest):
    """Something outside that is observed and acted on: a runtime (a node), a balancer or a DNS server."""

    kind: Literal["Provider"] = Field(description="What the document declares.")
    spec: ProviderSpec = Field(description="What is wanted.")
