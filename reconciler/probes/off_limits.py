"""Addresses that a probe of a DNS target must not connect to. Checked for each address right before connecting.

Without this check, an author of a DNSPolicy or HealthCheck, or the DNS server of a host name in one, could make this host probe
its own services or a cloud's metadata server and read the answers in a status. Probes of containers go to observed addresses and
are not checked. Used by `target.py` (parent), `named.py` and `net.py` (child).
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from reconciler.probes.own_addresses import is_own

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

METADATA = {
    "100.100.100.200": "Alibaba Cloud",
    "168.63.129.16": "Azure",
    "192.0.0.192": "Oracle Cloud",
    "fd00:42::42": "Scaleway",
    "fd00:ec2::254": "Amazon EC2",
    "fd20:ce::254": "Google Cloud",
}
"""Addresses of cloud metadata and platform services that are not link-local, from the documentation of these clouds."""

SPECIAL = {
    "0.0.0.0/8": "an unspecified address",  # RFC 791; Linux treats 0.0.0.0 as loopback
    "127.0.0.0/8": "a loopback address",  # RFC 1122
    "169.254.0.0/16": "a link-local address",  # RFC 3927
    "192.0.0.0/24": "an address for protocol assignments",  # RFC 6890
    "192.88.99.0/24": "an address of 6to4 relays",  # RFC 7526
    "224.0.0.0/4": "a multicast or broadcast address",  # RFC 5771
    "240.0.0.0/4": "a reserved address",  # RFC 1112
    "255.255.255.255/32": "a multicast or broadcast address",  # RFC 919
    "::/128": "an unspecified address",  # RFC 4291
    "::1/128": "a loopback address",  # RFC 4291
    "100::/64": "a discard-only address",  # RFC 6666
    "100:0:0:1::/64": "a dummy address",  # RFC 9780
    "2001::/23": "an address for protocol assignments",  # RFC 2928: among them Teredo, benchmarking, ORCHID
    "5f00::/16": "a segment identifier",  # RFC 9602
    "fe80::/10": "a link-local address",  # RFC 4291
    "fec0::/10": "a site-local address",  # RFC 3879
    "ff00::/8": "a multicast or broadcast address",  # RFC 4291
}
"""Networks that lead to no service of their own, with what they are.

Source: the IANA special-purpose address registries for IPv4 and IPv6 (RFC 6890), as of 2025-10, with the multicast registries. Left
out are networks that are used like any other behind a router: private use (RFC 1918, 4193, 6598), documentation (RFC 5737, 3849,
9637), benchmarking (RFC 2544), AS112 (RFC 7534, 7535); and those that only wrap an IPv4 address, which is judged itself (`_embedded`).
The longest network that contains an address counts.
"""

ANYCAST = (
    "192.0.0.9/32",
    "192.0.0.10/32",
    "2001:1::1/128",
    "2001:1::2/128",
    "2001:1::3/128",
    "2001:3::/32",
    "2001:4:112::/48",
)
"""Parts of `SPECIAL` that the registries list as globally reachable."""

_METADATA = {ip_address(text) for text in METADATA}
_MAPPED = IPv6Network("::ffff:0:0/96")  # RFC 4291
_TRANSLATED = IPv6Network("::ffff:0:0:0/96")  # RFC 2765: "IPv4-translated"
_COMPATIBLE = IPv6Network("::/96")  # RFC 4291, deprecated
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052, well-known prefix
_NAT64_LOCAL = IPv6Network(
    "64:ff9b:1::/48"
)  # RFC 8215: prefixes of /48 to /96 in it, the IPv4 address where RFC 6052 puts it
_TEREDO = IPv6Network("2001::/32")  # RFC 4380
_ISATAP = (0x00005EFE, 0x02005EFE)  # RFC 5214: the upper half of the interface identifier


def refusal(address: str, allowed: tuple[str, ...]) -> str:
    """Why a probe must not connect to this address; empty when it may.

    Args:
        address: an IP address, IPv6 with or without a zone.
        allowed: networks that are always allowed, in CIDR form.

    Raises:
        ValueError: an argument is not an address or network.
    """
    ip = ip_address(address.partition("%")[0])
    if any(ip.version == net.version and ip in net for net in map(_network, allowed)):
        return ""
    kind = next((kind for candidate in (ip, *_embedded(ip)) if (kind := _kind(candidate))), "")
    if not kind:
        return ""
    return f"{ip} is {kind} and off limits for probes of DNS targets: to permit it, add it to allowAddresses of the Instance"


def _embedded(address: Address) -> list[IPv4Address]:
    """The IPv4 addresses inside an IPv6 address, by each scheme that puts one there."""
    if isinstance(address, IPv4Address):
        return []
    number = int(address)
    embedded = [] if address.sixtofour is None else [address.sixtofour]  # RFC 3056
    if any(address in net for net in (_MAPPED, _TRANSLATED, _COMPATIBLE, _NAT64)) and number > 1:
        embedded.append(IPv4Address(number & 0xFFFFFFFF))
    if address in _NAT64_LOCAL:
        # RFC 6052, section 2.2: bits 64 to 71 are zero, and the address is around them, by the length of the prefix.
        without = number >> 64 << 56 | number & (1 << 56) - 1
        found = [*(without >> 120 - size - 32 & 0xFFFFFFFF for size in (48, 56, 64)), number & 0xFFFFFFFF]
        embedded += [IPv4Address(ipv4) for ipv4 in found if ipv4 >> 24]  # else the prefix has another length
    if address in _TEREDO:
        embedded += [IPv4Address(number >> 64 & 0xFFFFFFFF), IPv4Address(~number & 0xFFFFFFFF)]
    if number >> 32 & 0xFFFFFFFF in _ISATAP:
        embedded.append(IPv4Address(number & 0xFFFFFFFF))
    return embedded


def _kind(address: Address) -> str:
    """What makes this address special now; empty for an ordinary one."""
    if address in _METADATA:
        return "a metadata address"
    if not any(address in net for net in _anycast()):
        special = next((kind for net, kind in _special() if address.version == net.version and address in net), "")
        if special:
            return special
    own = is_own(address)
    if own is None:
        return "perhaps an address of this host (the kernel does not say)"
    return "an address of this host" if own else ""


@lru_cache(maxsize=1)
def _special() -> tuple[tuple[Network, str], ...]:
    """The table, longest networks first."""
    table = [(ip_network(text), kind) for text, kind in SPECIAL.items()]
    return tuple(sorted(table, key=lambda row: -row[0].prefixlen))


@lru_cache(maxsize=1)
def _anycast() -> tuple[Network, ...]:
    return tuple(map(ip_network, ANYCAST))


@lru_cache(maxsize=256)
def _network(text: str) -> Network:
    return ip_network(text)
