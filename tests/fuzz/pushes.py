"""Surface: requests to the push listener, on real sockets. No request is accepted without a valid signature, and the listener survives."""

import asyncio
import contextlib
import hmac
import json
import logging
import re
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from manifests.values.desired import SECOND
from tests.fuzz.mutations import as_json, changed, changes, edited, edits
from tests.fuzz.surface import Check, Surface
from tests.web.push_world import Client, PushWorld

PATIENCE = 0.2
"""Wait for an answer to a request that may be incomplete, seconds. After it the request is ended."""

EVERY = 20
"""After so many inputs a valid push must be accepted."""

REFUSALS = frozenset({400, 401, 403, 404, 405, 409, 410, 411, 413, 414, 415, 429, 431})
inputs = st.tuples(
    st.sampled_from(("body", "signed body", "signature", "request", "token", "bearer over TCP")), changes, edits, st.booleans()
)  # fmt: skip


async def _exchange(world: PushWorld, request: bytes, patience: float = 60.0) -> int:
    """The status of the answer; 0 when the connection was closed without one.

    A request that the listener waits to be completed is ended after `patience` (seconds).
    """
    reader, writer = await asyncio.open_connection(*world.listener.tcp)
    answer = b""
    with contextlib.suppress(OSError):
        writer.write(request)
        try:
            answer = await asyncio.wait_for(reader.read(65536), patience)
        except TimeoutError:
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(65536), 60)
    with contextlib.suppress(OSError):
        writer.close()
        await writer.wait_closed()
    match = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    return int(match[1]) if match else 0


def _sign(token: str, body: bytes) -> str:
    return "sha256=" + hmac.new(token.encode(), body, sha256).hexdigest()


def _request(body: bytes, header: str) -> bytes:
    head = f"POST /v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{header}\r\n\r\n"
    return head.encode() + body


@contextlib.contextmanager
def world() -> Iterator[Check]:
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as place, asyncio.Runner() as runner:
        pushes = PushWorld(Path(place))
        pushes.create()
        runner.run(pushes.look())
        listening = pushes.listening(slow=0.0)
        runner.run(listening.__aenter__())
        sender = pushes.sender()
        stranger = Client(pushes, sender.generation, "0" * 64)
        count = [0]

        def message() -> dict[str, Any]:
            sender.seq += 1
            now = pushes.clock.now().wall
            return {"event": "ready", "generation": sender.generation, "boot": "boot-1", "seq": sender.seq, "time": now}

        def check(value: Any) -> str:
            kind, steps, raw, longer = value
            count[0] += 1
            pushes.clock.advance(SECOND)
            valid = as_json(message())
            body, header = valid, f"Reconciler-Signature: {_sign(sender.token, valid)}"
            genuine = False
            if kind == "body":  # changed after it was signed
                body = edited(as_json(changed(json.loads(valid), steps)), raw)
                genuine = body == valid
            elif kind == "signed body":  # of a sender that has its token and says nonsense
                body = edited(as_json(changed(json.loads(valid), steps)), raw)
                header, genuine = f"Reconciler-Signature: {_sign(sender.token, body)}", True
            elif kind == "signature":
                text = edited(_sign(sender.token, valid).encode(), raw)
                text = text.translate(None, b"\r\n")
                header, genuine = (
                    f"Reconciler-Signature: {text.decode('latin-1')}",
                    text.strip() == _sign(sender.token, valid).encode(),
                )
            elif kind == "token":  # signed with another key
                header = f"Reconciler-Signature: {_sign(stranger.token if longer else sender.token[:-1], valid)}"
            elif kind == "bearer over TCP":
                header = f"Authorization: Bearer {sender.token}"
            request = _request(body, header)
            if kind == "request":
                request = edited(request, raw)
                genuine = valid in request and _sign(sender.token, valid).encode() in request
            status = runner.run(_exchange(pushes, request, PATIENCE if kind == "request" else 60.0))
            assert status in REFUSALS | {0, 200, 202}, f"status {status}"
            if status in (200, 202):
                assert genuine, "accepted without a valid signature"
                return "accepted"
            if count[0] % EVERY == 0:
                pushes.clock.advance(10 * SECOND)
                body = as_json(message())
                header = f"Reconciler-Signature: {_sign(sender.token, body)}"
                sender.seq += 2**20  # what a signed, but altered message may have used up
                status = runner.run(_exchange(pushes, _request(body, header)))
                assert status in (200, 202, 409, 410), f"a valid push is answered with {status}"
                return "answered"
            return f"refused ({status})" if status else "refused (closed)"

        try:
            yield check
        finally:
            runner.run(listening.__aexit__(None, None, None))


SURFACES = (
    Surface("pushes", "programs that can reach the push listener", "200 and 202 only for a valid signature over this body; no status of a server error; a valid push is answered afterwards", inputs, world),
)  # fmt: skip
