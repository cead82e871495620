"""What the loop needs of the store, as protocols: the real store, a plan and simulations implement them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from reconciler.core.model.instant import Now
from reconciler.core.model.ledger import Command, Outcome
from reconciler.core.model.step import Step
from reconciler.shell.store.audit import Event, HoldKey


class Journal(Protocol):
    """What `apply` needs of the store."""

    def begin(self, step_id: str, object: str, action: str, generation: str, cause: str, now: Now) -> int:  # noqa: A002
        """Write down, durably, that a call is about to be made."""

    def end(self, entry: int, outcome: str, detail: str = "") -> None:
        """Write down how it ended."""

    def sync(self) -> bool:
        """Wait until the ledger is on the disk. False when it was already."""


class Cabinet(Protocol):
    """What evidence needs of the store."""

    def put_evidence(self, told: Event, value: str) -> int:
        """Keep what was left of a replica, and tell that it was kept. Returns its number."""

    def amend_evidence(self, number: int, value: str) -> None:
        """Add how it ended."""


class Memory(Journal, Cabinet, Protocol):
    """What the loop needs of the store."""

    def load_ledger(self) -> dict[tuple[str, str], str]:
        """All rows of the ledger."""

    def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        """Store the rows that differ, and acknowledge folded commands in the same transaction.

        It survives a kill at once, and a power cut once `sync` or `begin` has returned.
        """

    def put_decision(self, text: str) -> bool:
        """Store the last decision when it changed."""

    def commands(self) -> Sequence[tuple[int, Command]]:
        """People's commands that are not folded yet, with their numbers."""

    def leftovers(self) -> Sequence[str]:
        """Close what an earlier process left open in the journal; a sentence for each."""

    def told(self, done: Sequence[tuple[Step, Outcome, Now]], revision: str, events: Sequence[Event] = ()) -> None:
        """Append to the audit: steps with their outcomes, and what else happened."""

    def held(self) -> Mapping[HoldKey, str]:
        """The holds that an earlier process told last."""
