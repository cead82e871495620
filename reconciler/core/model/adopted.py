"""The ledger's row of a container that a workload has adopted. `replicas/adoption` has the rules."""

from typing import NamedTuple


class Adopted(NamedTuple):
    """One adopted container: its replica, and its node and name at the last look.

    `baseline` is the revision of the template that it fitted, empty while it fits none. `ports` are its ports as a replica. `left`
    says that its workload is not declared any more. `reach` is how it could be reached at the last look, as in `Owned`.
    """

    workload: str
    ordinal: int
    node: str
    name: str
    baseline: str = ""
    left: bool = False
    ports: tuple[int, ...] = ()
    reach: tuple[str, ...] = ()
