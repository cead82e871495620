"""The enumerated reasons and rules: the words in which every rule answers, in plans, holds, status and `explain`.

A rule never returns a bare boolean: it says which value, for which reason, on what evidence, and until when.
"""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why something is as it is, or why a step is taken. The value is what people read."""

    READY = "Ready"
    NOT_READY = "NotReady"
    READINESS_UNKNOWN = "ReadinessUnknown"
    STARTING = "Starting"
    NOT_RUNNING = "NotRunning"
    PAUSED = "Paused"
    LIVENESS_FAILED = "LivenessFailed"
    STARTUP_FAILED = "StartupFailed"
    RECREATE = "RestartsDidNotHelp"
    SECRET_CHANGED = "SecretChanged"  # noqa: S105  (a word, not a password)
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
    NETWORK_LOST = "NetworkLost"
    SUPERSEDED = "Superseded"
    INACTIVE = "Inactive"
    CANARY = "Canary"
    SURPLUS = "Surplus"
    PRUNED = "Pruned"
    DESTROYED = "Destroyed"
    RELEASED = "Released"
    DRAINING = "Draining"
    GONE = "Gone"
    PUBLISHED = "Published"
    WITHDRAWN = "Withdrawn"
    CHANGED = "Changed"
    PUSHED_READY = "PushedReady"
    PUSHED_NOT_READY = "PushedNotReady"
    PUSHED_STARTUP = "PushedStartup"
    PUSHED_DRAINING = "PushedDraining"
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
    """What holds something back. Every hold names its rule."""

    SUSPENDED = "Suspended"
    DENIED = "Denied"
    OVERRIDDEN = "Overridden"
    """A person drained it or forced it down, so it gets no traffic."""
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
    """Restarts and recreations did not help: nothing is tried until a person resumes it or its template changes."""
    START_CONCURRENCY = "StartConcurrency"
    NAME_TAKEN = "NameTaken"
    FOREIGN_RECORD = "ForeignRecord"
    PRUNE_OFF = "PruneOff"
    INCOMPLETE_SOURCE = "IncompleteSource"
    SOURCE_CHANGED = "SourceChanged"
    ABSENCE_UNPROVEN = "AbsenceUnproven"
    MASS_CHANGE = "MassChange"
    LAST_MEMBER = "LastMember"
    PANIC = "Panic"
    WEIGHT_REMOVAL_LIMIT = "WeightRemovalLimit"
    ALL_FAILING = "AllVerdictsFail"
    CONFLICTING_WRITER = "ConflictingWriter"
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
    REVISION_NOT_ELIGIBLE = "RevisionNotEligible"
    """The declared revision failed or expired, so the one before keeps the traffic."""
    TEMPLATE_GONE = "TemplateGone"
    """A replica cannot be made again, because what it was made from is not declared any more."""
    SECRET_CHANGED = "SecretChanged"  # noqa: S105  (a word, not a password)


class Waiting(StrEnum):
    """What progress waits for without anybody being able to hurry it by acting."""

    READY = "ready"
    MIN_READY = "minReadySeconds"
    VERDICT = "probe verdict"
    NAMES = "name withdrawn"
    TTL = "TTL"
    WEIGHT = "weight 0 read back"
    DRAIN = "drain"
    RAMP = "ramp"
    DEAD_ENDPOINT = "dead endpoint at weight 0"
    REPLACEMENT = "replacement available"
    NODE = "node readable"
    CALL = "call under way"
    REQUEST = "restart request"
    ACTIVATION = "activation time"
    VERIFIED = "revision verified"
    RAISED = "weight read back"
    BALANCER = "the balancer's own checks"
    PAUSE = "canary pause"
    ROLLBACK_WINDOW = "rollback window"


@dataclass(frozen=True, slots=True)
class Hold:
    """Something that would be done but is not.

    `until` is the steady instant of the next try; without one, `person` says what somebody has to do.
    """

    object: str
    action: str
    rule: Rule
    message: str
    until: int | None = None
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Progress under way that needs time or the outside world. `until` is the steady instant at which it ends by itself."""

    object: str
    waiting: Waiting
    message: str
    until: int | None = None
