"""Desired: the state that the manifests of one revision declare, resolved and frozen.

`resolve/resolver.py` creates it, `reconciler.core` reads it; nothing here does I/O or validation. All durations are integer
nanoseconds, all names are final, all references are resolved. The core never sees a raw document.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from manifests.problems import NOWHERE, Where
from manifests.values.dns import DNSPolicy, HealthCheck, Record, RecordList
from manifests.values.drift import DEFAULT_DRIFT, DriftRules
from manifests.values.files import FileContents, FilesVolume
from manifests.values.image_choice import ImageChoice
from manifests.values.image_policy import ImagePolicy
from manifests.values.limits import (
    DEFAULT_ESCALATION,
    DEFAULT_MASS_FAILURE,
    DEFAULT_RESTARTS,
    Approve,
    Escalation,
    MassFailure,
    Mode,
    RestartLimits,
    Window,
)
from manifests.values.nodes import Nodes
from manifests.values.notices import NOT_INFORMED, Informed
from manifests.values.pod import DEFAULT_ENGINE, Engine, Live
from manifests.values.policy import DEFAULT_POLICY, Policy
from manifests.values.reviews import Reviews
from manifests.values.rollouts import DEFAULT_ROLLOUT, Rollout, Strategy
from manifests.values.secret_sources import NO_PROGRAMS, SecretPrograms, SecretSource
from manifests.values.traffic import DEFAULT_PANIC, Panic, Ramp
from manifests.values.write_back import NOT_WRITING, Writing

SECOND = 1_000_000_000
"""Nanoseconds in a second: the unit of every duration and instant inside the program."""


class Role(StrEnum):
    """What a provider is used for."""

    RUNTIME = "runtime"
    ENDPOINTS = "endpoints"
    DNS = "dns"


class ProbeKind(StrEnum):
    """The kind of a probe. The values are Kubernetes' field names."""

    HTTP = "httpGet"
    TCP = "tcpSocket"
    EXEC = "exec"
    GRPC = "grpc"
    RUNTIME = "runtimeHealth"
    """The runtime's own health check of the container: no request is sent, its result is read."""


@dataclass(frozen=True, slots=True)
class ProbeTLS:
    """How a probe verifies a certificate. `ca_file` is relative to the tree's root; empty = the system's authorities."""

    verify: bool = False
    ca_file: str = ""
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe of a container, with Kubernetes' meaning of the fields.

    `port` is the container's port number (0 for exec and runtimeHealth); `headers` keep their order and may repeat a name;
    a value may be a secret, by reference. `expected` holds ranges of HTTP statuses that pass, both ends included. With `follow`
    redirects to the same address and port are followed; `max_body` bytes of the body are read. `host` is the Host header and
    the TLS server name, never the address of the connection. `tls` is None for plaintext (grpc) or for the defaults (HTTPS).
    `service` is the gRPC service. `grace` is the time (ns) between the stop signal and the kill when this probe restarts the
    container; 0 = the pod's.
    """

    kind: ProbeKind
    port: int = 0
    path: str = "/"
    scheme: str = "HTTP"
    headers: tuple[tuple[str, str | SecretSource], ...] = ()
    command: tuple[str, ...] = ()
    initial_delay: int = 0
    period: int = 10 * SECOND
    timeout: int = SECOND
    success_threshold: int = 1
    failure_threshold: int = 3
    host: str = ""
    follow: bool = True
    expected: tuple[tuple[int, int], ...] = ((200, 399),)
    max_body: int = 10 * 1024
    tls: ProbeTLS | None = None
    service: str = ""
    grace: int = 0


@dataclass(frozen=True, slots=True)
class Port:
    """A named port of a container. `host_port` 0 = not published on the host; `host_ip` empty = on all its addresses."""

    name: str
    number: int
    host_port: int = 0
    host_ip: str = ""
    protocol: str = "TCP"


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a replica.

    `argv` is command followed by args; empty = as the image says. `working_dir` is relative to the tree's root,
    or an absolute path inside the container; `.` is the runtime's default. `ports` of the main container are those of the
    whole pod. `engine` is for runtimes with images; `depends_on` names containers of the pod that start earlier.
    """

    name: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    ports: tuple[Port, ...] = ()
    working_dir: str = "."
    startup: Probe | None = None
    liveness: Probe | None = None
    readiness: Probe | None = None
    engine: Engine = DEFAULT_ENGINE
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """The template that replicas are created from. `revision` is the hash of the fields whose change needs a new container.

    `container` is the main one, whose network namespace the `sidecars` share; these are in start order. `networks`: the
    replica has its address in the first one; none = the engine's default. `live` holds, in the order of the containers'
    names, settings that the engine changes while they run; empty where the runtime has no such settings. `volumes` are those
    that hold files of the repository; mounts of the kind FILES name them.
    """

    labels: tuple[tuple[str, str], ...]
    container: Container
    grace: int = 30 * SECOND
    revision: str = ""
    hash_version: int = 1
    sidecars: tuple[Container, ...] = ()
    networks: tuple[str, ...] = ()
    live: tuple[Live, ...] = ()
    volumes: tuple[FilesVolume, ...] = ()


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waiting times between attempts: `initial`, doubled up to `maximum`, forgotten after `reset` without a failure."""

    initial: int = 10 * SECOND
    maximum: int = 300 * SECOND
    reset: int = 600 * SECOND


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a replica may be restarted for its health: at most `limit` times in `window`."""

    limit: int = 5
    window: int = 300 * SECOND
    backoff: Backoff = Backoff()
    mode: Mode = Mode.ACT
    escalation: Escalation = DEFAULT_ESCALATION


class OnSecretChange(StrEnum):
    """What happens to containers that were created with an old value of a secret."""

    RESTART = "restart"
    REPORT = "report"


class MiddleZone(StrEnum):
    """What decides between `fresh` and `stale`: the worse of push and probes, the state as it is, or the probes."""

    PESSIMISTIC = "pessimistic"
    HOLD = "hold"
    OBSERVER = "observer"


@dataclass(frozen=True, slots=True)
class Push:
    """How long pushes of the replicas are trusted (ns since receipt), and whether senders repeat their state.

    `drain_deadline`: how long a replica may run after it pushed `draining`.
    """

    fresh: int = 30 * SECOND
    middle_zone: MiddleZone = MiddleZone.PESSIMISTIC
    stale: int = 60 * SECOND
    startup_deadline: int = 300 * SECOND
    heartbeats: bool = True
    drain_deadline: int = 600 * SECOND


@dataclass(frozen=True, slots=True)
class Adopt:
    """Which foreign containers a workload adopts: those of these names, and those with all of these labels.

    With `replace` containers created from the template replace them.
    """

    names: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """Replicas of one template. `max_unavailable` is a count: a percentage is resolved against `replicas`.

    Replicas run on `nodes`, each of which is the name of a runtime provider; the core spreads them. `nodes` is always a `Nodes`. A replica stops once it has had no
    requests in flight for `drain_min`, at the latest `drain_max` after weight 0 (ns). `strategy` is also RECREATE where the
    template has a host port or an exclusive volume. `forbidden` is why the policy of the Guard does not allow the workload, which was in
    force before: what runs is kept, and nothing is created; empty = it is allowed. `restart_only` is never declared: the core sets it on a group of foreign
    containers that are only restarted for their health. `env_origins` says which variables are from an `envFile`: (container, variable,
    `file:line`). `image_policies` are the newer images that are looked for, `image_choices` what they
    chose: such an image is in the template already.
    """

    key: str
    name: str
    nodes: tuple[str, ...]
    replicas: int
    template: Template
    min_ready: int = 0
    max_unavailable: int = 1
    restarts: Restarts = Restarts()
    drain_max: int = 10 * SECOND
    drain_min: int = 2 * SECOND
    suspend: bool = False
    strategy: Strategy = Strategy.ROLLING
    rollout: Rollout = DEFAULT_ROLLOUT
    on_secret_change: OnSecretChange = OnSecretChange.REPORT
    push: Push | None = None
    adopt: Adopt | None = None
    restart_only: bool = False
    env_origins: tuple[tuple[str, str, str], ...] = ()
    where: Where = NOWHERE
    forbidden: str = ""
    drift: DriftRules = DEFAULT_DRIFT
    image_policies: tuple[ImagePolicy, ...] = ()
    image_choices: tuple[ImageChoice, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.nodes, Nodes):
            object.__setattr__(self, "nodes", Nodes(self.nodes))


@dataclass(frozen=True, slots=True)
class Backend:
    """The containers behind a service: all of `workload`, on the container port of this number."""

    workload: str
    port: int


@dataclass(frozen=True, slots=True)
class Balancer:
    """A pool that carries a service's endpoints. `addresses` are those of the balancer itself, for clients."""

    provider: str
    pool: str
    addresses: tuple[str, ...] = ()


class AddressFrom(StrEnum):
    """How balancers reach the endpoints of a service: at the container's own address, or through a port of its host."""

    CONTAINER = "container"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Service:
    """Endpoints behind balancers. Each ready endpoint gets `weight`.

    `network` is the network of the containers' own addresses; empty = the first one of their template.
    """

    key: str
    name: str
    backends: tuple[Backend, ...]
    balancers: tuple[Balancer, ...]
    weight: int = 100
    address_from: AddressFrom = AddressFrom.CONTAINER
    network: str = ""
    ramp: Ramp | None = None
    panic: Panic = DEFAULT_PANIC
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True)
class Provider:
    """A named provider and its settings, already checked by the model of its type. `settings` is a JSON object.

    `local`: a local document declares it, not the tree.
    """

    key: str
    name: str
    type: str
    role: Role
    settings: Mapping[str, object]
    where: Where = NOWHERE
    local: bool = False


@dataclass(frozen=True, slots=True)
class MassChange:
    """Limits on deletions without approval: `share` percent of the owned objects, for more than `minimum` deletions.

    In one zone never more than `records` record sets, and never the last record sets of more than `names` names.
    """

    share: int = 30
    minimum: int = 3
    records: int = 100
    names: int = 10


@dataclass(frozen=True, slots=True)
class Guard:
    """Global limits. `deny` holds keys of objects on which no action is taken. `suspend_commits`: new revisions of the manifests wait;
    `suspend_healing`: nothing is restarted for its health, and no container is corrected that the manifests did not change.

    `exec_commands` are the beginnings of argument lists that exec probes may run; None = any. `policy` judges the manifests while they
    are resolved, and templates of earlier revisions before a container is created from one. `approve` are the classes of changes that
    an operator must approve.
    """

    suspend: bool = False
    deny: frozenset[str] = frozenset()
    mass_change: MassChange = MassChange()
    exec_commands: tuple[tuple[str, ...], ...] | None = None
    restarts: RestartLimits = DEFAULT_RESTARTS
    mass_failure: MassFailure = DEFAULT_MASS_FAILURE
    windows: tuple[Window, ...] = ()
    policy: Policy = field(default=DEFAULT_POLICY, repr=False)
    suspend_commits: bool = field(default=False, repr=False)
    suspend_healing: bool = field(default=False, repr=False)
    approve: frozenset[Approve] = field(default=frozenset(), repr=False)


@dataclass(frozen=True, slots=True)
class PushListener:
    """Where pushes are received: on a unix socket in the state directory, and on this (address, port)."""

    socket: bool = True
    tcp: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class MetricsListener:
    """Where metrics and health are served, on this (address, port), and where the token for metrics is; None = none is asked for."""

    listen: tuple[str, int]
    token: SecretSource | None = None


@dataclass(frozen=True, slots=True)
class WebhookListener:
    """Where webhooks of a forge are received, on this (address, port), and where their secret is.

    `provider` is the only kind of forge whose signatures count: github, gitlab or gitea; empty for all of them. `ref` is that of the
    source: a branch, a tag, a full name, or a commit; empty for the default branch. `tags`: the source needs a signed tag, so all tags
    concern it.
    """

    listen: tuple[str, int]
    secret: SecretSource
    provider: str = ""
    ref: str = ""
    tags: bool = False


@dataclass(frozen=True, slots=True)
class Instance:
    """This installation. The intervals (ns) are those between two looks at each kind of provider.

    With `enhanced_liveness` foreign containers whose labels ask for it are restarted for their health.
    `allow_addresses` are special networks, such as loopback, that health checks of names may probe. `secret_programs` are what gives
    secrets by commands and decryption. `source_secrets` are the credentials of the git source. `writing` says how images are written
    into the manifests.
    """

    id: str
    prune: bool = False
    look_runtime: int = 15 * SECOND
    look_endpoints: int = SECOND
    look_dns: int = 30 * SECOND
    push: PushListener | None = None
    metrics: MetricsListener | None = None
    webhook: WebhookListener | None = None
    enhanced_liveness: bool = False
    allow_addresses: tuple[str, ...] = ()
    informed: Informed = NOT_INFORMED
    reviews: Reviews | None = None
    secret_programs: SecretPrograms = NO_PROGRAMS
    source_secrets: tuple[SecretSource, ...] = ()
    writing: Writing = NOT_WRITING


@dataclass(frozen=True)
class Desired:
    """All manifests of one revision of one source. Sequences are sorted by key; mappings are keyed by key.

    `source` identifies the repository and path (or directory), `revision` its content. `root` is the absolute directory that
    working directories of containers are relative to. `services_of` lists, for each workload key, the (service key,
    container port) pairs that select it. `prune`, `destroy` and `take_over` are the intent of the run: they come from the
    command line or the Instance and only ever allow more removals. `former` are the workloads that are removed on purpose:
    their drain and grace still apply. `apply_command` is the command line that applies these manifests again, for messages, `where`
    the options that name this instance for other commands. `file_contents` are the files of all volumes, by digest. `planned` are the
    items (`core/outcome`) that a run with a saved plan may remove or disrupt; None = any.
    """

    source: str
    revision: str
    root: str
    complete: bool
    instance: Instance
    guard: Guard
    providers: tuple[Provider, ...]
    workloads: tuple[Workload, ...]
    services: tuple[Service, ...]
    policies: tuple[DNSPolicy, ...]
    services_of: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    prune: bool = False
    destroy: bool = False
    take_over: bool = False
    former: Mapping[str, Workload] = field(default_factory=dict)
    checks: tuple[HealthCheck, ...] = ()
    records: tuple[Record, ...] = ()
    record_lists: tuple[RecordList, ...] = ()
    apply_command: str = "reconcile apply PATH --yes"
    file_contents: Mapping[str, FileContents] = field(default_factory=dict, repr=False)
    where: str = field(default="", repr=False)
    planned: frozenset[str] | None = field(default=None, repr=False)

    @property
    def zones(self) -> frozenset[tuple[str, str]]:
        """(provider, zone) of all names."""
        named = {(record.provider, record.zone) for record in self.records}
        named |= {(records.provider, records.zone) for records in self.record_lists}
        return frozenset(named.union((policy.provider, policy.zone) for policy in self.policies))

    @cached_property
    def nodes(self) -> frozenset[str]:
        """All nodes: the runtime providers, and what workloads name. Collected once, because workloads x nodes may be many."""
        lists = {id(workload.nodes): workload.nodes for workload in self.workloads}
        providers = (provider.name for provider in self.providers if provider.role is Role.RUNTIME)
        return frozenset(providers).union(*lists.values())
