"""Merge requests planned by a real daemon: a real bare repository, real processes, and a forge that speaks the real APIs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from manifests.values.notices import ForgeType
from tests.e2e.test_git_source import HOST, SENTINEL, WEB, Host, eventually
from tests.forge.fake_forge import PROJECT, TOKEN, Repository, serving
from tests.git.upstream import git

REFS = {ForgeType.GITLAB: "refs/merge-requests/{}/head"}


class Reviewed:
    """A host that plans merge requests of a forge."""

    def __init__(self, base: Path, forge: Repository) -> None:
        self.host, self.forge = Host(base), forge
        token = base / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        source = f"url: '{self.host.upstream.url}//set?ref=main', interval: 10s"
        spec = [
            f"id: {self.host.id}",
            "prune: true",
            "allowProcess: [web, more]",
            f"source: {{{source}}}",
            f"forge: {{type: {forge.dialect.value}, url: '{forge.url}', project: {PROJECT}, token: {{file: '{token}'}}}}",
            "reviews: {interval: 10s, timeout: 60s}",
        ]
        file = self.host.local / "host.yaml"
        head = "apiVersion: reconciler/v1\nkind: Instance\nmetadata: {name: this}\nspec:\n"
        file.write_text(head + "".join(f"  {line}\n" for line in spec) + f"---\n{HOST}")

    def propose(self, number: int, files: dict[str, str | None], source: str = PROJECT) -> str:
        """A merge request with one commit on top of main; the work tree goes back to main."""
        upstream = self.host.upstream
        commit = upstream.commit(files, branch=f"change-{number}")
        upstream.push(f"{commit}:{REFS.get(self.forge.dialect, 'refs/pull/{}/head').format(number)}")
        upstream.rewind()
        self.forge.requests = [row for row in self.forge.requests if number not in (row.get("number"), row.get("iid"))]
        self.forge.push_request(number, commit, f"change-{number}", source)
        return commit

    def merge(self, commit: str) -> None:
        git("merge", "-q", "--ff-only", commit, at=self.host.upstream.work)
        self.host.upstream.push("HEAD:refs/heads/main")

    def squash(self, commit: str) -> str:
        """The same tree as another commit, as the button of a forge makes it."""
        git("checkout", "-q", commit, "--", ".", at=self.host.upstream.work)
        return self.host.upstream.commit({})

    def comment(self, number: int) -> str:
        found = [row["body"] for row in self.forge.comments.get(number, [])]
        assert len(found) <= 1
        return found[0] if found else ""

    def statuses(self, commit: str, which: str) -> list[tuple[str, str]]:
        context = f"reconciler/{self.host.id}/{which}"
        rows = [row for row in self.forge.statuses if (row["commit"], row["context"]) == (commit, context)]
        return [(row["state"], row["description"]) for row in rows]

    def review_of(self, commit: str) -> str:
        code, out = self.host.here("wait", "--commit", commit, "--timeout", "1s", "-o", "json")
        assert code in {0, 6, 7, 8}, out
        return json.loads(out[out.index("{") :])["review"] or ""


@contextmanager
def reviewed(base: Path, dialect: ForgeType) -> Iterator[Reviewed]:
    with serving(dialect) as forge:
        world = Reviewed(base, forge)
        try:
            with world.host.daemon():
                eventually(lambda: world.host.running() == ["one"])
                yield world
        finally:
            world.host.run("destroy", "--instance-id", world.host.id, "--yes")


@pytest.fixture(params=list(ForgeType))
def any_forge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reviewed]:
    with reviewed(tmp_path, request.param) as world:
        yield world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Reviewed]:
    with reviewed(tmp_path, ForgeType.GITHUB) as made:
        yield made


def test_a_fork_is_planned_commented_and_merged_as_reviewed(any_forge: Reviewed) -> None:
    world, host = any_forge, any_forge.host
    head = world.propose(7, {"set/web.yaml": WEB % "two"}, source="stranger/fork")
    eventually(lambda: world.statuses(head, "plan"))
    (state, text), *_ = world.statuses(head, "plan")
    assert state == "success"
    assert text.startswith("plan: ")
    comment = world.comment(7)
    assert f"stop {host.id}-web-" in comment
    assert "containers[web].command (forces a new container)" in comment
    assert "two" not in comment  # names only: the reader may be anyone
    assert host.running() == ["one"]
    world.merge(head)
    eventually(lambda: host.running() == ["two"])
    eventually(lambda: world.review_of(head))
    assert world.review_of(head).startswith("as reviewed in merge request 7")
    assert [state for state, _ in world.statuses(head, "review")] == ["success"]
    eventually(lambda: "as reviewed in merge request 7" in host.here("events")[1])


def test_a_merge_that_is_not_what_was_reviewed_says_what_differs(world: Reviewed) -> None:
    host = world.host
    head = world.propose(8, {"set/web.yaml": WEB % "two"})
    eventually(lambda: world.statuses(head, "plan"))
    git("merge", "-q", "--ff-only", head, at=host.upstream.work)
    other = WEB.replace("terminationGracePeriodSeconds: 1", "terminationGracePeriodSeconds: 2") % "three"
    (host.upstream.work / "set/web.yaml").write_text(other)
    git("commit", "-q", "-a", "-m", "an edit on the way", at=host.upstream.work)
    parent = git("rev-parse", "HEAD", at=host.upstream.work)
    host.upstream.push("HEAD:refs/heads/main")
    eventually(lambda: host.running() == ["three"])
    eventually(lambda: world.review_of(parent))
    text = world.review_of(parent)
    assert text.startswith("differs from the plan reviewed in merge request 8: ")
    assert "workload/web: containers[web].command" in text or "terminationGracePeriodSeconds" in text
    assert [state for state, _ in world.statuses(parent, "review")] == ["failure"]


def test_a_squash_is_recognized_by_its_tree_and_others_are_named(world: Reviewed) -> None:
    host = world.host
    head = world.propose(9, {"set/web.yaml": WEB % "two"})
    eventually(lambda: world.statuses(head, "plan"))
    squashed = world.squash(head)
    assert squashed != head
    eventually(lambda: world.review_of(squashed))
    assert world.review_of(squashed).startswith("as reviewed in merge request 9")
    direct = host.upstream.commit({"set/web.yaml": WEB % "three"})
    eventually(lambda: world.review_of(direct))
    assert world.review_of(direct).startswith("no merge request")


def test_a_merge_is_compared_once_its_plan_can_be_made(world: Reviewed) -> None:
    host = world.host
    mirrors = host.home / "reconciler" / host.id / "reviews"
    mirrors.touch()  # no mirror can be made there
    merged = host.upstream.commit({"set/web.yaml": WEB % "two"})
    eventually(lambda: host.running() == ["two"])
    assert world.review_of(merged) == ""
    mirrors.unlink()
    eventually(lambda: world.review_of(merged))
    assert world.review_of(merged).startswith("no merge request")


def test_a_removal_is_in_the_plan_and_the_merge_is_as_reviewed(world: Reviewed) -> None:
    host = world.host
    host.upstream.commit({"set/more.yaml": WEB.replace("name: web", "name: more") % "more"})
    eventually(lambda: host.running() == ["more", "one"])
    head = world.propose(2, {"set/more.yaml": None})
    eventually(lambda: f"remove {host.id}-more-" in world.comment(2))
    world.merge(head)
    eventually(lambda: host.running() == ["one"])
    eventually(lambda: world.review_of(head))
    assert world.review_of(head).startswith("as reviewed in merge request 2")


def test_a_hostile_head_runs_nothing_and_is_refused_by_name(world: Reviewed) -> None:
    ran = world.host.base / "ran"
    strange = (
        "apiVersion: reconciler/v1\nkind: Provider\nmetadata: {name: mine}\n"
        f"spec: {{type: docker, url: 'unix://{world.host.base}/sock'}}\n"
    )
    head = world.propose(3, {"set/mine.yaml": strange}, source="stranger/fork")
    probing = WEB.replace(
        "          workingDir",
        f"          livenessProbe: {{exec: {{command: [touch, '{ran}']}}}}\n          workingDir",
    )
    harmless = world.propose(4, {"set/web.yaml": probing % "@everyone"}, source="stranger/fork")
    eventually(lambda: world.statuses(head, "plan") and world.statuses(harmless, "plan"))
    (state, text), *_ = world.statuses(head, "plan")
    assert (state, text.partition(": ")[0]) == ("failure", "the manifests are invalid")
    assert "local-only" in world.comment(3)
    assert str(world.host.local) not in world.comment(3)
    assert "@everyone" not in world.comment(4)
    assert not ran.exists()
    assert world.host.running() == ["one"]


def test_a_head_is_planned_again_only_when_it_or_the_base_changed(world: Reviewed) -> None:
    first = world.propose(5, {"set/web.yaml": WEB % "two"})
    eventually(lambda: world.statuses(first, "plan"))
    second = world.propose(5, {"set/web.yaml": WEB % "three"})
    eventually(lambda: world.statuses(second, "plan"))
    assert len(world.statuses(first, "plan")) == 1
    world.host.upstream.commit({"set/web.yaml": WEB % "four"})
    eventually(lambda: len(world.statuses(second, "plan")) == 2)
    assert len(world.forge.comments[5]) == 1
    assert "does not contain the commit in force" in world.comment(5)


def test_a_locked_merge_request_holds_up_no_other_one(world: Reviewed) -> None:
    world.forge.locked = {9}
    locked = world.propose(9, {"set/web.yaml": WEB % "two"})
    other = world.propose(5, {"set/web.yaml": WEB % "three"})  # the newest ones come first
    eventually(lambda: world.statuses(other, "plan"))
    asked = [
        path for method, path, _, _ in world.forge.seen if method == "POST" and path.endswith("/issues/9/comments")
    ]
    assert len(asked) == 1
    assert world.statuses(locked, "plan") == []


def test_no_comment_status_or_event_has_the_token(world: Reviewed) -> None:
    head = world.propose(6, {"set/web.yaml": WEB % SENTINEL})
    eventually(lambda: world.statuses(head, "plan"))
    written = json.dumps([row for _, _, _, row in world.forge.seen])
    assert TOKEN not in written
    assert SENTINEL not in written
    state = world.host.home / "reconciler" / world.host.id
    assert (state / "reviews.json").stat().st_mode & 0o777 == 0o600
    assert TOKEN not in (state / "reviews.json").read_text()
    assert SENTINEL not in (state / "reviews.json").read_text()
    assert TOKEN not in world.host.here("events")[1]
