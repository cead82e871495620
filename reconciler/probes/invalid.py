"""Results of targets that cannot be probed as declared. Used by `loop.py`, in the child process."""

from reconciler.probes.slot import Finish, Slot
from reconciler.probes.streak import CANNOT_RUN


class InvalidProber:
    """See `Prober`. Reports "cannot run" at every period, so that the result stays valid."""

    def __init__(self, finish: Finish) -> None:
        self._finish = finish

    def start(self, slot: Slot) -> None:
        """End the run at once with the reason."""
        self._finish(slot, CANNOT_RUN, slot.spec.note)

    def check(self, slot: Slot) -> None:
        """Never called: there is no socket."""

    def event(self, slot: Slot, mask: int) -> None:
        """Never called: there is no socket."""

    def expire(self, slot: Slot) -> None:
        """Never called: a run ends when it starts."""

    def abort(self, slot: Slot) -> None:
        """Never called: a run ends when it starts."""
