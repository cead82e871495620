import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import SECOND
from reconciler.shell.store.document_changes import apply, changes

AGES = ("checked_wall", "streak")
NAMES = st.sampled_from(["key", "name", "state", "checked_wall", "streak", "since_wall", "replicas", "holds"])
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["", "a", "b"]))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=5)),
    max_leaves=25,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=6)


def changed(before: dict, after: dict, all_ages: bool = False) -> dict:
    """The first document with the stored form of its changes to the second one applied."""
    document = copy.deepcopy(before)
    apply(document, json.loads(json.dumps(changes(before, after, AGES, all_ages=all_ages))))
    return document


def without_ages(value: object) -> object:
    """A document without what may stay behind: ages, and small steps of instants."""
    if isinstance(value, dict):
        return {name: without_ages(item) for name, item in value.items() if name not in (*AGES, "since_wall")}
    return [without_ages(item) for item in value] if isinstance(value, list) else value


@given(DOCUMENTS, DOCUMENTS)
def test_a_document_with_its_changes_applied_is_the_other_one(before, after):
    assert json.dumps(changed(before, after, all_ages=True), sort_keys=True) == json.dumps(after, sort_keys=True)


@given(DOCUMENTS, DOCUMENTS)
def test_only_ages_may_stay_behind(before, after):
    assert without_ages(changed(before, after)) == without_ages(after)


@given(DOCUMENTS)
def test_equal_documents_have_no_changes(document):
    assert changes(document, copy.deepcopy(document), AGES) == []
    assert changes(document, copy.deepcopy(document), AGES, all_ages=True) == []


def replicas(count: int, **first: object) -> dict:
    rows = [
        {"container": f"web-{n}", "state": "Ready", "checked_wall": 1, "since_wall": 5 * SECOND} for n in range(count)
    ]
    rows[0].update(first)
    return {"at_wall": 1, "status": {"workloads": [{"key": "workload/web", "replicas": rows}]}}


@pytest.mark.parametrize("count", [10, 1000])
def test_a_change_of_one_replica_costs_the_same_among_any_number(count):
    after = replicas(count, state="NotReady", checked_wall=9)
    for row in after["status"]["workloads"][0]["replicas"][1:]:
        row["checked_wall"] = 9
    assert changes(replicas(count), after, AGES) == [
        [["status", "workloads", 0, "replicas", 0], {"state": "NotReady", "checked_wall": 9}, []]
    ]


@pytest.mark.parametrize("place", [0, 500, 999])
def test_a_replica_that_comes_or_goes_costs_one_item(place):
    before, after = replicas(1000), replicas(1000)
    rows = after["status"]["workloads"][0]["replicas"]
    gone = rows.pop(place)
    path = ["status", "workloads", 0, "replicas"]
    assert changes(before, after) == [[path, place, 1, []]]
    assert changes(after, before) == [[path, place, 0, [gone]]]


def test_ages_alone_are_no_change_and_follow_a_change_in_a_part():
    before = {"at_wall": 1, "probes": {"checked_wall": 1, "verdict": "pass"}, "other": {"checked_wall": 1}}
    older = {"at_wall": 9, "probes": {"checked_wall": 9, "verdict": "pass"}, "other": {"checked_wall": 9}}
    assert changes(before, older, (*AGES, "at_wall")) == []
    failed = {**older, "probes": {"checked_wall": 9, "verdict": "fail"}}
    assert changed(before, failed) == {**failed, "other": {"checked_wall": 1}}


def test_an_instant_changes_when_it_moves_by_a_second_or_more():
    before = {"since_wall": 10 * SECOND}
    assert changes(before, {"since_wall": 11 * SECOND - 1}) == []
    assert changes(before, {"since_wall": 11 * SECOND}) != []
    assert changes(before, {"since_wall": None}) != []
    assert changes(before, {"since_wall": 10 * SECOND + 1}, all_ages=True) != []


@pytest.mark.parametrize(
    "bad", [[[["none"], {"a": 1}, []]], [[[], {}, ["none"]]], [[["x"], 0, 1, []]], [1], [[[0], 1]]]
)
def test_changes_that_do_not_fit_a_document_are_errors(bad):
    with pytest.raises((LookupError, TypeError, ValueError)):
        apply({"x": 1}, bad)
