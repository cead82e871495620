"""What a DNS provider can express and promise. Declared by providers, carried by each look at a zone, read by the core.

Records are adapted to it before they are compared (`reconciler.core.dns.records`), so that what a provider cannot hold is never
written again and again; a provider refuses whatever it declares not to have (`providers.dns.common.change`).
"""

from dataclasses import dataclass
from enum import StrEnum

from manifests.values.geo import GeoKind, country_code, geo_kind

MAX_TTL = 2**31 - 1
"""The largest TTL in seconds (RFC 2181 section 8)."""


class Alias(StrEnum):
    """Which names an alias set (addresses by the name that has them) may point at. It may stand at the top of a zone."""

    NONE = "none"
    ZONE = "zone"
    """Names that have a record set of the same type in the same zone."""
    ANY = "any"


class Atomic(StrEnum):
    """What is written all or nothing."""

    ACTION = "action"
    """All changes of one action."""
    BATCH = "batch"
    """As many changes as fit into one batch; larger actions are split between names, in their order."""
    SET = "set"
    """Each record set alone."""


class Write(StrEnum):
    """Who compares what the plan saw with what is there."""

    COMPARED = "compared"
    """The other side does, in the moment of writing: nobody else's change is ever overwritten."""
    LOOKED = "looked"
    """The provider does, in a look right before writing; a change within that moment is overwritten, and found by reading back."""


class ReadBack(StrEnum):
    """What a look can see."""

    ZONE = "zone"
    """Everything in the zone."""
    NAMES = "names"
    """Record sets that this instance asked for at some time, and no others."""


@dataclass(frozen=True, slots=True)
class DNSCapabilities:
    """What one provider can do with record sets.

    Attributes:
        types: record types that it takes; empty = every type.
        weight: the least and the largest weight of a weighted member (inclusive); None = no weighted sets.
        geo: kinds of places that a geo member may be for; empty = no geo sets.
        subdivisions: countries (two letters) whose subdivisions it knows, where `geo` has subdivisions; empty = all.
        alias: names that an alias set may point at.
        ttl_min, ttl_max: the range of TTLs in seconds (inclusive).
        atomic: what is written all or nothing.
        batch_changes: changes in one batch, 0 = no limit. A set that replaces another may count twice.
        batch_octets: octets (or characters) of all values in one batch, 0 = no limit.
        write: who compares before writing.
        read_back: what a look can see.
    """

    types: frozenset[str] = frozenset()
    weight: tuple[int, int] | None = None
    geo: frozenset[GeoKind] = frozenset()
    subdivisions: frozenset[str] = frozenset()
    alias: Alias = Alias.NONE
    ttl_min: int = 0
    ttl_max: int = MAX_TTL
    atomic: Atomic = Atomic.ACTION
    batch_changes: int = 0
    batch_octets: int = 0
    write: Write = Write.LOOKED
    read_back: ReadBack = ReadBack.ZONE

    def places(self, geo: str) -> bool:
        """Whether a member can be for this place."""
        kind = geo_kind(geo)
        if kind is None or kind not in self.geo:
            return False
        return kind is not GeoKind.SUBDIVISION or not self.subdivisions or country_code(geo) in self.subdivisions


PLAIN = DNSCapabilities()
"""Plain record sets of every type: what a provider can do that declares nothing."""
