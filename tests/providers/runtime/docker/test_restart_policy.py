"""The engine's restarts and the restart policy: counted, removed before a stop, restored by a start."""

from contextlib import suppress

import pytest

from manifests.values.pod import Live
from providers.actions import StartContainer
from providers.errors import Conflict, ProviderError
from providers.facts import ContainerState, ExitCause
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import container, template


def test_a_paused_container_is_paused_and_keeps_its_generation(engine: Bench) -> None:
    fact = engine.run()
    engine.api.link.post(f"/containers/{fact.name}/pause", fact.name)
    paused = engine.looked(fact.name)
    assert (paused.state, paused.generation, paused.exit_cause) == (ContainerState.PAUSED, fact.generation, None)
    engine.api.link.post(f"/containers/{fact.name}/unpause", fact.name)
    assert engine.looked(fact.name).state is ContainerState.RUNNING


@pytest.mark.server("dockerd")
def test_restarts_by_the_engine_are_counted(bench: Bench) -> None:
    fact = bench.run(template(restart="unless-stopped"))
    assert fact.restarts == 0
    bench.api.kill(fact.name)
    wait_until(lambda: bench.state(fact.name) is ContainerState.RUNNING, "the engine restarted it")
    again = bench.looked(fact.name)
    assert again.restarts == 1
    assert again.generation != fact.generation


@pytest.mark.server("dockerd")
def test_an_update_removes_the_policy_while_the_engine_keeps_restarting(bench: Bench) -> None:
    fact = bench.run(template(container("web", "/bin/sh", "-c", "exit 4"), restart="unless-stopped"))
    wait_until(lambda: bench.state(fact.name) is ContainerState.RESTARTING, "the engine waits to restart it")

    def removed() -> bool:
        now = bench.fact(fact.name)
        try:
            return bench.update(now, Live("", restart="no")).live[0].restart == "no"
        except ProviderError:  # the engine has just restarted it, or is about to
            return False

    wait_until(removed, "the policy was removed")
    down = bench.ended(fact.name)
    assert (down.exit_cause, down.exit_code, down.live[0].restart) == (ExitCause.EXITED, 4, "no")
    assert bench.start(down).live[0].restart == "no", "a start does not restore a policy that was removed for good"


@pytest.mark.server("dockerd")
def test_a_policy_that_was_changed_after_a_stop_is_not_restored(bench: Bench) -> None:
    stopped = bench.stop(bench.run(template(restart="unless-stopped")))
    assert stopped.live[0].restart == "no"
    bench.update(stopped, Live("", restart="no"))
    assert bench.start(stopped).live[0].restart == "no"


@pytest.mark.server("dockerd")
def test_a_stop_removes_the_restart_policy_and_a_start_restores_it(bench: Bench) -> None:
    fact = bench.run(template(restart="unless-stopped"))
    stopped = bench.stop(fact)
    assert bench.api.inspect(fact.name)["HostConfig"]["RestartPolicy"]["Name"] == "no"
    assert stopped.state is ContainerState.EXITED
    again = bench.start(stopped)
    assert again.live == (Live("", 0, 0, "unless-stopped"),)


@pytest.mark.server("dockerd")
def test_a_start_is_refused_while_the_engine_restarts_the_container(bench: Bench) -> None:
    fact = bench.run(template(container("web", "/bin/sh", "-c", "exit 1"), restart="unless-stopped"))
    wait_until(lambda: bench.state(fact.name) is ContainerState.RESTARTING, "the engine waits before its next try")
    wait_until(lambda: _refused(bench, fact.name), "a start while the engine waits is refused")
    wait_until(lambda: _stopped(bench, fact.name), "a stop ends its restarts")
    assert bench.api.inspect(fact.name)["HostConfig"]["RestartPolicy"]["Name"] == "no"


def _refused(bench: Bench, name: str) -> bool:
    """Whether a start was refused because the engine restarts the container; the restart may happen between look and start."""
    waiting = bench.fact(name)
    if waiting.state is not ContainerState.RESTARTING:
        return False
    try:
        bench.runtime.perform(StartContainer("local", name, waiting.generation))
    except Conflict as refusal:
        return "is restarting" in str(refusal)
    return False


def _stopped(bench: Bench, name: str) -> bool:
    """Stop the present generation: each restart by the engine makes another one."""
    with suppress(Conflict):
        return bench.stop(bench.fact(name)).state is ContainerState.EXITED
    return False
