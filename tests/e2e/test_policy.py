"""The policy of a local Guard on a real engine: what runs is kept when it is tightened, in a running daemon and over its restarts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.program import ENGINE, Program
from tests.e2e.quickstart_world import until
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import IMAGE, NETWORK, ensure_docker

pytestmark = pytest.mark.server("dockerd")

LOCAL = (
    ENGINE
    + """\
apiVersion: reconciler/v1
kind: Guard
metadata: {{name: limits}}
spec: {{policy: {policy}}}
"""
)
TREE = """\
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
          command: [/bin/sleep, "300"]
          securityContext: {{capabilities: {{add: [NET_ADMIN]}}}}
"""
ALLOWED = "{allow: {capabilities: [NET_ADMIN]}}"
TIGHTENED = "{}"


class Host(Program):
    """A host with local documents, a tree that others change, and an engine."""

    def __init__(self, bench: Bench, base: Path) -> None:
        super().__init__(base, bench.instance)
        self.bench, self.api = bench, bench.api
        self.tree, self.local = base / "tree", base / "local.yaml"
        self.tree.mkdir()
        (self.tree / "web.yaml").write_text(TREE.format(network=NETWORK, image=IMAGE))
        self.policy(ALLOWED)

    def policy(self, text: str) -> None:
        new = self.local.with_suffix(".new")
        new.write_text(LOCAL.format(id=self.bench.instance, socket=self.bench.socket, policy=text))
        new.chmod(0o600)
        new.replace(self.local)

    def of_tree(self, *words: str, code: int = 0) -> str:
        """A command with the tree and the local documents."""
        return self.run(*words, self.tree, "--instance", self.local, code=code)

    def watch_again(self) -> None:
        """Start a daemon; one that runs is killed first."""
        self.kill()
        self.start(self.tree, "--instance", self.local)

    def ids(self) -> dict[str, str]:
        names = self.api.names(f"reconciler.instance={self.bench.instance}")
        return {name: self.api.inspect(name)["Id"] for name in sorted(names)}


@pytest.fixture
def host(tmp_path: Path, shared: Path) -> Iterator[Host]:
    (tmp_path / "bench").mkdir()
    bench = Bench(ensure_docker(shared), tmp_path / "bench")
    made = Host(bench, tmp_path)
    try:
        yield made
    finally:
        made.kill()
        bench.close()


def test_what_runs_is_kept_when_the_local_guard_is_tightened(host: Host) -> None:
    assert "privilege workload/web: + web: capability NET_ADMIN (new)" in host.of_tree("plan")
    host.of_tree("--once", "--timeout", "60s")
    assert "capability NET_ADMIN" in host.of_tree("explain", "workload/web")
    before = host.ids()
    assert len(before) == 2
    host.watch_again()
    host.policy(TIGHTENED)
    until(lambda: "SourceInvalid" in host.rules())
    said = host.of_tree("validate", code=3)
    assert "web.yaml:17:" in said
    assert "policy-violation" in said
    assert "podSecurity: baseline (the default with local documents)" in said
    assert host.ids() == before

    lost, kept = sorted(before)
    host.api.remove(lost)
    until(lambda: "PolicyViolation" in host.rules())
    assert host.ids() == {kept: before[kept]}

    host.watch_again()  # after a kill -9
    began = host.api.inspect(kept)["State"]["StartedAt"]
    host.api.kill(kept)
    until(lambda: (state := host.api.inspect(kept)["State"])["Running"] and state["StartedAt"] != began)
    until(lambda: {"PolicyViolation", "SourceInvalid"} <= host.rules())
    assert host.ids() == {kept: before[kept]}

    host.policy(ALLOWED)
    until(lambda: len(host.ids()) == 2)
    assert host.ids()[kept] == before[kept]
