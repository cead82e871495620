"""Reads the last decision for `GET /v1/revisions` (`reconciler/web/reading.py`).

The rows are those of `reconcile get revisions -o json`, so that a script works with either.
"""

import json
from pathlib import Path
from typing import Any

from reconciler.shell.clock import SystemClock
from reconciler.shell.report.instants import instants_as_text
from reconciler.shell.store.state_db import Store


def last_decision(state: Path) -> dict[str, Any] | None:
    """The last decision in a state directory; None before the first one. Raises StoreError."""
    with Store.join(state, SystemClock()) as store:
        last = store.last_decision()
    if last is None:
        return None
    decision: dict[str, Any] = json.loads(last.text)
    return decision


def revisions_json(stored: dict[str, Any]) -> dict[str, Any]:
    """The revisions of all workloads in a stored decision, and its time; instants are text, RFC 3339.

    No revisions when an older version stored the decision.
    """
    rows = stored["status"].get("revisions", [])
    shown: dict[str, Any] = instants_as_text(
        {"instance": stored["instance"], "as_of_wall": stored["at_wall"], "revisions": rows}
    )
    return shown
