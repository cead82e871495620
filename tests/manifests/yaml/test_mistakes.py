"""Mistakes in a text: each is a problem whose line is the one to correct, whatever else is wrong. Legal spellings are read."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests.load import load
from manifests.problems import Code, ManifestErrors, Problem, Where
from manifests.yaml.edit import Put, edit
from manifests.yaml.read import internal_problem, read_file
from manifests.yaml.spelling import spelled
from providers import registry
from tests.manifests.trees import GOOD, GUARD, INSTANCE, POLICY, RECORD, SERVICE, WORKLOAD, write

EXAMPLES = Path(__file__).parents[3] / "examples"

URL = "u: {v: redis://redis:6379/0}\n"
"""Valid YAML 1.2 that the C parser refuses: a mistake elsewhere must not be blamed on it."""


def line_of(text: str) -> int:
    """The line of the only problem of a text."""
    _, problems = read_file("a.yaml", text.encode())
    wrong = [problem for problem in problems if not problem.is_warning]
    assert len(wrong) == 1, wrong
    assert wrong[0].hint, "the next step is missing"
    return wrong[0].line


@pytest.mark.parametrize("before", ["", URL], ids=["alone", "after a URL"])
@pytest.mark.parametrize("after", ["", "z:\n  - {y: 1}\n  - x\n"], ids=["last", "followed"])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nfoo: [\n", 2),
        ("a: 1\nfoo: {\n", 2),
        ("foo: [1, 2\nb: 2\n", 1),
        ("foo: {x: 1\nb: 2\n", 1),
        ("foo: [{x: 1}, {y: 2}\nb: [3]\n", 1),
        ("foo: [\n  1,\n  2\nb: 2\n", 1),
        ("foo: {\n  x: [1, 2\n}\n", 2),
        ("c:\n  - {name: x, args: [a, b}\n", 2),
        ("a: ]\n", 1),
        ("a: 1\nb: [1}\n", 2),
        ("a: [x, , y]\n", 1),
        ("a: [\n  x,\n  , y]\n", 3),
        ("a: {x: 1,, y: 2}\n", 1),
        ('a: "x\nb: 2\n', 1),
        ("a: 'x\nb: 2\n", 1),
        ('a: "x\nb: "y"\nc: 3\n', 1),
        ("a: 1\nb: 'x\nc: 'y'\n", 2),
        ("a: it's\nb: 'x\n", 2),
        ("a: |\n  it's [\nb: 'x\n", 3),
        ("a: b: c\n", 1),
        ("a: 1\nb 2\nc: 3\n", 2),
        ("s:\n  b\n  c: 3\n", 2),
        ("a: 1\n  b: 2\n", 2),
        ("a:\n    b: 1\n  c: 2\n", 3),
        ("a:\n  - x\n - y\n", 3),
        ("a:\n- x\nb: 1\n- y\n", 4),
        ("a:\n\tb: 1\n", 2),
        ("a:\n  b:\n  \t- c\n", 3),
        ("a:\n  -\tb: 1\n", 2),
        ("a: |\n  x\n\ty\n", 3),
        ("a: &\nb: 2\n", 1),
        ("a: *\nb: 2\n", 1),
        ("a: 1\nb: *none\n", 2),
        ("a: 1\nb: 2\na: 3\n", 3),
        ("a: {b: 1, b: 2}\n", 1),
        ("a: @x\n", 1),
        ("a: `x`\n", 1),
        ("a: 1\nb: [1, 2]]\n", 2),
        ("a: !x 1\n", 1),
        ("a: 1\n5: 2\n", 2),
    ],
)
def test_the_line_of_the_mistake_is_named(text: str, line: int, before: str, after: str) -> None:
    assert line_of(before + text + after) == line + before.count("\n")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_line_breaks_and_a_byte_order_mark_do_not_move_the_line(newline: str) -> None:
    assert line_of("\ufeffa: 1\n# c\nfoo: [\n".replace("\n", newline)) == 3


def test_an_open_quote_before_a_document_marker_is_named() -> None:
    assert line_of('a: 1\nb: "x\n---\nc: "y"\n') == 2
    assert line_of("a: 1\nb: [x\n---\nc: [y]\n") == 2


def test_brackets_at_the_begin_of_a_line_are_read_without_indentation() -> None:
    assert line_of('{\n"a": {\n"b": 1,\n"c": [1, 2,, 3]\n}\n}\n') == 4


def values(text: str) -> list[object]:
    documents, problems = read_file("a.yaml", text.encode())
    assert [problem for problem in problems if not problem.is_warning] == []
    return [document.value for document in documents]


@pytest.mark.parametrize("before", ["", URL + "---\n"], ids=["alone", "after a URL"])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a:\n  x: 1\n\t# a comment\n  z: 2\n", {"a": {"x": 1, "z": 2}}),
        ("a:\n  x: 1\n  \t\n\t\n  z: 2\n", {"a": {"x": 1, "z": 2}}),
        ("a:\n-\tb\n-  \t c\n", {"a": ["b", "c"]}),
        ("a:\t1\nb: \t2\t\nc: 3\t# c\n", {"a": 1, "b": 2, "c": 3}),
        ("a:\t# c\n  - 1\n", {"a": [1]}),
        ("a:\t&x\t1\nb:\t*x\n\t\n", {"a": 1, "b": 1}),
        ("a: [\n\t1,\n\t2\n\t]\nb:\t{c:\t3}\n\t#\n", {"a": [1, 2], "b": {"c": 3}}),
        ("a: |\n  x\n  \ty\n   \tz\n\n\t\nb: 1\n", {"a": "x\n\ty\n \tz\n", "b": 1}),
        ("a:\n  - |\n    x\t\n  -\tb\n", {"a": ["x\t\n", "b"]}),
        ("- k: >-\n    x\n    \ty\n  l:\tm\n\t# c\n", [{"k": "x\n\ty", "l": "m"}]),
        ("a: |2\n   \tx\n\t# c\n", {"a": " \tx\n"}),
        ("a: \"x\ty\"\nb: 'x\t#y'\n\t# c\n", {"a": "x\ty", "b": "x\t#y"}),
        ('a: "x\n  \ty"\nb:\tz\n\t\n', {"a": "x y", "b": "z"}),
        ("a: w\n  \tv\nb: x\n\t# c\n", {"a": "w v", "b": "x"}),
        ('"k":\t|\n  \tx\n\t# c\n', {"k": "\tx\n"}),
    ],
)
def test_legal_tabs_are_read(text: str, value: object, before: str) -> None:
    assert values(before + text)[-1] == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\n...\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("a: 1\n... # end\n# begin\n\nb: 2\n...\n", [{"a": 1}, {"b": 2}]),
        ("a: 1\n...\n...\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("...\na: 1\n", [{"a": 1}]),
        ("a: 1\n...\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("a: |\n  x\n...\nb: |\n  ...\n", [{"a": "x\n"}, {"b": "...\n"}]),
        ("%YAML 1.2\n---\na: 1\n...\n%TAG !e! tag:e,2000:\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("%FUTURE x y\n---\na: 1\n...\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("a: 1\r\n...\r\nb: 2\r\n", [{"a": 1}, {"b": 2}]),
        ("\ufeffa: 1\n\ufeff---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("\ufeffa: 1\r\n\ufeff# joined\r\n---\r\nb: 2\r\n", [{"a": 1}, {"b": 2}]),
    ],
)
def test_every_way_to_separate_documents_is_read(text: str, expected: list[object]) -> None:
    assert values(text) == expected


def test_places_after_a_changed_spelling_are_those_of_the_text() -> None:
    text = INSTANCE + "...\n\t# c\n" + RECORD.replace("kind: Record", "kind:\tRecordd")

    documents, problems = read_file("a.yaml", text.encode())

    assert problems == []
    line = text[: text.index("Recordd")].count("\n") + 1
    assert documents[1].place(("kind",)) == (line, len("kind: ") + 1)


def test_a_file_with_legal_tabs_is_edited_where_the_text_is() -> None:
    text = WORKLOAD.replace("spec:", "spec:\t# the workload", 1) + "\t# end\n"
    assert "\t" in text

    after = edit("a.yaml", text.encode(), "Workload", "web", [Put(("spec", "replicas"), "3")])

    assert after.decode() != text
    assert after.decode().endswith("\t# end\n")
    assert values(after.decode())[0]["spec"]["replicas"] in (3, "3")  # type: ignore[index]


def test_two_mistakes_in_one_file_are_both_named(tmp_path: Path) -> None:
    text = "---\n".join([INSTANCE, WORKLOAD.replace("template:", "templat:"), "a: [x, , y]\n"])
    write(tmp_path, {**GOOD, "instance.yaml": text, "web.yaml": "# moved\n"})

    with pytest.raises(ManifestErrors) as raised:
        load(tmp_path, settings_model=registry.settings_model, known_types=registry.known_types)

    found = {problem.code: problem.line for problem in raised.value.problems if problem.file == "instance.yaml"}
    assert found[Code.UNKNOWN_FIELD] == text[: text.index("templat:")].count("\n") + 1
    assert found[Code.YAML_SYNTAX] == text.count("\n")


def test_a_failure_of_the_program_is_a_problem_without_the_text() -> None:
    problem = internal_problem(Where("a.yaml", 7, 1), KeyError("password"))

    assert (problem.code, problem.file, problem.line) == (Code.INTERNAL_ERROR, "a.yaml", 7)
    assert "KeyError" in problem.message
    assert "password" not in problem.render()


# --- any text -----------------------------------------------------------------------------------------------------

REAL = [
    *(INSTANCE, WORKLOAD, SERVICE, POLICY, RECORD, GUARD),
    *(path.read_text() for path in sorted(EXAMPLES.rglob("*.yaml"))),
]
PIECES = [
    "[", "]", "{", "}", '"', "'", ":", ": ", "-", "- ", "\n", "\r\n", "\t", "  ", "#", "&a ", "*a ", "!!int ", "!x ", "|", ">-\n", ",",
    "---\n", "...\n", "%YAML 1.2\n", "%YAML 1.3\n", "%X\n", "\ufeff", "\x00", "\x85", "\u2028", "é", "<<: ", "? ", "@", "`", "\\", "\\U99999999",
    "0x", ".inf", "1e999", "5: ", "null: ", "a: b: c\n", "redis://r:6/0",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A real manifest with a few pieces inserted, removed or repeated."""
    text = draw(st.sampled_from(REAL))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        change = draw(st.sampled_from(["insert", "remove", "repeat", "cut"]))
        length = draw(st.integers(1, 12))
        if change == "insert":
            text = text[:at] + draw(st.sampled_from(PIECES)) + text[at:]
        elif change == "remove":
            text = text[:at] + text[at + length :]
        elif change == "repeat":
            text = text[: at + length] + text[at:]
        else:
            text = text[:at]
    return text


@settings(max_examples=settings().max_examples * 20)
@given(text=damaged())
def test_any_damage_is_read_or_is_a_problem_inside_the_file(text: str) -> None:
    documents, problems = read_file("a.yaml", text.encode())

    lines = len(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    for problem in problems:
        assert problem.code is not Code.INTERNAL_ERROR, problem
        assert problem.file == "a.yaml"
        assert 1 <= problem.line <= lines
        assert problem.column >= 1
    for document in documents:
        assert 1 <= document.place(("spec", "template", "x"))[0] <= lines


@settings(max_examples=settings().max_examples * 3)
@given(texts=st.lists(damaged(), min_size=1, max_size=2))
def test_any_damage_of_a_tree_raises_problems_only(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("tree")
    for number, text in enumerate(texts):
        (root / f"{number}.yaml").write_bytes(text.encode())
    problems: tuple[Problem, ...] = ()
    try:
        load(
            root,
            settings_model=registry.settings_model,
            known_types=registry.known_types,
            template_support=registry.template_support,
        )
    except ManifestErrors as error:
        problems = error.problems
    assert [problem for problem in problems if problem.code is Code.INTERNAL_ERROR] == []


@settings(max_examples=settings().max_examples * 20)
@given(text=damaged())
def test_another_spelling_keeps_every_place(text: str) -> None:
    other = spelled(text)

    assert len(other) == len(text)
    assert other.count("\n") == text.count("\n")


@settings(max_examples=settings().max_examples * 10)
@given(data=st.data())
def test_legal_tabs_change_no_value(data: st.DataObject) -> None:
    """Tabs in blank lines, before comments and after indicators: the same values as with spaces."""
    text = data.draw(st.sampled_from([*REAL, TABLED]))
    lines = text.split("\n")
    before, _ = read_file("a.yaml", text.encode())
    fillers = ["\t", "\t# c", " \t# c", " \t"]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.sampled_from([place for place, line in enumerate(lines) if not _in_scalar(lines, place)]))
        change = data.draw(st.sampled_from(["line", "end", "colon"]))
        if change == "line":
            lines.insert(at, data.draw(st.sampled_from(fillers)))
        elif change == "end" and lines[at].strip() and "#" not in lines[at]:
            lines[at] += data.draw(st.sampled_from(["\t", "\t# c"]))
        elif change == "colon" and lines[at].count(": ") == 1 and '"' not in lines[at] and "#" not in lines[at]:
            lines[at] = lines[at].replace(": ", ":\t")
    after, problems = read_file("a.yaml", "\n".join(lines).encode())

    assert [problem for problem in problems if not problem.is_warning] == []
    assert [document.value for document in after] == [document.value for document in before]


TABLED = """a: |
  if x; then
  \ty
  fi
b: plain
c:
- d: >
    folded
    \ttext
  e: "quoted"
- |-
  \t# no comment
f: 1
"""


def _in_scalar(lines: list[str], place: int) -> bool:
    """Whether a line, or the one before it, is or begins text of several lines: there a tab would be content."""
    depth = None
    for number, line in enumerate(lines[: place + 1]):
        stripped = line.strip()
        column = len(line) - len(line.lstrip(" "))
        if depth is not None and stripped and column <= depth:
            depth = None
        if depth is None and stripped.rstrip("-+").endswith(("|", ">")):
            depth = column
        if number == place:
            return depth is not None
    return False
