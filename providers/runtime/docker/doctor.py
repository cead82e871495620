"""The doctor's questions to an engine: what is wrong with it, and what manifests need that is not there. Reads only."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from manifests.values.desired import Template
from manifests.values.pod import PullPolicy, VolumeKind
from providers.errors import ProviderError
from providers.runtime.docker.client import Link
from providers.runtime.docker.spec import full_image, members_of

if TYPE_CHECKING:
    from providers.runtime.docker.observe import Looks
    from providers.runtime.docker.pull import Images

OLDEST_API = (1, 40)
"""Docker 19.03: the first whose containers take what `docker_spec.py` writes (Mounts with options, capabilities as lists)."""


def problems_of(link: Link, looks: "Looks", images: "Images", templates: Sequence[Template]) -> tuple[str, ...]:
    """Everything that is wrong, as sentences for people, the engine's problems first."""
    try:
        return tuple(dict.fromkeys([*_engine(link, looks, templates), *_missing(link, images, templates)]))
    except ProviderError as error:
        return (str(error),)


def _engine(link: Link, looks: "Looks", templates: Sequence[Template]) -> list[str]:
    found: list[str] = []
    version = str(link.version().get("ApiVersion") or "0.0")
    parts = tuple(int(part) for part in version.split(".") if part.isdecimal())
    if parts < OLDEST_API:
        oldest = ".".join(map(str, OLDEST_API))
        found.append(f"{link.node}: the engine speaks API {version}, at least {oldest} is needed; upgrade it")
    info = link.get("/info", link.node)
    limited = any(one.memory or one.cpu for template in templates for one in template.live)
    if limited and not info.get("MemoryLimit", True):
        found.append(f"{link.node}: the kernel does not limit memory: boot with cgroup_enable=memory")
    if limited and not info.get("CpuCfsQuota", info.get("CPUCfsQuota", True)):
        found.append(f"{link.node}: the kernel does not limit CPU time: it lacks CONFIG_CFS_BANDWIDTH")
    if info.get("OperatingSystem") and str(info.get("OSType") or "linux") != "linux":
        found.append(f"{link.node}: the engine runs {info['OSType']} containers, only Linux is supported")
    if looks.podman() and any("rootless" in str(one) for one in info.get("SecurityOptions") or ()):
        found.append(f"{link.node}: Podman runs rootless, so addresses of its containers cannot be reached from here")
    return found


def _missing(link: Link, images: "Images", templates: Sequence[Template]) -> list[str]:
    """What no creation makes by itself: networks and named volumes are made when they are needed."""
    found: list[str] = []
    for template in templates:
        for container in members_of(template):
            if container.engine.pull is PullPolicy.NEVER and not images.present(full_image(link.node, container)):
                found.append(f"{link.node}: image {container.engine.image} is not there and may not be pulled; load it")
            for mount in container.engine.mounts:
                if mount.kind is VolumeKind.BIND and not os.path.exists(mount.source):
                    found.append(
                        f"{link.node}: {mount.source} does not exist, and container {container.name} mounts it"
                    )
    return found
