"""The bytes of an HTTP probe. The parent builds them once per target (`target.py`); the child sends them, with another path after a redirect.

Follows Kubernetes' HTTP probe: GET, a default User-Agent and Accept unless the manifest sets them (an empty value removes them),
Host from the headers of the probe or its `host`. Every probe uses a connection of its own, so `Connection: close` is always sent.
"""

AGENT = "reconciler-probe/1"
_FIXED = frozenset({"connection"})
_DROPPED_IF_EMPTY = frozenset({"user-agent", "accept"})
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def http_request(address: str, port: int, path: str, headers: tuple[tuple[str, str], ...], host: str = "") -> bytes:
    """A complete request without a body. `host` is the Host to send when the headers have none; empty = the address.

    Raises:
        ValueError: a header cannot be sent; the message names it.
    """
    lines = [f"GET {_encoded(path)} HTTP/1.1"]
    names = {name.lower() for name, _ in headers}
    if "host" not in names:
        shown = f"[{host}]" if ":" in host else host
        lines.append(f"Host: {shown or authority(address, port)}")
    if "user-agent" not in names:
        lines.append(f"User-Agent: {AGENT}")
    if "accept" not in names:
        lines.append("Accept: */*")
    for name, value in headers:
        if not name or not _TOKEN.issuperset(name):
            raise ValueError(f"header name {name!r} is not a valid token: use letters, digits and dashes")
        if any(c in "\r\n\0" for c in value):
            raise ValueError(f"the value of header {name} contains a line break or NUL")
        if name.lower() in _FIXED or (not value and name.lower() in _DROPPED_IF_EMPTY):
            continue
        lines.append(f"{name}: {value}")
    lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", errors="surrogateescape")


def authority(address: str, port: int) -> str:
    """`address:port` as in a URL: IPv6 in brackets, without its zone."""
    host = address.partition("%")[0]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def server_name(headers: tuple[tuple[str, str], ...]) -> str:
    """The server name for TLS: the Host header, or empty when it is an address or missing."""
    for name, value in headers:
        if name.lower() == "host":
            host = value.strip()
            if host.startswith("["):
                return ""
            host = host.partition(":")[0]
            return "" if _is_address(host) else host
    return ""


def _is_address(host: str) -> bool:
    from ipaddress import ip_address  # noqa: PLC0415  (the child imports this module too and must start fast)

    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _encoded(path: str) -> str:
    """The path, with all bytes that would break the request line percent-encoded; the rest stays as declared."""
    path = path if path.startswith("/") else f"/{path}"
    if path.isascii() and path.isprintable() and " " not in path:
        return path
    raw = path.encode("utf-8", errors="surrogateescape")
    return "".join(chr(byte) if 0x21 <= byte <= 0x7E else f"%{byte:02X}" for byte in raw)
