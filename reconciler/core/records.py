"""Record values as plain data: which family an address has, and the record sets that a set of addresses makes.

Used by `omission`; kept apart because the forms of records will grow with the types.
"""

from collections.abc import Iterable

from providers.facts import RecordKey, RecordSet


def record_type(address: str) -> str:
    """A or AAAA, by the form of a canonical address."""
    return "AAAA" if ":" in address else "A"


def address_sets(host: str, ttl: int, addresses: Iterable[str]) -> dict[RecordKey, RecordSet]:
    """The A and AAAA record sets of a name; a family without addresses has none. TTL in seconds."""
    by_type: dict[str, list[str]] = {}
    for address in sorted(set(addresses)):
        by_type.setdefault(record_type(address), []).append(address)
    return {RecordKey(host, kind): RecordSet(ttl, tuple(values)) for kind, values in sorted(by_type.items())}


def owner_mark(instance: str, key: str) -> str:
    """The owner mark of a record set: `<instance>/<object key>`."""
    return f"{instance}/{key}"


def owner_of(mark: str) -> tuple[str, str]:
    """(instance, object key) of an owner mark; the key is empty when there is none."""
    instance, _, key = mark.partition("/")
    return instance, key
