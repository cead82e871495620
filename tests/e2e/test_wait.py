"""`reconcile wait` beside a real daemon and a real repository: every fetched commit ends, and a pipeline learns how."""

import json
import shutil
from pathlib import Path

import pytest

from tests.e2e.test_git_source import WEB, Host, eventually, host
from tests.free_ports import free_port
from tests.git.upstream import git

__all__ = ["host"]


def wait(host: Host, commit: str, seconds: int = 60) -> tuple[int, str]:
    code, out = host.here("wait", "--commit", commit, "--timeout", f"{seconds}s", "-o", "json")
    return code, json.loads(out[out.index("{") :])["state"]


def test_a_commit_that_is_applied_and_healthy_ends_the_wait(host: Host) -> None:
    with host.daemon():
        first = git("rev-parse", "HEAD", at=host.upstream.work)
        assert wait(host, first) == (0, "applied")
        second = host.upstream.commit({"set/web.yaml": WEB % "two"})
        assert wait(host, second) == (0, "applied")
        assert host.running() == ["two"]
        assert wait(host, "0" * 40, 1) == (6, "unknown")
    # What is recorded outlives the daemon.
    assert wait(host, first, 1) == (0, "applied")


def test_a_refused_commit_and_a_commit_that_changes_nothing_end_the_wait(host: Host) -> None:
    with host.daemon():
        eventually(lambda: host.running() == ["one"])
        broken = host.upstream.commit({"set/web.yaml": "kind: Nonsense\n"})
        assert wait(host, broken) == (8, "refused")
        elsewhere = host.upstream.commit({"set/web.yaml": WEB % "one", "README": "not of the set\n"})
        assert wait(host, elsewhere) == (0, "applied")
        assert wait(host, broken, 1) == (8, "refused")


def test_a_commit_that_another_one_replaces_is_superseded(host: Host) -> None:
    with host.daemon():
        eventually(lambda: host.running() == ["one"])
        assert host.here("suspend", "--commits", "--reason", "held")[0] == 0
        held = host.upstream.commit({"set/web.yaml": WEB % "two"})
        assert wait(host, held) == (7, "manual")
        newer = host.upstream.commit({"set/web.yaml": WEB % "three"})
        eventually(lambda: wait(host, held, 1) == (8, "superseded"))
        assert host.here("resume", "--commits")[0] == 0
        assert wait(host, newer) == (0, "applied")


def test_a_commit_that_waits_stays_open_over_a_restart_without_the_remote(host: Host) -> None:
    with host.daemon():
        eventually(lambda: host.running() == ["one"])
        assert host.here("suspend", "--commits", "--reason", "held")[0] == 0
        held = host.upstream.commit({"set/web.yaml": WEB % "two"})
        eventually(lambda: wait(host, held, 0)[1] == "manual")
    shutil.move(host.upstream.bare, host.base / "gone")
    with host.daemon():
        eventually(lambda: [hold["rule"] for hold in host.status()["holds"]] == ["SourceUnreadable"])
        eventually(lambda: wait(host, held, 0) == (6, "pending"))
        assert host.here("resume", "--commits")[0] == 0
        shutil.move(host.base / "gone", host.upstream.bare)
        assert wait(host, held) == (0, "applied")
    assert host.running() == ["two"]


def test_a_branch_that_is_set_back_is_applied_again_before_the_wait_ends(host: Host) -> None:
    with host.daemon():
        eventually(lambda: host.running() == ["one"])
        first = git("rev-parse", "HEAD", at=host.upstream.work)
        second = host.upstream.commit({"set/web.yaml": WEB % "two"})
        assert wait(host, second) == (0, "applied")
        host.upstream.rewind()
        host.upstream.push("main")
        eventually(lambda: host.status()["manifests"]["in_force"]["commit"] == first)
        assert wait(host, first) == (0, "applied")
        assert host.running() == ["one"]


def test_a_revision_that_never_becomes_ready_is_not_yet_applied(host: Host) -> None:
    with host.daemon():
        eventually(lambda: host.running() == ["one"])
        ends = WEB.replace("  template:", "  minReadySeconds: 5\n  template:").replace(
            "python3, serve.py", "sh, -c, exit 1"
        )
        failing = host.upstream.commit({"set/web.yaml": ends % "two"})
        code, state = wait(host, failing, 20)
        assert (code, state) in {(6, "pending"), (7, "failed"), (7, "manual")}
        fixed = host.upstream.commit({"set/web.yaml": WEB % "three"})
        assert wait(host, fixed) == (0, "applied")
        assert wait(host, failing, 1)[0] in {7, 8}


def test_another_host_is_asked_with_the_token_of_readers(host: Host, tmp_path: Path) -> None:
    port = free_port()
    file = host.local / "host.yaml"
    file.write_text(
        file.read_text().replace("prune: true", f"prune: true, push: {{tcp: {{listen: '127.0.0.1:{port}'}}}}")
    )
    with host.daemon():
        eventually(lambda: host.running() == ["one"])
        first = git("rev-parse", "HEAD", at=host.upstream.work)
        token = host.home / "reconciler" / host.id / "read.token"
        eventually(token.exists)
        ask = ("wait", "--url", f"http://127.0.0.1:{port}", "--commit", first, "--token-file")
        code, out = host.run(*ask, str(token))
        assert (code, "applied and healthy" in out) == (0, True), out
        wrong = tmp_path / "wrong"
        wrong.write_text("0" * 64)
        code, out = host.run(*ask, str(wrong))
        assert code == 1, out
        assert "read.token" in out
        assert "0" * 64 not in out


@pytest.mark.parametrize("words", [["--commit", "main"], ["--commit", "5d2f0c9e71aa"]])
def test_a_commit_is_given_by_its_whole_number(tmp_path: Path, words: list[str]) -> None:
    host = Host(tmp_path)
    code, out = host.here("wait", *words)
    assert code == 64
    assert "git rev-parse" in out
