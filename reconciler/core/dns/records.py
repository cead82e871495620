"""Record sets as plain data: which family an address has, what a set of addresses makes, what points where, what differs.

Used by all modules that publish names.
"""

from collections.abc import Iterable
from typing import NamedTuple

from providers.facts import RecordKey, RecordSet
from reconciler.core.model.reasons import Reason


class RecordDiff(NamedTuple):
    """One record set that should be `after` (None = absent) instead of `before` (None = absent).

    `edited` tells that it goes because its manifest does not name it any more, not for health. `note` says what is published
    otherwise than asked for, because the provider cannot hold it.
    """

    object: str
    provider: str
    zone: str
    key: RecordKey
    before: RecordSet | None
    after: RecordSet | None
    reason: Reason
    edited: bool = False
    note: str = ""


def record_type(address: str) -> str:
    """A or AAAA, by the form of a canonical address."""
    return "AAAA" if ":" in address else "A"


def address_sets(host: str, ttl: int, addresses: Iterable[str]) -> dict[RecordKey, RecordSet]:
    """The A and AAAA record sets of a name; a family without addresses has none. TTL in seconds."""
    ordered = sorted(set(addresses))
    aaaa = [address for address in ordered if record_type(address) == "AAAA"]
    a = [address for address in ordered if record_type(address) == "A"] if aaaa else ordered
    return {RecordKey(host, kind): RecordSet(ttl, tuple(those)) for kind, those in (("A", a), ("AAAA", aaaa)) if those}


def owner_mark(instance: str, key: str) -> str:
    """The owner mark of a record set: `<instance>/<object key>`."""
    return f"{instance}/{key}"


def owner_of(mark: str) -> tuple[str, str]:
    """(instance, object key) of an owner mark; the key is empty when there is none."""
    instance, _, key = mark.partition("/")
    return instance, key


def points_at(key: RecordKey, record: RecordSet) -> tuple[str, ...]:
    """The names that a record set answers with instead of addresses: those of a CNAME or an alias."""
    return record.values if key.type == "CNAME" or record.alias else ()


def why(before: RecordSet | None, after: RecordSet | None) -> Reason:
    """What a change of a record set amounts to."""
    old = frozenset(before.values) if before is not None else frozenset()
    new = frozenset(after.values) if after is not None else frozenset()
    if new - old:
        return Reason.PUBLISHED
    return Reason.WITHDRAWN if old - new else Reason.CHANGED


def protected(key: RecordKey, zone: str) -> bool:
    """Whether a set is never deleted, whoever its mark names: the zone's own NS and SOA, and what comes and goes with certificates."""
    return (key.name == zone and key.type in ("SOA", "NS")) or key.name.startswith("_acme-challenge")
