"""Workload: replicas of one pod template, where they run, and how far they may be disturbed."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.desired import SECOND
from manifests.fields import (
    Argument,
    Deadline,
    Delay,
    EnvName,
    GraceSeconds,
    IntOrPercent,
    Items,
    LabelKey,
    LabelValue,
    Name,
    PortName,
    PortNumber,
    RelativePath,
    WholeSeconds,
    Window,
)
from manifests.kinds.base import Command, Manifest, Model, unique
from manifests.kinds.probe import Probe, SingleSuccess
from manifests.scalars import MINUTE, Duration, bad_value, out_of_range


class EnvVar(Model):
    """A variable of the container's environment."""

    name: EnvName = Field(description="Name of the variable.")
    value: Argument = Field(description="Value, as it is: nothing is substituted.")


class ContainerPort(Model):
    """A port that the container listens on."""

    name: PortName | None = Field(None, description="Name by which probes and services may refer to the port.")
    container_port: PortNumber = Field(description="Number of the port.")


def _names_once(ports: tuple[ContainerPort, ...]) -> tuple[ContainerPort, ...]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        if port.name in seen:
            raise bad_value(f"the port name '{port.name}' is in the list twice", at=(index, "name"))
        if port.name:
            seen.add(port.name)
    return ports


Ports = Annotated[Items[ContainerPort], unique("port", "container_port"), AfterValidator(_names_once)]


class Container(Model):
    """What runs."""

    name: Name = Field(description="Name of the container in its pod.")
    command: Command = Field(description="Program and first arguments, run without a shell.")
    args: Items[Argument] = Field((), description="Arguments that follow those of `command`.")
    env: Annotated[Items[EnvVar], unique("variable", "name")] = Field((), description="Environment variables.")
    working_dir: RelativePath = Field(".", description="Directory to run in, relative to the manifests' directory.")
    ports: Ports = Field((), description="Ports that probes and services may use.")
    liveness_probe: SingleSuccess | None = Field(
        None, description="Restarts the container when it fails. Without one it is never restarted for its health."
    )
    readiness_probe: Probe | None = Field(
        None, description="Takes the container out of traffic while it fails. Without one, running is ready."
    )
    startup_probe: SingleSuccess | None = Field(
        None, description="Holds the other probes back until it passes. Without one, running is started."
    )


def _one_container(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    if len(containers) == 1:
        return containers
    if not containers:
        raise out_of_range("a pod needs one container")
    raise out_of_range(f"{len(containers)} containers, but this version runs exactly one per pod", at=(1,))


class PodSpec(Model):
    """How the pod runs."""

    termination_grace_period_seconds: GraceSeconds = Field(30, description="Time between asking to stop and killing.")
    containers: Annotated[Items[Container], AfterValidator(_one_container)] = Field(
        description="Exactly one container in this version."
    )


class PodMetadata(Model):
    """What services find the pods by."""

    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, description="Labels that services select.")


class PodTemplate(Model):
    """What every replica is made from, as in Kubernetes."""

    metadata: PodMetadata = Field(default_factory=PodMetadata, description="Labels of the pods.")
    spec: PodSpec = Field(description="The container and how it runs.")


class Availability(Model):
    """How many replicas our own actions may make unavailable."""

    max_unavailable: IntOrPercent = Field(
        1,
        description="Most replicas that may be unavailable at once. A percentage of `replicas` rounds down, "
        "but to at least 1 when there are several replicas.",
    )


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


class Restarts(Model):
    """How often a replica may be restarted for its health."""

    limit: Annotated[int, Field(ge=0, le=1000)] = Field(5, description="Most restarts of one replica in `window`.")
    window: Window = Field(Duration(5 * MINUTE), description="Sliding span in which restarts are counted.")
    backoff: Backoff = Field(default_factory=Backoff, description="Waiting times between restarts.")


class Drain(Model):
    """How a replica leaves traffic before it stops."""

    max: Deadline = Field(Duration(10 * SECOND), description="Longest wait between weight 0 and the stop.")


class WorkloadSpec(Model):
    """What to run, where, and how carefully."""

    nodes: Annotated[Items[Name], unique("node")] = Field(
        (), description="Runtime providers to spread the replicas over, in turn; by default the only one there is."
    )
    replicas: Annotated[int, Field(ge=0, le=1000)] = Field(1, description="How many replicas to run.")
    min_ready_seconds: WholeSeconds = Field(0, description="How long a replica must be ready to count as available.")
    suspend: bool = Field(False, description="Stops all actions on the containers; probing and weights go on.")
    template: PodTemplate = Field(description="What every replica is made from.")
    availability: Availability = Field(default_factory=Availability, description="Limits on planned disruption.")
    restarts: Restarts = Field(default_factory=Restarts, description="Limits on restarts for health.")
    drain: Drain = Field(default_factory=Drain, description="How a replica leaves traffic.")


class Workload(Manifest):
    """Replicas of one pod template, kept running and healthy."""

    kind: Literal["Workload"] = Field(description="What the document declares.")
    spec: WorkloadSpec = Field(description="What is wanted.")
