"""The policy of the Guard as a value, and everything in a tree that violates it, each with its place. Called by `resolver.py`."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from manifests import kinds
from manifests.kinds import policy as given
from manifests.kinds.pod import PodSpec
from manifests.kinds.validate import Declared, Path
from manifests.resolve.record_list import written
from manifests.resolve.references import Scope
from manifests.values import desired
from manifests.values.image_ref import parse_image
from manifests.values.policy import (
    Allowed,
    HostPathRule,
    HostPortRule,
    ImagePolicy,
    NamePolicy,
    Need,
    PodPolicy,
    PodSecurity,
    Policy,
    canonical_address,
)
from manifests.values.privileges import (
    Field,
    Privilege,
    canonical_path,
    engine_sockets,
    printable,
    privileges_of,
)

_SPEC: Path = ("spec", "template", "spec")


class Violation(NamedTuple):
    """One violation: the object, the path of the value in it, the cause and the next step."""

    declared: Declared
    path: Path
    message: str
    hint: str


# --- from the Guard to the policy ----------------------------------------------------------------------------------------------


def policy_of(declared: Declared | None, *, local: bool) -> Policy:
    """The policy that counts.

    Args:
        declared: the Guard; None when there is none.
        local: whether there are local documents. Then the level is `baseline` unless the Guard names another one.
    """
    manifest = None if declared is None else declared.manifest
    spec = manifest.spec.policy if isinstance(manifest, kinds.Guard) else given.Policy()
    default = PodSecurity.BASELINE if local else PodSecurity.PRIVILEGED
    level = default if spec.pod_security is None else PodSecurity(spec.pod_security)
    allowed = _allowed(spec.allow)
    return Policy(
        pods=PodPolicy(level, spec.run_as_non_root, allowed),
        exceptions=dict(_exceptions(spec, level, allowed)),
        images=_images(spec.images),
        provider_types=None if spec.provider_types is None else frozenset(spec.provider_types),
        names=NamePolicy(None if spec.dns.zones is None else frozenset(spec.dns.zones), spec.dns.names),
        guard="" if declared is None else f"{declared.key} ({declared.document.where})",
        default_level=spec.pod_security is None,
    )


def _allowed(allow: given.Allow) -> Allowed:
    return Allowed(
        privileged=allow.privileged,
        host_namespaces=frozenset(allow.host_namespaces),
        devices=frozenset(map(canonical_path, allow.devices)),
        capabilities=frozenset(allow.capabilities),
        host_paths=tuple(HostPathRule(canonical_path(item.path_prefix), item.read_only) for item in allow.host_paths),
        engine_access=allow.engine_access,
        host_ports=tuple(
            HostPortRule(item.min, item.max or item.min, frozenset(map(canonical_address, item.host_ips)))
            for item in allow.host_ports
        ),
        run_as_root=allow.run_as_root,
        security_opt=frozenset(allow.security_opt),
        sysctls=allow.sysctls,
        log_drivers=frozenset(allow.log_drivers),
        host_config=frozenset(allow.host_config),
    )


def _exceptions(spec: given.Policy, level: PodSecurity, allowed: Allowed) -> Iterator[tuple[str, PodPolicy]]:
    for exception in spec.exceptions:
        of_these = level if exception.pod_security is None else PodSecurity(exception.pod_security)
        non_root = spec.run_as_non_root if exception.run_as_non_root is None else exception.run_as_non_root
        for workload in exception.workloads:
            yield workload, PodPolicy(of_these, non_root, allowed.joined(_allowed(exception.allow)))


def _images(spec: given.Images) -> ImagePolicy:
    return ImagePolicy(spec.registries, spec.require_digest, frozenset(spec.forbid_tags))


# --- what violates it --------------------------------------------------------------------------------------------------------


def violations(policy: Policy, scope: Scope, value: desired.Desired) -> Iterator[Violation]:
    """Everything in the manifests that the policy does not allow."""
    sockets = engine_sockets(value.providers)
    workloads = {workload.key: workload for workload in value.workloads}
    for declared in scope.all("Workload"):
        manifest, workload = declared.manifest, workloads.get(declared.key)
        if isinstance(manifest, kinds.Workload) and workload is not None:
            yield from _of_pods(policy, declared, manifest.spec.template.spec, workload.template, sockets)
            yield from _of_images(policy, declared, manifest.spec.template.spec)
    if policy.provider_types is not None:
        yield from _of_providers(policy, policy.provider_types, scope)
    if policy.names.zones is not None or policy.names.names is not None:
        yield from _of_names(policy, scope, value)


def _of_pods(
    policy: Policy, declared: Declared, spec: PodSpec, template: desired.Template, sockets: tuple[str, ...]
) -> Iterator[Violation]:
    pods = policy.of(declared.name)
    if not pods.judges:
        return
    index_of = {container.name: index for index, container in enumerate(spec.containers)}
    for privilege in privileges_of(template, sockets):
        if not pods.allows(privilege):
            rule = policy.rule_of(declared.name, privilege.field)
            message = f"{declared.key}: container '{privilege.container}': {rule} does not allow: {privilege.text}"
            path = _place(spec, index_of[privilege.container], privilege)
            yield Violation(declared, path, message, _hint(policy, privilege))
    for container in (template.container, *template.sidecars):
        given_container = spec.containers[index_of[container.name]]
        path = (*_SPEC, "containers", index_of[container.name])
        if "security_context" in given_container.model_fields_set:
            path = (*path, "securityContext")
        for need in pods.needs(container):
            rule = policy.rule_of(declared.name, need)
            message = f"{declared.key}: container '{container.name}': {rule} needs {need.value}"
            yield Violation(declared, path, message, f"{_NEXT_STEPS[need]}{_or_as_root(policy, need)}")


_NEXT_STEPS = {
    Need.NON_ROOT: "set securityContext.runAsUser, or runAsNonRoot: true where the image names a user",
    Need.DROP_ALL: "set securityContext.capabilities.drop: [ALL]",
    Need.NO_ESCALATION: "set securityContext.allowPrivilegeEscalation: false",
}


def _or_as_root(policy: Policy, need: Need) -> str:
    return f", or {_in_guard(policy, 'runAsRoot: true')}" if need is Need.NON_ROOT else ""


def _place(spec: PodSpec, index: int, privilege: Privilege) -> Path:
    """The path of the value by which a container has a privilege."""
    path: Path = (*_SPEC, "containers", index)
    if privilege.member:
        return (*path, "docker", "hostConfig", privilege.member)
    match privilege.field:
        case Field.CAPABILITIES:
            added = spec.containers[index].security_context.capabilities.add
            return (*path, "securityContext", "capabilities", "add", added.index(privilege.value))
        case Field.HOST_PATHS | Field.ENGINE_ACCESS:
            for place, volume in enumerate(spec.volumes):
                if volume.host_path is not None and canonical_path(volume.host_path.path) == privilege.value:
                    return (*_SPEC, "volumes", place, "hostPath", "path")
            return (*path, "logging", "options")
        case Field.HOST_PORTS:
            for at, container in enumerate(spec.containers):
                for place, port in enumerate(container.ports):
                    if f"{port.host_port}/{port.protocol}" == privilege.value:
                        return (*_SPEC, "containers", at, "ports", place, "hostPort")
        case Field.RUN_AS_ROOT:
            return (*path, "securityContext", "runAsUser")
        case Field.LOG_DRIVERS:
            return (*path, "logging", "driver")
    return path


_ALLOW: Mapping[Field, Callable[[Privilege], str]] = {
    Field.PRIVILEGED: lambda _: "privileged: true",
    Field.HOST_NAMESPACES: lambda privilege: f"hostNamespaces: [{privilege.value}]",
    Field.DEVICES: lambda privilege: f"devices: [{privilege.value}]",
    Field.CAPABILITIES: lambda privilege: f"capabilities: [{privilege.value}]",
    Field.HOST_PATHS: lambda privilege: (
        f"hostPaths: [{{pathPrefix: {privilege.value}{', readOnly: true' if privilege.read_only else ''}}}]"
    ),
    Field.ENGINE_ACCESS: lambda _: "engineAccess: true",
    Field.HOST_PORTS: lambda privilege: (
        f"hostPorts: [{{min: {privilege.value.partition('/')[0]}"
        f"{f', hostIPs: [{privilege.detail!r}]' if privilege.detail else ''}}}]"
    ),
    Field.RUN_AS_ROOT: lambda _: "runAsRoot: true",
    Field.SECURITY_OPT: lambda privilege: f"securityOpt: [{_short_option(privilege.value)}]",
    Field.SYSCTLS: lambda privilege: f"sysctls: [{privilege.value}]",
    Field.LOG_DRIVERS: lambda privilege: f"logDrivers: [{privilege.value}]",
    Field.HOST_CONFIG: lambda privilege: f"hostConfig: [{privilege.value}]",
}
"""The line of the policy that allows a privilege."""


def _short_option(option: str) -> str:
    """A security option, or its name alone where its value is a whole seccomp profile."""
    return option if len(option) <= 60 and "{" not in option else option.partition("=")[0]


def _hint(policy: Policy, privilege: Privilege) -> str:
    if privilege.field is Field.HOST_NAMESPACES and privilege.detail != "host":
        return f"remove it, or {_in_guard(policy, 'the workload with podSecurity: privileged', within='spec.policy.exceptions')}"
    return f"remove it, or {_in_guard(policy, printable(_ALLOW[privilege.field](privilege)))}"


def _in_guard(
    policy: Policy, line: str, within: str = "spec.policy.allow, or to an exception for the workload,"
) -> str:
    return f"add {line} to {within} in {policy.guard or 'a Guard (none is declared)'}"


# --- images, providers, names ---------------------------------------------------------------------------------------------------


def _of_images(policy: Policy, declared: Declared, spec: PodSpec) -> Iterator[Violation]:
    for index, container in enumerate(spec.containers if policy.images.judges else ()):
        if container.image is None:
            continue
        path = (*_SPEC, "containers", index, "image")
        for breach in policy.images.breaches(parse_image(container.image)):
            message = f"{declared.key}: container '{container.name}': image {printable(container.image)} {breach}"
            within = f"change spec.policy.images of {policy.guard or 'the Guard'}"
            yield Violation(declared, path, message, f"name an image that the policy allows, or {within}")


def _of_providers(policy: Policy, types: frozenset[str], scope: Scope) -> Iterator[Violation]:
    for declared in scope.all("Provider"):
        manifest = declared.manifest
        if isinstance(manifest, kinds.Provider) and manifest.spec.type not in types:
            message = f"{declared.key}: the policy does not allow providers of type '{printable(manifest.spec.type)}'"
            hint = f"remove it, or {_in_guard(policy, 'the type', within='spec.policy.providerTypes')}"
            yield Violation(declared, ("spec", "type"), message, hint)


def _of_names(policy: Policy, scope: Scope, value: desired.Desired) -> Iterator[Violation]:
    for kind, objects in (("DNSPolicy", value.policies), ("Record", value.records)):
        of_kind = {declared.key: declared for declared in scope.all(kind)}
        for item in objects:
            if item.key in of_kind:
                yield from _zone(policy, of_kind[item.key], item.zone)
                yield from _name(policy, of_kind[item.key], item.host, ("spec", "host"))
    lists = {declared.key: declared for declared in scope.all("RecordList")}
    for listed in value.record_lists:
        declared = lists.get(listed.key)
        if declared is None or not isinstance(declared.manifest, kinds.RecordList):
            continue
        yield from _zone(policy, declared, listed.zone)
        names = declared.manifest.spec.names
        for name in sorted({key[0] for key in listed.sets}):
            if not policy.names.allows_name(name):
                yield from _name(policy, declared, name, ("spec", "names", written(names, name)))


def _zone(policy: Policy, declared: Declared, zone: str) -> Iterator[Violation]:
    if not policy.names.allows_zone(zone):
        message = f"{declared.key}: the policy does not allow changes of zone {zone.removesuffix('.')}"
        hint = f"use another zone, or {_in_guard(policy, 'it', within='spec.policy.dns.zones')}"
        yield Violation(declared, ("spec", "zone"), message, hint)


def _name(policy: Policy, declared: Declared, name: str, path: Path) -> Iterator[Violation]:
    if not policy.names.allows_name(name):
        message = f"{declared.key}: the policy does not allow the name {name.removesuffix('.')}"
        hint = f"use another name, or {_in_guard(policy, 'it', within='spec.policy.dns.names')}"
        yield Violation(declared, path, message, hint)
