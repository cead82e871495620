"""Colours for the words that an operator looks for first. Without colours the text is the same."""

from typing import NamedTuple

_GOOD = frozenset({"Ready", "done", "pass", "running", "ok", "healthy", "Healthy"})
_BAD = frozenset(
    {"Degraded", "NotReady", "failed", "rejected", "fail", "error", "exited", "missing", "unhealthy", "Unhealthy"}
)
_DIM = frozenset({"skipped", "-"})


class Paint(NamedTuple):
    """The colours; `on` False: none."""

    on: bool

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and text else text

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
