"""Places of clients for geo routing: one spelling per place, and which place lies within which.

Used where manifests are checked and where records are adapted to the abilities of a DNS provider. A place is `*` (clients
that no other member of the set is for), a continent, a country, or a subdivision of a country.
"""

import re
from enum import StrEnum

DEFAULT = "*"

CONTINENTS = frozenset({"AF", "AN", "AS", "EU", "NA", "OC", "SA"})
"""Continents by the codes that DNS services and geo databases use: Africa, Antarctica, Asia, Europe, North America, Oceania, South America."""

LONG_COUNTRIES = {"AFG": "AF", "ASM": "AS", "NAM": "NA", "SAU": "SA"}
"""Countries whose two-letter code is that of a continent have their three-letter code (ISO 3166-1 alpha-3): three to two letters."""

_COUNTRY = re.compile(r"[A-Z]{2}")
_SUBDIVISION = re.compile(r"[A-Z]{2}-[A-Z0-9]{1,3}")
"""ISO 3166-2: the country's two letters, a hyphen, and up to three letters or digits."""


class GeoKind(StrEnum):
    """How large a place is."""

    DEFAULT = "default"
    CONTINENT = "continent"
    COUNTRY = "country"
    SUBDIVISION = "subdivision"


def geo_kind(geo: str) -> GeoKind | None:
    """The kind of place of a code in canonical spelling (upper case); None when it is no code."""
    if geo == DEFAULT:
        return GeoKind.DEFAULT
    if geo in CONTINENTS:
        return GeoKind.CONTINENT
    if geo in LONG_COUNTRIES or _COUNTRY.fullmatch(geo):
        return GeoKind.COUNTRY
    return GeoKind.SUBDIVISION if _SUBDIVISION.fullmatch(geo) else None


def country_code(geo: str) -> str:
    """The two-letter code (ISO 3166-1 alpha-2) of a country, or of the country of a subdivision."""
    return LONG_COUNTRIES.get(geo) or geo.partition("-")[0]


def country_geo(code: str) -> str:
    """The canonical place of a country given by its two-letter code."""
    return next((geo for geo, short in LONG_COUNTRIES.items() if short == code), code)
