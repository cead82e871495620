"""Policy: what the manifests may ask for. Part of `Guard`; resolved by `resolve/guard.py`, judged by `resolve/policy.py`.

The words are Kubernetes' where Kubernetes has the rule: levels of the Pod Security Standards, and the lists of its older PodSecurityPolicy.
"""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Model, unique
from manifests.kinds.record import RecordName
from manifests.types.engine import AbsolutePath, Capability, DriverName, HostPortNumber, ListenAddress
from manifests.types.errors import bad_value
from manifests.types.fields import Items, Name, Shown, ZoneName
from manifests.values.image_ref import parse_image
from manifests.values.pod import HOST_CONFIG_MANAGED, managed_member
from manifests.values.privileges import HARMLESS, JUDGED, member_name

_SYSCTL = re.compile(r"[a-z0-9][a-z0-9_.-]*\*?|\*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_WHOLE = frozenset({"Binds", "Devices", "GroupAdd", "Mounts"})
"""Members of HostConfig whose content is read, and which have options that no other list of this policy names."""


def _sysctl(value: str) -> str:
    if _SYSCTL.fullmatch(value):
        return value
    raise bad_value(
        f"'{value[:80]}' is not the name of a kernel parameter",
        "write a name such as net.core.somaxconn, or net.core.*",
    )


def _tag(value: str) -> str:
    if _TAG.fullmatch(value):
        return value
    raise bad_value(f"'{value[:80]}' is not a tag of an image", "write a tag such as latest")


def _registry(value: str) -> str:
    """A registry, or a part of one, without a final slash."""
    prefix = value.removesuffix("/")
    domain = prefix.partition("/")[0]
    hint = "write a registry or a beginning of its repositories, such as registry.example.com/shop"
    try:
        parsed = parse_image(prefix if "/" in prefix else f"{prefix}/any")
    except ValueError:
        raise bad_value(f"'{value[:80]}' is not a prefix of image names", hint) from None
    if parsed.tag or parsed.digest or parsed.domain != domain:
        raise bad_value(f"'{value[:80]}' is not a prefix of image names: it must begin with a registry", hint)
    return prefix


def _member(value: str) -> str:
    """A member of HostConfig that is allowed as a whole."""
    name, managed = member_name(value), managed_member(value)
    if managed:
        raise bad_value(f"'{value[:80]}' can never be set in hostConfig", HOST_CONFIG_MANAGED[managed])
    if name in JUDGED and name not in _WHOLE:
        raise bad_value(f"'{value[:80]}' is not allowed as a whole", f"use {JUDGED[name].value} of this section")
    if name in HARMLESS and name not in _WHOLE:
        raise bad_value(f"'{value[:80]}' is always allowed", "remove it")
    return name


class AllowedHostPath(Model):
    """Paths of the node that containers may mount."""

    path_prefix: AbsolutePath = Field(
        description="The path, and everything below it: `/srv` allows `/srv/data`, not `/srvx`. Links on the node are not resolved."
    )
    read_only: bool = Field(False, description="Allows only mounts that are read-only.")


class AllowedHostPorts(Model):
    """Ports of the node that containers may publish."""

    min: HostPortNumber = Field(description="First port.")
    max: HostPortNumber | None = Field(None, description="Last port; by default `min`.")
    host_ips: Annotated[Items[ListenAddress], unique("address")] = Field(
        (),
        alias="hostIPs",
        description="Addresses of the node on which they may be published; by default any. With addresses a port must name one of "
        "them as its `hostIP`.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max is None or self.min <= self.max:
            return self
        raise bad_value(f"max ({self.max}) is below min ({self.min})", "raise max, or lower min", at=("max",))


class Allow(Model):
    """Privileges that are allowed beyond `podSecurity`."""

    privileged: bool = Field(False, description="Allows privileged containers.")
    host_namespaces: Annotated[Items[Literal["cgroup", "ipc", "pid", "userns", "uts"]], unique("namespace")] = Field(
        (), description="Namespaces of the node that containers may share. Its network namespace can never be shared."
    )
    devices: Annotated[Items[AbsolutePath], unique("device")] = Field(
        (), description="Devices of the node that containers may have, by their paths."
    )
    capabilities: Annotated[Items[Capability], unique("capability")] = Field(
        (), description="Capabilities that containers may add, or ALL."
    )
    host_paths: Items[AllowedHostPath] = Field((), description="Paths of the node that containers may mount.")
    engine_access: bool = Field(
        False,
        description="Allows mounts, among those that `hostPaths` allows, that lead to the container engine: its socket, its data, a "
        "directory that contains one of them such as `/` or `/run`, and directories of processes in `/proc`. Such a container is "
        "root on the node.",
    )
    host_ports: Items[AllowedHostPorts] = Field((), description="Ports of the node that containers may publish.")
    run_as_root: bool = Field(
        False,
        description="Allows containers that may run as root where `podSecurity` or `runAsNonRoot` forbids them.",
    )
    security_opt: Annotated[Items[str], unique("option")] = Field(
        (),
        description="Security options of the engine that containers may have: the whole option, such as `apparmor=unconfined`, or "
        "its name for all values, such as `seccomp`.",
    )
    sysctls: Annotated[
        Items[Annotated[str, AfterValidator(_sysctl), Shown("name of a kernel parameter, may end in *")]],
        unique("sysctl"),
    ] = Field((), description="Kernel parameters that containers may set, beside those that Kubernetes calls safe.")
    log_drivers: Annotated[Items[DriverName], unique("driver")] = Field(
        (), description="Logging drivers that send the output away from the node."
    )
    host_config: Annotated[
        Items[Annotated[str, AfterValidator(_member), Shown("member of HostConfig")]], unique("member")
    ] = Field(
        (),
        description="Members of the engine's HostConfig that containers may set and that no other field here is about, such as "
        "`Runtime` or `CgroupParent`. With `Binds`, `Devices`, `GroupAdd` and `Mounts` also unusual options of these are allowed.",
    )


class PolicyException(Model):
    """Another policy for the pods of some workloads."""

    workloads: Annotated[Items[Name], unique("workload")] = Field(min_length=1, description="Names of the workloads.")
    pod_security: Literal["privileged", "baseline", "restricted"] | None = Field(
        None, description="Level of these workloads; by default that of the policy."
    )
    run_as_non_root: bool | None = Field(None, description="As `runAsNonRoot` of the policy, which is the default.")
    allow: Allow = Field(default_factory=Allow, description="Privileges that are allowed beyond those of the policy.")


class Images(Model):
    """Which images containers may run."""

    registries: (
        Annotated[Items[Annotated[str, AfterValidator(_registry), Shown("prefix of image names")]], unique("registry")]
        | None
    ) = Field(
        None,
        description="Registries, or beginnings of their repositories: `registry.example.com/shop` allows "
        "`registry.example.com/shop/web`, not `registry.example.com/shopx`. Short names are those of docker.io. By default any.",
    )
    require_digest: bool = Field(False, description="Each image must be named by its digest.")
    forbid_tags: Annotated[Items[Annotated[str, AfterValidator(_tag), Shown("tag")]], unique("tag")] = Field(
        (), description="Tags that images must not have. An image without tag and digest has the tag latest."
    )


class NamesPolicy(Model):
    """Which names DNSPolicies, Records and RecordLists may write."""

    zones: Annotated[Items[ZoneName], unique("zone")] | None = Field(
        None, description="Zones that may be written, exactly these; by default any."
    )
    names: Annotated[Items[RecordName], unique("name")] | None = Field(
        None,
        description="Names that may be written: exactly this name, or with `*.` before it all names below it at any depth, without the "
        "name itself. By default any.",
    )


class Policy(Model):
    """What the manifests may ask for. A violation is an error of the manifests."""

    pod_security: Literal["privileged", "baseline", "restricted"] | None = Field(
        None,
        description="Level of Kubernetes' Pod Security Standards. `privileged` forbids nothing; it is the default without local documents. With "
        "local documents (`--instance`) the default is `baseline`.",
    )
    run_as_non_root: bool = Field(
        False,
        description="Each container must set `runAsUser` other than 0, or `runAsNonRoot: true`. `restricted` asks for it too.",
    )
    allow: Allow = Field(
        default_factory=Allow, description="Privileges that are allowed beyond `podSecurity`, for all workloads."
    )
    exceptions: Items[PolicyException] = Field((), description="Other rules for the pods of some workloads.")
    images: Images = Field(default_factory=Images, description="Which images containers may run.")
    provider_types: Annotated[Items[str], unique("type")] | None = Field(
        None, description="Types of providers that may be declared; by default any."
    )
    dns: NamesPolicy = Field(default_factory=NamesPolicy, description="Which names may be written.")

    @model_validator(mode="after")
    def _one_exception_each(self) -> Self:
        named: set[str] = set()
        for index, exception in enumerate(self.exceptions):
            for place, workload in enumerate(exception.workloads):
                if workload in named:
                    at = ("exceptions", index, "workloads", place)
                    raise bad_value(f"workload '{workload}' is in two exceptions", "keep one of the two", at=at)
                named.add(workload)
        return self
