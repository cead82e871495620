"""Reads the last decision for `reconcile get revisions` and for `GET /v1/revisions` (`reconciler/web/reading.py`).

Both show the same document, so that a script works with either.
"""

import json
from pathlib import Path
from typing import Any

from reconciler.shell.clock import SystemClock, utc
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
    return {
        "instance": stored["instance"],
        "as_of": utc(stored["at_wall"]).isoformat(),
        "revisions": [
            {key.removesuffix("_wall"): _instant_text(key, value) for key, value in row.items()} for row in rows
        ],
    }


def _instant_text(key: str, value: Any) -> Any:
    return utc(value).isoformat() if key.endswith("_wall") and value is not None else value
