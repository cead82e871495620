"""One daemon with every kind of secret of a git source, and servers that repeat them: no secret is in any output, message, file or argument.

The secrets are the token and the ssh key of the repository, the secret of its webhook, the token of the forge, the address of a channel,
and a value that SOPS has encrypted. Each of them is really used; then, each in a test, the other side answers with it and it is replaced by
a wrong one, or it is lost. The report behind this test: secrets in errors, annotations and logs (argo-cd#16193, #897, #3479).
"""

import base64
import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from manifests.values.notices import ForgeType
from tests.e2e.quickstart_world import PATIENCE, until
from tests.e2e.signed_world import SignedWorld
from tests.e2e.test_git_source import sshd
from tests.forge.fake_forge import PROJECT, TOKEN, Repository, serving
from tests.git.upstream import CERTIFICATE, Answers, served
from tests.notify.servers import Hook, hook
from tests.providers.lib.encrypted import identity, sops, sops_program
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import IMAGE, NETWORK, ensure_docker
from tests.web.webhook_world import SECRET as WEBHOOK_SECRET

GIT_TOKEN = "Sentinel+git/token-71c2!"
ADDRESS_TOKEN = "Sentinel+address/token-18d0!"
"""Is in arguments of programs, where tests that run beside this one look for the others."""
CHANNEL = "sentinel-channel-5be0"
VALUE = "Sentinel:sops=value-9d4f"
WRONG = "wrong-but-secret-4a77"
SHOWN = (
    "plan -v",
    "plan -o json",
    "plan -o markdown",
    "explain workload/w/0",
    "events -o json",
    "get revisions -o json",
)
DENIED = ("status -o json", "doctor")
BROKEN = ("status", "validate", "doctor", "explain source/manifests", "notify test", "drift")
"""Commands at three moments: all is well; the server repeats the token; the manifests are invalid and the value cannot be decrypted."""
PROGRAMS = ("git", "ssh", "sops", "age", "gpg")

WORKLOAD = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: w}
spec:
  drain: {min: 0s, max: 1s}
  template:
    metadata: {labels: {app: w}}
    spec:
      terminationGracePeriodSeconds: 1
      networks: [@NETWORK@]
      containers:
        - name: a
          image: @IMAGE@
          imagePullPolicy: Never
          command: [/bin/sh, -c, "exec /bin/sleep 86397"]
          env:
            - {name: VERSION, value: "@N@"}
            - {name: DB_PASSWORD, valueFrom: {secret: {sops: {file: secrets/db.yaml, key: password}}}}
          readinessProbe: {exec: {command: [/bin/sh, -c, "echo login with $DB_PASSWORD failed; exit 1"]}, periodSeconds: 1, failureThreshold: 1}
"""

LOOKS = 3
"""How often a process is looked at under one name: its arguments may come a moment after the name."""


def forms(secret: str) -> set[str]:
    """A secret as it is, in URLs, in JSON, and in Base64 at any place of a longer text."""
    found = {secret, quote(secret, safe=""), json.dumps(secret)[1:-1]}
    for shift in range(3):
        encoded = base64.b64encode(b"x" * shift + secret.encode()).decode().rstrip("=")
        found.add(encoded[(shift * 4 + 2) // 3 + 1 : -2])
    return found


class Watch:
    """Looks at the arguments of all processes, and at the variables of the programs that this one runs, again and again."""

    def __init__(self, needles: set[str]) -> None:
        self.needles = {needle.encode() for needle in needles}
        self.found: set[str] = set()
        self._known: dict[tuple[str, str], int] = {}
        self.seen: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            for entry in os.scandir("/proc"):
                if entry.name.isdecimal():
                    with suppress(OSError):
                        self._look(entry.path)

    def _look(self, directory: str) -> None:
        name = _name(f"{directory}/comm")
        looks = self._known[directory, name] = self._known.get((directory, name), 0) + 1
        if looks > LOOKS:
            return
        process = Path(directory)
        texts = [(process / "cmdline").read_bytes()]
        if name.startswith(PROGRAMS):
            self.seen.add(name)
            texts.append((process / "environ").read_bytes())
        if any(needle in text for needle in self.needles for text in texts):
            self.found.add(f"{name}: {texts[0]!r}")


def _name(file: str) -> str:
    """What a process is called. Without file objects, because it is asked for all processes fifty times a second."""
    number = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(number, 64).decode(errors="replace").strip()
    finally:
        os.close(number)


class Sentinels(SignedWorld):
    """A host with all of these secrets, in files of its local documents."""

    def __init__(self, base: Path, bench: Bench, repository: str, forge: str, channel: str) -> None:
        self.bench, self.forge, self.channel = bench, forge, channel
        self.recipient = identity(base / "age.txt")
        super().__init__(base, url=f"{repository}//prod?ref=main", verify=None, caFile=str(CERTIFICATE))
        self.id = bench.instance
        self.state = self.home / "reconciler" / self.id
        self.source["token"] = {"file": self.file("token", GIT_TOKEN)}
        self.file("forge", TOKEN)
        self.file("channel", f"{channel}/{CHANNEL}")
        (self.repository.work / "prod").mkdir()
        sops(self.recipient, f"password: '{VALUE}'\n", self.repository.work / "prod/secrets/db.yaml")
        self.write()

    def write(self) -> None:
        super().write()
        file = self.local / "host.yaml"
        local = self.local
        more = {
            "secrets": [{"sops": {"file": "secrets/db.yaml", "key": "password"}, "workload": "w"}],
            "decryption": {"identities": [{"name": "main", "file": str(self.base / "age.txt")}]},
            "forge": {
                "type": "gitlab",
                "url": self.forge,
                "project": PROJECT,
                "token": {"file": str(local / "forge")},
            },
            "notifications": [
                {
                    "name": "ops",
                    "type": "webhook",
                    "urlFrom": {"file": str(local / "channel")},
                    "topics": ["source", "rollout", "hold"],
                }
            ],
        }
        lines = "".join(f"  {name}: {json.dumps(value)}\n" for name, value in more.items())
        engine = f"{{type: docker, settings: {{socket: {self.bench.socket}}}}}"
        guard = "---\napiVersion: reconciler/v1\nkind: Guard\nmetadata: {name: limits}\nspec: {}\n"
        text = file.read_text().replace("{type: process}", engine).replace("  allowProcess: [w]\n", lines)
        self.file("host.yaml", text + guard)

    def change(self, number: int) -> str:
        text = WORKLOAD.replace("@N@", str(number)).replace("@IMAGE@", IMAGE).replace("@NETWORK@", NETWORK)
        (self.repository.work / "prod" / "w.yaml").write_text(text)
        self.repository.git("add", "prod")
        return self.repository.commit(f"number {number}", None)

    def containers(self) -> list[dict]:
        """The running containers, as the engine shows them."""
        api = self.bench.api
        found = [api.inspect(name) for name in api.names(f"reconciler.instance={self.id}")]
        return [container for container in found if container["State"]["Running"]]

    def say(self, *words: str) -> str:
        """What a command prints, whatever its exit code."""
        code, out, err = self.ask(*words)
        return f"exit {code}\n{out}{err}"

    def all_said(self, *commands: str) -> dict[str, str]:
        """What these commands print now."""
        of_instance = ("status", "events", "explain", "get")
        by_id, by_tree = ["--instance-id", self.id], ["--instance", str(self.local)]
        return {
            command: self.say(*command.split(), *(by_id if command.startswith(of_instance) else by_tree))
            for command in commands
        }

    def files(self) -> dict[str, str]:
        """The contents of all files of the state directories, of mirrors and of the daemon's log."""
        kept = {str(path): path for path in (*self.home.rglob("*"), self.base / "watch.log") if path.is_file()}
        return {name: path.read_bytes().decode("latin-1") for name, path in kept.items()}


def deliver_wrongly(port: int) -> str:
    """A delivery with the secret where another forge would have it, and without a valid proof."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        client.request("POST", "/v1/webhook", b"{}", {"X-Gitlab-Token": f"{WRONG}{WEBHOOK_SECRET}"})
        answer = client.getresponse()
        assert answer.status == 401
        return answer.read().decode()
    finally:
        client.close()


@pytest.fixture
def bench(tmp_path: Path, shared: Path) -> Iterator[Bench]:
    (tmp_path / "bench").mkdir()
    made = Bench(ensure_docker(shared), tmp_path / "bench")
    yield made
    made.close()


@contextmanager
def repeating(base: Path) -> Iterator[tuple[str, list[bool]]]:
    """The repository over https. While `denies` is not empty, the server refuses with the credentials that it was given."""
    denies: list[bool] = []

    def instead(answers: Answers) -> bool:
        given = answers.headers.get("Authorization", "")
        if not denies or not given:
            return False
        shown = base64.b64decode(given.removeprefix("Basic ")).decode()
        answers.answer(403, f"denied: {shown} ({given})\n".encode(), {"Content-Type": "text/plain"})
        return True

    with served(base, GIT_TOKEN, instead) as server:
        yield f"git+https://127.0.0.1:{server.port}/bare.git", denies


@dataclass
class Moment:
    """A host at work, and the servers that it uses."""

    world: Sentinels
    forge: Repository
    channel: Hook
    denies: list[bool]

    def all_is_well(self) -> dict[str, str]:
        """All secrets are used, and servers answer with them."""
        said = {"delivery": json.dumps(self.world.deliver()), "wrong delivery": deliver_wrongly(self.world.port)}
        return said | self.world.all_said(*SHOWN)

    def denied(self) -> dict[str, str]:
        """The server of the repository repeats the token; then the token is another one."""
        self.denies.append(True)
        self.world.deliver()
        until(lambda: "SourceUnreadable" in self.world.status(), PATIENCE)
        self.world.file("token", f"{WRONG}-{GIT_TOKEN}")
        said = self.world.all_said(*DENIED)
        self.denies.clear()
        self.world.file("token", GIT_TOKEN)
        return said

    def broken(self) -> dict[str, str]:
        """The value cannot be decrypted, and the manifests are invalid."""
        world = self.world
        (world.base / "age.txt").rename(world.base / "kept.txt")
        (world.repository.work / "prod" / "bad.yaml").write_text("kind: Nothing\nspec: {password: x}\n")
        commit = world.change(2)
        world.deliver()
        until(lambda: any(row["commit"] == commit for row in self.forge.statuses), PATIENCE)
        said = world.all_said(*BROKEN)
        (world.base / "kept.txt").rename(world.base / "age.txt")
        said["once"] = world.say("--once", "-v", "--instance", str(world.local))
        until(lambda: len(self.channel.requests) > 1, PATIENCE)
        assert all(path.endswith(CHANNEL) for path, _, _ in self.channel.requests), "the channel's address was not used"
        return said


@pytest.mark.server("dockerd")
@pytest.mark.server("age")
@pytest.mark.parametrize(
    "moment", [Moment.all_is_well, Moment.denied, Moment.broken], ids=lambda moment: moment.__name__
)
def test_no_secret_of_a_source_is_in_any_output_file_or_argument(
    moment: Callable[[Moment], dict[str, str]], tmp_path: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sops_program(tmp_path, monkeypatch)
    secrets = (GIT_TOKEN, WEBHOOK_SECRET, TOKEN, CHANNEL, VALUE, WRONG)
    needles = set().union(*map(forms, secrets))
    with (
        Watch(needles) as watch,
        serving(ForgeType.GITLAB) as forge,
        hook() as channel,
        repeating(tmp_path) as (url, denies),
    ):
        forge.faults.append((401, {"message": f"401 Unauthorized: {TOKEN}"}, {}))
        channel.answers.append((500, {}, f"no such hook: /{CHANNEL}".encode()))
        world = Sentinels(tmp_path, bench, url, forge.url, channel.url)
        try:
            first = world.change(1)
            world.watch()
            until(lambda: len(world.containers()) == 1, PATIENCE)
            until(lambda: any(row["commit"] == first for row in forge.statuses), PATIENCE)
            (container,) = world.containers()
            assert f"DB_PASSWORD={VALUE}" in container["Config"]["Env"], "the container has no secret"
            said = moment(Moment(world, forge, channel, denies))
            said["labels"] = str(container["Config"]["Labels"])
        finally:
            world.close()
        said["bodies of notices"] = "".join(body.decode() for _, _, body in channel.requests)
        said["statuses and comments"] = json.dumps([forge.statuses, forge.comments])
        files = world.files()
    assert watch.seen >= {"git", "sops"}, watch.seen
    assert not watch.found
    assert any("login with *** failed" in text for text in files.values()), "nothing was masked"
    assert [where for where, text in (*said.items(), *files.items()) if any(needle in text for needle in needles)] == []


@pytest.mark.parametrize("place", ["path", "local documents"])
def test_a_token_in_an_address_is_refused_and_never_shown(tmp_path: Path, place: str) -> None:
    world = SignedWorld(tmp_path, verify=None, webhook=None)
    address = f"git+https://ops:{quote(ADDRESS_TOKEN, safe='')}@127.0.0.1:9/repo.git//prod?ref=main"
    given = [address]
    if place == "local documents":
        world.source["url"] = address
        world.write()
        given = ["--instance", str(world.local)]
    needles = forms(ADDRESS_TOKEN)
    for words in (["validate"], ["plan"], ["doctor"], ["--once", "-v"], ["--watch"], ["apply", "--yes"]):
        done = subprocess.run(
            [sys.executable, "-m", "reconciler", *words, *given],
            env=world.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode in {3, 64}, done.stderr
        assert not [needle for needle in needles if needle in done.stdout + done.stderr], done.stderr
    kept = [path for path in world.home.rglob("*") if path.is_file()]
    assert not [path for path in kept if any(needle.encode() in path.read_bytes() for needle in needles)]


@pytest.mark.server("sshd")
def test_an_ssh_key_is_in_no_output_file_or_argument(tmp_path: Path) -> None:
    with sshd(tmp_path) as (port, key, known):
        lines = key.read_text().splitlines()[1:-1]
        needles = {line for line in lines if len(line) > 20}
        assert needles
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        world = SignedWorld(tmp_path, verify=None, webhook=None)
        world.env["SENTINEL_KEY"] = key.read_text()
        world.source |= {
            "url": f"git+ssh://{user}@127.0.0.1:{port}{world.repository.bare}//prod?ref=main",
            "sshKey": {"env": "SENTINEL_KEY"},
            "knownHosts": str(known),
        }
        world.write()
        try:
            world.commit(1, None)
            said = []
            with Watch(needles) as watch:
                said += [world.run(*words, "--instance", world.local) for words in (("doctor",), ("--once", "-v"))]
                assert world.numbers() == ["1"]
                known.write_text("")
                said.append(world.run("--once", "-v", "--instance", world.local, code=8))
                world.env["SENTINEL_KEY"] = "\n".join(["-----BEGIN OPENSSH PRIVATE KEY-----", *lines[:1], "-----END"])
                said.append(world.run("doctor", "--instance", world.local, code=8))
            assert watch.seen >= {"git", "ssh"}, watch.seen
            shown = {entry for entry in watch.found if not entry.startswith(("ssh-agent", "sshd"))}
            assert not shown
            assert not [text for text in said if any(needle in text for needle in needles)]
            kept = [path for path in world.home.rglob("*") if path.is_file()]
            assert not [path for path in kept if any(needle.encode() in path.read_bytes() for needle in needles)]
        finally:
            world.close()
