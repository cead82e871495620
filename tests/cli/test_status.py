import re

import pytest

from reconciler.shell.clock import SystemClock
from reconciler.shell.store.lock import Lock

AGES = re.compile(r"just now|\d+[smhd]+(\d+[smhd])? ago|(?<=unchanged for )[\dsmhd]+")


def plain(text: str) -> str:
    return AGES.sub("AGE", text)


def test_status_shows_the_last_decision(stored, reconcile, golden):
    done = reconcile("status", "--instance-id", "small")
    assert (done.code, done.err) == (0, "")
    golden("cli/status.txt", plain(done.out))


def test_the_only_instance_needs_no_name_and_two_do(stored, home, reconcile):
    assert reconcile("status").out.startswith("instance 'small'")
    (home / "other").mkdir()
    (home / "other" / "state.db").write_bytes(b"")
    done = reconcile("status")
    assert done.code == 64
    assert "other, small" in done.err


def test_status_finds_the_instance_of_manifests(stored, tree, reconcile):
    done = reconcile("status", tree)
    assert done.code == 0
    assert "the manifests have changed since" in done.out
    assert reconcile("status", tree, "--instance-id", "other").code == 64


def test_status_as_json_holds_the_stored_decision_and_its_age(stored, reconcile):
    document = reconcile("status", "--state-dir", stored, "-o", "json").document
    assert document["format_version"] == 2
    assert document["instance"] == "small"
    assert document["since_seconds"] >= 0
    assert [row["state"] for row in document["status"]["workloads"][0]["replicas"]] == ["Ready", "NotReady"]


def test_status_works_while_another_process_holds_the_lock(stored, reconcile):
    with Lock.acquire(stored, "reconcile --watch", SystemClock()):
        assert reconcile("status").code == 0
        assert reconcile("explain", "workload/web").code == 0


@pytest.mark.parametrize("words", [["status"], ["explain", "workload/web"]])
def test_an_instance_that_never_ran_is_reported(words, tree, reconcile, home):
    done = reconcile(*words, tree)
    assert done.code == 6
    assert "has never run" in done.err
    assert "reconcile --once" in done.err
    assert not home.exists()


def test_colours_are_optional(stored, reconcile):
    assert "\x1b[" not in reconcile("status").out
    assert "\x1b[31mNotReady" in reconcile("status", "--color", "always").out


@pytest.mark.parametrize("key", ["workload/web", "workload/web/1", "workload/web/2", "dnspolicy/app"])
def test_explain_says_why(key, stored, reconcile, golden):
    done = reconcile("explain", key)
    assert (done.code, done.err) == (0, "")
    golden(f"cli/explain-{key.replace('/', '-')}.txt", plain(done.out))


def test_explaining_a_replica_shows_probes_holds_and_history(stored, reconcile):
    out = reconcile("explain", "workload/web/1").out
    assert re.search(r"readiness\s+fail\s+3/3\s+HTTP 503", out)
    assert "suspended: workload/web by ada until it is resumed: looking into a leak" in out
    assert "workload/web/1: 1 recent health restart: " in out
    assert "(Crashed): done" in out
    assert "evidence of workload/web/1 (LivenessFailed), saved" in out
    assert "ended: oom-killed, exit code 137" in out
    assert "| too many open files" in out


def test_status_can_show_only_unhealthy_replicas(stored, reconcile):
    out = reconcile("status", "--unhealthy").out
    assert "web/1" in out
    assert "web/0 " not in out
    [workload] = reconcile("status", "--unhealthy", "-o", "json").document["status"]["workloads"]
    assert [replica["replica"] for replica in workload["replicas"]] == ["workload/web/1"]


def test_explaining_a_service_uses_the_manifests(stored, tree, reconcile):
    done = reconcile("explain", "service/web", tree)
    assert done.code == 0
    assert "pool pool/web sends traffic to workload/web port 8080" in done.out


def test_explain_as_json_is_one_document(stored, reconcile):
    document = reconcile("explain", "workload/web/1", "-o", "json").document
    assert document["object"] == "workload/web/1"
    assert document["replicas"][0]["probes"]["readiness"]["streak"] == "3/3"
    assert document["suspended"][0]["who"] == "ada"


def test_an_unknown_key_gets_a_suggestion(stored, reconcile):
    done = reconcile("explain", "workload/wbe")
    assert done.code == 64
    assert "did you mean 'workload/web'?" in done.err
