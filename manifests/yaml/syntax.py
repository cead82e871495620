"""The line to correct, for a text that the parser refuses. Called by `read.py` with the error of the parser.

The parser reports the place where the text first contradicts its grammar. For a bracket or quote that is never closed, that place
is often many lines below the mistake. This module compares the error with an outline of the text and names the mistake itself.
"""

from dataclasses import dataclass

from ruamel.yaml.error import MarkedYAMLError

from manifests.problems import Code
from manifests.yaml.composer import Mark, TextProblem
from manifests.yaml.outline import CLOSES, LINE_BREAK, Bracket, Outline, outline

_COLON = "found unexpected ':'"
LIMITS = (_COLON, "did not find expected node content", "found a tab character where an indentation space is expected")
"""Errors of the C parser in texts that may be valid: with a colon between [] or {}, or with a tab at the begin of a block scalar."""

_MAPPING = ("mapping values are not allowed",)
_NO_COLON = ("could not find expected ':'",)


@dataclass(frozen=True, slots=True)
class Lines:
    """A text by lines: `starts` are the offsets of their first characters."""

    text: str
    starts: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> "Lines":
        """Split a text."""
        return cls(text, (0, *(found.end() for found in LINE_BREAK.finditer(text))))

    def line(self, number: int) -> str:
        """A line without its break; `number` counts from 1."""
        begin = self.starts[number - 1]
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[begin:end].rstrip("\r\n")

    def place(self, offset: int) -> Mark:
        """Line and column of an offset, counted from 1."""
        low, high = 0, len(self.starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.starts[middle] <= offset else (low, middle)
        return low + 1, offset - self.starts[low] + 1

    def inside(self, place: Mark) -> Mark:
        """The place itself; the end of the last line with content for a place behind it."""
        last = len(self.starts)
        while last > 1 and not self.line(last).strip():
            last -= 1
        return place if place[0] <= last else (last, len(self.line(last).rstrip()) + 1)


def syntax_problem(error: MarkedYAMLError, text: str) -> TextProblem:
    """The problem of a text that the parser refuses with this error."""
    lines, found = Lines.of(text), outline(text)
    mark = error.problem_mark
    place = lines.inside((mark.line + 1, mark.column + 1) if mark is not None else (1, 1))
    problem = error.problem or "the text is not valid YAML"
    if "incompatible YAML" in problem or "version minor part" in problem:
        return TextProblem(place, Code.YAML_VERSION, "manifests are YAML 1.2", "remove the %YAML line")
    known = (
        _quote(found, lines, place)
        or _bracket(found, lines, place)
        or _tab(lines, place, problem)
        or _key(error, lines, place, problem)
    )
    if known is not None:
        return known
    context = ""
    if error.context:
        context = f" {error.context}"
        if error.context_mark is not None:
            context += f" that starts at line {error.context_mark.line + 1}, column {error.context_mark.column + 1}"
    return TextProblem(place, Code.YAML_SYNTAX, f"{problem}{context}", _hint(problem))


def _syntax(place: Mark, message: str, hint: str) -> TextProblem:
    return TextProblem(place, Code.YAML_SYNTAX, message, hint)


# --- quotes and brackets ----------------------------------------------------------------------------------------------


def _quote(found: Outline, lines: Lines, place: Mark) -> TextProblem | None:
    """A quote without an end, or one that another string's quote ends in the line of the error."""
    for begin, end in found.quotes:
        first, last = lines.place(begin), lines.place(end)
        if last[0] == place[0] and last[1] <= place[1] and lines.line(last[0])[last[1] - 1 :].strip():
            char = lines.text[begin]
            message = f"the quote {char} that opens here closes only in line {last[0]}, inside other text"
            return _syntax(first, message, f"add a closing {char} in line {first[0]}")
    if found.open_quote < 0 or lines.place(found.open_quote) > place:
        return None
    char, first = lines.text[found.open_quote], lines.place(found.open_quote)
    return _syntax(first, f"the quote {char} that opens here is never closed", f"add a closing {char}")


def _bracket(found: Outline, lines: Lines, place: Mark) -> TextProblem | None:
    """A bracket without an end, or an end without a bracket."""
    unclosed = [bracket for bracket in found.unclosed if lines.place(bracket.offset) <= place]
    wrong = [at for at in found.wrong if lines.place(at)[0] == place[0]]
    if wrong:
        char = lines.text[wrong[0]]
        return _syntax(lines.place(wrong[0]), f"no open bracket fits '{char}'", "remove it, or add the opening bracket")
    if not unclosed or not _explains(unclosed[0], lines, place):
        return None
    first = unclosed[0]
    message = f"the bracket '{first.char}' that opens here is never closed"
    return _syntax(
        lines.place(first.offset),
        message,
        f"add '{CLOSES[first.char]}', or put a string that begins with '{first.char}' in quotes",
    )


def _explains(bracket: Bracket, lines: Lines, place: Mark) -> bool:
    """Whether an unclosed bracket is the cause of an error: not where the error is in the bracket's own list, as a second comma is."""
    between = lines.text[bracket.offset + 1 : lines.starts[place[0] - 1] + place[1] - 1].rstrip()
    at_comma = lines.line(place[0])[place[1] - 1 : place[1]] == ","
    return not (at_comma and (not between or between[-1] in "[{,"))


# --- tabs and keys ----------------------------------------------------------------------------------------------------


def _tab(lines: Lines, place: Mark, problem: str) -> TextProblem | None:
    """A tab as indentation."""
    line = lines.line(place[0])
    indentation = line[: len(line) - len(line.lstrip())]
    at_tab = line[place[1] - 1 : place[1]] == "\t"
    if "\t" not in indentation and not at_tab and "tab" not in problem:
        return None
    if "\t" in indentation:
        return _syntax(
            (place[0], indentation.find("\t") + 1), "a tab is used as indentation", "indent with spaces, not tabs"
        )
    return _syntax(place, "a tab is not allowed here", "write spaces, not tabs, or put the string in quotes")


def _key(error: MarkedYAMLError, lines: Lines, place: Mark, problem: str) -> TextProblem | None:
    """A key without a colon, a string with one, or a wrong indentation."""
    if any(text in problem for text in _NO_COLON) and error.context_mark is not None:
        at = lines.inside((error.context_mark.line + 1, error.context_mark.column + 1))
        return _no_colon(at)
    if any(text in problem for text in _MAPPING):
        line, before = lines.line(place[0]), _line_before(lines, place[0])
        if before and _indent(line) == _indent(lines.line(before)) and not _has_colon(lines.line(before)):
            return _no_colon((before, _indent(lines.line(before)) + 1))
        if before and _indent(line) > _indent(lines.line(before)) and line[: place[1] - 1].count(": ") == 0:
            message = f"the line is indented more than line {before}, which already has a value"
            return _syntax((place[0], _indent(line) + 1), message, "correct the indentation")
        return _syntax(
            place, "a second ': ' in one value", "put a string that contains ': ' in quotes, or check the indentation"
        )
    if "node content" in problem and lines.line(place[0])[place[1] - 1 : place[1]] == ",":
        return _syntax(place, "there is no value before this ','", "remove the ',', or add the value")
    if "alphabetic or numeric" in problem:
        return _syntax(
            place,
            "an anchor & or an alias * has no name",
            "add the name, or put a string that begins with & or * in quotes",
        )
    if "<document start>" in problem:
        return _syntax(place, "a document cannot begin here", "write --- in a line of its own before it")
    if "did not find expected key" in problem or "expected <block end>" in problem:
        line = lines.line(place[0])
        if line[: place[1] - 1].strip():
            return _syntax(place, "text follows a complete value", "put the whole value in quotes, or remove the text")
        return _syntax(
            place, "the indentation fits no line above", "align the line with the other keys or items of its level"
        )
    return None


def _no_colon(at: Mark) -> TextProblem:
    return _syntax(
        at, "the key has no ':' behind it", "add ': ' and a value, or indent the line as a part of the value above"
    )


def _line_before(lines: Lines, number: int) -> int:
    """The last line above that is neither blank nor a comment; 0 when there is none."""
    for above in range(number - 1, 0, -1):
        text = lines.line(above).strip()
        if text and not text.startswith("#"):
            return above
    return 0


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _has_colon(line: str) -> bool:
    text = line.split(" #", maxsplit=1)[0].rstrip()
    return ": " in text or text.endswith(":") or text.lstrip().startswith(("- ", "---"))


def _hint(problem: str) -> str:
    if problem == _COLON:
        return "put a string with ':' between [] or {} in quotes"
    if "cannot start any token" in problem:
        return "put a string that starts with this character in quotes"
    return ""
