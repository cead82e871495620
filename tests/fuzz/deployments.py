"""Surface: requests to `POST /v1/deployments`, on real sockets. A token changes the image of its workload and nothing else."""

import asyncio
import contextlib
import json
import logging
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from starlette.applications import Starlette

from manifests.values.image_ref import parse_image
from manifests.values.secret_sources import SecretSource
from manifests.values.write_back import Deployer
from reconciler.deployments.edit import ImageChange
from reconciler.deployments.message import message
from reconciler.deployments.policies import Policies
from reconciler.deployments.records import RecordFile
from reconciler.deployments.service import Deployments, Links
from reconciler.deployments.writer import Outcome, Written
from reconciler.shell.store.audit import Event
from reconciler.web import deployments as web
from reconciler.web.server import make_server
from reconciler.web.sockets import open_tcp
from tests.deployments.deployer_world import TOKEN, no_registry, token_file, wall
from tests.free_ports import free_port
from tests.fuzz.mutations import as_json, changed, changes, edited, edits
from tests.fuzz.surface import Check, Surface

PATIENCE = 0.2
"""Wait for an answer to a request that may be incomplete, seconds. After it the request is ended."""

EVERY = 20
"""After so many inputs a valid request must be accepted."""

REFUSALS = frozenset({400, 401, 404, 405, 411, 413, 414, 415, 422, 429, 431})
IMAGE = "registry.test:5000/shop:1.5"

inputs = st.tuples(
    st.sampled_from(("body", "body", "text", "key", "token", "request")),
    changes,
    edits,
    st.text(max_size=40) | st.text(st.characters(), min_size=490, max_size=510),
)


async def _exchange(port: int, request: bytes, patience: float) -> list[int]:
    """The statuses of the answers: an edited request may be two, or none that is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
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
    return [int(found) for found in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answer)]


def _request(body: bytes, token: str = TOKEN, more: str = "") -> bytes:
    head = f"POST /v1/deployments HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    return f"{head}Authorization: Bearer {token}\r\n{more}\r\n".encode("latin-1", "replace") + body


@contextlib.contextmanager
def world() -> Iterator[Check]:
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    asked: list[ImageChange] = []

    def write(
        asked_for: Sequence[ImageChange], reason: str, who: str, branch: str, proposed: Sequence[ImageChange]
    ) -> Written:
        del branch, proposed
        (one,) = asked_for
        asked.append(one)
        text = message([], reason, who)
        text.encode()
        assert len(text.split("\n")) <= 4, f"a reason made a line of its own: {text!r}"
        return Written(Outcome.COMMIT, (), SimpleNamespace(left=()), "0" * 40, "refs/heads/main")  # type: ignore[arg-type]

    with tempfile.TemporaryDirectory() as place, asyncio.Runner() as runner:
        deployer = Deployer("shop", SecretSource(file=str(token_file(Path(place)))))
        faults: list[str] = []
        policies = Policies(no_registry, time.monotonic, faults.append)

        def report(event: Event) -> None:
            "\n".join(map(str, event)).encode()  # the audit stores UTF-8

        links = Links(report, lambda _: None, faults.append)
        service = Deployments(write, RecordFile(Path(place), faults.append), links, wall, policies)
        service.in_force(SimpleNamespace(instance=SimpleNamespace(writing=SimpleNamespace(deployers=(deployer,), images=None)), workloads=()))  # type: ignore[arg-type]  # fmt: skip
        clock, port = [0], free_port()

        async def started() -> Any:
            routes = web.deployment_routes(service, lambda: clock[0], slow=0.0, wait=10.0)
            server = make_server(Starlette(routes=routes))
            return server, asyncio.create_task(server.run_on([open_tcp("push", "127.0.0.1", port)]))

        server, running = runner.run(started())
        count = [0]

        def ask(request: bytes, patience: float = 60.0) -> list[int]:
            clock[0] += 10 * 10**9  # the rate has a surface of its own in the tests
            return runner.run(_exchange(port, request, patience))

        def check(value: Any) -> str:
            kind, steps, raw, text = value
            count[0] += 1
            asked.clear()
            valid = {"image": IMAGE, "reason": "build 7"}
            body, genuine = as_json(valid), True
            request = _request(body)
            if kind == "body":
                request = _request(edited(as_json(changed(valid, steps)), raw))
            elif kind == "text":
                request = _request(json.dumps({"image": IMAGE, "reason": text}).encode())
            elif kind == "key":
                key = edited(text.encode("utf-8", "surrogatepass"), raw).translate(None, b"\r\n").decode("latin-1")
                request = _request(body, more=f"Idempotency-Key: {key}\r\n")
            elif kind == "token":
                token = edited(TOKEN.encode(), raw).translate(None, b"\r\n").decode("latin-1")
                genuine = token.strip() == TOKEN
                request = _request(body, token)
            elif kind == "request":
                request = edited(request, raw)
                genuine = TOKEN.encode() in request
            statuses = ask(request, PATIENCE if kind == "request" else 60.0)
            assert set(statuses) <= REFUSALS | {202}, f"status {statuses}"
            assert faults == [], faults
            for one in asked:
                assert genuine, "written without the token"
                assert (one.key, one.container) == ("workload/shop", "")
                parse_image(one.image)
            if 202 in statuses:
                return "accepted"
            if count[0] % EVERY == 0:
                statuses = ask(_request(as_json({"image": IMAGE, "reason": str(count[0])})))
                assert statuses == [202], f"a valid request is answered with {statuses}"
                return "answered"
            return f"refused ({statuses[0]})" if statuses else "refused (closed)"

        try:
            yield check
        finally:
            server.stop()
            runner.run(asyncio.wait_for(running, 30))
            service.close()


SURFACES = (
    Surface("deployments", "programs that can reach the push listener; pipelines with a token", "only with the token something is written, and then a valid image of its workload; a reason is one line; no status of a server error", inputs, world),
)  # fmt: skip
