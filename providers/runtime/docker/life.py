"""One container as the engine has it, and from the lives of a pod to one fact. No I/O but the clocks'.

A replica is a pod: a main container, whose name and labels are the mark, and further *members* that share its network
namespace. The fact is the main container's. It says RUNNING only while every member runs and is younger than the network
namespace that it joined; a pod with a dead member is EXITED, and starting it starts what is missing.
Filled by `docker_inspection.py`, called by `docker_look.py` and `docker_act.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from manifests.values.pod import Live
from providers.facts import (
    ContainerFact,
    ContainerStart,
    ContainerState,
    ExitCause,
    Generation,
    Mark,
    PortFact,
    RuntimeHealth,
    Setup,
    read_mark,
)
from providers.runtime.docker.digest import LABEL_IMAGE
from providers.runtime.docker.health import published
from providers.runtime.docker.instants import SECOND, EngineLife, boot_wall, steady, to_steady
from providers.runtime.docker.networks import first_of, networks_of, unjoined
from providers.runtime.docker.own_stops import Stop

LABEL_CONTAINER = "reconciler.container"
"""Name of a member in its pod; empty on the main container."""

LABEL_MEMBERS = "reconciler.members"
"""On the main container: the names of all members in the order in which they start, with commas between."""

LABEL_NETWORKS = "reconciler.networks"
"""On the main container: the networks beyond its first, with commas between."""

SETTLE = 30 * SECOND
"""How long after its own start an engine may take to restart what it is to restart."""

STATES = {
    "created": ContainerState.CREATED,
    "configured": ContainerState.CREATED,
    "initialized": ContainerState.CREATED,
    "running": ContainerState.RUNNING,
    "paused": ContainerState.PAUSED,
    "restarting": ContainerState.RESTARTING,
    "removing": ContainerState.STOPPING,
    "stopping": ContainerState.STOPPING,
    "exited": ContainerState.EXITED,
    "stopped": ContainerState.EXITED,
    "dead": ContainerState.EXITED,
}
"""The states of Docker and Podman. A word that is not here is read as neither running nor startable."""

NO_LIMIT = 2**50
"""Bytes that stand for "no limit on memory": an engine cannot take a limit away, only raise it. Manifests stay below."""

UP = frozenset({ContainerState.RUNNING, ContainerState.PAUSED, ContainerState.STOPPING, ContainerState.RESTARTING})


@dataclass(frozen=True, slots=True)
class Life:
    """One container as its inspection showed it. Instants: `started_at` and `finished_at` wall ns, `since` steady ns.

    `word` is the engine's state; `addresses` are by network; `joined` are the networks that it is connected to, names and ids;
    `restart` (the policy's name, `on-failure:N` where it gives up after N), `cpu` (thousandths) and `memory` (bytes) are the
    settings in force; `bindings` are (port, host address, host port).
    """

    id: str
    name: str
    labels: Mapping[str, str]
    word: str
    started_at: int
    finished_at: int
    since: int
    exit_code: int
    pid: int
    network_mode: str
    addresses: Mapping[str, str]
    ports: tuple[int, ...]
    restart: str
    cpu: int
    memory: int
    stop_timeout: int
    restarts: int = 0
    oom_killed: bool = False
    health: RuntimeHealth | None = None
    healer: str = ""
    bindings: tuple[tuple[int, str, int], ...] = ()
    image: str = ""
    image_id: str = ""
    setup: Setup | None = None
    joined: tuple[str, ...] = ()

    @property
    def asked_for(self) -> str:
        """The image as it was asked for: a container of ours may be made from the digest behind that name."""
        return (self.labels.get(LABEL_IMAGE) if self.mark[0] is not None else "") or self.image

    @property
    def state(self) -> ContainerState:
        """The state in the contract's words."""
        return STATES.get(self.word, ContainerState.STOPPING)

    @property
    def member(self) -> str:
        """Its name in the pod; empty for a main container."""
        return self.labels.get(LABEL_CONTAINER, "")

    @property
    def base(self) -> str:
        """The name of the pod it says it belongs to."""
        return self.name.removesuffix(f"-{self.member}") if self.member else self.name

    @property
    def mark(self) -> tuple[Mark | None, bool]:
        """Its mark, and whether there is one that belongs elsewhere."""
        if self.member and self.base == self.name:
            return None, True
        return read_mark(self.base, self.labels)

    @property
    def members(self) -> tuple[str, ...]:
        """Of a main container of ours: the members it must have, in start order."""
        if self.mark[0] is None:  # an image made from one of ours hands its labels on
            return ()
        return tuple(filter(None, self.labels.get(LABEL_MEMBERS, "").split(",")))

    @property
    def networks(self) -> tuple[str, ...]:
        """Of a main container of ours: its networks beyond the first."""
        if self.mark[0] is None:
            return ()
        return tuple(filter(None, self.labels.get(LABEL_NETWORKS, "").split(",")))

    @property
    def address(self) -> str:
        """Its address on its own network; empty while it has none."""
        primary = first_of(self.network_mode)
        if primary in self.addresses:
            return self.addresses[primary]
        # Podman calls every network mode `bridge` and its default network `podman`.
        others = [self.addresses[name] for name in sorted(self.addresses) if name not in self.networks]
        return others[0] if others else ""


@dataclass(frozen=True, slots=True)
class Pod:
    """The lives of one replica: the main container and those members that exist, in start order.

    Members outlive a main container that somebody removes. Such a pod is *headless*: what stands in for the main container is
    made from a member, and does not run.
    """

    main: Life
    members: tuple[Life, ...]
    headless: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """Members that should exist and do not."""
        present = {member.member for member in self.members}
        return tuple(name for name in self.main.members if name not in present)

    @property
    def ailing(self) -> tuple[Life, ...]:
        """Members that do not run, or that run in the network namespace of an earlier life of the main container."""
        return tuple(
            member
            for member in self.members
            if member.state is not ContainerState.RUNNING or member.started_at < self.main.started_at
        )

    @property
    def started_at(self) -> int:
        """Start of the pod's generation: that of the container that started last."""
        return max(self.main.started_at, *(member.started_at for member in self.members), 0)

    @property
    def generation(self) -> Generation:
        """(id of the main container, started-at)."""
        return Generation(self.main.id, self.started_at)

    @property
    def state(self) -> ContainerState:
        """The pod's state: the main container's, but RUNNING only while it is whole."""
        state = self.main.state
        if state is ContainerState.RUNNING and (self.missing or self.ailing):
            return ContainerState.EXITED
        return state


def make_pod(main: Life, lives: Sequence[Life]) -> Pod:
    """The pod of a main container, from all lives that were seen."""
    order = {name: index for index, name in enumerate(main.members)}
    mark, _ = main.mark
    found = [
        live for live in lives if live.member in order and live.base == main.name and live.mark[0] == mark is not None
    ]
    return Pod(main, tuple(sorted(found, key=lambda one: order[one.member])))


def headless_pod(lives: Sequence[Life]) -> Pod:
    """The pod of members, at least one, that are left without their main container."""
    members = tuple(sorted(lives, key=lambda live: live.member))
    first = members[0]
    labels = {**first.labels, LABEL_CONTAINER: "", LABEL_MEMBERS: "", LABEL_NETWORKS: ""}
    main = replace(
        first, name=first.base, labels=labels, word="dead", since=0, pid=0, addresses={}, ports=(), health=None
    )
    return Pod(main, members, headless=True)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What turns a pod into a fact: the node, the stops that were ours, the engine's life, whether it is Podman, and the host's
    address for others (empty: none)."""

    node: str
    stops: Mapping[str, Stop]
    engine: EngineLife
    podman: bool
    address: str = ""


def fact(
    pod: Pod,
    around: Surroundings,
    stale_secrets: tuple[str, ...] = (),
    digests: tuple[tuple[str, str], ...] = (),
    image_setup: Setup | None = None,
) -> ContainerFact:
    """What a look says about one replica, or about a container of somebody else's."""
    main = pod.main
    mark, foreign_mark = main.mark
    state = _settled(pod, around)
    down = pod.ailing[0] if pod.main.state is ContainerState.RUNNING and pod.ailing else main
    ended = state is ContainerState.EXITED and down.state is ContainerState.EXITED and not pod.headless
    up = state in (ContainerState.RUNNING, ContainerState.PAUSED)
    lost = unjoined(networks_of(main.network_mode, main.networks, around.podman), main.joined) if mark else ()
    address = main.address if main.state in UP and first_of(main.network_mode) not in lost else ""
    live = (main, *pod.members) if not around.podman else ()
    return ContainerFact(
        node=around.node,
        name=main.name,
        id=main.id,
        state=state,
        started_at=pod.started_at,
        running_since=max(main.since, *(member.since for member in pod.members), 0) if up else 0,
        address=address,
        ports=tuple(PortFact(number, address, number) for number in main.ports) if address else (),
        mark=mark,
        foreign_mark=foreign_mark,
        exit_code=down.exit_code if ended else None,
        exit_cause=_cause(pod, down, around) if state is ContainerState.EXITED else None,
        exited_at=to_steady(down.finished_at) if ended else 0,
        live=tuple(sorted(Live(one.member if mark else "", one.cpu, one.memory, one.restart) for one in live)),
        published=published(main.bindings, around.address) if main.state in UP else (),
        restarts=main.restarts,
        healer=main.healer,
        health=main.health,
        labels=tuple(sorted(main.labels.items())) if mark is None else (),
        stale_secrets=stale_secrets,
        image=main.asked_for,
        digests=digests,
        addresses=tuple(sorted(main.addresses.items())) if main.state in UP else (),
        starts=_starts(pod),
        setup=main.setup,
        image_setup=image_setup,
        unjoined=lost,
    )


def _starts(pod: Pod) -> tuple[ContainerStart, ...]:
    """When each of several containers was started."""
    if not pod.members or pod.headless:
        return ()
    return tuple(
        ContainerStart(one.member, one.started_at, one.since if one.state is ContainerState.RUNNING else 0)
        for one in (pod.main, *pod.members)
    )


def _settled(pod: Pod, around: Surroundings) -> ContainerState:
    """The pod's state; what a just started engine may be about to restart is left to it."""
    state = pod.state
    if state is not ContainerState.EXITED or pod.main.state is not ContainerState.EXITED or around.podman:
        return state
    young = around.engine.started and steady() - around.engine.started < SETTLE
    return ContainerState.RESTARTING if young and pod.main.restart not in ("no", "") else state


def _cause(pod: Pod, down: Life, around: Surroundings) -> ExitCause:
    if pod.headless:
        return ExitCause.UNKNOWN
    stop = around.stops.get(pod.main.id)
    if stop is not None and stop.started_at == pod.started_at:
        return ExitCause.STOPPED_BY_US
    if down.state is not ContainerState.EXITED:
        return ExitCause.UNKNOWN
    if down.oom_killed:  # also when only a child went and the first process then gave up
        return ExitCause.OOM_KILLED
    engine_start = boot_wall() + around.engine.started if around.engine.started else boot_wall()
    if down.finished_at < engine_start:
        return ExitCause.HOST_RESTARTED
    return ExitCause.SIGNALLED if 128 < down.exit_code <= 128 + 64 else ExitCause.EXITED
