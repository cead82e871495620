"""The cost of a decision does not depend on how many nodes a workload may use, only on the nodes that it does use.

The unit is operations, so that the speed of the machine does not matter: calls of functions, of Python and of C, and names that are
read from lists of nodes. Reading such a list in one call (`set(workload.nodes)`) counts as many operations as it has names.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any, SupportsIndex, overload

import pytest

from bench.decide import NOW, fleet, one_fails, one_silent, settled
from manifests.values.desired import Adopt, Desired
from manifests.values.nodes import Nodes
from providers.facts import ContainerFact, ContainerState, Known, Probes
from reconciler.core.decide import decide
from reconciler.core.forecast import forecast
from reconciler.core.model.ledger import Ledger, Suspension
from reconciler.core.model.observed import Observed
from reconciler.core.status.objects import rows
from tests.builders import FAIL

MANY, FEW = 80, 40
"""Workloads: more than replicas that the Guard lets restart at once, because these cost each other something."""

NODES = 10
"""Nodes for each workload. There are more nodes than replicas, so that workloads x nodes is most of what would be counted."""

USED, LISTS = 4, 4
"""Replicas of a workload, each on a node of its own, and the number of lists of nodes that workloads share."""

Case = Callable[[Desired, Observed], tuple[Desired, Observed]]


class Counted(Nodes):
    """A list of nodes that counts the names that are read from it."""

    read = 0

    def __iter__(self) -> Iterator[str]:
        for node in super().__iter__():
            Counted.read += 1
            yield node

    @overload
    def __getitem__(self, place: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        Counted.read += len(found) if isinstance(place, slice) else 1
        return found

    def __eq__(self, other: object) -> bool:
        Counted.read += len(self)
        return super().__eq__(other)

    def __hash__(self) -> int:
        Counted.read += len(self)
        return super().__hash__()


def _converged(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    return desired, observed


def _one_replica_fails(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    return desired, one_fails(observed)


def _all_fail(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    return desired, replace(observed, probes=dict.fromkeys(observed.probes, Probes(None, FAIL, FAIL)))


def _one_node_cannot_be_read(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    return desired, one_silent(observed)


def _one_node_was_never_read(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    return desired, replace(one_silent(observed), ledger=Ledger(source="bench"))


def _one_node_is_suspended(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    node = next(iter(observed.runtimes))
    suspensions = {f"node/{node}": Suspension("ops", "kernel update", 0)}
    return desired, replace(observed, ledger=replace(observed.ledger, suspensions=suspensions))


def _no_probe_has_passed(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    return desired, replace(observed, ledger=replace(observed.ledger, passed=frozenset()))


def _each_workload_adopts_and_each_node_has_foreign_containers(
    desired: Desired, observed: Observed
) -> tuple[Desired, Observed]:
    adopting = tuple(
        replace(workload, adopt=Adopt(names=(f"legacy-{workload.name}",), labels=(("app", workload.name),)))
        for workload in desired.workloads
    )
    runtimes = {
        node: replace(known, value=(*known.value, *_agents(node)))
        for node, known in observed.runtimes.items()
        if isinstance(known, Known)
    }
    return replace(desired, workloads=adopting), replace(observed, runtimes=runtimes)


def _agents(node: str) -> Iterator[ContainerFact]:
    for index in range(2):
        yield ContainerFact(node, f"agent-{index}", f"{node}-{index}", ContainerState.RUNNING)


def _all_replicas_are_missing(desired: Desired, observed: Observed) -> tuple[Desired, Observed]:
    runtimes = {node: Known((), node, NOW.steady) for node in observed.runtimes}
    return desired, replace(observed, runtimes=runtimes, probes={})


CASES = [
    _converged,
    _one_replica_fails,
    _all_fail,
    _one_node_cannot_be_read,
    _one_node_was_never_read,
    _one_node_is_suspended,
    _no_probe_has_passed,
    _each_workload_adopts_and_each_node_has_foreign_containers,
    _all_replicas_are_missing,
]


def _counted(work: Callable[[], object]) -> int:
    """The operations of this work."""
    calls = 0

    def profile(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before, Counted.read = sys.getprofile(), 0
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls + Counted.read


def _world(count: int, every: bool, case: Case) -> tuple[Desired, Observed]:
    desired, observed = settled(*fleet(count, every=every, nodes=NODES * count, used=USED, lists=LISTS))
    lists = {id(workload.nodes): Counted(workload.nodes) for workload in desired.workloads}
    listed = tuple(replace(workload, nodes=lists[id(workload.nodes)]) for workload in desired.workloads)
    desired, observed = case(replace(desired, workloads=listed), observed)
    decide(desired, observed, NOW)  # what is collected once from new manifests
    return desired, observed


def _operations(count: int, *, every: bool, case: Case) -> int:
    """The operations of a decision and of its status as a document, over so many workloads and nodes."""
    desired, observed = _world(count, every, case)

    def work() -> None:
        decision = decide(desired, observed, NOW)
        rows(decision.status, decision.holds, NOW)

    return _counted(work)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_"))
def test_nodes_that_a_workload_may_use_cost_nothing(case: Case) -> None:
    assert _operations(MANY, every=True, case=case) <= 1.2 * _operations(MANY, every=False, case=case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_"))
def test_four_times_as_many_workloads_and_nodes_cost_four_times_as_much(case: Case) -> None:
    assert _operations(4 * FEW, every=True, case=case) <= 5 * _operations(FEW, every=True, case=case)


def test_a_forecast_does_not_depend_on_the_nodes_that_a_workload_may_use() -> None:
    def operations(*, every: bool) -> int:
        desired, observed = _world(FEW, every, _one_replica_fails)
        return _counted(lambda: forecast(desired, observed, NOW))

    assert operations(every=True) <= 1.2 * operations(every=False)
