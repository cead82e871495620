"""Approvals of operators: rows of the ledger. `limits/approvals` has the rules."""

from typing import Any, NamedTuple

from reconciler.core.model.instant import Instant


class Approval(NamedTuple):
    """One hash of held changes, and when it was approved, or first shown.

    `items` are the digests of the changes that had this hash; None for an approved hash that no decision has shown yet. `who`
    approved it. `once` are those of the items that waited as changes of a class of the Guard: they are used up when they are gone.
    """

    at: Instant
    items: tuple[str, ...] | None = None
    approved: bool = True
    who: str = ""
    once: tuple[str, ...] = ()


def read_approval(raw: Any) -> Approval | None:
    """A row from its stored form; None for a row of an earlier version, whose hashes had another meaning.

    Raises:
        TypeError, ValueError: the row has another shape.
    """
    if raw is True:
        return None
    at, items, approved, *rest = raw  # older rows are shorter
    who, once = (*rest, "", ())[:2] if len(rest) != 1 else (rest[0], ())
    texts = None if items is None else tuple(map(str, items))
    return Approval(Instant(*at), texts, bool(approved), str(who), tuple(map(str, once)))
