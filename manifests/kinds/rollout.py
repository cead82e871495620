"""Rollout: how and when a new revision of a Workload takes the place of the old one. Part of `Workload`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from manifests.kinds.base import Model
from manifests.types.durations import HOUR, MINUTE, Duration
from manifests.types.errors import bad_value
from manifests.types.fields import Items, PercentField, Span, Window
from manifests.types.moments import MomentField
from manifests.values.desired import SECOND

_STAGED = ("activate_at", "activation_delay", "precheck", "pending_grace", "supersede", "bake", "rollback_window")


class CanaryStep(Model):
    """One step of a canary."""

    weight: PercentField = Field(description="Share of the traffic that the new revision gets, 1% to 99%.")
    pause: Window = Field(description="How long it stays there before the next step, while its probes pass.")

    @model_validator(mode="after")
    def _part(self) -> Self:
        if 1 <= self.weight <= 99:
            return self
        raise bad_value(f"{self.weight} is not between 1% and 99%", "the last step is followed by 100%", at=("weight",))


class Canary(Model):
    """The switch in steps."""

    steps: Annotated[Items[CanaryStep], Field(min_length=1, max_length=20)] = Field(
        description="Shares in rising order; after the pause of the last one the new revision gets all traffic."
    )

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for index in range(1, len(self.steps)):
            if self.steps[index].weight <= self.steps[index - 1].weight:
                message = f"{self.steps[index].weight} is not more than the step before, {self.steps[index - 1].weight}"
                raise bad_value(message, at=("steps", index, "weight"))
        return self


class Rollout(Model):
    """How a new revision of the template takes the place of the old one."""

    strategy: Literal["rolling", "recreate", "activate", "canary"] | None = Field(
        None,
        description="`rolling` creates a new replica before an old one goes; `recreate` takes an old one out first, "
        "replica by replica, as the budget allows; `activate` starts all new replicas at once, outside traffic and names, and "
        "switches over when it is due and they are verified; `canary` does so in steps of weight. By default `recreate` where "
        "the template has what two replicas cannot have at once, a `hostPort` or a volume with `accessMode: ReadWriteOncePod`; "
        "`canary` with `canary`, `activate` with `activateAt` or `activationDelay`; else `rolling`.",
    )
    activate_at: MomentField | None = Field(
        None,
        description="When a new revision may take over, with the offset of its time zone; a time in the past is due now. "
        "Changing it moves the switch and nothing else.",
    )
    activation_delay: Span | None = Field(
        None,
        description="How long after it was first seen a new revision may take over, instead of `activateAt`. By default 30s "
        "with `activate`, and 0s with `canary`.",
    )
    precheck: Span = Field(
        Duration(MINUTE),
        description="How long before that the probes of waiting replicas begin; before, they only run.",
    )
    pending_grace: Window = Field(
        Duration(HOUR),
        description="How long the switch is tried for once it is due and the replicas are not well; then the revision expires "
        "and the old one stays.",
    )
    supersede: Literal["immediately", "onActivation"] = Field(
        "immediately",
        description="When a newer revision ends the waiting of an older one: `immediately`, or with `onActivation` when it "
        "takes over itself.",
    )
    bake: Span = Field(
        Duration(5 * MINUTE),
        description="How long after the switch it is taken back when too few replicas of the new revision are available "
        "for 30 seconds.",
    )
    rollback_window: Span = Field(
        Duration(10 * MINUTE),
        description="How long the old revision is kept, stopped, after the switch. `reconcile rollback` needs it.",
    )
    progress_deadline: Window = Field(
        Duration(10 * MINUTE),
        description="Longest time that a `rolling` or `recreate` rollout may go without one more available replica before it is "
        "reported as stuck.",
    )
    canary: Canary | None = Field(None, description="The steps of `canary`.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = self.model_fields_set
        if self.activate_at is not None and self.activation_delay is not None:
            raise bad_value(
                "activateAt and activationDelay say two different times; keep one", at=("activation_delay",)
            )
        kind = self.strategy
        if kind in {"activate", "rolling", "recreate"} and self.canary is not None:
            raise bad_value(
                f"strategy {kind} has no steps", "write strategy: canary, or leave canary out", at=("canary",)
            )
        if kind == "canary" and self.canary is None:
            raise bad_value(
                "strategy canary needs canary.steps", "such as [{weight: 10%, pause: 5m}]", at=("strategy",)
            )
        if kind in {"rolling", "recreate"} or (kind is None and not self.staged):
            for name in _STAGED:
                if name in given:
                    hint = "write strategy: activate, or leave it out"
                    raise bad_value(f"it means nothing with strategy {kind or 'rolling'}", hint, at=(name,))
        elif "progress_deadline" in given:
            raise bad_value(
                "it means nothing here: pendingGrace ends the waiting", "leave it out", at=("progress_deadline",)
            )
        if self.bake > self.rollback_window:
            message = f"bake ({self.bake}) is longer than rollbackWindow ({self.rollback_window}): nothing is kept to go back to"
            raise bad_value(message, at=("bake",))
        return self

    @property
    def staged(self) -> bool:
        """Whether a whole new revision waits beside the old one for its time."""
        if self.strategy is not None:
            return self.strategy in {"activate", "canary"}
        return self.canary is not None or self.activate_at is not None or self.activation_delay is not None


DELAY = 30 * SECOND
"""`activationDelay` with `activate` when nothing says when: long enough to look at it, short enough to wait for."""
