"""Words going out: the closed set of things a provider can be asked to do. One action changes one object; some providers take several in one call.

Each action carries what the plan saw (`expect`, `before`); the provider compares that with what is there right before it
acts and raises `Conflict` when the world has moved on. All actions are safe to repeat.

`adopted` says that the plan knows the container to carry no mark of ours and means it all the same: one that a workload has
adopted, which is then known by the id in `expect`, or one whose owner has labelled it for liveness restarts.
"""

from dataclasses import dataclass, field

from manifests.values.desired import Template
from manifests.values.pod import Live, Mount
from providers.facts import Endpoint, Generation, Mark, RecordKey, RecordSet

PUSH_GENERATION = "RECONCILER_PUSH_GENERATION"
"""The variable that tells a process as whom it pushes its state; it is in `extra_env` of every container that does."""

PUSH_BOOT = "RECONCILER_PUSH_BOOT"
"""The variable that names one run of a sender, set at every start by runtimes whose processes could not tell it by themselves."""


@dataclass(frozen=True, slots=True)
class CreateContainer:
    """Create (not start) the container of this mark from the template. Existing with the same mark: success.

    `root` is the directory that the template's working directory is relative to. `push` says that its processes are to
    push their own state; `extra_env` and `extra_mounts`, for all containers of the pod, are then filled in right before
    the call. They are no part of the revision, and hold a secret. `pins` says what the containers of this revision were made
    from so far, as `ContainerFact.digests`: from then on its images are those, whatever their names point to by now.
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

    `only` names one container of a replica that has several, beside the main one: it alone is stopped, and the replica then
    does not run either until it is started again. A replica without it: Conflict.
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

    One that is only labelled for liveness restarts is never removed, whatever `adopted` says: `Foreign`.
    """

    node: str
    name: str
    expect: Generation
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class UpdateContainer:
    """Give the containers of generation `expect` these settings, and connect them to the networks `join`, without disturbing them.

    An empty `live` leaves the settings as they are. Set and connected already: success. Another generation: Conflict; so are limits
    for one that does not run, while the restart policy can be changed in every state. A runtime without such settings: Rejected.
    """

    node: str
    name: str
    expect: Generation
    live: tuple[Live, ...]
    adopted: bool = False
    join: tuple[str, ...] = ()


RuntimeAction = CreateContainer | StartContainer | StopContainer | RemoveContainer | UpdateContainer


@dataclass(frozen=True, slots=True)
class SetWeight:
    """Give an endpoint this weight, adding it to the pool when `before` is None. `name` is for people: the container's."""

    provider: str
    pool: str
    endpoint: Endpoint
    name: str
    weight: int
    before: int | None


@dataclass(frozen=True, slots=True)
class RemoveEndpoint:
    """Take an endpoint of weight 0 out of the pool. Gone already: success. Weight above 0: Conflict."""

    provider: str
    pool: str
    endpoint: Endpoint
    name: str


@dataclass(frozen=True, slots=True)
class CutSessions:
    """End what is still under way on an endpoint of weight 0, which stays in the pool. Nothing there any more: success.

    Weight above 0: Conflict. A provider that cannot end sessions: Rejected.
    """

    provider: str
    pool: str
    endpoint: Endpoint
    name: str


EndpointAction = SetWeight | RemoveEndpoint | CutSessions


@dataclass(frozen=True, slots=True)
class RecordChange:
    """One record set before and after (None = absent) and the owner mark of it afterwards (`<instance>/<object key>`)."""

    key: RecordKey
    before: RecordSet | None
    after: RecordSet | None
    owner: str


@dataclass(frozen=True, slots=True)
class ChangeRecords:
    """Change record sets of one zone together, all or nothing where the provider can."""

    provider: str
    zone: str
    changes: tuple[RecordChange, ...]


Action = RuntimeAction | EndpointAction | ChangeRecords
