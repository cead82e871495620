"""Reasons, rules and waits: the names with which every rule of the core answers, in plans, holds, status and `explain`.

A rule never returns a bare boolean: it returns a value with its reason, its evidence and the instant until which it counts.
"""

from dataclasses import dataclass
from enum import StrEnum

from providers.facts import Endpoint


class Reason(StrEnum):
    """Why something has its state, or why a step is taken. Operators read the value."""

    READY = "Ready"
    NOT_READY = "NotReady"
    READINESS_UNKNOWN = "ReadinessUnknown"
    SPEC_LOST = "SpecLost"
    """What its revision declared is not known any more, so it cannot be probed."""
    STARTING = "Starting"
    NOT_RUNNING = "NotRunning"
    PAUSED = "Paused"
    LIVENESS_FAILED = "LivenessFailed"
    STARTUP_FAILED = "StartupFailed"
    RECREATE = "RestartsDidNotHelp"
    SECRET_CHANGED = "SecretChanged"  # noqa: S105  (a name, not a password)
    REQUESTED = "Requested"
    RESTARTING = "Restarting"
    MISSING = "Missing"
    NOT_STARTED = "NotStarted"
    CRASHED = "Crashed"
    EXITED = "Exited"
    OOM_KILLED = "OOMKilled"
    TAKEN_OVER = "TakenOver"
    HOST_RESTARTED = "HostRestarted"
    STOPPED = "Stopped"
    TEMPLATE_CHANGED = "TemplateChanged"
    REVISION_FAILED = "RevisionFailed"
    SETTINGS_CHANGED = "SettingsChanged"
    FILES_CHANGED = "FilesChanged"
    POLICY_LOST = "RestartPolicyLost"
    """The restart policy is `no` although another one is declared: a stop that did not happen, or a restart, left it so."""
    NETWORK_LOST = "NetworkLost"
    IMAGE_REPLACED = "ImageReplaced"
    """Another program replaced the container, and it runs another image than its revision."""
    SUPERSEDED = "Superseded"
    INACTIVE = "Inactive"
    CANARY = "Canary"
    SURPLUS = "Surplus"
    NODE_CHANGED = "NodeChanged"
    """Its replica belongs to another node now."""
    VOLUME_IN_USE = "VolumeInUse"
    """It runs beside the container of its replica, and only one may have their volume."""
    PRUNED = "Pruned"
    DESTROYED = "Destroyed"
    RELEASED = "Released"
    DRAINING = "Draining"
    GONE = "Gone"
    MOVED = "Moved"
    """Its service reaches the container at another address or port now."""
    PUBLISHED = "Published"
    WITHDRAWN = "Withdrawn"
    CHANGED = "Changed"
    PUSHED_READY = "PushedReady"
    PUSHED_NOT_READY = "PushedNotReady"
    PUSHED_STARTUP = "PushedStartup"
    PUSHED_DRAINING = "PushedDraining"
    DRAIN_DEADLINE = "DrainDeadline"
    """It pushed draining, and still runs after the deadline for that."""
    PUSH_CHANNEL_SUSPECT = "PushChannelSuspect"
    DRAINED_BY_OPERATOR = "DrainedByOperator"
    FORCED_UP = "ForcedUp"
    FORCED_DOWN = "ForcedDown"
    PENDING = "Pending"
    RAMP = "Ramp"
    REASSERTED = "Reasserted"
    SPREAD = "PanicSpread"
    LAST_RESORT = "LastResort"
    """Its liveness probe fails, its readiness probe does not, and no endpoint of the pool is better."""


class Rule(StrEnum):
    """The rule that holds an action. Every hold names its rule."""

    SUSPENDED = "Suspended"
    DENIED = "Denied"
    POLICY_VIOLATION = "PolicyViolation"
    """The policy of the Guard forbids what was in force before: what runs is kept, and nothing is created."""
    OVERRIDDEN = "Overridden"
    """An operator drained it or forced it down, so it gets no traffic."""
    LEDGER_LOST = "LedgerLost"
    RESTART_IN_PROGRESS = "RestartInProgress"
    BUDGET = "AvailabilityBudget"
    WINDOW = "Window"
    FOREIGN_HEALER = "ForeignHealer"
    PROBER_FAULT = "ProberFault"
    MASS_FAILURE = "MassFailure"
    NODE_RESTART_LIMIT = "NodeRestartLimit"
    RATE = "RestartRate"
    OBSERVE_ONLY = "ObserveOnly"
    BACK_OFF = "BackOff"
    RESTART_LIMIT = "RestartLimit"
    FAILED = "Failed"
    """Restarts and recreations did not help: nothing is tried until an operator resumes it or its template changes."""
    START_CONCURRENCY = "StartConcurrency"
    NAME_TAKEN = "NameTaken"
    NO_NODE = "NoNode"
    """No node of the workload can have the replica."""
    VOLUME_IN_USE = "VolumeInUse"
    """Another container has the exclusive volume, or may have it on a node that cannot be read."""
    FOREIGN_RECORD = "ForeignRecord"
    PRUNE_OFF = "PruneOff"
    INCOMPLETE_SOURCE = "IncompleteSource"
    SOURCE_CHANGED = "SourceChanged"
    SOURCE_INVALID = "SourceInvalid"
    """The manifests at the source cannot be used, so the last good ones stay in force."""
    SOURCE_UNVERIFIED = "SourceUnverified"
    """The commit at the source does not have the signature that local documents ask for, so the last good one stays in force."""
    ABSENCE_UNPROVEN = "AbsenceUnproven"
    MASS_CHANGE = "MassChange"
    APPROVAL_REQUIRED = "ApprovalRequired"
    """The Guard names the class of the change, and no operator has approved it."""
    NOT_IN_PLAN = "NotInPlan"
    """The saved plan that this run applies does not have the change."""
    LAST_MEMBER = "LastMember"
    PANIC = "Panic"
    WEIGHT_REMOVAL_LIMIT = "WeightRemovalLimit"
    ALL_FAILING = "AllVerdictsFail"
    CONFLICTING_WRITER = "ConflictingWriter"
    FIXED_WEIGHTS = "FixedWeights"
    """The balancing algorithm takes only weight 0 and full weight, so the declared weights are rounded."""
    LAST_RECORD = "LastRecord"
    CANNOT_PUBLISH = "CannotPublish"
    UNKNOWN_RUNTIME = "RuntimeUnknown"
    UNKNOWN_POOL = "PoolUnknown"
    UNKNOWN_ZONE = "ZoneUnknown"
    ADOPT_PENDING = "AdoptPending"
    ADOPT_CONFLICT = "AdoptConflict"
    TEMPLATE_DIFFERS = "TemplateDiffers"
    POLICY_KEPT = "RestartPolicyKept"
    PROBE_CONTEXT = "ProbeContextInvalid"
    STEP_FAILED = "StepFailed"
    BUSY = "Busy"
    CLOCK_JUMP = "ClockJump"
    PROGRESS = "ProgressDeadline"
    PROBE_UNPROVEN = "ProbeUnproven"
    """A changed probe or service port fails on a container that was judged by another one until now."""
    REVISION_NOT_ELIGIBLE = "RevisionNotEligible"
    """The declared revision failed or expired, so the one before keeps the traffic."""
    TEMPLATE_GONE = "TemplateGone"
    """A replica cannot be recreated, because its template is not declared any more."""
    SECRET_CHANGED = "SecretChanged"  # noqa: S105  (a name, not a password)
    SECRET_UNUSABLE = "SecretUnusable"  # noqa: S105  (likewise)
    """A secret that a container needs is missing, ciphertext or otherwise unusable, so it is not created."""
    SECRET_UNKNOWN = "SecretUnknown"  # noqa: S105  (likewise)
    """A secret that a container needs cannot be read now, so it is not created yet."""
    FILES_KEPT = "FilesKept"
    DRAIN_DEADLINE = "DrainDeadline"
    """A replica that pushed draining still runs after the deadline for that."""
    LEDGER_UNWRITABLE = "LedgerUnwritable"
    """The state directory cannot be written, so nothing is done that must be remembered."""
    SOURCE_UNREADABLE = "SourceUnreadable"
    """The manifests cannot be read, so those in force stay."""
    PROBE_ENGINE = "ProbeEngineDown"
    """The probe engine does not run, so probe results are unknown."""
    DRIFT = "DriftReported"
    """A field of a container moved while the manifests did not, and the manifests say that it is only reported."""
    DECISION_FAILED = "DecisionFailed"
    """A rule failed with an error of the program, so there is no decision."""


class Waiting(StrEnum):
    """What progress waits for. The value completes "waiting for ..."; the operator does not have to act."""

    READY = "readiness"
    MIN_READY = "minReadySeconds"
    VERDICT = "probe result"
    NAMES = "DNS withdrawal"
    PUBLISHED = "DNS publication"
    TTL = "TTL"
    WEIGHT = "weight 0 in the balancer"
    DRAIN = "drain"
    RAMP = "ramp"
    DEAD_ENDPOINT = "stale endpoint at weight 0"
    REPLACEMENT = "available replacement"
    NODE = "readable node"
    CALL = "call in progress"
    REQUEST = "restart request"
    ACTIVATION = "activation time"
    VERIFIED = "revision verification"
    RAISED = "weight in the balancer"
    BALANCER = "balancer health checks"
    PAUSE = "canary pause"
    ROLLBACK_WINDOW = "rollback window"
    STEADY = "steady health"
    COMMIT = "new revision"


class Act(StrEnum):
    """The kind of action that a hold is about."""

    CREATE = "create"
    START = "start"
    UPDATE = "update"
    RESTART = "restart"
    RECREATE = "recreate"
    RETIRE = "retire"
    STOP = "stop"
    REMOVE = "remove"
    WEIGHT = "weight"
    RECORDS = "records"
    ACTIVATE = "activate"
    OTHER = "other"
    """No call of a provider, or one that no report needs as a value."""


@dataclass(frozen=True, slots=True)
class HeldAction:
    """What a hold holds, as values, so that nothing has to be read out of its text.

    containers: ids of containers that the action is about. pool: `provider/pool` of a weight, `endpoints` the members whose weight is
    held. addresses: those that a name keeps or does not get; `host` is that name.
    """

    act: Act = Act.OTHER
    containers: tuple[str, ...] = ()
    pool: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    host: str = ""
    addresses: tuple[str, ...] = ()


UNSPECIFIED = HeldAction()


@dataclass(frozen=True, slots=True)
class Hold:
    """An action that would be done but is not, with its rule.

    `until` is the steady instant of the next try; without one, `next_step` says what the operator has to do. `since` is the steady
    instant from which its age counts, where a rule knows one. `action` is what is held as text, `held` as values. `item` is the
    change that waits for an approval (`limits/approvals`); empty for other holds.
    """

    object: str
    action: str
    rule: Rule
    message: str
    until: int | None = None
    next_step: str = ""
    since: int | None = None
    held: HeldAction = UNSPECIFIED
    item: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Progress that needs time or the outside world.

    `until` is the steady instant at which it ends by itself. `container` is the id of the one that waits, where it is about one.
    `unasked` says that neither the manifests nor an operator asked for it, such as the drain of a restart for failed health.
    """

    object: str
    waiting: Waiting
    message: str
    until: int | None = None
    container: str = ""
    unasked: bool = False
