"""The rules of docs/style.md that a program can check: retired words, the length of test names, names of files."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STYLE = ROOT / "docs" / "style.md"
CODE = ("reconciler", "providers", "manifests")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")
ROOMS = ("reconciler/core", "reconciler/shell", "providers", "manifests")
LONGEST_NAME = 70
KEPT = {"reconciler/shell/store/schema.py": {"amnesic"}}
"""Retired words in the names that a migration reads from state files of an earlier version."""


def retired() -> dict[str, str]:
    """Each retired word or phrase and its replacement, from the table of docs/style.md."""
    table = STYLE.read_text(encoding="utf-8").partition("## Retired words")[2]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", table, re.MULTILINE)
    return dict(rows[2:])  # the first two lines are the head of the table


def texts() -> Iterator[Path]:
    """All files in which retired words are refused."""
    for room in (*CODE, "tests", "bench"):
        yield from sorted(path for path in (ROOT / room).rglob("*.py") if path != Path(__file__))
    yield from (page for page in sorted((ROOT / "docs").glob("*.md")) if page != STYLE)
    yield from sorted((ROOT / "docs" / "decisions").glob("*.md"))
    yield from (ROOT / page for page in PAGES)
    for directory in (ROOT / "examples", ROOT / "tests" / "golden"):
        yield from sorted(path for path in directory.rglob("*") if path.is_file() and path.suffix != ".pyc")


def uses(text: str, words: dict[str, str]) -> Iterator[tuple[int, str]]:
    """The line and a message for each use of a retired word.

    Whole words in any case, also as part of a name with underscores or over the end of a line. Of overlapping phrases the longest.
    """
    phrases = {re.escape(phrase).replace("\\ ", r"[\s_]+"): phrase for phrase in sorted(words, key=len, reverse=True)}
    pattern = re.compile(rf"(?<![^\W_])(?:{'|'.join(f'({phrase})' for phrase in phrases)})(?![^\W_])", re.IGNORECASE)
    originals = list(phrases.values())
    for match in pattern.finditer(text):
        assert match.lastindex is not None
        line = text.count("\n", 0, match.start()) + 1
        yield line, f"{match[0]!r} is retired; write: {words[originals[match.lastindex - 1]]}"


def test_the_table_of_retired_words_is_read():
    assert retired()["anew"] == "again; recreate"
    assert len(retired()) >= 12


@pytest.mark.parametrize("text", ["made anew", "Made\nAnew", "was_made_anew", "MADE ANEW."])
def test_a_phrase_is_found_in_any_case_and_across_lines(text):
    assert [line for line, _ in uses(f"x\n{text}", {"anew": "again", "made anew": "recreated"})] == [2]


@pytest.mark.parametrize("text", ["screw", "crewed", "renewed", "crews"])
def test_a_part_of_another_word_is_not_found(text):
    assert not list(uses(text, {"crew": "roster", "anew": "again"}))


def test_no_text_uses_a_retired_word():
    words = retired()
    refused = []
    for path in texts():
        name = str(path.relative_to(ROOT))
        kept = KEPT.get(name, set())
        refused += [
            f"{name}:{line}: {message}"
            for line, message in uses(
                path.read_text(encoding="utf-8", errors="replace"),
                {phrase: replacement for phrase, replacement in words.items() if phrase not in kept},
            )
        ]
    if refused:
        pytest.fail(f"{len(refused)} retired words, see docs/style.md:\n" + "\n".join(refused), pytrace=False)


def test_names_of_test_functions_are_short():
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has {len(node.name)} characters, at most {LONGEST_NAME}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and len(node.name) > LONGEST_NAME
    ]
    if long:
        pytest.fail(f"{len(long)} long names:\n" + "\n".join(long), pytrace=False)


def test_no_file_repeats_the_name_of_its_room():
    repeated = [
        f"{path.relative_to(ROOT)}: leave out {path.parent.name!r}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.stem.startswith(f"{path.parent.name}_")
    ]
    if repeated:
        pytest.fail("\n".join(repeated), pytrace=False)
