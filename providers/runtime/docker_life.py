"""From the engine's words about one container to a `Life`, and from the lives of a pod to one fact. No I/O but /proc.

A replica is a pod: a main container, whose name and labels are the mark, and further *members* that share its network
namespace. The fact is the main container's. It says RUNNING only while every member runs and is younger than the network
namespace that it joined; a pod with a dead member is EXITED, and starting it starts what is missing.
Called by `docker_look.py` and `docker_act.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from manifests.pod import Live
from providers.facts import (
    LABEL_INSTANCE,
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
from providers.runtime.docker_beyond import of_the_host, published, read_bindings, read_healer, read_health
from providers.runtime.docker_digest import LABEL_IMAGE
from providers.runtime.docker_networks import networks_of, unjoined
from providers.runtime.docker_setup import read_setup
from providers.runtime.docker_stops import Stop
from providers.runtime.docker_time import SECOND, EngineLife, boot_wall, parse_instant, running_since, steady, to_steady

LABEL_CONTAINER = "reconciler.container"
"""Name of a member in its pod; empty on the main container."""

LABEL_MEMBERS = "reconciler.members"
"""On the main container: the names of all members in the order in which they start, with commas between."""

LABEL_NETWORKS = "reconciler.networks"
"""On the main container: the networks beyond its first, with commas between."""

SETTLE = 30 * SECOND
"""How long after its own start an engine may take to restart what it is to restart."""

_STATES = {
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

    `word` is the engine's state; `addresses` are by network; `restart` (the policy's name, `on-failure:N` where it gives up
    after N), `cpu` (thousandths) and `memory` (bytes) are the settings in force; `bindings` are (port, host address, host port);
    `joined` are the networks it is connected to.
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
        return _STATES.get(self.word, ContainerState.STOPPING)

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
        primary = "bridge" if self.network_mode in ("default", "bridge", "") else self.network_mode
        if primary in self.addresses:
            return self.addresses[primary]
        # Podman calls every network mode `bridge` and its default network `podman`.
        others = [self.addresses[name] for name in sorted(self.addresses) if name not in self.networks]
        return others[0] if others else ""


def read_life(found: Mapping[str, Any], on_failure: str = "") -> Life:
    """A container's inspection; `on_failure` is what Podman alone says: what it does when its health check fails."""
    state, config, host = found["State"], found["Config"], found.get("HostConfig") or {}
    started = parse_instant(state.get("StartedAt") or "")
    pid = int(state.get("Pid") or 0)
    networks = (found.get("NetworkSettings") or {}).get("Networks") or {}
    period, quota = int(host.get("CpuPeriod") or 0), int(host.get("CpuQuota") or 0)
    cpu = quota * 1000 // period if period > 0 and quota > 0 else int(host.get("NanoCpus") or 0) // 1_000_000
    exposed = config.get("ExposedPorts") or {}
    word = str(state.get("Status") or "")
    up = _STATES.get(word) in (ContainerState.RUNNING, ContainerState.PAUSED)
    return Life(
        id=str(found["Id"]),
        name=str(found["Name"]).removeprefix("/"),
        labels=config.get("Labels") or {},
        word=word,
        started_at=started,
        finished_at=parse_instant(state.get("FinishedAt") or ""),
        since=running_since(pid, started) if up else 0,
        exit_code=int(state.get("ExitCode") or 0),
        pid=pid,
        network_mode=str(host.get("NetworkMode") or ""),
        addresses={
            name: address
            for name, one in networks.items()
            if (address := one.get("IPAddress") or one.get("GlobalIPv6Address") or "")
        },
        ports=tuple(sorted({int(port.partition("/")[0]) for port in exposed if port.partition("/")[0].isdecimal()})),
        restart=_policy(host.get("RestartPolicy") or {}),
        cpu=max(0, cpu),
        memory=_limit(int(host.get("Memory") or 0)),
        stop_timeout=int(config.get("StopTimeout") or 10),
        restarts=max(0, int(found.get("RestartCount") or 0)),
        oom_killed=bool(state.get("OOMKilled")),
        health=read_health(found, started) if up else None,
        healer=read_healer(config.get("Labels") or {}, on_failure),
        image=str(config.get("Image") or ""),
        image_id=_image_id(str(found.get("Image") or "")),
        setup=None if LABEL_INSTANCE in (config.get("Labels") or {}) else read_setup(found),
        joined=tuple(sorted(networks)),
        bindings=read_bindings(found) or (of_the_host(exposed) if host.get("NetworkMode") == "host" and up else ()),
    )


def listed_life(entry: Mapping[str, Any]) -> Life:
    """What a list alone tells about a container that cannot be inspected. Raises KeyError, TypeError, IndexError."""
    names = [str(name).removeprefix("/") for name in entry["Names"]]
    return Life(
        id=str(entry["Id"]),
        # Further names come from links and have another container's name before a slash.
        name=next((name for name in names if "/" not in name), names[0]),
        labels=entry.get("Labels") or {},
        word=str(entry.get("State") or "").lower(),
        started_at=0,
        finished_at=0,
        since=0,
        exit_code=0,
        pid=0,
        network_mode=str((entry.get("HostConfig") or {}).get("NetworkMode") or ""),
        addresses={},
        ports=(),
        restart="no",
        cpu=0,
        memory=0,
        stop_timeout=10,
        healer=read_healer(entry.get("Labels") or {}, ""),
        image=str(entry.get("Image") or ""),
    )


def _image_id(text: str) -> str:
    """An image's id with its algorithm, which Podman leaves out."""
    return f"sha256:{text}" if len(text) == 64 else text


def _policy(found: Mapping[str, Any]) -> str:
    name, tries = str(found.get("Name") or "no"), int(found.get("MaximumRetryCount") or 0)
    return f"{name}:{tries}" if name == "on-failure" and tries > 0 else name


def policy_body(text: str) -> dict[str, object]:
    """A restart policy, as `Life.restart` spells it, in the engine's words."""
    name, _, tries = text.partition(":")
    return {"Name": name or "no", "MaximumRetryCount": int(tries) if tries.isdecimal() else 0}


def _limit(memory: int) -> int:
    return memory if 0 < memory < NO_LIMIT else 0


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
        present = {one.member for one in self.members}
        return tuple(name for name in self.main.members if name not in present)

    @property
    def ailing(self) -> tuple[Life, ...]:
        """Members that do not run, or that run in the network namespace of an earlier life of the main container."""
        return tuple(
            one
            for one in self.members
            if one.state is not ContainerState.RUNNING or one.started_at < self.main.started_at
        )

    @property
    def started_at(self) -> int:
        """Start of the pod's generation: that of the container that started last."""
        return max(self.main.started_at, *(one.started_at for one in self.members), 0)

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
    found = [one for one in lives if one.member in order and one.base == main.name and one.mark[0] == mark is not None]
    return Pod(main, tuple(sorted(found, key=lambda one: order[one.member])))


def headless_pod(lives: Sequence[Life]) -> Pod:
    """The pod of members, at least one, that are left without their main container."""
    members = tuple(sorted(lives, key=lambda one: one.member))
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
    address = main.address if main.state in UP else ""
    live = (main, *pod.members) if not around.podman else ()
    return ContainerFact(
        node=around.node,
        name=main.name,
        id=main.id,
        state=state,
        started_at=pod.started_at,
        running_since=max(main.since, *(one.since for one in pod.members), 0) if up else 0,
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
        unjoined=unjoined(networks_of(main.network_mode, main.networks, around.podman), main.joined) if mark else (),
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
