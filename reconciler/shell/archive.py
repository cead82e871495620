"""The last decision for those who only look: `reconcile get revisions` and the read-only listener.

Both show the same document, so that a script can be moved from one to the other.
"""

import json
from pathlib import Path
from typing import Any

from reconciler.shell.clock import SystemClock
from reconciler.shell.store import Store


def last_decision(state: Path) -> dict[str, Any] | None:
    """The last decision that was stored in a state directory; None before the first. Raises StoreError."""
    with Store.join(state, SystemClock()) as store:
        last = store.last_decision()
    if last is None:
        return None
    found: dict[str, Any] = json.loads(last.text)
    return found


def revisions_json(stored: dict[str, Any]) -> dict[str, Any]:
    """The revisions of all workloads in a stored decision, and when that was made (wall clock, ns).

    Empty for a decision that an older version has stored.
    """
    rows: list[Any] = stored["status"].get("revisions", [])
    return {
        "format_version": stored["format_version"],
        "instance": stored["instance"],
        "at_wall": stored["at_wall"],
        "revisions": rows,
    }
