"""`reconcile deploy` with a git source: one commit, a merge request, or a patch, on real repositories."""

import subprocess
from pathlib import Path

import pytest

from manifests.values.notices import ForgeType
from tests.deployments.deployer_world import token_file
from tests.deployments.written_world import SHOP, Repository
from tests.forge.fake_forge import PROJECT, TOKEN, serving
from tests.git.signed_repository import SshKey
from tests.git.upstream import CERTIFICATE, ENV, git, served

NEW = "registry.test:5000/shop:1.5"
READS, WRITES = "sentinel-reads-81c2", "sentinel-writes-44d9"
EDITED = SHOP.replace("shop:1.4", "shop:1.5")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def deploy(reconcile, repository, *words, image=NEW):
    return reconcile("deploy", "workload/shop", "--instance", repository.local, "--image", image, *words)


@pytest.mark.parametrize(("hash_name", "filters"), [("sha1", True), ("sha1", False), ("sha256", True)])
def test_one_commit_changes_only_the_line_of_the_image(tmp_path, reconcile, hash_name, filters):
    repository = Repository(tmp_path, hash_name=hash_name, filters=filters)
    repository.declare("writeBack: {mode: commit, author: {name: Deploy Bot, email: bot@example.com}}")
    done = deploy(reconcile, repository, "--reason", "ticket 12\nforged: line", "-o", "json")
    assert done.code == 0, done.err
    assert repository.show() == EDITED
    assert repository.stat().split() == ["1", "1", "prod/shop.yaml"]
    commits = repository.log()
    assert commits[1:] == [repository.first]
    assert done.document["commit"] == commits[0]
    assert (done.document["outcome"], done.document["ref"]) == ("commit", "refs/heads/main")
    people = git("log", "-1", "--format=%an <%ae> %cn <%ce>", at=repository.upstream.bare)
    assert people == "Deploy Bot <bot@example.com> Deploy Bot <bot@example.com>"
    message = git("log", "-1", "--format=%B", at=repository.upstream.bare)
    assert message.split("\n")[0] == "deploy shop 1.4 -> 1.5"
    assert "workload/shop, container shop: registry.test:5000/shop:1.4 -> registry.test:5000/shop:1.5" in message
    assert "reason: ticket 12 forged: line" in message
    assert "requested by: reconcile deploy by ada" in message
    git("fsck", "--strict", at=repository.upstream.bare)


def test_the_same_image_again_makes_no_second_commit(repository, reconcile):
    assert deploy(reconcile, repository).code == 0
    again = deploy(reconcile, repository, "-o", "json")
    assert (again.code, again.document["outcome"], again.document["changed"]) == (0, "unchanged", False)
    assert len(repository.log()) == 2


def test_a_signed_commit_passes_the_check_of_signatures(repository, reconcile):
    key = SshKey(repository.base, "bot")
    signers = repository.base / "signers"
    signers.write_text(f"bot@example.com {key.line}\n")
    repository.declare(f"writeBack: {{mode: commit, signingKey: {{file: '{key.file}'}}}}")
    assert deploy(reconcile, repository).code == 0
    repository.declare(f"verify: {{mode: head, keys: [{{ssh: '{signers}'}}]}}, writeBack: {{mode: commit}}")
    assert reconcile("validate", "--instance", repository.local).code == 0
    unsigned = deploy(reconcile, repository, image="registry.test:5000/shop:1.6")
    assert unsigned.code == 7
    assert "writeBack has no signingKey" in unsigned.err
    assert len(repository.log()) == 2


def test_a_lost_race_is_redone_on_the_new_head(repository, reconcile):
    repository.race(2)
    done = deploy(reconcile, repository)
    assert done.code == 0, done.err
    subjects = git("log", "--format=%s", "main", at=repository.upstream.bare).split("\n")
    assert subjects == ["deploy shop 1.4 -> 1.5", "another change 1", "another change 0", "a change"]
    assert repository.show() == EDITED


def test_a_branch_that_moves_all_the_time_ends_the_tries(repository, reconcile):
    repository.race(100)
    done = deploy(reconcile, repository)
    assert done.code == 1
    assert "the branch moved 3 times" in done.err
    assert len(repository.log()) == 4
    assert repository.show() == SHOP


def test_a_branch_that_went_back_is_not_made_longer_again(repository, reconcile):
    repository.upstream.commit({"prod/sub/note.txt": "second"})
    assert deploy(reconcile, repository).code == 0
    repository.upstream.rewind()
    repository.upstream.push("HEAD:refs/heads/main")
    assert deploy(reconcile, repository).code == 0
    assert repository.log()[1:] == [repository.first]


def applied(repository, patch: str) -> str:
    """What `git apply` makes of a patch in a checkout of the repository."""
    clone = repository.base / "clone"
    git("clone", "-q", str(repository.upstream.bare), str(clone))
    subprocess.run(["git", "apply", "-"], cwd=clone, env=ENV, input=patch.encode(), check=True)
    return (clone / "prod" / "shop.yaml").read_text()


def test_without_the_right_the_patch_is_printed_and_applies(repository, reconcile):
    repository.declare()
    done = deploy(reconcile, repository)
    assert done.code == 7
    assert "no local document allows to write to the source" in done.err
    assert applied(repository, done.out) == EDITED
    assert len(repository.log()) == 1


def test_a_refused_push_gives_the_patch_and_the_reason_of_the_remote(repository, reconcile):
    repository.refuse("protected branch")
    done = deploy(reconcile, repository)
    assert done.code == 7
    assert "protected branch" in done.err
    assert applied(repository, done.out) == EDITED


@pytest.mark.parametrize("ending", ["", "\n", "\n# last line"])
def test_patches_apply_to_files_of_every_ending(tmp_path, reconcile, ending):
    repository = Repository(tmp_path, shop=SHOP.removesuffix("   # the release job writes this\n") + ending)
    repository.declare()
    done = deploy(reconcile, repository, "-o", "json")
    assert done.code == 7
    assert "shop:1.5" in applied(repository, done.document["patch"])


def test_a_tag_and_a_pinned_commit_give_a_patch(repository, reconcile):
    repository.upstream.tag("v1", annotated=True)
    for ref in ("v1", repository.first):
        repository.declare("writeBack: {mode: commit}", ref=ref)
        done = deploy(reconcile, repository)
        assert done.code == 7
        assert "no branch" in done.err
    assert len(repository.log()) == 1


def test_another_repository_gets_neither_commit_nor_credentials(repository, reconcile, tmp_path):
    (tmp_path / "second").mkdir()
    other = Repository(tmp_path / "second")
    done = reconcile("deploy", "workload/shop", other.url, "--instance", repository.local, "--image", NEW)
    assert done.code == 7
    assert len(other.log()) == len(repository.log()) == 1


def test_a_source_that_cannot_be_read_ends_with_its_own_code(repository, reconcile):
    assert deploy(reconcile, repository, image="registry.test:5000/shop:1.4").code == 0  # its mirror has the commit
    away = repository.upstream.bare.rename(repository.base / "away.git")
    done = deploy(reconcile, repository)
    assert done.code == 8
    assert "next step: check the address of the source" in done.err
    away.rename(repository.upstream.bare)
    assert len(repository.log()) == 1
    signers = repository.base / "signers"
    signers.write_text(f"other@example.com {SshKey(repository.base, 'other').line}\n")
    repository.declare(f"verify: {{mode: head, keys: [{{ssh: '{signers}'}}]}}, writeBack: {{mode: commit}}")
    assert deploy(reconcile, repository).code == 8
    assert len(repository.log()) == 1


def test_invalid_manifests_get_no_commit(repository, reconcile):
    repository.upstream.commit({"prod/shop.yaml": SHOP + "  replicas: -1\n"})
    assert deploy(reconcile, repository).code == 3
    assert len(repository.log()) == 2


def test_a_linked_manifest_is_not_replaced(repository, reconcile):
    repository.upstream.commit({"prod/shop.yaml": None, "prod/real/shop.yml": SHOP, "prod/a/shop.yaml": None})
    done = deploy(reconcile, repository)
    assert done.code == 0
    repository.upstream.work.joinpath("prod/real").rename(repository.upstream.work / "prod/.real")
    git("fetch", "-q", str(repository.upstream.bare), "main", at=repository.upstream.work)
    git("reset", "-q", "--soft", "FETCH_HEAD", at=repository.upstream.work)
    repository.upstream.commit({"prod/shop.yaml": "-> .real/shop.yml"})
    count = len(repository.log())
    done = deploy(reconcile, repository, image="registry.test:5000/shop:1.6")
    assert done.code == 1
    assert "no regular file" in done.err
    assert len(repository.log()) == count


@pytest.mark.parametrize("dialect", list(ForgeType))
def test_a_merge_request_is_opened_once(repository, reconcile, dialect, monkeypatch):
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    with serving(dialect) as forge:
        spec = f"forge: {{type: {dialect.value}, url: '{forge.url}', project: {PROJECT}, token: {{env: FORGE_TOKEN}}}}"
        repository.declare("writeBack: {mode: mergeRequest}", spec)
        done = deploy(reconcile, repository, "--reason", "@everyone <b>now</b>", "-o", "json")
        assert done.code == 0, done.err
        branch = done.document["ref"].removeprefix("refs/heads/")
        assert branch.startswith("reconcile/deploy-shop-")
        assert repository.show(f"{branch}:prod/shop.yaml") == EDITED
        assert len(repository.log()) == 1
        again = deploy(reconcile, repository, "-o", "json")
        assert again.document["commit"] == done.document["commit"]
        assert len(forge.requests) == 1
        body = next(body for method, path, _, body in forge.seen if method == "POST")
        text = body.get("body") or body.get("description")
        assert all(line.startswith("    ") for line in text.split("\n"))
        moved = repository.upstream.commit({"prod/sub/note.txt": "moved"})
        assert deploy(reconcile, repository).code == 0
        assert repository.log(branch)[1:] == [moved, repository.first]
        assert len(forge.requests) == 1


def test_a_branch_with_commits_of_a_reviewer_is_kept(repository, reconcile, monkeypatch):
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    with serving(ForgeType.GITEA) as forge:
        spec = f"forge: {{type: gitea, url: '{forge.url}', project: {PROJECT}, token: {{env: FORGE_TOKEN}}}}"
        repository.declare("writeBack: {mode: mergeRequest}", spec)
        ref = deploy(reconcile, repository, "-o", "json").document["ref"]
        review = repository.upstream.commit({"prod/sub/note.txt": "a review"}, branch=ref.removeprefix("refs/heads/"))
        done = deploy(reconcile, repository)
        assert done.code == 7
        assert "of another author" in done.err
        assert git("rev-parse", ref, at=repository.upstream.bare) == review


def test_over_https_only_the_push_has_the_token_that_writes(repository, reconcile):
    git("config", "http.receivepack", "true", at=repository.upstream.bare)

    def rights(handler) -> bool:
        handler.token = WRITES if "receive-pack" in handler.path else READS
        return False

    with served(repository.base, READS, rights) as server:
        tokens = [token_file(repository.base, text, name) for text, name in ((READS, "reads"), (WRITES, "writes"))]
        access = f"token: {{file: '{tokens[0]}'}}, caFile: '{CERTIFICATE}'"
        repository.declare_url(f"{server.url}//prod?ref=main", access)
        refused = deploy(reconcile, repository)
        assert refused.code == 7
        repository.declare_url(f"{server.url}//prod?ref=main", f"{access}, writeBack: {{mode: commit}}")
        done = deploy(reconcile, repository)
        assert done.code == 3
        assert "writeBack needs token" in done.err
        for token, code in ((tokens[0], 7), (tokens[1], 0)):
            write = f"writeBack: {{mode: commit, token: {{file: '{token}'}}}}"
            repository.declare_url(f"{server.url}//prod?ref=main", f"{access}, {write}")
            done = deploy(reconcile, repository)
            assert done.code == code, done.err
            assert READS not in done.out + done.err
            assert WRITES not in done.out + done.err
        assert repository.show() == EDITED


STAGING = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: shop}
spec:
  template:
    spec:
      containers:
        - name: shop
          image: registry.test:5000/shop:1.3
"""


def test_the_image_is_written_where_the_environment_has_it(repository, reconcile):
    repository.upstream.commit(
        {
            "prod/environments/staging/shop.yaml": STAGING,
            "prod/environments/live/shop.yaml": STAGING[: STAGING.index("  template")] + "  minReadySeconds: 1\n",
        }
    )
    repository.declare("env: staging, writeBack: {mode: commit}")
    done = deploy(reconcile, repository, "-o", "json")
    assert done.code == 0, done.err
    assert done.document["file"] == "environments/staging/shop.yaml"
    assert repository.show("main:prod/environments/staging/shop.yaml") == STAGING.replace("1.3", "1.5")
    assert repository.show() == SHOP
    repository.declare("env: live, writeBack: {mode: commit}")
    done = deploy(reconcile, repository)
    assert done.code == 7
    assert "which all environments share" in done.err
    assert repository.show() == SHOP


def test_doctor_checks_the_secrets_that_write(repository, reconcile):
    missing = repository.base / "missing"
    registries = f"{{registries: [{{server: r.test, username: u, password: {{file: '{missing}-1'}}}}]}}"
    spec = f"push: {{}}, imagePolicies: {registries}, deployments: [{{workload: shop, token: {{file: '{missing}-2'}}}}]"
    repository.declare(f"writeBack: {{mode: commit, signingKey: {{file: '{missing}-3'}}}}", spec)
    done = reconcile("doctor", "--instance", repository.local, "-o", "json")
    assert [number for number in (1, 2, 3) if f"missing-{number}" not in done.out] == []
