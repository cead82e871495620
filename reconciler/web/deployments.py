"""POST /v1/deployments: a pipeline asks for another image of its one workload. Served by `serving.py` on the push listener.

The token says which workload; nothing in the body can choose another one, or another field than its image. The token is sent in clear, so a
listener on a network needs a TLS proxy. Refusals of tokens have no details and are delayed.
"""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from manifests.values.image_ref import parse_image
from manifests.values.write_back import Deployer
from providers.lib.rate import Bucket, Rate
from reconciler.deployments.message import REASON, one_line
from reconciler.deployments.records import Deployment, State
from reconciler.deployments.service import Conflict
from reconciler.shell.store.directory import StoreError

PATH = "/v1/deployments"

BODY_BYTES = 16 * 1024
"""The size limit of a body."""

KEY_LENGTH = 255
"""The longest Idempotency-Key."""

WAIT_SECONDS = 20.0
"""Seconds that an answer waits for the deployment to be written; clients and proxies often give up after 30."""

RATE = Rate(per_second=0.2, burst=10)
"""Requests of one token: each of them may become a commit."""

WAITING = 32
"""Answers that wait at a time; each has a thread."""


class Receiver(Protocol):
    """The daemon's side: `reconciler/deployments/service.py`. All calls may block."""

    def deployer(self, sent: str) -> Deployer | None:
        """The one deployer with this token."""

    def submit(self, deployer: Deployer, image: str, reason: str, key: str) -> Deployment:
        """Accept a deployment. Raises Conflict, StoreError."""

    def wait(self, deployer: Deployer, id_: str, seconds: float) -> Deployment | None:
        """A deployment, when it is over or the time is."""


def deployment_routes(
    receiver: Receiver, steady: Callable[[], int], slow: float, wait: float = WAIT_SECONDS
) -> list[Route]:
    """The routes.

    Args:
        receiver: the daemon's side.
        steady: steady clock in ns.
        slow: delay of refusals in seconds.
        wait: seconds that an answer waits.
    """
    buckets: dict[tuple[str, str], Bucket] = {}
    waiting = [0]
    threads = ThreadPoolExecutor(WAITING, thread_name_prefix="deployment-wait")  # others use the common one

    async def waited(deployer: Deployer, id_: str, seconds: float) -> Deployment | None:
        waiting[0] += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(threads, receiver.wait, deployer, id_, seconds)
        finally:
            waiting[0] -= 1

    async def sender(request: Request) -> Deployer | JSONResponse:
        kind, _, sent = request.headers.get("authorization", "").partition(" ")
        found = None
        if kind.lower() == "bearer" and sent.strip():
            found = await asyncio.to_thread(receiver.deployer, sent.strip())
        if found is None:
            await asyncio.sleep(slow)
            return _answer(401, "refused", {"www-authenticate": "Bearer"})
        return found

    async def over(deployer: Deployer, deployment: Deployment) -> Deployment:
        """The deployment, when it is over or the answer has waited."""
        if deployment.state.over or waiting[0] >= WAITING:
            return deployment
        return await waited(deployer, deployment.id, wait) or deployment

    async def post(request: Request) -> JSONResponse:
        deployer = await sender(request)
        if isinstance(deployer, JSONResponse):
            return deployer
        bucket = buckets.setdefault((deployer.workload, deployer.container), Bucket(RATE, steady))
        if bucket.reserve(0) is None:
            return _answer(429, "too many deployments of this workload", {"retry-after": str(int(1 / RATE.per_second))})
        body = await _body(request)
        if body is None:
            return _answer(413, f"the body is longer than {BODY_BYTES} bytes")
        key = request.headers.get("idempotency-key", "")
        if len(key) > KEY_LENGTH or not key.isprintable():
            return _answer(400, f"Idempotency-Key must have at most {KEY_LENGTH} printable characters")
        read = _read(body)
        if isinstance(read, str):
            return _answer(400, read)
        image, reason = read
        try:
            deployment = await asyncio.to_thread(receiver.submit, deployer, image, reason, key)
        except Conflict:
            return _answer(422, "this Idempotency-Key was used for another request")
        except StoreError:
            hint = "the state directory cannot be written now; the deployment is not accepted"
            return _answer(503, hint, {"retry-after": "30"})
        return _shown(await over(deployer, deployment))

    async def get(request: Request) -> JSONResponse:
        deployer = await sender(request)
        if isinstance(deployer, JSONResponse):
            return deployer
        id_ = request.path_params["id"]
        seconds = wait if "wait" in request.query_params and waiting[0] < WAITING else 0.0
        found = await waited(deployer, id_, seconds)
        return _answer(404, "there is no such deployment of this token") if found is None else _shown(found, 200)

    return [Route(PATH, post, methods=["POST"]), Route(PATH + "/{id:str}", get, methods=["GET"])]


def _shown(deployment: Deployment, status: int = 202) -> JSONResponse:
    """A deployment as its sender sees it."""
    content: dict[str, Any] = {
        "message": deployment.message or "accepted: it is written soon",
        "id": deployment.id,
        "state": deployment.state.value,
        "workload": deployment.workload,
        "image": deployment.image,
        "outcome": deployment.outcome or None,
        "commit": deployment.commit or None,
        "ref": deployment.ref or None,
        "merge_request": deployment.url or None,
        "patch": deployment.patch or None,
        "next_step": deployment.next_step or None,
        "status": f"{PATH}/{deployment.id}",
        "wait": f"{PATH}/{deployment.id}?wait",
    }
    if status == 202 and deployment.state is State.REFUSED:
        status = 422
    return JSONResponse(content, status_code=status, headers={"cache-control": "no-store"})


def _answer(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(
        {"message": message}, status_code=status, headers={"cache-control": "no-store", **(headers or {})}
    )


async def _body(request: Request) -> bytes | None:
    """The whole body; None when it is too long."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_BYTES:
                return None
    except ClientDisconnect:
        return b""
    return bytes(body)


def _read(body: bytes) -> tuple[str, str] | str:
    """Image and reason in one visible line, or what is wrong with the body."""
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):
        raw = None
    if not isinstance(raw, dict):
        return "the body is not a JSON object"
    unknown = sorted(set(raw) - {"image", "reason"})
    if unknown:
        return f"unknown member {unknown[0][:40]!r}; only image and reason may be given"
    image, reason = raw.get("image"), raw.get("reason", "")
    if not isinstance(image, str):
        return "image must be a string, such as registry.example.com/shop/web:1.5"
    if not isinstance(reason, str) or len(reason) > REASON:
        return f"reason must be a string of at most {REASON} characters"
    try:
        parse_image(image)
    except ValueError as error:
        return f"image: {error}"
    return image, one_line(reason)
