"""Addresses that a probe of a DNS target must not connect to. Pure; checked for each address right before connecting.

Without this check, an author of a DNSPolicy or HealthCheck, or the DNS server of a host name in one, could make this host probe
its own services or a cloud's metadata server and read the answers in a status. Probes of containers go to observed addresses and
are not checked. Used by `target.py` (parent) and `named.py` (child).
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

METADATA = {
    "100.100.100.200": "Alibaba Cloud",
    "168.63.129.16": "Azure",
    "192.0.0.192": "Oracle Cloud",
    "fd00:ec2::254": "Amazon EC2",
    "fd20:ce::254": "Google Cloud",
}
"""Addresses of cloud metadata and platform services that are not link-local, from the documentation of these clouds."""

_METADATA = {ip_address(text) for text in METADATA}
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the IPv4 address is in the last 32 bits
_THIS_NETWORK = IPv4Network("0.0.0.0/8")  # RFC 1122: "this host on this network"; Linux treats 0.0.0.0 as loopback
_BROADCAST = IPv4Address("255.255.255.255")


def refusal(address: str, allowed: tuple[str, ...]) -> str:
    """Why a probe must not connect to this address; empty when it may.

    Args:
        address: an IP address, IPv6 with or without a zone.
        allowed: networks that are always allowed, in CIDR form.

    Raises:
        ValueError: an argument is not an address or network.
    """
    ip = ip_address(address.partition("%")[0])
    kind = next((kind for candidate in (ip, *_embedded(ip)) if (kind := _kind(candidate))), "")
    if not kind or any(ip.version == net.version and ip in net for net in map(_network, allowed)):
        return ""
    return f"{ip} is {kind} and off limits for probes of DNS targets: to permit it, add it to allowAddresses of the Instance"


def _embedded(address: Address) -> list[IPv4Address]:
    """The IPv4 addresses inside an IPv6 address: mapped (RFC 4291), 6to4 (RFC 3056) and NAT64 (RFC 6052)."""
    if isinstance(address, IPv4Address):
        return []
    embedded = [ipv4 for ipv4 in (address.ipv4_mapped, address.sixtofour) if ipv4 is not None]
    return [*embedded, IPv4Address(int(address) & 0xFFFFFFFF)] if address in _NAT64 else embedded


def _kind(address: Address) -> str:
    if address in _METADATA:
        return "a metadata address"
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address"
    if address.is_unspecified or (isinstance(address, IPv4Address) and address in _THIS_NETWORK):
        return "an unspecified address"
    return "a multicast or broadcast address" if address.is_multicast or address == _BROADCAST else ""


@lru_cache(maxsize=256)
def _network(text: str) -> Network:
    return ip_network(text)
