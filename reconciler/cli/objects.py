"""The objects that a KEY on the command line can name: from the manifests when PATH is given, and from the store."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from manifests.values.desired import Desired, Role
from reconciler.cli.options import usage_error
from reconciler.cli.where import Place, joined
from reconciler.core.health.overrides import target_key
from reconciler.core.limits.suspensions import node_key
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows
from reconciler.core.model.reasons import Rule


@dataclass(frozen=True, slots=True)
class Known:
    """Keys of all objects: workloads, replicas, nodes, services, policies, and others in the last decision.

    suspended: suspended by the operator. failed: replicas whose restarts were given up that fail a changed probe, or have a failed step,
    and workloads whose rolling rollout is stuck. overridden: drained or forced by the operator. targets: targets of DNSPolicies. containers: the names of each
    workload's containers, the main one first.
    """

    all: frozenset[str]
    suspended: frozenset[str]
    failed: frozenset[str] = frozenset()
    overridden: frozenset[str] = frozenset()
    containers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    targets: frozenset[str] = frozenset()


_ENDED_BY_RESUME = frozenset(
    {Rule.FAILED.value, Rule.PROGRESS.value, Rule.PROBE_UNPROVEN.value, Rule.STEP_FAILED.value}
)
"""Rules of holds that end when the operator resumes their object."""


def key_of(argument: str) -> str:
    """The key for an argument: in lower case, except endpoints, because names of pools may have capitals."""
    return argument if argument.partition("/")[0] == "endpoint" else argument.lower()


def of_desired(desired: Desired) -> set[str]:
    """The keys in manifests: documents, and the replicas of workloads."""
    keys = {workload.key for workload in desired.workloads}
    keys |= {service.key for service in desired.services} | {policy.key for policy in desired.policies}
    keys |= {check.key for check in desired.checks} | {record.key for record in desired.records}
    keys |= {record_list.key for record_list in desired.record_lists}
    keys |= {f"{workload.key}/{ordinal}" for workload in desired.workloads for ordinal in range(workload.replicas)}
    keys |= {node_key(provider.name) for provider in desired.providers if provider.role is Role.RUNTIME}
    return keys


def targets_of(stored: dict[str, Any]) -> set[str]:
    """The keys of the targets of DNSPolicies in a stored decision. It has no target without an address."""
    return {
        target_key(name["key"], leaf["target"]) for name in stored["status"]["names"] for leaf in name.get("leaves", ())
    }


def of_stored(stored: dict[str, Any]) -> set[str]:
    """The keys in a stored decision."""
    status = stored["status"]
    keys = {
        row["key"]
        for row in (*status["workloads"], *status["names"], *status.get("services", ()), *status.get("lists", ()))
    }
    for workload in status["workloads"]:
        keys |= {f"{workload['key']}/{ordinal}" for ordinal in range(workload["wanted"])}
        keys |= {replica["replica"] for replica in workload["replicas"]}
        keys |= {node_key(replica["node"]) for replica in workload["replicas"]}
    keys |= {endpoint["key"] for endpoint in status.get("endpoints", ())}  # an older version stored none
    for section in ("holds", "waits", "steps"):
        keys |= {item["object"] for item in stored[section]}
    return keys


def known_objects(place: Place) -> Known:
    """All objects that a KEY can name. Empty when there are neither manifests nor a stored decision. Raises StoreError."""
    keys: set[str] = set()
    containers: dict[str, tuple[str, ...]] = {}
    suspended: set[str] = set()
    failed: set[str] = set()
    overridden: set[str] = set()
    targets: set[str] = set()
    if place.has_run:
        with joined(place) as store:
            last, rows, waiting = store.last_decision(), store.load_ledger(), store.pending()
        ledger = read_ledger(rows)
        suspended |= set(ledger.suspensions)
        overridden |= set(ledger.overrides)
        for command in waiting:
            key = str(json.loads(command.payload).get("object", ""))
            if command.command == "suspend":
                suspended.add(key)
            elif command.command == "resume":
                suspended.discard(key)
            elif command.command in {"drain", "force"}:
                overridden.add(key)
            elif command.command == "release":
                overridden = set() if key == "*" else overridden - {key}
        if last is not None:
            stored = json.loads(last.text)
            keys |= of_stored(stored)
            targets |= targets_of(stored)
            for row in stored["status"]["workloads"]:  # an older version stored no containers
                containers[row["key"]] = tuple(row.get("containers", ()))
            failed |= {hold["object"] for hold in stored["holds"] if hold["rule"] in _ENDED_BY_RESUME}
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
        frozenset(keys), frozenset(suspended), frozenset(failed), frozenset(overridden), containers, frozenset(targets)
    )


def unknown_object(key: str, known: Known) -> click.UsageError:
    """The error for a KEY that names nothing."""
    return usage_error(f"no object is named '{key}'", meant(key, known))


def meant(key: str, known: Known) -> str:
    """A hint for a KEY that names nothing: the object of that name, the nearest one, or the first objects."""
    from manifests.problems import did_you_mean, suggest  # noqa: PLC0415  (only for the hint)

    keys = sorted(known.all)
    if "/" in key:
        return did_you_mean(key, keys, "objects")
    # A name without its kind.
    workloads_last = sorted(keys, key=lambda each: each.startswith("workload/"))
    documents = {each.partition("/")[2]: each for each in workloads_last if each.count("/") == 1}
    guess = suggest(key, documents)
    return f"did you mean '{documents[guess]}'?" if guess else did_you_mean(key, keys, "objects")


def read_ledger(rows: dict[tuple[str, str], str]) -> Ledger:
    """The ledger, or an empty one when a newer version wrote rows that this one cannot read: it is shown, not used to decide."""
    try:
        return from_rows(rows)
    except (ValueError, TypeError):
        return Ledger()
