"""From the engine's JSON, an inspection or an entry of its list, to an `EngineContainer`. No I/O but /proc.

Called by `observe.py`. `digest.py` reads what an image says of its containers with it; `lifecycle.py` writes restart policies.
"""

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from providers.facts import LABEL_INSTANCE, ContainerState, MountFact, Setup, fingerprint
from providers.runtime.docker.container import NO_LIMIT, STATES, EngineContainer
from providers.runtime.docker.health import read_healer, read_health
from providers.runtime.docker.ports import host_network_bindings, read_bindings
from providers.runtime.docker.timestamps import parse_timestamp, running_since

_ANONYMOUS_VOLUME = re.compile(r"[0-9a-f]{64}")
"""Names that engines give to volumes without a name: they come from the image and are removed with the container."""


def read_container(inspection: Mapping[str, Any], on_failure: str = "") -> EngineContainer:
    """The container of an inspection. Raises KeyError, TypeError, ValueError, AttributeError, IndexError.

    Args:
        inspection: the engine's answer.
        on_failure: what Podman does when the health check fails; only Podman's own API says it.
    """
    state, config, host = inspection["State"], inspection["Config"], inspection.get("HostConfig") or {}
    started = parse_timestamp(state.get("StartedAt") or "")
    pid = int(state.get("Pid") or 0)
    networks = (inspection.get("NetworkSettings") or {}).get("Networks") or {}
    period, quota = int(host.get("CpuPeriod") or 0), int(host.get("CpuQuota") or 0)
    cpu = quota * 1000 // period if period > 0 and quota > 0 else int(host.get("NanoCpus") or 0) // 1_000_000
    exposed = config.get("ExposedPorts") or {}
    status = str(state.get("Status") or "")
    up = STATES.get(status) in (ContainerState.RUNNING, ContainerState.PAUSED)
    in_host_network = host.get("NetworkMode") == "host" and up
    return EngineContainer(
        id=str(inspection["Id"]),
        name=str(inspection["Name"]).removeprefix("/"),
        labels=_labels(config.get("Labels")),
        status=status,
        started_at=started,
        finished_at=parse_timestamp(state.get("FinishedAt") or ""),
        running_since=running_since(pid, started) if up else 0,
        exit_code=int(state.get("ExitCode") or 0),
        pid=pid,
        network_mode=str(host.get("NetworkMode") or ""),
        addresses=read_addresses(networks),
        ports=tuple(sorted({int(port.partition("/")[0]) for port in exposed if port.partition("/")[0].isdecimal()})),
        restart=_policy(host.get("RestartPolicy") or {}),
        cpu=max(0, cpu),
        memory=_limit(int(host.get("Memory") or 0)),
        stop_timeout=int(config.get("StopTimeout") or 10),
        restarts=max(0, int(inspection.get("RestartCount") or 0)),
        oom_killed=bool(state.get("OOMKilled")),
        health=read_health(inspection, started) if up else None,
        healer=read_healer(config.get("Labels") or {}, on_failure),
        image=str(config.get("Image") or ""),
        image_id=_image_id(str(inspection.get("Image") or "")),
        setup=None if LABEL_INSTANCE in (config.get("Labels") or {}) else read_setup(inspection),
        connected=connected_networks(networks),
        bindings=read_bindings(inspection) or (host_network_bindings(exposed) if in_host_network else ()),
    )


def listed_container(entry: Mapping[str, Any]) -> EngineContainer:
    """What the list alone says about a container that cannot be inspected. Raises KeyError, TypeError, IndexError."""
    names = [str(name).removeprefix("/") for name in entry["Names"]]
    return EngineContainer(
        id=str(entry["Id"]),
        # Further names come from links and have another container's name before a slash.
        name=next((name for name in names if "/" not in name), names[0]),
        labels=_labels(entry.get("Labels")),
        status=str(entry.get("State") or "").lower(),
        started_at=0,
        finished_at=0,
        running_since=0,
        exit_code=0,
        pid=0,
        network_mode=str((entry.get("HostConfig") or {}).get("NetworkMode") or ""),
        addresses={},
        ports=(),
        restart="no",
        cpu=0,
        memory=0,
        stop_timeout=10,
        healer=read_healer(entry.get("Labels") or {}, ""),
        image=str(entry.get("Image") or ""),
    )


def _labels(raw: Any) -> Mapping[str, str]:
    """The labels of an answer. Raises TypeError when they are not texts by name."""
    labels: Mapping[str, str] = raw or {}
    if not isinstance(labels, Mapping) or not all(isinstance(value, str) for value in labels.values()):
        raise TypeError("its labels are not texts")
    return labels


def read_addresses(networks: Mapping[str, Any]) -> dict[str, str]:
    """The address on each network; networks without one are left out."""
    return {
        name: str(address)
        for name, network in networks.items()
        if (address := network.get("IPAddress") or network.get("GlobalIPv6Address") or "")
    }


def connected_networks(networks: Mapping[str, Any]) -> tuple[str, ...]:
    """The names and ids of the networks that the container is connected to."""
    ids = {str((network or {}).get("NetworkID") or "") for network in networks.values()}
    return tuple(sorted({*networks, *ids} - {""}))


def _image_id(text: str) -> str:
    """An image's id with its algorithm, which Podman leaves out."""
    return f"sha256:{text}" if len(text) == 64 else text


def _policy(policy: Mapping[str, Any]) -> str:
    name, tries = str(policy.get("Name") or "no"), int(policy.get("MaximumRetryCount") or 0)
    return f"{name}:{tries}" if name == "on-failure" and tries > 0 else name


def policy_body(text: str) -> dict[str, object]:
    """A restart policy, as `EngineContainer.restart` spells it, in the engine's JSON."""
    name, _, tries = text.partition(":")
    return {"Name": name or "no", "MaximumRetryCount": int(tries) if tries.isdecimal() else 0}


def _limit(memory: int) -> int:
    return memory if 0 < memory < NO_LIMIT else 0


# --- setup: what an adoption compares with a template ---------------------------------------------------------------


def read_setup(inspection: Mapping[str, Any]) -> Setup:
    """How a container was created, or what an image gives to its containers. Raises AttributeError, TypeError, ValueError.

    The inspection of a container merges both; only the image's own shows what was set explicitly. Values of variables may be
    secrets: only their fingerprints leave this function.
    """
    config = inspection.get("Config") or {}
    mounts = {
        mount.target: mount
        for mount in map(_mount, inspection.get("Mounts") or ())
        if not _ANONYMOUS_VOLUME.fullmatch(mount.source)
    }
    for tmpfs in (inspection.get("HostConfig") or {}).get("Tmpfs") or {}:
        target = posixpath.normpath(str(tmpfs))
        mounts.setdefault(target, MountFact(target, "", False))
    return Setup(
        _command(config.get("Entrypoint")),
        _command(config.get("Cmd")),
        tuple(sorted(_variable(str(variable)) for variable in config.get("Env") or ())),
        str(config.get("User") or ""),
        tuple(mounts[target] for target in sorted(mounts)),
    )


def _command(value: object) -> tuple[str, ...]:
    """A command: a list, or a single string in older versions of Podman."""
    if isinstance(value, str):
        return (value,) if value else ()
    return tuple(str(argument) for argument in value) if isinstance(value, list) else ()


def _variable(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, fingerprint(value)


def _mount(mount: Mapping[str, Any]) -> MountFact:
    kind = str(mount.get("Type") or "")
    source = str(mount.get("Name") or "") if kind == "volume" else str(mount.get("Source") or "")
    if kind == "bind":
        source = posixpath.normpath(source)
    target = posixpath.normpath(str(mount.get("Destination") or ""))
    return MountFact(target, "" if kind == "tmpfs" else source, mount.get("RW") is False)
