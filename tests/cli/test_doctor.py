"""`reconcile doctor`: every provider is asked, nothing is changed, and what is missing is said."""

UNREACHABLE = """apiVersion: reconciler/v1
kind: Provider
metadata:
  name: edge
spec:
  type: haproxy
  settings:
    sockets: [/nonexistent/admin.sock]
"""


def test_the_embedded_defaults_are_ready(tree, home, reconcile):
    done = reconcile("doctor", tree)
    assert done.code == 0
    assert "result: all providers are ready (exit 0)" in done.out
    assert list(home.rglob("*.zone")) == []


def test_a_provider_that_cannot_be_read_is_named(tree, tmp_path, reconcile):
    pools = tmp_path / "state" / "pools"
    pools.mkdir(parents=True)
    (pools / "web.json").write_text("{ not json")
    done = reconcile("doctor", tree, "--state-dir", tmp_path / "state", "-o", "json")
    assert done.code == 6
    broken = [provider for provider in done.document["providers"] if not provider["reached"]]
    assert [provider["role"] for provider in broken] == ["endpoints"]
    assert "web.json" in broken[0]["summary"]


def test_a_provider_that_does_not_answer_is_reported_once(tree, reconcile):
    (tree / "edge.yaml").write_text(UNREACHABLE)
    done = reconcile("doctor", tree)
    assert done.code == 6
    assert done.out.count("cannot connect: No such file or directory") == 1
