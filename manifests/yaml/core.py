"""The core schema of YAML 1.2 (chapter 10.3): the value of an unquoted scalar. Called by `composer.py` for each scalar.

Editors read YAML 1.2, where `yes`, `on` and `22:22` are texts and `010` is ten; YAML 1.1 readers see booleans, a base-60
number and eight. `ambiguous` is True where the two differ.
"""

import re

MISSING = object()
"""Marks a scalar that is none of the keywords; None is a value."""

KEYWORDS: dict[str, object] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
NUMBER_START = frozenset("-+.0123456789")
NUMBER_LENGTH = 64
"""Longest number in characters: no field needs more, and very long ones take time to read."""

KEYWORDS_1_1 = frozenset(
    word for base in ("y", "yes", "n", "no", "on", "off") for word in (base, base.title(), base.upper())
)
"""Booleans of YAML 1.1 that are texts in 1.2."""

_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = frozenset(
    ["-.inf", "-.Inf", "-.INF", "+.inf", "+.Inf", "+.INF", ".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"]
)
_NUMBER_1_1 = re.compile(
    r"[-+]?(?:0[0-9]*[0-7]|[0-9]+(?:_[0-9_]*)+|0b[01_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?"
)


def number(text: str) -> object:
    """The number that an unquoted scalar is, or `MISSING`.

    Raises:
        ValueError: it is a number, but one that manifests cannot hold: infinite, not a number, or too long.
    """
    if text in _NOT_FINITE:
        raise ValueError("infinity and not-a-number are not allowed")
    if _INT.fullmatch(text):
        return int(_short(text))
    if _FLOAT.fullmatch(text):
        value = float(_short(text))
        if value in (float("inf"), float("-inf")):
            raise ValueError("the number is too large")
        return value
    if _OCTAL.fullmatch(text):
        return int(_short(text)[2:], 8)
    if _HEX.fullmatch(text):
        return int(_short(text)[2:], 16)
    return MISSING


def _short(text: str) -> str:
    if len(text) > NUMBER_LENGTH:
        raise ValueError(f"the number has more than {NUMBER_LENGTH} characters")
    return text


def ambiguous(text: str) -> bool:
    """Whether YAML 1.1 reads this unquoted scalar as another value than YAML 1.2 does."""
    return text in KEYWORDS_1_1 or bool(_NUMBER_1_1.fullmatch(text))
