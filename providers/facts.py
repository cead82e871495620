"""Facts: what providers and probes observed. The core reads these and nothing else of the outside world.

A fact about a whole provider is `Known` or `Unknown`. Unknown is a third value: never "absent", never "unhealthy".
Instants are integer nanoseconds of a steady clock unless their name says `wall`: CLOCK_BOOTTIME of the host in providers and in the
probe engine, the time of the instance everywhere else (`reconciler/shell/host_facts.py` converts them).
"""

import re
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
    """The complete answer of one look, which began at `observed_at`."""

    value: T
    source: str
    observed_at: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The look failed, or none has been made yet. Nothing is known from `since` on."""

    reason: str
    source: str
    since: int


# --- containers -------------------------------------------------------------------------------------------------

_CONTAINER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", re.ASCII)
"""The names of containers on common engines. Labels may hold any text, and messages show the name that they give."""

LABEL_INSTANCE = "reconciler.instance"
LABEL_WORKLOAD = "reconciler.workload"
LABEL_ORDINAL = "reconciler.ordinal"
LABEL_REVISION = "reconciler.revision"
LABEL_HASH_VERSION = "reconciler.hash-version"

LABEL_LIVENESS = "reconciler.enhanced-liveness"
"""On a container of another owner: the owner wants it restarted when its liveness probe fails, and nothing more."""


class Generation(NamedTuple):
    """One run of a container: its id and when it started. Every count, push and decision belongs to one generation."""

    container_id: str
    started_at: int


class ContainerState(StrEnum):
    """The state of a container, in the same terms for every runtime."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    RESTARTING = "restarting"
    """The runtime itself is about to start it again: it does not run, and we must not start it."""
    EXITED = "exited"


class ExitCause(StrEnum):
    """Why a container is not running."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    OOM_KILLED = "oom-killed"
    """The kernel killed it, or one of its processes, at the memory limit."""
    STOPPED_BY_US = "stopped-by-us"
    HOST_RESTARTED = "host-restarted"
    UNKNOWN = "unknown"


class EndFact(NamedTuple):
    """The last end of a container, also when it runs again: wall-clock instant (ns), exit code (None = unknown) and cause."""

    at: int
    exit_code: int | None
    cause: ExitCause


class Mark(NamedTuple):
    """An owner mark. It is valid on the container that it names, and on one of this instance that was renamed: labels can be inherited."""

    instance: str
    workload: str
    ordinal: int
    revision: str


class PortFact(NamedTuple):
    """The address and port at which a container's port `number` can be reached."""

    number: int
    address: str
    port: int


class RuntimeHealth(NamedTuple):
    """The result of the runtime's own health check of a container (Docker's HEALTHCHECK).

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
    """The settings that a container was created with, or the defaults of its image.

    The command is `entrypoint` followed by `arguments`. `env` holds (name, fingerprint of the value), sorted: values may be
    secrets. An empty `user` is root. `mounts` are sorted and leave out volumes without a name.
    """

    entrypoint: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    user: str = ""
    mounts: tuple[MountFact, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerFact:
    """One container as one look observed it.

    Attributes:
        started_at: wall-clock start (ns; 0 = never started). It only identifies the generation.
        running_since, exited_at: steady instants (0 = not running, not exited, or not known).
        address: the container's own address.
        ports: where ports can be reached on `address`.
        mark: our owner mark, set only when the labels name exactly this container.
        foreign_mark: the labels carry a mark that names another container.
        claim: that mark, unless the container's image passes it on: the container may be ours, under a name that an operator gave it.
        live: settings that the runtime can change while the container runs, as in a template; empty if it has none.
        published: where ports can be reached through the host.
        restarts: how often the runtime itself restarted this container.
        healer: another program that restarts it for its health, as text for messages.
        health: the runtime's own health check; None without one.
        labels: the labels of a container without our mark, sorted.
        stale_secrets: variables (`container/VARIABLE`) whose secret changed after the container was created.
        image: the image name that was asked for; empty where the runtime has no images.
        digests: what each container of the replica is made from, sorted: the name as in `live`, and
            `registry/name@sha256:…`, or the id of an image that is not from that registry.
        addresses: the addresses by network, sorted.
        adopted: set by the core, never by a provider: a container without our mark is treated as if it had `mark`.
        starts: the starts of each container, where a replica has several; `started_at` is then the latest of them.
        setup: how a container was created: one without our mark, or any where `Context.setups` asks for it. None where the runtime does
            not say.
        image_setup: the same settings of its image.
        last_end: its last end, of this generation if it is down, else of an earlier one; None without one, and where the runtime
            does not date ends.
        oom_at: wall-clock instant (ns) at which the kernel last killed one of its processes at its memory limit while it ran on
            (0 = never, or not known).
        unjoined: networks that a container with our mark was created for and is not connected to now.
        files: (volume, digest) of the files of the repository that a container with our mark has; of a volume that changes while it
            runs those that it knows of, empty while it needs a signal.
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
    claim: Mark | None = None
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
    last_end: EndFact | None = None
    oom_at: int = 0
    files: tuple[tuple[str, str], ...] = ()

    @property
    def generation(self) -> Generation:
        """(container id, started-at)."""
        return Generation(self.id, self.started_at)


def container_name(mark: Mark) -> str:
    """The one name a container with this mark may have: `<instance>-<workload>-<hash8>-<ordinal>`."""
    return f"{mark.instance}-{mark.workload}-{mark.revision[:8]}-{mark.ordinal}"


def wants_liveness(fact: ContainerFact) -> bool:
    """Whether another owner's container has the label that asks for liveness restarts (`true`)."""
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


def labelled_mark(labels: Mapping[str, str]) -> Mark | None:
    """The mark that labels carry, whichever container has them; None when they carry none, or a broken one."""
    try:
        return Mark(labels[LABEL_INSTANCE], labels[LABEL_WORKLOAD], int(labels[LABEL_ORDINAL]), labels[LABEL_REVISION])
    except (KeyError, ValueError):
        return None


def claimed_mark(labels: Mapping[str, str]) -> Mark | None:
    """As `labelled_mark`, for labels that name another container: None unless a container can have that name."""
    mark = labelled_mark(labels)
    return mark if mark is not None and _CONTAINER_NAME.fullmatch(container_name(mark)) else None


def read_mark(name: str, labels: Mapping[str, str]) -> tuple[Mark | None, bool]:
    """The mark on a container, and whether its mark names another container (inherited labels, or a renamed container)."""
    mark = labelled_mark(labels)
    if mark is None:
        return None, LABEL_INSTANCE in labels
    if container_name(mark) != name:
        return None, True
    return mark, False


# --- endpoints --------------------------------------------------------------------------------------------------


class Endpoint(NamedTuple):
    """An address and port: the identity of a pool's member. Balancers know addresses, not containers."""

    address: str
    port: int


class MemberFact(NamedTuple):
    """One member of a pool.

    Attributes:
        ours: False for members of other owners, which are never changed.
        name: the container's name, for messages.
        in_flight: requests and connections under way or queued in the process of the pool's `epoch`; None = unknown, which is
            allowed for a member that gets new ones.
        operational: the result of the balancer's own checks, which is shown and never changed; empty without checks.
            `checking`: the balancer takes the member for up, and no check has confirmed it yet.
        writer: another program that writes the member's weight, as text for messages; empty without one.
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
    """Only 0 and `ON_WEIGHT`: the balancing algorithm takes no other weight at run time."""


ON_WEIGHT = 100
"""The only weight above 0 in a pool of `Weights.ON_OFF`."""


@dataclass(frozen=True, slots=True)
class PoolFact:
    """All members of one pool, in the order of their endpoints. A pool that does not exist yet is empty.

    `epoch` changes with the balancer's process: the new process counts from zero and may have lost weights. It is empty
    where there is no such process, or it is not known.

    Attributes:
        algorithm: why the pool takes only some weights, for messages: the backend and its balancing algorithm.
        unknown: why the members in the running balancer are not known, with the next step; the fact then counts as Unknown.
        pace: the shortest time (ns) between two changes of this pool; weights that grow with time change together at its multiples.
        changed: when the cause of the balancer's latest refusal may have changed last (wall clock, ns), such as the files of its
            configuration; a step that failed before is due at once.
    """

    pool: str
    members: tuple[MemberFact, ...] = ()
    epoch: str = ""
    weights: Weights = Weights.ANY
    algorithm: str = ""
    unknown: str = ""
    pace: int = 0
    changed: int = 0


# --- DNS records ------------------------------------------------------------------------------------------------------


class RecordKey(NamedTuple):
    """Owner name (lower case, final dot) and type (upper case) of a record set.

    `set_id` identifies a member of a routed set, whose members share name and type; empty = a plain set, the only one there.
    """

    name: str
    type: str
    set_id: str = ""


class RecordSet(NamedTuple):
    """TTL in seconds and the sorted values in presentation form, canonical (lower-case compressed IPv6 and so on).

    A member of a routed set has either a `weight` (its share is weight / sum of weights; 0 = only when all are 0) or a `geo`
    (a place as `manifests.values.geo` spells it; `*` = all other places). An `alias` set answers with the addresses of the name
    in its one value; its TTL is 0, because the TTL of those addresses counts.
    """

    ttl: int
    values: tuple[str, ...]
    weight: int | None = None
    geo: str = ""
    alias: bool = False


@dataclass(frozen=True, slots=True)
class ZoneFact:
    """All record sets of a zone without the ownership records, and in `owners` the owner mark of each set that has one.

    An owner mark is `<instance>/<object key>`. `capabilities` is what the zone can hold.
    """

    zone: str
    serial: int
    records: Mapping[RecordKey, RecordSet]
    owners: Mapping[RecordKey, str]
    capabilities: DNSCapabilities = PLAIN


# --- probes -----------------------------------------------------------------------------------------------------


class ProbeValue(StrEnum):
    """A probe verdict. Only FAIL may lead to a restart; UNKNOWN means that our side failed."""

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
    """The probe results of one generation. None without such a probe, or before its first result."""

    startup: ProbeFact | None = None
    liveness: ProbeFact | None = None
    readiness: ProbeFact | None = None


def fingerprint(*parts: str) -> str:
    """A short, stable digest of some texts, for hashes that operators read and compare (16 hex digits)."""
    return sha256("\x00".join(parts).encode()).hexdigest()[:16]
