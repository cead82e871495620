"""From the bytes of one file to documents that know their places. Called by `load.py` for every file of a tree.

Reading is strict: UTF-8 only, YAML 1.2, no duplicate keys, no tags, with limits. All problems of a file are reported at
once, as far as the text can be parsed.
"""

import re
from dataclasses import dataclass, field

from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError

from manifests.problems import Code, Problem, Where
from manifests.yaml.composer import (
    Composer,
    Mark,
    Marks,
    NeedMarks,
    Stop,
    TextProblem,
    c_parser_events,
    python_parser_events,
)

FILE_SIZE = 4 * 1024 * 1024
"""Largest file in bytes."""

SLOW_PARSE_SIZE = 256 * 1024
"""Longest text in characters that is parsed a second time, by the slow parser, because of a colon in `[]` or `{}`."""

_COLON_PROBLEMS = ("found unexpected ':'", "did not find expected node content")
_BREAKS_OF_1_1 = re.compile("[\x85\u2028\u2029]")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LINE_BREAK = re.compile("\r\n|[\r\n]")


@dataclass(slots=True)
class Text:
    """The text of one file. It is composed a second time, with positions, when the first position is needed."""

    file: str
    text: str
    _placed: tuple[Composer, Marks] | None = None

    def placed(self) -> tuple[Composer, Marks]:
        """The composed text with the positions of all its values."""
        if self._placed is None:
            marks: Marks = {}
            self._placed = _compose(self.text, marks)[0], marks
        return self._placed


@dataclass(slots=True)
class Document:
    """One document that is not empty. `broken`: parts of the value could not be read."""

    where: Where
    value: object
    broken: bool
    index: int
    text: Text = field(repr=False)

    @property
    def file(self) -> str:
        """The file's name as problems show it."""
        return self.where.file

    def place(self, path: tuple[str | int, ...], *, key: bool = False) -> Mark:
        """Line and column of the value at `path`, or of its key; of the nearest enclosing value when there is none."""
        composer, marks = self.text.placed()
        document = composer.documents[self.index]
        place, value = document.place, document.value
        for step, part in enumerate(path):
            if isinstance(value, dict) and isinstance(part, str) and part in value:
                of_key, of_value = marks[id(value)][part]
                place = of_key if key and step == len(path) - 1 else of_value
                value = value[part]
            elif isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value):
                place = marks[id(value)][part]
                value = value[part]
            else:
                break
        return place


def read_file(file: str, data: bytes) -> tuple[list[Document], list[Problem]]:
    """The documents of one file, without the empty ones, and the problems of its text.

    Args:
        file: name for problems and places.
        data: the whole content.
    """
    if len(data) > FILE_SIZE:
        message = f"the file has {len(data)} bytes, at most {FILE_SIZE} are allowed"
        return [], [Problem(file, 0, 0, Code.FILE_TOO_LARGE, "", message, "split it into several files")]
    decoded = _decode(data)
    if isinstance(decoded, TextProblem):
        return [], [_problem(file, decoded)]
    text = Text(file, decoded)
    try:
        composer, stopped = _compose(decoded, None)
    except NeedMarks:
        marks: Marks = {}
        composer, stopped = _compose(decoded, marks)
        text._placed = composer, marks
    problems = composer.problems if stopped is None else [*composer.problems, stopped]
    documents = [
        Document(Where(file, *composed.place), composed.value, composed.broken, index, text)
        for index, composed in enumerate(composer.documents)
        if composed.value is not None or composed.broken
    ]
    return documents, [_problem(file, problem) for problem in problems]


def _problem(file: str, problem: TextProblem) -> Problem:
    return Problem(file, *problem.place, problem.code, "", problem.message, problem.hint)


def _decode(data: bytes) -> str | TextProblem:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or (len(data) >= 2 and 0 in data[:2] and data[:2] != b"\0\0"):
        return TextProblem((1, 1), Code.ENCODING, "the file is UTF-16 or UTF-32, not UTF-8", "save it as UTF-8")
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        place = _place_at(data[: error.start].decode("utf-8"), None)
        return TextProblem(
            place, Code.ENCODING, f"byte 0x{data[error.start]:02x} is not UTF-8", "save the file as UTF-8"
        )
    if not text.isascii() and (odd := _BREAKS_OF_1_1.search(text)):
        message = f"U+{ord(odd[0]):04X} breaks lines in YAML 1.1 but not in 1.2"
        return TextProblem(
            _place_at(text, odd.start()),
            Code.YAML_SYNTAX,
            message,
            "remove it, or write it as an escape in double quotes",
        )
    return text


def _place_at(text: str, offset: int | None) -> Mark:
    before = text[:offset].removeprefix("\ufeff")
    breaks = list(_LINE_BREAK.finditer(before))
    return len(breaks) + 1, len(before) - (breaks[-1].end() if breaks else 0) + 1


def _compose(text: str, marks: Marks | None) -> tuple[Composer, TextProblem | None]:
    """Compose a text; the problem is the one that stopped it before its end."""
    composer = Composer(c_parser_events(text), marks)
    try:
        composer.run()
    except Stop as stop:
        return composer, stop.problem
    except ReaderError as error:
        control = _UNPRINTABLE.search(text)
        place = _place_at(text, control.start() if control else 0)
        cause = f"the control character U+{ord(control[0]):04X} is not allowed" if control else str(error.reason)
        hint = "remove it, or write it as an escape in double quotes"
        return composer, TextProblem(place, Code.YAML_SYNTAX, cause, hint)
    except MarkedYAMLError as error:
        colon = error.problem in _COLON_PROBLEMS and len(text) <= SLOW_PARSE_SIZE
        second = _compose_slowly(text, marks) if colon else None
        return second or (composer, _syntax(error, text))
    return composer, None


def _compose_slowly(text: str, marks: Marks | None) -> tuple[Composer, TextProblem | None] | None:
    """Compose a text that the C parser refuses because of a colon in `[]` or `{}`; None when it is not YAML 1.2 either."""
    if marks is not None:
        marks.clear()
    composer = Composer(python_parser_events(text), marks)
    try:
        composer.run()
    except Stop as stop:
        return composer, stop.problem
    except (MarkedYAMLError, ReaderError, ValueError, OverflowError):
        return None
    return composer, None


def _syntax(error: MarkedYAMLError, text: str) -> TextProblem:
    mark, problem = error.problem_mark, error.problem or "the text is not valid YAML"
    place = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    place = min(place, _place_at(text, None))
    context = ""
    if error.context:
        context = f" {error.context}"
        if error.context_mark is not None:
            context += f" that starts at line {error.context_mark.line + 1}, column {error.context_mark.column + 1}"
    if "incompatible YAML" in problem:
        return TextProblem(place, Code.YAML_VERSION, "manifests are YAML 1.2", "remove the %YAML line")
    return TextProblem(place, Code.YAML_SYNTAX, f"{problem}{context}", _syntax_hint(problem, text, place))


def _syntax_hint(problem: str, text: str, place: Mark) -> str:
    lines = _LINE_BREAK.split(text)
    line = lines[place[0] - 1] if place[0] <= len(lines) else ""
    if "tab" in problem or "\t" in line[: len(line) - len(line.lstrip())] or "'\\t'" in problem:
        return "indent with spaces, not tabs"
    if "mapping values are not allowed" in problem:
        return "put a string that contains ': ' in quotes, or check the indentation"
    if problem == _COLON_PROBLEMS[0]:
        return "put a string with ':' between [] or {} in quotes"
    if "cannot start any token" in problem:
        return "put a string that starts with this character in quotes"
    return ""
