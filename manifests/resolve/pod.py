"""From a checked pod template to `desired.Template`, and whether the runtimes of its nodes support it. Called by `workload.py`.

The containers of a pod share one network namespace, so the main container has the ports of all of them.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from manifests import kinds
from manifests.kinds.pod import Container, ContainerPort, PodSpec
from manifests.kinds.validate import Declared, Path
from manifests.problems import Code
from manifests.resolve.probe import all_ports, probe
from manifests.resolve.references import Scope
from manifests.resolve.repository_files import NO_FILES, RepositoryFiles, variables_of
from manifests.resolve.template_revision import HASH_VERSION, template_revision
from manifests.values import desired, pod
from manifests.values.desired import SECOND

Support = tuple[frozenset[str], frozenset[str]]
"""The fields that a runtime type supports beyond the common ones (see `pod.ENGINE_FIELDS`), and those that it requires."""

TemplateSupport = Callable[[str], Support | None]
"""The support of a provider type; None for a type that does not say: then no field is refused."""

_SPEC: Path = ("spec", "template", "spec")
_CONTAINER: Path = (*_SPEC, "containers", 0)


def template(
    declared: Declared, scope: Scope, manifest: kinds.Workload, files: RepositoryFiles = NO_FILES
) -> desired.Template:
    """The template of a workload, with the ports of its probes looked up, and what it gets from files of the repository."""
    given = manifest.spec.template
    spec = given.spec
    main = spec.containers[0]
    return desired.Template(
        labels=tuple(sorted(given.metadata.labels.items())),
        container=replace(
            _container(main, spec, files),
            ports=tuple(_port(port) for port in all_ports(spec)),
            startup=probe(declared, scope, spec, main.startup_probe, (*_CONTAINER, "startupProbe")),
            liveness=probe(declared, scope, spec, main.liveness_probe, (*_CONTAINER, "livenessProbe")),
            readiness=probe(declared, scope, spec, main.readiness_probe, (*_CONTAINER, "readinessProbe")),
        ),
        grace=spec.termination_grace_period_seconds * SECOND,
        revision=template_revision(given, files),
        hash_version=HASH_VERSION,
        sidecars=tuple(_container(container, spec, files) for container in spec.start_order()[1:]),
        networks=spec.networks,
        live=tuple(sorted(_live(container, index, manifest) for index, container in enumerate(spec.containers))),
        volumes=tuple(volume for _, volume in sorted(files.volumes.items())),
    )


def _port(port: ContainerPort) -> desired.Port:
    return desired.Port(port.name or "", port.container_port, port.host_port or 0, port.host_ip or "", port.protocol)


def _live(container: Container, index: int, manifest: kinds.Workload) -> pod.Live:
    """The settings that change in place. The engine restarts only the main container: the others need its new network."""
    limits = container.resources.limits
    restart = manifest.spec.runtime_restart if index == 0 else pod.RuntimeRestart.NO.value
    return pod.Live(container.name if index else "", limits.cpu or 0, limits.memory or 0, restart)


def _container(container: Container, spec: PodSpec, files: RepositoryFiles) -> desired.Container:
    command, from_files = container.command or (), variables_of(files, container)
    return desired.Container(
        name=container.name,
        argv=(*command, *container.args) if command else (),
        env=(
            *from_files.variables,
            *((variable.name, variable.value) for variable in container.env if variable.value is not None),
        ),
        working_dir=container.working_dir,
        engine=_engine(container, spec),
        depends_on=container.depends_on,
    )


def _engine(container: Container, spec: PodSpec) -> pod.Engine:
    security = container.security_context
    user = "" if security.run_as_user is None else str(security.run_as_user)
    logging = container.logging
    docker = container.docker
    return pod.Engine(
        image=container.image or "",
        pull=pod.PullPolicy(container.image_pull_policy),
        args=() if container.command else container.args,
        secret_env=tuple(
            (variable.name, variable.value_from.secret.source()) for variable in container.env if variable.value_from
        ),
        mounts=tuple(_mounts(container, spec)),
        user=user if security.run_as_group is None else f"{user}:{security.run_as_group}",
        cap_add=security.capabilities.add,
        cap_drop=security.capabilities.drop,
        read_only_root=security.read_only_root_filesystem,
        ulimits=tuple(pod.Ulimit(ulimit.name, ulimit.soft, ulimit.hard) for ulimit in container.ulimits),
        init=container.init,
        stop_signal=container.stop_signal or "",
        log_driver=logging.driver if logging else "",
        log_options=tuple(sorted(logging.options.items())) if logging else (),
        host_config=json.dumps(docker.host_config, sort_keys=True) if docker else "",
        no_new_privileges=not security.allow_privilege_escalation,
        run_as_non_root=security.run_as_non_root,
    )


def _mounts(container: Container, spec: PodSpec) -> Iterator[pod.Mount]:
    volumes = {volume.name: volume for volume in spec.volumes}
    for mount in container.volume_mounts:
        volume = volumes[mount.name]
        target, exclusive = (mount.mount_path, mount.read_only), volume.access_mode == "ReadWriteOncePod"
        if volume.named is not None:
            yield pod.Mount(pod.VolumeKind.NAMED, volume.named, *target, exclusive=exclusive)
        elif volume.host_path is not None:
            yield pod.Mount(pod.VolumeKind.BIND, volume.host_path.path, *target, exclusive=exclusive)
        elif volume.tmpfs is not None:
            size = volume.tmpfs.size_limit or 0
            yield pod.Mount(pod.VolumeKind.TMPFS, "", mount.mount_path, mount.read_only, size)
        elif volume.files is not None:
            yield pod.Mount(pod.VolumeKind.FILES, volume.name, mount.mount_path, read_only=True)


# --- fields that the runtime supports -----------------------------------------------------------------------------------


def check_support(
    declared: Declared, scope: Scope, manifest: kinds.Workload, nodes: Sequence[str], support: TemplateSupport
) -> None:
    """Report the fields that a node's runtime does not support, and missing fields that it requires."""
    seen = {""}
    for node in nodes:
        kind = scope.types.get(node, "")
        if kind in seen:
            continue  # what a type does not support is reported once
        seen.add(kind)
        fields = support(kind)
        if fields is None:
            continue
        supports, requires = fields
        for field, path in _special_fields(manifest):
            if field not in supports:
                message = f"{declared.key}: runtimes of type '{kind}' do not support '{field}'"
                hint = f"remove it, or run the workload on a node other than '{node}'"
                scope.report(declared, path, Code.UNSUPPORTED_FIELD, message, hint)
        for index, container in enumerate(manifest.spec.template.spec.containers):
            for field in sorted(requires):
                if not getattr(container, field):
                    message = f"{declared.key}: runtimes of type '{kind}' need the field '{field}'"
                    path = (*_SPEC, "containers", index)
                    scope.report(declared, path, Code.MISSING_FIELD, message, f"add {field} to the container")
    if manifest.spec.replicas > len(nodes):
        _check_host_ports(declared, scope, manifest, nodes)
        _check_volumes(declared, scope, manifest, nodes)


def _special_fields(manifest: kinds.Workload) -> Iterator[tuple[str, Path]]:
    """The given fields of a workload that not every runtime supports, with their paths."""
    if "runtime_restart" in manifest.spec.model_fields_set:
        yield "runtimeRestart", ("spec", "runtimeRestart")
    if manifest.spec.adopt is not None:
        yield "adopt", ("spec", "adopt")
    spec = manifest.spec.template.spec
    for field in ("networks", "volumes"):
        if getattr(spec, field):
            yield field, (*_SPEC, field)
    if len(spec.containers) > 1:
        yield "containers", (*_SPEC, "containers", 1)
    for index, container in enumerate(spec.containers):
        yield from _of_container(container, (*_SPEC, "containers", index))


_OF_CONTAINER = {
    "image": "image", "image_pull_policy": "imagePullPolicy", "volume_mounts": "volumeMounts", "resources": "resources",
    "security_context": "securityContext", "ulimits": "ulimits", "init": "init", "stop_signal": "stopSignal",
    "logging": "logging", "depends_on": "dependsOn", "docker": "docker",
}  # fmt: skip


def _of_container(container: Container, path: Path) -> Iterator[tuple[str, Path]]:
    written = container.model_fields_set
    for name, field in _OF_CONTAINER.items():
        if name in written:
            yield field, (*path, field)
    if container.working_dir != ".":
        kind = "workingDir (absolute)" if container.working_dir.startswith("/") else pod.RELATIVE_WORKING_DIR
        yield kind, (*path, "workingDir")
    for name in ("startup_probe", "liveness_probe", "readiness_probe"):
        probe = getattr(container, name)
        if probe is not None and probe.runtime_health is not None:
            field = Container.model_fields[name].alias or name
            yield "probes.runtimeHealth", (*path, field, "runtimeHealth")
    for index, variable in enumerate(container.env):
        if variable.value_from is not None:
            yield "env.valueFrom", (*path, "env", index, "valueFrom")
    for index, port in enumerate(container.ports):
        for name, field in (("host_port", "hostPort"), ("host_ip", "hostIP"), ("protocol", "protocol")):
            if name in port.model_fields_set and (name != "protocol" or port.protocol != "TCP"):
                yield f"ports.{field}", (*path, "ports", index, field)


def _check_host_ports(declared: Declared, scope: Scope, manifest: kinds.Workload, nodes: Sequence[str]) -> None:
    """A port of a node can be published by one replica only."""
    for index, container in enumerate(manifest.spec.template.spec.containers):
        for place, port in enumerate(container.ports):
            if port.host_port is not None:
                message = (
                    f"{declared.key}: {manifest.spec.replicas} replicas on {len(nodes)} node(s) cannot all publish port "
                    f"{port.host_port}"
                )
                path = (*_SPEC, "containers", index, "ports", place, "hostPort")
                hint = "remove hostPort and put the replicas behind a balancer, or run one replica per node"
                scope.report(declared, path, Code.CONFLICT, message, hint)


def _check_volumes(declared: Declared, scope: Scope, manifest: kinds.Workload, nodes: Sequence[str]) -> None:
    """An exclusive volume can be mounted by one replica of a node only."""
    for index, volume in enumerate(manifest.spec.template.spec.volumes):
        if volume.access_mode == "ReadWriteOncePod":
            many = f"{manifest.spec.replicas} replicas on {len(nodes)} node(s)"
            message = (
                f"{declared.key}: {many} cannot each have volume '{volume.name}' with accessMode: ReadWriteOncePod"
            )
            hint = "run one replica per node, or remove accessMode if they can share it"
            scope.report(declared, (*_SPEC, "volumes", index, "accessMode"), Code.CONFLICT, message, hint)
