"""The last lines of a container's output, from the engine's multiplexed stream. Called by `runtime.py` and `lifecycle.py`."""

import struct

from providers.errors import ProviderError
from providers.runtime.docker.client import EngineClient
from providers.runtime.docker.timestamps import SECOND

MAX_LINE = 2000
"""Characters kept of one line."""

LATER = 1000
"""How many lines after the requested instant are looked through for the lines before it."""

MAX_BYTES = 4 * 1024 * 1024
"""Bytes read at most."""


def last_lines(client: EngineClient, container_id: str, lines: int) -> tuple[str, ...]:
    """The last lines of both outputs, oldest first; empty when there are none or the logging driver cannot be read."""
    try:
        return read_lines(client, container_id, lines)
    except ProviderError:
        return ()


def read_lines(client: EngineClient, container: str, lines: int, until: int = 0) -> tuple[str, ...]:
    """As `last_lines`, but raises Unreachable, Gone, and the engine's refusals. `until` (wall ns) leaves out later lines."""
    if lines <= 0:
        return ()
    params = {"stdout": "1", "stderr": "1", "tail": str(lines)}
    if until:
        # The engine counts lines from the end and then leaves out the later ones.
        params |= {"tail": str(max(lines, LATER)), "until": f"{until // SECOND}.{until % SECOND:09d}"}
    raw = b""
    with client.stream("GET", f"/containers/{container}/logs", container, params=params) as answer:
        for chunk in answer.iter_content(64 * 1024):
            raw += chunk
            if len(raw) > MAX_BYTES:
                break
    text = _payload(raw).decode(errors="replace")
    return tuple(line[:MAX_LINE] for line in text.splitlines()[-lines:])


def _payload(raw: bytes) -> bytes:
    """The container's output without the frames of (stream, 0, 0, 0, length); a container with a terminal has no frames."""
    out, at = b"", 0
    while at + 8 <= len(raw):
        kind, zeros, length = struct.unpack_from(">B3sL", raw, at)
        if kind > 2 or zeros != b"\0\0\0":
            return raw
        out += raw[at + 8 : at + 8 + length]
        at += 8 + length
    return out
