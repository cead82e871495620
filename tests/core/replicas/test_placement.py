"""Placement: who keeps its node, what shows a lost place, and which node is chosen for what has none."""

import random
from collections import Counter
from dataclasses import replace
from time import process_time

import pytest

from manifests.values.desired import Adopt, Desired, Port, Workload
from manifests.values.rollouts import Strategy
from providers.facts import ContainerFact, ContainerState, Unknown
from reconciler.core.health.belief import Sight
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.owned import Owned
from reconciler.core.model.reasons import Rule
from reconciler.core.model.revision import RevisionMark
from reconciler.core.replicas import adoption
from reconciler.core.replicas.placement import Placement, place, spread, why
from tests.builders import container
from tests.sim.manifest import Shop, Spec

ABC = ("a", "b", "c")
WEB = Spec(replicas=3, nodes=ABC)


def sight(*facts: ContainerFact, nodes: tuple[str, ...] = ABC, silent: tuple[str, ...] = ()) -> Sight:
    """These nodes with these containers; nothing is known of the silent ones."""
    known = {node: tuple(fact for fact in facts if fact.node == node) for node in nodes if node not in silent}
    return Sight(known, {}, {}, {node: Unknown("no answer", node, 0) for node in silent}, {}, {}, FOREVER)


def on(node: str, spec: Spec, ordinal: int, **changes: object) -> ContainerFact:
    return container(spec, ordinal, node=node, **changes)


def placed(*nodes: str, key: str = "workload/web") -> dict[str, str]:
    return {f"{key}/{ordinal}": node for ordinal, node in enumerate(nodes)}


def desired(*specs: Spec) -> Desired:
    return Shop(specs).desired()


def nodes_of(placement: Placement, key: str = "workload/web") -> list[str]:
    return [node for replica, node in sorted(placement.nodes.items()) if replica.startswith(f"{key}/")]


# --- who keeps its node ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 7])
def test_a_single_new_workload_is_spread_in_turn(replicas):
    spec = replace(WEB, replicas=replicas)
    assert nodes_of(place(desired(spec), sight(), Ledger())) == [ABC[n % 3] for n in range(replicas)]


def test_what_is_placed_stays_and_the_ledger_stays_the_same():
    ledger = Ledger(placed=placed("c", "c", "a"))
    answer = place(desired(WEB), sight(), ledger)
    assert answer.nodes is ledger.placed
    assert answer.remember(ledger) is ledger


def test_a_silent_node_keeps_its_replicas_and_gets_no_others():
    ledger = Ledger(placed=placed("a", "b"))
    answer = place(desired(replace(WEB, replicas=4)), sight(silent=("b",)), ledger)
    assert nodes_of(answer) == ["a", "b", "c", "a"]
    assert not answer.holds


def test_rows_of_workloads_and_ordinals_that_are_gone_are_dropped():
    ledger = Ledger(placed={**placed("a", "b", "c"), **placed("a", key="workload/old")})
    answer = place(desired(replace(WEB, replicas=2)), sight(), ledger)
    assert answer.remember(ledger).placed == placed("a", "b")


def test_a_node_off_the_list_gives_its_replicas_to_the_emptiest():
    ledger = Ledger(placed=placed("a", "b", "b", "c"))
    answer = place(desired(replace(WEB, replicas=4, nodes=("a", "c", "d"))), sight(nodes=("a", "b", "c", "d")), ledger)
    assert nodes_of(answer) == ["a", "d", "a", "c"]


def test_the_order_of_the_manifests_and_the_facts_does_not_matter():
    specs = [replace(WEB, name=name, nodes=tuple(nodes)) for name, nodes in (("x", "abc"), ("y", "cab"), ("z", "bc"))]
    first = place(desired(*specs), sight(), Ledger()).nodes
    for seed in range(5):
        made = desired(*specs)
        workloads = random.Random(seed).sample(made.workloads, 3)
        assert place(replace(made, workloads=tuple(workloads)), sight(), Ledger()).nodes == first


# --- what shows a lost place ------------------------------------------------------------------------------------------------


def test_containers_show_the_places_of_a_lost_ledger():
    facts = [on("c", WEB, 0), on("c", WEB, 1), on("a", WEB, 2)]
    assert nodes_of(place(desired(WEB), sight(*facts), Ledger())) == ["c", "c", "a"]


def test_of_two_containers_the_running_one_of_the_declared_revision_counts():
    old = replace(WEB, image="v0")
    facts = [on("a", old, 0), on("b", WEB, 0, state=ContainerState.EXITED), on("c", WEB, 0, id="other")]
    assert nodes_of(place(desired(replace(WEB, replicas=1)), sight(*facts), Ledger())) == ["c"]


def test_the_ledger_shows_containers_of_a_silent_node():
    ledger = Ledger(owned={"id": Owned(node="b", workload="web", ordinal=0)}, revisions={WEB.key: RevisionMark(1, "x")})
    answer = place(desired(replace(WEB, replicas=2)), sight(silent=("b",)), ledger)
    assert nodes_of(answer)[0] == "b"


def test_a_lost_ledger_places_nothing_while_a_node_is_silent():
    facts = [on("a", WEB, 0), on("c", WEB, 2)]
    answer = place(desired(WEB), sight(*facts, silent=("b",)), Ledger())
    assert answer.nodes == {"workload/web/0": "a", "workload/web/2": "c"}
    (hold,) = answer.holds
    assert (hold.object, hold.rule) == ("workload/web/1", Rule.UNKNOWN_RUNTIME)
    assert "it may be on node b" in hold.message
    later = place(desired(WEB), sight(*facts, on("b", WEB, 1)), answer.remember(Ledger()))
    assert nodes_of(later) == ["a", "b", "c"]
    assert later.unread == {}


def test_a_first_run_does_not_wait_for_a_silent_node():
    answer = place(desired(WEB), sight(silent=("b",)), Ledger())
    assert nodes_of(answer) == ["a", "c", "a"]


def test_a_ledger_of_an_older_version_has_its_replicas_in_turn():
    ledger = Ledger(revisions={WEB.key: RevisionMark(1, WEB.revision)})
    answer = place(desired(WEB), sight(on("a", WEB, 0), on("c", WEB, 2), silent=("b",)), ledger)
    assert nodes_of(answer) == ["a", "b", "c"]


def test_the_rows_survive_the_store():
    ledger = Ledger(
        placed=placed("a", "b"), unread={"c": True}, owned={"id": Owned(1, 2, 3, "a", "web", 0, volumes=("data",))}
    )
    assert from_rows(to_rows(ledger)) == ledger
    assert from_rows({("owned", "id"): "[1, 2, 3]"}).owned == {"id": Owned(1, 2, 3)}


# --- the choice -----------------------------------------------------------------------------------------------------------


def test_the_fewest_of_this_workload_come_before_the_load_of_a_node():
    big = replace(WEB, name="big", replicas=1, nodes=("c",), cpu=64_000)
    ledger = Ledger(placed={**placed("a", "b"), **placed("c", key="workload/big")})
    assert nodes_of(place(desired(WEB, big), sight(), ledger)) == ["a", "b", "c"]


def test_among_equals_the_node_with_the_least_that_is_asked_for_gets_it():
    big = replace(WEB, name="big", replicas=2, nodes=("a", "c"), cpu=2_000)
    small = replace(WEB, name="small", replicas=1)
    ledger = Ledger(placed=placed("a", "c", key="workload/big"))
    assert nodes_of(place(desired(big, small), sight(), ledger), "workload/small") == ["b"]


def test_many_small_workloads_are_spread_over_the_nodes():
    specs = [replace(WEB, name=f"w{number}", replicas=1) for number in range(30)]
    answer = place(desired(*specs), sight(), Ledger())
    assert Counter(answer.nodes.values()) == {"a": 10, "b": 10, "c": 10}


def test_all_nodes_silent_holds_a_new_workload():
    other = Ledger(placed=placed("a", key="workload/other"))
    answer = place(desired(replace(WEB, name="new")), sight(silent=ABC), other)
    assert [hold.object for hold in answer.holds] == [f"workload/new/{n}" for n in range(3)]
    assert "no node of spec.nodes can be read: a, b, c" in answer.holds[0].message
    assert "provider/a, provider/b, provider/c" in answer.holds[0].next_step


def one_port(workload: Workload) -> Workload:
    main = replace(workload.template.container, ports=(Port("http", 8080, host_port=80),))
    return replace(workload, strategy=Strategy.RECREATE, template=replace(workload.template, container=main))


def test_replicas_with_one_host_port_never_share_a_node():
    made = desired(replace(WEB, replicas=2, nodes=("a", "b")))
    made = replace(made, workloads=tuple(map(one_port, made.workloads)))
    ledger = Ledger(placed=placed("a"))
    answer = place(made, sight(silent=("b",)), ledger)
    (hold,) = answer.holds
    assert answer.nodes == placed("a")
    assert "host ports" in hold.message
    assert "node b cannot be read" in hold.message
    assert nodes_of(place(made, sight(), ledger)) == ["a", "b"]


def test_two_workloads_with_one_host_port_get_different_nodes():
    made = desired(replace(WEB, name="x", replicas=1), replace(WEB, name="y", replicas=1))
    made = replace(made, workloads=tuple(map(one_port, made.workloads)))
    assert set(place(made, sight(), Ledger()).nodes.values()) == {"a", "b"}
    third = replace(made.workloads[0], key="workload/z", name="z")
    narrow = [replace(workload, nodes=("a", "b")) for workload in (*made.workloads, third)]
    (hold,) = place(replace(made, workloads=tuple(narrow)), sight(), Ledger()).holds
    assert (hold.object, hold.rule) == ("workload/z/0", Rule.NO_NODE)


def test_an_adopted_container_gets_an_ordinal_of_its_node():
    spec = replace(WEB, nodes=("a", "b"), replicas=3)
    made = desired(spec)
    adopting = replace(made, workloads=(replace(made.workloads[0], adopt=Adopt(names=("x", "y", "z"))),))
    facts = tuple(ContainerFact("a", name, f"id-{name}", ContainerState.RUNNING, 1) for name in ("x", "y", "z"))
    adopted = adoption.adopt(adopting, {"a": facts, "b": ()}, (), {}, {})
    assert [fact.mark.ordinal for fact in adopted.facts.values()] == [0, 2, 1]
    seen = sight(*adopted.facts.values(), nodes=("a", "b"))
    assert nodes_of(place(adopting, seen, Ledger())) == ["a", "a", "a"]
    taken = adoption.adopt(adopting, {"a": facts[:1], "b": ()}, (), {}, placed("b", "b", "a"))
    assert [fact.mark.ordinal for fact in taken.facts.values()] == [2]


# --- words and cost -------------------------------------------------------------------------------------------------------


def test_why_a_container_is_where_it_is():
    workload = desired(WEB).workloads[0]
    counts = spread(workload, placed("a", "a", "b"))
    assert why(workload, "a", "a", counts) == "its replica keeps a, which has 2 of 3 replicas"
    assert why(workload, "d", "b", counts) == "its replica belongs to b: spec.nodes does not name d"
    assert why(workload, "a", "b", counts) == "its replica belongs to b: another container is its replica"
    assert why(workload, "a", None, counts) is None
    alone = replace(workload, nodes=("a",))
    assert why(alone, "a", "a", spread(alone, placed("a"))) is None


@pytest.mark.parametrize("known", [False, True])
def test_the_cost_does_not_grow_with_the_nodes_that_are_allowed(known):
    def seconds(count: int) -> float:
        nodes = tuple(f"n{number}" for number in range(count))
        first = desired(replace(WEB, nodes=nodes, replicas=10)).workloads[0]
        workloads = tuple(replace(first, key=f"workload/w{n}", name=f"w{n}") for n in range(400))
        made, seen = replace(desired(), workloads=workloads), sight(nodes=nodes)
        ledger = place(made, seen, Ledger()).remember(Ledger()) if known else Ledger()
        best = min(timed(made, seen, ledger) for _ in range(3))
        assert len(place(made, seen, ledger).nodes) == 4_000
        return best

    def timed(made: Desired, seen: Sight, ledger: Ledger) -> float:
        start = process_time()
        place(made, seen, ledger)
        return process_time() - start

    few, many = seconds(20), seconds(4_000)
    assert many < 4 * few + 0.05, (few, many)
