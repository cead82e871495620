"""From a checked Provider to its value: the type is known and the settings fit it. Called by `resolver.py`."""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from manifests import kinds
from manifests.kinds.validate import Declared, explain
from manifests.problems import Code, did_you_mean
from manifests.resolve.references import Scope
from manifests.values import desired
from manifests.values.desired import Role

SettingsModel = Callable[[str], tuple[Role, type[BaseModel]] | None]
"""Role and settings model of a provider type, or None for an unknown type."""

KnownTypes = Callable[[], Sequence[str]]
"""Names of all provider types, for suggestions."""


def provider(
    declared: Declared, scope: Scope, settings_model: SettingsModel, known_types: KnownTypes
) -> desired.Provider | None:
    """A provider whose settings fit its type. Notes its role in the scope."""
    manifest = declared.manifest
    scope.roles[declared.name] = None
    scope.types[declared.name] = ""
    if not isinstance(manifest, kinds.Provider):
        return None
    known = settings_model(manifest.spec.type)
    if known is None:
        hint = did_you_mean(manifest.spec.type, list(known_types()), "known types")
        message = f"{declared.key}: there is no provider type '{manifest.spec.type[:60]}'"
        scope.report(declared, ("spec", "type"), Code.UNKNOWN_TYPE, message, hint)
        return None
    role, model = known
    scope.roles[declared.name] = role
    scope.types[declared.name] = manifest.spec.type
    if getattr(model, "takes_slots", False):
        scope.with_slots.add(declared.name)
    # Only DNS providers that cannot hold every type say so.
    scope.record_types[declared.name] = getattr(model, "record_types", frozenset())
    try:
        model.model_validate(manifest.spec.settings)
    except ValidationError as error:
        scope.problems.extend(explain(declared.document, error, model, ("spec", "settings"), declared.key))
        return None
    return desired.Provider(
        declared.key,
        declared.name,
        manifest.spec.type,
        role,
        _canonical(manifest.spec.settings),
        declared.document.where,
        declared.local,
    )


def _canonical(value: Any) -> Any:
    """The same JSON value with the keys of all mappings in order."""
    if isinstance(value, dict):
        return {key: _canonical(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return value
