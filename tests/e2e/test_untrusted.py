"""`plan --untrusted` with the real program: a stranger's tree makes it ask, read and run nothing, and learns only names."""

import json
import secrets
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.program import Program
from tests.e2e.quickstart_world import PATIENCE, until

LOCAL = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: here}
spec:
  id: "@ID@"
  allowProcess: [w]
  allowAddresses: [127.0.0.1]
  secrets:
    - {env: CI_DEPLOY_TOKEN, workload: w, header: X-Probe}
    - {env: CI_DEPLOY_TOKEN, header: X-Check, destination: {address: 127.0.0.1, port: @PORT@, protocol: HTTP}}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: node}
spec: {type: process}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: pools}
spec: {type: file}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: zones}
spec: {type: zonefile}
"""
RUNS = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: w}
spec:
  template:
    metadata: {labels: {app: w}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: a
          command: [sh, -c, "exec sleep 86398"]
          env: [{name: PASSWORD, value: sentinel-of-what-runs}, {name: WORLD, value: "@DIR@"}]
          ports: [{name: http, containerPort: 8080}]
---
apiVersion: reconciler/v1
kind: Service
metadata: {name: w}
spec: {selector: {app: w}, port: http, balancers: [{provider: pools, pool: w}]}
---
apiVersion: reconciler/v1
kind: Record
metadata: {name: inside}
spec: {host: inside.example.test, zone: example.test, type: TXT, values: [sentinel-of-the-zone]}
"""
ASKS = """\
---
apiVersion: reconciler/v1
kind: HealthCheck
metadata: {name: mine}
spec:
  address: 127.0.0.1
  port: @PORT@
  protocol: HTTP
  additionalHeaders: [{name: X-Check, valueFrom: {secret: {env: CI_DEPLOY_TOKEN}}}]
---
apiVersion: reconciler/v1
kind: DNSPolicy
metadata: {name: app}
spec:
  host: app.example.test
  zone: example.test
  targets: [{name: a, addresses: [127.0.0.1], healthCheck: mine}]
"""
STRANGE = (
    RUNS.replace("exec sleep 86398", "exec sleep 86397")
    .replace(
        "          ports:",
        "          livenessProbe: {exec: {command: [touch, '@DIR@/ran']}, periodSeconds: 1}\n"
        "          readinessProbe: {httpGet: {port: http, httpHeaders: [{name: X-Probe, valueFrom: {secret: {env: CI_DEPLOY_TOKEN}}}]}}\n"
        "          ports:",
    )
    .replace("sentinel-of-the-zone", "of the stranger")
    .replace("sentinel-of-what-runs", "of the stranger")
    + ASKS
)


class Stranger:
    """A server of the stranger's: it keeps the first bytes of each connection."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.got: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    self.got.append(connection.recv(4096))
                except OSError:
                    self.got.append(b"")


class Ci(Program):
    """A CI job: local documents beside a checkout, and a secret in its environment."""

    def __init__(self, base: Path, port: int) -> None:
        super().__init__(base, f"u{secrets.token_hex(4)}", CI_DEPLOY_TOKEN="s3cr3t-of-ci")
        self.port = port
        self.tree, self.local = base / "checkout", base / "local"
        for directory in (self.tree, self.local):
            directory.mkdir(mode=0o700)
        (self.local / "host.yaml").write_text(self.filled(LOCAL))

    def filled(self, text: str) -> str:
        return text.replace("@ID@", self.id).replace("@PORT@", str(self.port)).replace("@DIR@", str(self.base))

    def write(self, text: str, name: str = "all.yaml") -> None:
        (self.tree / name).write_text(self.filled(text))

    def plan(self, *words: str, code: int = 0) -> str:
        return self.run("plan", self.tree, "--instance", self.local, *words, code=code)


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    server = Stranger()
    yield server
    server.listener.close()


@pytest.fixture
def ci(tmp_path: Path, stranger: Stranger) -> Iterator[Ci]:
    ci = Ci(tmp_path, stranger.port)
    ci.write(RUNS)
    ci.run("--once", ci.tree, "--instance", ci.local)
    yield ci
    ci.write(RUNS)
    ci.run("destroy", ci.tree, "--instance", ci.local, "--yes")


def test_an_untrusted_plan_asks_reads_and_runs_nothing_for_the_tree(ci: Ci, stranger: Stranger) -> None:
    ci.write(STRANGE)
    out = ci.plan("--untrusted") + ci.plan("--untrusted", "-o", "json") + ci.plan("--untrusted", "-v")
    assert stranger.got == []
    assert not (ci.base / "ran").exists()
    assert "s3cr3t" not in out
    ci.plan()  # a plan for a trusted author does ask: the server would have seen it
    assert any(b"s3cr3t-of-ci" in got for got in stranger.got)


def test_an_untrusted_plan_says_first_what_it_left_out_then_names(ci: Ci) -> None:
    ci.write(STRANGE)
    text = ci.plan("--untrusted")
    lines = text.splitlines()
    assert lines[0] == f"untrusted plan of instance '{ci.id}'; not looked at:"
    assert any("probes and health checks" in line for line in lines[1:5])
    assert any("secrets of the tree" in line for line in lines[1:5])
    assert "\nworkload/w: changed\n" in text
    assert "containers[a].env[PASSWORD] (forces a new container)" in text
    assert f"stop {ci.id}-w-" in text
    assert "change a weight in pools/w (" in text
    assert "change inside.example.test. TXT in zones" in text
    document = json.loads(ci.plan("--untrusted", "-o", "json"))
    assert document["untrusted"] is True
    assert len(document["not_looked_at"]) == 3
    comment = ci.plan("--untrusted", "-o", "markdown")
    assert comment.startswith(f"<!-- reconcile plan of instance {ci.id} -->\n")
    assert "`~ containers[a].env[PASSWORD] (forces a new container)`" in comment
    for shown in (text, json.dumps(document), comment):
        for hidden in ("sentinel", "86398", "127.", "8080"):
            assert hidden not in shown, hidden


def test_the_exit_codes_of_an_untrusted_plan_are_those_of_a_plan(ci: Ci) -> None:
    assert "nothing to do" in ci.plan("--untrusted", "--detailed-exitcode")
    ci.write(STRANGE)
    ci.plan("--untrusted", "--detailed-exitcode", code=2)
    ci.write(STRANGE + "---\n" + LOCAL.partition("---")[0])
    assert "local-only" in ci.plan("--untrusted", code=3)
    ci.run("plan", "--untrusted", "--instance-id", ci.id, code=64)
    ci.run("plan", ci.tree, "--untrusted", "--instance", "", code=64)


def test_beside_a_daemon_health_is_what_the_daemon_knows(ci: Ci) -> None:
    probed = RUNS.replace(
        "          ports:", "          readinessProbe: {exec: {command: [touch, '@DIR@/probed']}}\n          ports:"
    )
    ci.write(probed)
    ci.start(ci.tree, "--instance", ci.local, "-q")
    try:
        until(lambda: "beside a running process" in ci.plan() and (ci.base / "probed").exists(), PATIENCE)
        text = ci.plan("--untrusted")
        assert "none was run, so health is what the running process knows" in text
    finally:
        ci.stop()


def test_without_local_documents_an_untrusted_plan_asks_no_provider(ci: Ci, stranger: Stranger) -> None:
    ci.write(RUNS + ASKS)
    own = LOCAL.partition("  allowProcess")[0] + "---\n" + LOCAL.partition("---\n")[2]
    evil = f'---\napiVersion: reconciler/v1\nkind: Provider\nmetadata: {{name: evil}}\nspec: {{type: powerdns, settings: {{url: "http://127.0.0.1:{stranger.port}", apiKey: {{env: CI_DEPLOY_TOKEN}}}}}}\n'
    ci.write(own + evil, "here.yaml")
    ci.write(
        (RUNS + ASKS)
        .replace("zone: example.test", "zone: example.test\n  provider: evil")
        .replace(
            "spec: {host: inside.example.test, zone: example.test\n  provider: evil",
            "spec: {host: inside.example.test, zone: example.test, provider: evil",
        )
    )
    out = ci.run("plan", ci.tree, "--untrusted", code=6)
    assert stranger.got == []
    assert "providers that the tree declares, which were not asked: evil, node, pools, zones" in out
    ci.run("plan", ci.tree, code=6)
    assert any(b"s3cr3t-of-ci" in got for got in stranger.got)
    (ci.tree / "here.yaml").unlink()
