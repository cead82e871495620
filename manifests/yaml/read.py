"""From the bytes of one file to documents that know their places. Called by `load.py` for every file of a tree.

Reading is strict: UTF-8 only, YAML 1.2, no duplicate keys, no tags, with limits. All problems of a file are reported at
once, as far as the text can be parsed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml.error import MarkedYAMLError, YAMLError
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
from manifests.yaml.outline import LINE_BREAK
from manifests.yaml.spelling import spelled
from manifests.yaml.syntax import LIMITS, syntax_problem

FILE_SIZE = 4 * 1024 * 1024
"""Largest file in bytes."""

SLOW_PARSE_SIZE = 256 * 1024
"""Longest text in characters that is parsed again by the slow parser, because of a limit of the fast one."""

_BREAKS_OF_1_1 = re.compile("[\x85\u2028\u2029]")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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

    def origin(self, path: tuple[str | int, ...], *, key: bool = False) -> Where:
        """Where the value at `path`, or its key, stands: as `place`, with the file."""
        return Where(self.file, *self.place(path, key=key))

    def note(self, path: tuple[str | int, ...]) -> str:  # noqa: ARG002
        """What a problem of the value at `path` should say beside its hint; empty for a document of one file."""
        return ""

    def texts(self) -> tuple[str, ...]:
        """The texts of the files that the document is made of."""
        return (self.text.text,)


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
    try:
        return _read(file, decoded)
    except Exception as error:  # noqa: BLE001  (a file that breaks the reader must not end a daemon)
        return [], [internal_problem(Where(file, 1, 1), error)]


def internal_problem(where: Where, error: Exception) -> Problem:
    """The problem of a file or document that this program fails on. It holds no text of the error, which may be a secret."""
    frames, frame = error.__traceback__, ""
    while frames is not None:
        frame = f"{frames.tb_frame.f_globals.get('__name__', '?')}:{frames.tb_lineno}"
        frames = frames.tb_next
    message = f"this program fails on it ({type(error).__name__} in {frame})"
    hint = "correct other problems first, or find the cause by removing parts; then report the error with that part"
    return Problem(where.file, where.line, where.column, Code.INTERNAL_ERROR, "", message, hint)


def _read(file: str, decoded: str) -> tuple[list[Document], list[Problem]]:
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
    breaks = list(LINE_BREAK.finditer(before))
    return len(breaks) + 1, len(before) - (breaks[-1].end() if breaks else 0) + 1


def _compose(text: str, marks: Marks | None) -> tuple[Composer, TextProblem | None]:
    """Compose a text; the problem is the one that stopped it before its end.

    The first attempt reads the text as it is, with the C parser. When that refuses it, later attempts read it in the parser's
    spelling, and with the Python parser where a limit of the C parser may be the cause. The attempt that read furthest counts.
    """
    attempt = _attempt(c_parser_events, text, marks)
    if not isinstance(attempt.error, YAMLError):
        return attempt.result(marks)
    spelling = spelled(text)
    if spelling != text:
        attempt = max(attempt, _attempt(c_parser_events, spelling, marks), key=_progress)
    limit = isinstance(attempt.error, MarkedYAMLError) and attempt.error.problem in LIMITS
    if limit and len(text) <= SLOW_PARSE_SIZE:
        attempt = max(attempt, _attempt(python_parser_events, spelling, marks), key=_progress)
    if attempt.error is None or isinstance(attempt.error, Stop):
        return attempt.result(marks)
    if isinstance(attempt.error, ReaderError):
        problem = _unreadable(attempt.error, text)
    elif isinstance(attempt.error, MarkedYAMLError):
        problem = syntax_problem(attempt.error, spelling)
    else:
        problem = TextProblem(_place_at(text, 0), Code.YAML_SYNTAX, "the text is not valid YAML")
    return attempt.result(marks)[0], problem


@dataclass(slots=True)
class _Attempt:
    """One parser's reading of a text: the values up to `error`, which stopped it, and their positions."""

    composer: Composer
    error: Exception | None

    def result(self, marks: Marks | None) -> tuple[Composer, TextProblem | None]:
        """The composed values, whose positions are put into `marks`, and the problem of a limit."""
        if marks is not None and self.composer.marks is not None:
            marks.update(self.composer.marks)
        return self.composer, self.error.problem if isinstance(self.error, Stop) else None


def _attempt(events: Callable[[str], Callable[[], Any]], text: str, marks: Marks | None) -> _Attempt:
    """Read a text with one parser. Each attempt has its own positions: they belong to the values of this attempt only."""
    own: Marks | None = None if marks is None else {}
    composer: Composer | None = None
    try:
        composer = Composer(events(text), own)
        composer.run()
    except (Stop, YAMLError) as error:
        return _Attempt(composer or Composer(_no_events, own), error)
    except (ValueError, OverflowError, AssertionError) as error:
        # The Python parser raises these for escapes and versions that it does not know.
        return _Attempt(composer or Composer(_no_events, own), YAMLError(str(error)))
    return _Attempt(composer, None)


def _no_events() -> Any:
    raise StopIteration


def _progress(attempt: _Attempt) -> tuple[int, int, int]:
    """How far an attempt read: to the end, or to the line and column of its error."""
    if attempt.error is None or isinstance(attempt.error, Stop):
        return 1, 0, 0
    mark = getattr(attempt.error, "problem_mark", None)
    return (0, mark.line, mark.column) if mark is not None else (0, -1, 0)


def _unreadable(error: ReaderError, text: str) -> TextProblem:
    """The problem of a character that YAML does not allow."""
    control = _UNPRINTABLE.search(text)
    place = _place_at(text, control.start() if control else 0)
    cause = f"the control character U+{ord(control[0]):04X} is not allowed" if control else str(error.reason)
    return TextProblem(place, Code.YAML_SYNTAX, cause, "remove it, or write it as an escape in double quotes")
