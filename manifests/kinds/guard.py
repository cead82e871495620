"""Guard: limits for the whole tree."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Command, Manifest, Model, unique
from manifests.kinds.drift import Drift
from manifests.kinds.policy import Policy
from manifests.types.durations import MINUTE, Duration
from manifests.types.errors import bad_value
from manifests.types.fields import Items, KeyRef, Name, PercentField, Shown, Window
from manifests.types.numbers import Percent
from manifests.types.schedule import cron_text, zone_text

CronText = Annotated[str, AfterValidator(cron_text), Shown("cron expression")]
ZoneText = Annotated[str, AfterValidator(zone_text), Shown("name of a time zone")]


class MassChange(Model):
    """How much may be deleted in one plan without approval."""

    share: PercentField = Field(Percent(30), description="Largest share of the owned objects that may be deleted.")
    minimum: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        3, description="Number of deletions up to which `share` does not apply."
    )
    records: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        100, description="Largest number of record sets of one zone that may be deleted."
    )
    names: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        10,
        description=(
            "Largest number of names of one zone that may lose their last record set. With 0 every such loss needs approval."
        ),
    )


_Tokens = Annotated[int, Field(ge=1, le=1000)]
_RATE, _BURST = "Restarts per minute in the long run.", "Restarts in a row after a quiet time."


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
        "act", description="With `observe` no workload is restarted for its health; each restart is shown as a hold."
    )
    share: PercentField = Field(
        Percent(100),
        description="Share of the workloads in mode `act`, chosen by a stable hash of their names; the others are in mode `observe`.",
    )
    per_workload: WorkloadRate = Field(
        default_factory=WorkloadRate, description="Rate of restarts of the replicas of one workload."
    )
    per_node: NodeRate = Field(default_factory=NodeRate, description="Rate of restarts of the containers of one node.")
    overall: OverallRate = Field(default_factory=OverallRate, description="Rate of restarts of all containers.")
    in_flight: Annotated[int, Field(ge=1, le=1000)] = Field(
        2, description="Most replicas of one node that are being restarted for their health at the same time."
    )


class MassFailure(Model):
    """When many failures at once count as one common failure, of the probe or of a shared dependency."""

    share: PercentField = Field(
        Percent(50),
        description="Share of a workload's replicas, or of a node's containers, that must start to fail together.",
    )
    minimum: Annotated[int, Field(ge=2, le=1000)] = Field(2, description="Fewest failing containers of a mass failure.")
    hold: Window = Field(
        Duration(5 * MINUTE), description="Pause after an unsuccessful restart; it doubles with each further one."
    )
    max_hold: Window = Field(Duration(60 * MINUTE), description="Longest pause.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.hold <= self.max_hold:
            return self
        raise bad_value(
            f"maxHold ({self.max_hold}) is shorter than hold ({self.hold})",
            "lengthen maxHold, or shorten hold",
            at=("maxHold",),
        )


class HoldWindow(Model):
    """A recurring span of time in which some actions are held."""

    name: Name = Field(description="Name of the window, for messages.")
    holds: Annotated[Items[Literal["heal", "drift", "commits", "rollout", "prune"]], unique("action")] = Field(
        min_length=1,
        description="Actions that are held: `heal` (restarts for health), `drift` (settings, networks and surplus of containers that "
        "moved while the manifests did not), `commits` (new revisions of the manifests; those in force stay until the window closes), "
        "`rollout` (changes of revision, replicas, settings or secrets), `prune` (deletions). Starts of stopped replicas are never held.",
    )
    schedule: CronText = Field(description="Begin of the window, as a cron expression with five fields: `0 22 * * 5`.")
    duration: Window = Field(description="Length of the window.")
    timezone: ZoneText = Field("UTC", description="Time zone of the schedule, such as `Europe/Berlin`.")


class GuardSpec(Model):
    """The limits."""

    suspend: bool = Field(False, description="Stops all actions; probes and reports continue.")
    suspend_commits: bool = Field(
        False,
        description="Keeps the manifests in force and lets new revisions wait; healing goes on. The Guard of the revision that waits "
        "decides, so a commit that sets it to false ends it.",
    )
    suspend_healing: bool = Field(
        False,
        description="Holds what the manifests did not ask for: restarts for health, starts, recreations and corrections of containers; new "
        "revisions are taken, and weights and names follow health.",
    )
    deny: Annotated[Items[KeyRef], unique("key")] = Field(
        (), description="Keys of objects on which no action is taken."
    )
    exec_commands: Items[Command] | None = Field(
        None,
        description="Beginnings of argument lists that exec probes may run; the command of each probe must begin with one of "
        "them. By default any command is allowed; an empty list allows none.",
    )
    mass_change: MassChange = Field(default_factory=MassChange, description="Limits on deletions.")
    restarts: GuardRestarts = Field(default_factory=GuardRestarts, description="Limits on restarts for health.")
    mass_failure: MassFailure = Field(
        default_factory=MassFailure, description="When restarts for health are held because of a common failure."
    )
    windows: Annotated[Items[HoldWindow], unique("window", "name")] = Field(
        (), description="Times in which some actions are held."
    )
    drift: Drift = Field(
        default_factory=Drift, description="What is done about drift in workloads that say nothing else of a field."
    )
    policy: Policy = Field(default_factory=Policy, description="What the manifests may ask for.")
    approve: Annotated[Items[Literal["delete", "privilege", "downtime"]], unique("class")] = Field(
        (),
        description="Changes that an operator must approve, each time: `delete` (containers, pool members and record sets that the "
        "manifests do not name any more), `privilege` (containers of a workload with a privilege that none of its containers has had), "
        "`downtime` (planned steps that leave a workload without an available replica). Restarts for health are never held.",
    )


class Guard(Manifest):
    """Limits on all actions. At most one."""

    kind: Literal["Guard"] = Field(description="Kind of the object.")
    spec: GuardSpec = Field(description="Desired state of the object.")
