"""Exclusive volumes: which starts wait, for which container, and what becomes of two that run."""

from dataclasses import replace

import pytest

from manifests.values.desired import Adopt, Desired
from manifests.values.pod import Live
from providers.actions import StartContainer
from providers.facts import (
    ContainerFact,
    ContainerState,
    ExitCause,
    Known,
    Mark,
    MountFact,
    Probes,
    Setup,
    Unknown,
    container_name,
)
from reconciler.core.decide import decide
from reconciler.core.decision import Decision
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.observed import Observed
from reconciler.core.model.owned import Owned
from reconciler.core.model.reasons import Hold, Reason, Rule
from tests.builders import NOW, PASS, SEEN, Scene, ago, container, down
from tests.sim.manifest import INSTANCE, Shop, Spec

DB = Spec(name="db", replicas=1, nodes=("a", "b"), volume="data", pools=(), publish=None)
CREATED = {"state": ContainerState.CREATED, "started_at": 0, "running_since": 0}


def on(node: str, spec: Spec = DB, ordinal: int = 0, **changes: object) -> ContainerFact:
    return replace(container(spec, ordinal), node=node, id=f"{spec.name}-{spec.image}-{ordinal}-on-{node}", **changes)


def decided(
    *facts: ContainerFact,
    specs: tuple[Spec, ...] = (DB,),
    places: dict[str, str] | None = None,
    silent: tuple[str, ...] = (),
    desired: Desired | None = None,
    **ledger: object,
) -> Decision:
    """The decision with these containers on the nodes a, b and c."""
    scene = Scene()
    known = {"workload/db/0": "a"} if places is None else places
    memory = replace(scene.ledger, placed=known, **ledger)
    runtimes: dict[str, Known | Unknown] = {
        node: Unknown("no answer", node, SEEN)
        if node in silent
        else Known(tuple(fact for fact in facts if fact.node == node), node, SEEN)
        for node in ("a", "b", "c")
    }
    probes = {fact.generation: Probes(None, PASS, PASS) for fact in facts}
    world = Observed(runtimes=runtimes, probes=probes, ledger=memory, source_read_at=SEEN)
    made = Shop(specs).desired() if desired is None else desired
    for _ in range(2):  # the first look brings the ledger what the second one may rely on
        decision = decide(made, world, NOW)
        world = replace(world, ledger=decision.ledger)
    return decision


def starts(decision: Decision) -> list[str]:
    return [step.action.node for step in decision.steps if isinstance(step.action, StartContainer)]


def in_use(decision: Decision) -> list[Hold]:
    return [hold for hold in decision.holds if hold.rule is Rule.VOLUME_IN_USE]


# --- the containers of one replica ------------------------------------------------------------------------------------------


def test_a_replica_starts_where_nothing_else_has_its_volume():
    assert starts(decided(on("a", **CREATED))) == ["a"]
    assert starts(decided(down(on("a")))) == ["a"]


@pytest.mark.parametrize(
    "state", [ContainerState.RUNNING, ContainerState.PAUSED, ContainerState.STOPPING, ContainerState.RESTARTING]
)
def test_a_moved_replica_waits_for_its_old_container(state):
    decision = decided(on("a", **CREATED), on("b", state=state))
    assert starts(decision) == []
    assert any("only one container may have volume data" in wait.message for wait in decision.waits)


def test_a_moved_replica_without_an_exclusive_volume_does_not_wait():
    plain = replace(DB, volume="")
    assert starts(decided(on("a", plain, **CREATED), on("b", plain), specs=(plain,))) == ["a"]


def test_a_call_that_is_under_way_may_be_a_start():
    orphan = down(on("a", replace(DB, name="before")))
    row = Owned(node="a", workload="before", ordinal=0, volumes=("data",))
    facts = [on("a", **CREATED), orphan]
    calm = decided(*facts, owned={orphan.id: row})
    assert starts(calm) == ["a"]
    runtimes = {node: Known(tuple(fact for fact in facts if fact.node == node), node, SEEN) for node in "abc"}
    world = Observed(runtimes=runtimes, ledger=calm.ledger, source_read_at=SEEN, under_way=frozenset({orphan.name}))
    assert starts(decide(Shop((DB,)).desired(), world, NOW)) == []


@pytest.mark.parametrize(("policy", "cause", "waits"), [
    ("unless-stopped", ExitCause.HOST_RESTARTED, True),
    ("unless-stopped", ExitCause.STOPPED_BY_US, False),
    ("no", ExitCause.HOST_RESTARTED, False),
])  # fmt: skip
def test_a_restart_policy_may_revive_the_old_container(policy, cause, waits):
    old = down(on("b", live=(Live("", restart=policy),)), cause)
    assert starts(decided(on("a", **CREATED), old)) == ([] if waits else ["a"])


def test_a_restart_in_progress_starts_its_own_container_only():
    old = down(on("b"), ExitCause.STOPPED_BY_US)
    grant = Grant("workload/db/0", old.generation, Reason.LIVENESS_FAILED, ago(5), weight_out=ago(5))
    assert starts(decided(on("a", **CREATED), old, grants={old.id: grant})) == ["b"]


# --- a node that cannot be read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [True, False])
def test_nothing_starts_while_the_container_may_run_on_a_silent_node(made):
    row = Owned(node="b", workload="db", ordinal=0, volumes=("data",))
    spec = replace(DB, nodes=("a", "c"))
    decision = decided(*[on("a", **CREATED)] * made, specs=(spec,), silent=("b",), owned={"there": row})
    assert not decision.steps
    (hold,) = in_use(decision)
    assert "on node b, which cannot be read" in hold.message
    assert "make provider/b reachable" in hold.next_step
    assert "remove provider/b from the manifests" in hold.next_step


def test_other_replicas_on_a_silent_node_hold_nothing():
    two = replace(DB, replicas=2)
    row = Owned(node="b", workload="db", ordinal=1, volumes=("data",))
    places = {"workload/db/0": "a", "workload/db/1": "b"}
    decision = decided(down(on("a", two)), specs=(two,), places=places, silent=("b",), owned={"there": row})
    assert starts(decision) == ["a"]


def test_a_lost_ledger_starts_nothing_that_may_be_on_a_silent_node():
    spec = replace(DB, nodes=("a",))
    world = Observed(
        runtimes={"a": Known((), "a", SEEN), "b": Unknown("no answer", "b", SEEN)}, source_read_at=SEEN, ledger=Ledger()
    )
    made = Shop((spec,)).desired()
    first = decide(made, world, NOW)
    assert [step.id for step in first.steps] == []
    assert in_use(first)
    after = decide(made, replace(world, ledger=first.ledger), NOW)
    assert not after.steps
    read = replace(world, ledger=after.ledger, runtimes={node: Known((), node, SEEN) for node in "ab"})
    assert [step.id.split()[0] for step in decide(made, read, NOW).steps] == ["create"]


# --- other replicas, workloads and owners on the same node --------------------------------------------------------------


def test_a_surplus_replica_on_the_same_node_goes_first():
    decision = decided(on("a", **CREATED), on("a", ordinal=1))
    assert starts(decision) == []


def test_two_created_ones_do_not_start_together():
    other = replace(DB, name="database")
    places = {"workload/db/0": "a", "workload/database/0": "a"}
    decision = decided(on("a", **CREATED), on("a", other, **CREATED), specs=(DB, other), places=places)
    assert starts(decision) == ["a"]


def test_an_orphan_with_the_volume_holds_the_start():
    other = replace(DB, name="database")
    row = Owned(node="a", workload="db", ordinal=0, volumes=("data",))
    orphan = on("a")
    decision = decided(
        orphan, on("a", other, **CREATED), specs=(other,), places={"workload/database/0": "a"}, owned={orphan.id: row}
    )
    assert starts(decision) == []
    (hold,) = in_use(decision)
    assert f"{orphan.name} on a runs" in hold.message
    assert "reconcile apply --prune" in hold.next_step


@pytest.mark.parametrize(("source", "read_only", "waits"), [
    ("data", False, True), ("data", True, False), ("other", False, False),
])  # fmt: skip
def test_a_container_of_another_owner_with_the_volume_holds_the_start(source, read_only, waits):
    setup = Setup(mounts=(MountFact("/data", source, read_only),))
    foreign = ContainerFact("a", "backup", "id-backup", ContainerState.RUNNING, 1, setup=setup)
    decision = decided(on("a", **CREATED), foreign)
    assert starts(decision) == ([] if waits else ["a"])
    assert [hold.message for hold in in_use(decision)] == [
        "backup on a runs, and only one container may have volume data"
    ] * waits


def test_a_renamed_container_still_has_its_volume():
    mark = Mark(INSTANCE, "db", 0, DB.revision)
    renamed = replace(on("b"), name="db-before", mark=None, foreign_mark=True, claim=mark)
    known = {renamed.id: Owned(node="b", workload="db", ordinal=0, volumes=("data",))}
    assert starts(decided(on("a", **CREATED), renamed, owned=known)) == []
    assert starts(decided(on("a", **CREATED), renamed)) == []  # the ledger was lost: it may be the replica


def test_an_adopted_container_has_the_volume_until_it_is_stopped():
    made = Shop((DB,)).desired()
    adopting = replace(made, workloads=(replace(made.workloads[0], adopt=Adopt(names=("legacy",), replace=True)),))
    setup = Setup(mounts=(MountFact("/data", "data", False),))
    legacy = ContainerFact("a", "legacy", "id-legacy", ContainerState.RUNNING, 1, SEEN, "10.0.0.9", setup=setup)
    decision = decided(legacy, on("a", **CREATED), desired=adopting)
    assert starts(decision) == []


def test_a_volume_that_is_not_exclusive_any_more_holds_nothing():
    plain = replace(DB, volume="")
    row = Owned(node="b", workload="db", ordinal=0, volumes=("data",))
    old = on("b", replace(plain, image="v0"))
    assert starts(decided(on("a", plain, **CREATED), old, specs=(plain,), owned={old.id: row})) == ["a"]


# --- two that run ---------------------------------------------------------------------------------------------------------


def test_of_two_that_run_the_one_at_its_place_stays():
    here, there = on("a"), on("b")
    decision = decided(here, there)
    (grant,) = decision.ledger.grants.items()
    assert grant[0] == there.id
    assert grant[1].cause is Reason.VOLUME_IN_USE
    assert [step.id for step in decision.steps] == [f"stop {container_name(Mark(INSTANCE, 'db', 0, DB.revision))}"]
    assert decision.steps[0].action.node == "b"  # type: ignore[union-attr]


def test_an_old_revision_that_runs_beside_the_new_one_stops_at_once():
    old = on("a", replace(DB, image="v0"))
    decision = decided(on("a"), old)
    assert decision.ledger.grants[old.id].cause is Reason.VOLUME_IN_USE


def test_two_that_run_without_an_exclusive_volume_leave_in_order():
    plain = replace(DB, volume="")
    there = on("b", plain)
    decision = decided(on("a", plain), there, specs=(plain,))
    assert decision.ledger.grants[there.id].cause is Reason.NODE_CHANGED
