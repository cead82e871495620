"""Compose's rules for files of variables, line by line."""

from time import process_time

import pytest

from manifests.resolve.dotenv import MISTAKES as MOST_MISTAKES
from manifests.resolve.dotenv import VARIABLES, parse

VALUES = [
    ("A=1", "1"),
    ("A=", ""),
    ("A=\n", ""),
    ("A = 1 ", "1"),
    ("\t A\t=\t1\t", "1"),
    ("export A=1", "1"),
    ("export\tA=1", "1"),
    ("A: 1", "1"),
    ("A:1", "1"),
    ("A=b=c:d", "b=c:d"),
    ("A=1 # comment", "1"),
    ("A=1\t# comment", "1"),
    ("A=1# no comment", "1# no comment"),
    ("A=#1", "#1"),
    ("A= # comment", ""),
    ("A=http://h/#x", "http://h/#x"),
    ("A=two words", "two words"),
    ('A=say "hi"', 'say "hi"'),
    ("A=it's", "it's"),
    ("A=\\n", "\\n"),
    ("A='1'", "1"),
    ('A="1"', "1"),
    ("A=''", ""),
    ('A=""', ""),
    ("A='1 # no comment'", "1 # no comment"),
    ("A='1' # comment", "1"),
    ('A="1"   ', "1"),
    ("A='$B ${C}'", "$B ${C}"),
    ("A=$B-${C:-d}-$$", "$B-${C:-d}-$$"),
    ('A="$B"', "$B"),
    ('A="\\$B"', "$B"),
    ("A='Let\\'s go!'", "Let's go!"),
    ('A="{\\"b\\": 1}"', '{"b": 1}'),
    ('A="a\\tb\\nc\\\\d\\re"', "a\tb\nc\\d\re"),
    ("A='a\\tb'", "a\\tb"),
    ('A="\\d"', "\\d"),
    ("A='two\nlines'", "two\nlines"),
    ('A="two\nlines\n"', "two\nlines\n"),
    ('A="a # b\n# c"', "a # b\n# c"),
    ("\ufeffA=1", "1"),
    ("A=1\r\n", "1"),
    ('A="1\r\n2"\r\n', "1\n2"),
    ("# x\n\n  # y\nA=1", "1"),
    ("A=ü☃", "ü☃"),
]


@pytest.mark.parametrize(("text", "value"), VALUES, ids=[repr(text) for text, _ in VALUES])
def test_a_value_is_read_as_compose_reads_it(text: str, value: str) -> None:
    read = parse(text.encode())
    assert read.mistakes == ()
    assert [(variable.name, variable.value) for variable in read.variables] == [("A", value)]


MISTAKES = [
    ("A", 1, "the variable has no value"),
    ("X=1\nexport A\nY=2", 2, "the variable has no value"),
    ("X=1\nA B=2\nY=2", 2, "the line does not begin with the name"),
    ("1A=2", 1, "does not begin"),
    ("=2", 1, "does not begin with the name"),
    ("X=1\nsecret words\nY=2", 2, "the line does not begin"),
    ("X=1\nsecret\nY=2", 2, "has no value"),
    ("X=1\nsecret/+a==\nY=2", 2, "does not begin"),
    ("X=1\n0secret=\nY=2", 2, "does not begin"),
    ("X='1\nY=2", 1, "is not closed"),
    ('X=1\n\nA="a\nb', 3, "is not closed"),
    ('X="1" 2\nY=1', 1, "text after the closing quote"),
    ("X='1'#2", 1, "text after the closing quote"),
    ('X="a\nb" c\nY=1', 1, "text after the closing quote"),
    ("A=1\nB=\0", 2, "NUL"),
]


@pytest.mark.parametrize(("text", "line", "message"), MISTAKES, ids=[repr(text) for text, _, _ in MISTAKES])
def test_a_mistake_has_its_line_and_never_a_value(text: str, line: int, message: str) -> None:
    mistakes = parse(text.encode()).mistakes
    assert [mistake.line for mistake in mistakes][:1] == [line]
    assert message in mistakes[0].message
    assert "secret" not in f"{mistakes}"


def test_all_mistakes_of_a_file_are_reported_and_the_rest_is_read() -> None:
    read = parse(b"A=1\nB C\nD='2'x\nE=3\n=\nF=4\n")
    assert [variable.name for variable in read.variables] == ["A", "E", "F"]
    assert [mistake.line for mistake in read.mistakes] == [2, 3, 5]


def test_lines_after_a_long_value_keep_their_numbers() -> None:
    read = parse(b"A='1\n2\n3'\nB=1\n")
    assert [(variable.name, variable.line) for variable in read.variables] == [("A", 1), ("B", 4)]


def test_other_encodings_and_too_many_variables_are_mistakes() -> None:
    assert [(mistake.line, mistake.message) for mistake in parse(b"A=1\nB=\xff").mistakes] == [
        (2, "byte 0xff is not UTF-8")
    ]
    text = "".join(f"A{number}=1\n" for number in range(VARIABLES + 1))
    assert len(parse(text.encode()).mistakes) == 1


def test_a_repeated_name_is_kept_for_its_reader() -> None:
    assert [variable.value for variable in parse(b"A=1\nA=2").variables] == ["1", "2"]


@pytest.mark.parametrize(
    "text", ["A" + " " * 40_000 + "x", "export" + "\t" * 40_000 + "#", "A" + " \t" * 20_000 + "'", "A='\\'\n" * 10_000]
)
def test_no_line_takes_time_with_the_square_of_its_length(text: str) -> None:
    begin = process_time()
    parse(text.encode())
    assert process_time() - begin < 2


def test_a_file_of_mistakes_does_not_fill_the_memory() -> None:
    assert len(parse(b"not variables\n" * 50_000).mistakes) == MOST_MISTAKES
