"""Adopt: the foreign containers that a Workload takes over. Part of `Workload`."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from manifests.kinds.base import Model, unique
from manifests.types.errors import bad_value
from manifests.types.fields import ForeignName, Items, LabelKey


class Adopt(Model):
    """Adopts running containers as they are. A container becomes a replica when `names` has its name, or it has all `labels`."""

    names: Annotated[Items[ForeignName], unique("name")] = Field((), description="Names of containers.")
    labels: dict[LabelKey, str] = Field(
        default_factory=dict,
        description="Labels that a container must have, all of them. One-off containers of Docker Compose are never adopted.",
    )
    replace: bool = Field(
        False,
        description="Replaces every adopted container with one created from the template, as a new revision would. Without it a "
        "container that differs from the template is only reported.",
    )

    @model_validator(mode="after")
    def _names_containers(self) -> Self:
        if self.names or self.labels:
            return self
        raise bad_value("adopt selects no container", "add names, or labels such as {com.docker.compose.service: web}")
