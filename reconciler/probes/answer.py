"""What an HTTP answer says, judged from the bytes so far: pure, shared by plain and TLS probes.

- 200 to 399 passes; a redirect passes without being followed. Any other status fails as soon as the status line is there.
- Interim answers (100 to 199, but 101) are skipped.
- A passing answer counts once its header and the first 10 KiB of its body are there, or all of it when it is shorter:
  "200" and then silence is a failure, an endless body is not. This is the amount that Kubernetes reads.
- A connection that ends before that, a malformed status line or chunk, and a header over 64 KiB fail.
"""

from reconciler.probes.slot import printable
from reconciler.probes.streak import FAIL, PASS

MAX_HEADER = 64 * 1024
"""Bytes of status line and header (interim answers included)."""

MAX_BODY = 10 * 1024
"""Bytes of the body that are waited for: Kubernetes' maxRespBodyLength."""

Judgement = tuple[int, str]
_PASSED = {status: (PASS, f"HTTP {status}") for status in range(200, 300)}
_NO_BODY = (204, 304)
_HEX = b"0123456789abcdefABCDEF"


def judge(data: bytes, ended: bool) -> Judgement | None:
    """The result of an answer, or None while more of it is needed.

    Args:
        data: all bytes received so far.
        ended: the other side has closed, nothing more will come.
    """
    start = 0
    while True:
        line_end = data.find(b"\n", start)
        if line_end < 0:
            return _short(data, start, ended)
        status = _status(data, start)
        if status < 0:
            return FAIL, f"not an HTTP answer: {printable(data[start:line_end], 60)!r}"
        if (status >= 400 or status < 200) and (status >= 200 or status == 101):
            return FAIL, f"HTTP {status}"
        body = _header_end(data, line_end)
        if body < 0:
            if len(data) > MAX_HEADER:
                return FAIL, f"HTTP {status}, then a header of more than {MAX_HEADER // 1024} KiB"
            return (FAIL, f"HTTP {status}, then closed in the header") if ended else None
        if status >= 200:
            return _with_body(data, line_end, body, status, ended)
        start = body


def _short(data: bytes, start: int, ended: bool) -> Judgement | None:
    if len(data) > MAX_HEADER:
        return FAIL, f"no end of the status line within {MAX_HEADER // 1024} KiB"
    if not ended:
        return None
    if len(data) == start:
        return FAIL, "closed before an answer"
    return FAIL, f"closed within the status line: {printable(data[start:], 60)!r}"


def _status(data: bytes, start: int) -> int:
    """The status code of the line at `start`, -1 when it is not a status line of HTTP/1."""
    code = data[start + 9 : start + 12]
    if data[start : start + 7] != b"HTTP/1." or data[start + 8 : start + 9] != b" " or not code.isdigit():
        return -1
    if len(code) != 3 or data[start + 12 : start + 13] not in (b" ", b"\r", b"\n"):
        return -1
    return int(code) if code >= b"100" else -1


def _header_end(data: bytes, line_end: int) -> int:
    """Where the body begins, -1 while the header is not complete. Bare line feeds are accepted, as servers send them."""
    usual = data.find(b"\n\r\n", line_end)
    bare = data.find(b"\n\n", line_end, usual if usual >= 0 else len(data))
    if bare >= 0:
        return bare + 2
    return usual + 3 if usual >= 0 else -1


def _with_body(data: bytes, line_end: int, body: int, status: int, ended: bool) -> Judgement | None:
    if status >= 300:
        return PASS, _redirect(data, line_end, body, status)
    passed = _PASSED[status]
    have = len(data) - body
    if have >= MAX_BODY or status in _NO_BODY:
        return passed
    header = data[line_end:body].lower()
    if b"transfer-encoding:" in header and b"chunked" in header:
        return _chunks(data, body, passed, ended)
    wanted = _content_length(header)
    if wanted is None:
        return passed if ended else None
    if wanted < 0:
        return FAIL, f"{passed[1]}, with a malformed Content-Length"
    if have >= wanted:
        return passed
    return (FAIL, f"{passed[1]}, then closed after {have} of {wanted} bytes of the body") if ended else None


def _content_length(header: bytes) -> int | None:
    """Its value, None without one, -1 when it is malformed. `header` is in lower case and begins with a line end."""
    at = header.find(b"\ncontent-length:")
    if at < 0:
        return None
    value = header[at + 16 : header.find(b"\n", at + 16)].strip()
    return int(value) if value.isdigit() and len(value) < 20 else -1


def _chunks(data: bytes, at: int, passed: Judgement, ended: bool) -> Judgement | None:
    """Whether a chunked body of less than MAX_BODY bytes on the wire is complete."""
    while True:
        line_end = data.find(b"\n", at)
        if line_end < 0:
            break
        size = data[at:line_end].partition(b";")[0].strip()
        if not size or len(size) > 16 or size.strip(_HEX):
            return FAIL, f"{passed[1]}, with a malformed chunk"
        length = int(size, 16)
        if length == 0:
            return passed
        at = data.find(b"\n", line_end + 1 + length) + 1
        if at == 0:
            break
    return (FAIL, f"{passed[1]}, then closed within the body") if ended else None


def _redirect(data: bytes, line_end: int, body: int, status: int) -> str:
    at = data[:body].lower().find(b"\nlocation:", line_end)
    if at < 0:
        return f"HTTP {status}"
    place = data[at + 10 : data.find(b"\n", at + 10)]
    return f"HTTP {status} to {printable(place)}"


def waiting_for(data: bytes) -> str:
    """What part of an answer was missing when time ran out, for messages."""
    if not data:
        return "waiting for the answer"
    start = 0
    while data[start + 9 : start + 10] == b"1":
        after = _header_end(data, start)
        if after < 0:
            break
        start = after
    return "reading the header" if _header_end(data, start) < 0 else "reading the body"
