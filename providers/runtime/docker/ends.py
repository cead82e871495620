"""What an engine's events say of the ends of containers: exit codes of earlier runs, and kills at the memory limit.

An inspection of a container that runs again shows when its last run ended, but not how: the engine forgets the exit code, and its
mark "killed for memory" is that of any process of any run. Both are in its events, of which it keeps the last 256. `observe.py` reads
them at each look, `fact.py` asks.
"""

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from providers.runtime.docker.timestamps import SECOND

KEPT = 8
"""Ends and kills remembered of each container."""

EARLY = SECOND // 10
"""How much earlier than the end in the inspection its event may be: the engine dates both, one after the other."""

OOM_SPAN = 2 * SECOND
"""A container that ends so soon after a kill at its memory limit ended because of it. The engine reports the kill of a main process
some 40 ms before its end."""


@dataclass(slots=True)
class _Past:
    """Ends as (wall ns, exit code), and kills at the memory limit (wall ns), oldest first."""

    ends: list[tuple[int, int]] = field(default_factory=list)
    ooms: list[int] = field(default_factory=list)


class Ends:
    """The events of the containers of one node. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._past: dict[str, _Past] = {}

    def note(self, event: Mapping[str, Any]) -> None:
        """Remember an event, if it is an end or a kill. Raises ValueError, TypeError, AttributeError for an invalid one."""
        action = event.get("Action")
        if event.get("Type") != "container" or action not in ("die", "oom"):
            return
        actor = event.get("Actor") or {}
        at, code = int(event.get("timeNano") or 0), int((actor.get("Attributes") or {}).get("exitCode") or 0)
        with self._lock:
            past = self._past.setdefault(str(actor.get("ID") or ""), _Past())
            if action == "oom":
                past.ooms = _added(past.ooms, at)
            else:
                past.ends = _added(past.ends, (at, code))

    def keep(self, containers: Collection[str]) -> None:
        """Forget all other containers."""
        with self._lock:
            self._past = {key: past for key, past in self._past.items() if key in containers}

    def code(self, container: str, finished_at: int) -> int | None:
        """The exit code of the run that ended at this instant (wall ns); None if its event is not known."""
        with self._lock:
            ends = self._past.get(container, _Past()).ends
        return next((code for at, code in ends if at >= finished_at - EARLY), None)

    def oom_at(self, container: str, since: int, until: int) -> int:
        """The last kill at the memory limit in this time (wall ns); 0 = none is known."""
        with self._lock:
            ooms = self._past.get(container, _Past()).ooms
        return max((at for at in ooms if since <= at <= until), default=0)


def _added(known: list[Any], item: Any) -> list[Any]:
    """The list with an event, which consecutive looks may report twice."""
    return known if item in known else sorted([*known, item])[-KEPT:]
