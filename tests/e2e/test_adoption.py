"""Foreign containers on the real engine: adopted unchanged, healed in place, and released while they run."""

import json
import secrets
from collections.abc import Iterator

import pytest

from providers.errors import Conflict, ProviderError
from tests.e2e.edge_world import IMAGE, World, until
from tests.free_ports import free_port

pytestmark = [pytest.mark.server("haproxy"), pytest.mark.server("named")]

LABELLED = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {{name: edge}}
spec: {{id: {id}, enhancedLiveness: true}}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {{name: local}}
spec: {{type: docker, settings: {{socket: {socket}}}}}
"""


class ForeignContainers:
    """Containers without an owner mark, in the network of a world.

    `kept` is the restart policy that an adopted one has afterwards if it had `always`: Podman changes nothing in place.
    """

    def __init__(self, world: World) -> None:
        self.world, self.api = world, world.api
        self.kept = "always" if world.edge.docker.endswith("podman.sock") else "unless-stopped"
        self.prefix = f"foreign-{secrets.token_hex(4)}"
        self.names: list[str] = []
        until(self._network, "the network is made")

    def _network(self) -> bool:
        """Whether it could be made. Podman reads all interfaces of the host for that, and fails when one goes meanwhile."""
        try:
            self.api.link.post("/networks/create", "test", {"Name": self.world.network})
        except Conflict:
            return True  # an attempt that failed had made it
        except ProviderError as error:
            if "no such network interface" not in error.cause:
                raise
            return False
        return True

    def run(self, labels: dict[str, str], restart: str = "always") -> str:
        name = f"{self.prefix}-{len(self.names) + 1}"
        host = {"NetworkMode": self.world.network, "RestartPolicy": {"Name": restart}}
        self.names.append(name)
        self.api.create(name, "/serve", image=IMAGE, Labels=labels, HostConfig=host)
        self.api.start(name)
        until(lambda: "hello" in self.world.ask(self.world.address(name)), f"{name} serves")
        return name

    def generations(self) -> dict[str, tuple[str, str]]:
        """Id and start of each that runs, by name."""
        found = {name: self.api.inspect(name) for name in self.names}
        return {
            name: (container["Id"], container["State"]["StartedAt"])
            for name, container in found.items()
            if container["State"]["Running"]
        }

    def policy(self, name: str) -> str:
        return str(self.api.inspect(name)["HostConfig"]["RestartPolicy"]["Name"])

    def close(self) -> None:
        for name in self.names:
            self.api.remove(name)


@pytest.fixture
def foreign(bare: World) -> Iterator[ForeignContainers]:
    """No container yet, on each engine; at the end all of them are removed."""
    made = ForeignContainers(bare)
    yield made
    made.close()


def test_adopted_containers_are_healed_in_place_and_survive_destroy(bare: World, foreign: ForeignContainers):
    world, label = bare, f"e2e.{bare.id}"
    world.edit("replicas: 3", f"replicas: 2\n  adopt: {{labels: {{{label}: web}}}}")
    first, second = (foreign.run({label: "web"}) for _ in range(2))
    before = foreign.generations()
    assert len(before) == 2

    out = world.once()
    addresses = {world.address(name) for name in foreign.names}
    assert foreign.generations() == before, out
    assert world.serves(addresses)
    assert not world.containers()
    assert {foreign.policy(name) for name in foreign.names} == {foreign.kept}
    assert f"{first} ({before[first][0][:12]}) on local was adopted as a replica" in out
    world.once()
    assert foreign.generations() == before

    with world.watching(), world.clients() as clients:
        until(lambda: len(clients.pages) == 2, "both serve pages")
        world.ask(world.address(first), "/cgi-bin/break")
        until(lambda: foreign.generations().get(first, before[first]) != before[first], "it was restarted")
        until(lambda: world.serves({world.address(name) for name in foreign.names}), "both serve again")
    clients.check_all_served()
    clients.check_never_empty()
    after = foreign.generations()
    assert after[second] == before[second]
    assert after[first][0] == before[first][0]
    assert [name for name, _, _ in world.journal("stop")] == ["workload/web/0"]
    assert foreign.policy(first) == foreign.kept

    code, out = world.run("destroy", "--yes")
    assert code == 0, out
    assert "the container stays unchanged, because reconcile did not create it" in out
    assert foreign.generations() == after
    assert not any(world.pool().values())
    assert not world.names()


@pytest.mark.server("dockerd")
def test_a_host_port_is_published_and_a_new_revision_waits_for_it(edge: World):
    world, host, port = edge, "127.0.0.2", free_port()
    world.edit("replicas: 3", "replicas: 1")
    world.edit("containerPort: 8080", f"containerPort: 8080\n              hostPort: {port}")
    world.edit("  port: http\n  balancers:", "  port: http\n  address: {from: host}\n  balancers:")
    world.edit(f"socket: {world.edge.docker}", f"socket: {world.edge.docker}, address: {host}")
    world.once()
    assert world.pool() == {host: 100}
    assert world.names() == {host}
    (old,) = world.containers()
    assert world.address(old) != host
    assert "hello" in world.ask("127.0.0.1", "/", world.edge.http)

    world.edit("command: [/serve]", "command: [/serve]\n          env: [{name: VERSION, value: two}]")
    world.once()
    (new,) = world.containers()
    assert new != old
    assert world.pool() == {host: 100}
    assert world.names() == {host}
    assert "hello" in world.ask("127.0.0.1", "/", world.edge.http)
    (stopped,), (_, created), (_, started) = (world.journal(action) for action in ("stop", "create", "start"))
    assert created[2] <= stopped[1]
    assert stopped[2] <= started[1]  # its end leaves the port; its removal may take longer


@pytest.mark.server("dockerd")
@pytest.mark.parametrize("bare", ["docker"], indirect=True)
def test_no_replica_is_created_while_a_matching_container_is_down(bare: World, foreign: ForeignContainers):
    world, label = bare, f"e2e.{bare.id}"
    world.edit("replicas: 3", f"replicas: 1\n  adopt: {{labels: {{{label}: web}}}}")
    name = foreign.run({label: "web"}, restart="no")
    world.api.link.post(f"/containers/{name}/stop", name, t="1")
    code, out = world.run("--once")
    assert code == 7, out
    assert "AdoptPending" in out
    assert not world.containers()
    assert not foreign.generations()


def test_a_labelled_container_is_healed_once_and_a_bad_label_is_reported(bare: World, foreign: ForeignContainers):
    world = bare
    for file in world.manifests.glob("*.yaml"):
        file.unlink()
    (world.manifests / "enhanced.yaml").write_text(LABELLED.format(id=world.id, socket=world.edge.docker))
    project = f"p{world.id}"
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 0.2, "failureThreshold": 2}
    context = json.dumps([{"name": "web", "livenessProbe": probe}])

    def labels(service: str, text: str) -> dict[str, str]:
        return {
            "com.docker.compose.project": project,
            "com.docker.compose.service": service,
            "reconciler.enhanced-liveness": "true",
            "reconciler.container-probe-context": text,
        }

    sick, well = foreign.run(labels("web", context)), foreign.run(labels("web", context))
    bad = foreign.run(labels("api", "[{"))
    before = foreign.generations()
    key = f"container/local/{project}-web"

    def passes() -> bool:
        rows = [row for row in world.status()["workloads"] if row["key"] == key]
        verdicts = [replica["probes"]["liveness"] for row in rows for replica in row["replicas"]]
        return len(verdicts) == 2 and all(verdict and verdict["verdict"] == "pass" for verdict in verdicts)

    with world.watching():
        until(passes, "both were probed")
        world.ask(world.address(sick), "/cgi-bin/break")
        world.ask(world.address(bad), "/cgi-bin/break")
        until(lambda: foreign.generations().get(sick, before[sick]) != before[sick], "it was restarted")
        until(passes, "both pass")
        until(lambda: "ProbeContextInvalid" in world.log(), "the bad label was said")
    after = foreign.generations()
    assert after[sick][0] == before[sick][0]
    assert (after[well], after[bad]) == (before[well], before[bad])
    assert len(world.journal("stop")) == len(world.journal("start")) == 1
    assert {foreign.policy(name) for name in foreign.names} == {"always"}
    assert not world.containers()
