"""Which addresses a probe of a name's leaf must not reach: pure, asked for each address right before connecting to it.

Whoever may write a DNSPolicy or HealthCheck, or answer for a host name in one, could otherwise have this host ask its own
services, or a cloud's metadata server, and read the answers in a status. Probes of containers go to observed addresses and are
not asked about here. Used by `target.py` (the parent) and `named.py` (the child).
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
"""Addresses of cloud metadata and platform services that are not link-local, from the providers' own documentation."""

_METADATA = {ip_address(text) for text in METADATA}
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the IPv4 address is in the last 32 bits
_THIS_NETWORK = IPv4Network("0.0.0.0/8")  # RFC 1122: "this host on this network"; Linux takes 0.0.0.0 for loopback
_BROADCAST = IPv4Address("255.255.255.255")


def refusal(address: str, allowed: tuple[str, ...]) -> str:
    """Why a probe must not connect to this address; empty when it may.

    Args:
        address: an IP address, IPv6 with or without a zone.
        allowed: networks that are allowed whatever they are, in CIDR form.

    Raises:
        ValueError: one of them is no address or network.
    """
    found = ip_address(address.partition("%")[0])
    kind = next((kind for one in (found, *_inside(found)) if (kind := _kind(one))), "")
    if not kind or any(found.version == net.version and found in net for net in map(_network, allowed)):
        return ""
    return f"{found} is {kind}, which no probe of a name may reach; if that is meant, add it to allowAddresses of the Instance"


def _inside(address: Address) -> list[IPv4Address]:
    """IPv4 addresses that an IPv6 address leads to: mapped (RFC 4291), 6to4 (RFC 3056) and NAT64 (RFC 6052)."""
    if isinstance(address, IPv4Address):
        return []
    found = [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
    return [*found, IPv4Address(int(address) & 0xFFFFFFFF)] if address in _NAT64 else found


def _kind(address: Address) -> str:
    if address in _METADATA:
        return "a metadata address"
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address"
    if address.is_unspecified or (isinstance(address, IPv4Address) and address in _THIS_NETWORK):
        return "an unspecified address"
    return "no address of one host" if address.is_multicast or address == _BROADCAST else ""


@lru_cache(maxsize=256)
def _network(text: str) -> Network:
    return ip_network(text)
