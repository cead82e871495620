"""The schema that editors get: `reconcile schema`."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

from manifests.kinds import KINDS
from tests.cli.conftest import TREE
from tests.manifests.docs.test_reference import fits


def provider(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "reconciler/v1", "kind": "Provider", "metadata": {"name": "p"}, "spec": spec}


@pytest.fixture
def schema(reconcile) -> dict[str, Any]:
    done = reconcile("schema")
    assert (done.code, done.err) == (0, "")
    return done.document


def test_manifests_that_are_valid_fit_the_schema(schema):
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert all(fits(document, schema, schema) for document in YAML(typ="safe").load_all(TREE))


@pytest.mark.parametrize(
    ("spec", "good"),
    [
        ({"type": "docker"}, True),
        ({"type": "docker", "settings": {"socket": "/run/podman/podman.sock"}}, True),
        ({"type": "docker", "settings": {"sockt": "/run/podman/podman.sock"}}, False),
        ({"type": "docker", "settings": {"socket": 5}}, False),
        ({"type": "powerdns"}, False),
        ({"type": "type-of-another-package", "settings": {"anything": 1}}, True),
    ],
)
def test_the_settings_of_a_provider_are_those_of_its_type(schema, spec, good):
    assert fits(provider(**spec), schema, schema) is good


@pytest.mark.parametrize("kind", KINDS)
def test_one_kind_has_a_schema_of_its_own(kind, reconcile):
    schema = reconcile("schema", kind.lower()).document
    assert schema["title"] == f"A {kind} of reconciler/v1"
    text = json.dumps(schema)
    assert all(f"#/definitions/{name}" in text for name in schema["definitions"])
    documents = [document for document in YAML(typ="safe").load_all(TREE) if document["kind"] == kind]
    assert all(fits(document, schema, schema) for document in documents)
    assert not fits({"apiVersion": "reconciler/v1", "kind": "Nothing"}, schema, schema)


def defaults(node: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each default with its schema. The names below `properties` are fields, not keywords."""
    if isinstance(node, list):
        for item in node:
            yield from defaults(item)
    elif isinstance(node, dict):
        if "default" in node:
            yield node["default"], {key: rule for key, rule in node.items() if key != "default"}
        for key, inner in node.items():
            yield from defaults(list(inner.values()) if key in {"properties", "definitions"} else inner)


def test_every_default_fits_its_own_schema(schema):
    """Editors insert the default: [[200, 399]] for a list of texts would be an error."""
    found = list(defaults({"definitions": schema["definitions"]}))
    assert len(found) > 50
    for value, rule in found:
        assert value is None or fits(value, rule, schema), (value, rule)
