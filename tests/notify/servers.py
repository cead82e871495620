"""Servers that take notices in tests: HTTP and SMTP on free loopback ports, and a certificate of their own."""

import asyncio
import json
import ssl
import subprocess
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


def certificate(directory: Path) -> Path:
    """A key and a self-signed certificate for 127.0.0.1, in one file."""
    key, cert, both = (directory / name for name in ("key.pem", "cert.pem", "both.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    both.write_text(key.read_text() + cert.read_text())
    return both


def context(both: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(both)
    return made


@dataclass
class Hook:
    """A server that takes notices over HTTP. `answers` are for the next requests; then it answers 204."""

    url: str = ""
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    silent: bool = False

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.requests]


@contextmanager
def hook(tls: Path | None = None) -> Iterator[Hook]:
    served = Hook()
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            served.requests.append((self.path, headers, body))
            if served.silent:
                ended.wait(60)
                return
            status, extra, text = served.answers.pop(0) if served.answers else (204, {}, b"")
            with suppress(OSError):
                self.send_response(status)
                for name, value in extra.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = context(tls).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    served.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    try:
        yield served
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Mailbox:
    """A mail server. It answers `replies` to the next messages, then takes them."""

    port: int = 0
    messages: list[EmailMessage] = field(default_factory=list)
    envelopes: list[tuple[str, list[str]]] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    logins: list[str] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)

    async def handle_RCPT(
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if address in self.refused:
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.replies:
            return self.replies.pop(0)
        assert isinstance(envelope.content, bytes)
        message = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.messages.append(message)
        self.envelopes.append((str(envelope.mail_from), list(envelope.rcpt_tos)))
        self.encrypted.append(session.ssl is not None or server.transport.get_extra_info("sslcontext") is not None)
        return "250 OK"


@contextmanager
def mailbox(tls: Path | None = None, *, implicit: bool = False, password: str = "") -> Iterator[Mailbox]:
    """A mail server; with `tls` it wants STARTTLS, or TLS at once when `implicit`. With a password it wants a login."""
    box = Mailbox()

    def authenticator(_server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        box.logins.append(data.login.decode())
        return AuthResult(success=data.password.decode() == password, handled=False)

    options: dict[str, Any] = {}
    if tls is not None and not implicit:
        options |= {"tls_context": context(tls), "require_starttls": True}
    if password:
        options |= {"authenticator": authenticator, "auth_required": True, "auth_require_tls": not implicit}
    loop = asyncio.new_event_loop()

    def made() -> SMTP:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it does not see that the connection is encrypted from its begin
            return SMTP(box, loop=loop, hostname="mail.example.com", **options)

    inner = context(tls) if tls is not None and implicit else None
    server = loop.run_until_complete(loop.create_server(made, "127.0.0.1", 0, ssl=inner))
    box.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def end() -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        yield box
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
