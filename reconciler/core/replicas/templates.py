"""Templates of revisions that have the traffic, or wait for it, and are not declared any more: so that a lost replica can be made again.

Only where revisions stand beside each other (`activate`, `canary`): there a newer template may be declared for hours while an older one
serves. Kept in the ledger as JSON, written once when a revision is declared; secrets are in it by reference only. Lost, what runs goes
on, and a replica that is gone is reported instead of made again. `decide` calls `keep`; `diff` asks `made_from`.
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
    """The ledger with the templates of what is declared and of what serves, waits or is kept; without those of all others."""
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
    marks = (one.fact.mark for one in (*group.members(), *group.kept))
    revisions |= {mark.revision for mark in marks if mark is not None}
    known = {
        name: ledger.templates[name]
        for revision in revisions
        if (name := image_pins.pin_key(key, revision)) in ledger.templates
    }
    mine = image_pins.pin_key(key, declared.revision)
    known[mine] = ledger.templates.get(mine) or write(declared)
    return known


def made_from(ledger: Ledger, workload: Workload, revision: str) -> Workload | None:
    """The workload as it was declared for this revision; None when that is not known any more.

    What is changed on containers that run already is as it is declared now.
    """
    text = ledger.templates.get(image_pins.pin_key(workload.key, revision))
    found = read(text) if text is not None else None
    if found is None or found.revision != revision:
        return None
    declared = workload.template
    same = [one.container for one in declared.live] == [one.container for one in found.live]
    return replace(workload, template=replace(found, grace=declared.grace, live=declared.live if same else found.live))


# --- as text ------------------------------------------------------------------------------------------------------


def write(template: Template) -> str:
    """A template as JSON text."""
    return json.dumps(asdict(template), separators=(",", ":"))


def read(text: str) -> Template | None:
    """A template from its text; None when another version of the program wrote it, and it does not mean the same here."""
    try:
        found = _value(Template, json.loads(text))
    except (ValueError, TypeError, KeyError):
        return None
    return found if isinstance(found, Template) else None


def _value(kind: Any, raw: Any) -> Any:
    """A value of a type from its JSON. Raises ValueError, TypeError, KeyError."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _either(inner, raw)
    if origin is tuple:
        if not isinstance(raw, list):
            raise TypeError(f"{raw!r} is not a list")
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_value(inner[0], one) for one in raw)
        return tuple(_value(one, value) for one, value in zip(inner, raw, strict=True))
    if is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(raw, dict) or set(raw) != {field.name for field in fields(kind)}:
            raise TypeError(f"these are not the fields of {kind.__name__}")
        hints = get_type_hints(kind)
        return kind(**{name: _value(hints[name], value) for name, value in raw.items()})
    if isinstance(kind, type) and issubclass(kind, tuple):
        hints = get_type_hints(kind)
        return kind(*(_value(one, value) for one, value in zip(hints.values(), raw, strict=True)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(raw)
    if type(raw) is not kind:
        raise TypeError(f"{raw!r} is not of type {kind}")
    return raw


def _either(kinds: tuple[Any, ...], raw: Any) -> Any:
    """A value of the first of several types that it fits."""
    if raw is None and type(None) in kinds:
        return None
    for kind in kinds:
        try:
            return _value(kind, raw)
        except (ValueError, TypeError, KeyError):
            continue
    raise TypeError(f"{raw!r} is of none of the types")
