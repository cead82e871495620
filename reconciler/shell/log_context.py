"""What every log record of a tick has in common: the id of the reconcile, and the manifests in force.

The loop begins a context at each tick. Calls that a tick began keep its context, because tasks copy the context in which they are
made; so the outcome of a slow call carries the id of the tick that decided it. Read by `logs.py`.
"""

import secrets
from contextvars import ContextVar
from typing import NamedTuple


class LogContext(NamedTuple):
    """The id of one tick, unique over all processes, and the revision and commit of its manifests (empty = unknown)."""

    reconcile_id: str = ""
    revision: str = ""
    commit: str = ""


_NONE = LogContext()
_CONTEXT: ContextVar[LogContext] = ContextVar("reconcile", default=_NONE)


class Reconciles:
    """Numbers the ticks of one process."""

    def __init__(self) -> None:
        self._process = secrets.token_hex(4)
        self._count = 0

    def begin(self, revision: str, commit: str = "") -> None:
        """Begin the context of the next tick."""
        self._count += 1
        _CONTEXT.set(LogContext(f"{self._process}-{self._count}", revision, commit))

    def manifests(self, revision: str, commit: str) -> None:
        """Other manifests are in force from here on."""
        _CONTEXT.set(current()._replace(revision=revision, commit=commit))


def current() -> LogContext:
    """The context of the calling task."""
    return _CONTEXT.get()
