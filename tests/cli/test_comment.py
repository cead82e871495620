"""`reconcile comment`: a plan on a merge request, against a server that speaks the APIs of forges; and what manifests without a plan give it."""

from pathlib import Path

import pytest

from manifests.values.notices import ForgeType
from tests.forge.fake_forge import PROJECT, TOKEN, serving

PLAN = "<!-- reconcile plan of instance small -->\n### Plan for `small`\n\n**Result:** `nothing to do (exit 0)`\n"
LOCAL = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: this}
spec: {id: small, allowProcess: [web]}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: here}
spec: {type: process}
"""
WEB = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web}
spec: {template: {spec: {containers: [{name: web, command: [sleep, "60"]}]}}}
"""


@pytest.fixture(params=list(ForgeType))
def repository(request, monkeypatch):
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    with serving(request.param) as served:
        yield served


@pytest.fixture
def put(repository, reconcile, tmp_path):
    def run(text: str, *words: str):
        file = tmp_path / "plan.md"
        file.write_text(text)
        return reconcile("comment", file, "--forge", repository.dialect.value, "--number", "7", *words)

    return run


def test_the_next_plan_replaces_the_comment_of_the_one_before(repository, put):
    where = ("--url", repository.url, "--project", PROJECT)
    repository.comment_by(7, PLAN, "mallory", 666)
    first = put(PLAN, *where)
    assert first.code == 0, first.err
    assert "posted comment" in first.out
    second = put(PLAN.replace("nothing to do", "changes are planned"), *where, "-o", "json")
    assert (second.code, second.document["created"]) == (0, False)
    theirs, ours = repository.comments[7]
    assert theirs["body"] == PLAN
    assert ours["body"] == PLAN.replace("nothing to do", "changes are planned")


def test_a_job_gives_the_address_and_the_project(repository, put, monkeypatch):
    assert put(PLAN).code == 64
    monkeypatch.setenv("GITHUB_SERVER_URL", repository.url)
    monkeypatch.setenv("GITHUB_REPOSITORY", PROJECT)
    assert put(PLAN).code == 0
    assert len(repository.comments[7]) == 1


@pytest.mark.parametrize(
    "text", ["", "hello\n", "<!-- reconcile plan of instance x --> more\n", f" {PLAN}", PLAN * 3000]
)
def test_a_file_that_is_no_plan_is_not_posted(repository, put, text):
    done = put(text, "--url", repository.url, "--project", PROJECT)
    assert done.code in (1, 6), done.err
    assert "next step" in done.err or "shorten" in done.err
    assert repository.comments.get(7, []) == []


def test_a_token_is_needed_and_never_shown(repository, put, monkeypatch):
    where = ("--url", repository.url, "--project", PROJECT)
    monkeypatch.setenv("FORGE_TOKEN", "wrong-s3cr3t")
    done = put(PLAN, *where, "-v")
    assert done.code == 6
    assert "wrong-s3cr3t" not in done.out + done.err
    monkeypatch.delenv("FORGE_TOKEN")
    done = put(PLAN, *where)
    assert (done.code, "FORGE_TOKEN" in done.err) == (64, True)
    assert repository.comments.get(7, []) == []


@pytest.mark.parametrize(
    "words", [("--url", "http://forge.example.com"), ("--url", "https://h", "--project", "../x"), ("--number", "0")]
)
def test_what_cannot_be_meant_is_a_usage_error(put, words):
    done = put(PLAN, "--url", "https://h", "--project", "a/b", *words)
    assert done.code == 64, done.err


@pytest.fixture
def host(tmp_path: Path) -> tuple[Path, Path]:
    tree, local = tmp_path / "tree", tmp_path / "local"
    for directory in (tree, local):
        directory.mkdir(mode=0o700)
    (local / "host.yaml").write_text(LOCAL)
    (local / "host.yaml").chmod(0o600)
    return tree, local


@pytest.mark.parametrize("untrusted", [(), ("--untrusted",)])
def test_manifests_without_a_plan_replace_the_comment_too(host, reconcile, home, untrusted):
    tree, local = host
    (tree / "web.yaml").write_text(f"{WEB}colour: '`@all` <b>'\n")
    done = reconcile("plan", tree, "--instance", local, "-o", "markdown", *untrusted)
    assert done.code == 3
    first, *rest = done.out.splitlines()
    assert first == "<!-- reconcile plan of instance small -->"
    (line,) = [line for line in rest if line.startswith("- ")]
    assert line.startswith("- `web.yaml:5:1: unknown-field: ")
    assert "next" in done.err or "error" in done.err
    assert rest[-1] == "**Result:** `the manifests are invalid; nothing was changed (exit 3)`"


def test_an_empty_tree_replaces_the_comment_too(host, reconcile, home):
    tree, local = host
    done = reconcile("plan", tree, "--instance", local, "-o", "markdown")
    assert done.code == 7
    assert done.out.startswith("<!-- reconcile plan of instance small -->\n### No plan")


def test_problems_of_local_documents_stay_with_the_operator(host, reconcile, home):
    tree, local = host
    (tree / "web.yaml").write_text(WEB)
    (local / "more.yaml").write_text(
        "apiVersion: reconciler/v1\nkind: Provider\nmetadata: {name: x}\nspec: {type: s3cr3t}\n"
    )
    (local / "more.yaml").chmod(0o600)
    done = reconcile("plan", tree, "--instance", local, "--untrusted", "-o", "markdown")
    assert done.code == 3
    assert "s3cr3t" in done.err
    assert "s3cr3t" not in done.out
    assert str(local) not in done.out
    assert "operators of this instance" in done.out


def test_thousands_of_problems_fit_into_a_comment(host, reconcile, home):
    tree, local = host
    (tree / "web.yaml").write_text("---\n".join(f"{WEB}{'x' * 200}{n}: 1\n" for n in range(900)))
    done = reconcile("plan", tree, "--instance", local, "-o", "markdown")
    assert done.code == 3
    assert len(done.out.encode("utf-16-le")) // 2 < 65_536
    assert " more_" in done.out


@pytest.mark.parametrize(
    ("text", "said"), [(None, "cannot be read: No such file"), ("", "is empty"), ("x\n", "is no plan in Markdown")]
)
def test_a_file_without_a_plan_is_named_with_what_to_do(reconcile, tmp_path, monkeypatch, text, said):
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    file = tmp_path / "plan.md"
    if text is not None:
        file.write_text(text)
    words = ("comment", file, "--forge", "gitea", "--number", "7", "--url", "http://127.0.0.1:1", "--project", "a/b")
    done = reconcile(*words)
    assert (done.code, str(file) in done.err, said in done.err) == (1, True, True)
    assert "next step: make it with: reconcile plan" in done.err
    assert said in reconcile(*words, "-o", "json").document["message"]


def test_a_missing_file_of_certificates_is_named_with_the_forge(reconcile, tmp_path, monkeypatch):
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    (tmp_path / "plan.md").write_text(PLAN)
    where = ("--url", "https://127.0.0.1:1", "--project", "a/b", "--ca-file", tmp_path / "none.pem")
    done = reconcile("comment", tmp_path / "plan.md", "--forge", "gitea", "--number", "7", *where)
    assert done.code == 6
    assert "error: forge a/b: cannot use the certificates in" in done.err
