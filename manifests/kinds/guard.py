"""Guard: limits that hold for the whole tree."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Command, Manifest, Model, unique
from manifests.types.durations import MINUTE, Duration
from manifests.types.errors import bad_value
from manifests.types.fields import Items, KeyRef, Name, PercentField, Shown, Window
from manifests.types.numbers import Percent
from manifests.types.schedule import cron_text, zone_text

CronText = Annotated[str, AfterValidator(cron_text), Shown("cron expression")]
ZoneText = Annotated[str, AfterValidator(zone_text), Shown("name of a time zone")]


class MassChange(Model):
    """How much may be deleted in one plan without approval."""

    share: PercentField = Field(Percent(30), description="Largest share of what is owned that may be deleted.")
    minimum: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        3, description="Deletions up to this number are never held for the share."
    )
    records: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        100, description="Largest number of record sets of one zone that may be deleted."
    )
    names: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        10,
        description=(
            "Largest number of names of one zone that may lose their last record set. With 0 no name goes without approval."
        ),
    )


_Tokens = Annotated[int, Field(ge=1, le=1000)]
_RATE, _BURST = "Restarts a minute in the long run.", "Restarts at once after a quiet time."


class WorkloadRate(Model):
    """A token bucket for the replicas of one workload."""

    per_minute: _Tokens = Field(1, description=_RATE)
    burst: _Tokens = Field(2, description=_BURST)


class NodeRate(Model):
    """A token bucket for the containers of one node."""

    per_minute: _Tokens = Field(6, description=_RATE)
    burst: _Tokens = Field(6, description=_BURST)


class OverallRate(Model):
    """A token bucket for all containers."""

    per_minute: _Tokens = Field(20, description=_RATE)
    burst: _Tokens = Field(20, description=_BURST)


class GuardRestarts(Model):
    """Limits on all restarts for health together."""

    mode: Literal["act", "observe"] = Field(
        "act", description="With `observe` no workload is restarted for its health; each restart shows as a hold."
    )
    share: PercentField = Field(
        Percent(100),
        description="Which part of the workloads acts, chosen by a hash of their names that stays the same; the rest observes.",
    )
    per_workload: WorkloadRate = Field(
        default_factory=WorkloadRate, description="How fast the replicas of one workload are restarted."
    )
    per_node: NodeRate = Field(default_factory=NodeRate, description="How fast containers of one node are restarted.")
    overall: OverallRate = Field(default_factory=OverallRate, description="How fast containers are restarted anywhere.")
    in_flight: Annotated[int, Field(ge=1, le=1000)] = Field(
        2, description="Replicas of one node that are being restarted for their health at the same time."
    )


class MassFailure(Model):
    """When many failures at once are taken for one of their probe, or of something they share."""

    share: PercentField = Field(
        Percent(50),
        description="Part of a workload's replicas, or of a node's containers, that must turn bad together.",
    )
    minimum: Annotated[int, Field(ge=2, le=1000)] = Field(2, description="Fewest containers that make a mass failure.")
    hold: Window = Field(
        Duration(5 * MINUTE), description="Pause after a restart that did not help; doubles with each further one."
    )
    max_hold: Window = Field(Duration(60 * MINUTE), description="Longest pause.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.hold <= self.max_hold:
            return self
        raise bad_value(f"maxHold ({self.max_hold}) is shorter than hold ({self.hold})", at=("max_hold",))


class HoldWindow(Model):
    """A span of time that comes back, in which some actions are held."""

    name: Name = Field(description="Name of the window, for messages.")
    holds: Annotated[Items[Literal["heal", "rollout", "prune"]], unique("word")] = Field(
        min_length=1,
        description="What is held: `heal` (restarts for health), `rollout` (changes of revision, replicas, settings or "
        "secrets), `prune` (deletions). Starting what is down is never held.",
    )
    schedule: CronText = Field(description="When it begins, as a cron expression with five fields: `0 22 * * 5`.")
    duration: Window = Field(description="How long it lasts.")
    timezone: ZoneText = Field("UTC", description="Time zone of the schedule, such as `Europe/Berlin`.")


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
    restarts: GuardRestarts = Field(default_factory=GuardRestarts, description="Limits on restarts for health.")
    mass_failure: MassFailure = Field(
        default_factory=MassFailure, description="When restarts for health are held together."
    )
    windows: Annotated[Items[HoldWindow], unique("window", "name")] = Field(
        (), description="Times in which some actions are held."
    )


class Guard(Manifest):
    """Limits on everything that is done. At most one."""

    kind: Literal["Guard"] = Field(description="What the document declares.")
    spec: GuardSpec = Field(description="What is wanted.")
