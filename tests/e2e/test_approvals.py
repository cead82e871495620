"""Guarded changes on a real engine and a real name server: they wait for an operator, and a saved plan is an approval."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.dns_world import NameServer
from tests.e2e.program import ENGINE, Program
from tests.e2e.quickstart_world import ROOT, until
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import IMAGE, NETWORK, ensure_docker

pytestmark = [pytest.mark.server("dockerd"), pytest.mark.server("named")]

TREE = (
    ENGINE
    + """\
apiVersion: reconciler/v1
kind: Guard
metadata: {{name: limits}}
spec: {{approve: [delete, downtime, privilege]}}
---
{names}
---
apiVersion: reconciler/v1
kind: RecordList
metadata: {{name: names}}
spec: {{zone: {zone}, provider: names, names: {{{records}}}}}
---
apiVersion: reconciler/v1
kind: Workload
metadata: {{name: web}}
spec:
  replicas: {replicas}
  drain: {{min: 0s, max: 1s}}
  rollout: {{strategy: {strategy}}}
  template:
    spec:
      terminationGracePeriodSeconds: 1
      networks: [{network}]
      containers:
        - name: web
          image: {image}
          imagePullPolicy: Never
          command: [/bin/sleep, "300"]
          env:
            - {{name: LEVEL, value: {level}}}
            - {{name: TOKEN, valueFrom: {{secret: {{env: SENTINEL}}}}}}
          securityContext: {{capabilities: {{add: [{capabilities}]}}}}
"""
)
SECRET = "sentinel-91c6e07b"


class Host(Program):
    """An engine, a zone, and a tree of manifests for both."""

    def __init__(self, bench: Bench, server: NameServer, base: Path) -> None:
        super().__init__(base, bench.instance, SENTINEL=SECRET, PYTHONPATH=str(ROOT))
        self.directory = base
        self.bench, self.api, self.server = bench, bench.api, server
        self.tree = base / "tree"
        self.tree.mkdir()
        self.zone = server.new_zone()

    def write(self, *records: str, replicas: int = 1, level: str = "info", capabilities: str = "") -> None:
        text = TREE.format(
            id=self.bench.instance,
            socket=self.bench.socket,
            names=json.dumps(self.server.document),
            zone=self.zone,
            records=", ".join(f"{name}.{self.zone}: {{A: 192.0.2.8}}" for name in records),
            replicas=replicas,
            strategy="recreate",
            network=NETWORK,
            image=IMAGE,
            level=level,
            capabilities=capabilities,
        )
        (self.tree / "all.new").write_text(text)
        (self.tree / "all.new").replace(self.tree / "all.yaml")

    def ask(self, *words: str | Path) -> tuple[int, str, str]:
        """As of every program; none of its commands shows the secret."""
        code, out, err = super().ask(*words)
        assert SECRET not in out + err
        return code, out, err

    def watch_again(self) -> None:
        """Start a daemon; one that runs is killed first."""
        self.kill()
        self.start(self.tree)

    def running(self) -> dict[str, str]:
        """Name -> id of the containers that run."""
        names = self.api.names(f"reconciler.instance={self.bench.instance}")
        found = {name: self.api.inspect(name) for name in sorted(names)}
        return {name: one["Id"] for name, one in found.items() if one["State"]["Running"]}

    def records(self) -> set[str]:
        return {key.name.partition(".")[0] for key in self.server.records() if key.type == "A"} - {"ns1", "ns"}

    def waiting(self) -> list[dict[str, str]]:
        done = self.run("approve", "--instance-id", self.bench.instance, "-o", "json", code=self.code)
        found: list[dict[str, str]] = json.loads(done)["changes"]
        return found

    code = 7


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    made = NameServer("named", tmp_path_factory.mktemp("named"))
    yield made
    made.kill()


@pytest.fixture
def host(tmp_path: Path, shared: Path, server: NameServer) -> Iterator[Host]:
    (tmp_path / "bench").mkdir()
    bench = Bench(ensure_docker(shared), tmp_path / "bench")
    made = Host(bench, server, tmp_path)
    try:
        yield made
    finally:
        made.kill()
        bench.close()


def objects(host: Host) -> set[str]:
    _, out, _ = host.ask("approve", "--instance-id", host.id, "-o", "json")
    return {change["object"] for change in json.loads(out)["changes"]}


def test_a_daemon_does_exactly_what_was_approved_over_a_kill(host: Host) -> None:
    host.write("www", "old")
    host.run("--once", "tree", "--timeout", "60s")
    before = host.running()
    assert len(before) == 1
    host.watch_again()
    host.write("www", level="debug")
    until(lambda: objects(host) == {"workload/web/0", "recordlist/names"})
    host.watch_again()  # after a kill -9
    until(lambda: objects(host) == {"workload/web/0", "recordlist/names"})
    assert host.running() == before
    assert host.records() == {"www", "old"}
    (name,) = [change for change in host.waiting() if change["object"] == "recordlist/names"]
    said = host.run("approve", name["item"], "--instance-id", host.bench.instance, "--by", "ada")
    assert "in effect now" in said
    until(lambda: host.records() == {"www"})
    assert host.running() == before
    assert objects(host) == {"workload/web/0"}
    host.run("approve", host.waiting()[0]["item"], "--instance-id", host.bench.instance)
    until(lambda: len(host.running()) == 1 and host.running() != before)
    until(lambda: not objects(host))


def test_a_saved_plan_approves_what_it_shows_or_is_stale(host: Host) -> None:
    host.write("www", "old", capabilities="NET_ADMIN")
    held = host.run("--once", "tree", "--timeout", "20s", code=7)
    assert "web: capability NET_ADMIN" in held
    assert not host.running()
    assert "approve privilege workload/web" in host.run("plan", "tree", "--out", "a.plan")
    host.run("apply", "tree", "--plan", "a.plan", "--timeout", "60s")
    before = host.running()
    assert len(before) == 1
    assert host.records() == {"www", "old"}

    host.write("www", level="debug", capabilities="NET_ADMIN")
    said = host.run("plan", "tree", "--out", "a.plan")
    assert re.search(r"approve downtime workload/web/0: stop \S+ while no other replica", said)
    assert "approve delete recordlist/names: delete old." in said
    assert SECRET not in (host.base / "a.plan").read_text()
    host.write("www", level="trace", capabilities="NET_ADMIN")
    assert "manifest all.yaml changed" in host.run("apply", "tree", "--plan", "a.plan", code=4)
    host.write("www", level="debug", capabilities="NET_ADMIN")
    (lost,) = before
    host.api.remove(lost)
    stale = host.run("apply", "tree", "--plan", "a.plan", code=4)
    assert "planned, and not due any more: end " in stale
    assert host.records() == {"www", "old"}
    host.run("plan", "tree", "--out", "a.plan")
    host.run("apply", "tree", "--plan", "a.plan", "--timeout", "60s")
    assert host.records() == {"www"}
    assert len(host.running()) == 1
