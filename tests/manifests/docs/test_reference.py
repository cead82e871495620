"""Pages and JSON Schema generated from the models."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from manifests.docs.reference import defaults_page, main, manifests_page
from manifests.docs.schema import json_schema
from manifests.kinds import KINDS
from tests.manifests.trees import GOOD, GUARD, HEALTH_CHECK, RECORD, RECORD_LIST

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(("name", "page"), [("manifests.md", manifests_page), ("defaults.md", defaults_page)])
def test_the_committed_page_equals_the_generated_one(name: str, page: Any) -> None:
    """Run `python -m manifests.docs.reference` when this fails."""
    assert (DOCS / name).read_text(encoding="utf-8") == page()


def test_the_reference_is_written_into_the_given_directory(tmp_path: Path) -> None:
    main([str(tmp_path)])

    assert sorted(path.name for path in tmp_path.iterdir()) == ["defaults.md", "manifests.md"]


def test_every_field_is_described(tmp_path: Path) -> None:
    rows = [line for line in manifests_page().splitlines() if line.startswith("| `")]

    assert len(rows) > 60
    assert all(not line.endswith("|  |") and "None" not in line for line in rows)


@pytest.mark.parametrize(
    "row",
    [
        "| HealthCheck | `spec.expectedResponses` | `[200, 201]` |  |",
        '| Probe | `httpGet.expectedStatuses` | `["200-399"]` |  |',
    ],
)
def test_the_default_of_a_list_is_shown_with_its_items(row: str) -> None:
    assert row in defaults_page().splitlines()


def fits(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether a value fits a schema, for the keywords that ours uses."""
    known = {"$schema", "title", "description", "default", "definitions", "format"}
    for keyword, rule in schema.items():
        if keyword in known or keyword in ("then", "additionalProperties"):
            continue
        match keyword:
            case "$ref":
                ok = fits(value, root["definitions"][rule.rpartition("/")[2]], root)
            case "allOf":
                ok = all(fits(value, member, root) for member in rule)
            case "anyOf":
                ok = any(fits(value, member, root) for member in rule)
            case "oneOf":
                ok = sum(fits(value, member, root) for member in rule) == 1
            case "if":
                ok = not fits(value, rule, root) or fits(value, schema["then"], root)
            case "type":
                types: dict[str, Any] = {
                    "object": dict,
                    "array": list,
                    "string": str,
                    "integer": int,
                    "number": (int, float),
                    "boolean": bool,
                    "null": type(None),
                }
                ok = isinstance(value, types[rule]) and (rule == "boolean" or not isinstance(value, bool))
            case "required":
                ok = not isinstance(value, dict) or set(rule) <= set(value)
            case "properties":
                ok = not isinstance(value, dict) or all(
                    fits(value[key], member, root) for key, member in rule.items() if key in value
                )
                if isinstance(value, dict) and schema.get("additionalProperties") is False:
                    ok = ok and set(value) <= set(rule)
            case "items":
                ok = not isinstance(value, list) or all(fits(item, rule, root) for item in value)
            case "const":
                ok = value == rule
            case "enum":
                ok = value in rule
            case "pattern":
                ok = not isinstance(value, str) or re.search(rule, value) is not None
            case "minimum":
                ok = not isinstance(value, int | float) or value >= rule
            case "maximum":
                ok = not isinstance(value, int | float) or value <= rule
            case "minLength" | "minItems":
                ok = not isinstance(value, str | list) or len(value) >= rule
            case "maxLength":
                ok = not isinstance(value, str) or len(value) <= rule
            case "minProperties":
                ok = not isinstance(value, dict) or len(value) >= rule
            case "propertyNames":
                ok = not isinstance(value, dict) or all(fits(key, rule, root) for key in value)
            case _:
                raise AssertionError(f"draft-07 has no keyword {keyword}, or this test does not know it")
        if not ok:
            return False
    return True


def documents() -> list[Any]:
    return [
        document
        for text in [*GOOD.values(), GUARD, HEALTH_CHECK, RECORD, RECORD_LIST]
        for document in YAML(typ="safe").load_all(str(text))
    ]


def test_the_schema_accepts_manifests_that_the_program_accepts() -> None:
    schema = json_schema()

    assert json.loads(json.dumps(schema)) == schema
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert {document["kind"] for document in documents()} == set(KINDS)
    assert all(fits(document, schema, schema) for document in documents())


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Worklod"},
        {"apiVersion": "v1"},
        {"metadata": {"name": "A"}},
        {"metadata": {}},
        {"extra": 1},
        {"spec": {}},
        {"spec": {"id": "ok", "intervals": {"dns": 5}}},
        {"spec": {"id": "ok", "intervals": {"dns": "5"}}},
        {"spec": {"id": "ok", "prun": True}},
        {"spec": {"id": "ok", "prune": "yes"}},
    ],
)
def test_the_schema_refuses_manifests_that_the_program_refuses(change: dict[str, Any]) -> None:
    schema = json_schema()
    instance = {"apiVersion": "reconciler/v1", "kind": "Instance", "metadata": {"name": "a"}, "spec": {"id": "ok"}}

    assert fits(instance, schema, schema)
    assert not fits(instance | change, schema, schema)


def test_defaults_are_shown_as_they_are_written() -> None:
    definitions = json_schema()["definitions"]

    assert definitions["Drain"]["properties"]["max"]["default"] == "10s"
    assert definitions["MassChange"]["properties"]["share"]["default"] == "30%"


def test_a_reference_keeps_the_description_beside_it() -> None:
    """Draft-07 ignores everything beside a $ref."""

    def references(node: Any) -> list[dict[str, Any]]:
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        nested = [reference for child in inner for reference in references(child)]
        return [*nested, node] if isinstance(node, dict) and "$ref" in node else nested

    assert all(len(node) == 1 for node in references(json_schema()))
