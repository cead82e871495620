"""A snapshot as JSON and back. Facts are read by their types (`core/model/value_json.py`): a document of another version is refused."""

import json
from dataclasses import asdict
from typing import Any

from manifests.values.geo import GeoKind
from providers.capabilities import Alias, Atomic, DNSCapabilities, ReadBack, Write
from providers.facts import ContainerFact, PoolFact, RecordKey, RecordSet, ZoneFact
from providers.wrappers.recorded import Recorded
from reconciler.core.model import value_json
from reconciler.shell.instance_clock import ClockRecord
from reconciler.shell.store.image_choice_rows import as_rows, rows_of
from reconciler.snapshots.snapshot import Snapshot, SnapshotRefused

FORMAT = 1
LARGEST_INT = 2**63 - 1
"""Of every number: nanoseconds until 2262."""
KIND = "reconcile-snapshot"


def write(snapshot: Snapshot) -> str:
    """The snapshot as one line of JSON."""
    facts = snapshot.facts
    body: dict[str, Any] = {
        "kind": KIND,
        "format": FORMAT,
        "instance": snapshot.instance,
        "revision": snapshot.revision,
        "commit": snapshot.commit,
        "at_wall": snapshot.at_wall,
        "expires_wall": snapshot.expires_wall,
        "clock": list(snapshot.clock),
        "ledger": [[*key, row] for key, row in sorted(snapshot.rows.items())],
        "runtimes": {node: [asdict(fact) for fact in found] for node, found in facts.runtimes.items()},
        "pools": [[*key, asdict(pool)] for key, pool in facts.pools.items()],
        "zones": [[*key, _zone(zone)] for key, zone in facts.zones.items()],
        "unknown": dict(facts.unknown),
        "view": dict(snapshot.view),
        "manifests": [list(item) for item in snapshot.manifests],
        "identity": snapshot.identity,
        "choices": as_rows(snapshot.choices),
    }
    return json.dumps(body, separators=(",", ":"))


def _zone(zone: ZoneFact) -> dict[str, Any]:
    capabilities = {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in asdict(zone.capabilities).items()
    }
    return {
        "zone": zone.zone,
        "serial": zone.serial,
        "records": [[list(key), list(record)] for key, record in zone.records.items()],
        "owners": [[list(key), owner] for key, owner in zone.owners.items()],
        "capabilities": capabilities,
    }


def read(text: str) -> Snapshot:
    """The snapshot in a text. Raises SnapshotRefused."""
    try:
        raw = json.loads(text)
        _check_kind(raw["kind"], raw["format"])
        return Snapshot(
            instance=_text(raw["instance"]),
            revision=_text(raw["revision"]),
            commit=_text(raw["commit"]),
            at_wall=_number(raw["at_wall"]),
            expires_wall=_number(raw["expires_wall"]),
            clock=value_json.read(ClockRecord, raw["clock"]),
            rows={(_text(section), _text(key)): _text(row) for section, key, row in raw["ledger"]},
            facts=Recorded(
                {node: value_json.read(tuple[ContainerFact, ...], found) for node, found in raw["runtimes"].items()},
                {(_text(name), _text(pool)): value_json.read(PoolFact, fact) for name, pool, fact in raw["pools"]},
                {(_text(name), _text(zone)): _read_zone(fact) for name, zone, fact in raw["zones"]},
                {_text(place): _text(reason) for place, reason in raw["unknown"].items()},
            ),
            view=dict(raw["view"]),
            manifests=tuple((_text(name), _text(content)) for name, content in raw["manifests"]),
            identity=_text(raw["identity"]),
            choices=rows_of(raw.get("choices", ())),
        )
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        cause = "it is not a snapshot of this version of reconcile"
        raise SnapshotRefused(
            cause, "take it again with reconcile snapshot, by the version that is used here"
        ) from error


def _check_kind(kind: object, format_: object) -> None:
    if kind != KIND:
        raise ValueError("another kind")
    if format_ != FORMAT:
        cause = f"it has format {str(format_)[:20]}, and this program reads format {FORMAT}"
        raise SnapshotRefused(cause, "use the same version of reconcile on both sides")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    value.encode()  # JSON may have halves of characters, which are in no file
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST_INT:
        raise TypeError("not a number")
    return value


def _read_zone(raw: Any) -> ZoneFact:
    given = raw["capabilities"]
    capabilities = DNSCapabilities(
        types=frozenset(map(_text, given["types"])),
        weight=None if given["weight"] is None else (_number(given["weight"][0]), _number(given["weight"][1])),
        geo=frozenset(map(GeoKind, given["geo"])),
        subdivisions=frozenset(map(_text, given["subdivisions"])),
        alias=Alias(given["alias"]),
        ttl_min=_number(given["ttl_min"]),
        ttl_max=_number(given["ttl_max"]),
        atomic=Atomic(given["atomic"]),
        batch_changes=_number(given["batch_changes"]),
        batch_octets=_number(given["batch_octets"]),
        write=Write(given["write"]),
        read_back=ReadBack(given["read_back"]),
    )
    records = {_key(key): value_json.read(RecordSet, record) for key, record in raw["records"]}
    owners = {_key(key): _text(owner) for key, owner in raw["owners"]}
    return ZoneFact(_text(raw["zone"]), _number(raw["serial"]), records, owners, capabilities)


def _key(raw: Any) -> RecordKey:
    return RecordKey(*map(_text, raw))
