"""Without an approval nothing of a guarded class happens, in whatever order; an approval allows exactly what it names; then it is used up.

The process is killed at every point, and the power is cut.
"""

from dataclasses import dataclass, replace
from functools import cache

import pytest

from manifests.values.desired import SECOND, Guard, MassChange
from manifests.values.limits import Approve
from manifests.values.rollouts import Strategy
from providers.actions import ChangeRecords, RemoveContainer, RemoveEndpoint, StopContainer
from reconciler.core.model.instant import instant
from reconciler.core.model.reasons import Rule
from tests.laws.examples import stride
from tests.sim.manifest import Shop, Spec
from tests.sim.world import World

STRIDE = stride(search=1, ci=5)
"""The distance between the points of a kill."""

WEB = Spec(replicas=1, strategy=Strategy.RECREATE, drain=2 * SECOND, ttl=5)
OLD = Spec(name="old", replicas=1, pools=("old",), drain=2 * SECOND, ttl=5)
GUARD = Guard(mass_change=MassChange(100, 50), approve=frozenset(Approve))
BEFORE = Shop((WEB, OLD), prune=True, guard=GUARD)
AFTER = Shop((replace(WEB, image="v2"),), prune=True, guard=GUARD)
WAITS = {"workload/web/0", "workload/old/0", "dnspolicy/old", "pool/old"}


def ended(world: World) -> list[str]:
    """The objects that were ended or deleted, by every write that had an effect.

    The end of a container that never ran is no loss, and the pool member of a container that is down goes with it.
    """
    objects, down = [], set()
    for action in (write.action for write in world.traffic.writes if write.effective):
        match action:
            case StopContainer() | RemoveContainer() if action.expect.started_at:
                down.add(action.name)
                objects.append(f"workload/{'old' if '-old-' in action.name else 'web'}/0")
            case RemoveEndpoint() if action.name not in down:
                objects.append(f"pool/{action.pool}")
            case ChangeRecords():
                gone = {change.key.name.partition(".")[0] for change in action.changes if change.after is None}
                objects += [f"dnspolicy/{name}" for name in gone if not name.startswith("_")]
    return objects


def waiting(world: World) -> dict[str, str]:
    """What waits for an approval, with its item."""
    holds = world.tape.last.holds
    return {hold.object: hold.item for hold in holds if hold.rule is Rule.APPROVAL_REQUIRED}


def approve(world: World, hash_: str) -> None:
    world.memory.say("approve", hash_, at=instant(world.clock.now()))


def allowed(after: list[str], some: frozenset[str]) -> set[str]:
    """What was ended, without the pool member that goes with its container."""
    return set(after) - ({"pool/old"} - some if "workload/old/0" in some else set())


@dataclass
class Result:
    """What was ended before and after the approval of some of the changes, and the points passed in both."""

    before: list[str]
    after: list[str]
    points: tuple[int, int]
    approvals: int


def play(some: frozenset[str], kill: int = -1, cut: bool = False, late: bool = False) -> Result:
    """Change the manifests, approve the changes of these objects, and let the world come to rest.

    Args:
        kill: the process is killed at this point after the change, or with `late` after the approval.
        cut: with the power.
    """
    world = World(BEFORE)
    try:
        world.run(60 * SECOND)
        assert len(world.running()) == 2
        world.push(AFTER)
        start, world.cut = world.points, cut
        world.kill_in = -1 if late else kill
        world.run(200 * SECOND)
        before, first = ended(world), world.points - start
        found = waiting(world)
        assert set(found) == WAITS
        for name in sorted(some):
            approve(world, found[name])
        start = world.points
        world.kill_in = kill if late else -1
        world.run(200 * SECOND)
        left = [row for row in world.memory.ledger().approvals.values() if row.approved]
        return Result(before, ended(world)[len(before) :], (first, world.points - start), len(left))
    finally:
        world.close()


@cache
def undisturbed(some: frozenset[str]) -> Result:
    return play(some)


@pytest.mark.parametrize("cut", [False, True], ids=["kill", "power cut"])
def test_nothing_of_a_class_happens_without_an_approval(cut: bool) -> None:
    assert undisturbed(frozenset()).before == undisturbed(frozenset()).after == []
    for point in range(0, undisturbed(frozenset()).points[0], STRIDE * (2 if cut else 1)):
        found = play(frozenset(), point, cut)
        assert found.before == found.after == [], point


@pytest.mark.parametrize("names", ["dnspolicy/old", "pool/old", "workload/web/0", "dnspolicy/old workload/old/0"])
def test_an_approval_allows_what_it_names_and_nothing_else(names: str) -> None:
    some = frozenset(names.split())
    wanted = undisturbed(some)
    assert allowed(wanted.after, some) == some
    assert wanted.approvals == 0
    for point in range(0, wanted.points[1], STRIDE * 2):
        found = play(some, point, late=True)
        assert (allowed(found.after, some), found.before, found.approvals) == (some, [], 0), point


def test_a_container_that_a_name_still_publishes_waits_for_that_name() -> None:
    assert undisturbed(frozenset({"workload/old/0"})).after == []


@pytest.mark.parametrize("kill", [3, 11, 29])
def test_any_part_may_be_approved(kill: int) -> None:
    some = frozenset({"workload/old/0", "dnspolicy/old"})
    for late, cut in ((False, True), (True, False)):
        found = play(some, kill, cut, late)
        assert found.before == []
        assert allowed(found.after, some) == some


def test_all_that_waits_is_approved_with_one_hash_and_the_holds_end() -> None:
    world = World(BEFORE)
    try:
        world.run(60 * SECOND)
        world.push(AFTER)
        world.run(200 * SECOND)
        approve(world, world.tape.last.guard_hash)
        world.run(300 * SECOND)
        assert set(ended(world)) | {"pool/old"} == WAITS
        assert not world.tape.last.holds
        assert len(world.running()) == 1
        assert not world.memory.ledger().approvals
        (ordered,) = [event for event in world.memory.events if event.kind == "command"]
        assert "by an operator" in ordered.outcome
        assert all(name in ordered.message for name in WAITS)
    finally:
        world.close()


def test_a_change_that_follows_the_approval_needs_its_own() -> None:
    world = World(BEFORE)
    try:
        world.run(60 * SECOND)
        world.push(AFTER)
        world.run(200 * SECOND)
        shown = world.tape.last.guard_hash
        world.push(Shop((replace(WEB, image="v3"), OLD), prune=True, guard=GUARD))
        world.run(60 * SECOND)
        approve(world, shown)
        world.run(200 * SECOND)
        assert not ended(world)
        assert set(waiting(world)) == {"workload/web/0"}
    finally:
        world.close()


def test_a_failed_replica_is_restarted_while_changes_wait() -> None:
    world = World(BEFORE)
    try:
        world.run(60 * SECOND)
        world.push(AFTER)
        world.run(100 * SECOND)
        world.apps.cursed.add(next(name for name in world.running() if "-web-" in name))
        world.run(120 * SECOND)
        assert "workload/web/0" in ended(world)
        assert "workload/old/0" not in ended(world)
    finally:
        world.close()
