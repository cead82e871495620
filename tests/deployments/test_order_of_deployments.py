"""Deployments that wait: the newest of a container counts, an old one is never written late, and one that cannot be written holds no other."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from reconciler.deployments.records import FILE, KEPT, LARGEST, Deployment, RecordFile, Remembered, State
from reconciler.deployments.service import GIVE_UP
from tests.deployments.deployer_world import TOKEN, World, token_file, wall
from tests.deployments.written_world import SHOP, Repository

OTHER = SHOP.replace("name: shop}", "name: other}")
SECOND = "token-of-the-other-workload"


@pytest.fixture
def world(tmp_path: Path) -> World:
    repository = Repository(tmp_path)
    repository.upstream.commit({"prod/other.yaml": OTHER})
    token, second = token_file(tmp_path), token_file(tmp_path, SECOND, "second")
    repository.declare(
        "writeBack: {mode: commit}",
        f"push: {{}}, deployments: [{{workload: shop, token: {{file: '{token}'}}}}, {{workload: other, token: {{file: '{second}'}}}}]",
    )
    return World(repository)


def remember(world: World, *deployments: Deployment) -> World:
    """Another process, which finds these deployments."""
    world.service.close()
    RecordFile(world.state, world.notes.append).save(Remembered(deployments))
    return World(world.repository)


def pending(id_: str, image: str, at: float, workload: str = "workload/shop", reason: str = "") -> Deployment:
    return Deployment(id_, workload, "", image, reason, "", int(at))


def over(world: World, id_: str, token: str = TOKEN) -> Deployment:
    done = world.service.wait(world.service.deployer(token), id_, 60)
    assert done is not None
    return done


def test_an_older_deployment_never_replaces_a_newer_one(world):
    away = world.repository.upstream.bare.rename(world.repository.base / "away.git")
    shop = world.service.deployer(TOKEN)
    old = world.service.submit(shop, "registry.test:5000/shop:1.5", "", "")
    world.until(lambda: "retried" in world.service.get(shop, old.id).message, "the first try failed")
    new = world.service.submit(shop, "registry.test:5000/shop:1.6", "", "")
    away.rename(world.repository.upstream.bare)
    assert over(world, new.id).state is State.WRITTEN
    ended = over(world, old.id)
    assert (ended.state, new.id in ended.message) == (State.SUPERSEDED, True)
    world.service.close()
    assert world.repository.show() == SHOP.replace("1.4", "1.6")
    assert len(world.repository.log()) == 3
    assert [event.outcome for event in world.events if old.id in event.message][-1] == "superseded"


def test_a_restart_keeps_the_order_too(world):
    now = wall()
    first, second = (pending(f"{n}", f"registry.test:5000/shop:1.{n}", now - 10 + n) for n in (5, 6))
    later = remember(world, first, second)
    assert over(later, "6").state is State.WRITTEN
    assert over(later, "5").state is State.SUPERSEDED
    later.service.close()
    assert world.repository.show() == SHOP.replace("1.4", "1.6")
    assert len(world.repository.log()) == 3


def test_a_newer_one_that_is_refused_supersedes_nothing(world):
    done = Deployment("6", "workload/shop", "", "registry.test:5000/shop:1.6", "", "", int(wall()), State.REFUSED)
    later = remember(world, pending("5", "registry.test:5000/shop:1.5", wall() - 5), done)
    assert over(later, "5").state is State.WRITTEN
    later.service.close()


def test_a_deployment_of_yesterday_is_not_written_after_a_restart(world):
    later = remember(world, pending("old", "registry.test:5000/shop:1.5", wall() - GIVE_UP - 60))
    ended = over(later, "old")
    assert (ended.state, ended.next_step) == (State.FAILED, "send it again")
    later.service.close()
    assert world.repository.show() == SHOP


def test_an_accepted_deployment_is_never_forgotten_while_it_waits():
    remembered = Remembered()
    for n in range(KEPT + 20):
        remembered = remembered.with_deployment(pending(str(n), "shop:1", 0, f"workload/w{n}"))
    assert [known.id for known in remembered.deployments] == [str(n) for n in range(KEPT + 20)]
    ended = Deployment("over", "workload/x", "", "shop:1", "", "", 0, State.WRITTEN)
    remembered = remembered.with_deployment(ended).with_deployment(pending("last", "shop:1", 0))
    assert "over" not in {known.id for known in remembered.deployments}


def test_one_that_cannot_be_written_holds_no_other(world, monkeypatch):
    """A fault of the program in one deployment: here a row of the file that no request can make."""
    bad = Deployment(**{**asdict(pending("bad", "registry.test:5000/shop:1.5", wall())), "reason": 7})
    good = pending("good", "registry.test:5000/other:1.5", wall(), "workload/other")
    later = remember(world, bad, good)
    assert over(later, "good", SECOND).state is State.WRITTEN
    later.until(lambda: "unexpected" in later.service.get(later.service.deployer(TOKEN), "bad").message, "it waits")
    later.service.close()


@pytest.mark.parametrize("reason", ["\ud800", "a\x00b", "\u202e", "\r\nrequested by: root", "ä" * 500])
def test_a_reason_of_any_characters_is_written(world, reason):
    with world.listening() as sender:
        status, answer = sender.post({"image": "registry.test:5000/shop:1.5", "reason": reason})
        assert (status, answer["state"]) == (202, "written"), answer
    assert len(world.repository.log()) == 3
    assert all(event.cause.isprintable() for event in world.events)


def test_the_file_stays_below_its_limit_with_patches_of_long_lines(tmp_path):
    repository = Repository(tmp_path, SHOP.replace("  nodes:", f"  # {'x' * 1_000_000}\n  nodes:"))
    token = token_file(tmp_path)
    repository.declare("", f"push: {{}}, deployments: [{{workload: shop, token: {{file: '{token}'}}}}]")
    world = World(repository)
    text = SHOP.replace("  template:", f"  minReadySeconds: 1 # {'x' * 1_000_000}\n  template:")
    repository.upstream.commit(
        {
            "prod/shop.yaml": text.replace("      containers:\n", "      containers: ").replace(
                "        - name: shop\n          image: registry.test:5000/shop:1.4   # the release job writes this\n",
                f"[{{name: shop, image: 'registry.test:5000/shop:1.4', args: ['{'y' * 1_000_000}']}}]\n",
            )
        }
    )
    world.reload()
    shop = world.service.deployer(TOKEN)
    done = over(world, world.service.submit(shop, "registry.test:5000/shop:1.5", "", "").id)
    world.service.close()
    assert done.state is State.PATCH
    assert done.patch == ""
    assert "reconcile deploy workload/shop" in done.next_step
    assert (world.state / FILE).stat().st_size < LARGEST / KEPT
    assert json.loads((world.state / FILE).read_text())["deployments"]
