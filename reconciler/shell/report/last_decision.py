"""The last decision for those who only look: `reconcile get revisions` and the read-only listener.

Both show the same document, so that a script can be moved from one to the other.
"""

import json
from pathlib import Path
from typing import Any

from reconciler.shell.clock import SystemClock, utc
from reconciler.shell.store.state_db import Store


def last_decision(state: Path) -> dict[str, Any] | None:
    """The last decision that was stored in a state directory; None before the first. Raises StoreError."""
    with Store.join(state, SystemClock()) as store:
        last = store.last_decision()
    if last is None:
        return None
    found: dict[str, Any] = json.loads(last.text)
    return found


def revisions_json(stored: dict[str, Any]) -> dict[str, Any]:
    """The revisions of all workloads in a stored decision, and how old it is: instants as text, RFC 3339.

    Empty for a decision that an older version has stored.
    """
    rows = stored["status"].get("revisions", [])
    return {
        "instance": stored["instance"],
        "as_of": utc(stored["at_wall"]).isoformat(),
        "revisions": [{key.removesuffix("_wall"): _told(key, value) for key, value in row.items()} for row in rows],
    }


def _told(key: str, value: Any) -> Any:
    return utc(value).isoformat() if key.endswith("_wall") and value is not None else value
