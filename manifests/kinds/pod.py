"""The pod template: containers and the resources they share, with Kubernetes' field names where Kubernetes has the field.

Part of `Workload`. Not every runtime has all fields: `resolve/pod.py` compares them with the fields that its type supports.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from manifests.kinds.base import Command, Model, unique
from manifests.kinds.probe import Readiness, SingleSuccess
from manifests.kinds.secret_ref import SecretReference
from manifests.types.engine import (
    AbsolutePath,
    Capability,
    DriverName,
    HandledSignal,
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
    RelativePath,
    Shown,
)
from manifests.types.quantities import CPU, Memory, Size
from manifests.values.pod import HOST_CONFIG_MANAGED, managed_member

LABEL_PREFIX = "reconciler."
"""Labels with this prefix are the owner mark."""


class ValueFrom(Model):
    """Source of a value."""

    secret: SecretReference = Field(description="Read at each creation; never shown, and not part of the revision.")


class EnvVar(Model):
    """A variable of the container's environment: exactly one of `value` and `valueFrom`."""

    name: EnvName = Field(description="Name of the variable.")
    value: Argument | None = Field(None, description="Literal value: nothing is substituted.")
    value_from: ValueFrom | None = Field(None, description="A secret as the value.")

    @model_validator(mode="after")
    def _one_value(self) -> Self:
        if (self.value is None) == (self.value_from is None):
            raise bad_value(
                "a variable must have exactly one of value and valueFrom", 'write value: "" for an empty value'
            )
        return self


class EnvFile(Model):
    """A file of variables below the manifests' directory."""

    path: RelativePath = Field(description="Path of the file, relative to the manifests' directory.")
    required: bool = Field(True, description="Whether a missing file is an error.")


def _as_env_files(value: object) -> object:
    """A single path, and paths without further settings, in the long form."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        return listed
    return [{"path": item} if isinstance(item, str) else item for item in listed]


class ContainerPort(Model):
    """A port that the container listens on."""

    name: PortName | None = Field(None, description="Name by which probes and services may refer to the port.")
    container_port: PortNumber = Field(description="Number of the port.")
    protocol: Literal["TCP", "UDP"] = Field("TCP", description="Probes and services use TCP ports.")
    host_port: HostPortNumber | None = Field(
        None,
        description="Publishes the port on the node, for one replica per node. A rollout stops the old replica before the new one starts.",
    )
    host_ip: ListenAddress | None = Field(
        None,
        alias="hostIP",
        description="Address of the node on which `hostPort` is published; by default all addresses.",
    )

    @model_validator(mode="after")
    def _published(self) -> Self:
        if self.host_ip is not None and self.host_port is None:
            raise bad_value("hostIP does nothing without hostPort", "add hostPort, or remove hostIP", at=("hostIP",))
        return self


class VolumeMount(Model):
    """A volume at a path in the container."""

    name: Name = Field(description="Name of one of the pod's volumes.")
    mount_path: AbsolutePath = Field(description="Directory inside the container; for `files` of one file its path.")
    read_only: bool = Field(False, description="Mounts the volume read-only; a volume of `files` always is.")


class Limits(Model):
    """Upper limits of a container. Changes apply in place, without a new container."""

    cpu: CPU | None = Field(None, description="CPU limit.")
    memory: Memory | None = Field(
        None, description="Memory limit, without swap; the kernel kills a container that exceeds it."
    )


class Resources(Model):
    """Resources of a container."""

    limits: Limits = Field(default_factory=Limits, description="Upper limits; none by default.")


class Capabilities(Model):
    """Capabilities added to, or dropped from, the engine's default set."""

    add: Annotated[Items[Capability], unique("capability")] = Field((), description="Capabilities to add.")
    drop: Annotated[Items[Capability], unique("capability")] = Field((), description="Capabilities to drop, or ALL.")


class SecurityContext(Model):
    """Privileges of the container's processes."""

    run_as_user: UserId | None = Field(None, description="User id; by default as the image says.")
    run_as_group: UserId | None = Field(None, description="Group id; needs `runAsUser`.")
    run_as_non_root: bool = Field(
        False,
        description="Creates no container that would run as root. Without `runAsUser` the image must name its user by a number other than 0.",
    )
    capabilities: Capabilities = Field(default_factory=Capabilities, description="Capabilities of the processes.")
    allow_privilege_escalation: bool = Field(
        True,
        description="Whether a process may gain more privileges than its parent, as by a setuid program. With `false` the container has "
        "the security option no-new-privileges.",
    )
    read_only_root_filesystem: bool = Field(
        False, description="Makes the root file system read-only; only volumes are writable."
    )

    @model_validator(mode="after")
    def _users_fit(self) -> Self:
        if self.run_as_group is not None and self.run_as_user is None:
            raise bad_value("runAsGroup needs runAsUser", "add runAsUser", at=("runAsGroup",))
        if self.run_as_non_root and self.run_as_user == 0:
            raise bad_value("user 0 is root, and runAsNonRoot is true", "set another runAsUser", at=("runAsUser",))
        return self


class UlimitField(Model):
    """A limit of setrlimit(2)."""

    name: Literal[
        "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio",
        "rttime", "sigpending", "stack",
    ] = Field(description="Name of the limit.")  # fmt: skip
    soft: Annotated[int, Field(ge=-1)] = Field(description="Soft limit; -1 means unlimited.")
    hard: Annotated[int, Field(ge=-1)] = Field(
        description="Hard limit, up to which a process may raise the soft limit; -1 means unlimited."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.hard == -1 or -1 < self.soft <= self.hard:
            return self
        raise bad_value(f"soft ({self.soft}) is above hard ({self.hard})", "lower soft, or raise hard", at=("soft",))


class Logging(Model):
    """Logging of the container's output."""

    driver: DriverName = Field(description="Logging driver of the engine.")
    options: dict[str, str] = Field(default_factory=dict, description="Options of the driver.")


def _not_managed(host_config: dict[str, Any]) -> dict[str, Any]:
    for key in host_config:
        member = managed_member(key)
        if member:
            raise bad_value(f"{key} cannot be set in hostConfig", HOST_CONFIG_MANAGED[member], at=(key,))
    return host_config


class DockerFields(Model):
    """Settings of the engine that manifests have no field for."""

    host_config: Annotated[dict[str, Any], AfterValidator(_not_managed), Shown("mapping, see the engine's API")] = (
        Field(description="Members of the engine's HostConfig; they override the other fields.")
    )


def _names_once(ports: tuple[ContainerPort, ...]) -> tuple[ContainerPort, ...]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        if port.name in names:
            raise bad_value(f"the port name '{port.name}' is in the list twice", "rename one port", at=(index, "name"))
        if port.name:
            names.add(port.name)
    return ports


Ports = Annotated[
    Items[ContainerPort], unique("port", "container_port", "protocol", name="name"), AfterValidator(_names_once)
]


_ENV_FILE_ITEM: dict[str, Any] = {
    "oneOf": [
        {"type": "string"},
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["path"],
            "properties": {"path": {"type": "string"}, "required": {"type": "boolean"}},
        },
    ]
}
_ENV_FILE_SCHEMA: dict[str, Any] = {"oneOf": [{"type": "string"}, {"type": "array", "items": _ENV_FILE_ITEM}]}


class Container(Model):
    """One container of the pod."""

    name: Name = Field(description="Name of the container in its pod.")
    image: Image | None = Field(
        None, description="Image to run; required where the runtime has images, an error elsewhere."
    )
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field(
        "IfNotPresent", description="When to pull the image from the registry."
    )
    command: Command | None = Field(
        None, description="Program and first arguments, run without a shell; by default as the image says."
    )
    args: Items[Argument] = Field((), description="Arguments after those of `command`, or for the image's program.")
    env: Annotated[Items[EnvVar], unique("variable", "name")] = Field((), description="Environment variables.")
    env_file: Annotated[
        Items[EnvFile],
        BeforeValidator(_as_env_files),
        unique("file", "path"),
        WithJsonSchema(_ENV_FILE_SCHEMA),
        Shown("path, list of paths, or list of {path, required}"),
    ] = Field(
        (),
        description="Files of variables in Compose's format, relative to the manifests' directory. Later files override earlier ones, "
        "`env` overrides all of them. Nothing is substituted in values.",
    )
    working_dir: WorkingDir = Field(
        ".",
        description="Working directory: an absolute path in the container; for local processes a path relative to the "
        "manifests' directory.",
    )
    ports: Ports = Field((), description="Ports that probes and services may use.")
    volume_mounts: Annotated[Items[VolumeMount], unique("mountPath", "mount_path")] = Field(
        (), description="Volumes of the pod to mount."
    )
    resources: Resources = Field(default_factory=Resources, description="Resources of the container.")
    security_context: SecurityContext = Field(
        default_factory=SecurityContext, description="Privileges of the processes."
    )
    ulimits: Annotated[Items[UlimitField], unique("limit", "name")] = Field((), description="Limits of the processes.")
    init: bool = Field(False, description="Runs an init process, which reaps zombies and forwards signals.")
    stop_signal: SignalName | None = Field(
        None, description="Signal to stop the container; by default as the image says."
    )
    logging: Logging | None = Field(None, description="Logging of the output; by default as the engine is configured.")
    depends_on: Annotated[Items[Name], unique("container")] = Field(
        (),
        description="Containers of the pod that start before this one. The first container starts before all others.",
    )
    docker: DockerFields | None = Field(None, description="The engine's own settings.")
    liveness_probe: SingleSuccess | None = Field(
        None,
        description="Restarts the container when it fails. Without it the container is never restarted for its health.",
    )
    readiness_probe: Readiness | None = Field(
        None, description="Takes the container out of traffic while it fails. Without it a running container is ready."
    )
    startup_probe: SingleSuccess | None = Field(
        None, description="Delays the other probes until it passes. Without it a running container is started."
    )


class HostPath(Model):
    """A file or directory of the node."""

    path: AbsolutePath = Field(description="Path on the node; it must exist.")


class Tmpfs(Model):
    """A file system in memory; each container has its own."""

    size_limit: Size | None = Field(None, description="Largest size; by default half of the node's memory.")


class FilesItem(Model):
    """One file of a volume, as in Kubernetes."""

    key: RelativePath = Field(description="Path of the file below `from`.")
    path: RelativePath | None = Field(None, description="Path in the volume; by default `key`.")


class Files(Model):
    """Files of the repository, below the manifests' directory."""

    from_: RelativePath = Field(
        alias="from", description="A directory, or one file, relative to the manifests' directory."
    )
    items: Annotated[Items[FilesItem], unique("file", "key")] = Field(
        (), description="The files to take from the directory; by default all of them."
    )
    mode: Literal["0444", "0555"] | None = Field(
        None, description='Mode of all files, in quotes; by default "0555" for files that may be executed, else "0444".'
    )
    on_change: Literal["rollout", "signal", "nothing"] = Field(
        "rollout",
        description="What happens to running containers when the files change: a new revision replaces them, they see the new files "
        "and get a signal, or they keep what they have.",
    )
    signal: HandledSignal | None = Field(
        None, description="With `onChange: signal`, what the main container gets; by default SIGHUP."
    )
    allow_ciphertext: bool = Field(
        False, description="Ciphertext in these files is meant: the program in the container decrypts it."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.signal is not None and self.on_change != "signal":
            raise bad_value(
                "signal does nothing without onChange: signal", "add onChange: signal, or remove it", at=("signal",)
            )
        paths: set[str] = set()
        for index, item in enumerate(self.items):
            path = item.path or item.key
            if path == "." or any(
                path == other or f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")
                for other in paths
            ):
                raise bad_value(f"'{path}' is taken by another item", "write another path", at=("items", index))
            paths.add(path)
        return self


class Volume(Model):
    """Storage for the pod's containers: exactly one of `named`, `hostPath`, `tmpfs` and `files`."""

    name: Name = Field(description="Name that volume mounts refer to.")
    named: VolumeName | None = Field(
        None, description="Volume of the engine; created if it does not exist, never removed."
    )
    host_path: HostPath | None = Field(None, description="A file or directory of the node.")
    tmpfs: Tmpfs | None = Field(None, description="A file system in memory.")
    files: Files | None = Field(None, description="Files of the repository, mounted read-only.")
    access_mode: Literal["ReadWriteMany", "ReadWriteOncePod"] = Field(
        "ReadWriteMany",
        description="With `ReadWriteOncePod` one replica on a node has the volume: a rollout stops the old replica before the new "
        "one starts, also on another node, and another workload of the node may only mount it `readOnly`.",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(source is not None for source in (self.named, self.host_path, self.tmpfs, self.files)) != 1:
            raise bad_value("a volume must have exactly one of named, hostPath, tmpfs and files")
        if self.files is not None and self.access_mode == "ReadWriteOncePod":
            raise bad_value("accessMode does nothing on files: they are read-only", "remove it", at=("accessMode",))
        if self.tmpfs is not None and self.access_mode == "ReadWriteOncePod":
            raise bad_value(
                "accessMode does nothing on a tmpfs: each container has its own", "remove it", at=("accessMode",)
            )
        return self


def _one_pod(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    """The rules for several containers of one pod: they share one network namespace."""
    if not containers:
        raise out_of_range("a pod must have at least one container")
    names = {container.name for container in containers}
    ports: set[object] = set()
    port_names: set[str] = set()
    for index, container in enumerate(containers):
        for field in ("liveness_probe", "readiness_probe", "startup_probe"):
            if index and getattr(container, field) is not None:
                alias = Container.model_fields[field].alias or field
                hint = "move it to the first container: its probes may use any port of the pod"
                raise bad_value("only the first container of a pod may have probes", hint, at=(index, alias))
        for place, port in enumerate(container.ports):
            if (port.container_port, port.protocol) in ports:
                raise bad_value("another container of the pod has the same port", at=(index, "ports", place))
            if port.name in port_names:
                raise bad_value(
                    "another container of the pod has a port with this name", at=(index, "ports", place, "name")
                )
            ports.add((port.container_port, port.protocol))
            port_names |= {port.name} if port.name else set()
        for place, other in enumerate(container.depends_on):
            if other not in names:
                raise bad_value(f"the pod has no container '{other}'", at=(index, "dependsOn", place))
            if not index:
                cause = "the first container starts before the others, which join its network"
                raise bad_value(cause, "move another container to the first place", at=(0, "dependsOn", place))
    _start_order(containers)
    return containers


def _start_order(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    """All containers, each after those that it depends on, else in the order of the list. Raises for a cycle."""
    started: list[Container] = []
    left = list(containers)
    while left:
        done = {container.name for container in started}
        startable = next((container for container in left if done.issuperset(container.depends_on)), None)
        if startable is None:
            cycle = ", ".join(container.name for container in left)
            at = (containers.index(left[0]), "dependsOn")
            raise bad_value(f"containers depend on each other in a cycle: {cycle}", "remove one dependsOn", at=at)
        started.append(startable)
        left.remove(startable)
    return tuple(started)


class PodSpec(Model):
    """Containers, networks and volumes of the pod."""

    termination_grace_period_seconds: GraceSeconds = Field(30, description="Time between the stop signal and the kill.")
    networks: Annotated[Items[NetworkName], unique("network")] = Field(
        (),
        description="Networks to join, created if they do not exist; the pod has its address in the first one. By default the "
        "engine's own network.",
    )
    volumes: Annotated[Items[Volume], unique("volume", "name")] = Field(
        (), description="Volumes that containers mount."
    )
    containers: Annotated[Items[Container], unique("container", "name"), AfterValidator(_one_pod)] = Field(
        description="The first is the main container, which has the probes; all containers share its network."
    )

    @model_validator(mode="after")
    def _volumes_match_mounts(self) -> Self:
        names = {volume.name for volume in self.volumes}
        files = {volume.name for volume in self.volumes if volume.files is not None}
        used: set[str] = set()
        for index, container in enumerate(self.containers):
            for place, mount in enumerate(container.volume_mounts):
                used.add(mount.name)
                if mount.name not in names:
                    hint = (
                        f"declared volumes: {', '.join(sorted(names))}"
                        if names
                        else "add it to volumes in the spec of the pod"
                    )
                    at = ("containers", index, "volumeMounts", place, "name")
                    raise bad_value(f"the pod has no volume '{mount.name}'", hint, at=at)
                if mount.name in files and not mount.read_only and "read_only" in mount.model_fields_set:
                    at = ("containers", index, "volumeMounts", place, "readOnly")
                    raise bad_value(
                        f"volume '{mount.name}' has files of the repository, which are read-only", "remove it", at=at
                    )
        for place, volume in enumerate(self.volumes):
            if volume.name not in used:
                raise bad_value(
                    f"no container mounts volume '{volume.name}'", "mount it, or remove it", at=("volumes", place)
                )
        return self

    def start_order(self) -> tuple[Container, ...]:
        """The containers in the order in which they start, the first one of the list first."""
        return _start_order(self.containers)


def _no_marks(labels: dict[str, str]) -> dict[str, str]:
    for key in labels:
        if key.startswith(LABEL_PREFIX):
            raise bad_value(
                f"labels that begin with '{LABEL_PREFIX}' are reserved for the owner mark", "rename it", at=(key,)
            )
    return labels


class PodMetadata(Model):
    """Labels that services select."""

    labels: Annotated[dict[LabelKey, LabelValue], AfterValidator(_no_marks)] = Field(
        default_factory=dict, description="Labels that services select; the main container has them too."
    )


class PodTemplate(Model):
    """Template of the replicas, as in Kubernetes."""

    metadata: PodMetadata = Field(default_factory=PodMetadata, description="Labels of the pods.")
    spec: PodSpec = Field(description="Containers, networks and volumes.")
