"""Kills, reused pids, reboots and races: never two copies of a replica, never a signal to another process."""

import contextlib
import os
import resource
import select
import signal
import subprocess
import threading

import pytest

from manifests.values.desired import SECOND
from providers.actions import StartContainer
from providers.errors import Conflict, Gone, ProviderError, Unreachable
from providers.facts import ContainerState, ExitCause, Generation
from providers.runtime.process.shim_protocol import is_alive, process_stat
from tests.providers.runtime.process.bench import carriers, python

SURVIVES = """
import ctypes, time
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # no signal when the parent dies
print("ready")
time.sleep(1000)
"""


@pytest.fixture
def bystander():
    """A process of another program."""
    with subprocess.Popen(["/bin/sleep", "1000"]) as process:
        yield process
        process.kill()


def test_the_application_dies_with_its_shim_and_starts_again(bench):
    running = bench.run()
    os.kill(bench.shim(running), signal.SIGKILL)
    ended = bench.ended(running)
    assert (ended.exit_cause, ended.exit_code) == (ExitCause.UNKNOWN, None)
    again = bench.start(ended)
    assert again.started_at > running.started_at
    assert bench.processes(again) == [bench.pid(again)]


@pytest.mark.parametrize("end", ["start", "stop", "remove"])
def test_daemons_that_outlived_a_killed_shim_are_killed_first(bench, end):
    running = bench.run("/bin/sh", "-c", "setsid /bin/sleep 1000 & echo ready; wait")
    bench.says(running, "ready")
    bench.wait(lambda: len(bench.processes(running)) == 2, "both run")
    os.kill(bench.shim(running), signal.SIGKILL)
    ended = bench.ended(running)
    (stray,) = bench.processes(running)
    getattr(bench, end)(ended)
    assert stray not in carriers(running.id)


def test_an_application_that_survives_its_shim_is_still_stopped(bench):
    running = bench.run(*python(SURVIVES))
    bench.says(running, "ready")
    os.kill(bench.shim(running), signal.SIGKILL)
    shim = bench.record(running)
    bench.wait(lambda: not is_alive(int(shim["shim"]), int(shim["shim_start"])), "the shim is gone")
    assert bench.start(bench.fact(running.name)).generation == running.generation
    assert bench.processes(running) == [bench.pid(running)]
    stopped = bench.stop(running)
    assert (stopped.state, stopped.exit_cause) == (ContainerState.EXITED, ExitCause.STOPPED_BY_US)
    assert bench.processes(running) == []


def test_a_frozen_shim_still_stops_its_replica(bench):
    running = bench.run()
    os.kill(bench.shim(running), signal.SIGSTOP)
    assert bench.stop(running).exit_cause is ExitCause.STOPPED_BY_US


def test_sigterm_from_another_process_is_not_recorded_as_our_stop(bench):
    running = bench.run()
    os.kill(bench.shim(running), signal.SIGTERM)
    assert bench.ended(running).exit_cause is ExitCause.SIGNALLED


def test_a_reused_pid_is_never_signalled(bench, bystander):
    running = bench.run()
    os.kill(bench.shim(running), signal.SIGKILL)
    bench.ended(running)
    bench.rewrite(running, pid=bystander.pid, shim=bystander.pid, pid_start=1, shim_start=1)
    assert bench.fact(running.name).state is ContainerState.EXITED
    bench.stop(running)
    bench.remove(bench.fact(running.name))
    assert bystander.poll() is None


def test_a_reboot_is_the_cause_when_the_boot_id_differs(bench, bystander):
    running = bench.run()
    bench.stop(running)
    # After a power cut: a record with phase running, of an earlier boot, with a reused pid.
    start = process_stat(bystander.pid)[2]
    bench.rewrite(running, phase="running", boot="another", pid=bystander.pid, pid_start=start)
    fact = bench.fact(running.name)
    assert (fact.state, fact.exit_cause, fact.exit_code) == (ContainerState.EXITED, ExitCause.HOST_RESTARTED, None)
    assert (fact.running_since, fact.exited_at) == (0, 0)
    assert bench.start(fact).state is ContainerState.RUNNING
    assert bystander.poll() is None


def test_an_exit_before_a_reboot_keeps_its_cause_without_an_instant(bench):
    ended = bench.ended(bench.run(*python("raise SystemExit(3)")))
    bench.rewrite(ended, boot="another")
    fact = bench.fact(ended.name)
    assert (fact.exit_cause, fact.exit_code, fact.exited_at) == (ExitCause.EXITED, 3, 0)


def test_a_replica_in_another_pid_namespace_is_unreadable(bench):
    running = bench.run()
    bench.rewrite(running, namespace="pid:[1]")
    with pytest.raises(Unreachable, match="another pid namespace"):
        bench.runtime().observe()


def test_the_generation_grows_when_the_wall_clock_was_set_back(bench):
    ended = bench.ended(bench.run(*python("")))
    future = ended.started_at + 3600 * SECOND
    bench.rewrite(ended, started_at=future)
    again = bench.start(bench.fact(ended.name))
    assert again.started_at == future + 1


def test_a_start_is_a_conflict_when_a_newer_generation_has_exited(bench):
    created = bench.create(python(""))
    bench.ended(bench.start(created))
    with pytest.raises(Conflict):
        bench.start(created)


def test_a_start_of_another_container_of_the_name_is_a_conflict(bench):
    created = bench.create()
    with pytest.raises(Conflict):
        bench.runtime().perform(StartContainer("local", created.name, Generation("other", 0)))


def test_concurrent_starts_run_one_copy(bench):
    created = bench.create()
    gate = threading.Barrier(4)
    failures = []

    def start():
        runtime = bench.runtime()
        gate.wait()
        try:
            runtime.perform(StartContainer("local", created.name, created.generation))
        except ProviderError as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(bench.processes(bench.fact(created.name))) == 1


@pytest.mark.parametrize("milliseconds", [0, 2, 5, 8, 10, 12, 14, 16, 18, 20, 25])
def test_a_starter_killed_at_any_point_is_followed_by_exactly_one_copy(bench, milliseconds):
    created = bench.create()
    runtime = bench.runtime()
    starter = os.fork()
    if starter == 0:
        try:
            runtime.perform(StartContainer("local", created.name, created.generation))
        finally:
            os._exit(0)
    pidfd = os.pidfd_open(starter)
    select.select([pidfd], [], [], milliseconds / 1000)
    os.kill(starter, signal.SIGKILL)
    os.close(pidfd)
    os.waitpid(starter, 0)

    running = bench.start(created)
    assert running.state is ContainerState.RUNNING
    assert bench.processes(running) == [bench.pid(running)]


@pytest.mark.parametrize("milliseconds", [6, 9, 11, 13, 15, 17])
def test_a_shim_killed_while_it_starts_is_followed_by_exactly_one_copy(bench, milliseconds):
    """Kills each process of the shim that exists at that moment; the starter reports or survives it."""
    created = bench.create()
    done = threading.Event()

    def start():
        with contextlib.suppress(ProviderError):  # the answer does not matter here
            bench.runtime().perform(StartContainer("local", created.name, created.generation))
        done.set()

    thread = threading.Thread(target=start)
    thread.start()
    done.wait(milliseconds / 1000)
    killed = _shims_of(created.name)
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    thread.join()

    def settled():
        # A copy whose shim was killed is killed by the kernel a moment later; until then it still counts as running.
        alive, fact = _shims_of(created.name), bench.fact(created.name)
        if set(alive) & set(killed):
            return False  # the signal has been sent, but they have not exited yet
        return bench.shim(fact) in alive if fact.state is ContainerState.RUNNING else not alive

    bench.wait(settled, "the killed start is over")
    running = bench.start(bench.fact(created.name))
    assert bench.processes(running) == [bench.pid(running)]


def _shims_of(name):
    pids = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"-S" in words[:4] and name.encode() in words[-2:]:
            pids.append(int(pid))
    return pids


def test_a_start_of_a_removed_replica_is_gone(bench):
    created = bench.create()
    bench.remove(created)
    with pytest.raises(Gone):
        bench.start(created)


def test_a_look_without_descriptors_is_unreadable_and_no_exit(bench):
    running = bench.run()
    runtime = bench.runtime()
    assert runtime.observe() == (running,)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(Unreachable):
            runtime.observe([running.name])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert runtime.observe() == (running,)
