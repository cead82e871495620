"""From a template to the requests that create its containers. Pure: no I/O, reads no secrets. Called by `create.py`."""

import json
from typing import Any

from manifests.values.desired import Container, ProbeKind, Template
from manifests.values.image_ref import parse_image
from manifests.values.pod import Live, Mount, VolumeKind, managed_member
from providers.actions import CreateContainer
from providers.errors import Rejected
from providers.facts import Mark, mark_labels
from providers.runtime.docker.container import (
    LABEL_CONTAINER,
    LABEL_FILES,
    LABEL_IMAGE,
    LABEL_MEMBERS,
    LABEL_NETWORKS,
    NO_LIMIT,
)

SECOND = 1_000_000_000

PERIOD = 100_000
"""CPU accounting period in µs: the kernel's default, and Kubernetes'."""


def members_of(template: Template) -> tuple[Container, ...]:
    """All containers of a pod, the main one first."""
    return (template.container, *template.sidecars)


def full_image(target: str, container: Container) -> str:
    """The full name of a container's image. Raises Rejected."""
    if not container.engine.image:
        raise Rejected(target, f"container {container.name} has no image", "set the image of the container")
    try:
        return str(parse_image(container.engine.image))
    except ValueError as error:
        raise Rejected(target, f"image {container.engine.image!r}: {error}", "correct the image") from None


def primary_network(template: Template, podman: bool) -> str:
    """The network mode of the main container."""
    return template.networks[0] if template.networks else ("podman" if podman else "bridge")


def limits(live: Live) -> dict[str, int]:
    """The limits of one container as members of HostConfig, without swap.

    A missing limit is written too, because it removes an existing one: -1 for CPU time; for memory, where the engine does not
    accept -1, more than any machine has.
    """
    return {
        "CpuPeriod": PERIOD if live.cpu else 0,
        "CpuQuota": live.cpu * PERIOD // 1000 if live.cpu else -1,
        "Memory": live.memory or NO_LIMIT,
        "MemorySwap": live.memory or NO_LIMIT,
    }


def payload(
    container: Container,
    template: Template,
    mark: Mark,
    secrets: dict[str, str],
    network: str,
    *,
    podman: bool,
) -> dict[str, Any]:
    """The body of the request that creates one container of a pod.

    Args:
        container: the main container, or a sidecar.
        template: the pod's template.
        mark: the replica's mark.
        secrets: values of the container's secret variables, by name.
        network: the main container's network, or `container:ID` for a sidecar.
        podman: the engine is Podman, where no restart policy is set.

    Raises:
        Rejected: docker.hostConfig is no mapping, or sets a member that has a field of its own.
    """
    engine = container.engine
    main = container is template.container
    live = next((live for live in template.live if live.container == ("" if main else container.name)), None)
    labels = {
        **(dict(template.labels) if main else {}),
        **mark_labels(mark, template.hash_version),
        # Always set, also when empty: labels are inherited from the image, and the image may be committed from a member.
        LABEL_CONTAINER: "" if main else container.name,
        LABEL_MEMBERS: ",".join(sidecar.name for sidecar in template.sidecars) if main else "",
        LABEL_NETWORKS: ",".join(template.networks[1:]) if main else "",
        LABEL_IMAGE: engine.image,
        LABEL_FILES: ",".join(f"{volume.name}={volume.digest}" for volume in template.volumes) if main else "",
    }
    body: dict[str, Any] = {
        "Image": full_image(mark.workload, container),
        "Env": [f"{name}={value}" for name, value in (*container.env, *sorted(secrets.items()))],
        "Labels": labels,
        "HostConfig": _host_config(container, live, network, main=main, podman=podman),
        "StopTimeout": max(1, -(-template.grace // SECOND)),
    }
    if not reads_runtime_health(container):
        # There is one health decision: the result of the image's own check would not be read.
        body["Healthcheck"] = {"Test": ["NONE"]}
    if container.argv:
        body["Entrypoint"], body["Cmd"] = list(container.argv), []
    elif engine.args:
        body["Cmd"] = list(engine.args)
    if container.working_dir != ".":
        body["WorkingDir"] = container.working_dir
    if engine.user:
        body["User"] = engine.user
    if engine.stop_signal:
        body["StopSignal"] = engine.stop_signal
    if main:
        body["ExposedPorts"] = {_port(port.number, port.protocol): {} for port in container.ports}
        body["NetworkingConfig"] = {"EndpointsConfig": {network: {}}}
    return body


def add_action_fields(body: dict[str, Any], action: CreateContainer, image: str) -> None:
    """Add to a request what is not in the template: the name of the image on this node, and the action's variables and mounts."""
    body["Image"] = image
    body["Env"] += [f"{name}={value}" for name, value in action.extra_env]
    if action.extra_mounts:
        host = body["HostConfig"]
        host["Mounts"] = [*(host.get("Mounts") or ()), *(_mount(mount) for mount in action.extra_mounts)]


def reads_runtime_health(container: Container) -> bool:
    """Whether a probe of a container reads the engine's own health check: then the image's check stays on."""
    probes = (container.startup, container.liveness, container.readiness)
    return any(probe is not None and probe.kind is ProbeKind.RUNTIME for probe in probes)


def _port(number: int, protocol: str) -> str:
    return f"{number}/{protocol.lower()}"


def _host_config(container: Container, live: Live | None, network: str, *, main: bool, podman: bool) -> dict[str, Any]:
    engine = container.engine
    policy = live.restart if live is not None and main and not podman else "no"
    host: dict[str, Any] = {"NetworkMode": network, "RestartPolicy": {"Name": policy}}
    if live is not None:
        host.update({key: value for key, value in limits(live).items() if 0 < value < NO_LIMIT})
    if main:
        bindings: dict[str, list[dict[str, str]]] = {}
        for port in container.ports:
            if port.host_port:
                binding = {"HostIp": port.host_ip, "HostPort": str(port.host_port)}
                bindings.setdefault(_port(port.number, port.protocol), []).append(binding)
        host["PortBindings"] = bindings
    if mounts := [_mount(mount) for mount in engine.mounts if not mount.relabel]:
        host["Mounts"] = mounts
    if relabelled := [f"{mount.source}:{mount.target}:ro,z" for mount in engine.mounts if mount.relabel]:
        host["Binds"] = relabelled  # only this form can ask for the label of SELinux
    optional: dict[str, Any] = {
        "CapAdd": list(engine.cap_add),
        "CapDrop": list(engine.cap_drop),
        "ReadonlyRootfs": engine.read_only_root,
        "Ulimits": [{"Name": ulimit.name, "Soft": ulimit.soft, "Hard": ulimit.hard} for ulimit in engine.ulimits],
        "Init": engine.init,
    }
    host.update({key: value for key, value in optional.items() if value})
    if engine.log_driver:
        host["LogConfig"] = {"Type": engine.log_driver, "Config": dict(engine.log_options)}
    host.update(_manifest_host_config(container))
    if engine.no_new_privileges:
        _forbid_escalation(host)
    return host


def _forbid_escalation(host: dict[str, Any]) -> None:
    """Add the security option after those of the manifest, under each spelling of the member: the last option counts."""
    for name in [name for name in host if name.casefold() == "securityopt"] or ["SecurityOpt"]:
        given = host.get(name) or ()
        host[name] = [*((given,) if isinstance(given, str) else given), "no-new-privileges"]


def _manifest_host_config(container: Container) -> dict[str, Any]:
    """The members of HostConfig from docker.hostConfig in the manifest."""
    text = container.engine.host_config
    if not text:
        return {}
    host_config = json.loads(text)
    if not isinstance(host_config, dict):
        raise Rejected(container.name, "docker.hostConfig is not a mapping", "correct the manifest")
    refused = sorted(filter(None, map(managed_member, host_config)))
    if refused:
        cause = f"docker.hostConfig must not set {', '.join(refused)}"
        raise Rejected(container.name, cause, "use the field of the manifest for it")
    return host_config


def _mount(mount: Mount) -> dict[str, Any]:
    body: dict[str, Any] = {"Target": mount.target, "ReadOnly": mount.read_only}
    if mount.kind is VolumeKind.TMPFS:
        size = {"TmpfsOptions": {"SizeBytes": mount.size}} if mount.size else {}
        return {**body, "Type": "tmpfs", **size}
    if mount.kind is VolumeKind.BIND:
        return {**body, "Type": "bind", "Source": mount.source}
    return {**body, "Type": "volume", "Source": mount.source}
