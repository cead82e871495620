"""`POST /v1/deployments`: a token of one workload, its image and nothing else, each request once, over restarts."""

import json
from pathlib import Path

import pytest

from reconciler.deployments.records import FILE
from tests.deployments.deployer_world import TOKEN, World, token_file
from tests.deployments.written_world import SHOP, Repository

NEW = "registry.test:5000/shop:1.5"
OTHER = SHOP.replace("name: shop}", "name: other}")


@pytest.fixture
def world(tmp_path: Path) -> World:
    repository = Repository(tmp_path)
    repository.upstream.commit({"prod/other.yaml": OTHER})
    token = token_file(tmp_path)
    second = token_file(tmp_path, "token-of-the-other-workload", "second")
    repository.declare(
        "writeBack: {mode: commit}",
        f"push: {{}}, deployments: [{{workload: shop, token: {{file: '{token}'}}}}, {{workload: other, token: {{file: '{second}'}}}}]",
    )
    return World(repository)


def test_an_accepted_deployment_is_one_commit_and_the_audit_says_who(world):
    with world.listening() as sender:
        status, answer = sender.post({"image": NEW, "reason": "build 7"})
        assert (status, answer["state"], answer["outcome"]) == (202, "written", "commit"), answer
        assert answer["commit"] == world.repository.log()[0]
        assert world.repository.show() == SHOP.replace("1.4", "1.5")
        assert world.repository.stat().split() == ["1", "1", "prod/shop.yaml"]
        assert sender.ask("GET", answer["status"])[1]["commit"] == answer["commit"]
        assert sender.ask("GET", answer["wait"])[1]["state"] == "written"
    assert [(event.object, event.outcome, event.actor) for event in world.events] == [
        ("workload/shop", "accepted", "token of workload/shop"),
        ("workload/shop", "written", "token of workload/shop"),
    ]
    assert all("build 7" in event.cause for event in world.events)
    assert len(world.hurried) == 1
    assert (world.state / FILE).stat().st_mode & 0o777 == 0o600
    assert TOKEN not in (world.state / FILE).read_text() + str(world.events) + str(world.notes)


def test_the_same_key_is_the_same_deployment_and_another_body_is_refused(world):
    with world.listening() as sender:
        first = sender.post({"image": NEW}, idempotency_key="build-7")[1]
        again = sender.post({"image": NEW}, idempotency_key="build-7")[1]
        assert first["id"] == again["id"]
        assert sender.post({"image": "shop:2"}, idempotency_key="build-7")[0] == 422
        other = sender.post({"image": NEW}, "token-of-the-other-workload", idempotency_key="build-7")[1]
        assert other["id"] != first["id"]
        assert (other["workload"], other["state"]) == ("workload/other", "written")
    assert len(world.repository.log()) == 4


def test_a_token_reaches_no_other_workload_and_no_other_deployment(world):
    with world.listening() as sender:
        assert sender.post({"image": NEW, "workload": "other"})[0] == 400
        id_ = sender.post({"image": NEW})[1]["status"]
        assert sender.ask("GET", id_, token="token-of-the-other-workload")[0] == 404
        assert "other" not in world.repository.stat()


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", "Bearer", "ä"])
def test_wrong_tokens_are_refused_without_details(world, token):
    with world.listening() as sender:
        status, answer = sender.post({"image": NEW}, token.encode().decode("latin-1"))
        assert (status, answer) == (401, {"message": "refused"})
    assert len(world.repository.log()) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"image": 1}',
        {"image": "Shop:1"},
        {"image": "--upload-pack=x"},
        {"image": "shop:1\nprivileged: true"},
        {"image": NEW, "reason": 7},
        {"image": NEW, "reason": "x" * 501},
        {"image": NEW, "env": {}},
        b"[" * 10_000,
    ],
)
def test_invalid_bodies_are_refused(world, body):
    with world.listening() as sender:
        assert sender.post(body)[0] == 400
    assert len(world.repository.log()) == 2


def test_long_bodies_and_keys_are_refused(world):
    with world.listening() as sender:
        assert sender.post({"image": NEW, "reason": "x" * 20_000})[0] == 413
        assert sender.post({"image": NEW}, idempotency_key="k" * 256)[0] == 400


def test_too_many_requests_of_a_token_are_slowed_and_others_are_not(world):
    with world.listening() as sender:
        answers = [sender.post({"image": "Wrong"})[0] for _ in range(11)]
        assert answers == [400] * 10 + [429]
        assert sender.post({"image": NEW}, "token-of-the-other-workload")[0] == 202


def test_without_the_right_the_answer_has_the_patch(world):
    world.repository.refuse("protected branch")
    with world.listening() as sender:
        status, answer = sender.post({"image": NEW})
        assert (status, answer["state"]) == (202, "patch")
        assert "+          image: registry.test:5000/shop:1.5" in answer["patch"]
        assert "protected branch" in answer["message"]


def test_a_change_that_the_policy_forbids_is_refused(world):
    guard = "apiVersion: reconciler/v1\nkind: Guard\nmetadata: {name: this}\nspec: {policy: {images: {registries: ['registry.test:5000/shop']}}}\n"
    file = world.repository.local / "guard.yaml"
    file.write_text(guard)
    file.chmod(0o600)
    with world.listening() as sender:
        status, answer = sender.post({"image": "evil.test/shop:1"})
        assert (status, answer["state"]) == (422, "refused"), answer
        assert sender.post({"image": NEW})[1]["state"] == "written"


def test_a_killed_process_goes_on_with_what_it_accepted(world):
    bare = world.repository.upstream.bare
    away = bare.with_name("away.git")
    bare.rename(away)
    deployment = world.service.submit(world.service.deployer(TOKEN), NEW, "", "k")
    assert world.service.wait(world.service.deployer(TOKEN), deployment.id, 0.5).state.value == "pending"
    world.service.close()
    away.rename(bare)
    later = World(world.repository)
    done = later.service.wait(later.service.deployer(TOKEN), deployment.id, 60)
    later.service.close()
    assert done.state.value == "written"
    assert world.repository.show() == SHOP.replace("1.4", "1.5")


def test_a_damaged_file_is_reported_and_replaced(world):
    world.service.close()
    (world.state / FILE).write_text(json.dumps({"deployments": [{}]}))
    later = World(world.repository)
    assert any("is damaged" in note for note in later.notes)
    deployment = later.service.submit(later.service.deployer(TOKEN), NEW, "", "")
    assert later.service.wait(later.service.deployer(TOKEN), deployment.id, 60).state.value == "written"
    later.service.close()


def test_equal_and_short_tokens_are_not_used(world, tmp_path):
    token_file(tmp_path, TOKEN, "second")
    assert world.service.deployer(TOKEN) is None
    token_file(tmp_path, "short", "second")
    assert world.service.deployer("short") is None
    assert world.service.deployer(TOKEN).workload == "shop"
