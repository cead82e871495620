"""Generates `docs/provider-types.md`, and the settings in `reconcile schema`: every provider type and its settings, from their models.

Run `python -m providers.reference [DIRECTORY]` after changing a model; a test compares the committed page with the models.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from manifests.types.durations import Duration
from providers.registry import BUILT_IN, settings_model

_INTRODUCTION = """\
<!-- Generated from the models by `python -m providers.reference`. Do not edit. -->
# Provider types

The fields of `spec.settings` in a Provider document, for each built-in `spec.type`. Other packages can add types: see
[providers.md](providers.md). A secret is always a reference, see [secrets.md](secrets.md): `{env: NAME}`, `{file: /absolute/path}` or another one of its forms. Types that begin with
`memory-` keep everything in the process: use them to try manifests and for tests.
"""


class _Schema(GenerateJsonSchema):
    """Shows durations as manifests write them."""

    def encode_default(self, dft: Any) -> Any:
        """The default as JSON."""
        return str(dft) if isinstance(dft, Duration) else super().encode_default(dft)


def provider_types_page() -> str:
    """The text of `docs/provider-types.md`."""
    sections = [_INTRODUCTION]
    for name in BUILT_IN:
        role_and_model = settings_model(name)
        if role_and_model is None:
            continue
        role, model = role_and_model
        sections.append(f"## {name}\n\nRole: {role.value}. {_summary(model)}\n\n{_table(model)}")
    return "\n".join(sections)


def settings_schemas() -> dict[str, dict[str, Any]]:
    """For each built-in provider type the JSON Schema of its settings."""
    models = {name: settings_model(name) for name in BUILT_IN}
    return {
        name: role_and_model[1].model_json_schema(by_alias=True, mode="validation", schema_generator=_Schema)
        for name, role_and_model in models.items()
        if role_and_model is not None
    }


def _summary(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


def _table(model: type[BaseModel]) -> str:
    schema = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_Schema)
    rows = list(_rows(schema, schema.get("$defs", {}), ""))
    if not rows:
        return "It has no settings.\n"
    return "\n".join(["| setting | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _rows(schema: dict[str, Any], defs: dict[str, Any], prefix: str) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        inner, many = _object_in(field, defs)
        default = "required" if name in required else _default(field)
        meaning = field.get("description", "") or (inner or {}).get("description", "").splitlines()[0:1] or ""
        text = meaning if isinstance(meaning, str) else " ".join(meaning)
        yield f"| `{prefix}{name}` | {_type(field, defs)} | {default} | {' '.join(text.split())} |"
        if inner is not None:
            yield from _rows(inner, defs, f"{prefix}{name}{'[]' if many else ''}.")


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    return "" if value in (None, [], "") else f"`{json.dumps(value).strip(chr(34))}`"


def _resolve(field: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """The schema behind a reference, or the one alternative that is not null."""
    if "$ref" in field:
        return dict(defs[field["$ref"].rpartition("/")[2]])
    options = [option for option in field.get("anyOf", ()) if option.get("type") != "null"]
    return _resolve(options[0], defs) if len(options) == 1 else field


def _object_in(field: dict[str, Any], defs: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """The object inside a field, and whether there may be many of it."""
    schema = _resolve(field, defs)
    if schema.get("type") == "array":
        item = _resolve(schema.get("items", {}), defs)
        return (item, True) if "properties" in item else (None, True)
    return (schema, False) if "properties" in schema else (None, False)


def _type(field: dict[str, Any], defs: dict[str, Any]) -> str:
    schema = _resolve(field, defs)
    if "enum" in schema:
        return " or ".join(f"`{choice}`" for choice in schema["enum"])
    if schema.get("type") == "array":
        return f"list of: {_type(schema.get('items', {}), defs)}"
    names = {"string": "text", "integer": "number", "number": "number", "boolean": "true or false", "object": "mapping"}
    return names.get(schema.get("type", ""), "text")


def main(arguments: list[str]) -> None:
    """Write the page into a directory (default: `docs`)."""
    directory = Path(arguments[0] if arguments else "docs")
    (directory / "provider-types.md").write_text(provider_types_page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
