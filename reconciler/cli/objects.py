"""Which objects there are, for a KEY that a person writes: from the manifests when PATH is given, and from what is kept."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from manifests.values.desired import Desired, Role
from reconciler.cli.options import mistake
from reconciler.cli.where import Place, joined
from reconciler.core.health.overrides import target_key
from reconciler.core.limits.suspensions import node_key
from reconciler.core.model.ledger import Ledger, from_rows
from reconciler.core.model.reasons import Rule


@dataclass(frozen=True, slots=True)
class Known:
    """Keys of all objects (workloads, replicas, nodes, services, policies, and others that decisions speak of).

    `suspended` are those that a person suspended, `failed` the replicas whose restarts were given up and the workloads whose rolling
    rollout is stuck, `ordered` the replicas
    and endpoints that a person drained or forced, and the targets of names that one forced, `targets` the targets of names there are,
    `containers` the names of each workload's containers, the main one first.
    """

    all: frozenset[str]
    suspended: frozenset[str]
    failed: frozenset[str] = frozenset()
    ordered: frozenset[str] = frozenset()
    containers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    targets: frozenset[str] = frozenset()


_TRIED_AGAIN = frozenset({Rule.FAILED.value, Rule.PROGRESS.value})
"""Rules of holds that end, for another try, when a person resumes their object."""


def key_of(word: str) -> str:
    """A KEY as a person wrote it, as objects are called: the names of documents have no capitals, those of pools may have some."""
    return word if word.partition("/")[0] == "endpoint" else word.lower()


def of_desired(desired: Desired) -> set[str]:
    """The keys in manifests: documents, and the replicas of workloads."""
    keys = {workload.key for workload in desired.workloads}
    keys |= {service.key for service in desired.services} | {policy.key for policy in desired.policies}
    keys |= {check.key for check in desired.checks} | {record.key for record in desired.records}
    keys |= {one.key for one in desired.record_lists}
    keys |= {f"{workload.key}/{ordinal}" for workload in desired.workloads for ordinal in range(workload.replicas)}
    keys |= {node_key(provider.name) for provider in desired.providers if provider.role is Role.RUNTIME}
    return keys


def targets_of(stored: dict[str, Any]) -> set[str]:
    """The keys of the targets of names in a stored decision. A target without any address is not in it."""
    return {
        target_key(one["key"], leaf["target"]) for one in stored["status"]["names"] for leaf in one.get("leaves", ())
    }


def of_stored(stored: dict[str, Any]) -> set[str]:
    """The keys in a stored decision."""
    status = stored["status"]
    keys = {
        one["key"]
        for one in (*status["workloads"], *status["names"], *status.get("services", ()), *status.get("lists", ()))
    }
    for workload in status["workloads"]:
        keys |= {f"{workload['key']}/{ordinal}" for ordinal in range(workload["wanted"])}
        keys |= {one["replica"] for one in workload["replicas"]}
        keys |= {node_key(one["node"]) for one in workload["replicas"]}
    keys |= {one["key"] for one in status.get("endpoints", ())}  # not in what an older version has stored
    for section in ("holds", "waits", "steps"):
        keys |= {one["object"] for one in stored[section]}
    return keys


def known_objects(place: Place) -> Known:
    """Everything that a KEY can mean. Empty when there are neither manifests nor a stored decision. Raises StoreError."""
    keys: set[str] = set()
    containers: dict[str, tuple[str, ...]] = {}
    suspended: set[str] = set()
    failed: set[str] = set()
    ordered: set[str] = set()
    targets: set[str] = set()
    if place.used:
        with joined(place) as store:
            last, rows, waiting = store.last_decision(), store.load_ledger(), store.pending()
        ledger = read_ledger(rows)
        suspended |= set(ledger.suspensions)
        ordered |= set(ledger.overrides)
        for command in waiting:
            about = str(json.loads(command.payload).get("object", ""))
            if command.command == "suspend":
                suspended.add(about)
            elif command.command == "resume":
                suspended.discard(about)
            elif command.command in {"drain", "force"}:
                ordered.add(about)
            elif command.command == "release":
                ordered = set() if about == "*" else ordered - {about}
        if last is not None:
            stored = json.loads(last.text)
            keys |= of_stored(stored)
            targets |= targets_of(stored)
            for row in stored["status"]["workloads"]:  # an older version has stored no containers
                containers[row["key"]] = tuple(row.get("containers", ()))
            failed |= {one["object"] for one in stored["holds"] if one["rule"] in _TRIED_AGAIN}
    if place.desired is not None:
        keys |= of_desired(place.desired)
        targets |= {
            target_key(policy.key, target.name) for policy in place.desired.policies for target in policy.targets
        }
        for workload in place.desired.workloads:
            containers[workload.key] = tuple(
                part.name for part in (workload.template.container, *workload.template.sidecars)
            )
    return Known(
        frozenset(keys), frozenset(suspended), frozenset(failed), frozenset(ordered), containers, frozenset(targets)
    )


def no_such(key: str, known: Known) -> click.UsageError:
    """The error for a KEY that names nothing."""
    from manifests.problems import did_you_mean  # noqa: PLC0415  (only for the hint)

    return mistake(f"there is no object '{key}'", did_you_mean(key, sorted(known.all), "objects"))


def read_ledger(rows: dict[tuple[str, str], str]) -> Ledger:
    """The ledger, or an empty one when a newer version has written rows that this one cannot read: it is only told, not used."""
    try:
        return from_rows(rows)
    except (ValueError, TypeError):
        return Ledger()
