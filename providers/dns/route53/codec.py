r"""Converts record sets to the form of Amazon Route 53 and back. Pure; used by `provider.py`.

Route 53 writes octets other than a-z, 0-9, hyphen, underscore and dot of a name as `\ooo`, three *octal* digits (so `*` is
`\052`), and octets of a text likewise; zone files have decimal digits there.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from manifests.values.geo import CONTINENTS, DEFAULT, country_code, country_geo
from providers.dns.common import canonical
from providers.facts import RecordKey, RecordSet

Raw = Mapping[str, Any]

ESCAPE = re.compile(r"\\(\d{3}|.)", re.DOTALL)
PLAIN_NAME = re.compile(r"[a-z0-9_.-]*")


class Stored(NamedTuple):
    """A record set, and its form in Route 53: a deletion must name exactly that form."""

    record: RecordSet
    raw: Raw


def decode(raw: Raw) -> tuple[RecordKey, Stored]:
    """One record set of an answer. A routed set of a policy that we do not support has neither weight nor place.

    Raises:
        ValueError: it is not a record set.
    """
    try:
        kind = str(raw["Type"])
        key = RecordKey(canonical.name(decimal(str(raw["Name"])), "."), kind, str(raw.get("SetIdentifier", "")))
        geo = _geo(raw["GeoLocation"]) if raw.get("GeoLocation") else ""
        weight = int(raw["Weight"]) if raw.get("Weight") is not None else None
        alias = raw.get("AliasTarget")
        if alias:
            target = canonical.name(decimal(str(alias["DNSName"])), ".")
            return key, Stored(RecordSet(0, (target,), weight, geo, True), raw)
        texts = [decimal(str(record["Value"])) for record in raw.get("ResourceRecords") or ()]
        values = tuple(sorted({_value(kind, text) for text in texts}))
        return key, Stored(RecordSet(int(raw.get("TTL") or 0), values, weight, geo), raw)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a record set is not as expected ({error})") from error


def encode(key: RecordKey, record: RecordSet, zone_id: str, before: Raw | None) -> dict[str, Any]:
    """A record set for Route 53. A health check that is attached to the set before (`before`) is kept."""
    row: dict[str, Any] = {"Name": octal_name(key.name), "Type": key.type}
    if key.set_id:
        row["SetIdentifier"] = key.set_id
    if record.weight is not None:
        row["Weight"] = record.weight
    if record.geo:
        row["GeoLocation"] = _location(record.geo)
    if before is not None and before.get("HealthCheckId"):
        row["HealthCheckId"] = before["HealthCheckId"]
    if record.alias:
        target = octal_name(record.values[0])
        row["AliasTarget"] = {"HostedZoneId": zone_id, "DNSName": target, "EvaluateTargetHealth": False}
    else:
        row["TTL"] = record.ttl
        row["ResourceRecords"] = [{"Value": octal(value)} for value in record.values]
    return row


def octal_name(name: str) -> str:
    """A canonical name with Route 53's escapes."""
    if PLAIN_NAME.fullmatch(name):
        return name
    return re.sub(r"[^a-z0-9_.\\-]", lambda match: f"\\{ord(match[0]):03o}", _escapes(name, _octal_always))


def octal(value: str) -> str:
    """A canonical value with Route 53's escapes."""
    return _escapes(value, _octal_digits) if "\\" in value else value


def decimal(text: str) -> str:
    """A name or value of Route 53 with the escapes of zone files."""
    return _escapes(text, _decimal) if "\\" in text else text


def characters(raw: Raw) -> int:
    """Characters of all values of a set, which the limit of a batch counts."""
    return sum(len(record["Value"]) for record in raw.get("ResourceRecords") or ())


def _escapes(text: str, convert: Callable[[re.Match[str]], str]) -> str:
    return ESCAPE.sub(convert, text)


def _octal_always(match: re.Match[str]) -> str:
    body = match[1]
    return f"\\{int(body):03o}" if len(body) == 3 else f"\\{ord(body):03o}"


def _octal_digits(match: re.Match[str]) -> str:
    return f"\\{int(match[1]):03o}" if len(match[1]) == 3 else match[0]


def _decimal(match: re.Match[str]) -> str:
    if len(match[1]) != 3:
        return match[0]
    try:
        octet = int(match[1], 8)
    except ValueError:
        return match[0]  # not octal: an escape of zone files
    if octet == ord("*"):
        return "*"
    return f"\\{octet:03d}" if octet < 256 else match[0]


def _value(kind: str, text: str) -> str:
    latin = text if text.isascii() else text.encode().decode("latin-1")
    try:
        return canonical.value(kind, latin, ".")
    except ValueError:
        return text  # Route 53 accepts invalid values: they are compared as they are


def _geo(place: Mapping[str, str]) -> str:
    if place.get("ContinentCode"):
        return place["ContinentCode"]
    country = place["CountryCode"]
    if place.get("SubdivisionCode"):
        return f"{country}-{place['SubdivisionCode']}"
    return country if country == DEFAULT else country_geo(country)


def _location(geo: str) -> dict[str, str]:
    if geo in CONTINENTS:
        return {"ContinentCode": geo}
    if geo == DEFAULT:
        return {"CountryCode": DEFAULT}
    country, _, subdivision = geo.partition("-")
    if subdivision:
        return {"CountryCode": country, "SubdivisionCode": subdivision}
    return {"CountryCode": country_code(geo)}
