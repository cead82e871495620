"""Guard: limits that hold for the whole tree."""

from typing import Annotated, Literal

from pydantic import Field

from manifests.fields import Items, KeyRef, PercentField
from manifests.kinds.base import Command, Manifest, Model, unique
from manifests.scalars import Percent


class MassChange(Model):
    """How much may be deleted in one plan without approval."""

    share: PercentField = Field(Percent(30), description="Largest share of what is owned that may be deleted.")
    minimum: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        3, description="Deletions up to this number are never held for the share."
    )


class GuardSpec(Model):
    """The limits."""

    suspend: bool = Field(False, description="Stops all actions; probing and reporting go on.")
    deny: Annotated[Items[KeyRef], unique("key")] = Field((), description="Objects that must not be touched.")
    exec_commands: Items[Command] | None = Field(
        None,
        description="Beginnings of argument lists that exec probes may run; each probe must begin with one of them. By "
        "default any command may be run, and an empty list allows none.",
    )
    mass_change: MassChange = Field(default_factory=MassChange, description="Limits on deleting.")


class Guard(Manifest):
    """Limits on everything that is done. At most one."""

    kind: Literal["Guard"] = Field(description="What the document declares.")
    spec: GuardSpec = Field(description="What is wanted.")
