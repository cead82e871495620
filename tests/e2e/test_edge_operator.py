"""Actions of operators on real engines: restarts, suspensions, pauses, changed secrets, containers that always fail."""

import json
import os
import re
import secrets
import signal
import socket
import struct
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.e2e.edge_world import IMAGE, World, podman_with_image, servers, until
from tests.providers.runtime.docker.engine import ensure_podman, podman_home

pytestmark = [pytest.mark.server("haproxy"), pytest.mark.server("named")]

DOCKER = pytest.mark.server("dockerd")

QUICK_GUARD = """\
apiVersion: reconciler/v1
kind: Guard
metadata: {name: limits}
spec:
  restarts: {perWorkload: {perMinute: 600, burst: 100}, perNode: {perMinute: 600, burst: 100}}
"""


@pytest.fixture
def either(bare: World) -> World:
    """Three containers that serve, on each engine."""
    bare.once()
    bare.settle()
    return bare


def restarted(world: World, before: dict[str, str]) -> set[str]:
    """Containers with another generation than before."""
    return {name for name, at in world.started_at().items() if before.get(name) not in {None, at}}


def test_an_unhealthy_container_is_restarted_on_each_engine(either: World):
    world = either
    everyone, before = world.addresses(), world.started_at()
    victim = min(before)
    with world.watching(), world.clients() as clients:
        until(lambda: len(clients.pages) == 3, "all three serve pages")
        world.ask(world.address(victim), "/cgi-bin/break")
        until(lambda: bool(restarted(world, before)), "it was restarted")
        until(lambda: world.serves(world.addresses()) and len(world.addresses()) == len(everyone), "all serve again")
    clients.check_all_served()
    clients.check_never_empty()
    assert restarted(world, before) == {victim}
    assert set(world.started_at()) == set(before)


def sleepers(seconds: int) -> set[int]:
    """The processes of this host that sleep for so long, in whatever container."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "cmdline").read_bytes().split(b"\0")[-2:-1] == [
                str(seconds).encode()
            ]:
                found.add(int(entry.name))
    return found


def test_a_command_that_hangs_delays_no_other_probe_and_leaves_no_process(bare: World):
    world, long = bare, 100_000 + secrets.randbelow(100_000)
    world.edit("command: [/serve]", 'command: [/bin/sh, -c, "rm -f /www/hang; exec /serve"]')
    hang = f"if [ -e /www/hang ]; then sleep {long} & setsid sleep {long} & sleep {long}; fi"
    probe = f'exec: {{command: [/bin/sh, -c, "{hang}"]}}\n            timeoutSeconds: 15'
    world.edit("httpGet: {path: /healthz, port: http}", probe)
    world.edit("failureThreshold: 2", "failureThreshold: 1")
    world.once()
    world.settle()
    before = world.started_at()
    victim, other, *_ = sorted(before)
    address = world.address(other)
    with world.watching():
        until(lambda: world.replicas()["web/0"]["probes"]["liveness"]["verdict"] == "pass", "it was probed")
        Path("/proc", str(world.api.inspect(victim)["State"]["Pid"]), "root", "www", "hang").touch()
        until(lambda: bool(sleepers(long)), "its probe hangs")
        world.ask(address, "/cgi-bin/unready")
        until(lambda: not world.pool().get(address), "another one's probe has its effect")
        assert sleepers(long), "before that time-out"
        world.ask(address, "/cgi-bin/ready")
        until(lambda: restarted(world, before) == {victim}, "its time-out has restarted it")
        world.settle()
        until(lambda: not sleepers(long), "no process is left of its probes")
    assert set(world.started_at()) == set(before)
    assert len(world.journal("stop")) == 1


def test_a_paused_container_is_left_alone_and_serves_after_unpause(either: World):
    world = either
    everyone, before = world.addresses(), world.started_at()
    victim = min(before)
    address = world.address(victim)
    with world.watching():
        world.at_once("pause", [victim])
        until(lambda: not world.pool().get(address), "its weight is 0")
        until(lambda: world.names() == everyone - {address}, "it has left the name")
        until(lambda: world.replicas()["web/0"]["state"] == "NotReady", "its state is shown")
        time.sleep(4)  # its probes would have failed twice by now, and it would have been drained and stopped
        assert world.api.inspect(victim)["State"]["Status"] == "paused"
        world.at_once("unpause", [victim])
        until(lambda: world.serves(everyone), "all three serve again")
    assert world.started_at() == before
    assert not world.journal("stop")


def test_a_requested_restart_ends_without_a_failed_request(either: World):
    world = either
    before = world.started_at()
    with world.watching(), world.clients() as clients:
        until(lambda: len(clients.pages) == 3, "all three serve pages")
        code, out = world.run(
            "restart", "workload/web", "--wait", "--reason", "new certificates", "--min-started", "1s"
        )
        assert code == 0, out
        world.settle()
    clients.check_all_served()
    clients.check_never_empty()
    assert restarted(world, before) == set(before)
    assert len(world.journal("stop")) == 3
    assert all(f"workload/web/{n}: done" in out.lower() for n in range(3)), out
    code, listed = world.run("get", "requests")
    assert code == 0
    assert "new certificates" in listed


ASIDE = f"""\
            failureThreshold: 1
        - name: aside
          image: {IMAGE}
          imagePullPolicy: Never
          command: [/bin/sh, -c, "trap exit TERM; while :; do sleep 0.2; done"]
  restarts:
"""
"""A second container for the workload, which ends at once on SIGTERM."""


def test_one_container_of_each_replica_can_be_restarted_alone(bare: World):
    world = bare
    world.edit("            failureThreshold: 1\n  restarts:\n", ASIDE)

    def mains() -> set[str]:
        return {name for name in world.containers() if not name.endswith("-aside")}

    def settled() -> bool:
        return len(mains()) == 3 and world.serves({world.address(name) for name in mains()})

    world.once()
    until(settled, "three replicas of two containers serve")
    before = world.started_at()
    asides = set(before) - mains()
    assert len(asides) == 3
    with world.watching(), world.clients() as clients:
        until(lambda: len(clients.pages) == 3, "all three serve pages")
        code, out = world.run("restart", "workload/web", "--container", "aside", "--wait", "--min-started", "1s")
        assert code == 0, out
        until(settled, "all serve again")
    clients.check_all_served()
    clients.check_never_empty()
    assert restarted(world, before) == asides
    assert set(world.started_at()) == set(before)


@DOCKER
def test_a_restart_begins_with_the_replica_that_haproxy_calls_down(edge: World):
    """HAProxy calls one of two replicas down for some seconds more, as it does with one that needed long to start."""
    world = edge
    world.kill("haproxy")
    config = world.directory / "haproxy.cfg"
    config.write_text(config.read_text().replace("fall 3", "fall 3 rise 8"))
    servers.start_haproxy(world.edge)
    world.edit("  replicas: 3", "  replicas: 2")
    world.once()
    world.settle(2)
    before = world.started_at()
    first, second = sorted(before)
    with world.watching(), world.clients() as clients:
        until(lambda: len(clients.pages) == 2, "both serve pages")
        world.call_down(world.address(second))
        until(lambda: '"operational": "down"' in world.run("get", "endpoints", "-o", "json")[1], "that is seen")
        code, out = world.run("restart", "workload/web", "--wait", "--reason", "new certificates")
        assert code == 0, out
        until(lambda: world.serves(world.addresses()), "both serve again")
    after = world.started_at()
    assert before[second] < after[second] < after[first], "the one without traffic went first"
    clients.check_all_served()
    clients.check_never_empty()


@DOCKER
def test_a_suspended_replica_loses_weight_and_restarts_after_resume(converged: World):
    world = converged
    before = world.started_at()
    victim = min(before)
    address = world.address(victim)
    with world.watching():
        code, out = world.run("suspend", "workload/web", "--reason", "a debugger is attached", "--for", "10m")
        assert code == 0, out
        world.ask(address, "/cgi-bin/break")
        until(lambda: not world.pool().get(address), "its weight is 0")
        until(lambda: "Suspended" in world.log(), "the hold is logged")
        assert world.started_at() == before
        code, out = world.run("resume", "workload/web")
        assert code == 0, out
        until(lambda: restarted(world, before) == {victim}, "it was restarted")
        world.settle()


@DOCKER
def test_with_suspended_probes_failures_are_not_noticed_and_not_healed(converged: World):
    world = converged
    everyone, before = world.addresses(), world.started_at()
    victim = min(before)
    with world.watching():
        until(lambda: world.replicas()["web/0"]["probes"]["liveness"]["verdict"] == "pass", "it was probed")
        code, out = world.run("suspend", "workload/web/0", "--probes", "--reason", "it is being debugged")
        assert code == 0, out
        until(lambda: world.replicas()["web/0"]["probes"]["liveness"]["verdict"] == "unknown", "its verdict is unknown")
        world.ask(world.address(victim), "/cgi-bin/break")
        time.sleep(4)  # its probes would have failed, and it would have been stopped by now
        assert world.pool() == dict.fromkeys(everyone, 100)
        assert world.started_at() == before
        code, out = world.run("resume", "workload/web/0")
        assert code == 0, out
        until(lambda: restarted(world, before) == {victim}, "it was restarted")
        world.settle()


@DOCKER
def test_a_changed_secret_rolls_through_the_replicas_and_is_never_shown(edge: World):
    world, (old, new) = edge, ("first-secret-7f3a", "second-secret-91bc")
    place = world.directory / "password"
    place.write_text(old)
    place.chmod(0o600)
    world.edit("  replicas: 3", "  replicas: 3\n  onSecretChange: restart")
    world.edit(
        "command: [/serve]",
        f"command: [/serve]\n          env: [{{name: PASSWORD, valueFrom: {{secret: {{file: {place}}}}}}}]",
    )
    world.once()
    world.settle()
    before = world.containers()

    def passwords() -> set[str]:
        found = [world.api.inspect(name)["Config"]["Env"] for name in world.containers()]
        return {variable for env in found for variable in env if variable.startswith("PASSWORD=")}

    ids = {name: world.api.inspect(name)["Id"] for name in before}
    assert passwords() == {f"PASSWORD={old}"}
    with world.watching(), world.clients() as clients:
        until(lambda: len(clients.pages) == 3, "all three serve pages")
        place.write_text(new)
        until(lambda: passwords() == {f"PASSWORD={new}"} and len(world.containers()) == 3, "all have it")
        world.settle()
    clients.check_all_served()
    clients.check_never_empty()
    assert all(world.api.inspect(name)["Id"] != ids.get(name) for name in world.containers())
    output = world.log() + json.dumps(world.status()) + world.run("events")[1] + world.run("explain", "workload/web")[1]
    kept = b"".join(file.read_bytes() for file in world.state.rglob("*") if file.is_file())
    assert not re.search(f"{old}|{new}", output)
    assert old.encode() not in kept
    assert new.encode() not in kept


@DOCKER
def test_a_container_that_always_fails_is_given_up_until_a_new_template(edge: World):
    world, shared = edge, edge.directory / "shared"
    shared.mkdir()
    (shared / "ok").touch()
    (world.manifests / "guard.yaml").write_text(QUICK_GUARD)
    world.edit("replicas: 3", "replicas: 1")
    world.edit("initial: 1s", "initial: 100ms\n      max: 200ms")
    world.edit("  restarts:\n", "  restarts:\n    limit: 50\n    escalation: {recreateAfter: 2, giveUpAfter: 1}\n")
    world.edit("path: /healthz", "path: /shared/ok")
    world.edit(
        "      containers:\n", f"      volumes: [{{name: shared, hostPath: {{path: {shared}}}}}]\n      containers:\n"
    )
    world.edit(
        "command: [/serve]", "command: [/serve]\n          volumeMounts: [{name: shared, mountPath: /www/shared}]"
    )
    world.once()
    world.settle(1)
    (name,) = world.containers()
    made = world.api.inspect(name)["Id"]
    with world.watching():
        (shared / "ok").unlink()
        until(lambda: world.replicas()["web/0"]["state"] == "Failed", "it was given up")
        # Restarted twice, recreated, restarted once more: four stops, one removal, and nothing after that.
        stops = world.journal("stop")
        assert len(stops) == 4
        assert len(world.journal("remove")) == 1
        after = world.api.inspect(name)
        assert after["Id"] != made
        code, out = world.run("explain", "workload/web/0")
        assert code == 0
        assert "reconcile resume workload/web/0" in out
        time.sleep(4)
        assert world.api.inspect(name)["State"]["Running"]
        assert world.journal("stop") == stops
        (shared / "ok").touch()
        world.edit("command: [/serve]", "command: [/serve, second]")
        until(lambda: name not in world.containers(), "the new revision has taken its place")
        world.settle(1)
        until(lambda: world.replicas()["web/0"]["state"] == "Ready", "nothing is left of it")


@DOCKER
def test_a_container_killed_at_its_memory_limit_is_started_with_that_cause(edge: World):
    world = edge
    eater = "[ -e /tmp/again ] && exec /serve; touch /tmp/again; sleep 1; x=0123456789abcdef; while :; do x=$x$x; done"
    world.edit("replicas: 3", "replicas: 1\n  runtimeRestart: no")
    world.edit(
        "command: [/serve]",
        f'command: [/bin/sh, -c, "{eater}"]\n          resources: {{limits: {{memory: 16Mi}}}}',
    )
    # While it eats it does not serve: a probe at that time must not end its first generation.
    world.edit("failureThreshold: 2\n", "failureThreshold: 2\n            initialDelaySeconds: 60\n")
    with world.watching():
        until(lambda: len(world.addresses()) == 1 and world.serves(world.addresses()), "its second generation serves")
    # The engine may tell of the end before it has heard from the kernel why: then it is a kill like any other.
    logged = "killed at its memory limit" in world.log()
    assert logged or "ended by a signal with exit code 137" in world.log(), world.log()
    assert not world.journal("stop")
    code, out = world.run("events", "--since", "1h")
    assert code == 0
    assert not logged or "OOMKilled" in out or "memory limit" in out, out


def peer(path: str) -> int:
    """The process that listens at a socket."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        return int(struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


@pytest.mark.server("podman")
def test_the_end_of_podmans_service_stops_no_container():
    with podman_home() as home, closing(World(podman_with_image(home))) as world:
        path = world.edge.docker
        world.start_servers()
        world.once()
        world.settle()
        before = world.started_at()
        with world.watching(), world.clients() as clients:
            until(lambda: len(clients.pages) == 3, "all three serve pages")
            os.kill(peer(path), signal.SIGKILL)
            until(lambda: "RuntimeUnknown" in world.log(), "the engine is not seen")
            Path(path).unlink(missing_ok=True)
            ensure_podman(home)
            victim = min(before)
            world.ask(world.address(victim), "/cgi-bin/break")
            until(lambda: restarted(world, before) == {victim}, "it is seen again, and heals")
            world.settle()
        clients.check_all_served()
        clients.check_never_empty()
        assert set(world.started_at()) == set(before)
        assert len(world.journal("stop")) == 1
