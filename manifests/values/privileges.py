"""The privileges of a pod template: everything in it by which a container gets more of its node than a container gets by default.

`resolve/policy.py` judges them by the policy of the Guard, the core lists them in plans, `explain` shows them. Pure values and
functions: a template in, privileges out. Every field of a pod that can raise a container above the engine's defaults leads to
a `Privilege` here, also the members of the engine's own HostConfig, which override the other fields.
"""

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as value_field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from manifests.values.pod import VolumeKind

if TYPE_CHECKING:  # its Guard has the policy, which judges privileges
    from manifests.values.desired import Container, Provider, Template


class Field(StrEnum):
    """The field of `policy.allow` in the Guard that decides about a privilege. The values are its names in a manifest."""

    PRIVILEGED = "privileged"
    HOST_NAMESPACES = "hostNamespaces"
    DEVICES = "devices"
    CAPABILITIES = "capabilities"
    HOST_PATHS = "hostPaths"
    ENGINE_ACCESS = "engineAccess"
    HOST_PORTS = "hostPorts"
    RUN_AS_ROOT = "runAsRoot"
    SECURITY_OPT = "securityOpt"
    SYSCTLS = "sysctls"
    LOG_DRIVERS = "logDrivers"
    HOST_CONFIG = "hostConfig"


@dataclass(frozen=True, slots=True, order=True)
class Privilege:
    """One privilege of one container.

    Attributes:
        container: name of the container in its pod.
        field: the field of the policy that decides about it.
        value: what is asked for: a capability, a path of the node, a device, `8080/TCP`, a member of HostConfig.
        detail: where it goes or how: the path in the container, the address of a port (empty = all), the mode of a namespace.
        read_only: a path of the node that the container cannot write.
        member: the member of HostConfig as the manifest writes it; empty for a field of the manifest itself. It does not
            count for equality.
    """

    container: str
    field: Field
    value: str = ""
    detail: str = ""
    read_only: bool = False
    member: str = value_field(default="", compare=False)

    @property
    def text(self) -> str:
        """The privilege in a few words, without the container. Only printable characters, whatever the manifest holds."""
        value, detail = printable(self.value), printable(self.detail)
        match self.field:
            case Field.PRIVILEGED:
                return "privileged"
            case Field.HOST_NAMESPACES:
                return f"host {value} namespace" if detail == "host" else f"{value} namespace of {detail}"
            case Field.DEVICES:
                return f"device {value}"
            case Field.CAPABILITIES:
                return f"capability {value}"
            case Field.HOST_PATHS:
                return f"host path {value} {'read-only' if self.read_only else 'read-write'} at {detail}"
            case Field.ENGINE_ACCESS:
                return f"access to the engine and so to the whole node: {value} at {detail}"
            case Field.HOST_PORTS:
                return f"host port {value} on {detail or 'all addresses'}"
            case Field.RUN_AS_ROOT:
                return "runs as root"
            case Field.SECURITY_OPT:
                return f"security option {value}"
            case Field.SYSCTLS:
                return f"sysctl {value}"
            case Field.LOG_DRIVERS:
                return f"log driver {value}"
            case Field.HOST_CONFIG:
                return f"hostConfig {value}"


def printable(text: str, most: int = 160) -> str:
    """A text from a manifest for a line of output: other characters as escapes, at most `most` of them."""
    shown = text if len(text) <= most else text[:most] + "…"
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in shown)


# --- members of HostConfig -----------------------------------------------------------------------------------------------

HARMLESS = frozenset(
    {
        "BlkioDeviceReadBps", "BlkioDeviceReadIOps", "BlkioDeviceWriteBps", "BlkioDeviceWriteIOps", "BlkioWeight",
        "BlkioWeightDevice", "CapDrop", "ConsoleSize", "CpuCount", "CpuPercent", "CpuShares", "CpusetCpus", "CpusetMems",
        "Dns", "DnsOptions", "DnsSearch", "ExtraHosts", "GroupAdd", "IOMaximumBandwidth", "IOMaximumIOps", "Init",
        "KernelMemory", "KernelMemoryTCP", "MemoryReservation", "MemorySwappiness", "PidsLimit", "ReadonlyRootfs",
        "ShmSize", "StorageOpt", "Tmpfs", "Ulimits",
    }
)  # fmt: skip
"""Members that only limit a container, or change what is in its own namespaces."""

JUDGED: Mapping[str, Field] = {
    "Binds": Field.HOST_PATHS,
    "CapAdd": Field.CAPABILITIES,
    "CgroupnsMode": Field.HOST_NAMESPACES,
    "Devices": Field.DEVICES,
    "IpcMode": Field.HOST_NAMESPACES,
    "LogConfig": Field.LOG_DRIVERS,
    "Mounts": Field.HOST_PATHS,
    "PidMode": Field.HOST_NAMESPACES,
    "Privileged": Field.PRIVILEGED,
    "SecurityOpt": Field.SECURITY_OPT,
    "Sysctls": Field.SYSCTLS,
    "UTSMode": Field.HOST_NAMESPACES,
    "UsernsMode": Field.HOST_NAMESPACES,
}
"""Members whose content is read, with the field of the policy that decides about it."""

RAW = frozenset(
    {
        "Annotations", "Capabilities", "Cgroup", "CgroupParent", "ContainerIDFile", "CpuRealtimePeriod",
        "CpuRealtimeRuntime", "DeviceCgroupRules", "DeviceRequests", "Isolation", "Links", "MaskedPaths", "OomKillDisable",
        "OomScoreAdj", "PublishAllPorts", "ReadonlyPaths", "Runtime", "VolumeDriver", "VolumesFrom",
    }
)  # fmt: skip
"""Members that are allowed or refused as a whole, by name. So is every member that is in no table: a later engine may have it."""

NAMESPACES: Mapping[str, tuple[str, frozenset[str]]] = {
    "CgroupnsMode": ("cgroup", frozenset({"private"})),
    "IpcMode": ("ipc", frozenset({"none", "private", "shareable"})),
    "PidMode": ("pid", frozenset({"private"})),
    "UTSMode": ("uts", frozenset({"private"})),
    "UsernsMode": ("userns", frozenset({"private", "auto", "keep-id", "nomap"})),
}
"""Modes of namespaces: the name of the namespace, and the modes by which a container has one of its own."""

_BY_FOLDED = {name.casefold(): name for name in (*HARMLESS, *JUDGED, *RAW)}


def folded(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """A mapping by its keys as engines compare them: they ignore case (Go's encoding/json), also that of U+017F and U+212A."""
    return {str(key).casefold(): inner for key, inner in value.items()}


def _ambiguous(value: Any) -> bool:
    """Whether two keys at any depth are one to an engine, which then merges their values."""
    if isinstance(value, Mapping):
        return len(folded(value)) < len(value) or any(map(_ambiguous, value.values()))
    return isinstance(value, list) and any(map(_ambiguous, value))


def member_name(written: str) -> str:
    """The engine's name of a member, however a manifest spells it; the text itself where the engine has no such member."""
    return _BY_FOLDED.get(written.casefold(), written)


SAFE_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
    }
)  # fmt: skip
"""Kernel parameters of the container's own namespaces (Pod Security Standards of Kubernetes 1.32, baseline)."""

LOCAL_LOG_DRIVERS = frozenset({"json-file", "journald", "k8s-file", "local", "none", "passthrough"})
"""Logging drivers that keep the output on the node. Others send it away, and read files of the node for their certificates."""

_SELINUX_TYPES = frozenset({"container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
"""SELinux types of the Pod Security Standards, baseline."""


def harmless_option(option: str) -> bool:
    """Whether a security option leaves the container within the engine's defaults (Pod Security Standards, baseline).

    A seccomp profile is none of these: here it is text in the manifest, and may allow everything.
    """
    name, _, value = option.partition("=") if "=" in option else option.partition(":")
    if name == "label":
        part, _, chosen = value.partition(":")
        return part == "level" or (part == "type" and chosen in _SELINUX_TYPES)
    if name == "apparmor":
        return value not in ("", "unconfined")
    return name == "no-new-privileges" or (name == "seccomp" and value == "builtin")


def forbids_escalation(container: "Container") -> bool:
    """Whether a process of the container can gain no privileges that its parent does not have (`no-new-privileges`)."""
    if container.engine.no_new_privileges:
        return True
    given = [value for written, value in host_config_of(container).items() if member_name(written) == "SecurityOpt"]
    options = [option for value in given for option in _texts(value)]
    last = [option for option in options if option.partition("=")[0].partition(":")[0] == "no-new-privileges"][-1:]
    return len(given) == 1 and last in (["no-new-privileges"], ["no-new-privileges=true"], ["no-new-privileges:true"])


def dropped_capabilities(container: "Container") -> frozenset[str]:
    """The capabilities that a container drops; those of HostConfig replace the manifest's own."""
    given = [value for written, value in host_config_of(container).items() if member_name(written) == "CapDrop"]
    if not given:
        return frozenset(container.engine.cap_drop)
    # The engine takes the last of several spellings; only what all of them drop is certain.
    return frozenset.intersection(*(frozenset(_capability(name) for name in _texts(value)) for value in given))


def _keeps_groups(name: str, value: Any) -> bool:
    """Whether the container keeps the groups of the engine's own process on the node (Podman)."""
    return name == "GroupAdd" and "keep-groups" in _texts(value)


def host_config_of(container: "Container") -> dict[str, Any]:
    """The members of HostConfig that the manifest gives a container, under the names that it writes."""
    given = json.loads(container.engine.host_config) if container.engine.host_config else {}
    return given if isinstance(given, dict) else {}


# --- paths of the node ---------------------------------------------------------------------------------------------------

_SOCKET_NAMES = frozenset({"docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock"})

_ENGINE_PATHS = (
    "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/user/0/podman/podman.sock",
    "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers",
)  # fmt: skip
"""Sockets and data of engines. A process that writes to one of them is root on the node."""

_PROCESS = re.compile(r"/proc/(?:[0-9]+|self|thread-self)/.+")
"""Below the directory of a process are links to the root of the node."""


def canonical_path(path: str) -> str:
    """A path of the node in normal form. Links on the node are not known here, but for `/var/run`, which is `/run`."""
    normal = posixpath.normpath(path)
    if normal.startswith("//"):
        normal = normal[1:]
    return f"/run{normal[8:]}" if normal == "/var/run" or normal.startswith("/var/run/") else normal


def is_below(path: str, prefix: str) -> bool:
    """Whether a canonical path is the prefix, or lies below it: `/srv/a` is below `/srv`, `/srvx` is not."""
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")


def reaches_engine(path: str, sockets: Iterable[str] = ()) -> bool:
    """Whether a path of the node is, contains or lies in something by which its user controls the engine, and so the node.

    Args:
        path: the path, in any form.
        sockets: the sockets of the runtimes that the manifests declare.
    """
    path = canonical_path(path)
    if posixpath.basename(path) in _SOCKET_NAMES or _PROCESS.fullmatch(path) or is_below("/run/user", path):
        return True
    known = (*_ENGINE_PATHS, *(canonical_path(socket) for socket in sockets))
    return any(is_below(path, place) or is_below(place, path) for place in known)


def engine_sockets(providers: Iterable["Provider"]) -> tuple[str, ...]:
    """The sockets of the runtimes among these providers, for `reaches_engine`."""
    settings = (provider.settings for provider in providers if provider.role == "runtime")
    return tuple(sorted(socket for item in settings if isinstance(socket := item.get("socket"), str)))


# --- from a template to its privileges ---------------------------------------------------------------------------------------


def privileges_of(template: "Template", sockets: Iterable[str] = ()) -> tuple[Privilege, ...]:
    """All privileges of a template, sorted. `sockets`: those of the declared runtimes, see `reaches_engine`."""
    known = tuple(sockets)
    found = {
        privilege
        for container in (template.container, *template.sidecars)
        for privilege in (*_of_fields(container, known), *_of_host_config(container, known))
    }
    # The main container has the ports of the whole pod.
    for port in template.container.ports:
        if port.host_port:
            published = f"{port.host_port}/{port.protocol}"
            found.add(Privilege(template.container.name, Field.HOST_PORTS, published, port.host_ip))
    return tuple(sorted(found))


def _of_fields(container: "Container", sockets: tuple[str, ...]) -> Iterator[Privilege]:
    engine, name = container.engine, container.name
    for capability in engine.cap_add:
        yield Privilege(name, Field.CAPABILITIES, capability)
    for mount in engine.mounts:
        if mount.kind is VolumeKind.BIND:
            yield from _host_path(name, mount.source, mount.target, sockets, read_only=mount.read_only)
    if engine.user.partition(":")[0] == "0":
        yield Privilege(name, Field.RUN_AS_ROOT)
    if engine.log_driver and engine.log_driver not in LOCAL_LOG_DRIVERS:
        yield Privilege(name, Field.LOG_DRIVERS, engine.log_driver)
    yield from _log_file(name, dict(engine.log_options), sockets)


def _log_file(
    container: str, options: Mapping[str, Any], sockets: tuple[str, ...], member: str = ""
) -> Iterator[Privilege]:
    """A file of the node that the engine writes the output to (Podman's option `path`)."""
    for option, value in options.items():
        if option.casefold() == "path":
            yield from _host_path(container, str(value), "(the log)", sockets, read_only=False, member=member)


def _host_path(
    container: str, path: str, target: str, sockets: tuple[str, ...], *, read_only: bool, member: str = ""
) -> Iterator[Privilege]:
    path = canonical_path(path)
    yield Privilege(container, Field.HOST_PATHS, path, target, read_only, member)
    if reaches_engine(path, sockets):
        yield Privilege(container, Field.ENGINE_ACCESS, path, target, read_only, member)


def _of_host_config(container: "Container", sockets: tuple[str, ...]) -> Iterator[Privilege]:
    for written, value in host_config_of(container).items():
        name = member_name(written)
        if value is None or (name in HARMLESS and not _keeps_groups(name, value)):
            continue
        if name in JUDGED:
            yield from _of_member(container.name, name, written, value, sockets)
        elif value or name in ("MaskedPaths", "ReadonlyPaths"):  # an empty list of these unmasks everything
            yield Privilege(container.name, Field.HOST_CONFIG, name, member=written)


def _of_member(container: str, name: str, written: str, value: Any, sockets: tuple[str, ...]) -> Iterator[Privilege]:
    """The privileges in a member whose content is read. A value of an unexpected shape is one as a whole."""
    if not value:
        return
    whole = Privilege(container, Field.HOST_CONFIG, name, member=written)
    if name == "Privileged":
        yield Privilege(container, Field.PRIVILEGED, member=written)
    elif name in NAMESPACES:
        namespace, own = NAMESPACES[name]
        mode = str(value)
        if mode.partition(":")[0] not in own:
            yield Privilege(container, Field.HOST_NAMESPACES, namespace, mode, member=written)
    elif name == "CapAdd":
        for capability in (value,) if isinstance(value, str) else _texts(value):
            yield Privilege(container, Field.CAPABILITIES, _capability(capability), member=written)
    elif name == "SecurityOpt":
        for option in (value,) if isinstance(value, str) else _texts(value):
            if not harmless_option(option):
                yield Privilege(container, Field.SECURITY_OPT, option, member=written)
    elif name == "Sysctls" and isinstance(value, Mapping):
        for sysctl in value:
            if sysctl not in SAFE_SYSCTLS:
                yield Privilege(container, Field.SYSCTLS, str(sysctl), member=written)
    elif name == "LogConfig" and isinstance(value, Mapping) and not _ambiguous(value):
        options = folded(value).get("config") or {}
        if isinstance(options, Mapping):
            yield from _log_file(container, options, sockets, written)
        driver = str(folded(value).get("type") or "")
        if driver and driver not in LOCAL_LOG_DRIVERS:
            yield Privilege(container, Field.LOG_DRIVERS, driver, member=written)
    elif name == "Binds" and isinstance(value, list):
        for bind in value:
            yield from _bind(whole, str(bind), sockets)
    elif name in ("Mounts", "Devices") and isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        for item in value:
            yield from _mount(whole, folded(item), sockets) if name == "Mounts" else _device(whole, folded(item))
            if _ambiguous(item):
                yield whole
    else:
        yield whole


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in value if item) if isinstance(value, list) else (str(value),)


def _capability(name: str) -> str:
    return name.upper().removeprefix("CAP_")


_SHARED = frozenset({"shared", "rshared"})
"""Mount propagation by which mounts of the container appear on the node (Kubernetes: `Bidirectional`, for privileged pods only)."""


def _bind(whole: Privilege, bind: str, sockets: tuple[str, ...]) -> Iterator[Privilege]:
    """A mount in the short form: `source:target[:options]`. A source that is no path is a volume of the engine."""
    source, _, rest = bind.partition(":")
    target, _, options = rest.partition(":")
    if not source.startswith(("/", ".", "~")):
        return
    modes = set(options.split(","))
    yield from _host_path(whole.container, source, target, sockets, read_only="ro" in modes, member=whole.member)
    if modes & _SHARED:
        yield whole


def _mount(whole: Privilege, mount: Mapping[str, Any], sockets: tuple[str, ...]) -> Iterator[Privilege]:
    kind, source, target = str(mount.get("type", "")), str(mount.get("source") or ""), str(mount.get("target", ""))
    read_only = mount.get("readonly") is True
    if kind == "bind" or source.startswith(("/", ".", "~")):
        yield from _host_path(whole.container, source, target, sockets, read_only=read_only, member=whole.member)
    elif kind not in ("volume", "tmpfs", "image"):
        yield whole
    options = mount.get("bindoptions") or {}
    shared = not isinstance(options, Mapping) or str(folded(options).get("propagation")) in _SHARED
    volume = mount.get("volumeoptions") or {}
    # A volume's driver and its options may name any device or directory of the node.
    driver = not isinstance(volume, Mapping) or folded(volume).get("driverconfig")
    if shared or driver:
        yield whole


def _device(whole: Privilege, device: Mapping[str, Any]) -> Iterator[Privilege]:
    path = str(device.get("pathonhost") or "")
    rights = str(device.get("cgrouppermissions") or "rwm")
    yield Privilege(whole.container, Field.DEVICES, canonical_path(path), rights, member=whole.member)
