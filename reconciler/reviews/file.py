"""What was reviewed, over restarts: `reviews.json` in the state directory, mode 0600. Written by the thread of the reviewer.

It may be lost: then open merge requests are planned again, and the comments are updated in place.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.reviews.reviewed import Line, Reviewed
from reconciler.shell.store.directory import write_durable
from reconciler.shell.store.last_good import read_private

FILE = "reviews.json"
FORMAT = 1
LARGEST = 64 * 1024 * 1024
KEPT = 100
"""Merge requests that are remembered, the newest ones."""


class Head(NamedTuple):
    """A head that was planned: for which commit in force, and what was shown. `reviewed` is None for one that cannot be planned."""

    number: int
    commit: str
    base: str
    reviewed: Reviewed | None = None


class Remembered(NamedTuple):
    """`heads` are sorted by age, the oldest first. `in_force` is the commit in force whose plan was compared last."""

    heads: tuple[Head, ...] = ()
    in_force: str = ""

    def with_head(self, head: Head) -> "Remembered":
        """With a head in place of an earlier one of the same merge request."""
        others = tuple(other for other in self.heads if other.number != head.number)
        return self._replace(heads=(*others, head)[-KEPT:])


def load(state: Path) -> Remembered:
    """What is remembered; nothing where there is no file of this version."""
    try:
        raw = json.loads(read_private(state / FILE, LARGEST))
        if raw["format"] != FORMAT:
            return Remembered()
        return Remembered(tuple(map(_head, raw["heads"][-KEPT:])), str(raw["in_force"]))
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return Remembered()


def save(state: Path, remembered: Remembered) -> None:
    """Replace it. Raises StoreError."""
    body = {"format": FORMAT, "in_force": remembered.in_force, "heads": remembered.heads}
    write_durable(state / FILE, (json.dumps(body) + "\n").encode())


def _head(raw: Any) -> Head:
    number, commit, base, seen = raw
    if seen is None:
        return Head(int(number), str(commit), str(base))
    tree, planned, total, lines = seen
    listed = tuple(Line(str(name), str(digest)) for name, digest in lines)
    return Head(int(number), str(commit), str(base), Reviewed(str(tree), str(planned), str(total), listed))
