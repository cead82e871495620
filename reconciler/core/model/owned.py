"""The ledger's row of a container of ours: that it is ours, and which of its ends were reported. `replicas/identity` has the rules."""

from typing import NamedTuple


class Owned(NamedTuple):
    """One container of this instance, by its id, under whatever name it has now."""
