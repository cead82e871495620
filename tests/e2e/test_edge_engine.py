"""The daemon beside an engine that is restarted, and its own end in the middle of its work."""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.edge_world import IMAGE, PATIENCE, World, image, servers, until
from tests.providers.runtime.docker.claims import Claim

pytestmark = [pytest.mark.server("dockerd"), pytest.mark.server("haproxy"), pytest.mark.server("named")]


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


def free_number() -> int:
    """The N of a 10.N.0.0/16 in which this host has no address, so that no other engine of it uses any of it."""
    taken = ip("-4", "route")
    return secrets.choice([number for number in range(100, 200) if f"10.{number}." not in taken])


class Network:
    """A network namespace that this host reaches by routes: an engine beside another one deletes the `docker0` that it sees."""

    def __init__(self) -> None:
        number = free_number()
        self.name = f"edge{secrets.token_hex(3)}"
        self.subnet = f"10.{number}.0.0/17"
        inside, outside = f"10.{number}.255.2", f"10.{number}.255.1"
        ip("netns", "add", self.name)
        ip("link", "add", self.name, "type", "veth", "peer", "name", "host", "netns", self.name)
        ip("address", "add", f"{outside}/30", "dev", self.name)
        ip("link", "set", self.name, "up")
        ip("-n", self.name, "address", "add", f"{inside}/30", "dev", "host")
        for link in ("lo", "host"):
            ip("-n", self.name, "link", "set", link, "up")
        ip("-n", self.name, "route", "add", "default", "via", outside)
        ip("route", "add", self.subnet, "via", inside)
        # Not `ip netns exec`: it hides the mounts of one start from the next one.
        self.enter = ("nsenter", f"--net=/run/netns/{self.name}")

    def remove(self) -> None:
        ip("link", "delete", self.name)
        ip("netns", "delete", self.name)


class Engine:
    """A Docker daemon of this test's own, beside the one of the machine: its stop disturbs nothing else."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.edge = servers.Edge(directory, docker=str(directory / "docker.sock"))
        self.network = Network()
        self.argv = [
            *self.network.enter,
            "dockerd",
            f"--host=unix://{self.edge.docker}",
            f"--data-root={directory}/data",
            f"--exec-root={directory}/exec",
            f"--pidfile={directory}/docker.pid",
            "--bridge=none",
            "--iptables=false",
            f"--default-address-pool=base={self.network.subnet},size=24",
            *options,
        ]

    def start(self) -> None:
        servers.start(self.edge, "dockerd", self.argv, servers.dockerd_answers)

    def stop(self, how: int = signal.SIGTERM) -> None:
        servers.stop(self.edge, "dockerd", how)


@contextmanager
def private(*options: str) -> Iterator[tuple[Engine, World]]:
    """A converged world on an engine of its own."""
    world = World("/dev/null/unused")
    directory = Path(tempfile.mkdtemp(prefix="edge-", dir="/tmp"))
    claim = Claim(directory.name, directory=str(directory))
    engine = Engine(directory, *options)
    world.use_engine(engine.edge.docker)
    try:
        engine.start()
        image.ensure(engine.edge.docker, IMAGE)
        world.start_servers()
        world.once()
        world.settle()
        yield engine, world
    finally:
        if not servers.running(engine.edge, "dockerd"):
            engine.start()
        world.close()
        engine.stop()
        # With live-restore, Docker leaves a mount of its directory behind.
        subprocess.run(["umount", "--lazy", f"{engine.edge.directory}/data"], capture_output=True, check=False)
        shutil.rmtree(engine.edge.directory, ignore_errors=True)
        engine.network.remove()
        claim.drop()


@pytest.mark.parametrize("survive", [True, False], ids=["containers live on", "containers stop with it"])
def test_a_restart_of_the_engine_causes_no_stop(survive: bool):
    with private(*(["--live-restore"] if survive else [])) as (engine, world):
        before = world.started_at()
        with world.watching(), world.clients() as clients:
            until(lambda: len(clients.pages) == 3, "all three serve pages")
            engine.stop()
            until(lambda: "RuntimeUnknown" in world.log() or not survive, "the engine is not seen")
            engine.start()
            until(lambda: set(world.started_at()) == set(before), "the engine is back with its containers")
            world.settle()
        log = world.log()
        assert ": stop " not in log, log
        assert ": remove " not in log.replace("service/web: remove", ""), log
        assert ": create " not in log, log
        if survive:
            assert world.started_at() == before
            clients.check_all_served()
            clients.check_never_empty()
        assert all(clients.names)


def test_a_daemon_ends_in_the_middle_of_an_action_and_the_next_run_goes_on(edge: World):
    world = edge
    with world.watching() as daemon:
        until(lambda: len(world.containers()) > 0, "it has begun to create")
        os.kill(daemon.pid, signal.SIGTERM)
        daemon.wait(PATIENCE)
        assert daemon.returncode == 143
    world.once()
    world.settle()
