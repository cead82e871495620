"""What a drain or `force down` would leave without any endpoint that serves, by the last stored decision. Called by `cli/override`.

This is the question to the operator, before the command is sent. The process that holds the instance asks the same of its own facts
before the override begins (`core/drains`), because several commands may arrive at once.
"""

from collections.abc import Iterable, Mapping
from typing import Any


def lost(stored: Mapping[str, Any], keys: Iterable[str], overridden: Iterable[str]) -> list[str]:
    """The pools and names in which nothing else serves, as phrases; empty where something does.

    Args:
        stored: the stored decision.
        keys: the replicas and endpoints to take out.
        overridden: drained or forced objects, also those whose command nothing has read yet; they do not count as serving.
    """
    status = stored["status"]
    going = set(keys)
    out = going | set(overridden)
    unwanted = {row["key"] for row in status["workloads"] if not row["wanted"]}
    going -= {key for key in going if key.rpartition("/")[0] in unwanted}
    return [*_pools(status, going, out), *_names(status, going, out)]


def _pools(status: Mapping[str, Any], going: set[str], out: set[str]) -> list[str]:
    pools: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in status.get("endpoints", ()):  # an older version stored none
        pools.setdefault((row["provider"], row["pool"]), []).append(row)
    phrases = []
    for (provider, pool), rows in sorted(pools.items()):
        if not any({row["key"], row["replica"]} & going for row in rows):
            continue
        if not all(row["readable"] for row in rows):
            phrases.append(f"pool {pool} of {provider} cannot be read")
        elif not any(
            row.get("others_serve") or (not {row["key"], row["replica"]} & out and _serves(row)) for row in rows
        ):
            phrases.append(f"no other endpoint of pool {pool} of {provider} is ready and carries weight")
    return phrases


def _serves(row: Mapping[str, Any]) -> bool:
    return bool(row["weight"]) and row["state"] == "ready" and row["operational"] != "down"


def _names(status: Mapping[str, Any], going: set[str], out: set[str]) -> list[str]:
    phrases = []
    for row in status["names"]:
        addresses = row.get("leaves", ())
        if not any(going.intersection(address.get("replicas", ())) for address in addresses):
            continue
        serving = any(
            address["healthy"]
            and address["published"] is not False
            and not (address.get("replicas") and out.issuperset(address["replicas"]))
            for address in addresses
        )
        if not serving:
            phrases.append(f"{row['host']} publishes no other address that is ready")
    return phrases
