"""Actions: the closed set of changes that a provider can be asked for. One action changes one object.

Each action carries what the plan saw (`expect`, `before`). The provider compares that with the present state right before it
acts, and answers `Conflict` when they differ. All actions are safe to repeat.

`adopted`: the plan means a container without our mark. Either a workload has adopted it, and `expect` has its id; or its owner
has labelled it for liveness restarts.
"""

from dataclasses import dataclass, field

from manifests.values.desired import Template
from manifests.values.pod import Live, Mount
from providers.facts import Endpoint, Generation, Mark, RecordKey, RecordSet

PUSH_GENERATION = "RECONCILER_PUSH_GENERATION"
"""The variable with the generation under which a process pushes its state; in `extra_env` of every container that pushes."""

PUSH_BOOT = "RECONCILER_PUSH_BOOT"
"""The variable that names one run of a sender. Runtimes set it at every start where a process cannot find it out."""


@dataclass(frozen=True, slots=True)
class CreateContainer:
    """Create (not start) the container of this mark from the template. Existing with the same mark: success.

    Attributes:
        root: the directory that the template's working directory is relative to.
        push: the processes push their own state; `extra_env` and `extra_mounts` are filled in right before the call.
        pins: the digests (as `ContainerFact.digests`) that this revision's containers were made from so far. They are used
            instead of what the image names point to now.
        extra_env, extra_mounts: for all containers of the pod. They hold a secret and are not part of the revision.
    """

    node: str
    name: str
    mark: Mark
    template: Template
    root: str
    push: bool = False
    pins: tuple[tuple[str, str], ...] = ()
    extra_env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    extra_mounts: tuple[Mount, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Start the container that is not running in generation `expect`. Running already in a newer one: success."""

    node: str
    name: str
    expect: Generation
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class StopContainer:
    """Stop generation `expect`, killing it after `grace` (ns). Not running any more: success. Newer: Conflict.

    `only` names one container of a replica that has several, not the main one: it alone is stopped, and the replica does not
    run until it is started again. A replica without such a container: Conflict.
    """

    node: str
    name: str
    expect: Generation
    grace: int
    adopted: bool = False
    only: str = ""


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    """Remove the container of generation `expect`, which must not be running. Gone already: success.

    A container that is only labelled for liveness restarts is never removed, whatever `adopted` is: `Foreign`.
    """

    node: str
    name: str
    expect: Generation
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class UpdateContainer:
    """Give the containers of generation `expect` these settings and connect them to the networks `join`, while they run.

    `files` are (volume, digest, signal): the container sees these files of the repository from now on, and its main process gets each
    signal once. An empty `live` leaves the settings as they are. Set and connected already: success. Another generation, or limits for a
    container that does not run: Conflict. The restart policy can be changed in every state. A runtime without such settings:
    Rejected.
    """

    node: str
    name: str
    expect: Generation
    live: tuple[Live, ...]
    adopted: bool = False
    join: tuple[str, ...] = ()
    files: tuple[tuple[str, str, str], ...] = ()


RuntimeAction = CreateContainer | StartContainer | StopContainer | RemoveContainer | UpdateContainer


@dataclass(frozen=True, slots=True)
class SetWeight:
    """Give an endpoint this weight; add it to the pool when `before` is None. `name` is the container's, for messages."""

    provider: str
    pool: str
    endpoint: Endpoint
    name: str
    weight: int
    before: int | None


@dataclass(frozen=True, slots=True)
class RemoveEndpoint:
    """Remove an endpoint of weight 0 from the pool. Gone already: success. Weight above 0: Conflict."""

    provider: str
    pool: str
    endpoint: Endpoint
    name: str


@dataclass(frozen=True, slots=True)
class CutSessions:
    """End the sessions of an endpoint of weight 0, which stays in the pool. No sessions: success.

    Weight above 0: Conflict. A provider that cannot end sessions: Rejected.
    """

    provider: str
    pool: str
    endpoint: Endpoint
    name: str


EndpointAction = SetWeight | RemoveEndpoint | CutSessions


@dataclass(frozen=True, slots=True)
class RecordChange:
    """One record set before and after (None = absent), and its owner mark afterwards (`<instance>/<object key>`).

    `adopts`: the set has no owner mark, and the manifest takes it over exactly as it is `before`.
    """

    key: RecordKey
    before: RecordSet | None
    after: RecordSet | None
    owner: str
    adopts: bool = False


@dataclass(frozen=True, slots=True)
class ChangeRecords:
    """Change record sets of one zone together, all or nothing where the provider can."""

    provider: str
    zone: str
    changes: tuple[RecordChange, ...]


Action = RuntimeAction | EndpointAction | ChangeRecords
