"""Names of a balanced host's tree: host -> balancer name -> place -> target. Pure; used where manifests are checked and by the core.

All names derive from the host and from names in manifests, never from addresses or the order of a list, so they stay the
same while targets come and go, on every machine.
"""

from functools import lru_cache
from hashlib import sha256

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

LABEL = 6
"""Characters of a target's label: 36**6 labels are enough for the few targets of one host; equal labels are refused."""

NO_PLACE = "default"
"""The label of the place of all clients."""

LONGEST = len("klb-wildcard.") + LABEL + 1
"""Characters by which the longest name of a tree is longer than its host."""


def balancer_name(host: str) -> str:
    """The name that a balanced host points at. That of `*.x` differs from that of `x`."""
    if host.startswith("*."):
        return f"klb-wildcard.{host[2:]}"
    return f"klb.{host}"


def place_name(host: str, geo: str) -> str:
    """The name of all targets of one place; `geo` empty is the place of all clients."""
    return f"{geo.lower() or NO_PLACE}.{balancer_name(host)}"


@lru_cache(maxsize=65_536)  # needed for every target at every decision
def target_label(target: str) -> str:
    """Six characters that stand for a target's name: the first base-36 digits of a hash of it."""
    number = int.from_bytes(sha256(target.encode()).digest()[:8], "big")
    label = ""
    for _ in range(LABEL):
        number, digit = divmod(number, 36)
        label += _DIGITS[digit]
    return label


def target_name(host: str, target: str) -> str:
    """The name that has the addresses of one target."""
    return f"{target_label(target)}.{balancer_name(host)}"


def within(name: str, zone: str) -> bool:
    """Whether a name is the zone itself or lies below it."""
    return name == zone or name.endswith("." + zone)
