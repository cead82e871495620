"""A webhook listener on real sockets, with the daemon's side behind it; deliveries as GitHub, GitLab, Gitea and Forgejo send them."""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

from manifests.values.desired import WebhookListener
from manifests.values.pod import SecretSource
from reconciler.shell.store.audit import Event
from reconciler.shell.webhook import PERIOD, Webhook
from reconciler.web.webhook_serving import serve_webhook
from tests.free_ports import free_port
from tests.sim.clock import VirtualClock

SECRET = "correct horse battery staple"
MAIN = "refs/heads/main"


def signed(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, sha256).hexdigest()


def body_of(ref: str = MAIN, **more: object) -> bytes:
    return json.dumps({"ref": ref, "before": "0" * 40, "after": "1" * 40, "commits": [], **more}).encode()


def headers_of(provider: str, body: bytes, delivery: str = "d-1", secret: str = SECRET) -> dict[str, str]:
    """The headers that a forge sends with the push of a body."""
    if provider == "github":
        return {
            "X-GitHub-Event": "push",
            "X-GitHub-Delivery": delivery,
            "X-Hub-Signature-256": f"sha256={signed(body, secret)}",
            "X-Hub-Signature": "sha1=" + "0" * 40,
        }
    if provider == "gitlab":
        return {"X-Gitlab-Event": "Push Hook", "X-Gitlab-Event-UUID": f"{delivery}-event", "X-Gitlab-Token": secret, "Idempotency-Key": delivery}  # fmt: skip
    own = "Gitea" if provider == "gitea" else "Forgejo"
    headers = {f"X-{name}-{what}": value for name in ("Gitea", own) for what, value in (("Event", "push"), ("Delivery", delivery), ("Signature", signed(body, secret)))}  # fmt: skip
    return headers | {"X-GitHub-Event": "push", "X-GitHub-Delivery": delivery, "X-Hub-Signature-256": f"sha256={signed(body, secret)}"}  # fmt: skip


class WebhookWorld:
    """The daemon's side of webhooks: which reads were asked for, and what was reported."""

    def __init__(self, state: Path, provider: str = "", period: float = PERIOD) -> None:
        self.file = state / "secret"
        self.file.write_text(f"{SECRET}\n")
        self.file.chmod(0o600)
        self.reads: list[float] = []
        self.events: list[Event] = []
        self.notes: list[str] = []
        self.results: list[str] = []
        self.read, self.noted = asyncio.Event(), asyncio.Event()
        self.webhook = Webhook(VirtualClock(), self._read_soon, self.events.append, period)
        self.listen(WebhookListener(("127.0.0.1", free_port()), SecretSource(file=str(self.file)), provider, "main"))

    def listen(self, listener: WebhookListener | None) -> None:
        """Put an Instance with this listener in force."""
        self.listener = listener
        self.webhook.set_desired(SimpleNamespace(instance=SimpleNamespace(webhook=listener)))  # type: ignore[arg-type]

    def _read_soon(self, reason: str) -> None:
        self.reads.append(asyncio.get_running_loop().time())
        self.read.set()

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.noted.set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        task = asyncio.create_task(serve_webhook(self.webhook, self._note, self.results.append))
        try:
            await self.until_listening()
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def until_listening(self) -> None:
        assert self.listener is not None
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection(*self.listener.listen)
                except OSError:
                    await asyncio.sleep(0.02)  # there is no event for a socket that begins to listen
                    continue
                writer.close()
                return

    async def deliver(
        self, body: bytes, headers: dict[str, str], *, path: str = "/v1/webhook", method: str = "POST"
    ) -> tuple[int, dict]:
        """Send a delivery. Returns (status, answer)."""
        head = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", "Connection: close"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        return await self.raw("\r\n".join([*head, "", ""]).encode("latin-1") + body)

    async def raw(self, request: bytes) -> tuple[int, dict]:
        """The answer to these bytes; (0, {}) when the connection was closed without one."""
        assert self.listener is not None
        reader, writer = await asyncio.open_connection(*self.listener.listen)
        answer = b""
        with suppress(OSError):
            writer.write(request)
            await writer.drain()
        with suppress(OSError):
            answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        head, _, content = answer.partition(b"\r\n\r\n")
        return (int(head.split()[1]) if head else 0), (json.loads(content) if content[:1] == b"{" else {})

    async def push(self, provider: str = "github", ref: str = MAIN, delivery: str = "d-1") -> tuple[int, dict]:
        body = body_of(ref)
        return await self.deliver(body, headers_of(provider, body, delivery))
