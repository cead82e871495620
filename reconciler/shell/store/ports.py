"""What the loop needs of the store, as protocols: `memory.py` implements them, and so do simulations."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_fold import Command, Outcome
from reconciler.core.model.step import Step
from reconciler.shell.store.audit import Event, HoldKey


class Journal(Protocol):
    """What `apply` needs of the store."""

    def begin(self, step_id: str, object: str, action: str, generation: str, cause: str, now: Now) -> int:  # noqa: A002
        """Record durably that a call is about to be made. Returns the id of the entry."""

    def end(self, entry: int, outcome: str, detail: str = "") -> None:
        """Record the outcome of the call."""

    def sync(self) -> bool:
        """Wait until the ledger is on disk. False when it already was."""


class EvidenceStore(Protocol):
    """What `Witness` needs of the store."""

    def put_evidence(self, event: Event, value: str) -> int:
        """Keep evidence (JSON) of a replica, and append the event to the audit. Returns the id of the evidence."""

    def amend_evidence(self, number: int, value: str) -> None:
        """Replace the evidence once the replica's exit is known."""


class Memory(Journal, EvidenceStore, Protocol):
    """What the loop needs of the store."""

    def load_ledger(self) -> dict[tuple[str, str], str]:
        """All rows of the ledger."""

    def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        """Store the rows that differ and acknowledge folded commands, in one transaction.

        The rows survive a kill at once, and a power cut once `sync` or `begin` has returned.
        """

    def quarantine(self, keys: Mapping[tuple[str, str], str]) -> None:
        """Set rows of the ledger aside that cannot be decoded; `keys` has the cause of each. Raises StoreError."""

    def damaged(self) -> Sequence[tuple[str, str, str]]:
        """Section, key and cause of the rows that this process has set aside."""

    def check(self) -> bool:
        """Write something, as a try; make the store again when its files are gone. Whether it had to be made again.

        Raises:
            StoreError: it cannot be written.
            Locked: another process holds the instance now.
        """

    def put_decision(self, document: Mapping[str, Any], ages: Collection[str] = (), *, all_ages: bool = False) -> bool:
        """Store what changed in the last decision; see `Store.put_decision`."""

    def together(self) -> AbstractContextManager[None]:
        """Make one transaction of all writes in the body."""

    def commands(self) -> Sequence[tuple[int, Command]]:
        """Operators' commands that are not folded yet, as (id, command)."""

    def close_open_entries(self) -> Sequence[str]:
        """Close the journal entries that an earlier process left open; one message for each."""

    def append_audit(
        self, done: Sequence[tuple[Step, Outcome, Now]], revision: str, events: Sequence[Event] = ()
    ) -> None:
        """Append steps with their outcomes, and other events, to the audit."""

    def reported_holds(self) -> Mapping[HoldKey, str]:
        """The holds that an earlier process reported last."""
