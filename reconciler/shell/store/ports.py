"""What the loop needs of the store, as protocols: `memory.py` implements them, and so do simulations.

Every call is awaited: a store may be a slow disk or another host, and the loop goes on meanwhile. The caller makes one call after
another (`patient.py`). A call that was not awaited to its end may still be carried out.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_fold import Command, Outcome
from reconciler.core.model.step import Step
from reconciler.shell.store.audit import Event, HoldKey


class Rows(NamedTuple):
    """Rows for the audit: steps with their outcomes, and other events, all of one revision."""

    done: Sequence[tuple[Step, Outcome, Now]]
    revision: str
    events: Sequence[Event] = ()
    origins: Mapping[int, str] = {}
    """Where steps and events come from, by their `id`, as `report/origins` writes it."""

    @property
    def size(self) -> int:
        """Their number."""
        return len(self.done) + len(self.events)


class Document(NamedTuple):
    """A decision to store; see `Store.put_decision`."""

    value: Mapping[str, Any]
    ages: Collection[str] = ()
    all_ages: bool = False


class Journal(Protocol):
    """What `apply` needs of the store."""

    async def begin(
        self,
        step_id: str,
        object: str,  # noqa: A002
        action: str,
        generation: str,
        cause: str,
        now: Now,
        origin: str = "",
    ) -> int:
        """Record durably that a call is about to be made. Returns the id of the entry."""

    async def end(self, entry: int, outcome: str, detail: str = "") -> None:
        """Record the outcome of the call. The same outcome once more changes nothing."""

    async def sync(self) -> bool:
        """Wait until the ledger is on disk. False when it already was."""


class EvidenceStore(Protocol):
    """What `EvidenceCollector` needs of the store."""

    async def put_evidence(self, event: Event, value: str) -> int:
        """Keep evidence (JSON) of a replica, and append the event to the audit. Returns the id of the evidence."""

    async def amend_evidence(self, number: int, value: str) -> None:
        """Replace the evidence once the replica's exit is known."""


class Reports(Protocol):
    """What `Reporting` needs of the store."""

    async def report(self, rows: Sequence[Rows], documents: Sequence[Document] = ()) -> Sequence[bool]:
        """Append to the audit and store what changed in the decisions, in one transaction. Then the ledger is on disk as well.

        Returns of each decision whether it changed.
        """

    async def reported_holds(self) -> Mapping[HoldKey, str]:
        """The holds that an earlier process reported last."""


class Memory(Journal, EvidenceStore, Reports, Protocol):
    """What the loop needs of the store."""

    @property
    def place(self) -> str:
        """What the store is, in messages."""

    async def load_ledger(self) -> dict[tuple[str, str], str]:
        """All rows of the ledger."""

    async def save_ledger(self, rows: Mapping[tuple[str, str], str], acknowledge: Collection[int] = ()) -> int:
        """Store the rows that differ and acknowledge folded commands, in one transaction.

        The rows survive a kill at once, and a power cut once `sync`, `report` or `begin` has returned.
        """

    async def quarantine(self, keys: Mapping[tuple[str, str], str]) -> None:
        """Set rows of the ledger aside that cannot be decoded; `keys` has the cause of each. Raises StoreError."""

    def damaged(self) -> Sequence[tuple[str, str, str]]:
        """Section, key and cause of the rows that this process has set aside."""

    async def check(self) -> bool:
        """Write something, as a try; make the store again when its files are gone. Whether it had to be made again.

        Raises:
            StoreError: it cannot be written.
            Locked: another process holds the instance now.
        """

    async def commands(self) -> Sequence[tuple[int, Command]]:
        """Operators' commands that are not folded yet, as (id, command)."""

    async def close_open_entries(self) -> Sequence[str]:
        """Close the journal entries that an earlier process left open; one message for each."""
