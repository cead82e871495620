"""When a rolling rollout creates a new replica and retires an old one."""

from dataclasses import replace

import pytest

from reconciler.core.model.instant import FOREVER
from reconciler.core.replicas.availability import Availability
from reconciler.core.replicas.roster import Group
from reconciler.core.rollouts.replacement import may_create, over_budget, replaced
from tests.builders import belief, container
from tests.sim.manifest import Spec, workload

WEB = Spec(startup=True)


def rolling(current: int, outgoing: int, replicas: int = 3, max_unavailable: int = 1) -> Group:
    group = Group(workload(replace(WEB, replicas=replicas, max_unavailable=max_unavailable)))
    group.current = {number: belief(container(WEB, number)) for number in range(current)}
    group.outgoing = [belief(container(WEB, number)) for number in range(outgoing)]
    return group


def counted(current: int, total: int) -> Availability:
    return Availability(current, total, 0, 0, FOREVER)


@pytest.mark.parametrize(
    ("current", "outgoing", "available", "created", "goes"),
    [(0, 0, 0, 0, True), (0, 3, 0, 0, True), (0, 3, 0, 1, False), (1, 3, 1, 0, False), (1, 2, 0, 0, False), (1, 2, 1, 0, True), (0, 4, 0, 0, False)],
)  # fmt: skip
def test_a_new_replica_waits_for_room_and_for_the_new_ones_before_it(current, outgoing, available, created, goes):
    message = may_create(rolling(current, outgoing), counted(available, available + outgoing), created)
    assert (message == "") is goes, message


@pytest.mark.parametrize(
    ("current", "outgoing", "new", "total", "available", "unknown", "retiring", "leaving", "goes"),
    [
        (1, 3, 1, 4, True, False, 0, 0, True),
        (1, 3, 0, 3, True, False, 0, 0, False),
        (1, 3, 1, 4, True, False, 1, 1, False),
        (3, 1, 3, 4, True, False, 0, 0, True),
        (1, 3, 1, 2, True, False, 0, 0, False),
        (1, 3, 1, 2, False, False, 0, 0, True),
        (1, 3, 1, 1, False, True, 0, 0, False),
    ],
)
def test_an_old_replica_goes_only_when_the_budget_is_kept(
    current, outgoing, new, total, available, unknown, retiring, leaving, goes
):
    old = rolling(current, outgoing)
    counts = counted(new, total)
    message = replaced(old, counts, retiring) or over_budget(old, counts, available, unknown, leaving)
    assert (message == "") is goes, message
