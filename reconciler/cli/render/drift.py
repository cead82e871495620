"""The answer of `reconcile drift` as text and as JSON."""

from typing import Any

from reconciler.cli.render.paint import Paint
from reconciler.core.decision import Decision
from reconciler.core.drift.listing import CORRECTED, drift_json
from reconciler.core.model.drift import Drift
from reconciler.exits import Exit

FORMAT_VERSION = 1
"""Version of the JSON form; it changes when a field changes its meaning or goes."""


def drift_lines(decision: Decision, paint: Paint) -> list[str]:
    """A line for each field that drifted, and what cannot be read."""
    unread = decision.status.unknown
    lines = [_line(drift, paint) for drift in decision.drift]
    count = len(lines)
    head = "no drift" if not count else f"{count} field{'' if count == 1 else 's'} drifted"
    if unread:
        head += f"; not everything can be read: {', '.join(sorted(unread))}"
    return [paint.bold(head), *lines]


def _line(drift: Drift, paint: Paint) -> str:
    moved = drift.moved
    answer = "reconcile corrects it" if drift.answer == CORRECTED else drift.answer
    tail = f"; next step: {drift.next_step}" if drift.next_step else ""
    where = f" of {drift.target}" if drift.target else ""
    return f"{paint.warn('drift')} {drift.object}: {moved.field}{where}: {moved.declared} -> {moved.observed} ({drift.cause}); {answer}{tail}"


def drift_document(decision: Decision, code: Exit) -> dict[str, Any]:
    """The listing as a value for JSON."""
    desired = decision.status.desired
    return {
        "exit_code": int(code),
        "format_version": FORMAT_VERSION,
        "revision": "" if desired is None else desired.revision,
        "drift": [drift_json(drift) for drift in decision.drift],
        "cannot_be_read": dict(decision.status.unknown),
    }
