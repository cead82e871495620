"""The rule for Renovate that ships: its expressions find each image of our manifests, and what Renovate replaces stays a manifest."""

import json
import re
from pathlib import Path

import pytest

from manifests.values.image_ref import parse_image
from manifests.yaml.read import read_file

ROOT = Path(__file__).resolve().parents[2]
RULE = ROOT / "examples" / "gitops" / "renovate.json"
DIGEST = f"sha256:{'0f' * 32}"


def found(text: str) -> list[tuple[str, str, str]]:
    """The name, tag and digest of each image that the rule finds."""
    expressions = json.loads(RULE.read_text())["customManagers"][0]["matchStrings"]
    matches = [
        (match.start(), match.groupdict())
        for expression in expressions
        for match in re.finditer(expression.replace("(?<", "(?P<"), text)
    ]
    return [
        (groups["depName"], groups.get("currentValue") or "", groups.get("currentDigest") or "")
        for _, groups in sorted(matches, key=lambda item: item[0])
    ]


def images(value: object) -> list[str]:
    """Each image of a document, in its order."""
    if isinstance(value, dict):
        own = [value["image"]] if isinstance(value.get("image"), str) else []
        return own + [image for key, inner in value.items() if key != "image" for image in images(inner)]
    return [image for inner in value for image in images(inner)] if isinstance(value, list) else []


def test_the_rule_finds_every_image_of_the_examples():
    files = [path for path in (ROOT / "examples").rglob("*.y*ml") if "image:" in path.read_text()]
    assert len(files) > 3
    for file in files:
        documents, _ = read_file(file.name, file.read_bytes())
        declared = sorted(str(parse_image(image)) for document in documents for image in images(document.value))
        matched = [
            f"{name}{f':{tag}' if tag else ''}{f'@{digest}' if digest else ''}"
            for name, tag, digest in found(file.read_text())
        ]
        assert sorted(str(parse_image(image)) for image in matched) == declared, file


@pytest.mark.parametrize(
    ("line", "image"),
    [
        ("  image: nginx:1.27  # comment", ("nginx", "1.27", "")),
        ("  image: 'registry.test:5000/team/shop:1.4'", ("registry.test:5000/team/shop", "1.4", "")),
        ('  - {name: log, image: "log:2"}', ("log", "2", "")),
        ("  - {image: log:2, name: log}", ("log", "2", "")),
        (f"  image: shop:stable@{DIGEST}", ("shop", "stable", DIGEST)),
        (f"  image: localhost:5000/shop@{DIGEST}", ("localhost:5000/shop", "", DIGEST)),
    ],
)
def test_each_spelling_of_an_image_is_found(line, image):
    assert found(f"spec:\n{line}\n") == [image]


@pytest.mark.parametrize(
    "line", ["  drift: {image: revert}", "  image: shop", "  myimage: shop:1", "  # image of shop:1"]
)
def test_other_lines_are_left_alone(line):
    assert found(f"spec:\n{line}\n") == []


def test_the_expressions_need_nothing_that_re2_lacks():
    for expression in json.loads(RULE.read_text())["customManagers"][0]["matchStrings"]:
        assert re.findall(r"\(\?(?!:|<[A-Za-z])|\\[1-9]", expression) == []
