"""The output of one command: text or JSON on standard output and error, with or without colours.

Every command makes a `View` from its options. A reader that closes the pipe early (`reconcile plan … | head`) is no error. A result
that cannot be written, as on a full disk, is one; but it never interrupts the work: `lost_result` says so when the command has ended.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TextIO

from manifests.escape import json_text
from reconciler.cli.render.paint import Paint, finished


@dataclass(frozen=True, slots=True)
class View:
    """The options of a command's output.

    json: one JSON document on standard output instead of text. color: `auto`, `always` or `never`. verbose: debug logs, and
    tracebacks of unexpected errors. quiet: no progress, and no result when nothing changed and all is converged. common: fields
    that every JSON document of this command has.
    """

    json: bool = False
    color: str = "auto"
    verbose: bool = False
    quiet: bool = False
    common: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def guess(cls, words: Sequence[str]) -> "View":
        """The view of a command line that is not parsed yet, for errors before and during parsing."""
        pairs = pairwise([*words, ""])
        json_output = any(
            (word in {"-o", "--output"} and after == "json") or word in _JSON_OPTIONS for word, after in pairs
        )
        verbose = any(word in {"-v", "--verbose"} for word in words)
        return cls(json=json_output, verbose=verbose)

    @property
    def paint(self) -> Paint:
        """The colours for standard output."""
        return Paint(self.colored(sys.stdout))

    @property
    def paint_err(self) -> Paint:
        """The colours for standard error."""
        return Paint(self.colored(sys.stderr))

    def colored(self, stream: TextIO) -> bool:
        """Whether to use colours on this stream: with `auto`, only on a terminal that supports them."""
        if self.color != "auto":
            return self.color == "always"
        return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in {"", "dumb"} and terminal(stream)

    def out(self, *lines: str) -> None:
        """Write lines to standard output. A line break inside of one came from outside, and is escaped."""
        _write(sys.stdout, "\n".join(printable(line) for line in lines))

    def err(self, *lines: str) -> None:
        """Write lines to standard error, as `out`."""
        _write(sys.stderr, "\n".join(printable(line) for line in lines))

    def document(self, value: Mapping[str, Any]) -> None:
        """Write the one JSON document of this command to standard output."""
        from reconciler.shell.report.instants import OUTPUT_VERSION  # noqa: PLC0415  (not needed for text)

        # A stored decision has the version of its stored form.
        rest = {key: inner for key, inner in value.items() if key != "format_version"}
        self.record({"format_version": OUTPUT_VERSION, **rest, **self.common}, indent=2)

    def markdown(self, text: str) -> None:
        """Write a Markdown document to standard output. Its text from outside is escaped already; secrets are masked here."""
        _write(sys.stdout, masked(text).removesuffix("\n"))

    def patch(self, text: str) -> None:
        """Write a patch of manifests to standard output as it is, but for secrets: YAML allows no control characters in them."""
        _write(sys.stdout, masked(text).removesuffix("\n"))

    def record(self, value: Mapping[str, Any], indent: int | None = None) -> None:
        """Write one JSON object to standard output: instants as text, and letters escaped where the output is not UTF-8."""
        from reconciler.shell.report.instants import instants_as_text  # noqa: PLC0415  (not needed for text)

        text = json_text(instants_as_text(value), indent=indent, ensure_ascii=not _is_utf8(sys.stdout))
        _write(sys.stdout, masked(text))


_JSON_OPTIONS = frozenset({"-ojson", "--output=json", "-o=json"})


def terminal(stream: object) -> bool:
    """Whether a stream is a terminal."""
    try:
        return os.isatty(stream.fileno())  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False


def printable(line: str) -> str:
    """One line as it is shown: secrets masked, text from outside escaped, with its colours."""
    return finished(masked(line))


def masked(text: str) -> str:
    """The text with a mask in place of every secret that this process has resolved."""
    secrets = sys.modules.get("reconciler.shell.secrets")
    if secrets is None:  # then nothing that resolves secrets was imported either
        return text
    return str(secrets.SECRETS.mask(text))


_lost: list[OSError] = []
"""Why the result could not be written; empty when it could."""


def lost_result() -> OSError | None:
    """Why the result of this command could not be written to standard output, and forget it; None when it could."""
    error = _lost[0] if _lost else None
    _lost.clear()
    return error


def _is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("_", "-") in {"utf-8", "utf8"}


def _write(stream: TextIO, text: str) -> None:
    if not text:
        return
    line = f"{text}\n"
    try:
        # A letter that the output's encoding lacks is shown as its escape, so that no two texts look the same.
        encoding = stream.encoding or "ascii"
        stream.write(line.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        _discard_output(stream)
    except OSError as error:
        _discard_output(stream)
        if stream is sys.stdout:
            _lost.append(OSError(error.errno, error.strerror, "standard output"))


def flush_quietly(stream: TextIO) -> None:
    """Flush a stream; discard the rest when its reader has closed it."""
    try:
        stream.flush()
    except BrokenPipeError:
        _discard_output(stream)
    except (OSError, ValueError):
        return


def _discard_output(stream: TextIO) -> None:
    """Discard all later writes to a stream whose reader is gone, including the interpreter's last flush."""
    try:
        target = stream.fileno()
    except (OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, target)
    finally:
        os.close(null)
