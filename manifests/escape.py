"""Shows text from outside in one line of output, so that it can neither begin a line, control a terminal nor command a CI system.

Manifests, container labels, answers of servers and log lines of containers are data. `escape` makes them visible in a cell, and
`escape_line` is the last step before any line is written. This is the only place that knows which characters are dangerous: the
command line, the logs and the problems of manifests all call it.
"""

import json
import re
from typing import Any

# Letters without a shape of their own, which `str.isprintable` accepts: fillers, joiners, variation selectors. Source: the property
# Default_Ignorable_Code_Point of Unicode 15.1 (DerivedCoreProperties.txt), without those that are not printable anyway; and U+2800.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)

# `##[error]` and `##vso[...]` are commands of Azure Pipelines and GitHub Actions, `##teamcity[...]` of TeamCity, anywhere in a line.
_COMMAND = re.compile(r"##(?=\w*\[)")

# GitHub Actions reads `::error::` after any blanks at the start of a line; Buildkite folds its log at `--- `, `+++ `, `~~~ `, `^^^ `.
_COMMAND_LINE = re.compile(r"\s*::|(?:---|\+\+\+|~~~|\^\^\^) ")


def escape(text: str) -> str:
    """The text with every character that is not plainly visible as its escape, such as `\\n` or `\\u202e`; a blank stays.

    These are line breaks, tabs, control characters (C0, DEL, C1), bidirectional and zero-width characters, blanks that are no
    plain blank, private and unassigned characters, and surrogates. `##[` and the like are broken up.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() else _shown(c) for c in text)
    if not text.isascii():
        text = _INVISIBLE.sub(lambda match: _shown(match.group()), text)
    return _COMMAND.sub(r"#\\#", text) if "##" in text else text


def escape_line(line: str) -> str:
    """As `escape`, for a whole line: it is also no line that a CI system reads as a command."""
    return guarded(escape(line))


def guarded(line: str) -> str:
    """A line of escaped cells, with a backslash before a beginning that a CI system reads as a command."""
    return f"\\{line}" if _COMMAND_LINE.match(line) else line


def escape_json(text: str) -> str:
    """JSON text with escapes for the characters that `escape` makes visible: they can only be inside its strings."""
    if text.isascii():
        text = text.replace("\x7f", "\\u007f")
    else:
        text = "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in text)
        text = _INVISIBLE.sub(lambda match: _json_escape(match.group()), text)
    return _COMMAND.sub(r"#\\u0023", text) if "##" in text else text


def json_text(value: Any, **options: Any) -> str:
    """A value as JSON text that is safe to show; the options are those of `json.dumps`."""
    return escape_json(json.dumps(value, **options))


def _shown(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"
