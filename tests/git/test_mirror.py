"""The mirror of a repository: what it fetches and reads, what it costs, and how it goes on after damage and kills."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reconciler.git.access import Access
from reconciler.git.errors import NotThere, Refused, Unavailable, Unusable
from reconciler.git.mirror import Head, Mirror
from tests.git.upstream import CERTIFICATE, Answers, Upstream, git, served


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    made = Upstream(tmp_path)
    made.commit({"deploy/prod/a.yaml": "one\n", "deploy/prod/sub/b.yml": "two\n", "other/c.txt": "three\n"})
    return made


def contents(mirror: Mirror, ref: str, path: str) -> dict[str, bytes | None]:
    """What is at a path of a ref, fetched and read."""
    with mirror:
        head = mirror.head(ref)
        mirror.fetch(head, path)
        entries = mirror.entries(mirror.directory_of(head.commit, path))
        blobs = mirror.blobs([entry.oid for entry in entries], limit=1000)
    return {os.fsdecode(entry.name): blobs[entry.oid] for entry in entries}


@pytest.mark.parametrize("hash_name", ["sha1", "sha256"])
@pytest.mark.parametrize("filters", [True, False])
def test_files_of_a_directory_are_read(tmp_path: Path, hash_name: str, filters: bool) -> None:
    made = Upstream(tmp_path, hash_name, filters=filters)
    made.commit({"deploy/prod/a.yaml": "one\n", "deploy/prod/sub/b.yml": "two\n", "top.yaml": "0\n"})
    mirror = made.mirror(tmp_path)
    assert contents(mirror, "main", "deploy/prod") == {"a.yaml": b"one\n", "sub/b.yml": b"two\n"}
    assert contents(mirror, "", "")["top.yaml"] == b"0\n"
    made.commit({"deploy/prod/a.yaml": "three\n"})
    assert contents(mirror, "main", "deploy/prod")["a.yaml"] == b"three\n"


def test_only_the_path_is_fetched(tmp_path: Path, upstream: Upstream) -> None:
    files = {f"wide/{a}/{b}.bin": os.urandom(4096) for a in range(20) for b in range(25)}
    upstream.commit({**files, "big.bin": os.urandom(20_000_000)})
    mirror = upstream.mirror(tmp_path)
    assert contents(mirror, "main", "deploy/prod")["a.yaml"] == b"one\n"
    size = sum(path.stat().st_size for path in mirror.directory.rglob("*") if path.is_file())
    assert size < 100_000
    with mirror:
        assert len(mirror.present()) < 15


def test_a_forge_that_allows_few_filters_sends_only_the_path(tmp_path: Path, upstream: Upstream) -> None:
    for name, value in (
        ("allow", "false"),
        ("blob:none.allow", "true"),
        ("tree.allow", "true"),
        ("tree.maxDepth", "0"),
    ):
        git("config", f"uploadpackfilter.{name}", value, at=upstream.bare)
    upstream.commit({f"wide/{number}/{number}.bin": os.urandom(4096) for number in range(200)})
    mirror = upstream.mirror(tmp_path)
    assert contents(mirror, "main", "deploy/prod")["a.yaml"] == b"one\n"
    upstream.commit({"deploy/prod/a.yaml": "two\n"})
    assert contents(mirror, "main", "deploy/prod")["a.yaml"] == b"two\n"
    with mirror:
        assert len(mirror.present()) < 20


@pytest.mark.parametrize("annotated", [True, False])
def test_a_tag_names_its_commit(tmp_path: Path, upstream: Upstream, annotated: bool) -> None:
    commit = git("rev-parse", "HEAD", at=upstream.work)
    upstream.tag("v1", annotated=annotated)
    with upstream.mirror(tmp_path) as mirror:
        head = mirror.head("v1")
        assert (head.ref, head.commit) == ("refs/tags/v1", commit)
        mirror.fetch(head, "deploy")
        assert bool(head.tag) is annotated
        if annotated:
            assert f"object {commit}".encode() in mirror.object(head.tag).data


def test_a_commit_that_no_branch_has_any_more_can_be_pinned(tmp_path: Path, upstream: Upstream) -> None:
    old = upstream.commit({"deploy/prod/a.yaml": "old\n"})
    upstream.rewind()
    upstream.commit({"deploy/prod/a.yaml": "new\n"})
    assert contents(upstream.mirror(tmp_path), old, "deploy/prod")["a.yaml"] == b"old\n"


@pytest.mark.parametrize(
    ("ref", "error"),
    [("missing", NotThere), ("refs/heads/missing", NotThere), ("both", Refused), ("0" * 40, NotThere)],
)
def test_a_ref_that_names_no_commit_is_an_error(
    tmp_path: Path, upstream: Upstream, ref: str, error: type[Exception]
) -> None:
    upstream.tag("both", annotated=False)
    upstream.commit({"x": "x"}, branch="both")
    with upstream.mirror(tmp_path) as mirror, pytest.raises(error):
        mirror.fetch(mirror.head(ref), "deploy")


@pytest.mark.parametrize("path", ["", "deploy/prod"])
@pytest.mark.parametrize("refuses", ["nothing", "combined filters"])
def test_a_tag_of_a_file_is_no_commit_and_its_content_no_refspec(
    tmp_path: Path, upstream: Upstream, path: str, refuses: str
) -> None:
    if refuses != "nothing":
        git("config", "uploadpackfilter.combine.allow", "false", at=upstream.bare)
    blob = git("hash-object", "-w", "--stdin", at=upstream.bare, stdin=b"tree +refs/heads/*:refs/heads/*\n")
    git("update-ref", "refs/tags/file", blob, at=upstream.bare)
    with upstream.mirror(tmp_path) as mirror:
        with pytest.raises(NotThere, match="is a blob and not a commit"):
            mirror.fetch(mirror.head("refs/tags/file"), path)
        assert git("for-each-ref", at=mirror.repository) == ""


@pytest.mark.parametrize("path", ["deploy/missing", "Deploy", "deploy/prod/a.yaml"])
def test_a_path_that_is_no_directory_is_an_error(tmp_path: Path, upstream: Upstream, path: str) -> None:
    with upstream.mirror(tmp_path) as mirror, pytest.raises((NotThere, Unusable)) as raised:
        mirror.fetch(mirror.head("main"), path)
    assert path.split("/", maxsplit=1)[0] in str(raised.value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda repository: [
            path.write_bytes(b"x" * 40) for path in repository.rglob("*.pack") if not path.chmod(0o600)
        ],
        lambda repository: (repository / "HEAD").unlink(),
        lambda repository: (repository / "config").write_text("[core\n"),
        lambda repository: (repository / "shallow").write_text("no number\n"),
        lambda repository: subprocess.run(["rm", "-r", str(repository / "objects")], check=True),
        lambda repository: [path.unlink() for path in repository.rglob("*.pack")],
        lambda repository: [path.unlink() for path in repository.rglob("*.idx")],
    ],
)
def test_a_damaged_mirror_is_made_again(tmp_path: Path, upstream: Upstream, damage) -> None:
    mirror = upstream.mirror(tmp_path)
    contents(mirror, "main", "deploy/prod")
    damage(mirror.repository)
    assert contents(mirror, "main", "deploy/prod")["a.yaml"] == b"one\n"
    upstream.commit({"deploy/prod/a.yaml": "later\n"})
    assert contents(mirror, "main", "deploy/prod")["a.yaml"] == b"later\n"


@pytest.mark.parametrize(
    "lock", ["shallow.lock", "config.lock", "HEAD.lock", "packed-refs.lock", "index.lock", "refs/x.lock"]
)
def test_locks_of_a_killed_git_are_removed(tmp_path: Path, upstream: Upstream, lock: str) -> None:
    mirror = upstream.mirror(tmp_path)
    contents(mirror, "main", "deploy/prod")
    (mirror.repository / lock).touch()
    upstream.commit({"deploy/prod/a.yaml": "later\n"})
    assert contents(mirror, "main", "deploy/prod")["a.yaml"] == b"later\n"


def test_a_lock_that_a_process_holds_is_waited_for(tmp_path: Path, upstream: Upstream) -> None:
    mirror, other = upstream.mirror(tmp_path), Mirror(tmp_path / "mirror", "file:///x", timeout=0.2)
    with mirror, pytest.raises(Unavailable, match="another process"):
        other.__enter__()
    contents(mirror, "main", "deploy/prod")


def test_many_packs_make_a_new_mirror(tmp_path: Path, upstream: Upstream) -> None:
    mirror = upstream.mirror(tmp_path)
    contents(mirror, "main", "deploy/prod")
    packs = mirror.repository / "objects" / "pack"
    for number in range(120):
        (packs / f"pack-{number}.pack").touch()
    assert contents(mirror, "main", "deploy/prod")["a.yaml"] == b"one\n"
    assert len(list(packs.glob("*.pack"))) < 10


def test_nothing_of_the_remote_runs_here(tmp_path: Path, upstream: Upstream) -> None:
    ran = tmp_path / "ran"
    hook = upstream.work / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    upstream.commit(
        {
            ".gitattributes": "* filter=evil diff=evil\n",
            "deploy/prod/.git-hooks/post-checkout": "#!/bin/sh\n",
        }
    )
    mirror = upstream.mirror(tmp_path)
    contents(mirror, "main", "")
    hooks = mirror.repository / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("reference-transaction", "post-merge", "post-checkout", "fsmonitor-watchman"):
        (hooks / name).write_bytes(hook.read_bytes())
        (hooks / name).chmod(0o755)
    upstream.commit({"deploy/prod/a.yaml": "later\n"})
    contents(mirror, "main", "")
    assert not ran.exists()
    assert not (mirror.repository / "index").exists()


@pytest.mark.parametrize("filters", ["all", "blob:none", "none"])
def test_a_rewritten_history_is_known(tmp_path: Path, upstream: Upstream, filters: str) -> None:
    if filters == "none":
        git("config", "uploadpack.allowFilter", "false", at=upstream.bare)
    elif filters != "all":
        git("config", "uploadpackfilter.allow", "false", at=upstream.bare)
        git("config", f"uploadpackfilter.{filters}.allow", "true", at=upstream.bare)
    first = git("rev-parse", "HEAD", at=upstream.work)
    for number in range(60):
        second = upstream.commit({"other/c.txt": str(number)}) if number in (0, 59) else _local(upstream, number)
    upstream.push("HEAD:refs/heads/main")
    with upstream.mirror(tmp_path) as mirror:
        mirror.fetch(mirror.head("main"), "deploy")
        assert mirror.is_ancestor(first, second) is True
        upstream.rewind(3)
        third = upstream.commit({"other/c.txt": "rewritten"})
        mirror.fetch(mirror.head("main"), "deploy")
        assert mirror.is_ancestor(second, third) is False
        assert mirror.is_ancestor(first, third) is True


def _local(upstream: Upstream, number: int) -> str:
    (upstream.work / "other/c.txt").write_text(str(number))
    git("commit", "-q", "-a", "-m", "local", at=upstream.work)
    return ""


def test_a_full_disk_is_named_and_ends(tmp_path: Path, upstream: Upstream) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", str(small)], check=False).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        upstream.commit({f"deploy/prod/{number}.yaml": os.urandom(3000) for number in range(100)})
        mirror = Mirror(small / "mirror", f"file://{upstream.bare}", timeout=30)
        with pytest.raises(Unavailable, match="written"):
            contents(mirror, "main", "deploy/prod")
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


# --- https -----------------------------------------------------------------------------------------------------------


def over_https(url: str, base: Path, *, token: str = "", timeout: float = 30) -> Mirror:
    access = Access(token=(lambda: token) if token else None, ca_file=str(CERTIFICATE))
    return Mirror(base / "mirror", url.removeprefix("git+"), access, timeout)


def test_a_token_opens_a_repository_and_stays_hidden(tmp_path: Path, upstream: Upstream) -> None:
    shown: list[bytes] = []

    def look(_: Answers) -> bool:
        shown.extend(
            Path(f"/proc/{pid}/{name}").read_bytes()
            for pid in os.listdir("/proc")
            if pid.isdecimal()
            for name in ("cmdline", "environ")
            if _ours(pid)
        )
        return False

    with served(tmp_path, "s3cret-token", look) as server:
        mirror = over_https(server.url, tmp_path, token="s3cret-token")
        assert contents(mirror, "main", "deploy/prod")["a.yaml"] == b"one\n"
        with over_https(server.url, tmp_path, token="wrong-token") as wrong, pytest.raises(Refused) as raised:
            wrong.head("main")
    assert shown
    assert not any(b"s3cret-token" in text for text in shown)
    assert "wrong-token" not in str(raised.value)
    assert not any(
        "s3cret" in path.read_text(errors="replace") for path in mirror.directory.rglob("*") if path.is_file()
    )


def _ours(pid: str) -> bool:
    try:
        return b"git" in Path(f"/proc/{pid}/cmdline").read_bytes() and bool(Path(f"/proc/{pid}/environ").read_bytes())
    except OSError:
        return False


@pytest.mark.parametrize(
    ("status", "headers", "body", "error", "wait"),
    [
        (200, {"Content-Type": "text/html"}, b"<html>sign in</html>", Unavailable, 0),
        (429, {"Retry-After": "77"}, b"", Unavailable, 77),
        (503, {"Retry-After": "5"}, b"<html>", Unavailable, 5),
        (404, {}, b"", Refused, 0),
        (403, {}, b"", Refused, 0),
        (
            302,
            {"Location": "https://127.0.0.1:1/elsewhere/repo.git/info/refs?service=git-upload-pack"},
            b"",
            Refused,
            0,
        ),
        (200, {"Content-Type": "application/x-git-upload-pack-advertisement"}, b"garbage", Unavailable, 0),
    ],
)
def test_an_answer_that_is_not_of_git_is_an_error(
    tmp_path: Path, status: int, headers: dict, body: bytes, error: type, wait: int
) -> None:
    def instead(answers: Answers) -> bool:
        answers.answer(status, body, headers)
        return True

    with (
        served(tmp_path, instead=instead) as server,
        over_https(server.url, tmp_path) as mirror,
        pytest.raises(error) as raised,
    ):
        mirror.head("main")
    assert raised.value.wait == wait
    assert "Traceback" not in str(raised.value)
    assert "http.c" not in str(raised.value)


def test_a_remote_that_hangs_ends_at_the_deadline(tmp_path: Path) -> None:
    def hang(_: Answers) -> bool:
        time.sleep(5)
        return False

    with served(tmp_path, instead=hang) as server, over_https(server.url, tmp_path, timeout=1) as mirror:
        begun = time.monotonic()
        with pytest.raises(Unavailable, match="did not end within 1s"):
            mirror.head("main")
        assert time.monotonic() - begun < 4


def test_an_unknown_certificate_is_refused(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        mirror = Mirror(tmp_path / "m", server.url.removeprefix("git+"), timeout=30)
        with mirror, pytest.raises(Refused, match="certificate"):
            mirror.head("main")
    assert not server.seen


def test_a_head_that_is_known_costs_little(tmp_path: Path, upstream: Upstream) -> None:
    with upstream.mirror(tmp_path) as mirror:
        head = mirror.head("main")
        mirror.fetch(head, "deploy/prod")
        before = {path: path.stat().st_mtime_ns for path in mirror.directory.rglob("*")}
        assert mirror.head("main") == head == Head("refs/heads/main", head.commit)
        mirror.fetch(head, "deploy/prod")
        assert before == {path: path.stat().st_mtime_ns for path in mirror.directory.rglob("*")}


def test_a_git_that_outlived_its_reconcile_is_ended(tmp_path: Path) -> None:
    """A process is killed while its git waits for a remote that never answers; the next one does not wait for that git."""

    def hang(_: Answers) -> bool:
        time.sleep(20)
        return False

    with served(tmp_path, instead=hang) as server:
        program = (
            "import sys; from pathlib import Path; from reconciler.git.mirror import Mirror; from reconciler.git.access import Access\n"
            "with Mirror(Path(sys.argv[1]), sys.argv[2], Access(ca_file=sys.argv[3]), timeout=60) as mirror: mirror.head('main')"
        )
        words = [str(tmp_path / "mirror"), server.url.removeprefix("git+"), str(CERTIFICATE)]
        with subprocess.Popen([sys.executable, "-c", program, *words]) as process:
            end = time.monotonic() + 30
            while not server.seen:
                assert time.monotonic() < end
                time.sleep(0.05)
            process.kill()
        begun = time.monotonic()
        with over_https(server.url, tmp_path, timeout=60):
            assert time.monotonic() - begun < 10
