"""The text of one file: dialect, limits, places."""

import gc
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests.gc_pause import collector_paused
from manifests.problems import Code, key_path
from manifests.yaml.read import FILE_SIZE, read_file
from tests.manifests.trees import WORKLOAD


def values(text: str | bytes) -> list[object]:
    documents, problems = read_file("a.yaml", text if isinstance(text, bytes) else text.encode())
    assert [problem for problem in problems if not problem.is_warning] == []
    return [document.value for document in documents]


def codes(text: str | bytes) -> list[Code]:
    return [problem.code for problem in read_file("a.yaml", text if isinstance(text, bytes) else text.encode())[1]]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"),
        ("No", "No"),
        ("on", "on"),
        ("OFF", "OFF"),
        ("y", "y"),
        ("true", True),
        ("FALSE", False),
        ("tRue", "tRue"),
        ("null", None),
        ("~", None),
        ("", None),
        ("2122:22", "2122:22"),
        ("12:30:45", "12:30:45"),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("+12", 12),
        ("-0", 0),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        (".", "."),
        ("-", None),
        ("2026-01-31", "2026-01-31"),
        ("8080/tcp", "8080/tcp"),
        ("'8080'", "8080"),
        ('"\\u00e9\\x41"', "éA"),
        ("!!str 8080", "8080"),
        ('! "8080"', "8080"),
        ("!!int 8080", 8080),
        ("!!seq [1]", [1]),
        ("|-\n  a\n  b", "a\nb"),
    ],
)
def test_unquoted_scalars_mean_what_yaml_1_2_says(written: str, value: object) -> None:
    expected = [None] if written == "-" else value

    assert values(f"a: {written}\n" if written != "-" else "a:\n-") == [{"a": expected}]


def test_a_colon_needs_no_quotes_between_brackets() -> None:
    """Which YAML 1.1 did not allow."""
    text = "a: {b: 22:22, c: [http://x:80/, ::1], d: &d x:y}\ne: *d\n"
    documents, problems = read_file("a.yaml", (text + "f: 1\nf: 2\n").encode())

    assert documents[0].value == {"a": {"b": "22:22", "c": ["http://x:80/", "::1"], "d": "x:y"}, "e": "x:y", "f": 1}
    assert documents[0].place(("a", "c", 1)) == (1, 33)
    assert [(problem.code, problem.line) for problem in problems] == [(Code.YAML_AMBIGUOUS, 1), (Code.DUPLICATE_KEY, 4)]


def test_the_hint_for_such_a_colon_in_a_long_text_says_to_quote_it() -> None:
    text = "# long\n" * 50_000 + "a: [b:c]\n"

    problems = read_file("a.yaml", text.encode())[1]

    assert [(problem.code, problem.hint) for problem in problems] == [
        (Code.YAML_SYNTAX, "put a string with ':' between [] or {} in quotes")
    ]


@pytest.mark.parametrize("written", ["yes", "on", "22:22", "010", "1_000", "2026-01-31", "0b1"])
def test_a_scalar_that_yaml_1_1_reads_differently_gets_a_warning(written: str) -> None:
    problems = read_file("a.yaml", f"a: {written}".encode())[1]

    assert [(problem.code, problem.column) for problem in problems] == [(Code.YAML_AMBIGUOUS, 4)]


@pytest.mark.parametrize("written", ["'yes'", '"on"', "10", "0", "0.5", "truth", "10.0.0.1", "-5", "1e3", "07a"])
def test_a_scalar_that_both_versions_read_alike_gets_no_warning(written: str) -> None:
    assert codes(f"a: {written}") == []


def test_a_byte_order_mark_and_carriage_returns_shift_no_places() -> None:
    documents, problems = read_file("a.yaml", b"\xef\xbb\xbfa: 1\r\nb:\r\n  c: 2\r\n")

    assert problems == []
    assert documents[0].value == {"a": 1, "b": {"c": 2}}
    assert str(documents[0].where) == "a.yaml:1:1"
    assert documents[0].place(("b", "c")) == (3, 6)


def test_columns_count_characters_and_not_bytes() -> None:
    documents, _ = read_file("a.yaml", "{é: 1, ü: 2, 😀: 3}".encode())

    assert documents[0].place(("😀",)) == (1, 17)
    assert documents[0].place(("😀",), key=True) == (1, 14)


def test_documents_are_separated_ended_and_may_be_empty() -> None:
    text = "# only a comment\n---\na: 1\n...\n# between\n---\n# empty\n---\n~\n--- # text after the line\nb: 2\n"

    documents, problems = read_file("a.yaml", text.encode())

    assert problems == []
    assert [(document.where.line, document.value) for document in documents] == [(3, {"a": 1}), (11, {"b": 2})]


def test_an_anchor_ends_with_its_document() -> None:
    assert codes("a: &x 1\n---\nb: *x\n") == [Code.BAD_ALIAS]


def test_json_is_read_unchanged() -> None:
    value = {"a": [1, 2.5, None, True, 'x\n"é\\'], "b": {"c": "yes"}}

    assert values(json.dumps(value, indent="\t")) == [value]
    assert values(json.dumps(value, separators=(",", ":"))) == [value]


def test_a_duplicate_key_names_both_places_and_a_merge_key_is_legal() -> None:
    problems = read_file("a.yaml", b"x: 1\nz: 2\nx: 3\n")[1]

    assert [problem.render() for problem in problems] == [
        "a.yaml:3:1: duplicate-key: the key 'x' is already at line 1, column 1\n    keep one of the two"
    ]
    assert values("base: &b {p: 1, q: 2}\none: {<<: *b, q: 3}\ntwo: {q: 4, <<: [*b, {r: 5, p: 6}]}") == [
        {"base": {"p": 1, "q": 2}, "one": {"q": 3, "p": 1}, "two": {"q": 4, "p": 1, "r": 5}}
    ]


def test_a_merged_value_has_the_place_where_it_is_written() -> None:
    document = read_file("a.yaml", b"base: &b\n  p: 1\none:\n  <<: *b\n")[0][0]

    assert document.place(("one", "p")) == (2, 6)


@pytest.mark.parametrize("text", ["a: {<<: 1}", "a: {<<: [1]}", "a: &a {b: *a}", "a: *b", "a: &a [*a]"])
def test_an_alias_that_leads_nowhere_is_a_problem(text: str) -> None:
    assert codes(text) == [Code.BAD_ALIAS]


@pytest.mark.parametrize("key", ["1", "true", "~", "1.5", "? [a]\n", "? {a: b}\n"])
def test_a_key_that_is_not_a_string_is_a_problem(key: str) -> None:
    assert codes(f"{key}: x") == [Code.BAD_KEY]


@pytest.mark.parametrize(
    "text", ["a: !x 1", "a: !!binary aGk=", "!!set {a}", "a: !!python/object:os.system x", "!!int x: 1", "a: !!int x"]
)
def test_a_tag_is_refused(text: str) -> None:
    assert set(codes(text)) == {Code.YAML_TAG}


@pytest.mark.parametrize("number", [".inf", "-.INF", ".nan", "1e999", "9" * 65, "9" * 100_000, "0x" + "f" * 100])
def test_a_number_that_no_field_can_hold_is_refused_at_once(number: str) -> None:
    assert codes(f"a: {number}") == [Code.BAD_NUMBER]


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("a: 1\n\tb: 2\n", (2, 1), "spaces, not tabs"),
        ("a:\n\t- b\n", (2, 1), "spaces, not tabs"),
        ("a: b: c\n", (1, 5), "': '"),
        ("a: @b\n", (1, 4), "in quotes"),
        ("a: x\x00\n", (1, 5), "escape"),
        ("é: x\x07\n", (1, 5), "escape"),
        ("a: 1\nb: x\u2028y\n", (2, 5), "escape"),
        ("a: 'x\n", (1, 4), "closing '"),
    ],
)
def test_a_syntax_error_is_reported_with_its_place_and_a_next_step(
    text: str, place: tuple[int, int], hint: str
) -> None:
    documents, problems = read_file("a.yaml", text.encode())

    assert documents == []
    assert [(problem.code, (problem.line, problem.column)) for problem in problems] == [(Code.YAML_SYNTAX, place)]
    assert hint in problems[0].hint


@pytest.mark.parametrize(
    "data",
    [
        "a: 1".encode("utf-16"),
        "a: 1".encode("utf-16-le"),
        "a: 1".encode("utf-16-be"),
        "a: 1".encode("utf-32"),
        b"a: \xff",
    ],
)
def test_a_file_that_is_not_utf_8_is_refused(data: bytes) -> None:
    assert codes(data) == [Code.ENCODING]


def test_documents_before_a_mistake_are_still_read() -> None:
    documents, problems = read_file("a.yaml", b"a: 1\n---\nb: 2\n---\nc: [\n")

    assert [document.value for document in documents] == [{"a": 1}, {"b": 2}]
    assert [problem.code for problem in problems] == [Code.YAML_SYNTAX]


@pytest.mark.parametrize("repeat", ["[{}]", "{{x: 1, z: [{}]}}", "{{<<: *b0, z: [{}]}}"])
def test_an_alias_bomb_is_refused_in_milliseconds(repeat: str) -> None:
    lines = ["b0: &b0 {x: 1}"]
    lines += [f"b{n}: &b{n} {repeat.format(', '.join([f'*b{n - 1}'] * 10))}" for n in range(1, 30)]

    started = time.process_time()
    reported = codes("\n".join(lines))

    assert reported == [Code.ALIAS_BUDGET]
    assert time.process_time() - started < 0.5


def test_a_chain_of_aliases_cannot_nest_deeper_than_the_limit() -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 5000))]

    assert codes("\n".join(lines)) == [Code.TOO_DEEP]


def test_a_large_file_without_anchors_passes() -> None:
    item = "- {name: some-name, value: some value, number: 12345}\n"
    documents, problems = read_file("a.yaml", (item * 20_000).encode())

    assert problems == []
    assert len(documents[0].value) == 20_000  # type: ignore[arg-type]


def test_a_file_above_the_size_limit_has_a_message_of_its_own() -> None:
    documents, problems = read_file("a.yaml", b"#" * (FILE_SIZE + 1))

    assert documents == []
    assert problems[0].code is Code.FILE_TOO_LARGE
    assert str(FILE_SIZE) in problems[0].message


def test_the_collector_is_as_before_after_loading() -> None:
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()

    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_give_documents_or_problems_and_nothing_else(data: bytes) -> None:
    documents, problems = read_file("a.yaml", data)

    assert all(problem.line >= 1 and problem.column >= 1 for problem in problems)
    assert all(document.place(()) >= (1, 1) for document in documents)


PIECES = "a|b: |:|a:b|: |- |\n|\n  |\t|{|}|[|]|,|&a |*a|<<: |!t |!!int |'|\"|>|? |---\n|...\n|#|%YAML 1.2\n|0x|1|.inf|~|yes|\r|é|\ufeff|\x85"
FRAGMENTS = st.sampled_from([*PIECES.split("|"), "|\n"])


@settings(max_examples=300, deadline=None)
@given(st.lists(FRAGMENTS, max_size=40).map("".join))
def test_random_yaml_gives_documents_or_problems_and_nothing_else(text: str) -> None:
    documents, problems = read_file("a.yaml", text.encode())

    last = text.count("\n") + text.count("\r") + 2  # a value that is left out at the end is on the line after it
    assert all(1 <= problem.line <= last for problem in problems)
    for document in documents:
        for path in paths_in(document.value):
            assert document.place(path) <= (last, len(text) + 1)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_every_json_value_is_read_back_unchanged(value: object) -> None:
    text = json.dumps(value, ensure_ascii=True)
    if "\\ud" in text:  # a pair of escapes for one character beyond 16 bits is not YAML
        text = json.dumps(value, ensure_ascii=False)
    documents, problems = read_file("a.json", text.encode("utf-8", "surrogatepass"))

    if not problems:
        assert [document.value for document in documents] == ([] if value is None else [value])
    else:
        assert {problem.code for problem in problems} <= {Code.YAML_SYNTAX, Code.ENCODING}


def paths_in(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    paths = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            paths += paths_in(inner, (*path, key))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            paths += paths_in(inner, (*path, index))
    return paths


def test_the_place_of_every_value_is_where_its_text_starts(tmp_path: Path) -> None:
    document = read_file("a.yaml", WORKLOAD.encode())[0][0]
    lines = WORKLOAD.splitlines()

    for path in paths_in(document.value):
        line, column = document.place(path)
        text = lines[line - 1][column - 1 :]
        value = document.value
        for part in path:
            value = value[part]  # type: ignore[index]
        if isinstance(value, str | int | float):
            assert text.startswith(str(value)), key_path(path)
