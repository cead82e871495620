"""What an engine tells of a container beyond its life: its own health check, who else heals it, what the host publishes. Pure.

Called by `docker_life.py` when it reads an inspection.
"""

from collections.abc import Mapping
from typing import Any

from providers.facts import PortFact, ProbeValue, RuntimeHealth
from providers.runtime.docker.instants import SECOND, parse_instant, to_steady

MAX_OUTPUT = 4096
"""Characters kept of what the latest health check wrote: the length that Docker keeps itself (moby's `maxOutputLen`)."""

DEFAULT_INTERVAL = 30 * SECOND
"""Time between two health checks where none is given: Docker's default, and Podman's."""

_VALUES = {"healthy": ProbeValue.PASS, "unhealthy": ProbeValue.FAIL, "starting": ProbeValue.UNKNOWN}

_HEALERS = (
    ("com.docker.swarm.task.id", "Docker Swarm, as task {}"),
    ("io.kubernetes.pod.name", "the kubelet, as part of pod {}"),
    ("com.hashicorp.nomad.alloc_id", "Nomad, as allocation {}"),
    ("PODMAN_SYSTEMD_UNIT", "systemd, as unit {}"),
)
"""Labels that orchestrators put on the containers they run; `{}` is the label's value."""

_HEALER_SWITCHES = (
    ("autoheal", "autoheal"),
    ("deunhealth.restart.on.unhealthy", "deunhealth"),
)
"""Labels by which people ask a healer for help: with the value `true`."""


def read_health(found: Mapping[str, Any], started_at: int) -> RuntimeHealth | None:
    """The engine's health check of one container in an inspection; None where there is none.

    Args:
        found: the inspection.
        started_at: start of the container's present life (wall, ns). Engines keep the log of earlier ones, which says nothing.
    """
    health = found["State"].get("Health") or found["State"].get("Healthcheck") or {}
    value = _VALUES.get(str(health.get("Status") or "").lower())
    if value is None:
        return None
    check = (found.get("Config") or {}).get("Healthcheck") or {}
    log = health.get("Log") or ()
    last = log[-1] if log else {}
    ended = parse_instant(str(last.get("End") or ""))
    fresh = ended >= started_at > 0
    return RuntimeHealth(
        value=value,
        streak=max(0, int(health.get("FailingStreak") or 0)),
        last_at=to_steady(ended) if fresh else 0,
        interval=int(check.get("Interval") or 0) or DEFAULT_INTERVAL,
        output=str(last.get("Output") or "").strip()[:MAX_OUTPUT] if fresh else "",
    )


def read_healer(labels: Mapping[str, str], on_failure: str) -> str:
    """Who else restarts a container for its health, in words; empty for nobody.

    Args:
        labels: the container's labels.
        on_failure: what Podman does when its health check fails (`HealthcheckOnFailureAction`); empty elsewhere.
    """
    for label, words in _HEALERS:
        if labels.get(label):
            return words.format(labels[label])
    for label, name in _HEALER_SWITCHES:
        if labels.get(label, "").strip().lower() == "true":
            return f"{name}, by the label {label}"
    if on_failure not in ("", "none"):
        return f"Podman, which will {on_failure} it when its health check fails"
    return ""


def read_bindings(found: Mapping[str, Any]) -> tuple[tuple[int, str, int], ...]:
    """(container port, host address, host port) of every mapping that is in force, sorted. TCP goes before other protocols."""
    ports = (found.get("NetworkSettings") or {}).get("Ports") or {}
    seen: dict[str, set[tuple[int, str, int]]] = {}
    for port, bindings in ports.items():
        number, _, protocol = str(port).partition("/")
        for binding in bindings or ():
            host = str(binding.get("HostPort") or "")
            if number.isdecimal() and host.isdecimal() and int(host):
                seen.setdefault(protocol or "tcp", set()).add(
                    (int(number), str(binding.get("HostIp") or ""), int(host))
                )
    tcp = seen.pop("tcp", set())
    numbers = {one[0] for one in tcp}
    others = {one for found_there in seen.values() for one in found_there if one[0] not in numbers}
    return tuple(sorted(tcp | others))


def of_the_host(exposed: Mapping[str, Any]) -> tuple[tuple[int, str, int], ...]:
    """The mappings of a container that lives in the host's own network: each port is the host's."""
    numbers = {int(port.partition("/")[0]) for port in exposed if port.partition("/")[0].isdecimal()}
    return tuple((number, "", number) for number in sorted(numbers))


def published(bindings: tuple[tuple[int, str, int], ...], address: str) -> tuple[PortFact, ...]:
    """Where those mappings can be reached.

    Args:
        bindings: as `read_bindings` gives them.
        address: the host's address for others; empty = it has none, so what listens on all addresses is reached by loopback.
    """
    return tuple(
        dict.fromkeys(
            PortFact(number, where, port)
            for number, host, port in bindings
            if (where := _reached_at(host, address, alone=not _has_ipv4(bindings, number, port)))
        )
    )


def _has_ipv4(bindings: tuple[tuple[int, str, int], ...], number: int, port: int) -> bool:
    return any(binding[0] == number and binding[2] == port and binding[1] in ("", "0.0.0.0") for binding in bindings)  # noqa: S104


def _reached_at(host: str, address: str, *, alone: bool) -> str:
    """The address under which one mapping is reached; empty when it is not. `alone`: nothing listens there on IPv4."""
    if host in ("", "0.0.0.0"):  # noqa: S104  (what an engine says, nothing that we listen on)
        return "127.0.0.1" if not address else "" if ":" in address else address
    if host != "::":
        return host
    if not address:
        return "::1" if alone else ""
    return address if ":" in address else ""
