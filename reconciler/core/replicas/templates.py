"""Templates of revisions that have the traffic, or wait for it, and are not declared any more: to recreate a lost replica of them.

Only where revisions stand beside each other (`activate`, `canary`): there a newer template may be declared for hours while an older one
serves. The ledger keeps them as JSON, written once when a revision is declared; secrets are in it by reference only. If they are lost,
containers go on, and a replica that is gone is reported and not recreated. `decide` calls `keep`; `differences` asks `made_from`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from manifests.values.desired import Template, Workload
from manifests.values.rollouts import STAGED
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.revision import Standing
from reconciler.core.replicas import image_pins
from reconciler.core.replicas.roster import Group
from reconciler.core.replicas.snapshot import Snapshot


def keep(snap: Snapshot, ledger: Ledger) -> Ledger:
    """The ledger with the templates of revisions that are declared, serve, wait or are kept, without all others."""
    kept: dict[str, str] = {}
    for key, group in snap.roster.groups.items():
        if group.workload.strategy in STAGED and not group.workload.restart_only:
            kept |= _of(key, group, ledger)
    return ledger if kept == ledger.templates else replace(ledger, templates=kept)


def _of(key: str, group: Group, ledger: Ledger) -> Mapping[str, str]:
    declared, rollout = group.workload.template, ledger.rollouts.get(key)
    revisions = {group.serving}
    if rollout is not None:
        revisions |= {rollout.active, rollout.back}
        revisions |= {row.revision for row in rollout.rows if row.standing is Standing.SCHEDULED}
    marks = (belief.fact.mark for belief in (*group.members(), *group.kept))
    revisions |= {mark.revision for mark in marks if mark is not None}
    known = {
        name: ledger.templates[name]
        for revision in revisions
        if (name := image_pins.pin_key(key, revision)) in ledger.templates
    }
    current = image_pins.pin_key(key, declared.revision)
    known[current] = ledger.templates.get(current) or write(declared)
    return known


def made_from(ledger: Ledger, workload: Workload, revision: str) -> Workload | None:
    """The workload as it was declared for this revision; None when that is not known any more.

    Settings that change on running containers are those declared now.
    """
    text = ledger.templates.get(image_pins.pin_key(workload.key, revision))
    template = read(text) if text is not None else None
    if template is None or template.revision != revision:
        return None
    declared = workload.template
    same = [live.container for live in declared.live] == [live.container for live in template.live]
    live = declared.live if same else template.live
    return replace(workload, template=replace(template, grace=declared.grace, live=live))


# --- as text ------------------------------------------------------------------------------------------------------


def write(template: Template) -> str:
    """A template as JSON text."""
    return json.dumps(asdict(template), separators=(",", ":"))


def read(text: str) -> Template | None:
    """A template from its text; None when another version of the program wrote it with other fields."""
    try:
        template = _value(Template, json.loads(text))
    except (ValueError, TypeError, KeyError):
        return None
    return template if isinstance(template, Template) else None


def _value(kind: Any, raw: Any) -> Any:
    """A value of a type from its JSON. Raises ValueError, TypeError, KeyError."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _either(inner, raw)
    if origin is tuple:
        if not isinstance(raw, list):
            raise TypeError(f"{raw!r} is not a list")
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_value(inner[0], value) for value in raw)
        return tuple(_value(item, value) for item, value in zip(inner, raw, strict=True))
    if is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(raw, dict) or set(raw) != {field.name for field in fields(kind)}:
            raise TypeError(f"these are not the fields of {kind.__name__}")
        hints = get_type_hints(kind)
        return kind(**{name: _value(hints[name], value) for name, value in raw.items()})
    if isinstance(kind, type) and issubclass(kind, tuple):
        hints = get_type_hints(kind)
        return kind(*(_value(item, value) for item, value in zip(hints.values(), raw, strict=True)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(raw)
    if type(raw) is not kind:
        raise TypeError(f"{raw!r} is not of type {kind}")
    return raw


def _either(kinds: tuple[Any, ...], raw: Any) -> Any:
    """A value of the first of several types that fits."""
    if raw is None and type(None) in kinds:
        return None
    for kind in kinds:
        try:
            return _value(kind, raw)
        except (ValueError, TypeError, KeyError):
            continue
    raise TypeError(f"{raw!r} is of none of the types")
