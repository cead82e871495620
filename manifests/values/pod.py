"""Fields of a pod that only container engines have: values of `desired.Container` and `desired.Template`.

Apart from `desired.py` because only runtimes with images, networks and limits read them. Pure values: created by
`resolve/pod.py`, read by providers.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from manifests.values.secret_sources import SecretSource


class PullPolicy(StrEnum):
    """When an image is pulled from its registry, with Kubernetes' values."""

    IF_NOT_PRESENT = "IfNotPresent"
    ALWAYS = "Always"
    NEVER = "Never"


class RuntimeRestart(StrEnum):
    """Whether the runtime itself restarts containers that crash."""

    UNLESS_STOPPED = "unless-stopped"
    NO = "no"


class VolumeKind(StrEnum):
    """Where the data of a volume is."""

    NAMED = "named"
    BIND = "bind"
    TMPFS = "tmpfs"
    FILES = "files"


class Live(NamedTuple):
    """Settings of one container that an engine changes while it runs.

    `cpu` is in thousandths of a CPU and `memory` in bytes, 0 = no limit; `restart` is a `RuntimeRestart` value.
    """

    container: str
    cpu: int = 0
    memory: int = 0
    restart: str = RuntimeRestart.UNLESS_STOPPED.value


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume at a path in a container. `source` is the volume's name or the host's path; `size` is of a tmpfs, 0 = no limit.

    A mount of the kind FILES names a volume of the template with files of the repository; the file store makes a bind mount of it. An `exclusive` volume must not be mounted by two replicas at once.
    """

    kind: VolumeKind
    source: str
    target: str
    read_only: bool = False
    size: int = 0
    exclusive: bool = False
    relabel: bool = False


@dataclass(frozen=True, slots=True)
class Ulimit:
    """A resource limit of setrlimit(2); -1 = unlimited."""

    name: str
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class Engine:
    """Fields of one container that only engines with images have.

    Attributes:
        image: reference as written; empty for runtimes without images.
        args: arguments for the image's program; only where the container has no command.
        user: `uid` or `uid:gid`; empty = as the image says.
        secret_env: variables whose values are secrets, by reference.
        log_driver: empty = the engine's default.
        host_config: members of the engine's own HostConfig as JSON text, merged last; empty = none.
        run_as_non_root: no container is created that would run as root, or as a user that is not known.
        no_new_privileges: processes cannot gain privileges that their parent does not have.
    """

    image: str = ""
    pull: PullPolicy = PullPolicy.IF_NOT_PRESENT
    args: tuple[str, ...] = ()
    secret_env: tuple[tuple[str, SecretSource], ...] = ()
    mounts: tuple[Mount, ...] = ()
    user: str = ""
    cap_add: tuple[str, ...] = ()
    cap_drop: tuple[str, ...] = ()
    read_only_root: bool = False
    ulimits: tuple[Ulimit, ...] = ()
    init: bool = False
    stop_signal: str = ""
    log_driver: str = ""
    log_options: tuple[tuple[str, str], ...] = ()
    host_config: str = ""
    no_new_privileges: bool = False
    run_as_non_root: bool = False


DEFAULT_ENGINE = Engine()


HOST_CONFIG_MANAGED = {
    "AutoRemove": "remove it: an exited container is needed to read its exit code",
    "CpuPeriod": "write resources.limits.cpu",
    "CpuQuota": "write resources.limits.cpu",
    "Memory": "write resources.limits.memory",
    "MemorySwap": "write resources.limits.memory",
    "NanoCpus": "write resources.limits.cpu",
    "NetworkMode": "write networks in the spec of the pod",
    "PortBindings": "write hostPort in the ports of the container",
    "RestartPolicy": "write runtimeRestart in the spec of the workload",
}
"""Members of an engine's HostConfig that manifests may not set, because the program sets them or changes them in place."""

_MANAGED = {name.casefold(): name for name in HOST_CONFIG_MANAGED}


def managed_member(written: str) -> str:
    """The member of `HOST_CONFIG_MANAGED` that an engine reads under this name, in whatever case; empty where there is none."""
    return _MANAGED.get(written.casefold(), "")


ENGINE_FIELDS = frozenset(
    {
        "adopt", "containers", "dependsOn", "docker", "env.valueFrom", "image", "imagePullPolicy", "init",
        "logging", "networks", "ports.hostIP", "ports.hostPort", "ports.protocol", "probes.runtimeHealth",
        "resources", "runtimeRestart",
        "securityContext", "stopSignal", "ulimits", "volumeMounts", "volumes", "workingDir (absolute)",
    }
)  # fmt: skip
"""Names of all fields that only some runtimes have: the possible members of a runtime's `supports`."""

RELATIVE_WORKING_DIR = "workingDir (relative)"
"""The field of runtimes that share the reconciler's file system."""
