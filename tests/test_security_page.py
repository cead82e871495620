"""docs/security.md: each row of what they can do at most names a test that exists, and the figures are those of all surfaces."""

import ast
import re
from pathlib import Path

from tests.fuzz.__main__ import SURFACES

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[str]:
    section = PAGE.partition("## Who can do what at most")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def defined(file: str) -> set[str]:
    """The tests of a file, of its classes too."""
    path = ROOT / file
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_row_names_a_test_that_exists():
    table = [line for line in rows() if not set(line) <= set("| -")]
    assert len(table) > 25
    assert [line for line in table if not TEST.search(line)] == []
    named = TEST.findall(PAGE)
    assert [f"{file}::{name}" for file, name in named if name not in defined(file)] == []


def test_files_of_tests_that_the_page_names_exist():
    named = set(re.findall(r"`(tests/[\w/]+\.py)", PAGE))
    assert [file for file in sorted(named) if not (ROOT / file).exists()] == []


def test_the_figures_are_of_every_surface_and_without_failures():
    section = PAGE.partition("<!-- fuzz -->")[2].partition("<!-- /fuzz -->")[0]
    table = {cells[1].strip(): cells for line in section.splitlines() if len(cells := line.split("|")) == 9}
    assert [surface.name for surface in SURFACES if surface.name not in table] == []
    assert [
        name for name, cells in table.items() if name in {one.name for one in SURFACES} and cells[6].strip() != "0"
    ] == []
