"""A rough reading of a text that the parser refuses: where brackets and quotes open, and what is only separation.

The parser stops where a mistake first contradicts its grammar, often many lines after the mistake. This module reads a text line
by line without a grammar, so it also reads the part after a mistake. `syntax.py` uses it to find the line to correct, and
`spelling.py` to find tabs that YAML 1.2 allows and the parser refuses. Nothing here runs for a text that the parser accepts.
"""

import re
from dataclasses import dataclass, field

LINE_BREAK = re.compile("\r\n|[\r\n]")
MARKER = re.compile(r"(?:---|\.\.\.)(?=[ \t\r\n]|\Z)")
"""A document marker at the begin of a line."""

_BLANKS = re.compile("[ \t]*")
_DOUBLE = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SINGLE = re.compile(r"'(?:[^']|'')*+'")
_PROPERTY = re.compile(r"[&*!][^ \t\r\n,\[\]{}]*")
_BLOCK_SCALAR = re.compile(r"[|>][-+0-9]*(?=[ \t]*(?:[ \t]#[^\r\n]*)?(?:[\r\n]|\Z))")
_PLAIN_BLOCK = re.compile(r"(?:[^:# \t\r\n]|:(?![ \t\r\n]|\Z)|(?<![ \t])#|[ \t]+(?![ \t#\r\n]|\Z))+")
_PLAIN_FLOW = re.compile(r"(?:[^:# \t\r\n,\[\]{}]|:(?![ \t\r\n,\[\]{}]|\Z)|(?<![ \t])#|[ \t]+(?![ \t#\r\n]|\Z))+")
_NESTED = re.compile(
    r"""(?:[-?](?=[ \t\r\n]|\Z)|(?:"[^"\r\n]*"|'[^'\r\n]*'|[^"'#\[\]{}|>\s][^\r\n]*?)[ \t]*:(?=[ \t\r\n]|\Z))"""
)
"""A list or a mapping that begins in the line of another list's item."""

CLOSES = {"[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Bracket:
    """An opening bracket: its offset, the character, and the indentation of its line in columns; -1 when its line begins with it."""

    offset: int
    char: str
    indent: int


@dataclass(slots=True)
class Outline:
    """What was found, as offsets in characters.

    separators: tabs that only separate. comments: tabs at the begin of comments and blank lines that are no part of a string. unclosed: brackets without a closing one, in the order of the text. wrong: closing brackets
    that fit no open one. quotes: (begin, end) of quoted strings of several lines. open_quote: the quote without an end; -1 = none.
    ends: document end markers (`...`) that are followed by a document without `---`. ignored: directives that are neither %YAML nor
    %TAG, and end markers after which no document has begun.
    """

    separators: list[int] = field(default_factory=list)
    comments: list[int] = field(default_factory=list)
    unclosed: list[Bracket] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    quotes: list[tuple[int, int]] = field(default_factory=list)
    open_quote: int = -1
    ends: list[int] = field(default_factory=list)
    ignored: list[int] = field(default_factory=list)


def outline(text: str) -> Outline:
    """Read a text. Never raises; the time is linear in its length."""
    return _Reader(text).read()


class _Reader:
    """One pass over a text."""

    def __init__(self, text: str) -> None:
        self.text, self.result = text, Outline()
        self.brackets: list[Bracket] = []
        self.indent = 0
        self.parent = -1
        """The column that a block scalar must be indented more than."""
        self.plain_parent: int | None = None
        """The same of a plain string that may continue in the next line; None = the last line does not end with one."""
        self.after_block = False
        """Whether only blank lines and comments stand between the last block scalar and this line: spaces would make them its content."""
        self.ended = -1
        """The offset of the last end marker, until something follows it."""
        self.between = True
        """Whether directives may stand here: before the first document, and after an end marker."""

    def read(self) -> Outline:
        at = 0
        while at < len(self.text):
            at = self._line(at)
        self._boundary()
        return self.result

    def _boundary(self) -> None:
        """The end of a document: brackets do not stay open longer."""
        self.result.unclosed += self.brackets
        self.brackets = []
        self.plain_parent = None

    def _blanks(self, at: int) -> int:
        """The offset behind spaces and tabs."""
        found = _BLANKS.match(self.text, at)
        return found.end() if found else at

    def _after_line(self, at: int) -> int:
        """The begin of the next line."""
        found = LINE_BREAK.search(self.text, at)
        return found.end() if found else len(self.text)

    def _line(self, begin: int) -> int:
        """Read from the begin of a line; returns the begin of a later one."""
        text = self.text
        if MARKER.match(text, begin):
            return self._marker(begin)
        at = begin
        while text[at : at + 1] == " ":
            at += 1
        self.indent = at - begin
        first = self._blanks(at)
        if first >= len(text) or text[first] in "\r\n#":
            comment = first < len(text) and text[first] == "#"
            if first > at and (comment or self.after_block):
                self.result.comments.append(text.index("\t", at))
            else:
                self._separate(at, first)
            self.plain_parent = None if comment else self.plain_parent
            return self._after_line(first)
        if self.between and text[first] == "%" and first == begin:
            if not text.startswith(("%YAML", "%TAG"), first):
                self.result.ignored.append(first)
            self.ended = -1
            return self._after_line(first)
        self._begin_content()
        self._close_by_indentation(first)
        if self.brackets:
            self._separate(at, first)
        self.parent = self.indent - 1 if not self.brackets else self.parent
        return self._content(first, begin, start=True)

    def _marker(self, begin: int) -> int:
        self._boundary()
        self.after_block = False
        after = begin + 3
        first = self._blanks(after)
        if self.text.startswith("...", begin):
            if self.between:
                self.result.ignored.append(begin)
            else:
                self.ended, self.between = begin, True
            return self._after_line(first)
        self.ended, self.between = -1, False
        self._separate(after, first)
        self.indent = self.parent = -1
        return self._content(first, begin, start=False)

    def _begin_content(self) -> None:
        """Content follows; without `---` an end marker before it has to separate the two documents."""
        self.after_block = False
        if self.ended >= 0:
            self.result.ends.append(self.ended)
        self.ended, self.between = -1, False

    def _close_by_indentation(self, first: int) -> None:
        """A key or an item that is not indented more than the line of an open bracket shows that the bracket is not closed."""
        if not self.brackets or self.text[first] in "]},":
            return
        outside = [bracket for bracket in self.brackets if self.indent <= bracket.indent]
        if outside and _NESTED.match(self.text, first):
            self._boundary()

    def _separate(self, begin: int, end: int) -> None:
        self.result.separators += [at for at in range(begin, end) if self.text[at] == "\t"]

    def _content(self, at: int, begin: int, *, start: bool) -> int:
        """Read the content of a line from `at`, and of later lines that belong to it. `start`: this is the first content of the line."""
        text, size = self.text, len(self.text)
        parent, self.plain_parent = self.plain_parent, None
        fresh = True  # a value may begin here
        if start and parent is not None and self.indent > parent and not self.brackets:
            self._separate(begin + self.indent, at)
            self.parent, fresh = parent, False
            at = self._plain(at)  # it continues the string of the line before
        while at < size:
            char = text[at]
            if char in "\r\n":
                break
            if char in " \t":
                end = self._blanks(at)
                self._separate(at, end)
                if end < size and text[end] == "#":
                    self.plain_parent = None
                    return self._after_line(end)
                at = end
            elif fresh and char in "\"'":
                end = self._quoted(at)
                if end < 0:
                    return size
                if text[self._blanks(end) : self._blanks(end) + 1] == ":" and not self.brackets:
                    self.parent = max(self.parent, at - begin)
                if LINE_BREAK.search(text, at, end):
                    begin = max(text.rfind("\n", 0, end), text.rfind("\r", 0, end)) + 1
                at, fresh = end, False
            elif char in "[{" and (fresh or self.brackets):
                first = not text[begin:at].strip(" \t")
                self.brackets.append(Bracket(at, char, -1 if first else self.indent))
                at, fresh = at + 1, True
            elif char in "]}" and (fresh or self.brackets):
                self._close(at, char)
                at, fresh = at + 1, False
            elif char == "," and self.brackets:
                at, fresh = at + 1, True
            elif fresh and char in "&*!":
                found = _PROPERTY.match(text, at)
                at = found.end() if found else at + 1
                fresh = char != "*"
            elif fresh and not self.brackets and char in "|>" and (found := _BLOCK_SCALAR.match(text, at)):
                return self._block_scalar(found.group(), self._after_line(at))
            elif fresh and char in "-?" and not self.brackets and (at + 1 >= size or text[at + 1] in " \t\r\n"):
                self.parent = at - begin
                at = self._indicator(at + 1)
            elif char == ":" and (at + 1 >= size or text[at + 1] in " \t\r\n,[]{}\"'" or self.brackets):
                at, fresh = at + 1, True
            else:
                if not self.brackets and fresh:
                    self.parent = max(self.parent, self._key_parent(at, begin))
                at, fresh = self._plain(at), False
        return self._after_line(at)

    def _key_parent(self, at: int, begin: int) -> int:
        """The column of a key that begins here; that of the enclosing value when no key does."""
        end = _PLAIN_BLOCK.match(self.text, at)
        after = self._blanks(end.end() if end else at)
        return at - begin if self.text[after : after + 1] == ":" else self.parent

    def _indicator(self, after: int) -> int:
        """What follows `-` or `?`: a tab there is separation, but not where it would indent a nested list or mapping."""
        end = self._blanks(after)
        if not _NESTED.match(self.text, end):
            self._separate(after, end)
        return end

    def _plain(self, at: int) -> int:
        """The end of a plain string in this line, or one character further."""
        found = (_PLAIN_FLOW if self.brackets else _PLAIN_BLOCK).match(self.text, at)
        end = found.end() if found else at + 1
        if not self.brackets and self.text[end : end + 1] != ":":
            self.plain_parent = self.parent
        return end

    def _quoted(self, at: int) -> int:
        """The end of a quoted string; -1 when it has none in its document."""
        found = (_DOUBLE if self.text[at] == '"' else _SINGLE).match(self.text, at)
        if found is None or self._holds_marker(at, found.end()):
            self.result.open_quote = at if self.result.open_quote < 0 else self.result.open_quote
            return -1
        if LINE_BREAK.search(self.text, at, found.end()):
            self.result.quotes.append((at, found.end()))
        return found.end()

    def _holds_marker(self, begin: int, end: int) -> bool:
        """Whether a document marker begins a line between two offsets."""
        return any(MARKER.match(self.text, found.end()) for found in LINE_BREAK.finditer(self.text, begin, end))

    def _close(self, at: int, char: str) -> None:
        if self.brackets and CLOSES[self.brackets[-1].char] == char:
            self.brackets.pop()
        elif any(CLOSES[bracket.char] == char for bracket in self.brackets):
            while CLOSES[self.brackets[-1].char] != char:
                self.result.unclosed.append(self.brackets.pop())
            self.brackets.pop()
        else:
            self.result.wrong.append(at)

    def _block_scalar(self, header: str, at: int) -> int:
        """Skip the content of a block scalar; returns the begin of the first line after it."""
        self.after_block = True
        digits = [int(char) for char in header if char.isdigit()]
        indent = max(self.parent, -1) + digits[0] if digits and digits[0] else 0
        while at < len(self.text):
            end = at
            while self.text[end : end + 1] == " ":
                end += 1
            blank = end >= len(self.text) or self.text[end] in "\r\n"
            if not blank:
                column = end - at
                if column <= self.parent or MARKER.match(self.text, at):
                    return at
                indent = indent or column
                if column < indent:
                    return at
            at = self._after_line(end)
        return at
