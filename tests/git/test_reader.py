"""The reader of a git source: which files the manifests are after each poll, and what of a commit is refused."""

import os
import shutil
from pathlib import Path

import pytest

from manifests.load import Sources
from manifests.problems import Code
from manifests.source.git_url import parse
from manifests.values.secret_sources import NO_PROGRAMS
from manifests.yaml.read import FILE_SIZE
from providers.lib.secrets import define
from reconciler.git.errors import GitError
from reconciler.git.mirror import Head, Mirror
from reconciler.git.reader import GitReader
from reconciler.git.tree import Trees
from tests.git.upstream import CERTIFICATE, Upstream, git, served


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    made = Upstream(tmp_path)
    made.commit(
        {"set/a.yaml": "a: 1\n", "set/below/b.yml": "b: 1\n", "set/conf/x.txt": "x\n", "other/c.yaml": "c: 1\n"}
    )
    return made


@pytest.fixture
def reader(tmp_path: Path, upstream: Upstream) -> GitReader:
    return upstream.reader(tmp_path, "//set?ref=main")


def polled(reader: GitReader) -> Sources:
    reader.hurry()
    return reader.read()


def names(sources: Sources) -> list[str]:
    return [file.name for file in sources.tree.files]


def codes(sources: Sources) -> set[Code]:
    return {problem.code for problem in sources.problems}


def test_the_manifests_of_the_newest_commit_are_read(reader: GitReader, upstream: Upstream) -> None:
    sources = reader.read()
    assert (names(sources), sources.problems) == (["a.yaml", "below/b.yml"], ())
    assert sources.tree.complete
    commit = upstream.commit({"set/a.yaml": "a: 2\n", "set/new.json": "{}"})
    assert reader.read() == sources, "no poll was due"
    later = polled(reader)
    assert names(later) == ["a.yaml", "below/b.yml", "new.json"]
    assert reader.seen == (commit, "refs/heads/main")


def test_a_commit_elsewhere_leaves_the_same_files(reader: GitReader, upstream: Upstream) -> None:
    before = reader.read()
    commit = upstream.commit({"other/c.yaml": "c: 2\n"})
    assert polled(reader).state == before.state
    assert reader.seen[0] == commit
    upstream.commit({"set/README": "text\n", "set/conf/x.txt": "y\n"})
    assert polled(reader).state == before.state


def test_a_poll_without_news_reads_and_writes_nothing(reader: GitReader) -> None:
    before = reader.read()
    written = {path: path.lstat().st_mtime_ns for path in reader.directory.rglob("*")}
    assert polled(reader).tree is before.tree
    assert written == {path: path.lstat().st_mtime_ns for path in reader.directory.rglob("*")}


@pytest.mark.parametrize(
    "fault",
    [
        lambda upstream: shutil.move(upstream.bare, upstream.bare.with_name("gone")),
        lambda upstream: upstream.push(":refs/heads/main"),
        lambda upstream: upstream.commit({"set/a.yaml": None, "set/below/b.yml": None, "set/conf/x.txt": None}),
    ],
)
def test_what_cannot_be_read_is_a_problem_and_never_empty(reader: GitReader, upstream: Upstream, fault) -> None:
    reader.read()
    git("config", "receive.denyDeleteCurrent", "ignore", at=upstream.bare)
    fault(upstream)
    failed = polled(reader)
    assert codes(failed) == {Code.SOURCE_UNREADABLE}
    assert not failed.tree.complete
    assert polled(reader).tree is failed.tree, "the same cause is the same answer"


def test_a_remote_that_is_back_is_read_again(reader: GitReader, upstream: Upstream) -> None:
    good = reader.read()
    shutil.move(upstream.bare, upstream.bare.with_name("gone"))
    assert codes(polled(reader)) == {Code.SOURCE_UNREADABLE}
    shutil.move(upstream.bare.with_name("gone"), upstream.bare)
    assert polled(reader).state == good.state


def test_retries_come_later_and_later_but_within_the_interval(reader: GitReader, upstream: Upstream) -> None:
    shutil.move(upstream.bare, upstream.bare.with_name("gone"))
    waits = []
    for _ in range(8):
        polled(reader)
        waits.append(reader.due_in() / 1e9)
    assert waits == sorted(waits)
    assert (waits[0], waits[1]) == (5, 10)
    assert 60 <= waits[-1] <= 66


def test_hosts_do_not_poll_together(tmp_path: Path) -> None:
    waits = set()
    for number in range(20):
        reader = GitReader(parse(f"git+file:///nowhere/{number}.git"), None, tmp_path, steady=lambda: 0.0)
        waits.add(reader._interval())
    assert len(waits) > 15
    assert all(60 <= wait <= 66 for wait in waits)


def test_a_remote_that_asks_for_patience_gets_it(tmp_path: Path) -> None:
    def instead(answers) -> bool:
        answers.answer(429, b"", {"Retry-After": "1234"})
        return True

    with served(tmp_path, instead=instead) as server:
        local = local_documents(tmp_path, f"url: {server.url}, caFile: {CERTIFICATE}")
        reader = GitReader(parse(server.url), local, tmp_path / "mirrors", steady=lambda: 0.0)
        assert codes(reader.read()) >= {Code.SOURCE_UNREADABLE}
        assert reader.due_in() == 1234 * 10**9
        reader.hurry()  # a webhook, or a signal
        assert reader.due_in() == 1234 * 10**9
        assert codes(reader.read()) >= {Code.SOURCE_UNREADABLE}
        assert len(server.seen) == 1


# --- rewritten histories ---------------------------------------------------------------------------------------------


def local_documents(base: Path, source: str, *more: str) -> Path:
    path = base / "local"
    path.mkdir(mode=0o700)
    file = path / "instance.yaml"
    file.write_text(
        "apiVersion: reconciler/v1\nkind: Instance\nmetadata: {name: this}\n"
        f"spec:\n  id: demo\n  source: {{{source}}}\n" + "".join(f"  {line}\n" for line in more)
    )
    file.chmod(0o600)
    return file


def test_a_force_push_is_followed_and_reported(tmp_path: Path, reader: GitReader, upstream: Upstream) -> None:
    old = upstream.commit({"set/a.yaml": "a: 2\n"})
    reader.read()
    reader.adopted(tmp_path / "state")
    upstream.rewind()
    new = upstream.commit({"set/a.yaml": "a: 3\n"})
    assert b"a: 3" in polled(reader).tree.files[0].data
    (news,) = reader.news()
    assert old in news
    assert new in news
    assert reader.news() == ()


def test_a_force_push_that_cannot_be_read_yet_is_reported_once(
    tmp_path: Path, reader: GitReader, upstream: Upstream
) -> None:
    upstream.commit({"set/a.yaml": "a: 2\n"})
    reader.read()
    reader.adopted(tmp_path / "state")
    upstream.rewind()
    upstream.commit({"set/a.yaml": "a: 3\n"})
    trees = reader.directory / "trees"
    trees.rename(trees.with_name("aside"))
    trees.touch()  # nothing can be written there
    reported = []
    for _ in range(3):
        assert codes(polled(reader)) == {Code.SOURCE_UNREADABLE}
        reported += reader.news()
    assert len(reported) == 1


@pytest.mark.parametrize("held", [True, False])
def test_a_repository_with_another_hash_does_not_follow(tmp_path: Path, upstream: Upstream, held: bool) -> None:
    local = local_documents(tmp_path, f"url: '{upstream.url}//set?ref=main', requireFastForward: {str(held).lower()}")
    reader = upstream.reader(tmp_path, "//set?ref=main", local)
    reader.read()
    reader.adopted(tmp_path / "state")
    shutil.move(upstream.bare, upstream.bare.with_name("before"))
    (tmp_path / "other").mkdir()
    other = Upstream(tmp_path / "other", "sha256")
    other.commit({"set/a.yaml": "a: other\n"})
    shutil.move(other.bare, upstream.bare)
    if held:
        (problem,) = polled(reader).problems
        assert "the history was rewritten" in problem.message
    else:
        assert b"a: other" in polled(reader).tree.files[0].data
        assert "the history was rewritten" in reader.news()[0]


def test_a_force_push_can_be_held(tmp_path: Path, upstream: Upstream) -> None:
    local = local_documents(tmp_path, f"url: '{upstream.url}//set?ref=main', requireFastForward: true")
    reader = upstream.reader(tmp_path, "//set?ref=main", local)
    old = upstream.commit({"set/a.yaml": "a: 2\n"})
    reader.read()
    reader.adopted(tmp_path / "state")
    upstream.rewind()
    new = upstream.commit({"set/a.yaml": "a: 3\n"})
    held = polled(reader)
    (problem,) = held.problems
    assert old in problem.message
    assert new in problem.message
    assert polled(reader).tree is held.tree
    git("reset", "-q", "--hard", old, at=upstream.work)
    upstream.commit({"set/a.yaml": "a: 4\n"})
    assert not polled(reader).problems


# --- what a commit may hold ------------------------------------------------------------------------------------------


def test_links_inside_the_set_are_followed(reader: GitReader, upstream: Upstream) -> None:
    upstream.commit({"set/link.yaml": "-> below/b.yml", "set/.hidden/h.yaml": "h: 1\n", "set/shown": "-> .hidden"})
    sources = reader.read()
    assert sources.problems == ()
    assert names(sources) == ["a.yaml", "below/b.yml", "link.yaml", "shown/h.yaml"]


@pytest.mark.parametrize(
    "files",
    [
        {"set/link.yaml": "-> ../other/c.yaml"},
        {"set/link.yaml": "-> /etc/passwd"},
        {"set/link": "-> ../other"},
        {"set/link": "-> /etc"},
        {"set/loop.yaml": "-> loop.yaml"},
        {"set/x/y/d": "-> ../../../set", "set/x/y/link.yaml": "-> d/../../../other/c.yaml"},
    ],
)
def test_links_that_leave_the_set_are_refused(reader: GitReader, upstream: Upstream, files: dict) -> None:
    upstream.commit(files)
    sources = reader.read()
    assert codes(sources) == {Code.LINK_LEAVES_TREE}
    for path in reader.directory.rglob("*"):
        assert not path.is_symlink() or str(path.resolve()).startswith(str(reader.directory))


@pytest.mark.parametrize("target", [b"", b"a\0b.yaml", b"x" * 5000])
def test_links_that_no_host_can_have_are_refused(reader: GitReader, upstream: Upstream, target: bytes) -> None:
    blob = git("hash-object", "-w", "--stdin", at=upstream.work, stdin=target)
    upstream.index_entry("120000", blob, "set/link.yaml")
    assert codes(reader.read()) <= {Code.LINK_LEAVES_TREE, Code.SOURCE_UNREADABLE}
    assert reader.read().problems


def test_many_links_are_refused_at_once(reader: GitReader, upstream: Upstream) -> None:
    upstream.commit({f"set/l{number}": "-> below" for number in range(1001)})
    (problem,) = reader.read().problems
    assert "more than 1000 links" in problem.message


def test_a_link_to_a_file_that_is_no_manifest_does_not_matter(reader: GitReader, upstream: Upstream) -> None:
    upstream.commit({"README.md": "text\n", "set/README.md": "-> ../README.md"})
    assert reader.read().problems == ()


def test_a_submodule_in_the_set_is_refused(reader: GitReader, upstream: Upstream) -> None:
    upstream.index_entry("160000", "1" * 40, "set/module")
    (problem,) = reader.read().problems
    assert "submodule" in problem.message


@pytest.mark.parametrize("name", [".GIT", ".git", "..", "."])
def test_names_that_git_does_not_allow_are_refused(reader: GitReader, upstream: Upstream, name: str) -> None:
    blob = git("hash-object", "-w", "--stdin", at=upstream.work, stdin=b"x\n")
    tree = git("mktree", at=upstream.work, stdin=f"100644 blob {blob}\tconfig\n".encode())
    bad = git(
        "hash-object",
        "-t",
        "tree",
        "-w",
        "--literally",
        "--stdin",
        at=upstream.work,
        stdin=b"40000 " + name.encode() + b"\0" + bytes.fromhex(tree),
    )
    outer = git("mktree", at=upstream.work, stdin=f"040000 tree {bad}\tset\n".encode())
    commit = git("commit-tree", outer, "-m", "bad", at=upstream.work)
    upstream.push(f"{commit}:refs/heads/main")
    assert codes(reader.read()) == {Code.SOURCE_UNREADABLE}


def test_a_huge_manifest_is_a_problem(reader: GitReader, upstream: Upstream) -> None:
    upstream.commit({"set/huge.yaml": b"x" * (FILE_SIZE + 1)})
    assert codes(reader.read()) == {Code.FILE_TOO_LARGE}


def test_case_only_names_are_two_files(reader: GitReader, upstream: Upstream) -> None:
    upstream.commit({"set/A.yaml": "A: 1\n"})
    assert names(reader.read())[:2] == ["A.yaml", "a.yaml"]


# --- files that manifests name ---------------------------------------------------------------------------------------


def test_named_files_come_when_they_are_named(reader: GitReader, upstream: Upstream) -> None:
    upstream.commit({"set/app/run.sh": "#!/bin/sh\n", "set/app/data": "-> ../conf/x.txt"})
    (upstream.work / "set/app/run.sh").chmod(0o755)
    upstream.commit({})
    tree = reader.read().tree
    root = Path(tree.root)
    assert not (root / "app").exists()
    assert tree.provide("app") == ""
    assert os.access(root / "app/run.sh", os.X_OK)
    assert (root / "app/data").read_text() == "x\n"
    assert tree.provide("missing") == ""
    assert not (root / "missing").exists()
    upstream.commit({"set/app/out": "-> ../../other/c.yaml"})
    assert "leads out" in polled(reader).tree.provide("app")


def test_contents_lost_in_a_power_cut_come_back(tmp_path: Path, reader: GitReader, upstream: Upstream) -> None:
    file = Path(reader.read().tree.root) / "a.yaml"
    file.chmod(0o600)
    file.write_bytes(b"")
    again = upstream.reader(tmp_path, "//set?ref=main")
    assert again.read().tree.files[0].data == b"a: 1\n"


def test_a_run_reaches_its_files_by_one_path(tmp_path: Path, reader: GitReader, upstream: Upstream) -> None:
    state = tmp_path / "state"
    root = Path(reader.root(state))
    reader.read()
    reader.adopted(state)
    assert (root / "a.yaml").read_text() == "a: 1\n"
    upstream.commit({"set/a.yaml": "a: 2\n"})
    polled(reader)
    assert (root / "a.yaml").read_text() == "a: 1\n"
    reader.adopted(state)
    assert (root / "a.yaml").read_text() == "a: 2\n"


def test_directories_that_are_in_use_stay(tmp_path: Path, reader: GitReader, upstream: Upstream) -> None:
    first = Path(reader.read().tree.root)
    reader.adopted(tmp_path / "one")
    upstream.commit({"set/a.yaml": "a: 2\n"})
    second = Path(polled(reader).tree.root)
    upstream.commit({"set/a.yaml": "a: 3\n"})
    third = Path(polled(reader).tree.root)
    for directory in (first, second, third):
        os.utime(directory, (0, 0))
    Trees(reader.directory).prune(third.name)
    assert (first.exists(), second.exists(), third.exists()) == (True, False, True)


# --- checks ----------------------------------------------------------------------------------------------------------


def test_a_commit_that_a_check_refuses_is_not_read(reader: GitReader, upstream: Upstream) -> None:
    good = reader.read()

    def check(mirror: Mirror, head: Head, _: object) -> None:
        assert mirror.object(head.commit).kind == "commit"
        raise GitError("not signed", "sign it")

    reader.checks = (check,)
    upstream.commit({"set/a.yaml": "a: 2\n"})
    (problem,) = polled(reader).problems
    assert problem.message == "not signed"
    reader.checks = ()
    git("reset", "-q", "--hard", "HEAD~1", at=upstream.work)
    upstream.push("HEAD:refs/heads/main")
    assert polled(reader).state == good.state


def test_a_credential_goes_only_to_its_own_remote(tmp_path: Path, upstream: Upstream) -> None:
    token = tmp_path / "token"
    token.write_text("sentinel-token\n")
    token.chmod(0o600)
    with served(tmp_path, "sentinel-token") as server, served(tmp_path, "sentinel-token") as other:
        source = f"url: '{server.url}//set', caFile: {CERTIFICATE}, token: {{file: {token}}}"
        local = local_documents(tmp_path, source)
        reader = GitReader(parse(f"{server.url}//set"), local, tmp_path / "mirrors")
        assert names(reader.read()) == ["a.yaml", "below/b.yml"]
        elsewhere = GitReader(parse(f"{other.url}//set"), local, tmp_path / "mirrors")
        assert Code.SOURCE_UNREADABLE in codes(elsewhere.read())
        token.unlink()
        assert Code.SOURCE_UNREADABLE in codes(polled(reader))


def test_a_credential_may_come_from_a_command(tmp_path: Path, upstream: Upstream) -> None:
    with served(tmp_path, "sentinel-token") as server:
        source = f"url: '{server.url}//set', caFile: {CERTIFICATE}, token: {{command: git-token}}"
        programs = "secretCommands: [{name: git-token, command: [echo, sentinel-token]}]"
        local = local_documents(tmp_path, source, programs)
        try:
            assert names(GitReader(parse(f"{server.url}//set"), local, tmp_path / "mirrors").read()) == [
                "a.yaml",
                "below/b.yml",
            ]
        finally:
            define(NO_PROGRAMS, "")


def test_what_is_in_force_is_judged_again_when_local_documents_change(tmp_path: Path, upstream: Upstream) -> None:
    local = local_documents(tmp_path, f"url: '{upstream.url}//set?ref=main'")
    judged: list[object] = []
    reader = upstream.reader(tmp_path, "//set?ref=main", local)
    reader.checks = (lambda _mirror, _head, source: judged.append(source),)
    reader.read()
    polled(reader)
    assert len(judged) == 2  # at each poll: what a check asks for may have changed outside of the documents
    assert judged[0] == judged[1]
    local.write_text(local.read_text().replace("main'", "main', timeout: 30s"))
    reader.read()
    assert len(judged) == 3
    assert judged[2] != judged[1]


@pytest.mark.parametrize("source", ["url: '{url}//set?ref=prod'", "url: '{url}//set?ref=main', interval: 30s"])
def test_another_address_in_local_documents_is_reported_with_the_next_step(
    tmp_path: Path, upstream: Upstream, source: str
) -> None:
    """The set of a process stays the same while it runs; other settings count at once."""
    local = local_documents(tmp_path, f"url: '{upstream.url}//set?ref=main'")
    reader = upstream.reader(tmp_path, "//set?ref=main", local)
    reader.read()
    assert reader.news() == ()
    local.write_text(
        "apiVersion: reconciler/v1\nkind: Instance\nmetadata: {name: this}\n"
        f"spec:\n  id: demo\n  source: {{{source.format(url=upstream.url)}}}\n"
    )
    reader.read()
    reader.read()
    news = reader.news()
    assert len(news) == ("ref=prod" in source)
    assert all("ref=prod now" in message and "next step: restart reconcile" in message for message in news)


def test_a_git_source_reads_the_environment_of_the_host(tmp_path: Path, upstream: Upstream) -> None:
    upstream.commit(
        {
            "set/environments/prod/a.yaml": "a: 2\n",
            "set/environments/staging/a.yaml": "a: 3\n",
        }
    )
    base, prod = upstream.reader(tmp_path, "//set?ref=main"), upstream.reader(tmp_path, "//set?ref=main")
    prod.environment = "prod"
    assert names(base.read()) == ["a.yaml", "below/b.yml"]
    assert names(prod.read()) == ["a.yaml", "below/b.yml", "environments/prod/a.yaml"]
    assert prod.read().tree.identity == f"{base.read().tree.identity}?env=prod"
    before = polled(prod).state
    upstream.commit({"set/environments/staging/a.yaml": "a: 4\n"})
    assert polled(prod).state == before, "another environment is none of its business"
    upstream.commit({"set/environments/prod/a.yaml": "a: 5\n"})
    assert polled(prod).state != before
    prod.environment = "none"
    assert codes(prod.read()) == {Code.WRONG_ENVIRONMENT}


def test_local_documents_choose_the_environment_and_may_change_it(tmp_path: Path, upstream: Upstream) -> None:
    upstream.commit({"set/environments/prod/a.yaml": "a: 2\n", "set/environments/staging/a.yaml": "a: 3\n"})
    local = tmp_path / "instance.yaml"
    head = "apiVersion: reconciler/v1\nkind: Instance\nmetadata: {name: here}\n"
    url = f"git+file://{upstream.bare}//set?ref=main"

    def choose(environment: str) -> None:
        local.write_text(f"{head}spec: {{id: here, source: {{url: '{url}', env: {environment}}}}}\n")
        local.chmod(0o600)

    choose("prod")
    reader = upstream.reader(tmp_path, "//set?ref=main", local)
    first = reader.read()
    assert (names(first)[-1], first.problems) == ("environments/prod/a.yaml", ())
    assert reader.read() == first, "no poll was due"
    choose("staging")
    second = reader.read()
    assert (names(second)[-1], second.tree.environment) == ("environments/staging/a.yaml", "staging")
    reader.environment = "prod"
    assert codes(reader.read()) == {Code.WRONG_ENVIRONMENT}, "another one was given on the command line"
