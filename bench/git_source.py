"""Manifests from a git repository: how soon a push acts, what a poll without news costs, and what a large repository costs.

    python -m bench.git_source [--tries 20] [--polls 10] [--files 100000] [--bytes 10240]

Prints Markdown. Needs git; starts a server of the repository over TLS (git's own `http-backend` behind Python's HTTP server) and the
real daemon with processes as replicas, on loopback. A push is timed from the end of `git push`, when the forge would deliver its
webhook, until the process of the new revision runs, which writes a file. CPU of this program and of the git processes that it runs
is from getrusage(2), of a process that does nothing but poll. Bytes over the wire are those of the answers of the server.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from manifests.source.git_url import parse
from reconciler.git.reader import GitReader
from reconciler.git.verify import SignatureCheck
from reconciler.shell.clock import SystemClock
from tests.e2e.signed_world import SignedWorld
from tests.git.signed_repository import SignedRepository, SshKey
from tests.git.upstream import CERTIFICATE, ENV, Answers, Upstream, git, served

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 120.0
"""Seconds until something that does not happen ends the benchmark."""
PAUSE = 2.5
"""Seconds between two pushes: deliveries cause at most one poll in 2 s."""

WORKLOAD = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: w}
spec:
  template:
    metadata: {labels: {app: w}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: a, command: [sh, -c, "echo @N@ > @FILE@; exec sleep 86397"]}]
"""


def until(done: Callable[[], bool], patience: float = PATIENCE) -> float:
    """Wait for a condition, checked about every millisecond; returns the instant at which it held."""
    end = time.perf_counter() + patience
    while not done():
        if time.perf_counter() > end:
            raise SystemExit(f"nothing happened within {patience:g} s")
        time.sleep(0.001)
    return time.perf_counter()


# --- from a push to its first action -------------------------------------------------------------------------------------------------


def pushes(base: Path, tries: int, *, webhook: bool) -> tuple[list[float], list[float]]:
    """Seconds from the end of a push to the process of its revision, and from the first request of the poll that found it."""
    asked: list[float] = []
    fresh = base / ("hooked" if webhook else "polled")
    fresh.mkdir()

    def instead(_: Answers) -> bool:
        asked.append(time.perf_counter())
        return False

    with served(fresh, instead=instead) as server:
        more: dict[str, object] = {} if webhook else {"webhook": None}
        url = f"git+https://127.0.0.1:{server.port}/bare.git//prod?ref=main"
        world = SignedWorld(fresh, url=url, caFile=str(CERTIFICATE), verify=None, **more)
        try:
            file = fresh / "runs"

            def push(number: int) -> float:
                place = world.repository.work / "prod"
                place.mkdir(exist_ok=True)
                text = WORKLOAD.replace("@N@", str(number)).replace("@FILE@", str(file))
                (place / "w.yaml").write_text(text)
                world.repository.git("add", "prod")
                world.repository.commit(f"number {number}", None)
                return time.perf_counter()

            def runs(number: int) -> bool:
                return file.exists() and file.read_text().strip() == str(number)

            push(0)
            world.watch(listens=webhook)
            until(lambda: runs(0))
            after_push: list[float] = []
            after_poll: list[float] = []
            for number in range(1, tries + 1):
                time.sleep(PAUSE)
                pushed = push(number)
                if webhook and world.deliver()[0] != 202:
                    raise SystemExit("the webhook was not accepted")
                acted = until(lambda number=number: runs(number))  # type: ignore[misc]
                after_push.append(acted - pushed)
                after_poll.append(acted - next(at for at in asked if at > pushed))
            return after_push, after_poll
        finally:
            world.close()


# --- polls without news --------------------------------------------------------------------------------------------------------------


def poll(url: str, local: str, mirrors: str, polls: int) -> None:
    """Print what polls without news cost this process and its children; run in a process of its own."""
    file = Path(local)
    reader = GitReader(parse(url), file, Path(mirrors), (SignatureCheck(file, SystemClock()),))
    if reader.read().problems:
        raise SystemExit(str(reader.problem))
    before = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    begun = time.perf_counter()
    for _ in range(polls):
        reader.hurry()
        reader.read()
    wall = time.perf_counter() - begun
    after = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = [
        end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime for start, end in zip(before, after, strict=True)
    ]
    print(json.dumps([cpu[0] / polls, cpu[1] / polls, wall / polls]))


def idle_polls(base: Path, name: str, url: str, polls: int, **source: object) -> str:
    """One row: polls without news of a source."""
    place = base / name
    place.mkdir(mode=0o700)
    file = place / "host.yaml"
    spec = json.dumps({"id": "bench", "source": {"url": url, **source}})
    file.write_text(f"apiVersion: reconciler/v1\nkind: Instance\nmetadata: {{name: this}}\nspec: {spec}\n")
    file.chmod(0o600)
    words = [sys.executable, "-m", "bench.git_source", "--poll", url, str(place), str(place / "mirrors"), str(polls)]
    own, children, wall = json.loads(subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    return f"| {name} | {own * 1e3:.1f} ms | {children * 1e3:.1f} ms | {wall * 1e3:.0f} ms |"


def asked_by_hand(name: str, words: list[str], polls: int) -> str:
    """One row: what git alone costs."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    for _ in range(polls):
        subprocess.run(words, env=ENV, check=True, capture_output=True)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"| {name} |  | {cpu / polls * 1e3:.1f} ms | {wall / polls * 1e3:.0f} ms |"


# --- a large repository --------------------------------------------------------------------------------------------------------------


def large(base: Path, files: int, size: int) -> Upstream:
    """A bare repository with this many files of random bytes beside two manifests."""
    made = Upstream(base)
    shutil.rmtree(made.bare)
    git("init", "-q", "--bare", "-b", "main", str(made.bare))
    for name, value in (("uploadpack.allowFilter", "true"), ("core.compression", "0"), ("pack.compression", "0")):
        git("config", name, value, at=made.bare)
    commit = b"commit refs/heads/main\ncommitter Author <author@example.com> 1795000000 +0000\ndata 5\nfirst"
    with subprocess.Popen(
        ["git", "fast-import", "--quiet", "--depth=0"], cwd=made.bare, env=ENV, stdin=subprocess.PIPE
    ) as pipe:
        assert pipe.stdin is not None
        pipe.stdin.write(commit + b"\n")
        for number in range(files):
            pipe.stdin.write(b"M 100644 inline data/%03d/%05d.bin\ndata %d\n" % (number // 100, number, size))
            pipe.stdin.write(os.urandom(size) + b"\n")
        for name in (b"web", b"api"):
            text = WORKLOAD.replace("name: w}", f"name: {name.decode()}}}").encode()
            pipe.stdin.write(b"M 100644 inline prod/%s.yaml\ndata %d\n%s\n" % (name, len(text), text))
    if pipe.returncode != 0:
        raise SystemExit("git fast-import failed")
    return made


class Counted:
    """The bytes of all answers of a server."""

    def __init__(self) -> None:
        self.bytes = 0

    def instead(self, answers: Answers) -> bool:
        """Count what this answer writes; the server itself answers. A connection has one request."""
        inner, counted = answers.wfile, self

        class Counting:
            def write(self, data: bytes) -> Any:
                counted.bytes += len(data)
                return inner.write(data)

            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

        answers.wfile = Counting()  # type: ignore[assignment]
        return False


def on_disk(place: Path) -> int:
    """Bytes that the files below a directory occupy."""
    return sum(entry.lstat().st_blocks * 512 for entry in place.rglob("*"))


def amount(size: float) -> str:
    """Bytes with a unit."""
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def of_large(base: Path, files: int, size: int) -> list[str]:
    """The rows of a large repository."""
    made = large(base, files, size)
    counted, rows = Counted(), []

    def row(name: str, act: Callable[[], object], place: Path) -> None:
        before, begun = counted.bytes, time.perf_counter()
        act()
        took = time.perf_counter() - begun
        rows.append(f"| {name} | {took:.2f} s | {amount(counted.bytes - before)} | {amount(on_disk(place))} |")

    with served(base, instead=counted.instead) as server:
        local = base / "large-local"
        local.mkdir(mode=0o700)
        file = local / "host.yaml"
        url = f"{server.url}//prod?ref=main"
        source = f"{{url: '{url}', caFile: {CERTIFICATE}, timeout: 10m}}"
        file.write_text(
            f"apiVersion: reconciler/v1\nkind: Instance\nmetadata: {{name: this}}\nspec: {{id: bench, source: {source}}}\n"
        )
        file.chmod(0o600)
        reader = GitReader(parse(url), local, base / "large-mirrors")

        def read() -> None:
            reader.hurry()
            sources = reader.read()
            if sources.problems or len(sources.tree.files) != 2:
                raise SystemExit(f"the set cannot be read: {reader.problem}")

        def clone(name: str, *options: str) -> list[str]:
            own = ["-c", f"http.sslCAInfo={CERTIFICATE}", "-c", "protocol.allow=always"]
            return [
                "git",
                *own,
                "clone",
                "-q",
                "--depth=1",
                *options,
                f"https://127.0.0.1:{server.port}/repo.git",
                str(base / name),
            ]

        def by_hand(*commands: list[str]) -> Callable[[], object]:
            env = {**ENV, "GIT_ALLOW_PROTOCOL": "https"}
            return lambda: [subprocess.run(words, env=env, check=True, capture_output=True) for words in commands]

        mirrors = base / "large-mirrors"
        row("`reconcile`: the first read", read, mirrors)
        tip = git("rev-parse", "main", at=made.bare)
        tip = _next(made, tip, "prod/web.yaml", WORKLOAD.replace("name: w}", "name: web}").replace("@N@", "two"))
        row("`reconcile`: a commit that changes one manifest", read, mirrors)
        _next(made, tip, "data/000/new.bin", "elsewhere")
        row("`reconcile`: a commit elsewhere", read, mirrors)
        row("`git clone --depth=1`", by_hand(clone("clone")), base / "clone")
        shutil.rmtree(base / "clone")
        sparse = base / "sparse"
        config = ["-c", f"http.sslCAInfo={CERTIFICATE}", "-c", "protocol.allow=always"]
        row(
            "`git clone --depth=1 --filter=blob:none --sparse`, and `git sparse-checkout set prod`",
            by_hand(
                clone("sparse", "--filter=blob:none", "--sparse"),
                ["git", "-C", str(sparse), *config, "sparse-checkout", "set", "prod"],
            ),
            sparse,
        )
    return rows


def _next(made: Upstream, tip: str, name: str, text: str) -> str:
    """Commit one file on top of the bare repository's branch."""
    blob = git("hash-object", "-w", "--stdin", at=made.bare, stdin=text.encode())
    index = {**ENV, "GIT_INDEX_FILE": str(made.bare / "bench.index")}
    for words in (
        ["read-tree", tip],
        ["update-index", "--add", "--cacheinfo", f"100644,{blob},{name}"],
    ):
        subprocess.run(["git", *words], cwd=made.bare, env=index, check=True)
    tree = subprocess.run(["git", "write-tree"], cwd=made.bare, env=index, check=True, capture_output=True, text=True)
    commit = git("commit-tree", "-p", tip, "-m", "next", tree.stdout.strip(), at=made.bare)
    git("update-ref", "refs/heads/main", commit, at=made.bare)
    return commit


# --- the report ----------------------------------------------------------------------------------------------------------------------


def row(label: str, times: list[float]) -> str:
    """One line of the table."""
    ordered = sorted(times)
    p90 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))]
    return f"| {label} | {median(ordered) * 1e3:,.0f} ms | {p90 * 1e3:,.0f} ms | {ordered[-1] * 1e3:,.0f} ms |"


@contextmanager
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-git-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.git_source")
    arguments.add_argument("--tries", type=int, default=20)
    arguments.add_argument("--polls", type=int, default=10)
    arguments.add_argument("--files", type=int, default=100_000)
    arguments.add_argument("--bytes", type=int, default=10_240)
    arguments.add_argument("--poll", nargs=4, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.poll:
        url, local, mirrors, polls = given.poll
        poll(url, local, mirrors, int(polls))
        return
    print("## Manifests from a git repository\n")
    with directory() as base:
        hooked, _ = pushes(base, given.tries, webhook=True)
        polled, after_poll = pushes(base, given.polls, webhook=False)
    print(
        "From the end of `git push` until the process of the new revision runs; https on loopback, replicas are processes.\n"
    )
    print("| from … to the new process | p50 | p90 | max |\n| --- | ---: | ---: | ---: |")
    print(row(f"a push with a webhook ({given.tries} pushes)", hooked))
    print(row(f"a push without one, polls every 10 to 11 s ({given.polls} pushes)", polled))
    print(row("the same, from the first request of the poll that finds the push", after_poll))
    print(
        "\nA poll that finds nothing new, 50 polls. `git` is what the program runs for it; it includes git's own server for `git+file`.\n"
    )
    print("| source | CPU of reconcile | CPU of git | time |\n| --- | ---: | ---: | ---: |")
    with directory() as base:
        made = Upstream(base)
        made.commit({"prod/web.yaml": WORKLOAD})
        signed_base = base / "of-alice"
        signed_base.mkdir()
        alice = SshKey(signed_base, "alice")
        signed = SignedRepository(signed_base)
        (signed.work / "prod").mkdir()
        (signed.work / "prod" / "web.yaml").write_text(WORKLOAD)
        signed.git("add", "prod")
        signed.commit("signed", alice)
        keys = signed.file("signers", f"{alice.public}\n")
        with served(base) as server:
            secure = f"git+https://127.0.0.1:{server.port}/repo.git//prod?ref=main"
            print(idle_polls(base, "git+file", f"{made.url}//prod?ref=main", 50))
            print(idle_polls(base, "git+https", secure, 50, caFile=str(CERTIFICATE)))
            verify = {"mode": "head", "keys": [{"ssh": keys}]}
            print(
                idle_polls(
                    base, "git+file, with a signature", f"git+file://{signed.bare}//prod?ref=main", 50, verify=verify
                )
            )
        print(
            asked_by_hand(
                "floor: `git ls-remote` by hand, over file",
                ["git", "ls-remote", f"file://{made.bare}", "refs/heads/main"],
                50,
            )
        )
    with directory() as base:
        total = given.files * given.bytes
        print(
            f"\nA repository of {amount(total)} in {given.files:,} files, of which a set reads two manifests. Over https.\n"
        )
        print("| | time | over the wire | on the disk |\n| --- | ---: | ---: | ---: |")
        for line in of_large(base, given.files, given.bytes):
            print(line)


if __name__ == "__main__":
    main()
