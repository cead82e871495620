"""Image policies that roll out without a commit, with a real registry and a real repository: which manifests result, and what stays after a restart."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.load import with_choices
from manifests.problems import ManifestErrors
from manifests.source.git_url import parse
from manifests.values.desired import SECOND, Desired, Workload
from manifests.values.image_choice import IMAGE_POLICY
from manifests.values.write_back import Registry
from providers.wrappers.recorded import Recorded
from reconciler import saved_plan
from reconciler.core.image_choices import Judgement, Verdict
from reconciler.core.plan_places import of_choices
from reconciler.deployments.choices import Choices, ChoiceStore, Links
from reconciler.deployments.policies import Policies
from reconciler.registry.client import RegistryClient
from reconciler.shell.instance_clock import ClockRecord
from reconciler.shell.store import image_choices, last_good
from reconciler.shell.store.last_good import LastGood
from reconciler.snapshots import document
from reconciler.snapshots.snapshot import Snapshot, masked
from reconciler.tree import Location, resolve
from tests.deployments.deployer_world import wall
from tests.deployments.registry import put
from tests.deployments.test_image_policies import workload
from tests.deployments.written_world import Repository
from tests.providers.runtime.docker.registry import RegistryServer

pytestmark = pytest.mark.server("docker-registry")

SEMVER = 'semver: "1.x"'
KEY = "workload/shop"


class Host:
    """A host that follows the repository. `put_in_force` does what the loop does, `pass_` what the thread of deployments does."""

    def __init__(self, tmp_path: Path, registry: RegistryServer, rule: str = SEMVER, tag: str = "1.4.0") -> None:
        self.repository, self.registry, self.state = Repository(tmp_path), registry, tmp_path / "state"
        self.state.mkdir(mode=0o700)
        self.seconds, self.asked = 0.0, 0
        self.write(tag, rule)
        self.allow("rollout")
        self.policies: Policies | None = None
        self.start()

    def start(self) -> None:
        """Another process."""
        if self.policies is not None:
            self.policies.close()
        self.events: list[tuple[str, str, str]] = []
        self.notes: list[str] = []
        self.hurried: list[str] = []
        self.policies = Policies(self._connect, lambda: self.seconds, self.notes.append, 0.0)
        links = Links(
            lambda event: self.events.append((event.step, event.outcome, event.message)),
            self.hurried.append,
            self.notes.append,
        )
        self.choices = Choices(ChoiceStore(self.state), self.policies, links, wall)
        self.desired = self.put_in_force()

    def _connect(self, settings: Registry) -> RegistryClient:
        self.asked += 1
        return RegistryClient(settings, lambda: 0, lambda: 0.0)

    def image(self, tag: str) -> str:
        return f"{self.registry.host}/shop:{tag}"

    def write(self, tag: str, rule: str = SEMVER) -> str:
        text = workload("shop", rule, self.image(tag))
        return self.repository.upstream.commit({"prod/shop.yaml": text})

    def allow(self, apply: str, more: str = "") -> None:
        registries = f"registries: [{{server: '{self.registry.host}', insecure: true}}]"
        self.repository.declare(spec=f"imagePolicies: {{apply: {apply}, {registries}}}")
        if more:
            file = self.repository.local / "guard.yaml"
            file.write_text(f"apiVersion: reconciler/v1\nkind: Guard\nmetadata: {{name: this}}\nspec: {more}\n")
            file.chmod(0o600)

    @property
    def location(self) -> Location:
        return Location(parse(self.repository.url), self.repository.local, self.state)

    def put_in_force(self) -> Desired:
        """Read the source, and keep what is in force."""
        sources = self.location.read()
        self.desired = resolve(sources)
        last_good.save(self.state, LastGood(sources, self.repository.id, "", 1))
        return self.desired

    def pass_(self, *judgements: Judgement) -> str:
        """Two passes of the thread, so that what one found is gathered; then the image that is in force."""
        for _ in range(2):
            self.seconds += 1_000.0
            if self.desired.instance.writing.images.apply == "rollout":
                self.choices.follow(self.desired, judgements)
            else:
                self.choices.drop()
            self.put_in_force()
        return self.shown()

    @property
    def shop(self) -> Workload:
        return next(known for known in self.desired.workloads if known.key == KEY)

    def shown(self) -> str:
        """The tag, or what follows it, of the image that is in force."""
        return self.shop.template.container.engine.image.removeprefix(f"{self.registry.host}/shop:")

    def failed(self, tag: str, verdict: Verdict = Verdict.FAILED) -> Judgement:
        return Judgement(KEY, "main", self.image(tag), verdict, self.shop.template.revision, "it fails")


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryServer]:
    with RegistryServer(tmp_path / "registry", "/nonexistent") as server:
        put(server, "shop", "1.4.0")
        yield server


@pytest.fixture
def host(tmp_path: Path, registry: RegistryServer) -> Iterator[Host]:
    made = Host(tmp_path, registry)
    yield made
    made.policies.close()


def test_what_a_policy_finds_is_in_the_manifests_without_a_commit(host: Host):
    before, commits = host.desired, host.repository.log()
    put(host.registry, "shop", "1.5.0")
    assert host.pass_() == "1.5.0"
    assert host.repository.log() == commits
    assert host.hurried
    assert host.desired.revision != before.revision
    only = replace(host.shop, template=before.workloads[0].template, image_choices=(), image_policies=())
    assert only == replace(before.workloads[0], image_choices=(), image_policies=()), "only the image changed"
    assert of_choices(host.desired) == {(KEY, "containers[main].image"): IMAGE_POLICY}
    assert [(action, outcome) for action, outcome, _ in host.events] == [(f"use {host.image('1.5.0')}", "chosen")]
    file = host.state / image_choices.FILE
    assert file.stat().st_mode & 0o777 == 0o600
    host.pass_()  # it is in force
    # A quiet pass writes nothing.
    changed = file.stat().st_mtime_ns
    assert host.pass_() == "1.5.0"
    assert file.stat().st_mtime_ns == changed
    assert len(host.events) == 1


def test_another_process_has_the_same_revision_and_asks_no_registry(host: Host):
    put(host.registry, "shop", "1.5.0")
    host.pass_()
    revision = host.desired.revision
    host.registry.stop()
    asked = host.asked
    host.start()
    assert (host.shown(), host.desired.revision, host.asked) == ("1.5.0", revision, asked)
    assert host.pass_() == "1.5.0", "a registry that does not answer changes nothing"
    assert sum("does not answer" in note or "change nothing" in note for note in host.notes) == 1
    host.registry.start()


def test_an_image_that_failed_is_not_chosen_again_and_a_newer_one_is(host: Host):
    put(host.registry, "shop", "1.5.0")
    host.pass_()
    host.put_in_force()
    assert host.pass_(host.failed("1.5.0")) == "1.4.0"
    assert [outcome for _, outcome, _ in host.events] == ["chosen", "taken back"]
    (known,) = host.shop.image_choices
    assert (known.image, known.refused) == ("", {host.image("1.5.0")})
    host.start()
    assert host.pass_() == "1.4.0"
    put(host.registry, "shop", "1.5.1")
    assert host.pass_() == "1.5.1"


def test_a_newer_image_takes_the_place_of_one_that_is_stuck(host: Host):
    put(host.registry, "shop", "1.5.0")
    host.pass_()
    put(host.registry, "shop", "1.6.0")
    assert host.pass_(host.failed("1.5.0", Verdict.FAILING)) == "1.6.0"
    assert host.pass_(host.failed("1.6.0")) == "1.4.0", "neither of the two is gone back to"


def test_a_tag_that_moves_is_followed_but_not_back_to_what_failed(tmp_path: Path, registry: RegistryServer):
    first = put(registry, "shop", "stable", "one")
    host = Host(tmp_path, registry, "digest: {tag: stable}", "stable")
    assert host.pass_() == f"stable@{first}"
    proved = Judgement(KEY, "main", host.image(f"stable@{first}"), Verdict.PROVED, host.shop.template.revision)
    host.pass_(proved)
    second = put(registry, "shop", "stable", "two")
    assert host.pass_() == f"stable@{second}"
    assert host.pass_(host.failed(f"stable@{second}")) == f"stable@{first}"
    put(registry, "shop", "stable", "one")
    assert host.pass_() == f"stable@{first}"
    put(registry, "shop", "stable", "two")  # the tag comes back to it
    assert host.pass_() == f"stable@{first}"
    third = put(registry, "shop", "stable", "three")
    assert host.pass_() == f"stable@{third}"
    host.policies.close()


def test_a_commit_of_the_image_wins_and_its_revert_brings_nothing_back(host: Host):
    put(host.registry, "shop", "1.5.0")
    host.pass_()
    host.write("1.5.0")
    assert host.pass_() == "1.5.0"
    assert host.shop.image_choices[0].image == ""
    host.write("1.4.0")  # the revert
    assert host.pass_() == "1.4.0"
    assert host.pass_() == "1.4.0", "the policy does not undo the revert"
    host.write("1.4.0", 'semver: ">=1.4 <3"')
    assert host.pass_() == "1.4.0"
    put(host.registry, "shop", "1.6.0")
    assert host.pass_() == "1.6.0"


def test_a_commit_of_something_else_keeps_the_choice(host: Host):
    put(host.registry, "shop", "1.5.0")
    host.pass_()
    before = host.desired.revision
    host.repository.upstream.commit(
        {"prod/shop.yaml": workload("shop", SEMVER, host.image("1.4.0")).replace("# kept", "# another comment")}
    )
    host.put_in_force()
    assert host.shown() == "1.5.0"
    assert host.desired.revision != before
    host.write("1.4.0", 'semver: ">=1.5 <2"')
    assert host.put_in_force()
    assert host.shown() == "1.5.0", "a policy that still allows the image keeps it"
    host.write("1.4.0", 'semver: "<1.5"')
    host.put_in_force()
    assert host.shown() == "1.4.0"


def test_without_its_policy_or_the_right_the_image_of_the_manifest_is_back(host: Host):
    put(host.registry, "shop", "1.5.0")
    host.pass_()
    host.allow("commit")
    host.put_in_force()
    assert host.shown() == "1.4.0"
    host.pass_()
    assert [outcome for _, outcome, _ in host.events] == ["chosen", "ended"]
    host.allow("rollout")
    host.put_in_force()
    assert host.shown() == "1.4.0", "the choice does not come back"
    assert host.pass_() == "1.5.0", "the policy finds it"
    text = workload("shop", SEMVER, host.image("1.4.0"))
    line = next(line for line in text.splitlines() if "imagePolicies" in line)
    host.repository.upstream.commit({"prod/shop.yaml": text.replace(f"{line}\n", "")})
    host.put_in_force()
    assert host.shown() == "1.4.0"
    assert host.pass_() == "1.4.0"


def test_the_tree_cannot_allow_it(tmp_path: Path, host: Host):
    put(host.registry, "shop", "1.5.0")
    host.pass_()
    sources = host.location.read()
    alone = Location(tmp_path / "work" / "prod", None, host.state).read()
    assert alone.choices == ()
    assert with_choices(replace(sources, local=None), sources.choices).choices == ()
    host.repository.upstream.commit(
        {
            "prod/instance.yaml": "apiVersion: reconciler/v1\nkind: Instance\nmetadata: {name: x}\n"
            "spec: {id: x, imagePolicies: {apply: rollout}}\n"
        }
    )
    with pytest.raises(ManifestErrors, match="Instance"):
        resolve(host.location.read())


FORBIDDEN = "{policy: {images: {forbidTags: ['1.5.0']}}}"


def test_an_image_that_the_guard_forbids_is_not_chosen_and_says_so(host: Host):
    host.allow("rollout", FORBIDDEN)
    host.put_in_force()
    put(host.registry, "shop", "1.5.0")
    assert host.pass_() == "1.4.0"
    assert host.pass_() == "1.4.0"
    assert [outcome for _, outcome, _ in host.events] == ["held"], "once"
    assert "may not be used" in host.events[0][2]


def test_a_guard_that_forbids_a_chosen_image_makes_no_commit_invalid(host: Host):
    put(host.registry, "shop", "1.5.0")
    host.pass_()
    host.allow("rollout", FORBIDDEN)
    sources = host.location.read()
    desired = host.put_in_force()
    assert desired.revision == sources.revision, "what is stored is what is in force"
    assert host.shown() == "1.4.0"
    with pytest.raises(ManifestErrors, match=r"1\.5\.0"):
        resolve(sources, strict=True)
    assert host.pass_() == "1.4.0"
    assert host.location.read().revision == host.desired.revision
    assert [outcome for _, outcome, _ in host.events] == ["chosen", "ended", "held"]


@pytest.mark.parametrize("damage", ["{", "", None], ids=["no JSON", "empty", "gone"])
def test_a_lost_or_damaged_file_changes_no_image(host: Host, damage: str | None):
    put(host.registry, "shop", "1.5.0")
    host.pass_()
    revision, file = host.desired.revision, host.state / image_choices.FILE
    if damage is None:
        file.unlink()
    else:
        file.write_text(damage)
    host.start()
    assert (host.shown(), host.desired.revision) == ("1.5.0", revision)
    assert host.pass_() == "1.5.0"
    assert any("damaged" in note for note in host.notes) is (damage is not None)


def test_a_file_that_cannot_be_written_changes_nothing(host: Host):
    host.pass_()
    put(host.registry, "shop", "1.5.0")
    (host.state / image_choices.FILE).unlink()
    (host.state / image_choices.FILE).mkdir()
    assert host.pass_() == "1.4.0"
    assert host.events == []
    assert any("none can be stored" in note for note in host.notes)
    (host.state / image_choices.FILE).rmdir()
    assert host.pass_() == "1.5.0"


def test_a_saved_plan_names_the_choice_that_moved(host: Host):
    before = host.location.read()
    put(host.registry, "shop", "1.5.0")
    host.pass_()
    after = host.location.read()
    digests = [saved_plan.file_digests("salt", saved_plan.tree_files(sources)) for sources in (before, after)]
    moved = list(saved_plan._moved_files(*digests, "manifest"))
    assert moved == [f"manifest image policy of {KEY}, container main is new"]


def test_the_file_holds_what_the_documentation_says(host: Host):
    put(host.registry, "shop", "1.5.0")
    host.pass_()
    (row,) = json.loads((host.state / image_choices.FILE).read_text())["choices"]
    assert (row["key"], row["container"], row["declared"], row["image"]) == (
        KEY,
        "main",
        host.image("1.4.0"),
        host.image("1.5.0"),
    )
    assert row["at_wall"] > SECOND


def test_a_snapshot_has_the_choices_for_plans_elsewhere(host: Host):
    put(host.registry, "shop", "1.5.0")
    host.pass_()
    host.pass_(host.failed("1.5.0"))
    put(host.registry, "shop", "1.6.0")
    host.pass_()
    chosen = host.shop.image_choices
    clock = ClockRecord("l", 2**60, 1, 1, "b", "m")
    whole = Snapshot(host.repository.id, host.desired.revision, "", 1, 0, clock, {}, Recorded(), {}, choices=chosen)
    assert document.read(document.write(whole)).choices == chosen
    exported = masked(replace(whole, view={"verdicts": [], "trials": [], "checks": []}), host.desired)
    assert "it fails" not in document.write(exported)
    elsewhere = Location(host.location.path, host.repository.local, host.state / "elsewhere").read()
    assert elsewhere.choices == ()
    assert resolve(with_choices(elsewhere, exported.choices)).revision == host.desired.revision
