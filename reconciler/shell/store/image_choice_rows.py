"""Choices of image policies as JSON and back: for their own file, for the manifests in force and for snapshots."""

from collections.abc import Iterable, Sequence
from typing import Any

from manifests.values.image_choice import ImageChoice, TakenBack

TAKEN_BACK = 64
"""Images that are remembered as taken back, for each container."""

_TEXTS = ("key", "container", "declared", "image", "rule", "why", "proved", "previous", "previous_proved", "seen")


def as_rows(choices: Iterable[ImageChoice]) -> list[dict[str, Any]]:
    """Choices as JSON."""
    return [
        {
            **{name: getattr(choice, name) for name in _TEXTS},
            "at_wall": choice.at_wall,
            "taken_back": [[taken.image, taken.why, taken.at_wall] for taken in choice.taken_back[-TAKEN_BACK:]],
        }
        for choice in choices
    ]


def rows_of(raw: Sequence[Any]) -> tuple[ImageChoice, ...]:
    """Choices from JSON. Raises ValueError, TypeError, LookupError."""
    return tuple(
        ImageChoice(
            **{name: _text(row[name]) for name in _TEXTS},
            at_wall=int(row["at_wall"]),
            taken_back=tuple(TakenBack(_text(image), _text(why), int(at)) for image, why, at in row["taken_back"]),
        )
        for row in raw
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
