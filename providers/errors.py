"""Errors of the outside world, sorted by what the caller may do next. Raised by every provider, read by the shell.

    ProviderError
    ├── Unreachable      no answer, and nothing was changed: try again later
    ├── Rejected         the other side understood and refuses: stop until the manifest or its rights change
    ├── Conflict         the target is not what the plan saw: observe it, then decide again
    │   ├── Gone         the target does not exist any more
    │   ├── Overwritten  the change was made, and reads back as something else: another writer was faster
    │   └── Foreign      the target carries no owner mark of ours: never change it
    └── OutcomeUnknown   the call may have been carried out: look before doing anything else

Messages name the object, the cause and the next step; they never hold a secret.
"""

from enum import StrEnum


class Retry(StrEnum):
    """What the caller may do after an error; the loop's back-off follows it."""

    LATER = "later"
    STOP = "stop"
    LOOK_AGAIN = "look-again"


class ProviderError(Exception):
    """Root of the tree.

    Args:
        target: the object that was read or written, as its key or name.
        cause: what happened, with the other side's own message if there is one.
        next_step: what the operator can do, in the imperative; empty when a retry is enough.
        wait: the time (ns) for which the other side asked not to be called again; 0 = none.
    """

    retry: Retry = Retry.LATER
    whole: bool = False

    def __init__(self, target: str, cause: str, next_step: str = "", wait: int = 0) -> None:
        super().__init__(target, cause, next_step)
        self.target = target
        self.cause = cause
        self.next_step = next_step
        self.wait = wait

    def __str__(self) -> str:
        tail = f"; {self.next_step}" if self.next_step else ""
        return f"{self.target}: {self.cause}{tail}"


class Unreachable(ProviderError):
    """No answer, and nothing was changed."""

    retry = Retry.LATER


class Rejected(ProviderError):
    """The other side understood and refused; the same request will be refused again.

    Args:
        whole: every part of the request would be refused as well: for rights, size or rate.
    """

    retry = Retry.STOP

    def __init__(self, target: str, cause: str, next_step: str = "", wait: int = 0, whole: bool = False) -> None:
        super().__init__(target, cause, next_step, wait)
        self.whole = whole


class Conflict(ProviderError):
    """The target is not what the plan saw."""

    retry = Retry.LOOK_AGAIN


class Gone(Conflict):
    """The target does not exist any more."""


class Overwritten(Conflict):
    """The change was made, and what is read back right after it is something else."""


class Foreign(Conflict):
    """The target has another owner: it carries no valid owner mark of this instance."""


class OutcomeUnknown(ProviderError):
    """The call may have been carried out: its answer was lost or came too late."""

    retry = Retry.LOOK_AGAIN
