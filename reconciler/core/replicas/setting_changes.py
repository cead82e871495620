"""What differs between the manifests in force and the planned ones, for each Workload, Service, DNSPolicy and HealthCheck.

The templates of workloads are compared by `template_changes`, and record sets are shown by the steps that write them. Called by
`forecast` for a plan and by `shell/report/origins` when other manifests come into force.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from manifests.problems import NOWHERE
from manifests.values.desired import SECOND, Container, Desired, Service, Template, Workload
from manifests.values.dns import DNSPolicy, HealthCheck
from reconciler.core.model import value_json
from reconciler.core.replicas import template_changes
from reconciler.core.replicas.field_changes import Effect, FieldChange, Flat, camel, differing, flat, secret

Document = Workload | Service | DNSPolicy | HealthCheck

_NO_TEMPLATE = Template((), Container("", ()))

_INNER = frozenset({"key", "name", "where", "template", "forbidden", "restart_only", "backends", "image_choices"})
"""Fields that are no settings of a manifest, are shown elsewhere, or follow from other objects."""

_PATHS = {
    "min_ready": "minReadySeconds",
    "max_unavailable": "availability.maxUnavailable",
    "drain_max": "drain.max",
    "drain_min": "drain.min",
    "strategy": "rollout.strategy",
    "restarts.escalation.recreate_after": "restarts.escalation.recreateAfter",
    "restarts.escalation.give_up_after": "restarts.escalation.giveUpAfter",
    "restarts.backoff.maximum": "restarts.backoff.max",
    "rollout.delay": "rollout.activationDelay",
    "rollout.window": "rollout.rollbackWindow",
    "rollout.activate_at": "rollout.activateAt",
    "address_from": "address.from",
    "network": "address.network",
    "all_unhealthy": "whenAllUnhealthy",
    "tree_ttl": "treeTTL",
    "rollout.steps": "rollout.canary.steps",
    "check": "healthCheck",
}
"""Fields that a manifest writes under another name."""

_DURATIONS = frozenset(
    {
        "min_ready", "drain_max", "drain_min", "window", "initial", "maximum", "reset", "fresh", "stale", "startup_deadline",
        "drain_deadline", "delay", "precheck", "pending_grace", "bake", "progress_deadline", "pause", "duration", "interval",
        "timeout",
    }
)  # fmt: skip
"""Fields that are a time in ns."""

_STEPS_SHOW = ("replicas", "nodes", "suspend", "adopt")
"""Settings of a workload that create, move or remove replicas: the steps say what becomes of the containers."""


def documents(desired: Desired) -> dict[str, Document]:
    """The objects whose settings are compared, by key."""
    kinds = (desired.workloads, desired.services, desired.policies, desired.checks)
    return {item.key: item for items in kinds for item in items}


def changes(before: Document | None, after: Document) -> tuple[FieldChange, ...]:
    """The settings that differ, without the template of a workload. Nothing for an object that is new: its steps show it."""
    if before is None or type(before) is not type(after):
        return ()
    if _settings(before) == _settings(after):
        return ()
    workload = isinstance(after, Workload)
    return tuple(
        FieldChange(name, old, new, Effect.NO_CONTAINER if workload and not _in_steps(name) else Effect.NONE)
        for name, old, new in differing(_flat(before), _flat(after))
    )


def between(old: Document, new: Document) -> tuple[FieldChange, ...]:
    """All fields that differ between two versions of an object, those of a workload's template included."""
    rows = changes(old, new)
    if isinstance(new, Workload) and isinstance(old, Workload) and new.template != old.template:
        rows += template_changes.changes(old.template, new.template)
    return rows


def _in_steps(name: str) -> bool:
    return name.partition(".")[0].partition("[")[0] in _STEPS_SHOW


def _settings(item: Document) -> Document:
    """The object without its places in the files, its template and what follows from other objects."""
    plain = replace(item, where=NOWHERE)
    if isinstance(plain, Workload):
        return replace(plain, template=_NO_TEMPLATE, forbidden="", env_origins=(), image_choices=())
    return replace(plain, backends=()) if isinstance(plain, Service) else plain


def _flat(item: Document) -> Flat:
    plain = _settings(item)
    full = dict(_fields(json.loads(value_json.write(plain)), ""))
    given = dict(_fields(json.loads(value_json.write_short(plain)), ""))
    return flat(full.items(), given)


def _fields(value: Mapping[str, Any], at: str) -> Iterator[tuple[str, Any]]:
    for field, inner in value.items():
        path = f"{at}{field}"
        if not at and field in _INNER:
            continue
        if isinstance(inner, Mapping):
            yield from _fields(inner, f"{path}.")
        elif isinstance(inner, list) and inner and all(isinstance(row, Mapping) for row in inner):
            for row in map(_policy, inner) if path == "image_policies" else inner:
                name = row.get("name") or "/".join(str(row[part]) for part in ("provider", "pool") if part in row)
                for key, part in _fields({key: part for key, part in row.items() if key != "name"}, ""):
                    yield f"{_name(path)}[{name}].{key}", part
        elif field in ("headers",):
            for header, text in inner or ():
                yield f"{_name(path)}[{header}]", text if isinstance(text, str) else secret(text)
        elif field in _DURATIONS and isinstance(inner, int):
            yield _name(path), f"{inner / SECOND:g}s"
        else:
            yield _name(path), inner


def _policy(row: Mapping[str, Any]) -> dict[str, Any]:
    """An image policy by its container, without the image: that is a field of the template."""
    kept = {field: value for field, value in row.items() if field not in ("container", "image", "declared")}
    return {"name": row.get("container"), **kept}


def _name(path: str) -> str:
    """The name in a manifest of a path of fields."""
    known = _PATHS.get(path)
    if known is not None:
        return known
    head, _, rest = path.partition(".")
    return f"{_PATHS.get(head, camel(head))}.{camel(rest)}" if rest else camel(path)
