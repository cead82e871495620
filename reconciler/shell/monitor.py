"""What the loop reports at the end of every tick, for metrics and for the program's own health.

`Parts` holds a `Monitor`; `reconciler/metrics/monitoring.py` implements it. A monitor must neither block nor raise: it keeps the
immutable record, and does the work when a scrape asks for it.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from manifests.values.desired import Desired
from reconciler.core.decision import Decision
from reconciler.core.model.instant import Now
from reconciler.core.model.owned import Owned


class Tick(NamedTuple):
    """One tick that is over. Instants are steady ns.

    `now` is the instant of the decision, `deciding` its duration (ns). `owned` are the ledger's rows of containers before the
    decision. `commanded` is when the calls of its steps had begun. `source_at` is the last complete read of the manifests in force.
    `complete` says that every provider has been looked at. `commit` is that of the manifests in force, `newest` the
    newest one of a git source with the same manifests; empty outside of git.
    """

    decision: Decision
    desired: Desired
    now: Now
    began: int
    deciding: int
    owned: Mapping[str, Owned]
    commanded: int
    ended: int
    source_at: int
    complete: bool
    commit: str = ""
    newest: str = ""


class Monitor(Protocol):
    """Gets every tick. Called from the loop's thread."""

    def ticked(self, tick: Tick) -> None:
        """A tick is over."""

    def failed(self, at: int) -> None:
        """A tick ended with an unexpected error at this steady instant (ns). The daemon stays and tries again."""


class NoMonitor:
    """Ignores all ticks: plans and simulations."""

    def ticked(self, tick: Tick) -> None:
        """Do nothing."""

    def failed(self, at: int) -> None:
        """Do nothing."""
