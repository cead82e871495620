"""What may be on a node that cannot be read: the containers that the ledger lists there, and the replicas whose place is there."""

from dataclasses import replace

from manifests.values.desired import Adopt
from providers.facts import ContainerFact, ContainerState, Endpoint, Generation, Unknown
from reconciler.core.model.adopted import Adopted
from reconciler.core.model.ledger import Grant, Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.owned import Owned
from reconciler.core.model.reasons import Reason
from reconciler.core.replicas.adoption import adopt
from reconciler.core.replicas.unseen import NOTHING_UNSEEN, unseen_of
from tests.builders import ago
from tests.core.unseen.fleet import SILENT, Fleet, spec
from tests.sim.manifest import Spec

HERE = Owned(node="node-a", workload="web", ordinal=0, revision="r1", reach=("10.0.0.1",))
THERE = Owned(node=SILENT, workload="web", ordinal=1, revision="r1", reach=("10.0.0.2", "192.0.2.1:8081"))
OLD = Owned(5, 0, 1)
"""A row that an older version has written."""

LEDGER = Ledger(
    owned={"here": HERE, "there": THERE, "old": OLD},
    adopted={"theirs": Adopted("workload/api", 2, SILENT, "api")},
    nodes=frozenset({"node-a", SILENT}),
)
NODE = {SILENT: Unknown("no answer", SILENT, 0)}


def test_nothing_is_unseen_while_all_nodes_answer():
    assert unseen_of({}, LEDGER) is NOTHING_UNSEEN
    assert not NOTHING_UNSEEN.may_exist("there")


def test_only_the_containers_of_the_silent_node_may_exist():
    unseen = unseen_of(NODE, LEDGER)
    assert unseen.any
    assert not unseen.unlisted
    assert [name for name in ("here", "there", "old", "theirs", "other") if unseen.may_exist(name)] == [
        "there",
        "theirs",
    ]
    assert {row.id for row in unseen.by_workload["workload/web"]} == {"there"}


def test_on_a_node_that_was_never_read_any_container_may_exist():
    unseen = unseen_of(NODE, replace(LEDGER, nodes=frozenset({"node-a"})))
    assert unseen.unlisted == {SILENT}
    assert [name for name in ("here", "there", "old", "other") if unseen.may_exist(name)] == ["there", "old", "other"]


def test_a_member_is_found_by_its_own_address_or_by_a_port_of_its_host():
    unseen = unseen_of(NODE, LEDGER)
    assert unseen.at(Endpoint("10.0.0.2", 80)).id == "there"
    assert unseen.at(Endpoint("192.0.2.1", 8081)).id == "there"
    assert unseen.at(Endpoint("192.0.2.1", 8082)) is None
    assert unseen.at(Endpoint("10.0.0.1", 80)) is None


def test_rows_of_the_ledger_belong_to_their_node():
    unseen = unseen_of(NODE, LEDGER)
    known = ["node/node-a", "container/node-a/db", "workload/web/0", "workload/other", "workload/web/10"]
    assert not any(unseen.concerns(key) for key in known)
    silent = [f"node/{SILENT}", f"container/{SILENT}/db", "workload/web", "workload/web/1", "workload/api/2"]
    assert all(unseen.concerns(key) for key in silent)


def test_a_disruption_is_hidden_by_its_own_node_only():
    unseen = unseen_of(NODE, LEDGER)

    def grant(container: str, node: str) -> Grant:
        return Grant("workload/web/1", Generation(container, 1), Reason.REQUESTED, ago(1), node=node)

    assert unseen.hides(grant("other", SILENT))
    assert not unseen.hides(grant("there", "node-a"))
    assert unseen.hides(grant("there", ""))  # of an older version
    assert not unseen.hides(grant("here", ""))


def test_the_ledger_keeps_where_each_container_is():
    fleet = Fleet(spec()).learned()
    rows = {row.node: row for row in fleet.ledger.owned.values()}
    assert set(rows) == {"node-a", "node-b", "node-c", "node-d"} == set(fleet.ledger.nodes)
    row, fact = rows[SILENT], fleet.facts[3]
    assert (row.workload, row.ordinal, row.revision, row.reach) == ("web", 3, fact.mark.revision, (fact.address,))
    assert from_rows(to_rows(fleet.ledger)) == fleet.ledger


def test_rows_of_an_older_version_are_read():
    stored = {
        ("owned", "id"): "[5, 0, 1]",
        ("adopted", "other"): '["workload/web", 1, "node-a", "web", "", false, [80]]',
    }
    ledger = from_rows(stored)
    assert ledger.owned == {"id": Owned(5, 0, 1)}
    assert ledger.adopted["other"].ports == (80,)
    assert ledger.adopted["other"].reach == ()


def test_a_silent_node_keeps_its_rows_and_an_answering_one_does_not():
    fleet = Fleet(spec()).learned()
    fleet.silent.add(SILENT)
    gone = fleet.without(0)
    fleet.decide()
    assert gone.id not in fleet.ledger.owned
    assert {row.ordinal for row in fleet.ledger.owned.values()} == {1, 2, 3}
    assert SILENT in fleet.ledger.nodes


def test_a_replica_is_unknown_by_its_own_node_only():
    fleet = Fleet(spec(), Spec(name="api", replicas=1, nodes=("node-a", SILENT))).learned()
    fleet.silent.add(SILENT)
    groups = fleet.decide().status.roster.groups
    assert groups["workload/web"].unknown == {3: SILENT}
    assert not groups["workload/api"].partly_unseen  # it may use the silent node, and has no replica there
    assert not groups["workload/api"].unreadable_nodes


def test_an_ordinal_of_an_unknown_adopted_replica_is_given_to_no_other():
    """It was adopted on the silent node when the list of nodes had another order."""
    desired = Fleet(spec(replicas=8)).desired
    (web,) = desired.workloads
    desired = replace(desired, workloads=(replace(web, adopt=Adopt(names=("web-1",))),))
    fact = ContainerFact("node-a", "web-1", "id-web-1", ContainerState.RUNNING, 1, 1, "10.1.0.1")
    rows = {"theirs": Adopted("workload/web", 0, SILENT, "web-9")}
    adopted = adopt(desired, {"node-a": (fact,)}, (), rows).rows
    assert adopted["id-web-1"].ordinal == 0
    adopted = adopt(desired, {"node-a": (fact,)}, (SILENT,), rows).rows
    assert (adopted["theirs"], adopted["id-web-1"].ordinal) == (rows["theirs"], 4)
