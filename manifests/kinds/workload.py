"""Workload: replicas of one pod template, their nodes, and the limits on their disruption."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from manifests.kinds.adopt import Adopt
from manifests.kinds.base import Manifest, Model, unique
from manifests.kinds.drift import Drift as DriftRules
from manifests.kinds.image_policy import ImagePolicy
from manifests.kinds.pod import PodTemplate
from manifests.kinds.rollout import Rollout
from manifests.types.durations import MINUTE, Duration
from manifests.types.errors import bad_value
from manifests.types.fields import Deadline, Delay, IntOrPercent, Items, Name, WholeSeconds, Window
from manifests.values.desired import SECOND


class Availability(Model):
    """How many replicas the program's own actions may make unavailable. At most one of the two fields."""

    max_unavailable: IntOrPercent = Field(
        1,
        description="Most replicas that may be unavailable at once. A percentage of `replicas` is rounded down, "
        "but to at least 1 when there are several replicas. With 0 failed replicas are still healed, one at a time.",
    )
    min_available: IntOrPercent | None = Field(
        None,
        description="Fewest replicas that must stay available, instead of `maxUnavailable`. A percentage of `replicas` is rounded up.",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.min_available is None or "max_unavailable" not in self.model_fields_set:
            return self
        raise bad_value(
            "minAvailable and maxUnavailable exclude each other", "remove one of the two", at=("minAvailable",)
        )


class Backoff(Model):
    """Waiting times between restarts of one replica."""

    initial: Delay = Field(
        Duration(10 * SECOND), description="Wait before the second restart; it doubles with each further one."
    )
    max: Delay = Field(Duration(5 * MINUTE), description="Longest wait.")
    reset: Window = Field(Duration(10 * MINUTE), description="Time without a failure after which the wait starts over.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.initial <= self.max:
            return self
        raise bad_value(
            f"max ({self.max}) is shorter than initial ({self.initial})",
            "lengthen max, or shorten initial",
            at=("max",),
        )


class Escalation(Model):
    """Steps after restarts in a row that did not make a replica available."""

    recreate_after: Annotated[int, Field(ge=1, le=100)] = Field(
        3, description="Unsuccessful restarts before the replica is recreated from its manifest."
    )
    give_up_after: Annotated[int, Field(ge=1, le=100)] = Field(
        3,
        description="Further unsuccessful restarts before the replica is Failed: it is not restarted again until an operator resumes "
        "it or its template changes.",
    )


class Restarts(Model):
    """Limits on restarts of a replica for its health."""

    mode: Literal["act", "observe"] = Field(
        "act",
        description="With `observe` no replica is restarted for its health; each restart is shown as a hold ObserveOnly.",
    )

    limit: Annotated[int, Field(ge=0, le=1000)] = Field(5, description="Most restarts of one replica in `window`.")
    window: Window = Field(Duration(5 * MINUTE), description="Sliding span in which restarts are counted.")
    backoff: Backoff = Field(default_factory=Backoff, description="Waiting times between restarts.")
    escalation: Escalation = Field(default_factory=Escalation, description="Steps after unsuccessful restarts.")


class Drain(Model):
    """How a replica leaves traffic before it stops."""

    min: Deadline = Field(
        Duration(2 * SECOND),
        description="How long a replica must have no requests in flight, as counted by balancers and pushes, before it stops. "
        "The default is at most `max`.",
    )
    max: Deadline = Field(
        Duration(10 * SECOND),
        description="Longest wait between weight 0 and the stop; requests still in flight are cut then. The wait is always this "
        "long where no balancer or push counts requests in flight.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min <= self.max or "min" not in self.model_fields_set:
            return self
        raise bad_value(
            f"max ({self.max}) is shorter than min ({self.min})", "lengthen max, or shorten min", at=("max",)
        )


class Push(Model):
    """How long pushes of the replicas about their own state are trusted. Needs `push` in the Instance."""

    fresh: Window = Field(Duration(30 * SECOND), description="A push that is younger overrides the probes.")
    middle_zone: Literal["pessimistic", "hold", "observer"] = Field(
        "pessimistic",
        description="What decides between `fresh` and `stale`: the worse of push and probes, the current state, or the probes.",
    )
    stale: Window = Field(Duration(60 * SECOND), description="A push that is older is ignored; the probes decide.")
    startup_deadline: Window = Field(
        Duration(5 * MINUTE), description="How long a replica may push `startup`; then the probes decide."
    )
    drain_deadline: Window | None = Field(
        None,
        description="How long a replica may run after it pushed `draining`; then it is replaced. At least `drain.max` and "
        "`terminationGracePeriodSeconds` together. By default 10m, or that sum where it is longer.",
    )
    heartbeats: bool = Field(
        True,
        description="Whether senders repeat their state. If most of them fall silent together, the transport of the pushes is "
        "suspected and the silence is ignored.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.fresh <= self.stale:
            return self
        raise bad_value(
            f"stale ({self.stale}) is shorter than fresh ({self.fresh})",
            "lengthen stale, or shorten fresh",
            at=("stale",),
        )


class WorkloadSpec(Model):
    """Template, replicas, nodes and limits of the workload."""

    nodes: Annotated[Items[Name], unique("node")] = Field(
        (),
        description="Runtime providers that may run the replicas; by default the only one. A replica keeps its node for as long as "
        "it is in this list; new replicas go to the node with the fewest, and the order decides between equals.",
    )
    replicas: Annotated[int, Field(ge=0, le=1000)] = Field(1, description="Number of replicas.")
    min_ready_seconds: WholeSeconds = Field(
        0, description="How long a replica must be ready until it counts as available."
    )
    suspend: bool = Field(False, description="Stops all actions on the containers; probes and weights continue.")
    runtime_restart: Literal["unless-stopped", "no"] = Field(
        "unless-stopped",
        description="Whether the engine itself restarts crashed containers at once. Changed in place.",
    )
    template: PodTemplate = Field(description="Template of the replicas.")
    availability: Availability = Field(default_factory=Availability, description="Limits on planned disruption.")
    restarts: Restarts = Field(default_factory=Restarts, description="Limits on restarts for health.")
    rollout: Rollout = Field(default_factory=Rollout, description="How a new revision replaces the old one.")
    drain: Drain = Field(default_factory=Drain, description="How a replica leaves traffic before it stops.")
    drift: DriftRules = Field(
        default_factory=DriftRules,
        description="What is done about fields of containers that moved while the manifests did not.",
    )
    image_policies: Annotated[Items[ImagePolicy], unique("policy", "container")] = Field(
        (),
        description="Which newer images of containers are written into the manifest, or roll out without a commit. Needs `imagePolicies` in the Instance.",
    )
    adopt: Adopt | None = Field(None, description="Running foreign containers to take over as replicas.")
    push: Push | None = Field(
        None,
        description="Lets replicas push their own state. Only containers created after the change get the address and token for it.",
    )
    on_secret_change: Literal["restart", "report"] = Field(
        "report",
        description="What to do when a secret in `env` has changed since the container was created: `restart` recreates the "
        "replicas, one disruption at a time within the budget; `report` only reports it.",
    )


class Workload(Manifest):
    """Replicas of one pod template, kept running and healthy."""

    kind: Literal["Workload"] = Field(description="Kind of the object.")
    spec: WorkloadSpec = Field(description="Desired state of the object.")
