"""What is remembered of a container that a workload took over: a value of the ledger. `adoption.py` has the rules."""

from typing import NamedTuple


class Adopted(NamedTuple):
    """One container that a workload took over: of which replica, and where it was seen last.

    `baseline` is the revision of the template that it was found to fit, empty while there is none. `ports` are those that it was
    a replica on. `left` tells that its workload is not declared any more.
    """

    workload: str
    ordinal: int
    node: str
    name: str
    baseline: str = ""
    left: bool = False
    ports: tuple[int, ...] = ()
