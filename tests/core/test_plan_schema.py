"""The JSON form of a plan is what docs/plan.schema.json says, and the schema names every field of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.forecast import forecast
from reconciler.core.plan_text import FORMAT_VERSION, to_json
from tests.builders import NOW
from tests.core.test_golden_plans import SITUATIONS, reviewed

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/plan.schema.json").read_text())
TYPES = {"string": str, "integer": int, "number": (int, float), "array": list, "object": dict, "null": type(None)}
OF_THE_COMMAND = {"exit_code", "result", "unknown", "beside"}
"""Fields that the command line adds; `tests/cli` has them."""


def problems(schema: dict[str, Any], value: Any, at: str = "$") -> list[str]:
    """What is wrong with a value: types, words, required and unknown fields."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{at}: {value!r} is none of {schema['enum']}"]
    kinds = schema.get("type", list(TYPES))
    allowed = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, bool) or not any(isinstance(value, TYPES[kind]) for kind in allowed):
        return [f"{at}: {value!r} is not of type {kinds}"]
    found = []
    if isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        found += [f"{at}.{name} is missing" for name in schema.get("required", ()) if name not in value]
        for name, inner in value.items():
            if name in known:
                found += problems(known[name], inner, f"{at}.{name}")
            elif more is False:
                found.append(f"{at}.{name} is not in the schema")
            elif isinstance(more, dict):
                found += problems(more, inner, f"{at}.{name}")
    if isinstance(value, list) and "items" in schema:
        found += [
            wrong for index, item in enumerate(value) for wrong in problems(schema["items"], item, f"{at}[{index}]")
        ]
    return found


@pytest.mark.parametrize("name", [*SITUATIONS, "reviewed"])
def test_a_plan_is_what_the_schema_says(name):
    plan = reviewed() if name == "reviewed" else forecast(*SITUATIONS[name](), NOW)
    document = to_json(plan, NOW.steady)
    assert problems(SCHEMA, document) == []
    assert document.keys() == SCHEMA["properties"].keys() - OF_THE_COMMAND
    assert document["format_version"] == FORMAT_VERSION == 1
    assert document["summary"].keys() <= SCHEMA["properties"]["summary"]["properties"].keys()


def test_the_check_finds_what_is_wrong():
    document = to_json(reviewed(), NOW.steady)
    document["steps"][0]["extra"] = 1
    document["changed"][0]["fields"][0]["effect"] = "magic"
    del document["plan"]
    assert len(problems(SCHEMA, document)) == 3
