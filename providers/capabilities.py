"""The capabilities of a DNS provider. Providers declare them, each look at a zone carries them, and the core reads them.

The core adapts records to them before it compares (`reconciler.core.dns.capabilities_fit`), so that a set that a provider cannot
hold is not written again and again. A provider refuses what it does not declare (`providers.dns.common.change`).
"""

from dataclasses import dataclass
from enum import StrEnum

from manifests.values.geo import GeoKind, country_code, geo_kind

MAX_TTL = 2**31 - 1
"""The largest TTL in seconds (RFC 2181 section 8)."""


class Alias(StrEnum):
    """Which names an alias set may point at. An alias answers with the addresses of another name, also at the top of a zone."""

    NONE = "none"
    ZONE = "zone"
    """Names that have a record set of the same type in the same zone."""
    ANY = "any"


class Atomic(StrEnum):
    """The unit that is written all or nothing."""

    ACTION = "action"
    """All changes of one action."""
    BATCH = "batch"
    """The changes that fit into one batch; a larger action is split between names, in order."""
    SET = "set"
    """Each record set alone."""


class Write(StrEnum):
    """Who compares what the plan saw with the present records."""

    COMPARED = "compared"
    """The other side, when it writes: a change by another writer is never overwritten."""
    LOOKED = "looked"
    """The provider, in a look right before it writes: a change in between is overwritten, and reading back finds it."""


class ReadBack(StrEnum):
    """What a look can observe."""

    ZONE = "zone"
    """Everything in the zone."""
    NAMES = "names"
    """Record sets that this instance asked for at some time, and no others."""


@dataclass(frozen=True, slots=True)
class DNSCapabilities:
    """What a provider can do with record sets.

    Attributes:
        types: record types that it holds; empty = every type.
        weight: the least and the largest weight of a weighted member (inclusive); None = no weighted sets.
        geo: kinds of places of a geo member; empty = no geo sets.
        subdivisions: countries (two letters) whose subdivisions are known, if `geo` has subdivisions; empty = all.
        alias: names that an alias set may point at.
        ttl_min, ttl_max: the range of TTLs in seconds (inclusive).
        atomic: the unit that is written all or nothing.
        batch_changes: changes in one batch, 0 = no limit. A set that replaces another may count twice.
        batch_octets: octets (or characters) of all values in one batch, 0 = no limit.
        write: who compares before a write.
        read_back: what a look can observe.
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
        """Whether a member can serve this place."""
        kind = geo_kind(geo)
        if kind is None or kind not in self.geo:
            return False
        return kind is not GeoKind.SUBDIVISION or not self.subdivisions or country_code(geo) in self.subdivisions


PLAIN = DNSCapabilities()
"""Plain record sets of every type: the capabilities of a provider that declares none."""
