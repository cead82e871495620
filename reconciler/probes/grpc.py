"""gRPC health checks: one call of `grpc.health.v1.Health/Check` on a connection of its own.

Only SERVING passes. Any other status, an error of the call and a server that does not speak gRPC fail, as in Kubernetes. The
protocol is https://github.com/grpc/grpc/blob/master/doc/health-checking.md over HTTP/2 (RFC 9113), which the library h2 of the
extra `grpc` implements. Its messages have one field each, so this module encodes and decodes them itself. `stream.py` imports it
with the first gRPC probe, in the child process. The child has no site packages: the parent passes the directory of the library.
"""

import sys
from importlib import import_module
from typing import Any

from reconciler.probes.answer import Judgement
from reconciler.probes.messages import Spec
from reconciler.probes.request import AGENT
from reconciler.probes.slot import printable
from reconciler.probes.streak import CANNOT_RUN, FAIL, PASS, UNKNOWN

_PATH = "/grpc.health.v1.Health/Check"
_SERVING = 1
_STATES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
_CODES = (
    "ok", "cancelled", "unknown", "invalid argument", "deadline exceeded", "not found", "already exists",
    "permission denied", "resource exhausted", "failed precondition", "aborted", "out of range", "unimplemented",
    "internal", "unavailable", "data loss", "unauthenticated",
)  # fmt: skip
_MAX_ANSWER = 4096
"""Longest answer that is accepted, bytes; a valid one has seven."""
_MAX_RECEIVED = 256 * 1024
"""Most bytes of all frames together; the library buffers incomplete frames."""
_FRAME_HEADER = 9
_SETTINGS = 4


def _library(directory: str) -> Any:
    """The module `h2.connection`; raises ImportError."""
    if directory and directory not in sys.path:
        sys.path.append(directory)
    return import_module("h2.connection")


class GrpcExchange:
    """One call. See `stream.Exchange`."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._body = b""
        self._status = ""
        self._message = ""
        self._problem = ""
        self._answered = False
        self._raw = b""
        self._received = 0
        try:
            module = _library(spec.http2)
            config = import_module("h2.config").H2Configuration(client_side=True, header_encoding="utf-8")
            self._events = import_module("h2.events")
            self._broken: type[Exception] = import_module("h2.exceptions").ProtocolError
            self._http2: Any = module.H2Connection(config=config)
        except ImportError as error:
            self._http2 = None
            self._problem = f"cannot load the HTTP/2 library: {printable(str(error))}"

    def begin(self) -> bytes:
        """The preface, the headers and the message."""
        if self._http2 is None:
            return b""
        spec = self._spec
        self._http2.initiate_connection()
        headers = [
            (":method", "POST"),
            (":scheme", "https" if spec.secure else "http"),
            (":authority", spec.authority),
            (":path", _PATH),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", AGENT),
            ("grpc-timeout", f"{max(1, min(spec.timeout // 1_000_000, 99_999_999))}m"),
        ]
        self._http2.send_headers(1, headers)
        self._http2.send_data(1, request_message(spec.service), end_stream=True)
        return bytes(self._http2.data_to_send())

    def outgoing(self) -> bytes:
        """Replies to settings and pings."""
        return b"" if self._http2 is None else bytes(self._http2.data_to_send())

    def waiting(self) -> str:
        """Which part of the answer is missing, for messages."""
        return "waiting for the end of the gRPC answer" if self._answered else "waiting for the gRPC answer"

    def take(self, data: bytes, ended: bool) -> Judgement | None:
        """Handle more frames."""
        if self._http2 is None:
            return CANNOT_RUN, self._problem
        if len(self._raw) < _FRAME_HEADER:
            self._raw += data[:60]
            if self._not_http2(ended):
                line = self._raw.partition(b"\n")[0]
                return FAIL, f"not HTTP/2: {printable(line, 60)!r}"
        if ended:
            missing = "within the gRPC answer" if self._answered else "without a gRPC answer"
            return FAIL, f"the server closed the connection {missing}"
        self._received += len(data)
        if self._received > _MAX_RECEIVED:
            return FAIL, f"the gRPC answer is longer than {_MAX_RECEIVED // 1024} KiB"
        try:
            events = self._http2.receive_data(data)
        except self._broken as error:
            return FAIL, f"HTTP/2: {printable(str(error))}"
        except Exception as error:  # noqa: BLE001  (an error of the library is no verdict on the target)
            return UNKNOWN, f"the HTTP/2 library failed: {type(error).__name__}"
        for event in events:
            result = self._handle(event)
            if result is not None:
                return result
        return None

    def _not_http2(self, ended: bool) -> bool:
        """Whether these bytes cannot begin a settings frame, which a server sends first. The library would wait for the whole frame."""
        if len(self._raw) < _FRAME_HEADER:
            return ended and bool(self._raw)
        return self._raw[3] != _SETTINGS

    def _handle(self, event: Any) -> Judgement | None:
        kinds = self._events
        if isinstance(event, kinds.ResponseReceived):
            self._answered = True
            return self._headers(dict(event.headers))
        if isinstance(event, kinds.DataReceived):
            self._body += event.data
            too_long = len(self._body) > _MAX_ANSWER
            return (FAIL, f"the gRPC answer is longer than {_MAX_ANSWER} bytes") if too_long else None
        if isinstance(event, kinds.TrailersReceived):
            self._note(dict(event.headers))
            return None
        if isinstance(event, kinds.StreamEnded):
            return self._verdict()
        if isinstance(event, kinds.StreamReset):
            return FAIL, f"the server reset the call (HTTP/2 error {int(event.error_code)})"
        if isinstance(event, kinds.ConnectionTerminated):
            return FAIL, f"the server ended the connection (HTTP/2 error {int(event.error_code)})"
        return None

    def _headers(self, headers: dict[str, str]) -> Judgement | None:
        status = headers.get(":status", "")
        if status != "200":
            return FAIL, f"HTTP {printable(status, 10)} instead of a gRPC answer"
        if not headers.get("content-type", "").startswith("application/grpc"):
            return FAIL, f"not gRPC: content type {printable(headers.get('content-type', ''), 60)!r}"
        self._note(headers)
        return None

    def _note(self, headers: dict[str, str]) -> None:
        self._status = headers.get("grpc-status", self._status)
        self._message = headers.get("grpc-message", self._message)

    def _verdict(self) -> Judgement:
        """The result of a complete call."""
        if self._status != "0":
            if not self._status.isdigit() or len(self._status) > 4:
                return FAIL, "the gRPC answer has no status"
            code = int(self._status)
            name = _CODES[code] if code < len(_CODES) else "unknown"
            message = f": {printable(self._message)}" if self._message else ""
            return FAIL, f"gRPC status {code} ({name}){message}"
        state = health_status(self._body)
        if state < 0:
            return FAIL, "the gRPC answer is not a health status"
        return (PASS if state == _SERVING else FAIL), _STATES.get(state, f"health status {state}")


def request_message(service: str) -> bytes:
    """A HealthCheckRequest as one gRPC message: a flag, the length, and field 1 with the name of the service."""
    name = service.encode("utf-8", errors="surrogateescape")
    body = b"\x0a" + _varint(len(name)) + name if name else b""
    return b"\0" + len(body).to_bytes(4, "big") + body


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def health_status(body: bytes) -> int:
    """Field 1 of the HealthCheckResponse in one gRPC message: 0 where it is absent, -1 when the message is malformed."""
    if len(body) < 5 or body[0] != 0 or int.from_bytes(body[1:5], "big") != len(body) - 5:
        return -1
    at, status = 5, 0
    while at < len(body):
        key, at = _read_varint(body, at)
        kind = key & 7
        if kind == 0:
            value, at = _read_varint(body, at)
            status = value if key >> 3 == 1 else status
        elif kind == 1:
            at += 8
        elif kind == 2:
            length, at = _read_varint(body, at)
            at += max(length, 0)
        elif kind == 5:
            at += 4
        else:
            return -1
        if key < 0 or at < 0 or at > len(body):
            return -1
    return status


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer and the offset after it; (-1, past the end) when it is incomplete."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(body):
            break
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return -1, len(body) + 1
