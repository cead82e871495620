"""Words coming in: what providers and probes saw. The core reads these and nothing else of the outside world.

A fact about a whole provider is `Known` or `Unknown`. Unknown is a third value: never "absent", never "unhealthy".
Instants are integer nanoseconds of the steady clock (CLOCK_BOOTTIME) unless their name says `wall`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Generic, NamedTuple, TypeVar

from manifests.values.pod import Live
from providers.capabilities import PLAIN, DNSCapabilities

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """A complete answer of one look. `observed_at` is the instant at which the look began."""

    value: T
    source: str
    observed_at: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The look failed, or there was none yet. `since` is the instant from which on nothing is known."""

    reason: str
    source: str
    since: int


# --- containers -------------------------------------------------------------------------------------------------

LABEL_INSTANCE = "reconciler.instance"
LABEL_WORKLOAD = "reconciler.workload"
LABEL_ORDINAL = "reconciler.ordinal"
LABEL_REVISION = "reconciler.revision"
LABEL_HASH_VERSION = "reconciler.hash-version"

LABEL_LIVENESS = "reconciler.enhanced-liveness"
"""On somebody else's container: its owner wants it restarted when its liveness probe fails, and nothing more."""


class Generation(NamedTuple):
    """One life of one container: every count, push and decision belongs to one generation."""

    container_id: str
    started_at: int


class ContainerState(StrEnum):
    """Where a container is in its life, whatever the runtime calls it."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    RESTARTING = "restarting"
    """The runtime itself is about to start it again: not running, and not to be started by us."""
    EXITED = "exited"


class ExitCause(StrEnum):
    """Why a container is not running."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    OOM_KILLED = "oom-killed"
    """The kernel killed it, or one of its processes, at its memory limit."""
    STOPPED_BY_US = "stopped-by-us"
    HOST_RESTARTED = "host-restarted"
    UNKNOWN = "unknown"


class Mark(NamedTuple):
    """Our owner mark: valid only on the container whose name it gives (labels can be inherited)."""

    instance: str
    workload: str
    ordinal: int
    revision: str


class PortFact(NamedTuple):
    """Where a container's port can really be reached."""

    number: int
    address: str
    port: int


class RuntimeHealth(NamedTuple):
    """What the runtime's own health check of a container says (Docker's HEALTHCHECK).

    `value` is PASS (healthy), FAIL (unhealthy) or UNKNOWN (starting, or switched off); `streak` counts failures in a row;
    `last_at` is the steady instant of the latest run (0 = none yet) and `interval` the time between two (ns).
    """

    value: "ProbeValue"
    streak: int
    last_at: int
    interval: int
    output: str = ""


class ContainerStart(NamedTuple):
    """When one container of a replica was started: `started_at` as in a fact, `running_since` 0 while it does not run.

    `container` is its name in the replica, empty for the main one, as in `Live`.
    """

    container: str
    started_at: int
    running_since: int


class MountFact(NamedTuple):
    """A volume in a container: its name or the host's path, empty for a tmpfs."""

    target: str
    source: str
    read_only: bool


class Setup(NamedTuple):
    """What a container was created with, or what its image says of the same.

    It runs `entrypoint` followed by `arguments`. `env` holds (name, fingerprint of the value), sorted: values may be secrets.
    `user` empty = root; volumes without a name are left out of `mounts`, which are sorted.
    """

    entrypoint: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    user: str = ""
    mounts: tuple[MountFact, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerFact:
    """One container as one look saw it.

    `started_at` is the runtime's wall-clock start (ns; 0 = never started) and only identifies the generation.
    `running_since` and `exited_at` are steady instants (0 = not running / not exited, or not known).
    `mark` is set only when the labels give exactly this container's name; `foreign_mark` says that they did not.
    `live` holds the settings that the runtime changes while the container runs, as in a template; empty if it has none.
    `published` says where ports can be reached through the host, `ports` where on the container's own address.
    `restarts` counts what the runtime itself restarted in this container's life; `healer` names somebody else who restarts
    it for its health, in words; `health` is the runtime's own health check, None where there is none.
    `labels` are those of a container without our mark, sorted. `stale_secrets` names variables (`container/VARIABLE`)
    whose secret has another value now than when the container was created. `image` is the image as it was asked for;
    `digests` says what each container of the replica is made from, (name as in `live`, `registry/name@sha256:…` or the id of an
    image that is not from that registry), sorted; `addresses` are those by network, sorted; all three empty where the
    runtime has no such thing. `starts` is there where a replica has several containers: `started_at` is then that of the one
    that was started last. `setup` says how a container without our mark was created, and `image_setup` what its image says of
    that; None where that cannot be told. `unjoined` names the networks that a container with our mark was created for and is not
    connected to: somebody took it off, or its runtime lost it. `adopted` is never set by a provider: the core says by it that a container without
    our mark is treated as one that has `mark`.
    """

    node: str
    name: str
    id: str
    state: ContainerState
    started_at: int = 0
    running_since: int = 0
    address: str = ""
    ports: tuple[PortFact, ...] = ()
    mark: Mark | None = None
    foreign_mark: bool = False
    exit_code: int | None = None
    exit_cause: ExitCause | None = None
    exited_at: int = 0
    live: tuple[Live, ...] = ()
    published: tuple[PortFact, ...] = ()
    restarts: int = 0
    healer: str = ""
    health: RuntimeHealth | None = None
    labels: tuple[tuple[str, str], ...] = ()
    stale_secrets: tuple[str, ...] = ()
    image: str = ""
    digests: tuple[tuple[str, str], ...] = ()
    addresses: tuple[tuple[str, str], ...] = ()
    adopted: bool = False
    starts: tuple[ContainerStart, ...] = ()
    setup: Setup | None = None
    image_setup: Setup | None = None
    unjoined: tuple[str, ...] = ()

    @property
    def generation(self) -> Generation:
        """(container id, started-at)."""
        return Generation(self.id, self.started_at)


def container_name(mark: Mark) -> str:
    """The one name a container with this mark may have: `<instance>-<workload>-<hash8>-<ordinal>`."""
    return f"{mark.instance}-{mark.workload}-{mark.revision[:8]}-{mark.ordinal}"


def wants_liveness(fact: ContainerFact) -> bool:
    """Whether it is somebody else's container, labelled by its owner (`true`) for liveness restarts."""
    if fact.mark is not None or fact.foreign_mark:
        return False
    return dict(fact.labels).get(LABEL_LIVENESS, "").strip().lower() == "true"


def mark_labels(mark: Mark, hash_version: int) -> dict[str, str]:
    """The labels that carry a mark on a container."""
    return {
        LABEL_INSTANCE: mark.instance,
        LABEL_WORKLOAD: mark.workload,
        LABEL_ORDINAL: str(mark.ordinal),
        LABEL_REVISION: mark.revision,
        LABEL_HASH_VERSION: str(hash_version),
    }


def read_mark(name: str, labels: Mapping[str, str]) -> tuple[Mark | None, bool]:
    """The mark on a container and whether there is one that belongs to another name (inherited labels, so foreign)."""
    try:
        mark = Mark(labels[LABEL_INSTANCE], labels[LABEL_WORKLOAD], int(labels[LABEL_ORDINAL]), labels[LABEL_REVISION])
    except (KeyError, ValueError):
        return None, LABEL_INSTANCE in labels
    if container_name(mark) != name:
        return None, True
    return mark, False


# --- endpoints --------------------------------------------------------------------------------------------------


class Endpoint(NamedTuple):
    """An address in a pool. Its identity: balancers know addresses, not containers."""

    address: str
    port: int


class MemberFact(NamedTuple):
    """One member of a pool. `ours` is False for members of somebody else, which are never touched.

    `in_flight` counts requests and connections under way or queued, as far as the process of the pool's `epoch` has them;
    None is unknown, and is what a provider may say of a member that gets new ones anyway. `operational` is the balancer's own
    word on it from its own checks, a second opinion that is shown and never fought; empty without checks. `checking` is one that it
    calls up so far, while none of its checks has confirmed that. `writer` names
    somebody else who is known to write its weight, in words; empty if nobody is.
    """

    endpoint: Endpoint
    weight: int
    ours: bool
    name: str = ""
    in_flight: int | None = None
    operational: str = ""
    writer: str = ""


class Weights(StrEnum):
    """Which weights a pool takes."""

    ANY = "any"
    ON_OFF = "on-off"
    """Only 0 and `ON_WEIGHT`: its balancing algorithm cannot be changed while it runs."""


ON_WEIGHT = 100
"""The one weight above 0 of a pool that takes no other."""


@dataclass(frozen=True, slots=True)
class PoolFact:
    """All members of one pool, in the order of their endpoints. A pool that does not exist yet is empty.

    `epoch` changes when the balancer's process does: since then its counts began anew, and weights may have been lost. Empty
    where there is no such process, or it is not known.
    """

    pool: str
    members: tuple[MemberFact, ...] = ()
    epoch: str = ""
    weights: Weights = Weights.ANY


# --- names ------------------------------------------------------------------------------------------------------


class RecordKey(NamedTuple):
    """Owner name (lower case, final dot) and type (upper case) of a record set.

    `set_id` tells the members of a routed set apart, which share name and type; empty = a plain set, the only one there.
    """

    name: str
    type: str
    set_id: str = ""


class RecordSet(NamedTuple):
    """TTL in seconds and the sorted values in presentation form, canonical (lower-case compressed IPv6 and so on).

    A member of a routed set has either a `weight` (its share is weight / sum of weights; 0 = only when all are 0) or a `geo`
    (a place as `manifests.values.geo` spells it; `*` = everybody else). An `alias` set answers with the addresses that the name in
    its one value has; its TTL is 0, because the one of those counts.
    """

    ttl: int
    values: tuple[str, ...]
    weight: int | None = None
    geo: str = ""
    alias: bool = False


@dataclass(frozen=True, slots=True)
class ZoneFact:
    """All record sets of a zone, without the ownership records; `owners` gives the owner mark of each set that has one.

    An owner mark is `<instance>/<object key>`. `capabilities` says what the zone can hold.
    """

    zone: str
    serial: int
    records: Mapping[RecordKey, RecordSet]
    owners: Mapping[RecordKey, str]
    capabilities: DNSCapabilities = PLAIN


# --- probes -----------------------------------------------------------------------------------------------------


class ProbeValue(StrEnum):
    """A probe verdict. Only FAIL may lead to a restart; UNKNOWN says that our side failed."""

    PASS = "pass"  # noqa: S105  (a verdict, not a password)
    FAIL = "fail"
    UNKNOWN = "unknown"
    CANNOT_RUN = "cannot-run"


class ProbeFact(NamedTuple):
    """The verdict of one probe on one generation, with its streak.

    `value` is the verdict after thresholds (UNKNOWN until one is reached), `last` the most recent single result,
    `streak` how many equal results came in a row, `threshold` how many make a verdict. `since` is when the verdict became
    this value, `last_at` when the latest result came, `valid_for` how long that one counts (ns).
    """

    value: ProbeValue
    last: ProbeValue
    streak: int
    threshold: int
    since: int
    last_at: int
    valid_for: int
    detail: str = ""


class Probes(NamedTuple):
    """What the probes of one generation say. None where there is no such probe, or no result yet."""

    startup: ProbeFact | None = None
    liveness: ProbeFact | None = None
    readiness: ProbeFact | None = None


def fingerprint(*parts: str) -> str:
    """A short, stable digest of some texts, for hashes that people read and compare (16 hex digits)."""
    return sha256("\x00".join(parts).encode()).hexdigest()[:16]
