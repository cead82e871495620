"""JSON Schema (draft-07) of all kinds, for editors. Called by the command line; language servers for YAML read draft-07.

One schema for all kinds, with a rule "if the kind is X, then model X" for each. With a union of the models an editor would
report a misspelt key as a wrong kind; with this form it names the key.
"""

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
        return super().encode_default(dft)


def json_schema() -> dict[str, Any]:
    """The schema of one document of any kind, as a JSON object."""
    models: list[tuple[type[BaseModel], Any]] = [(model, "validation") for model in KINDS.values()]
    _, generated = models_json_schema(models, ref_template="#/definitions/{model}", schema_generator=_AsWritten)
    definitions = _to_draft_07(generated["$defs"])
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
