"""Image policies with a real registry and a real repository: what is found becomes one commit, and is never written twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from manifests.values.write_back import Registry
from reconciler.registry.client import RegistryClient
from tests.deployments.deployer_world import World
from tests.deployments.registry import put
from tests.deployments.written_world import Repository
from tests.git.upstream import git
from tests.providers.runtime.docker.registry import RegistryServer

pytestmark = pytest.mark.server("docker-registry")

WORKLOAD = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: %(name)s}
spec:
  nodes: [engine]
  imagePolicies: [{container: main, %(rule)s}]
  template:
    spec:
      containers:
        - name: main
          image: %(image)s  # kept
"""


class Followed(World):
    """A world whose policies ask a real registry. `asks` counts the passes."""

    def __init__(self, repository: Repository, registry: RegistryServer) -> None:
        self.asks = 0
        super().__init__(repository, self._connect)
        self.registry = registry

    def _connect(self, settings: Registry) -> RegistryClient:
        self.asks += 1
        return RegistryClient(settings, lambda: 0, lambda: 0.0)


def workload(name: str, rule: str, image: str) -> str:
    return WORKLOAD % {"name": name, "rule": rule, "image": image}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryServer]:
    with RegistryServer(tmp_path / "registry", "/nonexistent") as server:
        put(server, "shop", "1.4.0")
        yield server


@contextmanager
def following(
    tmp_path: Path, registry: RegistryServer, files: dict[str, str], write: str = "writeBack: {mode: commit}"
):
    repository = Repository(tmp_path)
    repository.upstream.commit({"prod/shop.yaml": None, **{f"prod/{name}.yaml": text for name, text in files.items()}})
    repository.declare(write, f"imagePolicies: {{registries: [{{server: '{registry.host}', insecure: true}}]}}")
    world = Followed(repository, registry)
    try:
        yield world
    finally:
        world.service.close()
        world.policies.close()


def shown(world: World, name: str = "shop") -> str:
    return world.repository.show(f"main:prod/{name}.yaml")


def test_a_newer_version_becomes_a_commit_of_one_line(tmp_path, registry):
    image = f"{registry.host}/shop:1.4.0"
    with following(tmp_path, registry, {"shop": workload("shop", 'semver: ">=1.4 <2"', image)}) as world:
        before = shown(world)
        for tag in ("1.5.0", "1.6.0-rc.1", "2.0.0", "latest"):
            put(registry, "shop", tag)
        world.later()
        world.until(lambda: shown(world) != before, "the image is written")
        assert shown(world) == before.replace(":1.4.0", ":1.5.0")
        assert world.repository.stat().split() == ["1", "1", "prod/shop.yaml"]
        message = git("log", "-1", "--format=%B", at=world.repository.upstream.bare)
        assert "deploy shop 1.4.0 -> 1.5.0" in message
        assert "requested by: image policies" in message
        assert "1.5.0 is the newest for semver >=1.4 <2" in message
        world.until(lambda: bool(world.hurried), "the source is read soon")
        assert [event.actor for event in world.events] == ["image policy"]


def test_images_of_one_release_become_one_commit(tmp_path, registry):
    put(registry, "worker", "1.4.0")
    files = {name: workload(name, 'semver: "1.x"', f"{registry.host}/{name}:1.4.0") for name in ("shop", "worker")}
    with following(tmp_path, registry, files) as world:
        commits = len(world.repository.log())
        for name in files:
            put(registry, name, "1.5.0")
        world.later()
        world.until(lambda: len(world.repository.log()) > commits, "the images are written")
        assert len(world.repository.log()) == commits + 1
        assert "worker:1.5.0" in shown(world, "worker")
        assert "shop:1.5.0" in shown(world)


def test_what_was_reverted_is_not_written_again_but_a_newer_one_is(tmp_path, registry):
    image = f"{registry.host}/shop:1.4.0"
    original = workload("shop", 'semver: "1.x"', image)
    with following(tmp_path, registry, {"shop": original}) as world:
        put(registry, "shop", "1.5.0")
        world.later()
        world.until(lambda: "1.5.0" in shown(world), "the image is written")
        world.later()  # it is in force
        world.until(
            lambda: world.service._remembered.followed["workload/shop main"].written != (), "it came into force"
        )
        git("fetch", "-q", str(world.repository.upstream.bare), "main", at=world.repository.upstream.work)
        git("reset", "-q", "--soft", "FETCH_HEAD", at=world.repository.upstream.work)
        world.repository.upstream.commit({"prod/shop.yaml": original})
        commits = len(world.repository.log())
        for _ in range(3):
            world.later()
            world.until(
                lambda: world.service._remembered.followed["workload/shop main"].taken_back != (), "it was taken back"
            )
        world.service.close()
        again = Followed(world.repository, registry)  # another process
        again.later()
        again.until(lambda: again.asks > 0, "the registry is asked")
        put(registry, "shop", "1.5.1")
        again.later()
        again.until(lambda: "1.5.1" in shown(again), "the newer image is written")
        assert len(again.repository.log()) == commits + 1
        again.service.close()
        again.policies.close()


def test_a_tag_that_moves_is_pinned_by_its_digest(tmp_path, registry):
    first = put(registry, "shop", "stable", "one")
    rule = "digest: {tag: stable}"
    with following(tmp_path, registry, {"shop": workload("shop", rule, f"{registry.host}/shop:stable")}) as world:
        world.until(lambda: f"shop:stable@{first}" in shown(world), "the digest is written")
        second = put(registry, "shop", "stable", "two")
        world.later()
        world.until(lambda: f"shop:stable@{second}" in shown(world), "the new digest is written")


def test_a_registry_that_is_down_changes_nothing_and_is_reported_once(tmp_path, registry):
    image = f"{registry.host}/shop:1.4.0"
    with following(tmp_path, registry, {"shop": workload("shop", 'semver: "1.x"', image)}) as world:
        registry.stop()
        commits = len(world.repository.log())
        for _ in range(3):
            world.later()
            world.until(lambda: bool(world.notes), "the registry is reported")
        assert len(world.notes) == 1
        assert "change nothing" in world.notes[0]
        registry.start()
        put(registry, "shop", "1.5.0")
        world.later()
        world.until(lambda: len(world.repository.log()) == commits + 1, "the image is written")


def test_without_the_right_a_policy_says_what_it_would_write(tmp_path, registry):
    image = f"{registry.host}/shop:1.4.0"
    put(registry, "shop", "1.5.0")
    with following(tmp_path, registry, {"shop": workload("shop", 'semver: "1.x"', image)}, write="") as world:
        world.until(lambda: any("may not be written" in note for note in world.notes), "the refusal is reported")
        assert "1.5.0" in world.notes[0]
        world.later()
        world.until(lambda: world.policies.ask(world.service._desired, {}).pause > 1, "it is asked again")
        assert len(world.notes) == 1
        assert [(event.object, event.outcome) for event in world.events] == [("workload/shop", "held")]


@pytest.mark.parametrize(
    ("rule", "local", "said"),
    [
        ('semver: "1.x"', "", "the Instance does not allow them"),
        ('semver: "1.x"', "imagePolicies: {registries: [{server: other.test}]}", "is not in the Instance"),
        ('semver: "1.x", newest: {pattern: "{value}"}', "imagePolicies: {}", "exactly one of"),
        ("semver: latest", "imagePolicies: {}", "is not a comparator"),
        ('newest: {pattern: "(a+)+{value}"}', "imagePolicies: {}", "is not a pattern"),
        ('newest: {pattern: "*-*-{value}"}', "imagePolicies: {}", "is not a pattern"),
        ('digest: {tag: "a b"}', "imagePolicies: {}", "is not a tag"),
    ],
)
def test_policies_that_cannot_work_are_problems(tmp_path, registry, reconcile, rule, local, said):
    repository = Repository(tmp_path)
    repository.upstream.commit({"prod/shop.yaml": workload("shop", rule, f"{registry.host}/shop:1.4.0")})
    done = reconcile("validate", "--instance", repository.declare(spec=local))
    assert done.code == 3
    assert said in done.out + done.err


def test_a_tree_cannot_allow_itself_to_write(tmp_path, reconcile):
    for field in ("deployments: [{workload: web, token: {env: X}}], push: {}", "imagePolicies: {}"):
        (tmp_path / "all.yaml").write_text(
            f"apiVersion: reconciler/v1\nkind: Instance\nmetadata: {{name: this}}\nspec: {{id: x, {field}}}\n"
        )
        done = reconcile("validate", tmp_path)
        assert done.code == 3
        assert "does nothing in the tree" in done.out + done.err
