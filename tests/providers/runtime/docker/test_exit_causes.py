"""Why a container exited: by itself, by a signal, by our stop, with its host, or out of memory."""

from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import Template
from manifests.values.pod import Live, Mount, VolumeKind
from providers.facts import (
    ContainerFact,
    ContainerState,
    ExitCause,
)
from providers.lib.clock import boottime
from providers.runtime.docker.container import EngineContainer, make_pod
from providers.runtime.docker.daemon import Daemon
from providers.runtime.docker.fact import NodeContext, container_fact
from providers.runtime.docker.own_stops import OwnStop
from providers.runtime.docker.timestamps import (
    SECOND,
    boot_wall,
    wall,
)
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.containers import exited_container
from tests.providers.runtime.docker.engine import container, template


def context(**changes: object) -> NodeContext:
    long_ago = Daemon(1, max(1, boottime() - 3600 * SECOND))
    return replace(NodeContext("local", {}, long_ago, False), **changes)


def cause(container: EngineContainer, node: NodeContext) -> ExitCause | None:
    return container_fact(make_pod(container, ()), node).exit_cause


def test_the_exit_cause_follows_from_code_stop_and_time() -> None:
    ended = exited_container()
    assert cause(ended, context()) is ExitCause.EXITED
    assert cause(replace(ended, exit_code=137), context()) is ExitCause.SIGNALLED
    stop = {"id": OwnStop(ended.started_at, "")}
    assert cause(ended, context(stops=stop)) is ExitCause.STOPPED_BY_US
    assert cause(ended, context(stops={"id": OwnStop(1, "")})) is ExitCause.EXITED
    restarted = Daemon(1, boottime() - 40 * SECOND)
    before = replace(ended, finished_at=wall() - 50 * SECOND, exit_code=137)
    assert cause(before, context(daemon=restarted)) is ExitCause.HOST_RESTARTED
    rebooted = replace(ended, finished_at=boot_wall() - SECOND)
    assert cause(rebooted, context(daemon=Daemon())) is ExitCause.HOST_RESTARTED


def test_an_engine_that_has_just_started_restarts_its_containers_itself() -> None:
    ended = exited_container(restart="unless-stopped", finished_at=wall() - 50 * SECOND)
    young = context(daemon=Daemon(1, boottime() - 10 * SECOND))
    old = context(daemon=Daemon(1, boottime() - 40 * SECOND))
    assert container_fact(make_pod(ended, ()), young).state is ContainerState.RESTARTING
    assert container_fact(make_pod(ended, ()), old).state is ContainerState.EXITED
    assert container_fact(make_pod(replace(ended, restart="no"), ()), young).state is ContainerState.EXITED
    assert container_fact(make_pod(ended, ()), replace(young, podman=True)).state is ContainerState.EXITED


MEMORY = 8 << 20


EATER = ("/bin/sh", "-c", "x=0123456789abcdef; while :; do x=$x$x; done")
"""Doubles a text until the memory is full."""


def limited(*argv: str) -> Template:
    return template(container("web", *argv), live=(Live("", memory=MEMORY, restart="no"),))


def starved(bench: Bench, made: Template) -> ContainerFact:
    """A container that exited at its memory limit, and the engine reports it.

    Now and then the exit of a container arrives before the kernel's report of its cause: then the engine takes it for any other
    kill, and so must the runtime. Then the container is started again.
    """
    fact = bench.create(made)
    for _ in range(20):
        fact = bench.ended(bench.start(fact).name)
        if bench.api.inspect(fact.name)["State"]["OOMKilled"]:
            return fact
        assert fact.exit_cause is not ExitCause.OOM_KILLED
    raise AssertionError("the engine never reported that memory ran out")


@pytest.mark.server("dockerd")
def test_a_container_at_its_memory_limit_is_out_of_memory(bench: Bench) -> None:
    fact = starved(bench, limited(*EATER))
    assert (fact.exit_cause, fact.exit_code) == (ExitCause.OOM_KILLED, 137)
    assert bench.looked(fact.name) == fact


@pytest.mark.server("dockerd")
def test_a_child_at_the_memory_limit_is_out_of_memory_too(bench: Bench) -> None:
    fact = starved(bench, limited("/bin/sh", "-c", f"({EATER[2]}) & wait $!; exit 3"))
    assert (fact.exit_cause, fact.exit_code) == (ExitCause.OOM_KILLED, 3)


@pytest.mark.server("dockerd")
def test_an_earlier_out_of_memory_exit_is_not_the_cause_of_a_later_one(bench: Bench, tmp_path: Path) -> None:
    script = "if [ -e /shared/fed ]; then exit 5; fi; " + EATER[2]
    shared = Mount(VolumeKind.BIND, str(tmp_path), "/shared")
    hungry = container("web", "/bin/sh", "-c", script, mounts=(shared,))
    fact = starved(bench, template(hungry, live=(Live("", memory=MEMORY, restart="no"),)))
    assert fact.exit_cause is ExitCause.OOM_KILLED
    (tmp_path / "fed").touch()
    bench.start(fact)
    again = bench.ended(fact.name)
    assert (again.exit_cause, again.exit_code) == (ExitCause.EXITED, 5)
