"""One replica from create to remove, and every way in which it can exit."""

import os
import signal
import threading
import time

import pytest

from manifests.values.desired import SECOND
from providers.facts import ContainerState, ExitCause, PortFact
from tests.providers.runtime.process.bench import python

IGNORES_TERM = "import signal,time; signal.signal(15, signal.SIG_IGN); print('ready'); time.sleep(1000)"


EXITS_ON_TERM = "import signal,sys,time; signal.signal(15, lambda *_: sys.exit(0)); print('ready'); time.sleep(1000)"


def test_a_replica_is_created_started_stopped_and_removed(bench):
    created = bench.create()
    assert (created.state, created.started_at, created.address[:4]) == (ContainerState.CREATED, 0, "127.")
    assert created.ports == (PortFact(8080, created.address, 8080), PortFact(9090, created.address, 9090))

    before, wall = time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.time_ns()
    running = bench.start(created)
    assert running.state is ContainerState.RUNNING
    tick = SECOND // 50  # the kernel reports starts in ticks
    assert before - tick <= running.running_since <= time.clock_gettime_ns(time.CLOCK_BOOTTIME) + tick
    assert wall - tick <= running.started_at <= time.time_ns() + tick
    assert bench.processes(running) == [bench.pid(running)]

    stopped = bench.stop(running)
    assert (stopped.state, stopped.exit_cause, stopped.exit_code) == (
        ContainerState.EXITED,
        ExitCause.STOPPED_BY_US,
        128 + signal.SIGTERM,
    )
    assert before < stopped.exited_at <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert bench.processes(running) == []

    bench.remove(stopped)
    assert bench.runtime().observe() == ()
    assert os.listdir(bench.state / "process" / "local") == []


def test_the_shim_is_no_child_of_ours_and_has_its_own_session(bench):
    running = bench.run()
    stat = (bench.pid(running), bench.shim(running))
    assert len({os.getsid(pid) for pid in (*stat, 0)}) == 3
    with pytest.raises(ChildProcessError):
        os.waitpid(bench.shim(running), os.WNOHANG)


@pytest.mark.parametrize(
    ("code", "cause", "exit_code"),
    [
        ("raise SystemExit(0)", ExitCause.EXITED, 0),
        ("raise SystemExit(3)", ExitCause.EXITED, 3),
        ("import os; os.kill(os.getpid(), 11)", ExitCause.SIGNALLED, 139),
    ],
)
def test_an_exit_is_recorded_with_its_cause_and_code(bench, code, cause, exit_code):
    ended = bench.ended(bench.run(*python(code)))
    assert (ended.exit_cause, ended.exit_code, ended.running_since) == (cause, exit_code, 0)


def test_a_kill_by_another_process_is_not_a_stop_of_ours(bench):
    running = bench.run()
    os.kill(bench.pid(running), signal.SIGKILL)
    ended = bench.ended(running)
    assert (ended.exit_cause, ended.exit_code) == (ExitCause.SIGNALLED, 137)
    assert ended.generation == running.generation


def test_an_application_that_handles_sigterm_exits_with_its_own_code(bench):
    running = bench.run(*python(EXITS_ON_TERM))
    bench.says(running, "ready")
    stopped = bench.stop(running)
    assert (stopped.exit_cause, stopped.exit_code) == (ExitCause.STOPPED_BY_US, 0)


def test_an_application_that_ignores_sigterm_is_killed_after_the_grace(bench):
    running = bench.run(*python(IGNORES_TERM))
    bench.says(running, "ready")
    begun = time.monotonic_ns()
    stopped = bench.stop(running, grace=SECOND // 5)
    assert time.monotonic_ns() - begun >= SECOND // 5
    assert (stopped.exit_cause, stopped.exit_code) == (ExitCause.STOPPED_BY_US, 137)


def test_a_stop_under_way_is_observed_and_a_second_one_shortens_it(bench):
    running = bench.run(*python(IGNORES_TERM))
    bench.says(running, "ready")
    slow = threading.Thread(target=bench.stop, args=(running, 60 * SECOND))
    slow.start()
    bench.wait(lambda: bench.fact(running.name).state is ContainerState.STOPPING, "the stop is observed")
    bench.stop(running, grace=0)
    slow.join(55)
    assert not slow.is_alive()
    assert bench.fact(running.name).state is ContainerState.EXITED


def test_a_frozen_application_is_paused_and_can_be_stopped(bench):
    running = bench.run(*python(EXITS_ON_TERM))
    bench.says(running, "ready")
    os.kill(bench.pid(running), signal.SIGSTOP)
    bench.wait(lambda: bench.fact(running.name).state is ContainerState.PAUSED, "it is paused")
    paused = bench.fact(running.name)
    assert (paused.generation, paused.running_since) == (running.generation, running.running_since)
    assert bench.start(paused).state is ContainerState.PAUSED
    assert bench.stop(paused).exit_code == 0


def test_children_and_daemons_are_killed_with_the_application(bench):
    code = """
import os, time
for kind in ("child", "daemon"):
    if os.fork() == 0:
        if kind == "daemon":
            os.setsid()
            if os.fork():
                os._exit(0)
        os.execv("/bin/sleep", ["sleep", "1000"])
print("ready")
time.sleep(1000)
"""
    running = bench.run(*python(code))
    bench.says(running, "ready")
    bench.wait(lambda: len(bench.processes(running)) == 3, "application, child and daemon run")
    bench.stop(running)
    assert bench.processes(running) == []


def test_processes_of_a_crashed_application_are_killed(bench):
    running = bench.run("/bin/sh", "-c", "setsid /bin/sleep 1000 & exit 4")
    assert bench.ended(running).exit_code == 4
    assert bench.processes(running) == []


def test_orphans_that_exit_are_collected_while_the_application_runs(bench):
    running = bench.run("/bin/sh", "-c", "(/bin/true &); (/bin/true &); echo ready; exec /bin/sleep 1000")
    bench.says(running, "ready")
    children = f"/proc/{bench.shim(running)}/task/{bench.shim(running)}/children"
    bench.wait(lambda: open_text(children).split() == [str(bench.pid(running))], "only the application is left")


def open_text(path):
    with open(path) as file:
        return file.read()
