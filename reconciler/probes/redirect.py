"""Decides whether a probe follows a redirect. Pure; used by `http.py` and `stream.py`, in the child process.

A probe follows only redirects to the same place: the same scheme, and a host that is the probed address or the Host that was
sent. The next request always goes to the same address and port, so that no server can send a probe anywhere else.
"""

from reconciler.probes.answer import FOLLOW, Judgement, location
from reconciler.probes.request import authority
from reconciler.probes.slot import Slot, printable
from reconciler.probes.streak import FAIL

MAX_HOPS = 10
"""Most redirects that one probe follows, as in Kubernetes (Go's HTTP client stops after ten)."""

_MAX_PATH = 4096
"""Longest path of a redirect, bytes; a longer one is not followed."""

_PORTS = {"http": ":80", "https": ":443"}


def follow_redirect(slot: Slot, judgement: Judgement, data: bytes, scheme: str) -> Judgement | None:
    """The result of an answer; None for a redirect to follow, whose request is then `slot.hop`.

    Args:
        slot: with the redirected request (`hop`, else `request`) and its address.
        judgement: of the answer, by `answer.judge`.
        data: the answer.
        scheme: the probe's scheme, `http` or `https`.
    """
    result, detail = judgement
    if result & FOLLOW:
        result -= FOLLOW
        request = _next_request(slot, location(data), scheme)
        count = slot.hop[1] if slot.hop is not None else 0
        if request is not None and count >= MAX_HOPS:
            return FAIL, f"{detail}: more than {MAX_HOPS} redirects"
        if request is not None:
            slot.hop = (request, count + 1)
            return None
    return result, detail if slot.hop is None else detail + redirect_note(slot)


def _next_request(slot: Slot, location_header: bytes, scheme: str) -> bytes | None:
    """The request that follows a redirect; None when it leads to another place."""
    from urllib.parse import urljoin, urlsplit  # noqa: PLC0415  (loaded with the first redirect)

    request = slot.hop[0] if slot.hop is not None else slot.request
    line_end = request.index(b" HTTP/1.1\r\n")
    path = request[4:line_end].decode("latin-1")
    hosts = _hosts(request, slot.sockaddr, scheme)
    try:
        target = urlsplit(urljoin(f"{scheme}://{hosts[0]}{path}", location_header.decode("utf-8", errors="replace")))
    except ValueError:
        return None
    if target.scheme.lower() != scheme or target.netloc.lower() not in hosts:
        return None
    next_path = (target.path or "/") + (f"?{target.query}" if target.query else "")
    if len(next_path) > _MAX_PATH or not next_path.startswith("/"):
        return None
    raw = next_path.encode("utf-8", errors="replace")
    encoded = b"".join(bytes((byte,)) if 0x21 <= byte <= 0x7E else b"%%%02X" % byte for byte in raw)
    return b"GET " + encoded + request[line_end:]


def _hosts(request: bytes, sockaddr: tuple[object, ...], scheme: str) -> list[str]:
    """The names of the same place, in lower case: the Host that was sent, then the address, each with and without port."""
    names: list[str] = []
    for line in request.split(b"\r\n"):
        if line[:5].lower() == b"host:":
            names.append(line[5:].strip().decode("latin-1").lower())
    names.append(authority(str(sockaddr[0]), int(str(sockaddr[1]))).lower())
    port = _PORTS[scheme]
    return names + [name.removesuffix(port) if name.endswith(port) else f"{name}{port}" for name in names]


def redirect_note(slot: Slot) -> str:
    """The suffix for messages about a run that followed redirects; empty without redirects."""
    if slot.hop is None:
        return ""
    request, count = slot.hop
    path = request[4 : request.index(b" HTTP/1.1\r\n")]
    return f" after {count} redirect{'s' if count > 1 else ''}, at {printable(path)}"
