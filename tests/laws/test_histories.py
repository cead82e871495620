"""Random histories of a repository, on the real mirror, reader and source of a daemon: the laws are in `laws/histories.py`.

Three histories at a desk, twenty in CI; `HISTORIES=200` runs as many as `make soak` does. A failure prints the history as a script.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.reasons import Rule
from tests.laws.git_world import POLLED, GitWorld
from tests.laws.histories import History, Item, Repository, Tree

COUNT = int(os.environ.get("HISTORIES") or (20 if os.environ.get("CI") else 3))


@pytest.mark.server("git")
@pytest.mark.server("ssh-keygen")
@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_history_ends_at_its_last_good_commit(seed: int, tmp_path: Path) -> None:
    history = History(tmp_path, seed)
    try:
        history.run()
    except AssertionError as error:
        raise AssertionError(f"{error}\n\nThe history:\n\n{history.script}\n") from error


@pytest.mark.server("git")
def test_a_restart_does_not_let_a_held_force_push_go(tmp_path: Path) -> None:
    """Found by seed 32: the commit that the rewritten history lacks had changed nothing, so the restart began from an older one."""
    repository = Repository(tmp_path, None, None)
    first = Tree((Item("web", "web.yaml"),))
    repository.commit(first, "the first commit")
    repository.push()
    world = GitWorld(tmp_path, repository.bare, fast_forward=True)
    try:
        world.run(120 * SECOND)
        repository.commit(replace(first, loose=(("README.md", "a line\n"),)), "a commit that changes nothing")
        repository.push()
        world.run(POLLED)
        repository.rewind(1)
        repository.commit(first.changed(first.items[0], version="v2"), "a rewritten change")
        repository.push()
        for _ in range(3):
            world.run(POLLED)
            assert [hold.rule for hold in world.tape.last.holds] == [Rule.SOURCE_UNREADABLE]
            assert {dict(item.env)["VERSION"] for item in world.containers().values()} == {"v1"}
            world.kill()
    finally:
        world.close()


@pytest.mark.server("git")
@pytest.mark.parametrize("start", ["invalid", "unreachable", "unknown"])
def test_a_start_with_stored_manifests_holds_a_force_push_too(tmp_path: Path, start: str) -> None:
    """Found by seed 187: a process that started while the newest commit was invalid did not know which one to follow."""
    repository = Repository(tmp_path, None, None)
    first = Tree((Item("web", "web.yaml"),))
    repository.commit(Tree((Item("web", "web.yaml", note="older"),)), "an older commit")
    repository.commit(first, "the first commit")
    repository.push()
    world = GitWorld(tmp_path, repository.bare, fast_forward=True)
    gone = repository.bare.with_name("gone.git")
    try:
        world.run(120 * SECOND)
        repository.rewind(1)
        if start == "invalid":
            repository.commit(replace(first, fault="no YAML"), "a rewritten mistake")
            repository.push()
        elif start == "unreachable":
            repository.bare.rename(gone)
        world.kill()
        if start == "unknown":  # the record may be lost: the manifests in force are stored beside it
            (world.state / "source.json").unlink()
        else:
            world.run(POLLED)
        if gone.exists():
            gone.rename(repository.bare)
        repository.commit(first.changed(first.items[0], version="v2"), "a rewritten change")
        repository.push()
        for _ in range(2):
            world.run(POLLED)
            assert [hold.rule for hold in world.tape.last.holds] == [Rule.SOURCE_UNREADABLE]
            assert {dict(item.env)["VERSION"] for item in world.containers().values()} == {"v1"}
            world.kill()
    finally:
        world.close()
