"""The checks of `reconcile doctor` on an engine: its problems, and what manifests need and the node lacks. Reads only."""

import os
from collections.abc import Sequence

from manifests.values.desired import Template
from manifests.values.pod import PullPolicy, VolumeKind
from providers.errors import ProviderError
from providers.runtime.docker import podman
from providers.runtime.docker.client import EngineClient
from providers.runtime.docker.observe import Observer
from providers.runtime.docker.pull import Images
from providers.runtime.docker.spec import full_image, members_of

OLDEST_API = (1, 40)
"""Docker 19.03: the first that accepts what `spec.py` writes (Mounts with options, capabilities as lists)."""


def problems_of(
    client: EngineClient, observer: Observer, images: Images, templates: Sequence[Template]
) -> tuple[str, ...]:
    """All problems as messages, the engine's first."""
    try:
        return tuple(dict.fromkeys([*_engine(client, observer, templates), *_missing(client, images, templates)]))
    except ProviderError as error:
        return (str(error),)


def _engine(client: EngineClient, observer: Observer, templates: Sequence[Template]) -> list[str]:
    problems: list[str] = []
    version = str(client.version().get("ApiVersion") or "0.0")
    parts = tuple(int(part) for part in version.split(".") if part.isdecimal())
    if parts < OLDEST_API:
        oldest = ".".join(map(str, OLDEST_API))
        problems.append(
            f"{client.node}: the engine has API {version}, at least {oldest} is required; upgrade the engine"
        )
    info = client.get("/info", client.node)
    limited = any(live.memory or live.cpu for template in templates for live in template.live)
    if limited and not info.get("MemoryLimit", True):
        problems.append(f"{client.node}: the kernel does not limit memory; boot with cgroup_enable=memory")
    if limited and not info.get("CpuCfsQuota", info.get("CPUCfsQuota", True)):
        problems.append(f"{client.node}: the kernel does not limit CPU time; use a kernel with CONFIG_CFS_BANDWIDTH")
    if info.get("OperatingSystem") and str(info.get("OSType") or "linux") != "linux":
        problems.append(f"{client.node}: the engine runs {info['OSType']} containers, only Linux is supported")
    if observer.podman():
        # Older versions have no such field, and newer ones no such option.
        rootless = info.get("Rootless") or any(
            "rootless" in str(option) for option in info.get("SecurityOptions") or ()
        )
        if rootless:
            problems.append(
                f"{client.node}: Podman runs rootless, so addresses of its containers are unreachable; run Podman as root"
            )
        problems += podman.problems(podman.settings(observer.daemon().pid), client.node, templates)
    return problems


def warnings_of(client: EngineClient, observer: Observer, templates: Sequence[Template]) -> tuple[str, ...]:
    """What works, but costs more than it seems. Raises ProviderError."""
    if not observer.podman():
        return ()
    return tuple(podman.warnings(podman.settings(observer.daemon().pid), client.node, templates))


def _missing(client: EngineClient, images: Images, templates: Sequence[Template]) -> list[str]:
    """What a creation does not provide itself, unlike networks and named volumes: images that are never pulled, bind sources."""
    problems: list[str] = []
    for template in templates:
        for container in members_of(template):
            if container.engine.pull is PullPolicy.NEVER and not images.present(full_image(client.node, container)):
                problems.append(
                    f"{client.node}: image {container.engine.image} is missing, and imagePullPolicy is Never; load it on the node"
                )
            for mount in container.engine.mounts:
                if mount.kind is VolumeKind.BIND and not os.path.exists(mount.source):
                    problems.append(
                        f"{client.node}: {mount.source} does not exist, but container {container.name} mounts it; create it"
                    )
    return problems
