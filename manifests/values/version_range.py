"""Versions and ranges of versions, by Semantic Versioning 2.0.0 (https://semver.org) and the ranges that npm and others share.

    >=1.4 <2        both must hold
    ^1.4 || ~2.1.3  one of them must hold
    1.x, 1.4        any version that begins so

A pre-release (`1.5.0-rc.1`) is in a range only where a comparator of the same alternative names a pre-release of the same three numbers:
who asks for `>=1.4` wants releases. `types` checks manifests with `parse_range`; the rules of image policies compare tags.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

LONGEST = 200
"""Most characters of a range."""

_NUMBER = r"0|[1-9][0-9]{0,17}"
_PRE = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(rf"v?({_NUMBER})(?:\.({_NUMBER}))?(?:\.({_NUMBER}))?(?:-({_PRE}))?")
_COMPARATOR = re.compile(r"(>=|<=|>|<|=|\^|~)?\s*(\S+)")
_WILDCARD = re.compile(rf"v?(?:[xX*]|({_NUMBER})(?:\.(?:[xX*]|({_NUMBER})))?(?:\.[xX*])?)")


class Version(NamedTuple):
    """A version. `pre` are the identifiers of a pre-release; empty for a release."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[int, int, int]:
        """The three numbers."""
        return self.major, self.minor, self.patch

    @property
    def order(self) -> tuple[object, ...]:
        """A key of precedence (section 11): a release is above its pre-releases, numbers are below words."""
        pre = tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in self.pre)
        return (*self.numbers, 0 if self.pre else 1, pre)


class Comparator(NamedTuple):
    """One bound: `>=`, `>`, `<=`, `<` or `=`, and the version. `stated`: the manifest wrote this version itself."""

    sign: str
    version: Version
    stated: bool = True

    def holds(self, version: Version) -> bool:
        """Whether a version is on the right side of the bound."""
        mine, bound = version.order, self.version.order
        return {
            ">=": mine >= bound,
            ">": mine > bound,
            "<=": mine <= bound,
            "<": mine < bound,
            "=": mine == bound,
        }[self.sign]


@dataclass(frozen=True, slots=True)
class Range:
    """Alternatives, each of comparators that must all hold."""

    alternatives: tuple[tuple[Comparator, ...], ...]

    def has(self, version: Version) -> bool:
        """Whether a version is in the range."""
        return any(_within(version, comparators) for comparators in self.alternatives)


def _within(version: Version, comparators: tuple[Comparator, ...]) -> bool:
    if not all(comparator.holds(version) for comparator in comparators):
        return False
    if not version.pre:
        return True
    return any(
        comparator.stated and comparator.version.pre and comparator.version.numbers == version.numbers
        for comparator in comparators
    )


def parse_version(text: str) -> Version | None:
    """A whole version with three numbers, with or without `v`; None for another text, such as `latest` or `1.4`."""
    match = _VERSION.fullmatch(text)
    if match is None or match[3] is None:
        return None
    pre = tuple(match[4].split(".")) if match[4] else ()
    if any(part.isdecimal() and len(part) > 1 and part[0] == "0" for part in pre):
        return None
    return Version(int(match[1]), int(match[2]), int(match[3]), pre)


def parse_range(text: str) -> Range:
    """A range. Raises ValueError with the cause."""
    if len(text) > LONGEST:
        raise ValueError(f"the range has more than {LONGEST} characters")
    alternatives = []
    for part in text.split("||"):
        words = re.sub(r"(>=|<=|>|<|=|\^|~)\s+", r"\1", part.strip().replace(",", " ")).split()
        if not words:
            raise ValueError("an alternative of the range is empty")
        alternatives.append(tuple(comparator for word in words for comparator in _comparators(word)))
    return Range(tuple(alternatives))


def _comparators(word: str) -> list[Comparator]:
    """The bounds of one word of a range."""
    match = _COMPARATOR.fullmatch(word)
    sign, text = (match[1] or "", match[2]) if match else ("", word)
    if sign in {"", "="}:
        wild = _WILDCARD.fullmatch(text)
        if wild is not None:
            return _span(wild[1], wild[2], None)
    version = _VERSION.fullmatch(text)
    if version is None:
        raise ValueError(f"'{word[:40]}' is not a comparator such as >=1.4, <2, ^1.4, ~1.4.2 or 1.x")
    parts = (version[1], version[2], version[3])
    pre = tuple(version[4].split(".")) if version[4] else ()
    if pre and version[3] is None:
        raise ValueError(f"'{word[:40]}' has a pre-release without three numbers")
    low = Version(int(parts[0]), int(parts[1] or 0), int(parts[2] or 0), pre)
    if sign == "^":
        return [Comparator(">=", low), _below(_caret(low, parts))]
    if sign == "~":
        above = Version(low.major + 1, 0, 0) if parts[1] is None else Version(low.major, low.minor + 1, 0)
        return [Comparator(">=", low), _below(above)]
    if sign in {"", "="}:
        return [Comparator("=", low)]
    if sign in {">", "<="} and version[3] is None:  # >1.4 is above all of 1.4.x, <=1.4 has all of it
        above = Version(low.major + 1, 0, 0) if parts[1] is None else Version(low.major, low.minor + 1, 0)
        return [Comparator(">=", above)] if sign == ">" else [_below(above)]
    if sign == "<" and not pre:
        return [_below(low)]
    return [Comparator(sign, low)]


def _span(major: str | None, minor: str | None, _patch: None) -> list[Comparator]:
    """The bounds of `*`, `1`, `1.x`, `1.4` and `1.4.x`."""
    if major is None:
        return [Comparator(">=", Version(0, 0, 0))]
    low = Version(int(major), int(minor or 0), 0)
    above = Version(low.major + 1, 0, 0) if minor is None else Version(low.major, low.minor + 1, 0)
    return [Comparator(">=", low), _below(above)]


def _caret(low: Version, parts: tuple[str | None, ...]) -> Version:
    """The first version that `^` leaves out: the leftmost number that is not 0 may not grow."""
    if low.major or parts[1] is None:
        return Version(low.major + 1, 0, 0)
    if low.minor or parts[2] is None:
        return Version(0, low.minor + 1, 0)
    return Version(0, 0, low.patch + 1)


def _below(version: Version) -> Comparator:
    """Below a version and all of its pre-releases: 2.0.0-rc.1 is no version below 2."""
    return Comparator("<", version._replace(pre=("0",)), stated=False)
