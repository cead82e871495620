"""Rollout: how and when a new revision of a Workload replaces the old one. Part of `Workload`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from manifests.kinds.base import Model
from manifests.types.durations import HOUR, MINUTE, Duration
from manifests.types.errors import bad_value
from manifests.types.fields import Items, PercentField, Span, Window
from manifests.types.moments import MomentField
from manifests.values.desired import SECOND

_STAGED = ("activate_at", "activation_delay", "precheck", "pending_grace", "supersede", "bake", "rollback_window")


class CanaryStep(Model):
    """One step of a canary."""

    weight: PercentField = Field(description="Share of the traffic for the new revision, 1% to 99%.")
    pause: Window = Field(description="Time until the next step, while the probes of the new revision pass.")

    @model_validator(mode="after")
    def _part(self) -> Self:
        if 1 <= self.weight <= 99:
            return self
        raise bad_value(
            f"{self.weight} is not between 1% and 99%",
            "remove a step of 100%: it follows the last step",
            at=("weight",),
        )


class Canary(Model):
    """Activation in steps."""

    steps: Annotated[Items[CanaryStep], Field(min_length=1, max_length=20)] = Field(
        description="Steps with rising shares; after the pause of the last step the new revision gets all traffic."
    )

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for index in range(1, len(self.steps)):
            if self.steps[index].weight <= self.steps[index - 1].weight:
                message = f"{self.steps[index].weight} is not more than {self.steps[index - 1].weight}, the step before"
                raise bad_value(message, "order the steps by rising weight", at=("steps", index, "weight"))
        return self


class Rollout(Model):
    """How a new revision of the template replaces the old one."""

    strategy: Literal["rolling", "recreate", "activate", "canary"] | None = Field(
        None,
        description="`rolling` starts a new replica before an old one stops. `recreate` stops an old replica first, replica by "
        "replica, as the budget allows. `activate` starts all new replicas at once, without traffic and DNS records, and moves "
        "all traffic when the activation is due and they are verified; `canary` moves it in steps of weight. By default "
        "`recreate` with a `hostPort` or a volume with `accessMode: ReadWriteOncePod`, which two replicas cannot have at once; "
        "`canary` with `canary`; `activate` with `activateAt` or `activationDelay`; else `rolling`.",
    )
    activate_at: MomentField | None = Field(
        None,
        description="Time from which a new revision is activated, with its offset from UTC; a time in the past is due now. A "
        "change of it recreates nothing.",
    )
    activation_delay: Span | None = Field(
        None,
        description="Time from the first look at a new revision to its activation, instead of `activateAt`. By default 30s "
        "with `activate`, and 0s with `canary`.",
    )
    precheck: Span = Field(
        Duration(MINUTE),
        description="Time before the activation at which the probes of waiting replicas begin.",
    )
    pending_grace: Window = Field(
        Duration(HOUR),
        description="How long a due activation is retried while the replicas are not healthy; then the revision expires "
        "and the old one stays.",
    )
    supersede: Literal["immediately", "onActivation"] = Field(
        "immediately",
        description="When a newer revision supersedes a waiting older one: `immediately`, or with `onActivation` when it is "
        "activated itself.",
    )
    bake: Span = Field(
        Duration(5 * MINUTE),
        description="Time after the activation in which it is rolled back when too few replicas of the new revision are "
        "available for 30 seconds.",
    )
    rollback_window: Span = Field(
        Duration(10 * MINUTE),
        description="How long the old revision is kept, stopped, after the activation. `reconcile rollback` needs it.",
    )
    progress_deadline: Window = Field(
        Duration(10 * MINUTE),
        description="Time without one more available replica after which a `rolling` or `recreate` rollout is reported as "
        "stuck.",
    )
    canary: Canary | None = Field(None, description="The steps of `canary`.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = self.model_fields_set
        if self.activate_at is not None and self.activation_delay is not None:
            raise bad_value(
                "activateAt and activationDelay exclude each other", "remove one of the two", at=("activationDelay",)
            )
        kind = self.strategy
        if kind in {"activate", "rolling", "recreate"} and self.canary is not None:
            raise bad_value(f"strategy {kind} has no steps", "write strategy: canary, or remove canary", at=("canary",))
        if kind == "canary" and self.canary is None:
            raise bad_value(
                "strategy canary needs canary.steps",
                "add canary: {steps: [{weight: 10%, pause: 5m}]}",
                at=("strategy",),
            )
        if kind in {"rolling", "recreate"} or (kind is None and not self.staged):
            for name in _STAGED:
                if name in given:
                    hint = "write strategy: activate, or remove it"
                    raise bad_value(
                        f"the field does nothing with strategy {kind or 'rolling'}", hint, at=(to_camel(name),)
                    )
        elif "progress_deadline" in given:
            raise bad_value(
                "the field does nothing with this strategy: pendingGrace is the limit",
                "remove it",
                at=("progressDeadline",),
            )
        if self.bake > self.rollback_window:
            message = f"bake ({self.bake}) is longer than rollbackWindow ({self.rollback_window})"
            hint = "shorten bake, or lengthen rollbackWindow: a rollback needs the old revision"
            raise bad_value(message, hint, at=("bake",))
        return self

    @property
    def staged(self) -> bool:
        """Whether a whole new revision waits beside the old one for its activation."""
        if self.strategy is not None:
            return self.strategy in {"activate", "canary"}
        return self.canary is not None or self.activate_at is not None or self.activation_delay is not None


DELAY = 30 * SECOND
"""Default of `activationDelay` with `activate`: long enough to inspect the new replicas, short enough to wait for."""
