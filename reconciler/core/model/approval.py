"""Approvals of operators: rows of the ledger. `limits/approvals` has the rules."""

from typing import Any, NamedTuple

from reconciler.core.model.instant import Instant


class Approval(NamedTuple):
    """One hash of held changes, and when it was approved, or first shown.

    `items` are the digests of the changes that had this hash; None for an approved hash that no decision has shown yet.
    """

    at: Instant
    items: tuple[str, ...] | None = None
    approved: bool = True


def read_approval(raw: Any) -> Approval | None:
    """A row from its stored form; None for a row of an earlier version, whose hashes had another meaning.

    Raises:
        TypeError, ValueError: the row has another shape.
    """
    if raw is True:
        return None
    at, items, approved = raw
    return Approval(Instant(*at), None if items is None else tuple(str(item) for item in items), bool(approved))
