"""Answers for targets that cannot be probed as they are declared. Used by `loop.py`, in the child process."""

from reconciler.probes.slot import Finish, Slot
from reconciler.probes.streak import CANNOT_RUN


class BrokenProber:
    """See `Prober`. Answers at every period, so that the answer stays fresh."""

    def __init__(self, finish: Finish) -> None:
        self._finish = finish

    def start(self, slot: Slot) -> None:
        """End the run at once, with the reason."""
        self._finish(slot, CANNOT_RUN, slot.more.note)

    def look(self, slot: Slot) -> None:
        """There is no socket."""

    def event(self, slot: Slot, mask: int) -> None:
        """There is no socket."""

    def expire(self, slot: Slot) -> None:
        """A run ends when it starts."""

    def abort(self, slot: Slot) -> None:
        """A run ends when it starts."""
