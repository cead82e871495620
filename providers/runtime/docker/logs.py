"""The last lines of a container's output, out of the engine's multiplexed stream. Called by `DockerRuntime` and `docker_act.py`."""

import struct

from providers.errors import ProviderError
from providers.runtime.docker.client import Link

MAX_LINE = 2000
"""Characters shown of one line."""

MAX_BYTES = 4 * 1024 * 1024
"""Bytes read at most: lines may be long."""


def last_lines(link: Link, container_id: str, lines: int) -> tuple[str, ...]:
    """The last lines of both outputs, oldest first; empty where the logging driver cannot be read, or there are none."""
    try:
        return read_lines(link, container_id, lines)
    except ProviderError:
        return ()


def read_lines(link: Link, container: str, lines: int) -> tuple[str, ...]:
    """As `last_lines`. Raises Unreachable, Gone, and what the engine refuses."""
    if lines <= 0:
        return ()
    params = {"stdout": "1", "stderr": "1", "tail": str(lines)}
    raw = b""
    with link.request("GET", f"/containers/{container}/logs", container, params=params, stream=True) as answer:
        for chunk in answer.iter_content(64 * 1024):
            raw += chunk
            if len(raw) > MAX_BYTES:
                break
    text = _payload(raw).decode(errors="replace")
    return tuple(line[:MAX_LINE] for line in text.splitlines()[-lines:])


def _payload(raw: bytes) -> bytes:
    """What the container wrote: the stream has frames of (stream, 0, 0, 0, length) unless it has a terminal."""
    out, at = b"", 0
    while at + 8 <= len(raw):
        kind, zeros, length = struct.unpack_from(">B3sL", raw, at)
        if kind > 2 or zeros != b"\0\0\0":
            return raw
        out += raw[at + 8 : at + 8 + length]
        at += 8 + length
    return out
