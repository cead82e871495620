"""From the engine's words about one container, its inspection or its entry in the list, to a `Life`. No I/O but /proc.

Called by `docker_look.py`; `docker_act.py` writes the restart policy back in the same words.
"""

from collections.abc import Mapping
from typing import Any

from providers.facts import LABEL_INSTANCE, ContainerState
from providers.runtime.docker.health import of_the_host, read_bindings, read_healer, read_health
from providers.runtime.docker.instants import parse_instant, running_since
from providers.runtime.docker.life import NO_LIMIT, STATES, Life
from providers.runtime.docker.networks import joined
from providers.runtime.docker.setup import read_setup


def read_life(found: Mapping[str, Any], on_failure: str = "") -> Life:
    """A container's inspection; `on_failure` is what Podman alone says: what it does when its health check fails."""
    state, config, host = found["State"], found["Config"], found.get("HostConfig") or {}
    started = parse_instant(state.get("StartedAt") or "")
    pid = int(state.get("Pid") or 0)
    networks = (found.get("NetworkSettings") or {}).get("Networks") or {}
    period, quota = int(host.get("CpuPeriod") or 0), int(host.get("CpuQuota") or 0)
    cpu = quota * 1000 // period if period > 0 and quota > 0 else int(host.get("NanoCpus") or 0) // 1_000_000
    exposed = config.get("ExposedPorts") or {}
    word = str(state.get("Status") or "")
    up = STATES.get(word) in (ContainerState.RUNNING, ContainerState.PAUSED)
    return Life(
        id=str(found["Id"]),
        name=str(found["Name"]).removeprefix("/"),
        labels=config.get("Labels") or {},
        word=word,
        started_at=started,
        finished_at=parse_instant(state.get("FinishedAt") or ""),
        since=running_since(pid, started) if up else 0,
        exit_code=int(state.get("ExitCode") or 0),
        pid=pid,
        network_mode=str(host.get("NetworkMode") or ""),
        addresses={
            name: address
            for name, one in networks.items()
            if (address := one.get("IPAddress") or one.get("GlobalIPv6Address") or "")
        },
        ports=tuple(sorted({int(port.partition("/")[0]) for port in exposed if port.partition("/")[0].isdecimal()})),
        restart=_policy(host.get("RestartPolicy") or {}),
        cpu=max(0, cpu),
        memory=_limit(int(host.get("Memory") or 0)),
        stop_timeout=int(config.get("StopTimeout") or 10),
        restarts=max(0, int(found.get("RestartCount") or 0)),
        oom_killed=bool(state.get("OOMKilled")),
        health=read_health(found, started) if up else None,
        healer=read_healer(config.get("Labels") or {}, on_failure),
        image=str(config.get("Image") or ""),
        image_id=_image_id(str(found.get("Image") or "")),
        setup=None if LABEL_INSTANCE in (config.get("Labels") or {}) else read_setup(found),
        joined=joined(networks),
        bindings=read_bindings(found) or (of_the_host(exposed) if host.get("NetworkMode") == "host" and up else ()),
    )


def listed_life(entry: Mapping[str, Any]) -> Life:
    """What a list alone tells about a container that cannot be inspected. Raises KeyError, TypeError, IndexError."""
    names = [str(name).removeprefix("/") for name in entry["Names"]]
    return Life(
        id=str(entry["Id"]),
        # Further names come from links and have another container's name before a slash.
        name=next((name for name in names if "/" not in name), names[0]),
        labels=entry.get("Labels") or {},
        word=str(entry.get("State") or "").lower(),
        started_at=0,
        finished_at=0,
        since=0,
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


def _image_id(text: str) -> str:
    """An image's id with its algorithm, which Podman leaves out."""
    return f"sha256:{text}" if len(text) == 64 else text


def _policy(found: Mapping[str, Any]) -> str:
    name, tries = str(found.get("Name") or "no"), int(found.get("MaximumRetryCount") or 0)
    return f"{name}:{tries}" if name == "on-failure" and tries > 0 else name


def policy_body(text: str) -> dict[str, object]:
    """A restart policy, as `Life.restart` spells it, in the engine's words."""
    name, _, tries = text.partition(":")
    return {"Name": name or "no", "MaximumRetryCount": int(tries) if tries.isdecimal() else 0}


def _limit(memory: int) -> int:
    return memory if 0 < memory < NO_LIMIT else 0
