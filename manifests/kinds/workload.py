"""Workload: replicas of one pod template, where they run, and how far they may be disturbed."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from manifests.kinds.adopt import Adopt
from manifests.kinds.base import Manifest, Model, unique
from manifests.kinds.pod import PodTemplate
from manifests.kinds.rollout import Rollout
from manifests.types.durations import MINUTE, Duration
from manifests.types.errors import bad_value
from manifests.types.fields import Deadline, Delay, IntOrPercent, Items, Name, WholeSeconds, Window
from manifests.values.desired import SECOND


class Availability(Model):
    """How many replicas our own actions may make unavailable, for whatever cause. At most one of the two."""

    max_unavailable: IntOrPercent = Field(
        1,
        description="Most replicas that may be unavailable at once. A percentage of `replicas` rounds down, "
        "but to at least 1 when there are several replicas. With 0 failed replicas are still healed, one at a time.",
    )
    min_available: IntOrPercent | None = Field(
        None,
        description="Fewest replicas that must stay available, instead of `maxUnavailable`. A percentage of `replicas` rounds up.",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.min_available is None or "max_unavailable" not in self.model_fields_set:
            return self
        raise bad_value("minAvailable and maxUnavailable say the same thing twice; keep one", at=("min_available",))


class Backoff(Model):
    """Waiting times between restarts of one replica."""

    initial: Delay = Field(Duration(10 * SECOND), description="Wait before the second restart; doubles with each one.")
    max: Delay = Field(Duration(5 * MINUTE), description="Longest wait.")
    reset: Window = Field(Duration(10 * MINUTE), description="Time without a failure after which the wait starts over.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.initial <= self.max:
            return self
        raise bad_value(f"max ({self.max}) is shorter than initial ({self.initial})", at=("max",))


class Escalation(Model):
    """What follows restarts in a row after which a replica did not become available."""

    recreate_after: Annotated[int, Field(ge=1, le=100)] = Field(
        3, description="Restarts that did not help before the replica is recreated from its manifest."
    )
    give_up_after: Annotated[int, Field(ge=1, le=100)] = Field(
        3,
        description="Further restarts that did not help before the replica is Failed: nothing more is tried until somebody "
        "resumes it or its template changes.",
    )


class Restarts(Model):
    """How often a replica may be restarted for its health."""

    mode: Literal["act", "observe"] = Field(
        "act", description="With `observe` restarts for health are not done; each shows as a hold ObserveOnly."
    )

    limit: Annotated[int, Field(ge=0, le=1000)] = Field(5, description="Most restarts of one replica in `window`.")
    window: Window = Field(Duration(5 * MINUTE), description="Sliding span in which restarts are counted.")
    backoff: Backoff = Field(default_factory=Backoff, description="Waiting times between restarts.")
    escalation: Escalation = Field(default_factory=Escalation, description="What follows when restarts do not help.")


class Drain(Model):
    """How a replica leaves traffic before it stops."""

    min: Deadline = Field(
        Duration(2 * SECOND),
        description="How long nothing must be in flight, as balancers and pushes count, before it is stopped. "
        "By default not more than `max`.",
    )
    max: Deadline = Field(
        Duration(10 * SECOND),
        description="Longest wait between weight 0 and the stop. It is waited for in full where nobody can say what is in "
        "flight; what is still under way then is cut.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min <= self.max or "min" not in self.model_fields_set:
            return self
        raise bad_value(f"max ({self.max}) is shorter than min ({self.min})", at=("max",))


class Push(Model):
    """How far the replicas' own pushes about their state are trusted. Needs `push` in the Instance."""

    fresh: Window = Field(Duration(30 * SECOND), description="A push younger than this outranks the probes.")
    middle_zone: Literal["pessimistic", "hold", "observer"] = Field(
        "pessimistic",
        description="What counts between `fresh` and `stale`: the worse of push and probes, the state as it is, or the probes.",
    )
    stale: Window = Field(Duration(60 * SECOND), description="A push older than this says nothing; the probes decide.")
    startup_deadline: Window = Field(
        Duration(5 * MINUTE), description="How long a replica may say that it starts; then the probes decide."
    )
    heartbeats: bool = Field(
        True,
        description="Whether senders repeat their state. If most of them fall silent together, the way of the pushes is "
        "suspected and the silence decides nothing.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.fresh <= self.stale:
            return self
        raise bad_value(f"stale ({self.stale}) is shorter than fresh ({self.fresh})", at=("stale",))


class WorkloadSpec(Model):
    """What to run, where, and how carefully."""

    nodes: Annotated[Items[Name], unique("node")] = Field(
        (), description="Runtime providers to spread the replicas over, in turn; by default the only one there is."
    )
    replicas: Annotated[int, Field(ge=0, le=1000)] = Field(1, description="How many replicas to run.")
    min_ready_seconds: WholeSeconds = Field(0, description="How long a replica must be ready to count as available.")
    suspend: bool = Field(False, description="Stops all actions on the containers; probing and weights go on.")
    runtime_restart: Literal["unless-stopped", "no"] = Field(
        "unless-stopped",
        description="Whether the engine restarts what crashes by itself, without waiting for us. Changed in place.",
    )
    template: PodTemplate = Field(description="What every replica is made from.")
    availability: Availability = Field(default_factory=Availability, description="Limits on planned disruption.")
    restarts: Restarts = Field(default_factory=Restarts, description="Limits on restarts for health.")
    rollout: Rollout = Field(default_factory=Rollout, description="How revisions replace each other.")
    drain: Drain = Field(default_factory=Drain, description="How a replica leaves traffic.")
    adopt: Adopt | None = Field(None, description="Running containers of somebody else to take over as replicas.")
    push: Push | None = Field(
        None,
        description="Lets replicas push their own state. Containers created from then on get what they need for it.",
    )
    on_secret_change: Literal["restart", "report"] = Field(
        "report",
        description="What to do when a secret in `env` has another value than when the container was created: `restart` "
        "makes the replicas anew, one disruption at a time within the budget; `report` only says so.",
    )


class Workload(Manifest):
    """Replicas of one pod template, kept running and healthy."""

    kind: Literal["Workload"] = Field(description="What the document declares.")
    spec: WorkloadSpec = Field(description="What is wanted.")
