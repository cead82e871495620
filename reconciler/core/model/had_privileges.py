"""The privileges that a workload's containers have: a row of the ledger. `replicas/had_privileges` has the rules."""

from typing import Any, NamedTuple


class HadPrivileges(NamedTuple):
    """The revisions of the containers that a workload has, or had last, and the digests of their privileges, both sorted."""

    revisions: tuple[str, ...]
    had: tuple[str, ...]


def read_had(raw: Any) -> HadPrivileges:
    """A row from its stored form. Raises TypeError or ValueError when it has another shape."""
    revisions, had = raw
    return HadPrivileges(tuple(revisions), tuple(had))
