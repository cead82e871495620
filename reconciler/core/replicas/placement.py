"""Placement: on which node each replica runs. A replica keeps its node for as long as `spec.nodes` allows it.

The ledger remembers the node of each replica, so a node that is added, or one that cannot be read, moves nothing. Where the ledger
knows none, because it was lost, the containers show it: those that are observed, and those that the ledger has on nodes that cannot be
read. Only for what is left a node is chosen: the one with the fewest replicas of the workload, then with the least that all replicas on
it ask for, then the first in `spec.nodes`. A node that cannot be read is never chosen. `decide` calls `place` before it sorts containers.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, heapreplace

from manifests.values.desired import Desired, Workload
from providers.facts import ContainerFact, ContainerState
from reconciler.core.health.belief import Sight
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Act, HeldAction, Hold, Rule
from reconciler.core.replicas import claims
from reconciler.core.replicas.claims import Claims

CPU, MEMORY = 100, 200_000_000
"""What a container asks for that names nothing: millicores and bytes, as the Kubernetes scheduler assumes
(https://kubernetes.io/docs/reference/scheduling/config/, NodeResourcesFit)."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The node of each replica by its key, and a hold for each replica that has none.

    `unread` are the nodes that have not been read since the places were lost, as in the ledger.
    """

    nodes: Mapping[str, str]
    unread: Mapping[str, bool]
    holds: tuple[Hold, ...] = ()

    def remember(self, ledger: Ledger) -> Ledger:
        """The ledger with the places, the same one if they are in it already."""
        if self.nodes == ledger.placed and self.unread == ledger.unread:
            return ledger
        return replace(ledger, placed=self.nodes, unread=self.unread)


def place(desired: Desired, sight: Sight, ledger: Ledger) -> Placement:
    """The node of every replica that the manifests declare."""
    known, unread = ledger.placed, _unread(desired, sight, ledger)
    nodes: dict[str, str] = {}
    left: list[tuple[Workload, int]] = []
    allowed: dict[int, frozenset[str]] = {}
    for workload in desired.workloads:
        if workload.restart_only:
            continue
        of_workload = allowed.get(id(workload.nodes))
        if of_workload is None:  # usually many workloads share one list
            of_workload = allowed[id(workload.nodes)] = frozenset(workload.nodes)
        before = len(left)
        if len(of_workload) == 1:
            nodes.update(dict.fromkeys(replicas_of(workload), workload.nodes[0]))
            continue
        for ordinal, replica in enumerate(replicas_of(workload)):
            node = known.get(replica)
            if node is not None and node in of_workload:
                nodes[replica] = node
            else:
                left.append((workload, ordinal))
        if claims.of_workload(workload).alone:
            left[before:] = _apart(workload, nodes)
    if not left:
        return Placement(known if nodes == known else nodes, unread)
    left.sort(key=lambda unplaced: (unplaced[0].key, unplaced[1]))
    left = _recall(desired, sight, ledger, left, nodes)
    holds = _Choice(desired, sight, unread, nodes).choose(left) if left else []
    return Placement(known if nodes == known else nodes, unread, tuple(holds))


def replicas_of(workload: Workload) -> list[str]:
    """The keys of the replicas of a workload, by ordinal."""
    key = workload.key
    return [f"{key}/{ordinal}" for ordinal in range(workload.replicas)]


def _apart(workload: Workload, nodes: dict[str, str]) -> list[tuple[Workload, int]]:
    """Of replicas that cannot share a node, only the first one on each keeps it. Returns those without a node."""
    taken: set[str] = set()
    left: list[tuple[Workload, int]] = []
    for ordinal, replica in enumerate(replicas_of(workload)):
        node = nodes.get(replica)
        if node is not None and node not in taken:
            taken.add(node)
        else:
            nodes.pop(replica, None)
            left.append((workload, ordinal))
    return left


def _unread(desired: Desired, sight: Sight, ledger: Ledger) -> Mapping[str, bool]:
    """The nodes that have not been read since the places were lost; True: something of this instance was there before."""
    silent = sight.unknown_runtimes
    if ledger.placed or (ledger.revisions and not ledger.unread):
        left = {node: lost for node, lost in ledger.unread.items() if node in silent}
        return ledger.unread if len(left) == len(ledger.unread) else left
    if not silent:
        return {}
    instance = desired.instance.id
    lost = any(
        fact.mark is not None and fact.mark.instance == instance for facts in sight.runtimes.values() for fact in facts
    ) or any(member.ours for pool in sight.pools.values() for member in pool.members)
    known = ledger.unread or dict.fromkeys(silent, False)
    now = {node: lost or known[node] for node in sorted(known) if node in silent}
    return ledger.unread if now == ledger.unread else now


def spread(workload: Workload, placed: Mapping[str, str]) -> Mapping[str, int]:
    """How many replicas of a workload each node has; empty where there is only one node to choose from."""
    if len(workload.nodes) < 2:
        return {}
    nodes = (placed.get(f"{workload.key}/{ordinal}") for ordinal in range(workload.replicas))
    return Counter(node for node in nodes if node is not None)


def why(workload: Workload, node: str, place: str | None, counts: Mapping[str, int]) -> str | None:
    """Why a container is on its node, or leaves it; None where there is nothing to say.

    Args:
        node: where the container is.
        place: the node of its replica.
        counts: the result of `spread`.
    """
    if place is not None and place != node:
        cause = "another container is its replica" if node in workload.nodes else f"spec.nodes does not name {node}"
        return f"its replica belongs to {place}: {cause}"
    if place is None or not counts:
        return None
    return f"its replica keeps {node}, which has {counts.get(node, 0)} of {workload.replicas} replicas"


# --- what containers show ---------------------------------------------------------------------------------------------


def _recall(
    desired: Desired, sight: Sight, ledger: Ledger, left: Iterable[tuple[Workload, int]], nodes: dict[str, str]
) -> list[tuple[Workload, int]]:
    """Place the replicas whose containers show where they are. Returns those that are still without a node."""
    shown = _shown(desired, sight, ledger)
    # A ledger of an older version: until now, replicas were on the nodes in turn.
    in_turn = not ledger.placed and not ledger.unread
    rest: list[tuple[Workload, int]] = []
    taken: dict[str, set[str]] = {}
    for workload, ordinal in left:
        key = workload.key
        if claims.of_workload(workload).alone and key not in taken:
            placed = (nodes.get(f"{key}/{other}") for other in range(workload.replicas))
            taken[key] = {node for node in placed if node is not None}
        of_node = shown.get(f"{key}/{ordinal}", {})
        free = [(order, node) for node, order in of_node.items() if node not in taken.get(key, ())]
        found = next((node for _, node in sorted(free) if node in workload.nodes), None)
        if found is None and in_turn and key in ledger.revisions:
            turn = workload.nodes[ordinal % len(workload.nodes)]
            found = None if turn in taken.get(key, ()) else turn
        if found is None:
            rest.append((workload, ordinal))
            continue
        nodes[f"{key}/{ordinal}"] = found
        if key in taken:
            taken[key].add(found)
    return rest


_Order = tuple[bool, bool, bool, int, str]


def _shown(desired: Desired, sight: Sight, ledger: Ledger) -> dict[str, dict[str, _Order]]:
    """The nodes where containers of each replica are, with their order: running ones of the declared revision first."""
    shown: dict[str, dict[str, _Order]] = {}
    instance = desired.instance.id
    declared = {workload.name: workload.template.revision for workload in desired.workloads}

    def add(replica: str, node: str, order: _Order) -> None:
        of_node = shown.setdefault(replica, {})
        of_node[node] = min(order, of_node.get(node, order))

    for facts in sight.runtimes.values():
        for fact in facts:
            mark = fact.mark
            if mark is not None and mark.instance == instance and mark.workload in declared:
                order = _order(fact, mark.revision == declared[mark.workload])
                add(f"workload/{mark.workload}/{mark.ordinal}", fact.node, order)
    silent = sight.unknown_runtimes
    for container, row in ledger.owned.items() if silent else ():
        if row.node in silent:
            add(row.replica, row.node, (False, False, True, 0, container))
    for container, adopted in ledger.adopted.items() if silent else ():
        if adopted.node in silent:
            add(f"{adopted.workload}/{adopted.ordinal}", adopted.node, (False, False, True, 0, container))
    return shown


def _order(fact: ContainerFact, declared: bool) -> _Order:
    """The first of several containers of one replica: it runs, is of the declared revision, is seen, and started first."""
    return (fact.state is not ContainerState.RUNNING, not declared, False, fact.started_at, fact.id)


# --- the choice -------------------------------------------------------------------------------------------------------


_Entry = tuple[int, int, str]
"""Load of a node, its place in `spec.nodes`, and its name."""


class _Spread:
    """Chooses nodes for the replicas of one workload: first those without any, then those with the fewest."""

    def __init__(self, heap: list[_Entry], load: Mapping[str, int], counts: Mapping[str, int]) -> None:
        self.heap, self.load, self.counts = heap, load, counts
        self.used: list[_Entry] = []
        self.rounds: list[tuple[int, int, int, str]] = []

    def next(self, asks: int) -> str | None:
        """The next node; None when no node can be read. The caller adds what the replica asks for to the load."""
        while self.heap:
            load, place, node = heappop(self.heap)
            if load != self.load.get(node, 0):
                heappush(self.heap, (self.load[node], place, node))
                continue
            self.used.append((load, place, node))
            if not self.counts.get(node):
                return node
        if not self.rounds:
            self.rounds = [
                (self.counts.get(node, 0), self.load.get(node, 0), place, node) for _, place, node in self.used
            ]
            heapify(self.rounds)
        if not self.rounds:
            return None
        count, load, place, node = self.rounds[0]
        heapreplace(self.rounds, (count + 1, load + asks, place, node))
        return node

    def end(self) -> None:
        """Give the nodes back for the next workload."""
        for _, place, node in self.used:
            heappush(self.heap, (self.load.get(node, 0), place, node))


class _Choice:
    """Chooses nodes, one replica after the other; each choice counts for the next one.

    What is asked for on a node only grows meanwhile, so the nodes of one `spec.nodes` wait in a heap and are compared again when they
    come up: a choice costs a few steps, however many nodes there are.
    """

    def __init__(self, desired: Desired, sight: Sight, unread: Mapping[str, bool], nodes: dict[str, str]) -> None:
        self.sight, self.unread, self.nodes = sight, unread, nodes
        self.load: dict[str, int] = {}
        self.claimed: dict[str, list[tuple[str, Claims]]] = {}
        self.heaps: dict[int, list[_Entry]] = {}
        for workload in desired.workloads:
            asks, wants = _asks(workload), claims.of_workload(workload)
            for ordinal in range(workload.replicas):
                node = nodes.get(f"{workload.key}/{ordinal}")
                if node is not None:
                    self._count(node, workload, asks, wants)

    def _count(self, node: str, workload: Workload, asks: int, wants: Claims) -> None:
        self.load[node] = self.load.get(node, 0) + asks
        if wants.alone:
            self.claimed.setdefault(node, []).append((workload.key, wants))

    def choose(self, left: Iterable[tuple[Workload, int]]) -> list[Hold]:
        """Give each of these a node. Returns a hold for each that gets none."""
        holds: list[Hold] = []
        by_workload: dict[str, tuple[Workload, list[int]]] = {}
        for workload, ordinal in left:
            by_workload.setdefault(workload.key, (workload, []))[1].append(ordinal)
        for key, (workload, ordinals) in by_workload.items():
            hold = self._may_not(workload)
            if hold is None:
                waiting = self._of_workload(workload, ordinals)
                hold = self._none(workload) if waiting else None
            else:
                waiting = ordinals
            if hold is not None:
                holds += [
                    replace(hold, object=f"{key}/{ordinal}", action=f"place {key}/{ordinal}") for ordinal in waiting
                ]
        return holds

    def _may_not(self, workload: Workload) -> Hold | None:
        """The hold while a replica may be on a node that was not read since the places were lost.

        With an exclusive volume it may be on any node, because `spec.nodes` may have changed meanwhile.
        """
        if not self.unread:
            return None
        exclusive = bool(claims.of_workload(workload).volumes)
        hidden = [node for node, lost in self.unread.items() if exclusive or (lost and node in workload.nodes)]
        if not hidden:
            return None
        message = f"the ledger has no place for it, and it may be on node {', '.join(hidden)}, which cannot be read"
        return _hold(Rule.UNKNOWN_RUNTIME, message, make_readable(hidden))

    def _of_workload(self, workload: Workload, ordinals: list[int]) -> list[int]:
        """Choose nodes for these replicas of one workload. Returns those for which there is none."""
        wants, asks = claims.of_workload(workload), _asks(workload)
        counts: dict[str, int] = {}
        for ordinal in range(workload.replicas):
            node = self.nodes.get(f"{workload.key}/{ordinal}")
            if node is not None:
                counts[node] = counts.get(node, 0) + 1
        shared = _Spread(self._heap(workload.nodes), self.load, counts)
        for place, ordinal in enumerate(ordinals):
            node = self._alone(workload, wants, counts) if wants.alone else shared.next(asks)
            if node is None:
                return ordinals[place:]
            counts[node] = counts.get(node, 0) + 1
            self.nodes[f"{workload.key}/{ordinal}"] = node
            self._count(node, workload, asks, wants)
        shared.end()
        return []

    def _alone(self, workload: Workload, wants: Claims, counts: Mapping[str, int]) -> str | None:
        """The first node without a replica of the workload and without another one in conflict: as the manifests were checked."""
        for node in workload.nodes:
            others = (other for key, other in self.claimed.get(node, ()) if key != workload.key)
            if node in self.sight.runtimes and node not in counts and not claims.any_conflict(wants, others):
                return node
        return None

    def _heap(self, nodes: tuple[str, ...]) -> list[_Entry]:
        """The nodes of one `spec.nodes` that can be read, the least loaded first."""
        heap = self.heaps.get(id(nodes))
        if heap is None:
            readable = [(place, node) for place, node in enumerate(nodes) if node in self.sight.runtimes]
            heap = self.heaps[id(nodes)] = [(self.load.get(node, 0), place, node) for place, node in readable]
            heapify(heap)
        return heap

    def _none(self, workload: Workload) -> Hold:
        """The hold of a replica for which there is no node now."""
        silent = sorted(node for node in workload.nodes if node in self.sight.unknown_runtimes)
        if len(silent) == len(workload.nodes):
            message = f"no node of spec.nodes can be read: {', '.join(silent)}"
            return _hold(Rule.UNKNOWN_RUNTIME, message, make_readable(silent))
        taken = (
            "each node of spec.nodes that can be read has a replica with its host ports or exclusive volumes already"
        )
        if silent:
            message = f"{taken}, and node {', '.join(silent)} cannot be read"
            return _hold(Rule.UNKNOWN_RUNTIME, message, make_readable(silent))
        return _hold(Rule.NO_NODE, taken, f"add a node to spec.nodes of {workload.key}, or lower its replicas")


def _hold(rule: Rule, message: str, next_step: str) -> Hold:
    return Hold("", "", rule, message, next_step=next_step, held=HeldAction(Act.CREATE))


def make_readable(nodes: Iterable[str]) -> str:
    """The next step where nodes cannot be read."""
    names = ", ".join(f"provider/{node}" for node in nodes)
    return f"make {names} reachable (it is retried automatically)"


def _asks(workload: Workload) -> int:
    """What one replica asks for, as bytes of memory and CPU in the same proportion; the limits count, as requests are not declared."""
    live = {settings.container: settings for settings in workload.template.live}
    names = ("", *(sidecar.name for sidecar in workload.template.sidecars))
    asked = 0
    for name in names:
        settings = live.get(name)
        cpu, memory = (settings.cpu, settings.memory) if settings is not None else (0, 0)
        asked += (cpu or CPU) * (MEMORY // CPU) + (memory or MEMORY)
    return asked
