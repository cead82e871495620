"""A container and a pod as the engine has them: owner mark, state, members and networks. No I/O.

A replica is a pod: a main container, whose name and labels are the owner mark, and further *members* that share its network
namespace. `inspection.py` fills the containers; `observe.py`, `create.py`, `lifecycle.py`, `secrets.py` and `fact.py` use them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from providers.facts import ContainerState, Generation, Mark, RuntimeHealth, Setup, claimed_mark, read_mark

LABEL_CONTAINER = "reconciler.container"
"""Name of a member in its pod; empty on the main container."""

LABEL_MEMBERS = "reconciler.members"
"""On the main container: the names of all members in start order, separated by commas."""

LABEL_NETWORKS = "reconciler.networks"
"""On the main container: all networks but the first, separated by commas."""

LABEL_FILES = "reconciler.files"
"""Label of a main container: the volumes with files of the repository that it was created with, as `volume=digest`."""

LABEL_IMAGE = "reconciler.image"
"""The image as the manifest names it. The container may be created from the digest behind that name."""

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
"""The states of Docker and Podman. A status that is not listed is neither running nor startable."""

NO_LIMIT = 2**50
"""Bytes that stand for "no limit on memory": an engine can raise a limit but not remove it. Limits in manifests are smaller."""

UP = frozenset({ContainerState.RUNNING, ContainerState.PAUSED, ContainerState.STOPPING, ContainerState.RESTARTING})

_WITHOUT_NETWORK = frozenset({"host", "none"})

_NETWORK_ID = re.compile(r"[0-9a-f]{12,64}")
"""A manifest may name a network by its id, or the beginning of it; an inspection has names, with the ids beside them."""


@dataclass(frozen=True, slots=True)
class EngineContainer:
    """One container as its inspection showed it.

    `started_at` and `finished_at` are wall-clock ns, `running_since` is steady ns. `status` is the engine's state; `addresses`
    are by network; `connected` holds the names and ids of the networks that it is connected to; `restart` is the policy's name
    (`on-failure:N` gives up after N tries); `cpu` is in thousandths, `memory` in bytes; `bindings` are (port, host address,
    host port). `inherited` says that its image passes the owner mark on.
    """

    id: str
    name: str
    labels: Mapping[str, str]
    status: str
    started_at: int
    finished_at: int
    running_since: int
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
    connected: tuple[str, ...] = ()
    inherited: bool = False

    @property
    def requested_image(self) -> str:
        """The image as the manifest names it: a container of ours may be created from the digest behind that name."""
        return (self.labels.get(LABEL_IMAGE) if self.owner is not None else "") or self.image

    @property
    def state(self) -> ContainerState:
        """The state in the contract's terms."""
        return STATES.get(self.status, ContainerState.STOPPING)

    @property
    def member(self) -> str:
        """Its name in the pod; empty for a main container."""
        return self.labels.get(LABEL_CONTAINER, "")

    @property
    def base(self) -> str:
        """The name of the pod that it claims to belong to."""
        return self.name.removesuffix(f"-{self.member}") if self.member else self.name

    @property
    def mark(self) -> tuple[Mark | None, bool]:
        """Its owner mark, and whether it carries a mark that belongs to another name."""
        if self.member and self.base == self.name:
            return None, True
        return read_mark(self.base, self.labels)

    @property
    def claim(self) -> Mark | None:
        """The mark that names another container, on one that may have been renamed."""
        mark, foreign = self.mark
        return claimed_mark(self.labels) if foreign and mark is None and not self.inherited else None

    @property
    def owner(self) -> Mark | None:
        """Its mark, under whatever name: what it consists of does not depend on its name."""
        return self.mark[0] or self.claim

    @property
    def joined(self) -> str:
        """The id of the container whose network namespace it shares; empty if it has its own."""
        kind, _, target = self.network_mode.partition(":")
        return target if kind == "container" else ""

    @property
    def members(self) -> tuple[str, ...]:
        """Of a main container of ours: the members it must have, in start order."""
        if self.owner is None:  # an image committed from a container of ours passes its labels on
            return ()
        return tuple(filter(None, self.labels.get(LABEL_MEMBERS, "").split(",")))

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """Of a main container of ours: (volume, digest) of the files of the repository that it was created with."""
        if self.owner is None:
            return ()
        pairs = (item.partition("=") for item in self.labels.get(LABEL_FILES, "").split(",") if item)
        return tuple((volume, digest) for volume, _, digest in pairs)

    @property
    def further_networks(self) -> tuple[str, ...]:
        """Of a main container of ours: all its networks but the first."""
        if self.owner is None:
            return ()
        return tuple(filter(None, self.labels.get(LABEL_NETWORKS, "").split(",")))

    @property
    def address(self) -> str:
        """Its address on its first network; empty while it has none."""
        first = first_network(self.network_mode)
        if first in self.addresses:
            return self.addresses[first]
        # Podman calls every network mode `bridge` and its default network `podman`.
        others = [self.addresses[name] for name in sorted(self.addresses) if name not in self.further_networks]
        return others[0] if others else ""


@dataclass(frozen=True, slots=True)
class Pod:
    """The containers of one replica: the main container and those members that exist, in start order.

    Members outlive a main container that is removed by hand. Such a pod is *headless*: its `main` is derived from a member and
    does not run.
    """

    main: EngineContainer
    members: tuple[EngineContainer, ...]
    headless: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """Members that should exist and do not."""
        present = {member.member for member in self.members}
        return tuple(name for name in self.main.members if name not in present)

    @property
    def broken_members(self) -> tuple[EngineContainer, ...]:
        """Members that do not run, or that run in the network namespace of an earlier run of the main container."""
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
        """The pod's state: the main container's, but RUNNING only while it is complete."""
        state = self.main.state
        if state is ContainerState.RUNNING and (self.missing or self.broken_members):
            return ContainerState.EXITED
        return state


def belongs(member: EngineContainer, main: EngineContainer) -> bool:
    """Whether a container is a member of a pod: it has the mark and joined the main container, or has its name.

    The id outlives a rename of either. A main container that was recreated by hand has its name only.
    """
    if member.owner is None or member.owner != main.owner:
        return False
    return member.joined == main.id or (member.mark[0] is not None and member.base == main.name)


def make_pod(main: EngineContainer, containers: Sequence[EngineContainer]) -> Pod:
    """The pod of a main container, from all containers that a look has found."""
    ours = [container for container in containers if belongs(container, main)]
    named = {container.member: container for container in ours if container.mark[0] is not None}
    renamed = [container for container in ours if container.member not in named]
    members = (
        named.get(name) or _only([container for container in renamed if container.member == name])
        for name in main.members
    )
    return Pod(main, tuple(member for member in members if member is not None))


def _only(containers: Sequence[EngineContainer]) -> EngineContainer | None:
    """The one container; None when there are several: then it is not known which one was renamed."""
    return containers[0] if len(containers) == 1 else None


def headless_pod(containers: Sequence[EngineContainer]) -> Pod:
    """The pod of members, at least one, whose main container is gone."""
    members = tuple(sorted(containers, key=lambda container: container.member))
    first = members[0]
    labels = {**first.labels, LABEL_CONTAINER: "", LABEL_MEMBERS: "", LABEL_NETWORKS: "", LABEL_FILES: ""}
    main = replace(
        first,
        name=first.base,
        labels=labels,
        status="dead",
        running_since=0,
        pid=0,
        addresses={},
        ports=(),
        health=None,
    )
    return Pod(main, members, headless=True)


# --- networks -----------------------------------------------------------------------------------------------------


def first_network(mode: str) -> str:
    """The first network of a container, from its network mode: `bridge` when it asked for none."""
    return "bridge" if mode in ("", "default") else mode


def expected_networks(mode: str, further: tuple[str, ...], podman: bool) -> tuple[str, ...]:
    """The networks that a container should be connected to.

    An engine keeps a container running that is disconnected by hand (`docker network disconnect`), and a restart does not
    connect it again.

    Args:
        mode: its network mode: the first network, or that it shares one or has none.
        further: all networks but the first.
        podman: whether Podman runs it. Podman reports every first network as `bridge`, so that one stays unknown.
    """
    if mode in _WITHOUT_NETWORK or ":" in mode:
        return further
    return further if podman else (first_network(mode), *further)


def missing_networks(expected: tuple[str, ...], connected: tuple[str, ...]) -> tuple[str, ...]:
    """The expected networks that the container is not connected to, sorted."""
    missing = set(expected) - set(connected)
    return tuple(
        sorted(
            network
            for network in missing
            if not (_NETWORK_ID.fullmatch(network) and any(name.startswith(network) for name in connected))
        )
    )
