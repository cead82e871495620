"""Converts record sets to the form of PowerDNS's HTTP API and back. Pure; used by `provider.py`.

PowerDNS answers 422 to every spelling of a value but its own, so values are sent in that. Types that exist only in PowerDNS,
such as LUA and ALIAS, are read as they are and never written.
"""

import re
from collections.abc import Iterable
from typing import Any

from manifests.types import record_types
from providers.dns.common import canonical
from providers.facts import RecordKey, RecordSet

PARAMETERS = frozenset(
    kind for kind, row in record_types.TABLE.items() if any(field.label == "PARAMETERS" for field in row.fields)
)
"""Types whose values have parameters, `key=value` (RFC 9460 section 2.1)."""

BARE_PARAMETER = re.compile(r' (mandatory|alpn|port|ipv4hint|ipv6hint)="([!#-\[\]-~]*)"')
"""A quoted parameter that PowerDNS writes without quotes."""


EMPTY = "\\# 0"
"""A value without octets, of a type without a name."""


def decode(rrsets: Iterable[Any]) -> dict[RecordKey, RecordSet]:
    """The record sets of an answer, without the SOA.

    Disabled values are not served, so they are left out. A set with only disabled values has no values here, so that it
    counts as existing.

    Raises:
        ValueError: it is not a list of record sets.
    """
    decoded: dict[RecordKey, RecordSet] = {}
    for rrset in rrsets:
        try:
            kind = str(rrset["type"])
            if kind == "SOA":
                continue
            ttl, records = int(rrset["ttl"]), rrset["records"]
            texts = [str(record["content"]) for record in records if not record.get("disabled", False)]
            name = canonical.name(_octets(str(rrset["name"])), ".")
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"a record set is not as expected ({error})") from error
        decoded[RecordKey(name, kind)] = RecordSet(ttl, tuple(sorted({_value(kind, text) for text in texts})))
    return decoded


def encode(key: RecordKey, after: RecordSet | None) -> dict[str, object]:
    """The request that changes a set to `after`; None removes it."""
    if after is None:
        return {"name": key.name, "type": key.type, "changetype": "DELETE"}
    records = [{"content": content(key.type, value), "disabled": False} for value in after.values]
    return {"name": key.name, "type": key.type, "ttl": after.ttl, "changetype": "REPLACE", "records": records}


def content(kind: str, value: str) -> str:
    """A canonical value in PowerDNS's spelling."""
    if kind in PARAMETERS:
        return BARE_PARAMETER.sub(r" \1=\2", value)
    if kind == "LOC" and value.count("m") == 1:
        return " ".join([value, *record_types.LOCATION_SIZES])
    if kind.startswith("TYPE") and value == EMPTY:
        return EMPTY + " "
    return value


def _value(kind: str, text: str) -> str:
    try:
        return canonical.value(canonical.type_name(kind), _octets(text), ".")
    except ValueError:
        return text


def _octets(text: str) -> str:
    """One character per octet, as the canonical spelling wants it."""
    return text if text.isascii() else text.encode().decode("latin-1")
