"""Surface: requests to the webhook listener, on real sockets. None is accepted without the secret, and the listener survives."""

import asyncio
import contextlib
import json
import logging
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from reconciler.web.delivery import Wanted
from reconciler.web.server import make_server
from reconciler.web.sockets import open_tcp
from reconciler.web.webhook import webhook_app
from tests.fuzz.mutations import as_json, changed, changes, edited, edits
from tests.fuzz.surface import Check, Surface
from tests.web.webhook_world import SECRET, WebhookWorld, body_of, headers_of, signed

PATIENCE = 0.2
"""Wait for an answer to a request that may be incomplete, seconds. After it the request is ended."""

EVERY = 20
"""After so many inputs a valid delivery must be accepted."""

REFUSALS = frozenset({400, 401, 404, 405, 411, 413, 414, 415, 431})

inputs = st.tuples(
    st.sampled_from(("body", "signed body", "signature", "request", "form", "other secret")),
    st.sampled_from(("github", "gitlab", "gitea", "forgejo")),
    changes,
    edits,
)


async def _exchange(world: WebhookWorld, request: bytes, patience: float) -> tuple[list[int], str]:
    """The statuses of the answers and their messages: an edited request may be two, or none that is answered."""
    assert world.listener is not None
    reader, writer = await asyncio.open_connection(*world.listener.listen)
    answer = b""
    with contextlib.suppress(OSError):
        writer.write(request)
        try:
            answer = await asyncio.wait_for(reader.read(), patience)
        except TimeoutError:
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), 60)
    with contextlib.suppress(OSError):
        writer.close()
        await writer.wait_closed()
    statuses = [int(found) for found in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answer)]
    return statuses, answer.partition(b"\r\n\r\n")[2].decode()


def _request(body: bytes, headers: dict[str, str]) -> bytes:
    lines = ["POST /v1/webhook HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


@contextlib.contextmanager
def world() -> Iterator[Check]:
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as place, asyncio.Runner() as runner, ThreadPoolExecutor(1) as thread:

        async def started() -> tuple[WebhookWorld, Any, asyncio.Task[None]]:
            made = WebhookWorld(Path(place), period=0.0)
            assert made.listener is not None
            app = webhook_app(made.webhook, thread, lambda: SECRET, Wanted("main"), answered=made.results.append, slow=0.0)  # fmt: skip
            server = make_server(app)
            return made, server, asyncio.create_task(server.run_on([open_tcp("source.webhook", *made.listener.listen)]))

        hooks, server, running = runner.run(started())
        count = [0]

        def check(value: Any) -> str:
            kind, forge, steps, raw = value
            count[0] += 1
            valid = body_of(number=count[0])
            body, headers = valid, headers_of(forge, valid, f"d-{count[0]}")
            genuine = False
            if kind == "body":  # changed after it was signed; GitLab signs no body
                body = edited(as_json(changed(json.loads(valid), steps)), raw)
                genuine = body == valid or forge == "gitlab"
            elif kind in {"signed body", "form"}:  # of a sender that has the secret and says nonsense
                body = edited(as_json(changed(json.loads(valid), steps)), raw)
                headers, genuine = headers_of(forge, body, f"d-{count[0]}"), True
                if kind == "form":
                    headers["Content-Type"] = "application/x-www-form-urlencoded"
            elif kind == "signature":
                name = next(name for name in headers if "Signature" in name or "Token" in name)
                text = edited(headers[name].encode(), raw).translate(None, b"\r\n")
                genuine = text.strip().lower() == headers[name].encode().lower()
                headers[name] = text.decode("latin-1")
                if forge == "forgejo":  # its own header is the one that counts
                    genuine = True
            elif kind == "other secret":
                headers = headers_of(forge, valid, f"d-{count[0]}", secret=SECRET + "x")
            request = _request(body, headers)
            if kind == "request":
                request = edited(request, raw)
                proof = SECRET.encode() if forge == "gitlab" else signed(valid).encode()
                genuine = proof in request and (forge == "gitlab" or valid in request)
            before = len(hooks.events)
            statuses, content = runner.run(_exchange(hooks, request, PATIENCE if kind == "request" else 60.0))
            assert set(statuses) <= REFUSALS | {202}, f"statuses {statuses}"
            assert len(statuses) > 1 or content[:1] != "{" or json.loads(content)["message"].isprintable(), content
            accepted = len(hooks.events) > before
            assert not accepted or 202 in statuses, f"accepted with {statuses}"
            assert not accepted or genuine, "accepted without the secret"
            if count[0] % EVERY == 0:
                body = body_of(number=-count[0])
                delivery = _request(body, headers_of(forge, body, f"v-{count[0]}"))
                answered, content = runner.run(_exchange(hooks, delivery, 60))
                assert answered == [202], f"a valid delivery is answered with {answered}"
                assert json.loads(content)["message"].startswith("accepted"), content
            if accepted:
                return "accepted"
            return f"refused ({statuses[0]})" if statuses else "refused (closed)"

        async def ended() -> None:
            server.stop()
            hooks.webhook.close()
            await asyncio.gather(running, return_exceptions=True)

        try:
            yield check
        finally:
            runner.run(ended())


SURFACES = (
    Surface("webhooks", "programs that can reach the webhook listener", "nothing is asked of the loop without the secret; no status of a server error; a valid delivery is answered afterwards", inputs, world),
)  # fmt: skip
