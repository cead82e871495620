"""Where a redirect leads: pure, shared by plain and TLS probes, in the child process.

Only what leads to the same place is followed: the same scheme, and a host that names the address that is being probed or
the Host that was sent. The next request goes to the same address and port whatever the host is called, so that no server
can send a probe anywhere else.
"""

from reconciler.probes.answer import FOLLOW, Judgement, location
from reconciler.probes.request import authority
from reconciler.probes.slot import Slot, printable
from reconciler.probes.streak import FAIL

MAX_HOPS = 10
"""Redirects followed in one probe, as in Kubernetes (Go's HTTP client stops after ten)."""

_LONGEST = 4096
"""Bytes of the path of a redirect; a longer one is not followed."""

_PORTS = {"http": ":80", "https": ":443"}


def followed(slot: Slot, judgement: Judgement, data: bytes, scheme: str) -> Judgement | None:
    """The result of an answer; None when it is a redirect to follow: `slot.hop` is then the next request.

    Args:
        slot: with the request that was redirected (`hop`, else `request`) and the address it went to.
        judgement: of the answer, by `answer.judge`.
        data: the answer.
        scheme: `http` or `https`, what the probe speaks.
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
    return result, detail if slot.hop is None else detail + after(slot)


def _next_request(slot: Slot, place: bytes, scheme: str) -> bytes | None:
    """The request that follows a redirect to `place`; None when that is elsewhere."""
    from urllib.parse import urljoin, urlsplit  # noqa: PLC0415  (loaded with the first redirect)

    request = slot.hop[0] if slot.hop is not None else slot.request
    line_end = request.index(b" HTTP/1.1\r\n")
    path = request[4:line_end].decode("latin-1")
    hosts = _hosts(request, slot.sockaddr, scheme)
    try:
        target = urlsplit(urljoin(f"{scheme}://{hosts[0]}{path}", place.decode("utf-8", errors="replace")))
    except ValueError:
        return None
    if target.scheme.lower() != scheme or target.netloc.lower() not in hosts:
        return None
    asked = (target.path or "/") + (f"?{target.query}" if target.query else "")
    if len(asked) > _LONGEST or not asked.startswith("/"):
        return None
    raw = asked.encode("utf-8", errors="replace")
    encoded = b"".join(bytes((byte,)) if 0x21 <= byte <= 0x7E else b"%%%02X" % byte for byte in raw)
    return b"GET " + encoded + request[line_end:]


def _hosts(request: bytes, sockaddr: tuple[object, ...], scheme: str) -> list[str]:
    """What the place is called, in lower case: the Host that was sent first, then the address, each with and without port."""
    names: list[str] = []
    for line in request.split(b"\r\n"):
        if line[:5].lower() == b"host:":
            names.append(line[5:].strip().decode("latin-1").lower())
    names.append(authority(str(sockaddr[0]), int(str(sockaddr[1]))).lower())
    usual = _PORTS[scheme]
    return names + [name.removesuffix(usual) if name.endswith(usual) else f"{name}{usual}" for name in names]


def after(slot: Slot) -> str:
    """What to add to a message about a run that followed redirects; empty when there were none."""
    if slot.hop is None:
        return ""
    request, count = slot.hop
    path = request[4 : request.index(b" HTTP/1.1\r\n")]
    return f" after {count} redirect{'s' if count > 1 else ''}, at {printable(path)}"
