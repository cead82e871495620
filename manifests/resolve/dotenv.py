"""Reads files of variables by Compose's rules (docs.docker.com/reference/compose-file/services, "Env_file format"). Called by `repository_files.py`.

Pure: a text in, variables and mistakes with their lines out. Three things of Compose are left out on purpose, and are mistakes or literal
text here: nothing is substituted (`$NAME` stays as it is), a variable without `=` does not take a value from the program's own
environment, and text after a closing quote is refused.
"""

import re
from dataclasses import dataclass, field

VARIABLES = 1000
"""Most variables of one file."""
MISTAKES = 20
"""Most mistakes of one file that are reported: another kind of file has one in every line."""

_NAME = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*")
# Possessive: the time is linear in the length of a line, however it is written.
_START = re.compile(r"(?:export[ \t]++)?+([^=:\n#'\"]*+)([=:]|(?=\n)|\Z)")
_BLANK = " \t\v\f"
_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"', "'": "'", "$": "$",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, its value and its line, counted from 1."""

    name: str
    value: str = field(repr=False)
    line: int


@dataclass(frozen=True, slots=True)
class Mistake:
    """A line that is not valid, why, and the next step. The text never holds a value, which may be a secret."""

    line: int
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class EnvText:
    """What a file holds: the variables in the order of the file, repeated names included, and the first mistakes."""

    variables: tuple[Variable, ...]
    mistakes: tuple[Mistake, ...]


def parse(data: bytes) -> EnvText:
    """The variables of a file."""
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        return EnvText((), (Mistake(line, message, "save the file as UTF-8"),))
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        return EnvText((), (Mistake(line, "a NUL character cannot be passed to a program", "remove it"),))
    reader = _Reader(text.replace("\r\n", "\n"))
    reader.run()
    return EnvText(tuple(reader.variables), tuple(reader.mistakes))


class _Invalid(Exception):
    """A statement that is not valid."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class _Reader:
    """Reads statement after statement; after a mistake it goes on at the next line."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.line = text, 0, 1
        self.variables: list[Variable] = []
        self.mistakes: list[Mistake] = []

    def run(self) -> None:
        while self._skip_blank():
            line = self.line
            try:
                name = self._name()
                self.variables.append(Variable(name, self._value(), line))
                if len(self.variables) > VARIABLES:
                    self.mistakes.append(Mistake(line, f"there are more than {VARIABLES} variables", "split the file"))
                    return
            except _Invalid as error:
                self.mistakes.append(Mistake(line, error.message, error.hint))
                if len(self.mistakes) == MISTAKES:
                    return
                self._move(self._end_of_line())

    def _move(self, to: int) -> None:
        self.line += self.text.count("\n", self.at, to)
        self.at = to

    def _end_of_line(self, start: int = -1) -> int:
        end = self.text.find("\n", self.at if start < 0 else start)
        return len(self.text) if end < 0 else end

    def _skip_blank(self) -> bool:
        """Move to the next statement; False at the end."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                self._move(self._end_of_line())
            elif self.text[self.at].isspace():
                self._move(self.at + 1)
            else:
                return True
        return False

    def _name(self) -> str:
        start = _START.match(self.text, self.at)
        name = "" if start is None else start[1].rstrip(" \t")
        if start is None or not _NAME.fullmatch(name):
            # The line may be a part of a value, even of a secret: nothing of it is shown.
            raise _Invalid("the line does not begin with the name of a variable", "write NAME=value")
        if not start[2]:
            raise _Invalid(
                "the variable has no value; values of reconcile's own environment are not passed on",
                "write NAME= for an empty value, or NAME=value",
            )
        self._move(start.end())
        while self.at < len(self.text) and self.text[self.at] in _BLANK:
            self.at += 1
        return name

    def _value(self) -> str:
        quote = self.text[self.at : self.at + 1]
        if quote in ("'", '"'):
            return self._quoted(quote)
        end = self._end_of_line()
        # The blank before the value counts: in `NAME= # text` the value is empty.
        line = self.text[self.at - 1 : end]
        self._move(end)
        comment = re.search(r"[ \t]#", line)
        return (line[: comment.start()] if comment else line)[1:].strip(" \t\v\f\r")

    def _quoted(self, quote: str) -> str:
        at, parts = self.at + 1, []
        while True:
            letter = self.text[at : at + 1]
            if not letter:
                raise _Invalid(f"the quote {quote} that begins the value is not closed", "close it, or remove it")
            if letter == quote:
                break
            following = self.text[at + 1 : at + 2]
            if letter == "\\" and quote == '"' and following in _ESCAPES:
                parts.append(_ESCAPES[following])
                at += 2
            elif letter == "\\" and quote == "'" and following == "'":
                parts.append("'")
                at += 2
            else:
                parts.append(letter)
                at += 1
        end = self._end_of_line(at + 1)
        rest = self.text[at + 1 : end].strip()
        if rest and not (rest.startswith("#") and self.text[at + 1] in _BLANK):
            raise _Invalid(
                "there is text after the closing quote", f"put the whole value in quotes, and write \\{quote} inside it"
            )
        self._move(end)
        return "".join(parts)
