"""Files of the repository in containers of real engines: mounted, replaced, signalled, kept, rolled back and removed."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.errors import Gone
from providers.testing.checks import wait_until
from tests.e2e.program import ENGINE
from tests.e2e.test_engine_containers import Machine
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import IMAGE, NETWORK, ensure_docker, ensure_podman, podman_home

MANIFESTS = (
    ENGINE.replace("{{id: {id}}}", "{{id: {id}, intervals: {{runtime: 1s}}}}")
    + """\
apiVersion: reconciler/v1
kind: Workload
metadata: {{name: web}}
spec:
  replicas: 1
  drain: {{min: 0s, max: 1s}}
  restarts: {{backoff: {{initial: 1s}}}}
  template:
    spec:
      terminationGracePeriodSeconds: 1
      networks: [{network}]
      volumes:
        - name: conf
          files: {{from: ./conf, onChange: rollout}}
        - name: one
          files: {{from: one.conf, mode: "0555"}}
      containers:
        - name: web
          image: {image}
          imagePullPolicy: Never
          command: [/bin/sh, -c, "trap 'echo hup >>/tmp/hups' HUP; trap 'exit 0' TERM; while :; do /bin/sleep 300 & wait $!; done"]
          envFile: app.env
          securityContext: {{runAsUser: 12345}}
          volumeMounts: [{{name: conf, mountPath: /conf}}, {{name: one, mountPath: /etc/one}}]
"""
)


class Files(Machine):
    """A machine with a workload that mounts `conf`."""

    def __init__(self, bench: Bench, base: Path) -> None:
        super().__init__(bench, base)
        (self.tree / "conf/d").mkdir(parents=True)
        (self.tree / "conf/app.conf").write_text("level: 1\n")
        (self.tree / "conf/d/run").write_text("#!/bin/sh\nexit 7\n")
        (self.tree / "conf/d/run").chmod(0o755)
        (self.tree / "one.conf").write_text("#!/bin/sh\nexit 5\n")
        (self.tree / "app.env").write_text("GREETING='hello # there'  # a comment\n")
        self.write(MANIFESTS.format(id=bench.instance, socket=bench.socket, image=IMAGE, network=NETWORK))

    def once(self) -> str:
        code, said = self.run("--once", "--timeout", "90s")
        assert code == 0, said
        return said

    def state(self, name: str) -> dict:
        """As of a container that is down, when it was removed after it was listed."""
        try:
            return super().state(name)
        except Gone:
            return {"Running": False}

    @property
    def name(self) -> str:
        (name,) = self.names()
        return name

    @property
    def store(self) -> Path:
        return self.home / "reconciler" / self.bench.instance / "files"

    def digests(self) -> set[str]:
        return {entry.name for entry in self.store.iterdir()} - {"live"}

    def level(self, value: int) -> None:
        (self.tree / "conf/app.conf").write_text(f"level: {value}\n")

    def sees(self, value: int) -> bool:
        return self.holds(f'test "$(cat /conf/app.conf)" = "level: {value}"')

    def holds(self, test: str) -> bool:
        return self.passes(self.name, test)

    def passes(self, name: str, test: str) -> bool:
        """Whether a shell command succeeds in the file system of a container, as the user of its process."""
        pid = str(self.api.inspect(name)["State"]["Pid"])
        command = ["nsenter", "-t", pid, "-m", "-r", "-S", "12345", "-G", "12345", "/bin/sh", "-c", test]
        return subprocess.run(command, timeout=20, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def serving(self) -> str:
        """The only container that runs; empty while there are none or more."""
        running = [name for name in self.names() if self.state(name)["Running"]]
        return running[0] if len(running) == 1 else ""

    def environment(self) -> list[str]:
        pid = self.api.inspect(self.name)["State"]["Pid"]
        return Path(f"/proc/{pid}/environ").read_text().split("\0")

    def identity(self) -> tuple[str, str]:
        inspection = self.api.inspect(self.name)
        return inspection["Id"], inspection["State"]["StartedAt"]


def _files(socket: str, base: Path) -> Iterator[Files]:
    (base / "bench").mkdir()
    bench = Bench(socket, base / "bench")
    made = Files(bench, base)
    try:
        yield made
    finally:
        made.close()
        bench.close()


@pytest.fixture(
    params=[
        pytest.param("docker", marks=pytest.mark.server("dockerd")),
        pytest.param("podman", marks=pytest.mark.server("podman")),
    ]
)
def files(request: pytest.FixtureRequest, tmp_path: Path, shared: Path) -> Iterator[Files]:
    if request.param == "docker":
        yield from _files(ensure_docker(shared), tmp_path)
        return
    with podman_home() as home:
        yield from _files(ensure_podman(home), tmp_path)


@pytest.fixture
def docker(tmp_path: Path, shared: Path) -> Iterator[Files]:
    yield from _files(ensure_docker(shared), tmp_path)


def test_any_user_of_a_container_reads_its_files_and_writes_none(files: Files) -> None:
    files.once()
    assert files.sees(1)
    assert "GREETING=hello # there" in files.environment()
    assert files.holds("/conf/d/run; test $? = 7"), "the file may be executed"
    assert files.holds("/etc/one; test $? = 5"), "one file is mounted as a file"
    assert not files.holds("echo x >/etc/one")
    assert not files.holds("echo x >/conf/app.conf")
    assert not files.holds("echo x >/conf/new")
    assert os.stat(files.store).st_mode & 0o777 == 0o700
    before = files.identity()
    files.once()
    assert files.identity() == before


def test_changed_files_replace_the_container_and_are_rolled_back(files: Files) -> None:
    files.once()
    before, first = files.identity(), files.digests()
    files.level(2)
    code, said = files.run("plan")
    assert code == 0
    assert "app.conf" in said, said
    assert files.sees(1), "a running container keeps the files that it was created with"
    files.once()
    assert files.identity() != before
    assert files.sees(2)
    assert len(files.digests() & first) == 1, "of the earlier files only those of the other volume stay"
    files.level(1)
    files.once()
    assert files.sees(1)
    assert files.digests() == first


def test_a_signal_shows_new_files_to_the_running_container(files: Files) -> None:
    files.change("onChange: rollout", "onChange: signal")
    files.once()
    before = files.identity()
    assert files.sees(1)
    (files.tree / "conf/more").write_text("more")
    (files.tree / "conf/d/run").unlink()
    files.level(2)
    said = files.once()
    assert "SIGHUP" in said, said
    assert files.identity() == before
    assert files.sees(2)
    assert files.holds("cat /conf/more && test ! -e /conf/d")
    assert files.holds('test "$(cat /tmp/hups)" = hup')
    files.once()
    assert files.holds('test "$(cat /tmp/hups)" = hup'), "one signal for each change"
    code, said = files.run("destroy", "--yes")
    assert code == 0, said
    assert list(files.store.glob("live/*")) == []


def test_without_a_reaction_running_containers_keep_their_files(docker: Files) -> None:
    docker.change("onChange: rollout", "onChange: nothing")
    docker.once()
    before, first = docker.identity(), docker.digests()
    docker.level(2)
    docker.once()
    assert docker.identity() == before
    assert docker.sees(1)
    _, said = docker.run("status")
    assert "keeps earlier files" in said, said
    assert docker.digests() >= first, "a container still mounts them"
    docker.change("replicas: 1", "replicas: 2")
    docker.once()
    assert {docker.passes(name, 'test "$(cat /conf/app.conf)" = "level: 1"') for name in docker.names()} == {
        True,
        False,
    }, "the new container has the new files"


def test_a_rollback_serves_with_the_files_of_its_revision(docker: Files) -> None:
    docker.change("  restarts:", "  rollout: {strategy: activate, bake: 1s, rollbackWindow: 10m}\n  restarts:")
    docker.watch()
    wait_until(lambda: docker.running() == 1, "the first revision runs")
    first, name = docker.digests(), docker.name
    docker.level(2)
    wait_until(lambda: docker.serving() not in ("", name), "the second revision serves")
    assert docker.passes(docker.serving(), 'test "$(cat /conf/app.conf)" = "level: 2"')
    assert docker.digests() > first, "the kept revision needs its files"
    wait_until(lambda: docker.run("rollback", "workload/web", "--reason", "test")[0] == 0, "the rollback is taken")
    wait_until(lambda: docker.serving() == name, "the first revision serves again")
    assert docker.passes(name, 'test "$(cat /conf/app.conf)" = "level: 1"')


def test_a_broken_source_still_creates_containers_with_their_files(docker: Files) -> None:
    docker.once()
    (docker.tree / "conf/app.conf").unlink()
    (docker.tree / "conf/app.conf").symlink_to("/etc/passwd")
    shutil.rmtree(docker.store)  # root may: the files are lost with the container
    docker.api.link.delete(f"/containers/{docker.name}", "test", force="1")
    docker.watch()
    wait_until(lambda: len(docker.names()) == 1 and docker.running() == 1, "the container is created again")
    assert docker.sees(1)


def test_a_kill_while_files_are_stored_leaves_nothing_half_done(docker: Files) -> None:
    number = 200
    for index in range(number):
        (docker.tree / f"conf/file-{index}").write_text(str(index))
    docker.once()
    for round_ in range(4):
        docker.level(round_ + 2)
        docker.watch()
        time.sleep(0.6 + 0.15 * round_)
        assert docker.watcher is not None
        docker.watcher.send_signal(signal.SIGKILL)
        docker.watcher.communicate()
    docker.once()
    assert docker.sees(5)
    assert docker.holds(f'test "$(cat /conf/file-{number - 1})" = {number - 1}')
    assert len(docker.digests()) == 2
