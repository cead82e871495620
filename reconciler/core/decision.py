"""Decision and Plan: what `decide` answers, and what `forecast` strings together from such answers. Values only."""

from dataclasses import dataclass
from enum import StrEnum

from reconciler.core.consequences import Consequence
from reconciler.core.limits.approval_classes import Change
from reconciler.core.model.drift import Drift
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Hold, Wait
from reconciler.core.model.step import Step
from reconciler.core.outcome import Outcome
from reconciler.core.replicas.field_changes import FieldChange
from reconciler.core.replicas.file_diffs import FileDiff
from reconciler.core.replicas.privilege_changes import PrivilegeChange
from reconciler.core.status.objects import Status


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer of `decide`.

    `wake_at` is the steady instant, later than now, at which the answer may change without new facts. `guard_hash` approves all held
    changes that need it; empty without such. `unsettled` says that a
    disruption made progress without a call, so that its next step may be due already: decide again at once. `drift` are the fields that
    moved while the manifests did not. `unapproved` are the changes of the Guard's classes that wait for an approval.
    """

    steps: tuple[Step, ...]
    holds: tuple[Hold, ...]
    waits: tuple[Wait, ...]
    status: Status
    ledger: Ledger
    wake_at: int
    guard_hash: str = ""
    unsettled: bool = False
    drift: tuple[Drift, ...] = ()
    unapproved: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """One step of a whole plan: its number from 1, the numbers it comes after, and the time that passes before it (ns).

    `fields` are the fields of the manifests for whose change the step is taken; none for health, orders of operators and drift. `where` is
    the place of its object in the manifests, `file:line:column`; empty for what no manifest names.
    """

    number: int
    after: tuple[int, ...]
    delay: int
    step: Step
    fields: tuple[FieldChange, ...] = ()
    where: str = ""


class Basis(StrEnum):
    """What a change of an object is known by."""

    MANIFESTS = "manifests"
    """The manifests that are in force, or the template of what runs in the ledger."""
    RUNTIME = "runtime"
    """The ledger does not have the earlier template: only what the runtime shows is compared."""
    UNKNOWN = "unknown"
    """The ledger does not have the earlier template, and the runtime shows nothing to compare."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What the manifests change in one object. `before` and `after` are revisions of a workload's template; `before` is empty for a new
    workload, both are for other objects. `where` is the place of the object, as in `Planned`.
    """

    object: str
    before: str
    after: str
    fields: tuple[FieldChange, ...]
    basis: Basis = Basis.MANIFESTS
    where: str = ""

    @property
    def is_new(self) -> bool:
        """Whether it is a workload that nothing is known of."""
        return bool(self.after) and not self.before


@dataclass(frozen=True, slots=True)
class Manifests:
    """Manifests by their revision and commit; both are empty where they are not known."""

    revision: str = ""
    commit: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole plan: every step until convergence, and the holds and waits that remain. `truncated` is why it ends early.

    `guard_hash` is as in `Decision`, and `approve_command` the command line that approves it. `privileges` are those of the workloads that
    are created or changed. `consequences` says what follows for each workload whose replicas change. `instance` is its id; `in_force` are the
    manifests that a run put in force last, `planned` those of this plan. `file_diffs` are the files of the repository that differ from those
    that containers have. `outcome` is what the plan changes, for a comparison with a later one; `approves` are the changes of the Guard's
    classes in it, when it was made as if they were approved.
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
    consequences: tuple[Consequence, ...] = ()
    instance: str = ""
    in_force: Manifests = Manifests()
    planned: Manifests = Manifests()
    file_diffs: tuple[FileDiff, ...] = ()
    outcome: tuple[Outcome, ...] = ()
    approves: tuple[Change, ...] = ()
