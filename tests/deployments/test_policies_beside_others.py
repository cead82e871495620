"""Image policies beside what others do: commits that are not in force yet, open and closed merge requests, other hosts, and images that are forbidden."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from manifests.values.desired import Desired
from manifests.values.notices import ForgeType
from tests.deployments.deployer_world import World, token_file
from tests.deployments.test_image_policies import workload
from tests.deployments.written_world import Repository
from tests.forge.fake_forge import PROJECT, TOKEN, serving
from tests.git.upstream import git

RULE = 'semver: "1.x"'


class Tags:
    """A registry in memory: the tags of each repository. `passes` counts questions."""

    def __init__(self) -> None:
        self.of: dict[str, list[str]] = {}
        self.asked = 0

    def tags(self, repository: str) -> tuple[str, ...]:
        self.asked += 1
        return tuple(self.of.get(repository, []))

    def digest(self, repository: str, tag: str) -> str:
        raise AssertionError((repository, tag))

    def close(self) -> None:
        pass


def image(name: str, tag: str = "1.4.0") -> str:
    return f"r.test/{name}:{tag}"


REGISTRIES = "imagePolicies: {registries: [{server: r.test}]}"


@contextmanager
def following(base: Path, names: tuple[str, ...], write: str = "mode: commit", spec: str = "", rule: str = RULE):
    base.mkdir(exist_ok=True)
    repository = Repository(base)
    repository.upstream.commit(
        {"prod/shop.yaml": None, **{f"prod/{name}.yaml": workload(name, rule, image(name)) for name in names}}
    )
    repository.declare(f"writeBack: {{{write}}}", f"{REGISTRIES}{spec}")
    tags = Tags()
    tags.of = {name: ["1.4.0"] for name in names}
    world = World(repository, lambda _: tags)
    try:
        yield world, tags
    finally:
        world.service.close()


def passed(world: World, tags: Tags, times: int = 2) -> None:
    """Let policies be asked some times."""
    for _ in range(times):
        before = tags.asked
        world.later()
        world.until(lambda before=before: tags.asked > before, "policies are asked")


@contextmanager
def with_forge(base: Path, names: tuple[str, ...]) -> Iterator[tuple[World, Tags, object]]:
    token = token_file(base, TOKEN, "forge-token")
    with serving(ForgeType.GITEA) as forge:
        spec = f", forge: {{type: gitea, url: '{forge.url}', project: {PROJECT}, token: {{file: '{token}'}}}}"
        with following(base, names, "mode: mergeRequest", spec) as (world, tags):
            yield world, tags, forge


def branches(world: World) -> list[str]:
    return git(
        "for-each-ref", "--format=%(refname:short)", "refs/heads/reconcile", at=world.repository.upstream.bare
    ).split()


def proposed(world: World, name: str) -> str:
    (branch,) = branches(world)
    return world.repository.show(f"{branch}:prod/{name}.yaml")


def asked_again(world: World, tags: Tags, desired: Desired, times: int) -> None:
    """Let policies be asked with these manifests in force."""
    for _ in range(times):
        before = tags.asked
        world.seconds += 1000
        world.service.in_force(replace(desired))
        world.until(lambda before=before: tags.asked > before, "policies are asked")


def test_a_newer_image_at_the_head_is_not_replaced_by_an_older_choice(tmp_path):
    with following(tmp_path, ("shop",)) as (world, tags):
        passed(world, tags, 1)
        old = world.service._desired  # the older commit stays in force
        world.repository.upstream.commit({"prod/shop.yaml": workload("shop", RULE, image("shop", "1.9.0"))})
        tags.of["shop"].append("1.5.0")
        commits = len(world.repository.log())
        asked_again(world, tags, old, 3)
        assert len(world.repository.log()) == commits
        assert "1.9.0" in world.repository.show("main:prod/shop.yaml")


def test_an_image_that_a_newer_commit_held_up_is_written_later(tmp_path):
    with following(tmp_path, ("shop",)) as (world, tags):
        passed(world, tags, 1)
        old = world.service._desired
        world.repository.upstream.commit({"prod/shop.yaml": workload("shop", RULE, image("shop", "1.5.0"))})
        tags.of["shop"] = ["1.4.0", "1.5.0", "1.6.0"]
        asked_again(world, tags, old, 3)  # 1.5.0 is not in force yet, as in a closed window
        assert "1.5.0" in world.repository.show("main:prod/shop.yaml")
        passed(world, tags, 3)
        world.until(lambda: "1.6.0" in world.repository.show("main:prod/shop.yaml"), "the newer image is written")


def test_a_merge_request_that_is_open_keeps_what_was_proposed_before(tmp_path):
    with with_forge(tmp_path, ("shop", "worker")) as (world, tags, forge):
        tags.of["shop"].append("1.5.0")
        world.later()
        world.until(lambda: len(forge.requests) == 1, "the first image is proposed")
        tags.of["worker"].append("1.7.0")
        world.later()
        world.until(lambda: "1.7.0" in proposed(world, "worker"), "the second image is proposed")
        assert "1.5.0" in proposed(world, "shop")
        assert len(forge.requests) == 1
        (branch,) = branches(world)
        assert len(world.repository.log(branch)) == len(world.repository.log()) + 1


def test_what_a_closed_merge_request_proposed_is_not_proposed_with_others(tmp_path):
    with with_forge(tmp_path, ("shop", "worker")) as (world, tags, forge):
        tags.of["shop"].append("1.5.0")
        world.later()
        world.until(lambda: len(forge.requests) == 1, "the first image is proposed")
        world.until(lambda: world.service._remembered.followed["workload/shop main"].chosen != "", "it is remembered")
        forge.requests.clear()  # closed, and its branch is kept
        tags.of["worker"].append("1.7.0")
        world.later()
        world.until(lambda: len(forge.requests) == 1, "the second image is proposed")
        assert "1.7.0" in proposed(world, "worker")
        assert "1.4.0" in proposed(world, "shop")


def test_hosts_with_other_directories_have_other_branches(tmp_path):
    with with_forge(tmp_path, ("shop",)) as (world, tags, forge):
        second = world.repository
        second.upstream.commit({"other/shop.yaml": workload("shop", RULE, image("shop"))})
        tags.of["shop"].append("1.5.0")
        world.later()
        world.until(lambda: len(forge.requests) == 1, "the first host proposes its image")
        text = (second.local / "host.yaml").read_text().replace("//prod?", "//other?")
        (second.local / "host.yaml").write_text(text.replace(f"id: {second.id}", "id: second"))
        world.service.close()
        other = World(second, lambda _: tags, state="second", path="other")
        other.later()
        other.until(lambda: len(forge.requests) == 2, "the second host proposes its image")
        other.service.close()
        assert len(branches(world)) == 2
        changed = {
            name
            for branch in branches(world)
            for name in git("diff", "--name-only", "main", branch, at=second.upstream.bare).split()
        }
        assert changed == {"prod/shop.yaml", "other/shop.yaml"}


def test_an_image_that_the_guard_forbids_holds_no_other(tmp_path):
    with following(tmp_path, ("shop", "worker")) as (world, tags):
        guard = "apiVersion: reconciler/v1\nkind: Guard\nmetadata: {name: this}\nspec: {policy: {images: {forbidTags: ['1.5.0']}}}\n"
        file = world.repository.local / "guard.yaml"
        file.write_text(guard)
        file.chmod(0o600)
        tags.of["shop"].append("1.5.0")
        tags.of["worker"].append("1.7.0")
        world.later()
        world.until(lambda: "1.7.0" in world.repository.show("main:prod/worker.yaml"), "the other image is written")
        assert "1.4.0" in world.repository.show("main:prod/shop.yaml")
