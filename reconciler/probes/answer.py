"""Judges an HTTP answer from the bytes received so far. Pure; used by the probers in `http.py` and `stream.py`.

- An expected status passes (200 to 399 unless the probe sets others). Any other status fails as soon as the status line is
  complete, except a redirect that may be followed: the prober decides whether it leads to the same place.
- Interim answers (100 to 199, but 101) are skipped.
- A passing answer counts once its header and the first `max_body` bytes of its body have arrived, or the whole body when it is
  shorter: "200" followed by silence fails, an endless body does not. Redirects have no body to wait for.
- A connection that closes earlier, a malformed status line or chunk, and a header over 64 KiB fail.
"""

from typing import NamedTuple

from reconciler.probes.slot import printable
from reconciler.probes.streak import FAIL, PASS

MAX_HEADER = 64 * 1024
"""Bytes of status line and header (interim answers included)."""

MAX_BODY = 10 * 1024
"""Bytes of the body that a probe waits for by default: Kubernetes' maxRespBodyLength."""

MAX_CHUNKS = 1024
"""A body in more chunks than this counts as long enough: parsing it repeatedly would delay other probes."""

FOLLOW = 8
"""Added to the result of a redirect that may be followed; without this bit, the value is the result if it is not followed."""

REDIRECTS = frozenset((301, 302, 303, 307, 308))


class Rules(NamedTuple):
    """What passes: the expected statuses, how many bytes of the body to wait for, and whether to follow redirects."""

    passing: frozenset[int]
    max_body: int
    follow: bool


DEFAULT = Rules(frozenset(range(200, 400)), MAX_BODY, False)

Judgement = tuple[int, str]
_PASSED = {status: (PASS, f"HTTP {status}") for status in range(200, 300)}
_NO_BODY = (204, 304)
_HEX = b"0123456789abcdefABCDEF"


def judge(data: bytes, ended: bool, rules: Rules = DEFAULT) -> Judgement | None:
    """The result of an answer, or None while more of it is needed.

    Args:
        data: all bytes received so far.
        ended: the server has closed the connection.
        rules: what the probe expects.

    Returns:
        A result of `streak.py`, with FOLLOW added for a redirect that may be followed, and a text for the operator.
    """
    passing = rules.passing
    start = 0
    while True:
        line_end = data.find(b"\n", start)
        if line_end < 0:
            return _without_status(data, start, ended)
        status = _status(data, start)
        if status < 0:
            return FAIL, f"not an HTTP answer: {printable(data[start:line_end], 60)!r}"
        if status not in passing and (status >= 200 or status == 101) and not (rules.follow and status in REDIRECTS):
            return FAIL, f"HTTP {status}"
        body = _header_end(data, line_end)
        if body < 0:
            if len(data) > MAX_HEADER:
                return FAIL, f"HTTP {status}, but the header is longer than {MAX_HEADER // 1024} KiB"
            return (FAIL, f"HTTP {status}, but the server closed the connection within the header") if ended else None
        if status >= 200:
            return _judge_body(data, line_end, body, status, ended, rules)
        start = body


def _without_status(data: bytes, start: int, ended: bool) -> Judgement | None:
    if len(data) > MAX_HEADER:
        return FAIL, f"the status line is longer than {MAX_HEADER // 1024} KiB"
    if not ended:
        return None
    if len(data) == start:
        return FAIL, "the server closed the connection without an answer"
    return FAIL, f"the server closed the connection within the status line: {printable(data[start:], 60)!r}"


def _status(data: bytes, start: int) -> int:
    """The status code of the line at `start`, -1 when it is not a status line of HTTP/1."""
    code = data[start + 9 : start + 12]
    if data[start : start + 7] != b"HTTP/1." or data[start + 8 : start + 9] != b" " or not code.isdigit():
        return -1
    if len(code) != 3 or data[start + 12 : start + 13] not in (b" ", b"\r", b"\n"):
        return -1
    return int(code) if code >= b"100" else -1


def _header_end(data: bytes, line_end: int) -> int:
    """Where the body begins, -1 while the header is incomplete. Bare line feeds are accepted because some servers send them."""
    usual = data.find(b"\n\r\n", line_end)
    bare = data.find(b"\n\n", line_end, usual if usual >= 0 else len(data))
    if bare >= 0:
        return bare + 2
    return usual + 3 if usual >= 0 else -1


def _judge_body(data: bytes, line_end: int, body: int, status: int, ended: bool, rules: Rules) -> Judgement | None:
    if 300 <= status < 400:
        return _redirect(data, line_end, body, status, rules)
    passed = _PASSED.get(status) or (PASS, f"HTTP {status}")
    received = len(data) - body
    if received >= rules.max_body or status in _NO_BODY:
        return passed
    header = data[line_end:body].lower()
    if b"transfer-encoding:" in header and b"chunked" in header:
        return _chunks(data, body, passed, ended)
    length = _content_length(header)
    if length is None:
        return passed if ended else None
    if length < 0:
        return FAIL, f"{passed[1]}, but Content-Length is malformed"
    if received >= length:
        return passed
    if not ended:
        return None
    return FAIL, f"{passed[1]}, but the server closed the connection after {received} of {length} bytes of the body"


def _content_length(header: bytes) -> int | None:
    """The value of Content-Length: None without one, -1 when it is malformed. `header` is in lower case and begins with a line end."""
    at = header.find(b"\ncontent-length:")
    if at < 0:
        return None
    value = header[at + 16 : header.find(b"\n", at + 16)].strip()
    return int(value) if value.isdigit() and len(value) < 20 else -1


def _chunks(data: bytes, at: int, passed: Judgement, ended: bool) -> Judgement | None:
    """The result of a chunked body of which fewer than `max_body` bytes have arrived, or None while it is incomplete."""
    for _ in range(MAX_CHUNKS):
        line_end = data.find(b"\n", at)
        if line_end < 0:
            break
        size = data[at:line_end].partition(b";")[0].strip()
        if not size or len(size) > 16 or size.strip(_HEX):
            return FAIL, f"{passed[1]}, but a chunk of the body is malformed"
        length = int(size, 16)
        if length == 0:
            return passed
        at = data.find(b"\n", line_end + 1 + length) + 1
        if at == 0:
            break
    else:
        return passed
    return (FAIL, f"{passed[1]}, but the server closed the connection within the body") if ended else None


def _redirect(data: bytes, line_end: int, body: int, status: int, rules: Rules) -> Judgement:
    result = PASS if status in rules.passing else FAIL
    destination = _location(data, line_end, body)
    if not destination:
        return result, f"HTTP {status}"
    follow = FOLLOW if rules.follow and status in REDIRECTS else 0
    return result + follow, f"HTTP {status} to {printable(destination)}"


def _location(data: bytes, line_end: int, body: int) -> bytes:
    at = data[:body].lower().find(b"\nlocation:", line_end)
    return data[at + 10 : data.find(b"\n", at + 10)].strip() if at >= 0 else b""


def location(data: bytes) -> bytes:
    """The value of the Location header of a complete answer; empty without one."""
    start = 0
    while True:
        line_end = data.find(b"\n", start)
        body = _header_end(data, line_end) if line_end >= 0 else -1
        if body < 0:
            return b""
        if _status(data, start) >= 200:
            return _location(data, line_end, body)
        start = body


def waiting_for(data: bytes) -> str:
    """Which part of an answer was missing at the deadline, for messages."""
    if not data:
        return "waiting for the answer"
    start = 0
    while data[start + 9 : start + 10] == b"1":
        body = _header_end(data, start)
        if body < 0:
            break
        start = body
    return "reading the header" if _header_end(data, start) < 0 else "reading the body"
