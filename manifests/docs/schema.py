"""JSON Schema (draft-07) of all kinds, for editors. Called by `reconcile schema`; language servers for YAML read draft-07.

One schema for all kinds, with a rule "if the kind is X, then model X" for each. With a union of the models an editor would
report a misspelt key as a wrong kind; with this form it names the key.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from manifests.kinds import KINDS
from manifests.kinds.base import API_VERSION
from manifests.types.durations import Duration
from manifests.types.numbers import Percent

DIALECT = "http://json-schema.org/draft-07/schema#"


class _AsWritten(GenerateJsonSchema):
    """Shows defaults as in manifests: `5m`, `30%`."""

    def encode_default(self, dft: Any) -> Any:
        """A default as a JSON value."""
        if isinstance(dft, Duration | Percent):
            return str(dft)
        if isinstance(dft, tuple) and dft and isinstance(dft[0], tuple):
            return ["{}-{}".format(*limits) for limits in dft]  # ranges of statuses
        return super().encode_default(dft)


def json_schema(settings: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The schema of one document of any kind, as a JSON object.

    Args:
        settings: for each provider type the schema of its settings; by default settings are any mapping.
    """
    models: list[tuple[type[BaseModel], Any]] = [(model, "validation") for model in KINDS.values()]
    _, generated = models_json_schema(models, ref_template="#/definitions/{model}", schema_generator=_AsWritten)
    definitions = _to_draft_07(generated["$defs"])
    for name, schema in sorted((settings or {}).items()):
        _add_settings(definitions, name, schema)
    return {
        "$schema": DIALECT,
        "title": f"A manifest of {API_VERSION}",
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {"apiVersion": {"const": API_VERSION}, "kind": {"enum": list(KINDS)}},
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                "then": {"$ref": f"#/definitions/{model.__name__}"},
            }
            for kind, model in KINDS.items()
        ],
        "definitions": definitions,
    }


def kind_schema(kind: str, settings: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The schema of one document of this kind, with the definitions that it needs. Raises KeyError for an unknown kind."""
    definitions = json_schema(settings)["definitions"]
    name = KINDS[kind].__name__
    needed, open_names = {name}, [name]
    while open_names:
        new = set(_references(definitions[open_names.pop()])) - needed
        needed |= new
        open_names += sorted(new)
    return {
        "$schema": DIALECT,
        "title": f"A {kind} of {API_VERSION}",
        "allOf": [{"$ref": f"#/definitions/{name}"}],
        "definitions": {each: definition for each, definition in definitions.items() if each in needed},
    }


def _add_settings(definitions: dict[str, Any], name: str, schema: Mapping[str, Any]) -> None:
    """Add a rule "if the type is `name`, then these settings"; definitions of the settings get the type as a prefix."""
    inner = _renamed(_to_draft_07({key: value for key, value in schema.items() if key != "$defs"}), name)
    for key, value in schema.get("$defs", {}).items():
        definitions[f"{name}.{key}"] = _renamed(_to_draft_07(value), name)
    definitions[f"{name}.settings"] = inner
    condition = {"properties": {"type": {"const": name}}, "required": ["type"]}
    then: dict[str, Any] = {"properties": {"settings": {"$ref": f"#/definitions/{name}.settings"}}}
    if schema.get("required"):
        then["required"] = ["settings"]
    definitions["ProviderSpec"].setdefault("allOf", []).append({"if": condition, "then": then})


def _renamed(node: Any, prefix: str) -> Any:
    """A schema whose references point at the definitions with this prefix."""
    if isinstance(node, list):
        return [_renamed(item, prefix) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: f"#/definitions/{prefix}.{value.rpartition('/')[2]}" if key == "$ref" else _renamed(value, prefix)
        for key, value in node.items()
    }


def _references(node: Any) -> Iterator[str]:
    """Names of the definitions that a schema refers to."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value.rpartition("/")[2]
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)


def _to_draft_07(node: Any) -> Any:
    """Draft-07 ignores keywords beside a `$ref`: move the reference into `allOf`, so that editors show descriptions."""
    if isinstance(node, list):
        return [_to_draft_07(item) for item in node]
    if not isinstance(node, dict):
        return node
    converted = {key: _to_draft_07(value) for key, value in node.items()}
    if "$ref" in converted and len(converted) > 1:
        reference = converted.pop("$ref")
        converted["allOf"] = [{"$ref": reference}, *converted.get("allOf", [])]
    return converted
