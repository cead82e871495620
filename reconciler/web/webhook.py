"""POST /v1/webhook: a forge reports that a ref was pushed, so the source is read sooner. Served by `webhook_serving.py`.

What the sender says decides nothing, see `delivery.py`. The secret is read, the signature checked and the body parsed on a thread of
the listener, so that neither a slow file nor a long body holds up the loop. Refusals of signatures have no details and are delayed.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple, Protocol

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from manifests.escape import escape
from providers.errors import ProviderError
from reconciler.web.delivery import PUSHES, SHOWN, Claimed, NoRef, Wanted, claimed, genuine, key_of, other, ref_of

PATH = "/v1/webhook"

BODY_BYTES = 2**20
"""The size limit of a body. A push of 2,048 commits, the most that GitHub reports at once, is shorter."""

HELD_BYTES = 16 * 2**20
"""The size limit of all bodies that are being received: nothing of them is proven yet."""

SLOW_SECONDS = 1.0
"""Seconds until the answer to a wrong signature, so that guessing is slow."""


class Receiver(Protocol):
    """What the listener needs of the loop: `shell/webhook.py`."""

    def known(self, key: str) -> str:
        """The request that this delivery belongs to, when it was accepted before; else empty."""

    def accept(self, key: str, provider: str, ref: str) -> str:
        """Read the source soon. Returns the id of the request."""


class _Read(NamedTuple):
    """What a thread makes of a body. `problem` is the status of a refusal; 0 without one. `text` is its reason, or the pushed ref. `key`
    is what makes the delivery the same one; empty when it is no push.
    """

    problem: int
    text: str
    key: str = ""


def webhook_app(
    receiver: Receiver,
    thread: Executor,
    secret: Callable[[], str],
    wanted: Wanted,
    only: str = "",
    answered: Callable[[str], None] | None = None,
    slow: float = SLOW_SECONDS,
) -> Starlette:
    """The application.

    Args:
        receiver: takes genuine deliveries that concern the source.
        thread: reads the secret, checks signatures and parses bodies.
        secret: returns the secret; may block, raises ProviderError.
        wanted: the ref of the source.
        only: the one kind of forge whose signatures count; empty for all.
        answered: gets the result of every request: `accepted`, `repeated`, `ignored`, `refused`, `invalid` or `unavailable`.
        slow: delay of a refusal in seconds.
    """
    held = [0]

    def judge(claim: Claimed, body: bytes, content_type: str) -> _Read:
        try:
            expected = secret()
        except ProviderError:
            return _Read(503, "the secret cannot be read now; the log says why")
        if not genuine(claim, body, expected):
            return _Read(401, "refused")
        if claim.event and claim.event not in PUSHES:
            return _Read(0, f"the event {escape(claim.event[:SHOWN])} moves no ref")
        try:
            return _Read(0, ref_of(body, content_type), key_of(claim, body))
        except NoRef as error:
            return _Read(400, str(error))

    async def handle(request: Request) -> JSONResponse:
        result, answer = await _handle(request)
        if answered is not None:
            answered(result)
        if result == "refused":
            await asyncio.sleep(slow)
        return answer

    async def _handle(request: Request) -> tuple[str, JSONResponse]:
        claim = claimed(request.headers.getlist, only)
        if claim is None:
            return "refused", _answer(401, "refused")
        body = bytearray()
        try:
            async for chunk in request.stream():
                held[0] += len(chunk)
                body += chunk
                if len(body) > BODY_BYTES:
                    return "invalid", _answer(413, f"the body is longer than {BODY_BYTES} bytes")
                if held[0] > HELD_BYTES:
                    return "unavailable", _answer(503, "too many deliveries at once", {"retry-after": "5"})
            content_type = request.headers.get("content-type", "")
            read = await asyncio.get_running_loop().run_in_executor(thread, judge, claim, bytes(body), content_type)
        except ClientDisconnect:
            return "refused", _answer(401, "refused")
        finally:
            held[0] -= len(body)
        if read.problem:
            result = {401: "refused", 503: "unavailable"}.get(read.problem, "invalid")
            return result, _answer(read.problem, read.text, {"retry-after": "5"} if read.problem == 503 else None)
        if not read.key:
            return "ignored", _answer(202, f"ignored: {read.text}")
        why = other(read.text, wanted)
        if why:
            return "ignored", _answer(202, f"ignored: {why}")
        before = receiver.known(read.key)
        if before:
            return "repeated", _answer(202, "this delivery was accepted before", request=before)
        accepted = receiver.accept(read.key, claim.provider.value, escape(read.text[:SHOWN]))
        return "accepted", _answer(202, "accepted: the source is read soon", request=accepted)

    return Starlette(routes=[Route(PATH, handle, methods=["POST"])])


def _answer(status: int, message: str, headers: dict[str, str] | None = None, *, request: str = "") -> JSONResponse:
    content = {"message": message, **({"request": request} if request else {})}
    return JSONResponse(content, status_code=status, headers={"cache-control": "no-store", **(headers or {})})
