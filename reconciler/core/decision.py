"""Decision and Plan: what `decide` answers, and what `forecast` strings together from such answers. Values only."""

from dataclasses import dataclass

from reconciler.core.limits.approval_classes import Change
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Wait
from reconciler.core.model.step import Step
from reconciler.core.outcome import Outcome
from reconciler.core.replicas.privilege_changes import PrivilegeChange
from reconciler.core.replicas.template_changes import FieldChange
from reconciler.core.status.objects import Status


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer of `decide`.

    `wake_at` is the steady instant, later than now, at which the answer may change without new facts. `guard_hash` approves all held
    changes that need it; empty without such. `unsettled` says that a
    disruption made progress without a call, so that its next step may be due already: decide again at once. `unapproved` are the
    changes of the Guard's classes that wait for an approval.
    """

    steps: tuple[Step, ...]
    holds: tuple[Hold, ...]
    waits: tuple[Wait, ...]
    status: Status
    ledger: Ledger
    wake_at: int
    guard_hash: str = ""
    unsettled: bool = False
    unapproved: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """One step of a whole plan: its number from 1, the numbers it comes after, and the time that passes before it (ns)."""

    number: int
    after: tuple[int, ...]
    delay: int
    step: Step


@dataclass(frozen=True, slots=True)
class Changed:
    """What the declared revision of a workload changes against the one that it replaces. `fields` is None where that is not known."""

    object: str
    before: str
    after: str
    fields: tuple[FieldChange, ...] | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole plan: every step until convergence, and the holds and waits that remain. `truncated` is why it ends early.

    `guard_hash` is as in `Decision`, and `approve_command` the command line that approves it. `privileges` are those of the workloads that
    are created or changed. `outcome` is what the plan changes, for a comparison with a later one; `approves` are the changes of the
    Guard's classes in it, when it was made as if they were approved.
    """

    revision: str
    steps: tuple[Planned, ...]
    holds: tuple[Hold, ...]
    waits: tuple[Wait, ...]
    guard_hash: str = ""
    truncated: str = ""
    approve_command: str = ""
    changed: tuple[Changed, ...] = ()
    privileges: tuple[PrivilegeChange, ...] = ()
    outcome: tuple[Outcome, ...] = ()
    approves: tuple[Change, ...] = ()
