"""Pushing: where to, as whom, and one message. The environment of a container says all of it (see docs/push.md)."""

import json
import os
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from reconciler.push.http import Answer, Failed, exchange
from reconciler.push.tokens import PATH, sign

EVENTS = ("startup", "ready", "not-ready", "draining")

ANSWER_SECONDS = 2.0
"""How long one push may take. Whoever listens waits at most half of it for its own disk."""

DEFAULT_SOCKET = "/run/reconciler/push.sock"

_CLOCK = time.CLOCK_BOOTTIME


class Misconfigured(Exception):
    """The environment does not say where to push, or what it says cannot be used."""


class Target(NamedTuple):
    """Where to push and as whom. `place` is the path of a unix socket or (host, port); `host` is for the Host header."""

    place: str | tuple[str, int]
    host: str
    generation: str
    token: str
    boot: str


def target_of(environment: Mapping[str, str]) -> Target:
    """What the RECONCILER_PUSH_* variables say; the unix socket goes before the URL.

    Raises:
        Misconfigured
    """
    generation = environment.get("RECONCILER_PUSH_GENERATION", "")
    token = environment.get("RECONCILER_PUSH_TOKEN", "")
    boot = environment.get("RECONCILER_PUSH_BOOT", "") or boot_of_container()
    path, url = environment.get("RECONCILER_PUSH_SOCKET", ""), environment.get("RECONCILER_PUSH_URL", "")
    if not path and not url and os.path.exists(DEFAULT_SOCKET):
        path = DEFAULT_SOCKET
    if path:
        return Target(path, "localhost", generation, token, boot)
    if not url:
        raise Misconfigured(
            "RECONCILER_PUSH_SOCKET and RECONCILER_PUSH_URL are not set; a workload with `push` gets them when its containers are created"
        )
    return Target(*_split(url), generation, token, boot)


def _split(url: str) -> tuple[tuple[str, int], str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Misconfigured(f"RECONCILER_PUSH_URL: {error}") from error
    if parts.scheme != "http" or not parts.hostname:
        raise Misconfigured(f"RECONCILER_PUSH_URL is {url!r}; it must be like http://127.0.0.1:9902")
    return (parts.hostname, port or 80), parts.netloc.rpartition("@")[2]


def boot_of_container() -> str:
    """What this life of the container is called: the kernel's boot, and when the first process of the container was started.

    So all that pushes from one container counts in one sequence, and a restarted container has another.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read(8)
        with open("/proc/1/stat", encoding="ascii", errors="replace") as file:
            started = file.read().rpartition(") ")[2].split()[19]  # field 22 of proc(5), counted after the name
    except (OSError, IndexError):
        return f"pid-{os.getpid()}-{time.clock_gettime_ns(_CLOCK)}"
    return f"{boot}-{started}"


def push(
    target: Target, event: str, inflight: int | None = None, seconds: float = ANSWER_SECONDS, wake: int = -1
) -> Answer:
    """Push one event. Its place in the sequence is the host's own time since its start, which only ever grows.

    Args:
        target: where, and as whom.
        event: one of the four.
        inflight: requests under way; None = not known.
        seconds: for all of it.
        wake: a descriptor that ends the wait; see `exchange`.

    Returns:
        Whatever was answered.

    Raises:
        Failed: nothing was answered.
    """
    message: dict[str, object] = {"event": event, "boot": target.boot, "seq": time.clock_gettime_ns(_CLOCK)}
    if target.generation:
        message["generation"] = target.generation
    if inflight is not None:
        message["inflight"] = inflight
    body = json.dumps(message).encode()
    head = [
        f"POST {PATH} HTTP/1.1",
        f"Host: {target.host}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if target.token:
        head.append(f"Reconciler-Signature: {sign(target.token, body)}")
    return exchange(target.place, "\r\n".join([*head, "", ""]).encode() + body, seconds, wake)


def told(answer: Answer) -> str:
    """What an answer says, in words."""
    try:
        found = json.loads(answer.body)
        return str(found["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return "no explanation"


__all__ = ["EVENTS", "Answer", "Failed", "Misconfigured", "Target", "push", "target_of", "told"]
