"""Pushes out of a real container on a real engine: the client is its first process, and the kernel says who it is."""

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.facts import Generation
from reconciler.core.model.ledger import PushRow
from reconciler.core.model.ledger_codec import from_rows
from reconciler.shell.clock import SystemClock
from reconciler.shell.store.state_db import Store
from tests.e2e.edge_world import IMAGE, PATIENCE, until

pytestmark = [pytest.mark.server("dockerd"), pytest.mark.server("curl")]

ROOT = Path(__file__).parents[2]
BORROWED = sorted({str(ROOT), sys.base_prefix, sys.prefix, "/usr"})
"""What the container borrows from this host, so that its small image can run Python and curl."""

MANIFEST = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {{name: this}}
spec: {{id: {instance}, push: {{}}, intervals: {{runtime: 1s}}}}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {{name: local}}
spec: {{type: docker, settings: {{socket: {engine}}}}}
---
apiVersion: reconciler/v1
kind: Workload
metadata: {{name: web}}
spec:
  push: {{}}
  replicas: 2
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      networks: ["{instance}"]  # the engine's own bridge may be taken away by another engine on this machine
      volumes: {volumes}
      containers:
        - name: web
          image: {image}
          imagePullPolicy: Never
          securityContext: {{runAsUser: 65534}}
          command: {command}
          env: [{{name: PYTHONPATH, value: {root}}}, {{name: PYTHONDONTWRITEBYTECODE, value: "1"}}]
          volumeMounts: {mounts}
      terminationGracePeriodSeconds: 5
"""


class Daemon:
    """`reconcile --watch` over a workload that pushes."""

    def __init__(self, tmp_path: Path, engine: str) -> None:
        self.engine, self.instance = engine, f"p{secrets.token_hex(4)}"
        self.tree, self.state = tmp_path / "tree", tmp_path / "state"
        self.tree.mkdir()
        places = [(path, path) for path in BORROWED] + [("/usr/lib", "/lib"), ("/usr/lib64", "/lib64")]
        command = [sys.executable, "-m", "reconciler.push", "run", "--", "/usr/bin/sleep", "600"]
        text = MANIFEST.format(
            instance=self.instance,
            engine=engine,
            image=IMAGE,
            root=ROOT,
            command=json.dumps(command),
            volumes=json.dumps(
                [{"name": f"v{n}", "hostPath": {"path": source}} for n, (source, _) in enumerate(places)]
            ),
            mounts=json.dumps(
                [{"name": f"v{n}", "mountPath": target, "readOnly": True} for n, (_, target) in enumerate(places)]
            ),
        )
        (self.tree / "all.yaml").write_text(text)
        self.log = (tmp_path / "log").open("w")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen([*RECONCILE, "--watch", *self.where()], stdout=self.log, stderr=self.log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE)
            self.process = None

    def where(self) -> list[str]:
        return [str(self.tree), "--state-dir", str(self.state)]

    def rows(self) -> dict[str, PushRow]:
        with Store.join(self.state, SystemClock()) as store:
            return dict(from_rows(store.load_ledger()).pushes)

    def docker(self, *words: str) -> str:
        command = ["docker", "-H", f"unix://{self.engine}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout.strip()

    def ids(self) -> list[str]:
        return self.docker("ps", "-q", "--no-trunc", "--filter", f"label=reconciler.instance={self.instance}").split()

    def curl(self, container: str, body: str, *words: str) -> int:
        line = ["exec", container, "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket"]
        return int(self.docker(*line, "/run/reconciler/push.sock", "-d", body, *words, "http://x/v1/push"))

    def close(self) -> None:
        self.kill()
        self.log.close()
        found = self.docker("ps", "-aq", "--filter", f"label=reconciler.instance={self.instance}").split()
        if found:
            self.docker("rm", "-f", *found)
        if self.docker("network", "ls", "-q", "--filter", f"name={self.instance}"):
            self.docker("network", "rm", self.instance)


RECONCILE = [sys.executable, "-m", "reconciler"]


@pytest.fixture
def daemon(tmp_path: Path, engine: str) -> Iterator[Daemon]:
    made = Daemon(tmp_path, engine)
    made.start()
    try:
        yield made
    finally:
        made.close()


def ready(daemon: Daemon) -> dict[str, PushRow]:
    """The rows once both replicas have pushed that they are ready."""

    def both() -> bool:
        rows = daemon.rows() if (daemon.state / "state.db").exists() else {}
        return len(rows) == 2 and {row.event for row in rows.values()} == {"ready"}

    until(both, "both replicas say that they are ready")
    return daemon.rows()


def test_containers_push_only_for_themselves_through_the_mounted_socket(daemon: Daemon) -> None:
    rows = ready(daemon)
    assert sorted(rows) == sorted(daemon.ids())
    first, second = sorted(rows)
    said = daemon.docker("inspect", "-f", "{{json .Config.Env}}", second)
    generation = next(v.partition("=")[2] for v in json.loads(said) if v.startswith("RECONCILER_PUSH_GENERATION="))
    body = {"event": "not-ready", "boot": "by-hand", "seq": 1}
    assert daemon.curl(first, json.dumps({**body, "generation": generation})) == 403
    assert daemon.curl(first, json.dumps(body)) == 200, "without any secret: the kernel says who it is"
    until(lambda: daemon.rows()[first].event == "not-ready", "what was said by hand is remembered")
    assert daemon.rows()[second].event == "ready"


def test_a_push_of_draining_survives_the_daemon_but_not_the_container(daemon: Daemon) -> None:
    first, second = sorted(ready(daemon))
    body = json.dumps({"event": "draining", "boot": "by-hand", "seq": 1})
    assert daemon.curl(first, body) == 200
    daemon.kill()
    assert daemon.rows()[first].event == "draining"
    daemon.start()
    until(lambda: _code(daemon, first) == 409, "draining is final over a kill of the daemon")
    assert daemon.rows()[first].event == "draining"
    before = daemon.rows()[second].generation
    daemon.docker("restart", "-t", "5", second)
    until(lambda: _is_ready_again(daemon.rows()[second], before), "the new generation of a restarted container pushes")


def _is_ready_again(row: PushRow, before: Generation) -> bool:
    return row.generation != before and row.event == "ready"


def _code(daemon: Daemon, container: str) -> int:
    """The answer to a ready after draining; 0 while no daemon listens."""
    try:
        return daemon.curl(container, json.dumps({"event": "ready", "boot": "by-hand", "seq": 2}))
    except subprocess.CalledProcessError:
        return 0
