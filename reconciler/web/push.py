"""POST /v1/push: one message of one instance about itself. Who it is comes from the kernel or from a token; rules: `core/pushes.py`.

What is wrong with credentials is not told, and told late: so are too many messages. A flood thereby limits itself, because a
peer may hold few connections only.
"""

import asyncio
import hmac
import json
import re
from collections.abc import Sequence
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
"""How long somebody waits for an answer who sends too much, or may not send at all."""

REMEMBER_SECONDS = 1.0
"""How long an answer waits for a new state to be written down. Half of what the shipped client waits."""

_BOOT = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_MOST = 2**63 - 1

REFUSED = Ruling(401, "refused")
NOT_YOU = Ruling(403, "refused")


class Receiver(Protocol):
    """What the listener needs of the loop: `shell/pushing.py`."""

    def allow(self, subject: str) -> bool:
        """Whether a sender may push now."""

    def push(self, sender: Sender, event: PushEvent, boot: str, seq: int, inflight: int | None) -> Ruling:
        """Take or refuse one push."""

    def name_of(self, container: str) -> str:
        """The name of a container that may push; empty when none of them has this id."""

    async def remembered(self, seconds: float) -> bool:
        """Wait until what was taken is written down, at most that long."""


class Keys(Protocol):
    """Makes the token of a generation: `shell/credentials.py`."""

    def token(self, generation: str) -> str:
        """64 hex digits."""


class _Message(NamedTuple):
    event: PushEvent
    boot: str
    seq: int
    inflight: int | None


def push_app(receiver: Receiver, keys: Keys, slow: float = SLOW_SECONDS, others: Sequence[Route] = ()) -> Starlette:
    """The application that takes pushes. `slow` is in seconds; `others` are routes beside it."""

    async def handle(request: Request) -> JSONResponse:
        ruling, remembered = await _handle(request)
        if ruling.status in (401, 403, 429):
            await asyncio.sleep(slow)
        answer: dict[str, object] = {"message": ruling.why}
        if ruling.status == 200:
            answer["remembered"] = remembered
        headers = {"retry-after": "1"} if ruling.status == 429 else None
        return JSONResponse(answer, status_code=ruling.status, headers=headers)

    async def _handle(request: Request) -> tuple[Ruling, bool]:
        body = await _body(request)
        if body is None:
            return Ruling(413, f"a push has at most {BODY_BYTES} bytes"), False
        raw = _parse(body)
        peer: Peer | None = getattr(request.state, "peer", None)
        sender = identify(request, body, raw, peer, receiver, keys)
        if isinstance(sender, Ruling):
            return sender, False
        if not receiver.allow(sender.subject):
            return BUSY, False
        message = _read(raw)
        if isinstance(message, Ruling):
            return message, False
        ruling = receiver.push(sender, *message)
        remembered = not ruling.changed or await receiver.remembered(REMEMBER_SECONDS)
        return ruling, remembered

    return Starlette(routes=[Route(PATH, handle, methods=["POST"]), *others])


async def _body(request: Request) -> bytes | None:
    """The whole body; None when it is too long. The connection's own deadline bounds how long this takes."""
    found = bytearray()
    try:
        async for chunk in request.stream():
            found += chunk
            if len(found) > BODY_BYTES:
                return None
    except ClientDisconnect:
        return b""
    return bytes(found)


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) else None


def identify(
    request: Request, body: bytes, raw: dict[str, Any] | None, peer: Peer | None, receiver: Receiver, keys: Keys
) -> Sender | Ruling:
    """Who sends a message, or how it is refused.

    Over TCP the body must be signed with the token of the generation. Over the unix socket the token itself will do, and
    in a container the kernel's word, unless something else is claimed.
    """
    generation = raw.get("generation") if raw is not None else None
    claimed = split(generation) if isinstance(generation, str) else None
    signature = request.headers.get(SIGNATURE_HEADER, "")
    kind, _, bearer = request.headers.get("authorization", "").partition(" ")
    lives_in = receiver.name_of(peer.container) if peer is not None and peer.container else ""
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
        return NOT_YOU if lives_in and lives_in != claimed[0] else Sender(*claimed)
    if peer is None or not peer.container:
        return REFUSED
    if generation is None or generation == peer.container:
        return Sender(container=peer.container)
    if claimed is None or (lives_in and lives_in != claimed[0]):
        return NOT_YOU
    return Sender(container=peer.container)


def _read(raw: dict[str, Any] | None) -> _Message | Ruling:
    """What a message says, or what is wrong with it. Members that nobody knows are left for newer versions."""
    if raw is None:
        return Ruling(400, "the body is no JSON object")
    event, boot, seq, inflight = raw.get("event"), raw.get("boot"), raw.get("seq"), raw.get("inflight")
    if event not in tuple(PushEvent):
        return Ruling(400, f"event must be one of {EVENTS}")
    if not isinstance(boot, str) or not _BOOT.fullmatch(boot):
        return Ruling(400, "boot must be a text of 1 to 128 letters, digits, '_', '.', ':' or '-'")
    if not _is_count(seq):
        return Ruling(400, f"seq must be a whole number from 0 to {_MOST}")
    if inflight is not None and not _is_count(inflight):
        return Ruling(400, "inflight must be a whole number of requests, or be left out")
    return _Message(PushEvent(event), boot, seq, inflight)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST
