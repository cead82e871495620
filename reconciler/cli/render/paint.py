"""Colours for the words that an operator looks for first, and the last step before a line is written.

Without colours the text is the same. Colours are marks in a line that no text from outside can contain, and `finished` turns them
into terminal codes after it has escaped everything else. So nothing from outside brings a colour, or hides in one.
"""

import os
from typing import NamedTuple

from manifests.escape import escape, guarded

# Private characters that only this process knows: random, so that no text from outside can have them.
_MARK = "".join(chr(0xE000 + byte) for byte in os.urandom(12))

_GOOD = frozenset({"Ready", "done", "pass", "running", "ok", "healthy", "Healthy"})
_BAD = frozenset(
    {"Degraded", "NotReady", "failed", "rejected", "fail", "error", "exited", "missing", "unhealthy", "Unhealthy"}
)
_DIM = frozenset({"skipped", "-"})


class Paint(NamedTuple):
    """The colours; `on` False: none."""

    on: bool

    def _in(self, code: str, text: str) -> str:
        return f"{_MARK}{code}m{text}{_MARK}0m" if self.on and text else text

    def good(self, text: str) -> str:
        """Green."""
        return self._in("32", text)

    def bad(self, text: str) -> str:
        """Red."""
        return self._in("31", text)

    def warn(self, text: str) -> str:
        """Yellow."""
        return self._in("33", text)

    def dim(self, text: str) -> str:
        """Faint."""
        return self._in("2", text)

    def bold(self, text: str) -> str:
        """Bold."""
        return self._in("1", text)

    def state(self, text: str, shown: str = "") -> str:
        """A state in the colour of its meaning; `shown` is the same word, padded for a column."""
        shown = shown or text
        if text in _GOOD:
            return self.good(shown)
        if text in _BAD:
            return self.bad(shown)
        if text in _DIM:
            return self.dim(shown)
        return self.warn(shown)


def finished(line: str) -> str:
    """One line as it is written: what came from outside is escaped, and then the colours become terminal codes."""
    if _MARK not in line:
        return guarded(escape(line))
    first, *rest = line.split(_MARK)
    pieces = [("", escape(first))]
    for piece in rest:
        code, _, text = piece.partition("m")
        pieces.append((f"\x1b[{code}m", escape(text)))
    visible = "".join(text for _, text in pieces)
    return guarded(visible).removesuffix(visible) + "".join(code + text for code, text in pieces)
