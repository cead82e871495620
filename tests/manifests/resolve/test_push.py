"""Listeners for pushes, and how long pushes are trusted."""

import pytest

from manifests.problems import Code
from manifests.values.desired import SECOND, MiddleZone, Push, PushListener
from tests.manifests.trees import INSTANCE, PROVIDERS, WORKLOAD, load_files, problems_of


def instance(push: str) -> str:
    return INSTANCE.replace("{id: demo}", f"{{id: demo, push: {push}}}")


def tree(listener: str = "", push: str = "") -> dict[str, str]:
    workload = WORKLOAD.replace("spec:\n", f"spec:\n  push: {push}\n", 1) if push else WORKLOAD
    return {"i.yaml": instance(listener) if listener else INSTANCE, "p.yaml": PROVIDERS, "w.yaml": workload}


def test_by_default_there_are_no_pushes(tmp_path):
    desired = load_files(tmp_path, tree())
    assert desired.instance.push is None
    assert desired.workloads[0].push is None


def test_a_listener_is_a_unix_socket_unless_it_says_more(tmp_path):
    desired = load_files(tmp_path, tree("{}", "{}"))
    assert desired.instance.push == PushListener(socket=True, tcp=None)
    assert desired.workloads[0].push == Push(30 * SECOND, MiddleZone.PESSIMISTIC, 60 * SECOND, 300 * SECOND, True)


def test_all_fields_of_pushes_are_resolved(tmp_path):
    rules = "{fresh: 5s, middleZone: hold, stale: 20s, startupDeadline: 1m, heartbeats: false}"
    desired = load_files(tmp_path, tree("{socket: false, tcp: {listen: '[::1]:9902'}}", rules))
    assert desired.instance.push == PushListener(socket=False, tcp=("::1", 9902))
    assert desired.workloads[0].push == Push(5 * SECOND, MiddleZone.HOLD, 20 * SECOND, 60 * SECOND, False)


def test_pushes_keep_the_revision(tmp_path):
    with_push = load_files(tmp_path / "a", tree("{}", "{}")).workloads[0].template.revision
    assert with_push == load_files(tmp_path / "b", tree()).workloads[0].template.revision


def test_a_workload_that_pushes_needs_a_listener(tmp_path):
    (problem,) = problems_of(tmp_path, tree(push="{}"))
    assert problem.code is Code.UNKNOWN_REFERENCE
    assert "the Instance has no push listener" in problem.message
    assert problem.hint == "write push: {} in the Instance"


@pytest.mark.parametrize(
    ("listen", "message"),
    [
        ("localhost:1", "has no IP address"),
        ("127.0.0.1", "has no IP address"),
        ("'::1:9902'", "brackets go around"),
        ("'[127.0.0.1]:9902'", "brackets go around"),
        ("127.0.0.1:0", "has no port"),
        ("127.0.0.1:65536", "has no port"),
        ("127.0.0.1:x", "has no port"),
        ("0.0.0.0:9902", "is not an address that containers can push to"),
        ("'[::]:9902'", "is not an address that containers can push to"),
        ("224.0.0.1:9902", "is not an address that containers can push to"),
    ],
)
def test_a_bad_listen_address_is_refused_with_its_cause(tmp_path, listen, message):
    (problem,) = problems_of(tmp_path, tree(f"{{tcp: {{listen: {listen}}}}}"))
    assert problem.code is Code.BAD_VALUE
    assert message in problem.message


def test_a_listener_needs_a_socket_or_tcp(tmp_path):
    (problem,) = problems_of(tmp_path, tree("{socket: false}"))
    assert "neither a socket nor tcp" in problem.message


def test_a_push_cannot_be_fresh_for_longer_than_it_counts(tmp_path):
    (problem,) = problems_of(tmp_path, tree("{}", "{fresh: 61s}"))
    assert "is shorter than fresh" in problem.message


@pytest.mark.parametrize(
    ("drain", "deadline"), [("{max: 10s}", 600), ("{max: 20m}", 20 * 60 + 30), ("{min: 0s, max: 9m45s}", 9 * 60 + 75)]
)
def test_the_default_drain_deadline_leaves_time_for_an_exit(drain, deadline, tmp_path):
    files = tree("{}", "{}")
    files["w.yaml"] = files["w.yaml"].replace("spec:\n", f"spec:\n  drain: {drain}\n", 1)
    (workload,) = load_files(tmp_path, files).workloads
    assert workload.push.drain_deadline == deadline * SECOND


def test_a_drain_deadline_is_as_long_as_an_exit_may_take(tmp_path):
    files = tree("{}", "{drainDeadline: 89s}")
    files["w.yaml"] = files["w.yaml"].replace("spec:\n", "spec:\n  drain: {max: 1m}\n", 1)
    (problem,) = problems_of(tmp_path / "a", files)
    assert problem.code is Code.BAD_VALUE
    assert "push.drainDeadline (1m29s) is shorter than an exit may take" in problem.message
    assert "drain.max (1m) and terminationGracePeriodSeconds (30)" in problem.message
    assert problem.hint == "set push.drainDeadline to at least 1m30s, or shorten drain.max"
    files["w.yaml"] = files["w.yaml"].replace("89s", "90s")
    assert load_files(tmp_path / "b", files).workloads[0].push.drain_deadline == 90 * SECOND
