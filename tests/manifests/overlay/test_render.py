"""Merged documents as text: equal after a second reading, with the origin of each field, and no order of files in it."""

import json
import shutil
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from manifests.load import manifest_documents, read_sources
from manifests.overlay.render import Rendered, origins_json, rendered, yaml_text
from manifests.problems import Where
from manifests.yaml.read import read_file
from tests.manifests.trees import GOOD, GUARD, HEALTH_CHECK, RECORD, RECORD_LIST, write

HEAD = "apiVersion: reconciler/v1\nkind: Workload\nmetadata: {name: web}\n"
CHANGE = f"{HEAD}spec: {{replicas: 7, template: {{spec: {{containers: [{{name: app, args: null, env: [{{name: MODE, value: 'off'}}]}}]}}}}}}\n"


def objects(root: Path, environment: str = "") -> list[Rendered]:
    return rendered(manifest_documents(read_sources(root, environment=environment)))


def without_comments(text: str) -> str:
    return "".join(line.partition("  # ")[0] + "\n" for line in text.splitlines())


def tree(root: Path) -> Path:
    more = {"guard.yaml": GUARD, "check.yaml": HEALTH_CHECK, "mail.yaml": RECORD, "list.yaml": RECORD_LIST}
    return write(root, {**GOOD, **more, "environments/prod/web.yaml": CHANGE})


def test_a_render_of_a_render_is_equal(tmp_path):
    text = yaml_text(objects(tree(tmp_path / "one"), "prod"))
    again = yaml_text(objects(write(tmp_path / "two", {"all.yaml": text})))
    assert without_comments(again) == without_comments(text)


def test_the_order_and_the_names_of_files_do_not_matter(tmp_path):
    text = yaml_text(objects(tree(tmp_path / "one"), "prod"))
    root = tmp_path / "two"
    shutil.copytree(tmp_path / "one", root)
    (root / "web.yaml").rename(root / "0.yaml")
    (root / "environments/prod/web.yaml").rename(root / "environments/prod/zz.yaml")
    write(root, {"dns.yaml": "---\n".join([str(GOOD["dns.yaml"]), GUARD])})
    (root / "guard.yaml").unlink()
    assert without_comments(yaml_text(objects(root, "prod"))) == without_comments(text)


def test_each_field_has_its_file_and_line(tmp_path):
    (web,) = (item for item in objects(tree(tmp_path), "prod") if item.key == "workload/web")
    lines = yaml_text([web]).splitlines()
    assert "  replicas: 7  # environments/prod/web.yaml:4" in lines
    assert "        app: web  # web.yaml:9" in lines
    assert "        - name: MODE  # environments/prod/web.yaml:4" in lines
    assert '          value: "off"  # environments/prod/web.yaml:4' in lines
    assert not any("args" in line for line in lines)
    origins = origins_json(web)
    assert origins["spec.replicas"] == {"file": "environments/prod/web.yaml", "line": 4, "column": 18}
    assert origins["spec.template.metadata.labels.app"]["file"] == "web.yaml"


TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    [
        "no",
        "~",
        "",
        "null",
        "1",
        "0x1",
        "1e3",
        "a: b",
        "a #b",
        "- a",
        "22:22",
        "=",
        "<<",
        "2024-01-01",
        "a:",
        "\u2028",
        "\x85",
        "\ufeff",
    ]
)
SCALAR = (
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(TEXT, VALUE, min_size=1, max_size=3))
def test_any_value_is_read_back_as_it_was(value):
    def leaves(inner, path):
        if isinstance(inner, dict | list) and inner:
            for key in inner if isinstance(inner, dict) else range(len(inner)):
                yield from leaves(inner[key], (*path, key))
        else:
            yield path

    item = Rendered("x", value, tuple((path, Where("a", 1, 1)) for path in leaves(value, ())))
    text = yaml_text([item])
    documents, problems = read_file("x", text.encode())
    assert problems == [], text
    assert json.dumps(documents[0].value, sort_keys=True) == json.dumps(value, sort_keys=True), text
