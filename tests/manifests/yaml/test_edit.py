"""Edits of manifests in place: the bytes that change, and refused edits."""

import difflib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.yaml.edit import Change, Put, Rename, edit, find
from manifests.yaml.read import read_file
from manifests.yaml.text import Refused

FILE = """\
# Shop of the Müller brothers — do not touch on Fridays
apiVersion: reconciler/v1
kind: Provider
metadata: {name: local}
spec:   {type: docker}   # the engine
---
apiVersion: reconciler/v1
kind:       Workload
metadata:
    name: web      # the shop
spec:
    replicas: 3
    template:
        metadata: {labels: {app: web}}
        spec:
            containers:
            -   name: web
                # pinned by the release job
                image: 'registry.test:5000/shop/web:1.4'   # was 1.3
                command: [ "/serve",  '--port=8080' ]
            -   {name: log, image: "registry.test:5000/shop/log:2"}

    # how it is rolled out
    rollout:
        strategy: activate
        activationDelay: 30s   # time to look

    drain: {max: 5s}
...
"""
WEB = ("spec", "template", "spec", "containers", 0, "image")
LOG = ("spec", "template", "spec", "containers", 1, "image")


def changed(before: bytes, after: bytes) -> list[str]:
    """The lines that differ, as a diff has them."""
    lines = [text.decode().splitlines(keepends=True) for text in (before, after)]
    return [line.rstrip("\n") for line in difflib.ndiff(*lines) if line[0] in "+-"]


def edited(text: str, *changes: Change) -> list[str]:
    data = text.encode()
    return changed(data, edit("web.yaml", data, "Workload", "web", changes))


def test_an_image_changes_in_its_own_quotes_and_nothing_else_does():
    assert edited(FILE, Put(WEB, "registry.test:5000/shop/web:1.5")) == [
        "-                 image: 'registry.test:5000/shop/web:1.4'   # was 1.3",
        "+                 image: 'registry.test:5000/shop/web:1.5'   # was 1.3",
    ]


def test_only_the_bytes_of_the_scalar_differ():
    before = FILE.encode()
    after = edit("web.yaml", before, "Workload", "web", [Put(WEB, "registry.test:5000/shop/web:1.50")])
    at = before.index(b"web:1.4") + len(b"web:1.")
    assert after == before[:at] + b"50" + before[at + 1 :]


def test_a_container_in_braces_is_edited():
    assert edited(FILE, Put(LOG, "log")) == [
        '-             -   {name: log, image: "registry.test:5000/shop/log:2"}',
        '+             -   {name: log, image: "log"}',
    ]


def test_the_current_value_changes_nothing():
    assert edited(FILE, Put(WEB, "registry.test:5000/shop/web:1.4")) == []


def test_a_key_changes_its_name_and_value_in_place():
    path = ("spec", "rollout", "activationDelay")
    assert edited(FILE, Rename(path, "activateAt", "2026-12-01T06:00:00Z")) == [
        "-         activationDelay: 30s   # time to look",
        '+         activateAt: "2026-12-01T06:00:00Z"   # time to look',
    ]


def test_a_missing_key_is_added_at_the_end_of_its_mapping():
    assert edited(FILE, Put(("spec", "rollout", "bake"), "1m")) == ['+         bake: "1m"']


def test_missing_mappings_are_added_with_the_indentation_of_the_file():
    text = FILE.replace("    # how it is rolled out\n    rollout:\n", "").replace(
        "        strategy: activate\n        activationDelay: 30s   # time to look\n", ""
    )
    assert edited(text, Put(("spec", "rollout", "activateAt"), "2026-12-01T06:00:00Z")) == [
        "+     rollout:",
        '+         activateAt: "2026-12-01T06:00:00Z"',
    ]


def test_a_mapping_in_braces_gets_its_key_inside_them():
    text = FILE.replace("rollout:\n        strategy: activate\n        activationDelay: 30s", "rollout: {}")
    assert edited(text, Put(("spec", "rollout", "activateAt"), "2026-12-01T06:00:00Z")) == [
        "-     rollout: {}   # time to look",
        '+     rollout: {activateAt: "2026-12-01T06:00:00Z"}   # time to look',
    ]
    assert edited(FILE, Put(("spec", "drain", "min"), "1s"))[1] == '+     drain: {max: 5s, min: "1s"}'


def test_json_stays_json():
    value = {
        "apiVersion": "reconciler/v1",
        "kind": "Workload",
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:1"}]}}},
    }
    for indent in (None, 4):
        before = json.dumps(value, indent=indent).encode()
        changes = [Put(WEB, "web:2"), Put(("spec", "rollout", "activateAt"), "2026-12-01T06:00:00Z")]
        after = json.loads(edit("web.json", before, "Workload", "web", changes))
        assert after["spec"]["rollout"] == {"activateAt": "2026-12-01T06:00:00Z"}
        assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2"
        pretty = json.dumps(value, indent=indent).replace("web:1", "web:2").encode()
        assert edit("web.json", before, "Workload", "web", changes[:1]) == pretty


@pytest.mark.parametrize("head", ["", "\ufeff"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_line_ends_and_byte_order_mark_stay(newline, head):
    before = (head + FILE).replace("\n", newline).encode()
    changes = [Put(WEB, "web:5"), Put(("spec", "rollout", "bake"), "1m")]
    after = edit("web.yaml", before, "Workload", "web", changes)
    plain = edit("web.yaml", FILE.encode(), "Workload", "web", changes)
    assert after == (head + plain.decode()).replace("\n", newline).encode()


def test_a_file_without_a_last_line_break_gets_no_broken_line():
    text = "kind: Workload\nmetadata: {name: web}\nspec:\n  replicas: 1"
    after = edit("w", text.encode(), "Workload", "web", [Put(("spec", "rollout", "activateAt"), "x")])
    assert after.decode() == f'{text}\n  rollout:\n    activateAt: "x"'


def test_a_multi_line_string_at_the_end_is_not_changed():
    text = "kind: Workload\nmetadata: {name: web}\nspec:\n  note: |+\n    a\n\n"
    after = edit("w", text.encode(), "Workload", "web", [Put(("spec", "x"), "y")])
    assert after.decode() == 'kind: Workload\nmetadata: {name: web}\nspec:\n  x: "y"\n  note: |+\n    a\n\n'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("image: 'registry.test:5000/shop/web:1.4'", "image: &web web:1", "has an anchor"),
        ("image: 'registry.test:5000/shop/web:1.4'", "image: !!str web:1", "has a tag"),
        ("image: 'registry.test:5000/shop/web:1.4'", "image: >-\n                  web:1", "spans several lines"),
        ("            -   name: web\n", "            -   <<: {tty: x}\n                name: web\n", "has a merge key"),
        ("    template:\n", "    template: &all\n", "has an anchor"),
    ],
)
def test_an_edit_that_would_affect_other_values_is_refused(old, new, message):
    text = FILE.replace(old, new)
    assert text != FILE
    with pytest.raises(Refused, match=message) as caught:
        edited(text, Put(WEB, "web:2"))
    assert "web.yaml: Workload 'web': spec.template.spec.containers[0].image" in str(caught.value)
    assert caught.value.next_step


def test_a_repeated_value_is_refused():
    text = FILE.replace("name: web      # the shop", "name: web\nx: &image web:1").replace(
        "'registry.test:5000/shop/web:1.4'", "*image"
    )
    with pytest.raises(Refused, match="repeats another value through an alias"):
        edited(text, Put(WEB, "web:2"))


def test_a_missing_document_or_path_is_named():
    with pytest.raises(Refused, match="there is no Workload 'shop'"):
        edit("web.yaml", FILE.encode(), "Workload", "shop", [Put(WEB, "x")])
    with pytest.raises(Refused, match=r"has no spec\.template\.spec\.containers\[7\]\.image"):
        edited(FILE, Put((*WEB[:4], 7, "image"), "x"))
    with pytest.raises(Refused, match="is not a mapping"):
        edited(FILE, Put(("spec", "replicas", "x"), "y"))
    with pytest.raises(Refused, match=r"has no spec\.drain\.min"):
        edited(FILE, Rename(("spec", "drain", "min"), "max", "1s"))


def test_a_broken_file_is_not_touched():
    with pytest.raises(Refused, match="reconcile validate"):
        find("web.yaml", b"kind: [", "Workload", "web")
    with pytest.raises(Refused, match="has Workload 'web' twice"):
        find("web.yaml", (FILE + "---\n" + FILE).encode(), "Workload", "web")


_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x7f", exclude_categories=("Cs", "Cc")), max_size=30)


@given(value=_TEXTS.filter(lambda text: not set(text) & set("\x85\u2028\u2029\ufeff\ufffe\uffff")))
@pytest.mark.parametrize("path", [WEB, LOG, ("spec", "rollout", "strategy"), ("spec", "new", "deep")])
def test_any_value_is_read_back_and_nothing_else_changes(path, value):
    before = FILE.encode()
    after = edit("web.yaml", before, "Workload", "web", [Put(path, value)])
    document = find("web.yaml", after, "Workload", "web")
    edited_value = document.value
    for part in path:
        edited_value = edited_value[part]
    assert edited_value == value
    first, _ = read_file("web.yaml", before)
    second, _ = read_file("web.yaml", after)
    assert first[0].value == second[0].value
    kept = before.splitlines()
    assert all(line in after.splitlines() for line in kept if b"image" not in line and b"strategy" not in line)
