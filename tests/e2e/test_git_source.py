"""Manifests from a git repository, with the real program: over files, https and ssh, from a commit to a converged host."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from reconciler.cli.app import run as command
from tests.free_ports import free_port
from tests.git.upstream import CERTIFICATE, ENV, Upstream, git, served

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 90.0
"""Seconds that anything may take on a busy machine."""
SENTINEL = "sentinel-7f3a9c51"

HOST = """\
apiVersion: reconciler/v1
kind: Provider
metadata: {name: here}
spec: {type: process}
"""
WEB = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web}
spec:
  nodes: [here]
  template:
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: web
          command: [python3, serve.py, "%s"]
          workingDir: app
"""
SERVE = "import time\nwhile True:\n    time.sleep(60)\n"


class Host:
    """A host with state of its own, and a repository that its manifests come from."""

    def __init__(self, base: Path) -> None:
        self.base, self.upstream = base, Upstream(base)
        self.id = f"g{os.getpid()}{time.monotonic_ns() % 10**9}"
        self.local, self.home = base / "local", base / "home"
        self.local.mkdir(mode=0o700)
        self.upstream.commit({"set/web.yaml": WEB % "one", "set/app/serve.py": SERVE})
        self.declare(f"url: '{self.upstream.url}//set?ref=main', interval: 10s")

    def declare(self, source: str) -> None:
        """Write the local documents."""
        file = self.local / "host.yaml"
        spec = f"id: {self.id}, prune: true, allowProcess: [web], source: {{{source}}}"
        instance = f"apiVersion: reconciler/v1\nkind: Instance\nmetadata: {{name: this}}\nspec: {{{spec}}}\n"
        file.write_text(f"{instance}---\n{HOST}")
        file.chmod(0o600)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "reconciler", *words],
            cwd=ROOT,
            env={**os.environ, "XDG_STATE_HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        out, _ = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in out, out
        return process.returncode, out

    def here(self, *words: str) -> tuple[int, str]:
        """Run a command with the local documents and without PATH."""
        return self.run(*words, "--instance", str(self.local))

    def status(self) -> dict:
        """What `status` prints; asked within this process, because it is asked often and a start takes long."""
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()):
            command(["status", "-o", "json", "--state-dir", str(self.home / "reconciler" / self.id)])
        return {"live": False, "manifests": {}, "holds": [], **json.loads(out.getvalue() or "{}")}

    def _replicas(self) -> Iterator[tuple[int, str]]:
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    words = (entry / "cmdline").read_text(errors="replace").split("\0")
                    if "serve.py" in words and str(self.base) in os.readlink(entry / "cwd"):
                        yield int(entry.name), words[-2]
                except OSError:
                    continue

    def running(self) -> list[str]:
        """The last word of the command of each replica that runs."""
        return sorted(word for _, word in self._replicas())

    def pids(self) -> list[int]:
        return [pid for pid, _ in self._replicas()]

    @contextmanager
    def daemon(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        process = self.start("--watch", "--instance", str(self.local), *words)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.run("destroy", "--instance-id", made.id, "--yes")


def eventually(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.2)


def test_a_daemon_follows_a_branch(host: Host) -> None:
    with host.daemon():
        eventually(lambda: host.running() == ["one"])
        good = host.upstream.commit({"set/web.yaml": WEB % "two"})
        eventually(lambda: host.running() == ["two"])
        eventually(lambda: host.status()["manifests"]["in_force"]["commit"] == good)
    code, events = host.run("events", "--instance-id", host.id)
    assert code == 0
    assert good[:12] in events


def test_a_daemon_keeps_the_last_good_commit(host: Host) -> None:
    good = git("rev-parse", "HEAD", at=host.upstream.work)
    with host.daemon():
        eventually(lambda: host.running() == ["one"])
        broken = host.upstream.commit({"set/web.yaml": "kind: [\n"})
        eventually(lambda: (host.status()["manifests"].get("attempted") or {}).get("commit") == broken)
        assert host.status()["manifests"]["in_force"]["commit"] == good
        assert host.running() == ["one"]
    code, events = host.run("events", "--instance-id", host.id)
    assert code == 0
    assert broken[:12] in events


def test_a_force_push_is_followed_and_is_an_event(host: Host) -> None:
    with host.daemon():
        eventually(lambda: host.running() == ["one"])
        old = git("rev-parse", "HEAD", at=host.upstream.work)
        git("commit", "-q", "--amend", "-m", "other", at=host.upstream.work)
        new = host.upstream.commit({"set/web.yaml": WEB % "two"})
        eventually(lambda: host.running() == ["two"])
    _, out = host.run("events", "--instance-id", host.id)
    assert f"commit {new} does not follow commit {old}" in out
    assert "force-push" in out


def test_a_held_force_push_is_held_over_restarts(host: Host) -> None:
    host.declare(f"url: '{host.upstream.url}//set?ref=main', requireFastForward: true")
    assert host.here("--once")[0] == 0
    old = git("rev-parse", "HEAD", at=host.upstream.work)
    git("commit", "-q", "--amend", "-m", "other", at=host.upstream.work)
    new = host.upstream.commit({"set/web.yaml": WEB % "two"})
    for words in (("plan",), ("--once",)):
        code, out = host.here(*words)
        assert code == 8, out
        assert old in out
        assert new in out
    branch = f"{host.upstream.url}//set?ref=refs/heads/proposal"
    host.upstream.push("HEAD:refs/heads/proposal")
    assert host.run("plan", branch, "--instance", str(host.local))[0] == 0  # only the source is held
    assert host.running() == ["one"]
    with host.daemon():
        eventually(lambda: host.status()["live"])
        assert [hold["rule"] for hold in host.status()["holds"]] == ["SourceUnreadable"]
        assert host.running() == ["one"]
    host.declare(f"url: '{host.upstream.url}//set?ref=main'")
    assert host.here("--once")[0] == 0
    assert host.running() == ["two"]


def test_commits_elsewhere_cause_no_action(host: Host) -> None:
    assert host.here("--once")[0] == 0
    code, out = host.here("plan", "--detailed-exitcode")
    assert code == 0, out
    first = git("rev-parse", "HEAD", at=host.upstream.work)
    assert f"at commit {first} of refs/heads/main" in out
    other = host.upstream.commit({"other/web.yaml": WEB % "three"})
    code, out = host.here("plan", "--detailed-exitcode")
    assert code == 0, out
    assert f"at commit {other}" in out
    assert host.here("--once")[0] == 0
    _, out = host.run("status", "--instance-id", host.id)
    assert f"commit {first[:12]} is in force" in out
    assert f"{other[:12]}, changes nothing" in out


def test_a_checkout_becomes_a_git_source_without_an_action(host: Host) -> None:
    checkout = host.base / "checkout"
    git("clone", "-q", str(host.upstream.bare), str(checkout))
    assert host.run("--once", str(checkout / "set"), "--instance", str(host.local))[0] == 0
    assert host.running() == ["one"]
    code, out = host.here("plan", "--detailed-exitcode", "--prune")
    assert code == 0, out
    assert host.here("--once")[0] == 0
    host.upstream.commit({"set/web.yaml": None, "set/other.yaml": (WEB % "other").replace("name: web}", "name: web2}")})
    code, out = host.here("plan")
    assert "another source" not in out
    assert "the inventory was made from" not in out


def test_without_the_remote_nothing_changes_and_the_code_is_8(host: Host) -> None:
    assert host.here("--once")[0] == 0
    shutil.move(host.upstream.bare, host.base / "gone")
    for words in (("--once",), ("plan",), ("doctor",)):
        code, out = host.here(*words)
        assert code == 8, out
        assert "source-unreadable" in out
    assert host.running() == ["one"]
    _, out = host.here("status")
    assert "source-unreadable" in out
    assert "has been in force" in out


def test_a_daemon_without_the_remote_waits_until_it_is_back(host: Host) -> None:
    assert host.here("--once")[0] == 0
    shutil.move(host.upstream.bare, host.base / "gone")
    with host.daemon() as process:
        eventually(lambda: host.status()["live"])
        status = host.status()
        assert [hold["rule"] for hold in status["holds"]] == ["SourceUnreadable"]
        assert host.running() == ["one"]
        shutil.move(host.base / "gone", host.upstream.bare)
        eventually(lambda: not host.status()["holds"])
        assert process.poll() is None


def test_a_new_host_without_the_remote_ends_with_8(host: Host) -> None:
    shutil.move(host.upstream.bare, host.base / "gone")
    for words in (("--once",), ("--watch",)):
        code, out = host.here(*words)
        assert code == 8, out
    assert host.running() == []


@pytest.mark.parametrize("address", ["git+https://user:pa55word@h/r.git", "https://h/r", "ext::sh", "git@h:r.git"])
def test_a_bad_address_is_a_usage_error(host: Host, address: str) -> None:
    for words in (("--once",), ("plan",), ("status",)):
        code, out = host.run(*words, address)
        assert code == 64, out
        assert "pa55word" not in out


def test_a_tree_that_names_a_source_is_refused(host: Host) -> None:
    host.upstream.commit(
        {
            "set/i.yaml": "apiVersion: reconciler/v1\nkind: Instance\nmetadata: {name: this}\n"
            f"spec: {{id: {host.id}, source: {{url: 'git+https://evil.example/r.git'}}}}\n"
        }
    )
    for words in (("validate", "--instance", str(host.local)), ("validate", f"{host.upstream.url}//set")):
        code, out = host.run(*words)
        assert code == 3, out
        assert "local-only" in out


def test_a_token_is_used_and_never_shown(host: Host) -> None:
    token = host.base / "token"
    token.write_text(f"{SENTINEL}\n")
    token.chmod(0o600)
    with served(host.base, SENTINEL) as server:
        host.declare(f"url: '{server.url}//set', token: {{file: {token}}}, caFile: {CERTIFICATE}")
        shown = [host.here("doctor"), host.here("--once", "-v"), host.here("plan", "-o", "json"), host.here("status")]
        assert [code for code, _ in shown] == [0, 0, 0, 0], shown
        assert host.running() == ["one"]
        token.write_text(f"wrong-{SENTINEL}")
        code, out = host.here("--once", "-v")
        assert code == 8, out
        shown.append((code, out))
    assert not any(SENTINEL in out for _, out in shown)
    kept = [path for path in host.home.rglob("*") if path.is_file() and SENTINEL.encode() in path.read_bytes()]
    assert kept == []


# --- ssh -------------------------------------------------------------------------------------------------------------


@pytest.mark.server("sshd")
def test_ssh_with_a_key_and_known_hosts(host: Host) -> None:
    with sshd(host.base) as (port, key, known):
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        address = f"git+ssh://{user}@127.0.0.1:{port}{host.upstream.bare}//set"
        host.declare(f"url: '{address}', sshKey: {{file: {key}}}, knownHosts: {known}")
        code, out = host.here("--once")
        assert code == 0, out
        assert host.running() == ["one"]
        os.environ["TEST_SSH_KEY"] = key.read_text()
        try:
            host.declare(f"url: '{address}', sshKey: {{env: TEST_SSH_KEY}}, knownHosts: {known}")
            assert host.here("doctor")[0] == 0
        finally:
            del os.environ["TEST_SSH_KEY"]
        host.declare(f"url: '{address}', sshKey: {{file: {key}}}, knownHosts: {known}")
        known.write_text("")
        code, out = host.here("--once")
        assert code == 8, out
        assert "known hosts" in out


@contextmanager
def sshd(base: Path) -> Iterator[tuple[int, Path, Path]]:
    """A server of ssh for this user only; its port, the private key of a client, and the file of its host key."""
    place, port = base / "sshd", free_port()
    place.mkdir(mode=0o700)
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)], check=True)
    shutil.copy(place / "client.pub", place / "authorized")
    known = place / "known"
    known.write_text(f"[127.0.0.1]:{port} {(place / 'host.pub').read_text()}")
    config = place / "config"
    config.write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {place}/host\nAuthorizedKeysFile {place}/authorized\nPidFile none\n"
        "StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nPermitRootLogin yes\n"
    )
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([program, "-D", "-e", "-f", str(config)], env=ENV, stderr=subprocess.PIPE)
    try:
        eventually(lambda: _listens(port))
        yield port, place / "client", known
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)


def _listens(port: int) -> bool:
    done = subprocess.run(["ssh-keyscan", "-T", "2", "-p", str(port), "127.0.0.1"], capture_output=True, check=False)
    return bool(done.stdout)


def test_a_remote_that_hangs_delays_neither_health_nor_the_end(host: Host) -> None:
    hangs: list[bool] = []

    def hang(_: object) -> bool:
        if hangs:
            time.sleep(30)
        return False

    with served(host.base, instead=hang) as server:
        host.declare(f"url: '{server.url}//set', caFile: {CERTIFICATE}, interval: 10s, timeout: 1m")
        process = host.start("--watch", "--instance", str(host.local))
        try:
            eventually(lambda: host.running() == ["one"])
            polls = len(server.seen)
            hangs.append(True)
            eventually(lambda: len(server.seen) > polls)
            for pid in host.pids():
                os.kill(pid, signal.SIGKILL)
            eventually(lambda: host.running() == ["one"])
        finally:
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)
        assert process.returncode == 143
        assert time.monotonic() - begun < 12


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("url: 'https://h/r.git'", "git+https://"),
        ("url: 'git+ssh://git@h/r.git'", "git+ssh needs sshKey"),
        ("url: 'git+file:///r.git', interval: 1s", "10s"),
        ("url: 'git+https://h/r.git', knownHosts: /x", "knownHosts does nothing"),
    ],
)
def test_a_source_that_cannot_be_meant_is_invalid(host: Host, source: str, message: str) -> None:
    host.declare(source)
    code, out = host.here("validate")
    assert code == 3, out
    assert message in out


def test_without_path_and_source_path_is_missing(host: Host) -> None:
    file = host.local / "host.yaml"
    file.write_text(file.read_text().partition(", source:")[0] + "}\n")
    for words in (("--once",), ("plan",), ("validate",), ("status",), ("apply", "--yes")):
        code, out = host.here(*words)
        assert code == 64, out
        assert "PATH is missing" in out
