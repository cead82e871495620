"""Sends one push: the environment of a container gives the target and the credentials (see docs/push.md)."""

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
"""Seconds that one push may take. The listener waits at most half of that for its disk."""

DEFAULT_SOCKET = "/run/reconciler/push.sock"

_CLOCK = time.CLOCK_BOOTTIME


class Misconfigured(Exception):
    """The environment has no push target, or an invalid one."""


class Target(NamedTuple):
    """Target and credentials. `address` is the path of a unix socket or (host, port); `host` is for the Host header."""

    address: str | tuple[str, int]
    host: str
    generation: str
    token: str
    boot: str


def target_of(environment: Mapping[str, str]) -> Target:
    """The target in the RECONCILER_PUSH_* variables; the unix socket takes precedence over the URL.

    Raises:
        Misconfigured: the variables are missing or invalid.
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
            "RECONCILER_PUSH_SOCKET and RECONCILER_PUSH_URL are not set; containers of a workload with `push` get them when they are created"
        )
    return Target(*_split(url), generation, token, boot)


def _split(url: str) -> tuple[tuple[str, int], str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Misconfigured(f"RECONCILER_PUSH_URL: {error}") from error
    if parts.scheme != "http" or not parts.hostname:
        raise Misconfigured(f"RECONCILER_PUSH_URL is {url!r}; set it to a URL like http://127.0.0.1:9902")
    return (parts.hostname, port or 80), parts.netloc.rpartition("@")[2]


def boot_of_container() -> str:
    """The name of this run of the container: the kernel's boot, and the start time of the container's first process.

    So all pushes from one container count in one sequence, and a restarted container has another one.
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
    """Push one event. Its sequence number is the host's time since boot, which only grows.

    When the listener cannot know by the clock whether the message is new, it gives a challenge, and the push is repeated with it.

    Args:
        target: target and credentials.
        event: one of EVENTS.
        inflight: requests in flight; None = unknown.
        seconds: the time limit.
        wake: a descriptor that ends the wait; see `exchange`.

    Returns:
        the answer, with any status.

    Raises:
        Failed: there was no answer.
    """
    end = time.monotonic() + seconds
    answer = exchange(target.address, _request(target, event, inflight, ""), seconds, wake)
    challenge = _challenge_of(answer)
    if challenge and (left := end - time.monotonic()) > 0:
        answer = exchange(target.address, _request(target, event, inflight, challenge), left, wake)
    return answer


def _challenge_of(answer: Answer) -> str:
    """The challenge in a refusal; empty without one. It is hexadecimal, and the listener gives one of 32 digits."""
    if answer.status != 409:
        return ""
    try:
        challenge = json.loads(answer.body)["challenge"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return challenge if isinstance(challenge, str) and len(challenge) <= 64 and challenge.isalnum() else ""


def _request(target: Target, event: str, inflight: int | None, challenge: str) -> bytes:
    message: dict[str, object] = {
        "event": event,
        "boot": target.boot,
        "seq": time.clock_gettime_ns(_CLOCK),
        "time": time.time_ns(),
    }
    if challenge:
        message["challenge"] = challenge
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
    return "\r\n".join([*head, "", ""]).encode() + body


def message_of(answer: Answer) -> str:
    """The message in the body of an answer, in one line of visible characters: it comes from outside."""
    try:
        return visible(str(json.loads(answer.body)["message"])[:300])
    except (ValueError, KeyError, TypeError):
        return "no message in the answer"


def visible(text: str) -> str:
    """The text in plain ASCII, with escapes for line breaks and all else, and no `##[` that a CI system reads as a command."""
    return text.encode("unicode_escape").decode("ascii").replace("##", "#\\#")


__all__ = ["EVENTS", "Answer", "Failed", "Misconfigured", "Target", "message_of", "push", "target_of", "visible"]
