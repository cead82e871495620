"""Cutting the text of a zone file into logical lines with their places (RFC 1035 section 5.1). Used by `zone_text.py`.

A logical line is one record or directive: it goes on over line ends inside parentheses. Comments and blank lines belong to
no logical line. The text has one character per octet (Latin-1), so that places are offsets into the file and any octet
survives. Most lines are plain words and take a short way.
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
    """The text is no zone file. `at` is the offset of what is wrong."""

    def __init__(self, at: int, cause: str) -> None:
        super().__init__(cause)
        self.at = at
        self.cause = cause


class Line(NamedTuple):
    """One logical line: `text[start:end]` is all of it with its line end, `text[start:body_end]` goes up to its last word.

    `spans` are the places of the words, None after the short way. `first_end` is the end of the first word when that stands
    at the very beginning (an owner name or directive), else `start`: then the owner is that of the line before.
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
            found, cut = scan(text, at)
            if found is not None:
                yield found
            at = cut
            continue
        if words:
            first_end = at if line[0] in " \t\r" else at + len(words[0])
            yield Line(at, at + len(line.rstrip()), cut, first_end, words, None)
        at = cut


def scan(text: str, start: int) -> tuple[Line | None, int]:
    """The logical line that begins at `start` (None when there is only a comment), and where the next one begins."""
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
                raise ZoneSyntaxError(match.start(), "a parenthesis is closed that was not opened")
        elif kind == "end" and depth == 0:
            break
    if depth > 0:
        raise ZoneSyntaxError(opened, "a parenthesis is not closed")
    if not words:
        return None, at
    first_end = spans[0][1] if spans[0][0] == start else start
    return Line(start, body_end, at, first_end, words, spans), at


def joined(line: Line, first: int) -> str:
    """The words from number `first` on, as one text: a blank between them where the file has one or more."""
    if line.spans is None:
        return " ".join(line.words[first:])
    parts: list[str] = []
    previous = -1
    for word, (start, end) in zip(line.words[first:], line.spans[first:], strict=True):
        # key="value" of service parameters is two words that must stay together
        parts.append(word if start == previous or not parts else " " + word)
        previous = end
    return "".join(parts)
