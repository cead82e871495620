"""The policy of the Guard: which privileges, images, providers and names the manifests may use.

`resolve/guard.py` makes it from the Guard, `resolve/policy.py` judges the manifests by it. Pure values and functions.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING

from manifests.values.dns_names import within
from manifests.values.image_ref import ImageRef, parse_image
from manifests.values.privileges import (
    Field,
    Privilege,
    dropped_capabilities,
    forbids_escalation,
    is_below,
    printable,
    privileges_of,
)

if TYPE_CHECKING:  # its Guard has the policy
    from manifests.values.desired import Container, Template


class PodSecurity(StrEnum):
    """A level of Kubernetes' Pod Security Standards; each allows less than the one before."""

    PRIVILEGED = "privileged"
    BASELINE = "baseline"
    RESTRICTED = "restricted"


BASELINE_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID",
        "SETPCAP", "SETUID", "SYS_CHROOT",
    }
)  # fmt: skip
"""Capabilities that `baseline` lets a container add (Pod Security Standards)."""

RESTRICTED_CAPABILITIES = frozenset({"NET_BIND_SERVICE"})
"""Capabilities that `restricted` lets a container add (Pod Security Standards)."""


@dataclass(frozen=True, slots=True)
class HostPathRule:
    """Paths of the node that containers may mount: `prefix` and everything below it, in canonical form."""

    prefix: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class HostPortRule:
    """Ports of the node that containers may publish, both ends included. `addresses` are canonical; empty = any."""

    first: int
    last: int
    addresses: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Allowed:
    """Privileges that are allowed beyond the level. Each field decides about the privileges of the same `Field`."""

    privileged: bool = False
    host_namespaces: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    capabilities: frozenset[str] = frozenset()
    host_paths: tuple[HostPathRule, ...] = ()
    engine_access: bool = False
    host_ports: tuple[HostPortRule, ...] = ()
    run_as_root: bool = False
    security_opt: frozenset[str] = frozenset()
    sysctls: tuple[str, ...] = ()
    log_drivers: frozenset[str] = frozenset()
    host_config: frozenset[str] = frozenset()

    def allows(self, privilege: Privilege) -> bool:
        """Whether one of the fields allows this privilege."""
        value = privilege.value
        match privilege.field:
            case Field.PRIVILEGED:
                return self.privileged
            case Field.HOST_NAMESPACES:
                # Only the node's own namespaces have a name here: that of another container may be anything.
                return privilege.detail == "host" and value in self.host_namespaces
            case Field.DEVICES:
                return value in self.devices
            case Field.CAPABILITIES:
                return value in self.capabilities or "ALL" in self.capabilities
            case Field.HOST_PATHS:
                return any(
                    is_below(value, rule.prefix) and (privilege.read_only or not rule.read_only)
                    for rule in self.host_paths
                )
            case Field.ENGINE_ACCESS:
                return self.engine_access
            case Field.HOST_PORTS:
                return any(_publishes(rule, value, privilege.detail) for rule in self.host_ports)
            case Field.RUN_AS_ROOT:
                return self.run_as_root
            case Field.SECURITY_OPT:
                return value in self.security_opt or value.partition("=")[0] in self.security_opt
            case Field.SYSCTLS:
                return any(_matches(value, pattern) for pattern in self.sysctls)
            case Field.LOG_DRIVERS:
                return value in self.log_drivers
            case Field.HOST_CONFIG:
                return value in self.host_config

    def joined(self, other: "Allowed") -> "Allowed":
        """What one of the two allows."""
        both = {item.name: (getattr(self, item.name), getattr(other, item.name)) for item in fields(self)}
        return Allowed(
            **{name: one + two if isinstance(one, tuple) else one | two for name, (one, two) in both.items()}
        )


def _publishes(rule: HostPortRule, port: str, address: str) -> bool:
    number = int(port.partition("/")[0])
    if not rule.first <= number <= rule.last:
        return False
    return not rule.addresses or (bool(address) and canonical_address(address) in rule.addresses)


def canonical_address(address: str) -> str:
    """An IP address in its one canonical spelling."""
    return str(ipaddress.ip_address(address))


def _matches(name: str, pattern: str) -> bool:
    """A name of a sysctl by itself, or by a beginning with a final `*`, as in Kubernetes."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


class Need(StrEnum):
    """What a container must declare. The values complete "podSecurity: restricted needs …"."""

    NON_ROOT = "runAsUser other than 0, or runAsNonRoot: true"
    DROP_ALL = "all capabilities to be dropped"
    NO_ESCALATION = "allowPrivilegeEscalation: false"


@dataclass(frozen=True, slots=True)
class PodPolicy:
    """What the pods of a workload may do.

    `run_as_non_root`: no container may run as root. `restricted` asks for that too.
    """

    level: PodSecurity = PodSecurity.PRIVILEGED
    run_as_non_root: bool = False
    allowed: Allowed = field(default_factory=Allowed)

    def allows(self, privilege: Privilege) -> bool:
        """Whether the level, or what is allowed beyond it, allows a privilege."""
        if privilege.field is Field.RUN_AS_ROOT:
            return not self.requires_non_root
        if self.level is PodSecurity.PRIVILEGED:
            return True
        if privilege.field is Field.CAPABILITIES:
            restricted = self.level is PodSecurity.RESTRICTED
            if privilege.value in (RESTRICTED_CAPABILITIES if restricted else BASELINE_CAPABILITIES):
                return True
        return self.allowed.allows(privilege)

    def needs(self, container: "Container") -> Iterator[Need]:
        """What a container must declare and does not. A runtime without images has no such fields."""
        if not container.engine.image:
            return
        if self.requires_non_root and not (container.engine.user or container.engine.run_as_non_root):
            yield Need.NON_ROOT
        if self.restricted and "ALL" not in dropped_capabilities(container):
            yield Need.DROP_ALL
        if self.restricted and not forbids_escalation(container):
            yield Need.NO_ESCALATION

    @property
    def judges(self) -> bool:
        """Whether it forbids anything."""
        return self.level is not PodSecurity.PRIVILEGED or self.requires_non_root

    @property
    def restricted(self) -> bool:
        """Whether containers must give up what they do not need."""
        return self.level is PodSecurity.RESTRICTED

    @property
    def requires_non_root(self) -> bool:
        """Whether each container must name a user other than root, or ask the runtime for one."""
        return (self.run_as_non_root or self.restricted) and not self.allowed.run_as_root


@dataclass(frozen=True, slots=True)
class ImagePolicy:
    """Which images containers may run. `registries` are prefixes of repositories, None = any."""

    registries: tuple[str, ...] | None = None
    require_digest: bool = False
    forbid_tags: frozenset[str] = frozenset()

    def breaches(self, image: ImageRef) -> Iterator[str]:
        """Why an image is not allowed: `is …`, `has …`.

        `registry.example.com/shop` has `registry.example.com/shop/web`, not `registry.example.com/shopx`. With a digest a tag has no effect.
        """
        if self.registries is not None and not any(is_below(image.repository, prefix) for prefix in self.registries):
            places = ", ".join(self.registries) or "none"
            yield f"is {image.repository}, which is not below a registry that the policy allows: {places}"
        if self.require_digest and not image.digest:
            yield "has no digest, and the policy has requireDigest: true"
        tag = "" if image.digest else image.tag or "latest"
        if tag in self.forbid_tags:
            yield f"has the tag {tag}, which forbidTags of the policy names"

    @property
    def judges(self) -> bool:
        """Whether it forbids anything."""
        return self.registries is not None or self.require_digest or bool(self.forbid_tags)


@dataclass(frozen=True, slots=True)
class NamePolicy:
    """Which zones and names the manifests may write; None = any. Zones and names are canonical, with a final dot."""

    zones: frozenset[str] | None = None
    names: tuple[str, ...] | None = None

    def allows_zone(self, zone: str) -> bool:
        """Whether records of a zone may be written."""
        return self.zones is None or zone in self.zones

    def allows_name(self, name: str) -> bool:
        """Whether a name may be written: it equals one in the list, or `*.x` is in the list and it lies below `x`, at any depth.

        The wildcard name `*.x` lies below `x` too.
        """
        return self.names is None or any(
            name == allowed or (allowed.startswith("*.") and name != allowed[2:] and within(name, allowed[2:]))
            for allowed in self.names
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """The whole policy.

    Attributes:
        pods: for workloads that are no exception.
        exceptions: for workloads by name.
        images: for the images of all workloads.
        provider_types: types of providers that may be declared; None = any.
        names: for DNSPolicies, Records and RecordLists.
        guard: the Guard with its place, for messages; empty where none is declared.
        default_level: whether the level is the default one.
    """

    pods: PodPolicy = field(default_factory=PodPolicy)
    exceptions: Mapping[str, PodPolicy] = field(default_factory=dict)
    images: ImagePolicy = field(default_factory=ImagePolicy)
    provider_types: frozenset[str] | None = None
    names: NamePolicy = field(default_factory=NamePolicy)
    guard: str = ""
    default_level: bool = False

    def of(self, workload: str) -> PodPolicy:
        """The policy for the pods of a workload."""
        return self.exceptions.get(workload, self.pods)

    def level_of(self, workload: str) -> str:
        """The level of a workload, as messages name it."""
        level = self.of(workload).level
        default = self.default_level and level is self.pods.level
        return f"podSecurity: {level.value}{' (the default with local documents)' if default else ''}"

    def refusal(self, workload: str, template: "Template", sockets: Iterable[str]) -> str:
        """The first reason why no container may be created from a template; empty when it is allowed.

        Args:
            workload: name of the workload.
            sockets: those of the declared runtimes, see `privileges.reaches_engine`.
        """
        return next(self._refusals(workload, template, sockets), "")

    def _refusals(self, workload: str, template: "Template", sockets: Iterable[str]) -> Iterator[str]:
        pods, containers = self.of(workload), (template.container, *template.sidecars)
        if pods.judges:
            for privilege in privileges_of(template, sockets):
                if not pods.allows(privilege):
                    yield f"container '{privilege.container}': {self.rule_of(workload, privilege.field)} does not allow: {privilege.text}"
            for container in containers:
                for need in pods.needs(container):
                    yield f"container '{container.name}': {self.rule_of(workload, need)} needs {need.value}"
        for container in containers if self.images.judges else ():
            if container.engine.image:
                for breach in self.images.breaches(parse_image(container.engine.image)):
                    yield f"container '{container.name}': image {printable(container.engine.image)} {breach}"

    def rule_of(self, workload: str, of: Field | Need) -> str:
        """The rule that decides about a privilege or a need, as messages name it."""
        by_user = of in (Field.RUN_AS_ROOT, Need.NON_ROOT) and not self.of(workload).restricted
        return "runAsNonRoot" if by_user else self.level_of(workload)


DEFAULT_POLICY = Policy()
