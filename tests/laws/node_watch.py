"""The laws of many nodes that hold at every write and every step, beside those of `watchdog`, and what it means that a world has converged."""

from collections.abc import Iterator

from manifests.values.desired import SECOND
from providers.actions import (
    Action,
    CreateContainer,
    RemoveContainer,
    SetWeight,
    StartContainer,
    StopContainer,
    UpdateContainer,
)
from providers.facts import ContainerState
from providers.testing.memory_container import MemoryContainer
from reconciler.core.model.step import Step
from tests.sim.manifest import INSTANCE, POOLS, ZONE, Spec
from tests.sim.world import World

NOTICE = 20 * SECOND
"""How long (ns) silence may be unnoticed: until the next look, and a little more. Slow answers come on top."""

EXIT = 120 * SECOND
"""How long (ns) an exit may take that was granted before a node fell silent: TTL, drain, and looks in between."""

RUNTIME_ACTIONS = CreateContainer | StartContainer | StopContainer | RemoveContainer | UpdateContainer

Replica = tuple[str, int]
"""A workload's name and an ordinal."""


def replica(item: MemoryContainer) -> Replica | None:
    """The replica of a container of ours."""
    mark = item.mark
    return (mark.workload, mark.ordinal) if mark is not None and mark.instance == INSTANCE else None


class NodeWatch:
    """Watches one world. Build it after the `Watchdog`, whose watch of steps it keeps."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.taken: set[Replica] = set()
        """Replicas that the program stopped while they ran, and that are not available again."""

        self.checked = 0
        """How many stops were compared with the budget."""

        self._earlier = world.tape.watch
        world.tape.watch = self.begun
        world.checks.append(self.after)

    # --- reading ----------------------------------------------------------------------------------------------

    def silent_for(self, node: str) -> int:
        """How long (ns) a node has been silent, as far as the program had time to notice; below 0: not."""
        since = self.world.hosts.silent_since.get(node)
        if since is None:
            return -1
        return self.world.clock.now().steady - since - NOTICE - self.world.hosts.longest

    def of(self, key: Replica) -> Iterator[tuple[str, MemoryContainer]]:
        """The containers of a replica, with their nodes."""
        return ((node, item) for node, item in self.world.placed() if replica(item) == key)

    def settled(self, item: MemoryContainer) -> bool:
        """Whether a container runs and had the time that its application needs."""
        age = self.world.clock.now().steady - item.running_since
        return item.state is ContainerState.RUNNING and age >= self.world.apps.delay(item.name)

    def unknown(self, spec: Spec, at_least: int) -> set[Replica]:
        """The replicas of which every container is on a node that has been silent for this long (ns)."""
        nodes: dict[Replica, list[str]] = {}
        for node, item in self.world.placed():
            key = replica(item)
            if key is not None and key[0] == spec.name and key[1] < spec.replicas:
                nodes.setdefault(key, []).append(node)
        return {key for key, places in nodes.items() if all(self.silent_for(node) > at_least for node in places)}

    # --- the laws ---------------------------------------------------------------------------------------------

    def begun(self, step: Step) -> None:
        """No step acts on the containers of a node that is known to be silent."""
        self._earlier(step)
        action = step.action
        if isinstance(action, RUNTIME_ACTIONS):
            assert self.silent_for(action.node) <= 0, f"{action.node} is silent: {step.id}, {step.message}"

    def after(self, action: Action) -> None:
        """All laws after one write."""
        if isinstance(action, StopContainer):
            self._within_the_budget(action)
        if isinstance(action, StartContainer):
            self._alone(action)
        if isinstance(action, CreateContainer):
            self._no_copy(action)
        if isinstance(action, SetWeight) and not action.weight:
            self._not_for_silence(action)

    def _within_the_budget(self, action: StopContainer) -> None:
        """Never more than maxUnavailable replicas are out on purpose, where replicas of silent nodes count as out."""
        item = self.world.outside.nodes[action.node].get(action.name)
        key = replica(item) if item is not None else None
        spec = next((spec for spec in self.world.shop.specs if key is not None and spec.name == key[0]), None)
        if key is None or spec is None:
            return
        self.taken.add(key)
        self.taken = {taken for taken in self.taken if not any(self.settled(item) for _, item in self.of(taken))}
        mine = {taken for taken in self.taken if taken[0] == spec.name and taken[1] < spec.replicas}
        if key not in mine:
            return  # its successor runs, or it is too many
        self.checked += 1
        out = mine | self.unknown(spec, EXIT)
        assert len(out) <= max(1, spec.max_unavailable), f"stopped {action.name} while {sorted(out)} are out or unknown"

    def _alone(self, action: StartContainer) -> None:
        """A volume that only one container may mount never has two: not on one node, and not on two because a replica moves."""
        item = self.world.outside.nodes[action.node].get(action.name)
        key = replica(item) if item is not None else None
        if key is None or not any(spec.volume and spec.name == key[0] for spec in self.world.shop.specs):
            return
        now = self.world.clock.now().steady
        for node, other in self.world.placed():
            mine = replica(other)
            if (
                other is item
                or not other.up
                or mine is None
                or mine[0] != key[0]
                or (mine != key and node != action.node)
            ):
                continue
            unseen = now - other.running_since <= NOTICE + self.world.hosts.longest
            just_revived = unseen and not self.world.hosts.is_silent(node)
            assert just_revived, f"{action.name} runs on {action.node} and {other.name} on {node}"

    def _no_copy(self, action: CreateContainer) -> None:
        """While a node is silent, its replicas are not created elsewhere, unless the manifest no longer names that node."""
        spec = next((spec for spec in self.world.shop.specs if spec.name == action.mark.workload), None)
        if spec is None:
            return
        for node, item in self.of((action.mark.workload, action.mark.ordinal)):
            if node != action.node and node in spec.nodes and action.mark.ordinal < spec.replicas:
                assert self.silent_for(node) <= 0, (
                    f"{action.name} is created on {action.node}; {item.name} is on {node}, which is silent"
                )

    def _not_for_silence(self, action: SetWeight) -> None:
        """No pool becomes empty because a node is silent, also when its containers do not run any more."""
        members = self.world.outside.pools[POOLS][action.pool]
        if any(member.weight for member in members.values() if member.owner == INSTANCE):
            return
        wanted = [spec for spec in self.world.shop.specs if action.pool in spec.pools and spec.replicas]
        if self.world.shop.destroy or not wanted:
            return
        for node, item in self.world.placed():
            if item.address == action.endpoint.address:
                assert self.silent_for(node) <= 0, (
                    f"{action.pool} became empty: {action.name} is on {node}, which is silent"
                )


def converged(world: World) -> None:
    """The world has exactly the wanted replicas, all of them serve, and nothing is left to do."""
    last = world.tape.last
    assert last is not None
    wanted = {(spec.name, n): spec for spec in world.shop.specs for n in range(spec.replicas)}
    found: dict[Replica, list[tuple[str, MemoryContainer]]] = {}
    for node, item in world.placed():
        key = replica(item)
        if key is not None:
            found.setdefault(key, []).append((node, item))
    assert found.keys() == wanted.keys(), (sorted(found.keys() ^ wanted.keys()), last.holds, last.waits)
    for key, places in found.items():
        assert len(places) == 1, (key, [(node, item.name, item.state) for node, item in places], last.holds)
        ((node, item),), spec = places, wanted[key]
        assert item.mark is not None
        assert (item.state, item.mark.revision) == (ContainerState.RUNNING, spec.revision), (node, item)
        assert node in spec.nodes, (node, item.name)
    for spec in world.shop.specs:
        mine = {item.address for key, ((_, item),) in found.items() if key[0] == spec.name}
        for pool in spec.pools:
            members = world.outside.pools.get(POOLS, {}).get(pool, {})
            weights = {end.address: member.weight for end, member in members.items() if member.owner == INSTANCE}
            assert weights == dict.fromkeys(mine, spec.weight), (pool, weights, last.holds)
        if spec.publish is not None:
            assert set(world.published(f"{spec.name}.{ZONE}")) == mine, (spec.name, last.holds)
    assert not last.steps, last.steps
    assert not last.holds, last.holds
    assert not world.memory.ledger().grants
