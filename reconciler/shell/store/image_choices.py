"""The file that remembers what image policies chose without a commit: `image-choices.json` in the state directory, mode 0600.

Every read of the manifests asks it (`tree.Location.read`); the daemon writes it before anything else happens with a choice, so a killed process
goes on with the same images. A lost or damaged file changes no image: the choices in force are stored with the manifests (`last_good.py`).
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from manifests.values.image_choice import ImageChoice
from reconciler.shell.store import last_good
from reconciler.shell.store.directory import StoreError, write_durable
from reconciler.shell.store.image_choice_rows import as_rows, rows_of

FILE = "image-choices.json"
LARGEST = 16 * 1024 * 1024


def load(state: Path, note: Callable[[str], None] = lambda _: None) -> tuple[ImageChoice, ...]:
    """The remembered state; that of the stored manifests where the file is lost or damaged. `note` reports damage."""
    try:
        return rows_of(json.loads(last_good.read_private(state / FILE, LARGEST))["choices"])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        note(f"{state / FILE} is damaged and is not used: {error}; image policies go on with the images in force")
    try:
        good = last_good.load(state)
    except StoreError:
        return ()
    return () if good is None else good.sources.choices


def save(state: Path, choices: Iterable[ImageChoice]) -> None:
    """Write it to the disk. Raises StoreError."""
    write_durable(state / FILE, json.dumps({"version": 1, "choices": as_rows(choices)}).encode())
