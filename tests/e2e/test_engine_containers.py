"""The real command on a real engine: renamed containers, lost ledgers, ends that the engine repairs, and restart policies."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.program import ENGINE
from tests.e2e.quickstart_world import ROOT, until
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import IMAGE, NETWORK, ensure_docker, ensure_podman, podman_home

MANIFESTS = (
    ENGINE
    + """\
apiVersion: reconciler/v1
kind: Workload
metadata: {{name: web}}
spec:
  replicas: 2
  drain: {{min: 0s, max: 1s}}
  restarts: {{backoff: {{initial: 1s}}}}
  template:
    spec:
      terminationGracePeriodSeconds: 1
      networks: [{network}]
      containers:
        - name: web
          image: {image}
          imagePullPolicy: Never
          command: [/bin/sh, -c, "echo begin; trap 'echo last words; exit 0' TERM; /bin/sleep 300 & wait $!"]
          env: [{{name: VERSION, value: "1"}}]
          resources: {{limits: {{memory: 16Mi}}}}
"""
)


class Machine:
    """Manifests, a state directory and an engine."""

    def __init__(self, bench: Bench, base: Path) -> None:
        self.bench, self.api = bench, bench.api
        self.tree, self.home = base / "tree", base / "home"
        self.tree.mkdir()
        self.write(MANIFESTS.format(id=bench.instance, socket=bench.socket, image=IMAGE, network=NETWORK))
        self.watcher: subprocess.Popen[str] | None = None

    def write(self, text: str) -> None:
        (self.tree / "all.yaml").write_text(text)

    def change(self, old: str, new: str) -> None:
        text = (self.tree / "all.yaml").read_text()
        assert old in text
        self.write(text.replace(old, new))

    def _start(self, *words: str) -> subprocess.Popen[str]:
        env = {**os.environ, "XDG_STATE_HOME": str(self.home)}
        command = [sys.executable, "-m", "reconciler", *words, str(self.tree)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )

    def run(self, *words: str) -> tuple[int, str]:
        process = self._start(*words)
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err, err
        return process.returncode, out + err

    def once(self) -> str:
        code, said = self.run("--once", "--timeout", "40s")
        assert code == 0, said
        return said

    def watch(self) -> None:
        self.watcher = self._start("--watch")

    def close(self) -> None:
        if self.watcher is not None:
            self.watcher.kill()
            self.watcher.communicate()

    def names(self) -> list[str]:
        return sorted(self.api.names(f"reconciler.instance={self.bench.instance}"))

    def rename(self, name: str, other: str) -> str:
        new = f"{self.bench.instance}-{other}"
        self.api.link.post(f"/containers/{name}/rename", name, name=new)
        return new

    def state(self, name: str) -> dict:
        return self.api.inspect(name)["State"]

    def running(self) -> int:
        return sum(self.state(name)["Running"] for name in self.names())


@pytest.fixture(
    params=[
        pytest.param("docker", marks=pytest.mark.server("dockerd")),
        pytest.param("podman", marks=pytest.mark.server("podman")),
    ]
)
def machine(request: pytest.FixtureRequest, tmp_path: Path, shared: Path) -> Iterator[Machine]:
    if request.param == "docker":
        yield from _machine(ensure_docker(shared), tmp_path)
        return
    with podman_home() as home:
        yield from _machine(ensure_podman(home), tmp_path)


def _machine(socket: str, base: Path) -> Iterator[Machine]:
    (base / "bench").mkdir()
    bench = Bench(socket, base / "bench")
    made = Machine(bench, base)
    try:
        yield made
    finally:
        made.close()
        bench.close()


@pytest.fixture
def docker(tmp_path: Path, shared: Path) -> Iterator[Machine]:
    yield from _machine(ensure_docker(shared), tmp_path)


def test_a_renamed_container_lives_on_and_goes_with_destroy(machine: Machine) -> None:
    machine.once()
    first, second = machine.names()
    mine = machine.rename(second, "mine")
    before = machine.api.inspect(mine)["Id"]
    machine.once()
    assert machine.names() == sorted([first, mine])
    code, said = machine.run("status")
    assert (code, mine in said) == (0, True), said
    machine.api.kill(mine)
    machine.once()
    assert machine.running() == 2
    assert machine.api.inspect(mine)["Id"] == before
    code, said = machine.run("destroy", "--yes")
    assert code == 0, said
    assert machine.names() == []


def test_a_new_revision_replaces_a_renamed_container(machine: Machine) -> None:
    machine.once()
    mine = machine.rename(machine.names()[0], "mine")
    machine.change('value: "1"', 'value: "2"')
    machine.once()
    assert len(machine.names()) == 2
    assert mine not in machine.names()


def test_a_lost_ledger_holds_until_the_container_is_renamed_back(machine: Machine) -> None:
    machine.once()
    name = machine.names()[0]
    mine = machine.rename(name, "mine")
    (database,) = machine.home.glob("**/state.db")
    for file in database.parent.glob("state.db*"):
        file.unlink()
    code, said = machine.run("--once", "--no-wait")
    assert code == 7, said
    assert f"docker rename {mine} {name}" in said
    assert len(machine.names()) == 2
    machine.api.link.post(f"/containers/{mine}/rename", mine, name=name)
    machine.once()
    assert len(machine.names()) == 2


def explained(machine: Machine, number: int) -> dict:
    """What `explain` says of one replica."""
    code, said = machine.run("explain", f"workload/web/{number}", "-o", "json")
    assert code == 0, said
    return json.loads(said)


@pytest.mark.server("dockerd")
def test_ends_that_the_engine_repairs_are_reported_as_what_they_were(docker: Machine) -> None:
    docker.once()
    first, second = docker.names()
    docker.watch()
    until(lambda: docker.run("status")[0] == 0)
    time.sleep(2)  # its first look
    pid = docker.state(first)["Pid"]
    docker.api.kill(first)
    until(lambda: docker.state(first)["Running"] and docker.state(first)["Pid"] not in (0, pid))
    os.kill(docker.state(second)["Pid"], 15)
    assert docker.api.exec(first, "/bin/sh", "-c", "x=0123456789abcdef; while :; do x=$x$x; done") == 137
    until(lambda: len(explained(docker, 0)["evidence"]) >= 2 and explained(docker, 1)["evidence"])
    killed = next(kept for kept in explained(docker, 0)["evidence"] if kept["end"])
    assert (killed["end"]["exit_code"], killed["end"]["cause"], killed["log"]) == (137, "signalled", ["begin"])
    child = next(kept for kept in explained(docker, 0)["evidence"] if not kept["end"])
    assert child["cause"] == "OOMKilled"
    (ended,) = explained(docker, 1)["evidence"]
    assert (ended["end"]["exit_code"], ended["cause"], ended["log"]) == (0, "Exited", ["begin", "last words"])
    _, said = docker.run("events")
    for how in (r"was killed by signal 9 \(SIGKILL\), exit code 137", "exited with code 0"):
        assert re.search(f"{how}; (the runtime starts it again|started again by the runtime)", said), said
    assert "was killed at the memory limit; the container runs on" in said
    _, said = docker.run("explain", "workload/web/0")
    assert "1 recent runtime restart" in said
    assert "health restart" not in said


def test_a_container_that_an_operator_removes_is_named_as_that(machine: Machine) -> None:
    machine.once()
    first, _ = machine.names()
    machine.watch()
    until(lambda: machine.run("status")[0] == 0)
    before = machine.api.inspect(first)["Id"]
    machine.api.remove(first)
    until(lambda: first in machine.names() and machine.api.inspect(first)["Id"] != before and machine.running() == 2)
    until(lambda: f"another program removed {first}" in machine.run("events")[1])
    _, said = machine.run("events", "--object", "workload/web/0")
    assert "started again" not in said, said
    happened = [line for line in said.splitlines() if " removed " in line or f"create {first}" in line]
    assert len(happened) == 3, "created, removed and created again"
    assert " removed " in happened[1]
