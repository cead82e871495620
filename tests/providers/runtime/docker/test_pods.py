"""Replicas of several containers: one network, one fact, one generation."""

import socket
from dataclasses import replace

import pytest

from manifests.values.desired import Port, Template
from manifests.values.pod import Live
from providers.actions import StopContainer
from providers.errors import Conflict, Foreign
from providers.facts import ContainerState, ExitCause
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.bench import GRACE, Bench
from tests.providers.runtime.docker.engine import POLITE, container, template


def reached(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=10.0):
            return True
    except OSError:
        return False


def pod(**fields: object) -> Template:
    served = container(
        "web",
        *POLITE,
        ports=(Port("http", 8080),),
    )
    proxy = container("proxy", "/bin/httpd", "-f", "-p", "8080", "-h", "/bin", stop_signal="SIGKILL")
    return template(served, proxy, container("log"), **fields)


def test_a_replica_is_one_fact_with_one_address(engine: Bench) -> None:
    fact = engine.run(pod())
    assert fact.state is ContainerState.RUNNING
    assert [other.name for other in engine.runtime.observe() if other.name.startswith(engine.instance)] == [fact.name]
    assert engine.looked(fact.name) == fact
    modes = {name: engine.api.inspect(f"{fact.name}-{name}")["HostConfig"]["NetworkMode"] for name in ("proxy", "log")}
    assert set(modes.values()) == {f"container:{fact.id}"}
    wait_until(lambda: reached(fact.address, 8080), "the proxy answers at the replica's address")


def test_members_start_after_the_main_container_and_stop_before_it(engine: Bench) -> None:
    fact = engine.run(pod())
    names = [fact.name, f"{fact.name}-proxy", f"{fact.name}-log"]
    assert sorted(names, key=engine.api.started) == names
    stopped = engine.stop(fact)
    assert sorted(names, key=engine.api.finished) == list(reversed(names))
    assert (stopped.state, stopped.exit_cause) == (ContainerState.EXITED, ExitCause.STOPPED_BY_US)
    engine.remove(stopped)
    assert engine.api.names(f"reconciler.instance={engine.instance}") == []


def test_a_start_starts_a_dead_member_alone(engine: Bench) -> None:
    fact = engine.run(pod())
    engine.api.kill(f"{fact.name}-log")
    sick = engine.fact(fact.name)
    assert (sick.state, sick.exit_code, sick.exit_cause) == (ContainerState.EXITED, 137, ExitCause.SIGNALLED)
    assert engine.looked(fact.name) == sick
    main = engine.api.started(fact.name)
    well = engine.start(sick)
    assert well.state is ContainerState.RUNNING
    assert well.generation != fact.generation
    assert engine.api.started(fact.name) == main, "the main container was left alone"


def test_one_member_can_be_stopped_and_started_alone(engine: Bench) -> None:
    fact = engine.run(pod(restart="unless-stopped"))
    names = {"": fact.name, "log": f"{fact.name}-log", "proxy": f"{fact.name}-proxy"}
    assert {start.container for start in fact.starts} == set(names)
    assert all(start.running_since for start in fact.starts)
    before = {name: engine.api.started(name) for name in names.values()}
    policy = engine.api.inspect(fact.name)["HostConfig"]["RestartPolicy"]

    stop = StopContainer(fact.node, fact.name, fact.generation, GRACE, only="log")
    engine.runtime.perform(stop)
    engine.runtime.perform(stop)
    down = engine.fact(fact.name)
    assert (down.state, down.exit_cause) == (ContainerState.EXITED, ExitCause.STOPPED_BY_US)
    assert down.generation == fact.generation
    assert {start.container for start in down.starts if not start.running_since} == {"log"}
    assert engine.looked(fact.name) == down
    well = engine.start(down)
    assert well.generation != fact.generation
    changed = {name for name, at in before.items() if engine.api.started(name) != at}
    assert changed == {names["log"]}
    assert engine.api.inspect(fact.name)["HostConfig"]["RestartPolicy"] == policy

    with pytest.raises(Conflict, match="its generation has changed"):
        engine.runtime.perform(stop)
    with pytest.raises(Conflict, match="has no container lgo"):
        engine.runtime.perform(replace(stop, expect=well.generation, only="lgo"))
    assert engine.fact(fact.name) == well


@pytest.mark.server("dockerd")
def test_members_join_the_new_network_of_the_main_container(bench: Bench) -> None:
    fact = bench.run(pod(restart="unless-stopped"))
    bench.api.kill(fact.name)
    wait_until(lambda: bench.api.inspect(fact.name)["State"]["Status"] == "running", "the engine restarted it")
    stale = bench.fact(fact.name)
    assert stale.state is ContainerState.EXITED
    well = bench.start(stale)
    assert well.state is ContainerState.RUNNING
    wait_until(lambda: reached(well.address, 8080), "the proxy answers in the new network")


def test_a_start_removes_an_incomplete_pod_so_that_it_is_recreated(engine: Bench) -> None:
    fact = engine.create(pod())
    engine.api.remove(f"{fact.name}-log")
    with pytest.raises(Conflict, match="was removed because its containers log did not exist"):
        engine.start(fact)
    assert engine.runtime.observe([fact.name]) == ()
    assert engine.run(pod()).state is ContainerState.RUNNING


@pytest.mark.server("dockerd")
def test_a_create_removes_members_without_a_main_container(bench: Bench) -> None:
    fact = bench.run(pod())
    bench.api.remove(fact.name)
    assert bench.run(pod()).state is ContainerState.RUNNING


@pytest.mark.server("dockerd")
def test_members_without_a_main_container_are_recreated_with_it(bench: Bench) -> None:
    fact = bench.run(pod())
    bench.api.remove(fact.name)
    left = bench.fact(fact.name)
    assert (left.mark, left.state, left.exit_cause) == (fact.mark, ContainerState.EXITED, ExitCause.UNKNOWN)
    assert left.generation != fact.generation
    assert bench.looked(fact.name) == left
    with pytest.raises(Conflict, match="was removed because its main container did not exist"):
        bench.start(left)
    assert bench.api.names(f"reconciler.instance={bench.instance}") == []
    well = bench.run(pod())
    modes = {name: bench.api.inspect(f"{fact.name}-{name}")["HostConfig"]["NetworkMode"] for name in ("proxy", "log")}
    assert set(modes.values()) == {f"container:{well.id}"}
    wait_until(lambda: reached(well.address, 8080), "the proxy answers at the new replica's address")


@pytest.mark.server("dockerd")
def test_members_without_a_main_container_can_be_stopped_and_removed(bench: Bench) -> None:
    fact = bench.run(pod())
    bench.api.remove(fact.name)
    left = bench.fact(fact.name)
    bench.stop(left)
    bench.remove(bench.fact(fact.name))
    assert bench.runtime.observe([fact.name]) == ()
    assert bench.api.names(f"reconciler.instance={bench.instance}") == []


def test_a_pod_with_a_dead_member_can_be_removed(engine: Bench) -> None:
    fact = engine.run(pod())
    engine.api.kill(f"{fact.name}-log")
    engine.remove(engine.fact(fact.name))
    assert engine.api.names(f"reconciler.instance={engine.instance}") == []


def test_a_foreign_container_under_a_members_name_is_left_alone(engine: Bench) -> None:
    action = engine.creation(pod())
    engine.api.create(f"{action.name}-log")
    try:
        with pytest.raises(Foreign, match="taken by the foreign container"):
            engine.runtime.perform(action)
        assert engine.runtime.observe([action.name]) == ()
    finally:
        engine.api.remove(f"{action.name}-log")


@pytest.mark.server("dockerd")
def test_limits_of_members_change_in_place(bench: Bench) -> None:
    fact = bench.run(pod())
    wanted = (Live("", 0, 64 << 20, "no"), Live("log", 100, 0, "no"), Live("proxy", 0, 0, "no"))
    assert bench.update(fact, *wanted).live == wanted


def test_an_image_made_from_a_member_does_not_make_members(engine: Bench) -> None:
    """Committed images pass labels on, so all our labels are always written."""
    fact = engine.run(pod())
    made = engine.api.link.post(
        "/commit", "commit", {}, container=f"{fact.name}-log", repo="reconciler-test/inherits", tag="1"
    )
    assert made
    copy = engine.run(template(replace(container(image="reconciler-test/inherits:1"), name="web")), ordinal=1)
    assert copy.state is ContainerState.RUNNING
    assert copy.mark is not None
    engine.api.create(f"{engine.instance}-stray", image="reconciler-test/inherits:1")
    stray = engine.fact(f"{engine.instance}-stray")
    assert (stray.mark, stray.foreign_mark) == (None, True)
    engine.api.remove(stray.name)
    engine.api.remove(copy.name)  # the engine keeps the nameless image of a container that runs
    engine.api.link.delete("/images/reconciler-test/inherits:1", "image", force="1")
