"""POST /v1/push: one message of one container about itself. The kernel or a token identifies the sender; see `core/health/pushes.py`.

Answers to invalid credentials have no details and are delayed; answers to too many messages are delayed too. So a flood limits
itself, because a peer may hold few connections only. The application is served by `serving.py`.
"""

import asyncio
import hmac
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from reconciler.core.health.pushes import EVENTS, Ruling
from reconciler.core.model.push_fact import PushEvent
from reconciler.push.tokens import PATH, SIGNATURE_HEADER, sign, split
from reconciler.shell.pushing.pushes import BUSY, Sender
from reconciler.web.peer import Peer

BODY_BYTES = 4 * 1024
SLOW_SECONDS = 1.0
"""Seconds until the answer to invalid credentials, or to too many messages."""

REMEMBER_SECONDS = 1.0
"""Seconds that an answer waits until a new state is stored. The shipped client waits twice as long."""

_BOOT = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_CHALLENGE = re.compile(r"[0-9a-f]{1,64}")
_MAX_COUNT = 2**63 - 1

REFUSED = Ruling(401, "refused")
OTHER_CONTAINER = Ruling(403, "refused")


class Receiver(Protocol):
    """What the listener needs of the loop: `shell/pushing/pushes.py`."""

    def allow(self, subject: str) -> bool:
        """Whether a sender may push now."""

    def push(
        self, sender: Sender, event: PushEvent, boot: str, seq: int, inflight: int | None, time: int, challenge: str
    ) -> Ruling:
        """Take or refuse one push."""

    def name_of(self, container_id: str) -> str:
        """The name of a container that may push; empty when no such container has this id."""

    async def remembered(self, seconds: float) -> bool:
        """Wait at most `seconds` until the pushes taken so far are stored. Whether they are."""


class Keys(Protocol):
    """Makes the token of a generation: `shell/pushing/credentials.py`."""

    def token(self, generation: str) -> str:
        """64 hex digits."""


class _Message(NamedTuple):
    event: PushEvent
    boot: str
    seq: int
    inflight: int | None
    time: int
    challenge: str


def push_app(
    receiver: Receiver,
    keys: Keys,
    slow: float = SLOW_SECONDS,
    others: Sequence[Route] = (),
    answered: Callable[[str, int], None] | None = None,
) -> Starlette:
    """The application that takes pushes.

    Args:
        receiver: takes the pushes.
        keys: makes the tokens of senders.
        slow: delay of refusals in seconds.
        others: further routes.
        answered: gets the event of every message (empty without one) and the status code of the answer.
    """

    async def handle(request: Request) -> JSONResponse:
        ruling, remembered, event = await _handle(request)
        if answered is not None:
            answered(event, ruling.status)
        if ruling.status in (401, 403, 429):
            await asyncio.sleep(slow)
        answer: dict[str, object] = {"message": ruling.why}
        if ruling.status == 200:
            answer["remembered"] = remembered
        if ruling.challenge:
            answer["challenge"] = ruling.challenge
        headers = {"retry-after": "1"} if ruling.status == 429 else None
        return JSONResponse(answer, status_code=ruling.status, headers=headers)

    async def _handle(request: Request) -> tuple[Ruling, bool, str]:
        body = await _body(request)
        if body is None:
            return Ruling(413, f"the body is longer than {BODY_BYTES} bytes"), False, ""
        raw = _parse(body)
        peer: Peer | None = getattr(request.state, "peer", None)
        sender = identify(request, body, raw, peer, receiver, keys)
        if isinstance(sender, Ruling):
            return sender, False, ""
        if not receiver.allow(sender.subject):
            return BUSY, False, ""
        message = _read(raw)
        if isinstance(message, Ruling):
            return message, False, ""
        ruling = receiver.push(sender, *message)
        remembered = not ruling.changed or await receiver.remembered(REMEMBER_SECONDS)
        return ruling, remembered, message.event.value

    return Starlette(routes=[Route(PATH, handle, methods=["POST"]), *others])


async def _body(request: Request) -> bytes | None:
    """The whole body; None when it is too long. The deadline of the connection limits the time."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_BYTES:
                return None
    except ClientDisconnect:
        return b""
    return bytes(body)


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) else None


def identify(
    request: Request, body: bytes, raw: dict[str, Any] | None, peer: Peer | None, receiver: Receiver, keys: Keys
) -> Sender | Ruling:
    """The sender of a message, or the refusal.

    Over TCP the body must be signed with the token of the generation. Over the unix socket the token itself is enough. A
    process in a container needs no token, unless the message claims another generation.
    """
    generation = raw.get("generation") if raw is not None else None
    claimed = split(generation) if isinstance(generation, str) else None
    signature = request.headers.get(SIGNATURE_HEADER, "")
    kind, _, bearer = request.headers.get("authorization", "").partition(" ")
    container_name = receiver.name_of(peer.container) if peer is not None and peer.container else ""
    if signature or bearer:
        if claimed is None:
            return REFUSED
        token = keys.token(str(generation))
        if signature:
            proven = hmac.compare_digest(signature.encode(), sign(token, body).encode())
        else:
            proven = (
                peer is not None and kind.lower() == "bearer" and hmac.compare_digest(bearer.encode(), token.encode())
            )
        if not proven:
            return REFUSED
        return OTHER_CONTAINER if container_name and container_name != claimed[0] else Sender(*claimed)
    if peer is None or not peer.container:
        return REFUSED
    if generation is None or generation == peer.container:
        return Sender(container=peer.container)
    if claimed is None or (container_name and container_name != claimed[0]):
        return OTHER_CONTAINER
    return Sender(container=peer.container)


def _read(raw: dict[str, Any] | None) -> _Message | Ruling:
    """The message, or the refusal of an invalid one. Unknown members are ignored, for newer versions."""
    if raw is None:
        return Ruling(400, "the body is not a JSON object")
    event, boot, seq, inflight = raw.get("event"), raw.get("boot"), raw.get("seq"), raw.get("inflight")
    if event not in tuple(PushEvent):
        return Ruling(400, f"event must be one of {EVENTS}")
    if not isinstance(boot, str) or not _BOOT.fullmatch(boot):
        return Ruling(400, "boot must be a string of 1 to 128 letters, digits, '_', '.', ':' or '-'")
    if not _is_count(seq):
        return Ruling(400, f"seq must be an integer from 0 to {_MAX_COUNT}")
    if inflight is not None and not _is_count(inflight):
        return Ruling(400, "inflight must be the number of requests in flight, or be omitted")
    time, challenge = raw.get("time", 0), raw.get("challenge", "")
    if not _is_count(time):
        return Ruling(400, "time must be the nanoseconds since 1970, or be omitted")
    if challenge != "" and not (isinstance(challenge, str) and _CHALLENGE.fullmatch(challenge)):
        return Ruling(400, "challenge must be that of the last answer, or be omitted")
    return _Message(PushEvent(event), boot, seq, inflight, time, challenge)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT
