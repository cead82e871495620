"""Ends of containers that run again, and kills for memory of one process, as the engine's events show them."""

import os
import signal
from dataclasses import replace

import pytest

from manifests.values.desired import Template
from manifests.values.pod import Live
from providers.facts import ContainerFact, ContainerState, EndFact, ExitCause
from providers.lib.clock import boottime
from providers.runtime.docker.container import EngineContainer, make_pod
from providers.runtime.docker.daemon import Daemon
from providers.runtime.docker.ends import KEPT, Ends
from providers.runtime.docker.fact import NodeContext, container_fact
from providers.runtime.docker.timestamps import SECOND, wall
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.containers import exited_container
from tests.providers.runtime.docker.engine import container, template

EATER = "x=0123456789abcdef; while :; do x=$x$x; done"
LIMITED = Live("", memory=16 << 20, restart="unless-stopped")


def event(action: str, at: int, code: int | None = None, container: str = "id") -> dict[str, object]:
    attributes = {} if code is None else {"exitCode": str(code)}
    return {"Type": "container", "Action": action, "Actor": {"ID": container, "Attributes": attributes}, "timeNano": at}


def reported(*events: dict[str, object]) -> Ends:
    ends = Ends()
    for each in events:
        ends.note(each)
    return ends


def fact(ended: EngineContainer, ends: Ends) -> ContainerFact:
    context = NodeContext("local", {}, Daemon(1, max(1, boottime() - 3600 * SECOND)), False, ends=ends)
    return container_fact(make_pod(ended, ()), context)


def running(**changes: object) -> EngineContainer:
    """A container that ended 20 s ago and runs again."""
    now = wall()
    return exited_container(
        status="running",
        started_at=now - 19 * SECOND,
        finished_at=now - 20 * SECOND,
        running_since=boottime() - 19 * SECOND,
        exit_code=0,
        **changes,
    )


def test_the_code_of_a_run_that_is_over_is_that_of_its_event() -> None:
    again = running(oom_killed=True)
    finished = again.finished_at
    for code, cause in ((0, ExitCause.EXITED), (3, ExitCause.EXITED), (137, ExitCause.SIGNALLED)):
        seen = fact(
            again, reported(event("die", finished + SECOND // 100, code), event("die", finished - 9 * SECOND, 7))
        )
        assert seen.last_end == EndFact(finished, code, cause)
        assert (seen.exit_code, seen.exit_cause, seen.state) == (None, None, ContainerState.RUNNING)
    assert fact(again, reported()).last_end == EndFact(finished, None, ExitCause.UNKNOWN)
    assert fact(again, reported(event("die", finished, 9, "another"))).last_end.exit_code is None


def test_a_kill_for_memory_belongs_to_the_end_that_follows_it_at_once() -> None:
    again = running()
    die = event("die", again.finished_at, 137)
    assert (
        fact(again, reported(event("oom", again.finished_at - SECOND // 30), die)).last_end.cause
        is ExitCause.OOM_KILLED
    )
    assert (
        fact(again, reported(event("oom", again.finished_at - 9 * SECOND), die)).last_end.cause is ExitCause.SIGNALLED
    )
    clean = event("die", again.finished_at, 0)
    assert (
        fact(again, reported(event("oom", again.finished_at - SECOND // 30), clean)).last_end.cause is ExitCause.EXITED
    )


def test_an_end_long_after_a_childs_kill_is_not_one_for_memory() -> None:
    ended = exited_container(oom_killed=True, exit_code=5)
    assert fact(ended, reported()).exit_cause is ExitCause.OOM_KILLED
    assert fact(ended, reported(event("oom", ended.finished_at - 60 * SECOND))).exit_cause is ExitCause.EXITED
    assert fact(replace(ended, exit_code=0), reported()).exit_cause is ExitCause.EXITED


def test_a_kill_in_this_run_is_one_of_a_child() -> None:
    again = running()
    kill = again.started_at + 5 * SECOND
    assert fact(again, reported(event("oom", kill))).oom_at == kill
    assert fact(again, reported(event("oom", again.finished_at))).oom_at == 0
    assert fact(replace(again, status="stopping"), reported(event("oom", kill))).oom_at == 0


def test_an_end_with_the_engine_is_the_hosts() -> None:
    now = wall()
    again = replace(running(), started_at=now - 5 * SECOND)
    context = NodeContext("local", {}, Daemon(1, boottime() - 10 * SECOND), False)
    assert container_fact(make_pod(again, ()), context).last_end.cause is ExitCause.HOST_RESTARTED


def test_events_are_remembered_in_bounds_and_once() -> None:
    ends = reported(*(event("die", at, at) for at in range(100)), event("die", 99, 99))
    assert len(ends._past["id"].ends) == KEPT
    ends.note({"Type": "network", "Action": "die"})
    ends.keep(())
    assert ends.code("id", 0) is None


# --- on a real engine ----------------------------------------------------------------------------------------------------


def restarted(bench: Bench, fact: ContainerFact) -> ContainerFact:
    """The container once the engine has started it again."""
    wait_until(
        lambda: (now := bench.looked(fact.name)).generation != fact.generation and now.state is ContainerState.RUNNING,
        f"the engine restarts {fact.name}",
    )
    return bench.looked(fact.name)


@pytest.mark.server("dockerd")
def test_a_restart_by_the_engine_shows_how_the_last_run_ended(bench: Bench) -> None:
    fact = bench.run(template(restart="unless-stopped"))
    bench.looked(fact.name)
    bench.api.kill(fact.name)
    again = restarted(bench, fact)
    assert (again.last_end.exit_code, again.last_end.cause) == (137, ExitCause.SIGNALLED)
    assert bench.fact(fact.name).last_end == again.last_end
    assert next(one for one in bench.make().observe() if one.name == fact.name).last_end == again.last_end


@pytest.mark.server("dockerd")
def test_the_last_lines_of_a_run_are_those_before_its_end(bench: Bench) -> None:
    script = "echo begin; trap 'echo last words; exit 0' TERM; /bin/sleep 300 & wait $!"
    fact = bench.run(template(container("web", "/bin/sh", "-c", script), restart="unless-stopped"))
    bench.logged(fact.name, "begin")
    bench.looked(fact.name)
    os.kill(int(bench.api.inspect(fact.name)["State"]["Pid"]), signal.SIGTERM)
    again = restarted(bench, fact)
    wait_until(lambda: bench.runtime.logs(fact.name, 5).count("begin") == 2, "it began again")
    assert again.last_end.exit_code == 0
    assert bench.runtime.logs(fact.name, 5, again.last_end.at + SECOND // 20) == ("begin", "last words")


@pytest.mark.server("dockerd")
def test_a_killed_child_is_seen_while_the_container_runs_on(bench: Bench) -> None:
    fact = bench.run(Template((("app", "web"),), container(), revision="0123456789abcdef", live=(LIMITED,)))
    bench.looked(fact.name)
    assert bench.api.exec(fact.name, "/bin/sh", "-c", EATER) == 137
    wait_until(lambda: bench.looked(fact.name).oom_at > 0, "the engine reports the kill")
    now = bench.looked(fact.name)
    assert (now.state, now.generation, now.last_end) == (ContainerState.RUNNING, fact.generation, None)


def test_a_stop_and_start_of_ours_shows_the_stop(engine: Bench) -> None:
    fact = engine.run()
    stopped = engine.stop(fact)
    assert stopped.last_end.cause is ExitCause.STOPPED_BY_US
    assert engine.start(stopped).last_end.at == stopped.last_end.at
