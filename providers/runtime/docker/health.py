"""The engine's own health check of a container, and other programs that restart it for its health. Pure.

Called by `inspection.py`.
"""

from collections.abc import Mapping
from typing import Any

from providers.facts import ProbeValue, RuntimeHealth
from providers.runtime.docker.timestamps import SECOND, parse_timestamp, to_steady

MAX_OUTPUT = 4096
"""Characters kept of the output of the latest health check: the length that Docker keeps itself (moby's `maxOutputLen`)."""

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
"""Labels that ask a healer to restart the container: with the value `true`."""


def read_health(inspection: Mapping[str, Any], started_at: int) -> RuntimeHealth | None:
    """The engine's health check of one container; None where there is none.

    Args:
        inspection: the engine's answer.
        started_at: start of the container's present run (wall clock, ns). Engines keep the log of earlier runs; it is ignored.
    """
    health = inspection["State"].get("Health") or inspection["State"].get("Healthcheck") or {}
    value = _VALUES.get(str(health.get("Status") or "").lower())
    if value is None:
        return None
    check = (inspection.get("Config") or {}).get("Healthcheck") or {}
    log = health.get("Log") or ()
    last = log[-1] if log else {}
    ended = parse_timestamp(str(last.get("End") or ""))
    fresh = ended >= started_at > 0
    return RuntimeHealth(
        value=value,
        streak=max(0, int(health.get("FailingStreak") or 0)),
        last_at=to_steady(ended) if fresh else 0,
        interval=int(check.get("Interval") or 0) or DEFAULT_INTERVAL,
        output=str(last.get("Output") or "").strip()[:MAX_OUTPUT] if fresh else "",
    )


def read_healer(labels: Mapping[str, str], on_failure: str) -> str:
    """Which other program restarts a container for its health, for messages; empty when there is none.

    Args:
        labels: the container's labels.
        on_failure: what Podman does when its health check fails (`HealthcheckOnFailureAction`); empty elsewhere.
    """
    for label, text in _HEALERS:
        if labels.get(label):
            return text.format(labels[label])
    for label, name in _HEALER_SWITCHES:
        if labels.get(label, "").strip().lower() == "true":
            return f"{name}, by the label {label}"
    if on_failure not in ("", "none"):
        return f"Podman, which will {on_failure} it when its health check fails"
    return ""
