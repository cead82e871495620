"""The pod template: containers and what they share, with Kubernetes' fields where Kubernetes has the thing. Part of `Workload`.

Which of the fields a runtime understands is its own business: `build_pod.py` compares them with what its type supports.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Command, Model, unique
from manifests.kinds.probe import Readiness, SingleSuccess
from manifests.kinds.secret_ref import SecretReference
from manifests.types.engine import (
    AbsolutePath,
    Capability,
    DriverName,
    HostPortNumber,
    Image,
    ListenAddress,
    NetworkName,
    SignalName,
    UserId,
    VolumeName,
    WorkingDir,
)
from manifests.types.errors import bad_value, out_of_range
from manifests.types.fields import (
    Argument,
    EnvName,
    GraceSeconds,
    Items,
    LabelKey,
    LabelValue,
    Name,
    PortName,
    PortNumber,
    Shown,
)
from manifests.types.quantities import CPU, Memory, Size
from manifests.values.pod import HOST_CONFIG_MANAGED

LABEL_PREFIX = "reconciler."
"""Labels with this prefix are the owner mark."""


class ValueFrom(Model):
    """Where a value comes from."""

    secret: SecretReference = Field(description="Read at each creation; never shown, and no part of the revision.")


class EnvVar(Model):
    """A variable of the container's environment: exactly one of `value` and `valueFrom`."""

    name: EnvName = Field(description="Name of the variable.")
    value: Argument | None = Field(None, description="Value, as it is: nothing is substituted.")
    value_from: ValueFrom | None = Field(None, description="A secret as the value.")

    @model_validator(mode="after")
    def _one_value(self) -> Self:
        if (self.value is None) == (self.value_from is None):
            raise bad_value("a variable has exactly one of value and valueFrom", 'for an empty one write value: ""')
        return self


class ContainerPort(Model):
    """A port that the container listens on."""

    name: PortName | None = Field(None, description="Name by which probes and services may refer to the port.")
    container_port: PortNumber = Field(description="Number of the port.")
    protocol: Literal["TCP", "UDP"] = Field("TCP", description="Probes and services use TCP ports.")
    host_port: HostPortNumber | None = Field(
        None,
        description="Publishes the port on the node, for one replica per node. A rollout needs the port of the old replica.",
    )
    host_ip: ListenAddress | None = Field(
        None, alias="hostIP", description="Address of the node that `hostPort` is published on; by default all of them."
    )

    @model_validator(mode="after")
    def _published(self) -> Self:
        if self.host_ip is not None and self.host_port is None:
            raise bad_value("hostIP says where hostPort is published, and there is none", at=("hostIP",))
        return self


class VolumeMount(Model):
    """A volume at a place in the container."""

    name: Name = Field(description="Name of one of the pod's volumes.")
    mount_path: AbsolutePath = Field(description="Directory inside the container.")
    read_only: bool = Field(False, description="The container cannot write there.")


class Limits(Model):
    """The most that a container gets. Changed in place while it runs."""

    cpu: CPU | None = Field(None, description="CPU time.")
    memory: Memory | None = Field(None, description="Memory, without swap; beyond it the kernel kills.")


class Resources(Model):
    """What a container may use."""

    limits: Limits = Field(default_factory=Limits, description="The most that it gets; no limit by default.")


class Capabilities(Model):
    """Capabilities beyond, or short of, the engine's default set."""

    add: Annotated[Items[Capability], unique("capability")] = Field((), description="Capabilities to add.")
    drop: Annotated[Items[Capability], unique("capability")] = Field((), description="Capabilities to drop, or ALL.")


class SecurityContext(Model):
    """What the container's processes may do."""

    run_as_user: UserId | None = Field(None, description="User id; by default as the image says.")
    run_as_group: UserId | None = Field(None, description="Group id; needs `runAsUser`.")
    capabilities: Capabilities = Field(default_factory=Capabilities, description="Capabilities of the processes.")
    read_only_root_filesystem: bool = Field(False, description="Only volumes can be written to.")

    @model_validator(mode="after")
    def _group_with_user(self) -> Self:
        if self.run_as_group is not None and self.run_as_user is None:
            raise bad_value("runAsGroup needs runAsUser: a container's user is set as a pair", at=("runAsGroup",))
        return self


class UlimitField(Model):
    """A limit of setrlimit(2)."""

    name: Literal[
        "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio",
        "rttime", "sigpending", "stack",
    ] = Field(description="Name of the limit.")  # fmt: skip
    soft: Annotated[int, Field(ge=-1)] = Field(description="Limit in force; -1 means unlimited.")
    hard: Annotated[int, Field(ge=-1)] = Field(description="What the process may raise it to; -1 means unlimited.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.hard == -1 or -1 < self.soft <= self.hard:
            return self
        raise bad_value(f"soft ({self.soft}) is above hard ({self.hard})", at=("soft",))


class Logging(Model):
    """Where the container's output goes."""

    driver: DriverName = Field(description="Logging driver of the engine.")
    options: dict[str, str] = Field(default_factory=dict, description="Options of the driver.")


def _not_managed(found: dict[str, Any]) -> dict[str, Any]:
    for key in found:
        if key in HOST_CONFIG_MANAGED:
            raise bad_value(f"{key} may not be set here", HOST_CONFIG_MANAGED[key], at=(key,))
    return found


class DockerFields(Model):
    """What the engine understands and manifests have no field for."""

    host_config: Annotated[dict[str, Any], AfterValidator(_not_managed), Shown("mapping, see the engine's API")] = (
        Field(description="Members of the engine's HostConfig, which win over what the other fields say.")
    )


def _names_once(ports: tuple[ContainerPort, ...]) -> tuple[ContainerPort, ...]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        if port.name in seen:
            raise bad_value(f"the port name '{port.name}' is in the list twice", at=(index, "name"))
        if port.name:
            seen.add(port.name)
    return ports


Ports = Annotated[Items[ContainerPort], unique("port", "container_port", "protocol"), AfterValidator(_names_once)]


class Container(Model):
    """What runs."""

    name: Name = Field(description="Name of the container in its pod.")
    image: Image | None = Field(
        None, description="Image to run; required where the runtime has images, refused elsewhere."
    )
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field(
        "IfNotPresent", description="When to ask the registry for the image."
    )
    command: Command | None = Field(
        None, description="Program and first arguments, run without a shell; by default what the image says."
    )
    args: Items[Argument] = Field(
        (), description="Arguments that follow those of `command`, or of the image's program."
    )
    env: Annotated[Items[EnvVar], unique("variable", "name")] = Field((), description="Environment variables.")
    working_dir: WorkingDir = Field(
        ".",
        description="Directory to run in: an absolute path in the container; for local processes one relative to the "
        "manifests' directory.",
    )
    ports: Ports = Field((), description="Ports that probes and services may use.")
    volume_mounts: Annotated[Items[VolumeMount], unique("mountPath", "mount_path")] = Field(
        (), description="Volumes of the pod, and where they appear."
    )
    resources: Resources = Field(default_factory=Resources, description="What the container may use.")
    security_context: SecurityContext = Field(default_factory=SecurityContext, description="What it may do.")
    ulimits: Annotated[Items[UlimitField], unique("limit", "name")] = Field((), description="Limits of its processes.")
    init: bool = Field(
        False, description="Runs a small init as first process, which reaps zombies and passes signals on."
    )
    stop_signal: SignalName | None = Field(
        None, description="Signal that asks it to stop; by default as the image says."
    )
    logging: Logging | None = Field(None, description="Where its output goes; by default as the engine is set up.")
    depends_on: Annotated[Items[Name], unique("container")] = Field(
        (), description="Containers of the pod that are started before this one. The first container starts before all."
    )
    docker: DockerFields | None = Field(None, description="Escape hatch to the engine's own settings.")
    liveness_probe: SingleSuccess | None = Field(
        None, description="Restarts the container when it fails. Without one it is never restarted for its health."
    )
    readiness_probe: Readiness | None = Field(
        None, description="Takes the container out of traffic while it fails. Without one, running is ready."
    )
    startup_probe: SingleSuccess | None = Field(
        None, description="Holds the other probes back until it passes. Without one, running is started."
    )


class HostPath(Model):
    """A file or directory of the node."""

    path: AbsolutePath = Field(description="Path on the node; it must exist.")


class Tmpfs(Model):
    """A file system in memory, each container's own."""

    size_limit: Size | None = Field(None, description="Largest size; by default half of the node's memory.")


class Volume(Model):
    """Storage for the pod's containers: exactly one of `named`, `hostPath` and `tmpfs`."""

    name: Name = Field(description="Name by which the containers mount it.")
    named: VolumeName | None = Field(None, description="Volume of the engine; created if absent, never removed.")
    host_path: HostPath | None = Field(None, description="A file or directory of the node.")
    tmpfs: Tmpfs | None = Field(None, description="A file system in memory.")
    access_mode: Literal["ReadWriteMany", "ReadWriteOncePod"] = Field(
        "ReadWriteMany",
        description="Who may have it at once. With `ReadWriteOncePod` it is one replica on a node: a rollout stops the old one before "
        "the new one starts, and another workload of the node may only mount it `readOnly`.",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(one is not None for one in (self.named, self.host_path, self.tmpfs)) != 1:
            raise bad_value("a volume has exactly one of named, hostPath and tmpfs")
        if self.tmpfs is not None and self.access_mode == "ReadWriteOncePod":
            raise bad_value("a tmpfs is each container's own, nobody else has it", "leave it out", at=("accessMode",))
        return self


def _one_pod(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    """What several containers of one pod must keep to: they share one network namespace."""
    if not containers:
        raise out_of_range("a pod needs at least one container")
    names = {container.name for container in containers}
    ports: set[object] = set()
    port_names: set[str] = set()
    for index, one in enumerate(containers):
        for field in ("liveness_probe", "readiness_probe", "startup_probe"):
            if index and getattr(one, field) is not None:
                alias = Container.model_fields[field].alias or field
                hint = "move it to the first container: its probes may ask any port of the pod"
                raise bad_value("only the first container of a pod has probes", hint, at=(index, alias))
        for place, port in enumerate(one.ports):
            if (port.container_port, port.protocol) in ports:
                raise bad_value("another container of the pod has this port too", at=(index, "ports", place))
            if port.name in port_names:
                raise bad_value(
                    "another container of the pod has a port of this name", at=(index, "ports", place, "name")
                )
            ports.add((port.container_port, port.protocol))
            port_names |= {port.name} if port.name else set()
        for place, other in enumerate(one.depends_on):
            if other not in names:
                raise bad_value(f"the pod has no container '{other}'", at=(index, "dependsOn", place))
            if not index:
                cause = "the first container starts before the others, which join its network"
                raise bad_value(cause, "list another container first", at=(0, "dependsOn", place))
    _start_order(containers)
    return containers


def _start_order(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    """All containers, each after those that it depends on, else in the order of the list. Raises for a cycle."""
    started: list[Container] = []
    left = list(containers)
    while left:
        done = {one.name for one in started}
        ready = next((one for one in left if done.issuperset(one.depends_on)), None)
        if ready is None:
            cycle = ", ".join(one.name for one in left)
            at = (containers.index(left[0]), "dependsOn")
            raise bad_value(f"containers wait for each other in a circle: {cycle}", "remove one dependsOn", at=at)
        started.append(ready)
        left.remove(ready)
    return tuple(started)


class PodSpec(Model):
    """How the pod runs."""

    termination_grace_period_seconds: GraceSeconds = Field(30, description="Time between asking to stop and killing.")
    networks: Annotated[Items[NetworkName], unique("network")] = Field(
        (),
        description="Networks to join, created if absent; the pod's address is the one on the first. By default the "
        "engine's own network.",
    )
    volumes: Annotated[Items[Volume], unique("volume", "name")] = Field(
        (), description="Storage that containers mount."
    )
    containers: Annotated[Items[Container], unique("container", "name"), AfterValidator(_one_pod)] = Field(
        description="The first is the main one, which probes and services speak of; all share its network."
    )

    @model_validator(mode="after")
    def _volumes_meet_mounts(self) -> Self:
        names = {one.name for one in self.volumes}
        used: set[str] = set()
        for index, container in enumerate(self.containers):
            for place, mount in enumerate(container.volume_mounts):
                used.add(mount.name)
                if mount.name not in names:
                    hint = (
                        f"declared volumes: {', '.join(sorted(names))}"
                        if names
                        else "add it to spec.volumes of the pod"
                    )
                    at = ("containers", index, "volumeMounts", place, "name")
                    raise bad_value(f"the pod has no volume '{mount.name}'", hint, at=at)
        for place, volume in enumerate(self.volumes):
            if volume.name not in used:
                raise bad_value(
                    f"no container mounts volume '{volume.name}'", "mount or remove it", at=("volumes", place)
                )
        return self

    def start_order(self) -> tuple[Container, ...]:
        """The containers in the order in which they start, the first one of the list first."""
        return _start_order(self.containers)


def _no_marks(labels: dict[str, str]) -> dict[str, str]:
    for key in labels:
        if key.startswith(LABEL_PREFIX):
            raise bad_value(f"labels that begin with '{LABEL_PREFIX}' are the owner mark", "rename it", at=(key,))
    return labels


class PodMetadata(Model):
    """What services find the pods by."""

    labels: Annotated[dict[LabelKey, LabelValue], AfterValidator(_no_marks)] = Field(
        default_factory=dict, description="Labels that services select; engines have them on the main container too."
    )


class PodTemplate(Model):
    """What every replica is made from, as in Kubernetes."""

    metadata: PodMetadata = Field(default_factory=PodMetadata, description="Labels of the pods.")
    spec: PodSpec = Field(description="The containers and how they run.")
