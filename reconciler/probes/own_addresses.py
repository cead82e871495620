"""Asks the kernel whether an address belongs to this host, as it is now: addresses come and go (a VIP moves, a bridge is made).

The answer is the kernel's own routing decision, so it also covers addresses that no interface lists: whole networks that are routed
to the loopback device, broadcast addresses and anycast addresses. `bind` would not do: with `net.ipv4.ip_nonlocal_bind`, as hosts
with a floating address have it, it accepts every address. Linux only. Used by `off_limits.py`; needs no right.
"""

import socket
import struct
from ipaddress import IPv4Address, IPv6Address

# linux/netlink.h and linux/rtnetlink.h
_NETLINK_ROUTE = 0
_NLM_F_REQUEST = 1
_RTM_NEWROUTE, _RTM_GETROUTE = 24, 26
_RTA_DST = 1
_RTN_LOCAL, _RTN_BROADCAST, _RTN_ANYCAST = 2, 3, 4
_HEADER = struct.Struct("=IHHII")
_ROUTE = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE = struct.Struct("=HH")

_PATIENCE = 1.0
"""Seconds to wait for the kernel, which answers at once."""


def is_own(address: IPv4Address | IPv6Address) -> bool | None:
    """Whether a connection to this address would end at this host; None when the kernel does not say."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    packed = address.packed
    body = _ROUTE.pack(family, 8 * len(packed), 0, 0, 0, 0, 0, 0, 0)
    body += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), _RTA_DST) + packed
    request = _HEADER.pack(_HEADER.size + len(body), _RTM_GETROUTE, _NLM_F_REQUEST, 1, 0) + body
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE) as link:
            link.settimeout(_PATIENCE)
            link.sendto(request, (0, 0))
            answer = link.recv(4096)
    except OSError:
        return None
    if len(answer) < _HEADER.size + _ROUTE.size:
        return False  # an error instead of a route: nothing leads there
    if _HEADER.unpack_from(answer)[1] != _RTM_NEWROUTE:
        return False
    return _ROUTE.unpack_from(answer, _HEADER.size)[7] in {_RTN_LOCAL, _RTN_BROADCAST, _RTN_ANYCAST}
