"""The file that remembers what became of each commit: `commits.json` in the state directory, mode 0600.

The recorder of the process that holds the lock writes it, `reconcile wait` and the readers' API read it. It is replaced in one step, and
written only when something changed. It may be lost: then the next decision begins it again with the commit in force.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.core.notices.history import KEPT, Fate, Row
from reconciler.shell.store.directory import explain, write_durable
from reconciler.shell.store.last_good import read_private

FILE = "commits.json"
FORMAT = 1
LARGEST = 4 * 1024 * 1024
"""Bytes: a larger file was not written by this program."""


class History(NamedTuple):
    """The outcome of each commit, the oldest first, and the commit that was in force then; empty for none."""

    rows: tuple[Row, ...] = ()
    in_force: str = ""


def load(state: Path) -> History:
    """The history in a state directory; empty where there is none, and where it is damaged. Raises StoreError."""
    path = state / FILE
    try:
        raw = json.loads(read_private(path, LARGEST))
        if raw["format"] != FORMAT:
            return History()
        return History(tuple(_row(row) for row in raw["commits"][-KEPT:]), str(raw.get("in_force") or ""))
    except FileNotFoundError:
        return History()
    except OSError as error:
        raise explain(path, error) from error
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return History()


def save(state: Path, history: History) -> None:
    """Replace the history. Raises StoreError."""
    body = {"format": FORMAT, "in_force": history.in_force, "commits": [row._asdict() for row in history.rows]}
    write_durable(state / FILE, (json.dumps(body) + "\n").encode())


def _row(raw: Any) -> Row:
    return Row(
        str(raw["commit"]), Fate(raw["fate"]), str(raw["text"]), int(raw["at_wall"]), str(raw.get("review") or "")
    )
