"""The real program on a repository with signed commits: only verified ones come into force, and a webhook makes them come soon.

The reports behind these tests: a refusal that does not say why (argo-cd#15118), a webhook that answers success and does nothing
(komodo#85, portainer#10630), a force-push that breaks the pull (fluxcd/flux#696).
"""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.quickstart_world import until
from tests.e2e.signed_world import SignedWorld
from tests.git.signed_repository import ALICE

pytestmark = [pytest.mark.server("git"), pytest.mark.server("ssh-keygen")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SignedWorld]:
    made = SignedWorld(tmp_path)
    yield made
    made.close()


def test_an_unsigned_commit_keeps_the_last_good_one_and_says_why(world: SignedWorld) -> None:
    good = world.commit(1, world.alice)
    daemon = world.watch()
    until(lambda: world.numbers() == ["1"])
    bad = world.commit(2, None)
    status, answer = world.deliver()
    assert status == 202
    said = f"commit {bad[:12]} by {ALICE} (unsigned) is refused by source.verify.mode: head"
    until(lambda: said in world.status())
    assert said in world.run("explain", "source/manifests", "--instance-id", world.id)
    assert good[:12] in world.status()
    events = world.events()
    assert any(said in event["message"] for event in events if event["kind"] == "held")
    assert any(answer["request"] in event["message"] for event in events if event["kind"] == "webhook")
    assert answer["request"] in world.log()
    assert world.numbers() == ["1"]

    daemon.terminate()
    daemon.wait()
    world.watch()  # the last good one is in force after a restart too
    assert said in world.status()
    assert world.numbers() == ["1"]


def test_changed_keys_count_at_the_next_poll_for_what_is_in_force_too(world: SignedWorld) -> None:
    world.commit(1, world.alice)
    world.watch()
    until(lambda: world.numbers() == ["1"])
    second = world.commit(2, world.mallory)
    world.deliver()
    until(lambda: world.mallory.fingerprint in world.status())
    assert world.numbers() == ["1"]
    world.trust(world.alice, world.mallory)
    world.deliver()
    until(lambda: world.numbers() == ["2"])
    signed = f"commit {second[:12]} by {ALICE} (SSH key {world.mallory.fingerprint} of mallory@example.com) has the signature"
    assert any(signed in event["message"] for event in world.events())
    world.trust(world.alice)
    world.deliver()
    until(lambda: "SourceUnverified" in world.status())
    assert world.numbers() == ["2"]


def test_a_single_run_without_a_verified_commit_does_nothing(world: SignedWorld) -> None:
    world.commit(1, world.mallory)
    said = world.run("--once", "--instance", world.local, code=8)
    assert world.mallory.fingerprint in said
    assert "the key is not in source.verify.keys" in said
    assert world.numbers() == []
    assert "the key is not in source.verify.keys" in world.run("plan", "--instance", world.local, code=8)
    world.commit(2, world.alice)
    world.run("--once", "--instance", world.local)
    assert world.numbers() == ["2"]
    world.commit(3, None)
    assert "(unsigned)" in world.run("--once", "--instance", world.local, code=8)
    assert world.numbers() == ["2"]


def test_an_older_signed_commit_is_held_as_a_rewritten_history(tmp_path: Path) -> None:
    world = SignedWorld(tmp_path, requireFastForward=True)
    try:
        old = world.commit(1, world.alice)
        new = world.commit(2, world.alice)
        world.watch()
        until(lambda: world.numbers() == ["2"])
        world.repository.git("push", "-q", "--force", "origin", f"{old}:refs/heads/main")
        world.deliver()
        until(lambda: "force-push" in world.status())
        status = world.status()
        assert old[:12] in status
        assert new[:12] in status
        assert world.numbers() == ["2"]
    finally:
        world.close()


def test_a_tag_that_is_signed_is_followed_and_a_light_one_is_not(tmp_path: Path) -> None:
    world = SignedWorld(tmp_path)
    try:
        world.source["verify"] = {"mode": "tag", "keys": [{"ssh": str(world.local / "signers")}]}
        world.write()
        world.commit(1, None)
        assert "no annotated tag names it" in world.run("--once", "--instance", world.local, code=8)
        world.repository.tag("v1", world.alice)
        world.run("--once", "--instance", world.local)
        assert world.numbers() == ["1"]
    finally:
        world.close()


def test_a_listener_that_fails_does_not_stop_polling(world: SignedWorld) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", world.port))
        taken.listen()
        world.commit(1, world.alice)
        world.watch(listens=False)
        until(lambda: "webhooks cannot be received" in world.log())
        world.commit(2, world.alice)
        until(lambda: world.numbers() == ["2"])


def test_a_webhook_about_another_ref_changes_nothing(world: SignedWorld) -> None:
    world.commit(1, world.alice)
    world.watch()
    status, answer = world.deliver("refs/heads/dev")
    assert status == 202
    assert answer["message"] == "ignored: refs/heads/dev is not the ref of the source, main"
    assert not any(event["kind"] == "webhook" for event in world.events())
