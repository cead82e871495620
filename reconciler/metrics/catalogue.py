"""Every metric: its name, type, labels and meaning. The collectors and the table in `docs/metrics.md` are made from it.

Names follow https://prometheus.io/docs/practices/naming/: base units, `_total` for counters, `_timestamp_seconds` for instants. Values
of labels are names from manifests, or members of enumerations of this program. None is the id or name of a container, an address, or
a text from outside, so the number of series depends on the manifests only.
"""

from enum import StrEnum
from typing import NamedTuple

from reconciler.probes.messages import DURATION_BOUNDS


class Kind(StrEnum):
    """The type of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric. `group` is the heading under which the documentation lists it; `buckets` are upper bounds in its unit."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    group: str
    buckets: tuple[float, ...] = ()


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of durations within the program."""

CALL_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0)
"""Upper bounds of calls of providers; their deadline is 30 s."""

PROBE_SECONDS = tuple(bound / 1e9 for bound in DURATION_BOUNDS)
"""Upper bounds of probes: those that the probe engine counts by."""

_WORKLOAD = ("workload",)
_POOL = ("service", "provider", "pool")
_POLICY = ("policy",)


def _gauge(name: str, labels: tuple[str, ...], text: str, group: str) -> Metric:
    return Metric(f"reconciler_{name}", Kind.GAUGE, labels, text, group)


def _counter(name: str, labels: tuple[str, ...], text: str, group: str) -> Metric:
    return Metric(f"reconciler_{name}_total", Kind.COUNTER, labels, text, group)


def _histogram(name: str, labels: tuple[str, ...], text: str, group: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(f"reconciler_{name}", Kind.HISTOGRAM, labels, text, group, buckets)


# --- workloads ----------------------------------------------------------------------------------------------------

_GROUP = "Workloads"
REPLICAS_DESIRED = _gauge("workload_replicas_desired", _WORKLOAD, "Replicas that the manifest declares.", _GROUP)
REPLICAS_READY = _gauge(
    "workload_replicas_ready",
    _WORKLOAD,
    "Running containers that are ready, of all revisions; absent while a replica may be on a node that cannot be read.",
    _GROUP,
)
REPLICAS_AVAILABLE = _gauge(
    "workload_replicas_available", _WORKLOAD, "Replicas that are available, as in `reconcile status`.", _GROUP
)
REPLICAS_UNKNOWN = _gauge(
    "workload_replicas_unknown",
    _WORKLOAD,
    "Replicas whose state is unknown, also because their node cannot be read, as in `reconcile status`.",
    _GROUP,
)
REPLICAS_FAILED = _gauge(
    "workload_replicas_failed",
    _WORKLOAD,
    "Replicas that are not restarted again until an operator resumes them.",
    _GROUP,
)
REPLICAS_UPDATED = _gauge(
    "workload_replicas_updated",
    _WORKLOAD,
    "Containers of the declared revision: the progress of a rollout towards `replicas_desired`; absent while a replica may be on a node"
    " that cannot be read.",
    _GROUP,
)
PROBE_SUCCESS = _gauge(
    "workload_probe_success",
    ("workload", "probe"),
    "0 when the verdict of this probe is fail on any running replica, 1 when it passes on all whose verdict is known; absent while no"
    " verdict is known.",
    _GROUP,
)
PROBE_VERDICTS = _gauge(
    "probe_verdicts", ("probe", "verdict"), "Running replicas by the verdict of their probes, of all workloads.", _GROUP
)
RESTARTS = _counter(
    "restarts",
    ("workload", "cause", "actor"),
    "Restarts by cause and actor: `reconciler`, `operator` (restart requests), `runtime` (the engine's restart policy) and `external`"
    " (an operator or program beside reconcile). The workload is empty for containers of other owners.",
    _GROUP,
)
RESTARTS_BY_ACTOR = _counter(
    "actor_restarts",
    ("actor",),
    "Restarts of all containers by actor. It begins at 0, so that a storm in which each workload restarts once is seen too.",
    _GROUP,
)
EXITS = _counter(
    "exits", ("workload", "cause"), "Ends of containers and processes that reconcile did not cause, by cause.", _GROUP
)
VERDICT_CHANGES = _counter(
    "verdict_changes", ("workload", "probe", "verdict"), "Changed probe verdicts, by the new verdict.", _GROUP
)

# --- traffic and names ----------------------------------------------------------------------------------------------

_GROUP = "Traffic and names"
ENDPOINTS_SERVING = _gauge(
    "service_endpoints_serving",
    _POOL,
    "Endpoints whose weight was read back above 0; absent while the pool cannot be read.",
    _GROUP,
)
ENDPOINT_WEIGHT = _gauge(
    "endpoint_weight",
    (*_POOL, "replica"),
    "Weight that was read back, by replica. While a replica is replaced, the sum of its containers.",
    _GROUP,
)
ADDRESSES_PUBLISHED = _gauge(
    "name_addresses_published",
    _POLICY,
    "Addresses that clients of the host get; absent while the zone cannot be read.",
    _GROUP,
)
ADDRESSES_HEALTHY = _gauge("name_addresses_healthy", _POLICY, "Target addresses that are healthy.", _GROUP)
ADDRESSES_OMITTED = _gauge(
    "name_addresses_omitted",
    _POLICY,
    "Target addresses that are not published; absent while the zone cannot be read.",
    _GROUP,
)

# --- holds ----------------------------------------------------------------------------------------------------------

_GROUP = "Holds and suspensions"
HOLDS = _gauge(
    "holds",
    ("rule", "ends"),
    "Held actions by rule. `ends` is `operator` where only an operator ends the hold, `converged` where the hold counts as converged, else"
    " `automatic`.",
    _GROUP,
)
HOLD_OLDEST = _gauge(
    "hold_oldest_timestamp_seconds",
    ("rule", "ends"),
    "Since when the oldest of these holds exists (Unix time).",
    _GROUP,
)
SUSPENSIONS = _gauge(
    "suspensions",
    ("by",),
    "Suspensions of objects, by `operator` (`reconcile suspend`) or `manifest` (`suspend` and `deny`).",
    _GROUP,
)
SUSPENSION_OLDEST = _gauge(
    "suspension_oldest_timestamp_seconds",
    (),
    "Since when the oldest suspension by an operator exists (Unix time).",
    _GROUP,
)

# --- source and providers -------------------------------------------------------------------------------------------

_GROUP = "Source and providers"
SOURCE_SUCCESS = _gauge(
    "source_success", (), "1 when the last read of the manifests was complete and valid, else 0.", _GROUP
)
SOURCE_APPLIED = _gauge(
    "source_applied", (), "1 when the manifests in force are those that the last read attempted, else 0.", _GROUP
)
SOURCE_LAST = _gauge(
    "source_last_success_timestamp_seconds",
    (),
    "When a complete read last equalled the manifests in force (Unix time).",
    _GROUP,
)
READABLE = _gauge(
    "provider_readable", ("provider", "role"), "1 when all of the provider's objects can be read, else 0.", _GROUP
)
CALL_DURATION = _histogram(
    "provider_call_duration_seconds",
    ("provider", "call"),
    "Duration of calls of providers, waiting times included. `call` is `observe` or `perform`.",
    _GROUP,
    CALL_SECONDS,
)
CALL_ERRORS = _counter(
    "provider_call_errors", ("provider", "call", "error"), "Calls that failed, by the kind of the error.", _GROUP
)

# --- steps ------------------------------------------------------------------------------------------------------------

_GROUP = "Steps and decisions"
STEPS = _counter("steps", ("verb", "outcome"), "Steps by verb and outcome, as in `reconcile events`.", _GROUP)
LATENCY = _histogram(
    "verdict_to_command_seconds",
    (),
    "Time from a changed verdict to the call that acts on that container, where the decision that saw it acts at once.",
    _GROUP,
    SECONDS,
)
LAST_TICK = _gauge("last_tick_timestamp_seconds", (), "When the loop last ticked (Unix time).", _GROUP)
TICK_DURATION = _histogram("tick_duration_seconds", (), "Duration of a tick, its decision included.", _GROUP, SECONDS)
DECIDE_DURATION = _histogram("decide_duration_seconds", (), "Duration of a decision.", _GROUP, SECONDS)
LOOP_LAG = _histogram(
    "loop_lag_seconds", (), "How late the event loop ran a timer; measured once a second.", _GROUP, SECONDS
)

# --- probes and pushes ------------------------------------------------------------------------------------------------

_GROUP = "Probes and pushes"
PROBE_RESULTS = _counter(
    "probe_results", ("kind", "result"), "Results of single probes by kind, since the probe engine started.", _GROUP
)
PROBE_DURATION = _histogram(
    "probe_duration_seconds", ("kind",), "Duration of single probes by kind.", _GROUP, PROBE_SECONDS
)
PUSHES = _counter(
    "pushes",
    ("event", "code"),
    "Answered pushes by event and HTTP status code. The event is empty where the message was refused before it was read.",
    _GROUP,
)
PUSH_NEWEST = _gauge(
    "workload_push_newest_timestamp_seconds", _WORKLOAD, "When a replica last pushed (Unix time).", _GROUP
)
PUSH_SILENT = _gauge(
    "workload_push_silent",
    _WORKLOAD,
    "Running replicas whose last push is older than `push.stale`, or that have not pushed yet.",
    _GROUP,
)
OVERRULED = _counter(
    "overruled",
    ("workload", "winner"),
    "Decisions in which a push began to overrule the probes of a replica (`push`), or the probes a push (`probe`).",
    _GROUP,
)

# --- notices --------------------------------------------------------------------------------------------------------------

_GROUP = "Notices"
NOTICES = _counter(
    "notices",
    ("channel", "outcome"),
    "Messages by channel and outcome: `sent`, `failed` (a try in vain), `dropped`. The channel `forge` counts commit statuses.",
    _GROUP,
)
NOTICES_WAITING = _gauge("notices_waiting", ("channel",), "Messages that wait to be sent, by channel.", _GROUP)

# --- the program --------------------------------------------------------------------------------------------------------

_GROUP = "The program"
BUILD = _gauge("build_info", ("version", "python"), "1, with the versions of reconcile and Python.", _GROUP)
LEDGER_ROWS = _counter("ledger_rows_written", (), "Rows of the ledger that were written.", _GROUP)
STORE_WRITES = _counter(
    "store_writes", ("table",), "Writes of the store by table: `ledger`, `decision`, `audit`, `evidence`.", _GROUP
)

WEBHOOKS = _counter(
    "webhook_requests",
    ("result",),
    "Requests to the webhook listener: `accepted`, `repeated` (accepted before), `ignored` (another ref or event), `refused` (invalid"
    " signature), `invalid` (the body cannot be used) and `unavailable` (the secret cannot be read, or too many at once).",
    _GROUP,
)

# --- runs that end ------------------------------------------------------------------------------------------------------

_GROUP = "Runs that end (`--metrics-textfile`)"
RUN_LAST = _gauge("run_last_timestamp_seconds", (), "When the run ended (Unix time).", _GROUP)
RUN_EXIT = _gauge("run_exit_code", (), "Exit code of the run: 0 is converged.", _GROUP)
RUN_DURATION = _gauge("run_duration_seconds", (), "Duration of the run.", _GROUP)
RUN_STEPS = _gauge("run_steps", ("verb", "outcome"), "Steps of the run by verb and outcome.", _GROUP)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All metrics, in the order of the documentation."""
