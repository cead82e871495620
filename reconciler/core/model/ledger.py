"""The ledger: what must be remembered over ticks, restarts of the program and of the host. Values only.

`decide` takes the ledger as part of what is observed and returns it advanced; `ledger_fold` adds outcomes of steps and commands,
`ledger_codec` makes rows of it for the store. Every item can be lost without harm: restarts are found again in start times,
revisions in labels, the inventory in labels and ownership records. Until they are, an empty ledger beside owned objects means that
the ledger was lost, and nothing is restarted for its health.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from providers.facts import Generation
from reconciler.core.model.adopted import Adopted
from reconciler.core.model.approval import Approval
from reconciler.core.model.dns_memory import CheckRow, Flap, HeldTTL, NameRow, Written
from reconciler.core.model.drift import Applied, Reverts
from reconciler.core.model.had_privileges import HadPrivileges
from reconciler.core.model.instant import Instant
from reconciler.core.model.override import Override
from reconciler.core.model.owned import Owned
from reconciler.core.model.reasons import Reason
from reconciler.core.model.restart_request import Request
from reconciler.core.model.revision import RevisionMark, Rollout
from reconciler.core.model.spec import Spec
from reconciler.core.model.weight_memory import Cut, Ready, Weighed


class Grant(NamedTuple):
    """The permission for one disruption of one generation. It counts against the budget until the disruption is over.

    `names_out` is when the address was first out of every name (then `ttl` ns are waited for), `weight_out` when the weight was
    first read back as 0 in every pool (then the drain is waited for); `pooled` says that it ever carried weight. `recreate` says
    that the container is removed and created again: the grant then goes on, under the id of the removed one, until the replica is
    available again. `grace` and `drain` (ns) are those of a restart request, None = those of the manifest. `quiet` is since when
    there are no requests in flight, `epochs` the processes of the balancers that counted them when the drain began. `only` names
    one container of the replica, as in `StopContainer`; empty = all of them. `node` is that of the container (empty in rows of older
    versions).
    """

    object: str
    generation: Generation
    cause: Reason
    at: Instant
    names_out: Instant | None = None
    ttl: int = 0
    weight_out: Instant | None = None
    pooled: bool = False
    recreate: bool = False
    grace: int | None = None
    drain: int | None = None
    quiet: Instant | None = None
    epochs: str = ""
    only: str = ""
    node: str = ""


class ExitTimes(NamedTuple):
    """How the containers of a workload leave (ns): no request may be in flight for `quiet`, which is waited for until `longest`; the
    runtime kills after `grace` what a stop does not end.
    """

    quiet: int
    longest: int
    grace: int


class Failures(NamedTuple):
    """Consecutive failures of one replica: how many, when the last one was observed, and its generation."""

    streak: int
    last: Instant
    generation: Generation


class Escalation(NamedTuple):
    """Consecutive health restarts after which a replica did not become available; its revision, and since when."""

    tries: int
    revision: str
    since: Instant


class Outbreak(NamedTuple):
    """A mass failure of one group: `canary` is the replica that is restarted first (empty = none at present).

    `failures` counts canaries that did not become available, `last` is when the latest of them was observed (None = it became
    available), and `calm` since when the group is below the limit again.
    """

    since: Instant
    canary: str = ""
    failures: int = 0
    last: Instant | None = None
    calm: Instant | None = None


class StepFailure(NamedTuple):
    """Consecutive failures of one step.

    `refused` says that the other side understood and refused. `first` is the first of these failures, None in rows of older
    versions. `asked` is the digest of what was asked (`actions/asked`): another one is tried at once. `object` is the object of the
    step. `wait` is how long (ns) the other side asked to wait. `again` says that the next try is due now, because an operator or a
    new run asked for it. `whole` says that a part of the same step would be refused as well: for rights, size or rate.
    """

    streak: int
    last: Instant
    refused: bool
    message: str
    first: Instant | None = None
    asked: str = ""
    object: str = ""
    wait: int = 0
    again: bool = False
    whole: bool = False


class Suspension(NamedTuple):
    """An operator's suspension of all actions on an object. `until_wall` is its expiry (0 = until resumed).

    `probes` says that its probes stop as well: then its health is unknown.
    """

    who: str
    reason: str
    until_wall: int
    probes: bool = False


class Absence(NamedTuple):
    """Since when complete reads of this revision of the source do not declare an owned object."""

    since: Instant
    revision: str


class PushRow(NamedTuple):
    """The last push of a container, stored for the next start of the program.

    `since` is the first push of this event in a row, `at` the last one; that and `seq` may lag behind. `nonce` is that of the sender's
    credentials, `earlier` has (boot, start of its generation) of the sender's runs that are over, `time` is the highest signed time
    (wall ns, 0 = none).
    """

    generation: Generation
    event: str
    since: Instant
    at: Instant
    boot: str
    seq: int
    inflight: int | None
    nonce: str
    earlier: tuple[tuple[str, int], ...]
    time: int = 0


@dataclass(frozen=True, slots=True)
class Ledger:
    """Everything that is remembered. Mappings are never changed in place.

    grants: container id -> open grant (a name may exist on two nodes while a replica moves). attempts: replica -> instants of
    health restarts. failures: replica -> streak. step_failures: step id -> failure. wanted: candidate -> since when it exists.
    suspensions: object key or `*`, with its scope before it (`suspension_scope`). restarted: `node|workload key` -> instants of health restarts. escalations: replica.
    outbreaks: workload key or `node/NAME`. runtime_restarts: container id -> the runtime's own count at the last look.
    taken_over: replicas whose restarts we took over from the runtime. revisions, rollouts: workload key. clock: wall against steady
    time at the last check for a rollout. absences: object -> absence. passed: `workload key@revision|probe` of probes that passed once. zones: `provider/zone`
    where we publish or have published. source: identity of the source of this inventory. history_lost: since when history is
    missing. approvals: hash of held changes -> what an operator approved with it. requests: id -> restart request. pushes: container id -> its
    last push. adopted: container id -> adopted replica. ready: container id -> since when it has been ready. weighed, cuts:
    `provider/pool` -> its members' weights, and those that recently lost their weight for health. panics: `provider/pool` -> since
    when too few members are ready. overrides: object -> override. names: key of a policy or record -> the waits of its names. pins:
    `workload key@revision` -> (container, digest) of its images. templates: `workload key@revision` -> its template as JSON, while
    it may still be needed and is not declared any more. exit_times: workload key -> drain and grace of its last manifest. specs:
    `workload key@revision` -> what the revision declared about its running containers. proven: container id -> its own spec, where
    part of a change of its revision's spec has passed on it. owned: ids of the containers that are this instance's. nodes: those whose
    containers `owned` lists, because they were read since this ledger began.
    by_runtime: replica -> those of its attempts that the runtime made by itself. accepted: keys whose trials an operator has accepted. checks: DNSPolicy or
    HealthCheck -> the check that decides there. flaps: `policy/target/address` -> its failures in a row. held_ttls: `provider/zone/name`,
    and the same with an address -> what resolvers may still hold of it. pointers_known: `provider/zone/` -> since when it is known what
    pointed at its names. written: `provider/zone/name type set` -> what was written there. placed: replica -> its node. unread: nodes that have not been read since the
    places were lost -> whether anything of this instance was there before. applied: document -> its declaration that the world converged
    to last; moving: documents whose declaration is another one; applied_of: the revision of the manifests that both were compared with.
    reverts: `replica|field` -> how often that field of its container drifted. privileges: workload key -> what its containers have, or had.
    """

    grants: Mapping[str, Grant] = field(default_factory=dict)
    attempts: Mapping[str, tuple[Instant, ...]] = field(default_factory=dict)
    failures: Mapping[str, Failures] = field(default_factory=dict)
    step_failures: Mapping[str, StepFailure] = field(default_factory=dict)
    wanted: Mapping[str, Instant] = field(default_factory=dict)
    restarted: Mapping[str, tuple[Instant, ...]] = field(default_factory=dict)
    escalations: Mapping[str, Escalation] = field(default_factory=dict)
    outbreaks: Mapping[str, Outbreak] = field(default_factory=dict)
    runtime_restarts: Mapping[str, int] = field(default_factory=dict)
    taken_over: frozenset[str] = frozenset()
    suspensions: Mapping[str, Suspension] = field(default_factory=dict)
    revisions: Mapping[str, RevisionMark] = field(default_factory=dict)
    rollouts: Mapping[str, Rollout] = field(default_factory=dict)
    clock: Instant | None = None
    absences: Mapping[str, Absence] = field(default_factory=dict)
    pushes: Mapping[str, PushRow] = field(default_factory=dict)
    passed: frozenset[str] = frozenset()
    zones: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    source: str = ""
    history_lost: Instant | None = None
    approvals: Mapping[str, Approval] = field(default_factory=dict)
    requests: Mapping[str, Request] = field(default_factory=dict)
    adopted: Mapping[str, Adopted] = field(default_factory=dict)
    ready: Mapping[str, Ready] = field(default_factory=dict)
    weighed: Mapping[str, tuple[Weighed, ...]] = field(default_factory=dict)
    cuts: Mapping[str, tuple[Cut, ...]] = field(default_factory=dict)
    panics: Mapping[str, Instant] = field(default_factory=dict)
    overrides: Mapping[str, Override] = field(default_factory=dict)
    names: Mapping[str, NameRow] = field(default_factory=dict)
    pins: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)
    exit_times: Mapping[str, ExitTimes] = field(default_factory=dict)
    specs: Mapping[str, Spec] = field(default_factory=dict)
    proven: Mapping[str, Spec] = field(default_factory=dict)
    accepted: frozenset[str] = frozenset()
    checks: Mapping[str, CheckRow] = field(default_factory=dict)
    owned: Mapping[str, Owned] = field(default_factory=dict)
    by_runtime: Mapping[str, tuple[Instant, ...]] = field(default_factory=dict)
    flaps: Mapping[str, Flap] = field(default_factory=dict)
    held_ttls: Mapping[str, HeldTTL] = field(default_factory=dict)
    pointers_known: Mapping[str, Instant] = field(default_factory=dict)
    written: Mapping[str, Written] = field(default_factory=dict)
    placed: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, bool] = field(default_factory=dict)
    applied: Mapping[str, Applied] = field(default_factory=dict)
    moving: frozenset[str] = frozenset()
    applied_of: str = ""
    reverts: Mapping[str, Reverts] = field(default_factory=dict)
    privileges: Mapping[str, HadPrivileges] = field(default_factory=dict)
