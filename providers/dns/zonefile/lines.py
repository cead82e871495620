"""Splits the text of a zone file into logical lines with their offsets (RFC 1035 section 5.1). Used by `parser.py`.

A logical line is one record or directive; inside parentheses it continues over line ends. Comments and blank lines belong to
no logical line. The text has one character per octet (Latin-1), so that offsets are those in the file and each octet is kept.
Most lines are plain words and take a fast path.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

PLAIN = re.compile(r"[\t !#%-'*-:<-\[\]-~]*\r?\n?")
"""Lines of plain words: printable, and none of `"` `$` `(` `)` `;` and backslash."""

QUOTED = re.compile(r'([\t !#%-\'*-:<-\[\]-~]+[\t ])("[^"\\\n]*")[\t ]*\r?\n?')
"""Lines of plain words with one quoted text without escapes at the end: the usual TXT record."""

TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+)
      | (?P<comment>;[^\n]*)
      | (?P<end>\n)
      | (?P<open>\()
      | (?P<close>\))
      | (?P<quoted>"(?:[^"\\\n]|\\[^\n])*")
      | (?P<word>(?:[^ \t\r\n();"\\]|\\[^\n])+)""",
    re.VERBOSE,
)


class ZoneSyntaxError(ValueError):
    """The text is not a zone file. `at` is the offset of the error."""

    def __init__(self, at: int, cause: str) -> None:
        super().__init__(cause)
        self.at = at
        self.cause = cause


class Line(NamedTuple):
    """One logical line: `text[start:end]` with its line end, `text[start:body_end]` up to its last word.

    `spans` are the offsets of the words, None after the fast path. `first_end` is the end of the first word when the line
    begins with it (an owner name or directive), else `start`: then the owner is that of the line before.
    """

    start: int
    body_end: int
    end: int
    first_end: int
    words: list[str]
    spans: list[tuple[int, int]] | None


def lines(text: str) -> Iterator[Line]:
    """The logical lines of a text. Raises `ZoneSyntaxError`."""
    at, size = 0, len(text)
    while at < size:
        cut = text.find("\n", at) + 1 or size
        line = text[at:cut]
        if PLAIN.fullmatch(line):
            words = line.split()
        elif quoted := QUOTED.fullmatch(line):
            words = [*quoted[1].split(), quoted[2]]
        else:
            logical, cut = scan(text, at)
            if logical is not None:
                yield logical
            at = cut
            continue
        if words:
            first_end = at if line[0] in " \t\r" else at + len(words[0])
            yield Line(at, at + len(line.rstrip()), cut, first_end, words, None)
        at = cut


def scan(text: str, start: int) -> tuple[Line | None, int]:
    """The logical line that begins at `start` (None for a comment), and the offset of the next one."""
    words: list[str] = []
    spans: list[tuple[int, int]] = []
    depth, opened, at, body_end = 0, start, start, start
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise ZoneSyntaxError(at, "a quotation mark is not closed on its line, or a backslash ends the line")
        at = match.end()
        kind = match.lastgroup
        if kind in ("quoted", "word"):
            words.append(match[0])
            spans.append(match.span())
            body_end = at
        elif kind == "open":
            depth, opened = depth + 1, match.start()
        elif kind == "close":
            depth -= 1
            body_end = at
            if depth < 0:
                raise ZoneSyntaxError(match.start(), "a parenthesis is closed but was not opened")
        elif kind == "end" and depth == 0:
            break
    if depth > 0:
        raise ZoneSyntaxError(opened, "a parenthesis is not closed")
    if not words:
        return None, at
    first_end = spans[0][1] if spans[0][0] == start else start
    return Line(start, body_end, at, first_end, words, spans), at


def joined(line: Line, first: int) -> str:
    """The words from index `first` on, as one text: one blank between words that the file separates."""
    if line.spans is None:
        return " ".join(line.words[first:])
    parts: list[str] = []
    previous = -1
    for word, (start, end) in zip(line.words[first:], line.spans[first:], strict=True):
        # key="value" of service parameters is two words without a blank
        parts.append(word if start == previous or not parts else " " + word)
        previous = end
    return "".join(parts)
