"""Exec probes inside containers: the helper ends as the command ended, and leaves nothing behind for long."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from providers.errors import Rejected
from providers.facts import ContainerState
from providers.runtime.docker import exec_helper
from providers.spi import ExecTarget
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.bench import Bench
from tests.providers.runtime.docker.engine import container, template


def run(target: ExecTarget) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        target.argv, env=dict(target.env), cwd=target.cwd, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("argv", "code", "output"),
    [
        (("/bin/true",), 0, ""),
        (("/bin/false",), 1, ""),
        (("/bin/sh", "-c", "echo out; echo err >&2; exit 7"), 7, "out\nerr\n"),
        (("/bin/echo", "one two", "$HOME", ";"), 0, "one two $HOME ;\n"),
        (("/bin/sh", "-c", "kill -9 $$"), 137, ""),
    ],
)
def test_the_helper_ends_as_the_command_ended(engine: Bench, argv: tuple[str, ...], code: int, output: str) -> None:
    fact = engine.run()
    done = run(engine.runtime.exec_target(fact.name, argv))
    assert done.returncode == code
    assert sorted(done.stdout.splitlines()) == sorted(output.splitlines())


def test_a_program_that_is_not_there_is_a_failure_of_the_container(engine: Bench) -> None:
    fact = engine.run()
    done = run(engine.runtime.exec_target(fact.name, ("/bin/none",)))
    assert done.returncode in (126, 127)
    assert "/bin/none" in done.stdout


@pytest.mark.server("dockerd")
def test_an_empty_command_is_refused(bench: Bench) -> None:
    fact = bench.create()
    with pytest.raises(Rejected, match="give at least the program"):
        bench.runtime.exec_target(fact.name, ())


@pytest.mark.server("dockerd")
def test_an_engine_that_cannot_be_asked_gives_no_verdict(bench: Bench, tmp_path: Path) -> None:
    fact = bench.run()
    target = bench.runtime.exec_target(fact.name, ("/bin/true",))
    elsewhere = tuple(str(tmp_path / "none.sock") if one == bench.socket else one for one in target.argv)
    done = run(ExecTarget(elsewhere, target.env, target.cwd))
    assert done.returncode == -signal.SIGUSR2
    assert "cannot ask the engine" in done.stdout


def test_a_container_that_does_not_run_gives_no_verdict(engine: Bench) -> None:
    fact = engine.create()
    assert run(engine.runtime.exec_target(fact.name, ("/bin/true",))).returncode == -signal.SIGUSR2


@pytest.mark.server("dockerd")
def test_a_command_that_never_started_is_not_waited_for(bench: Bench) -> None:
    fact = bench.create()
    runtime = bench.make()
    run(runtime.exec_target(fact.name, ("/bin/true",)))
    began = time.monotonic()
    runtime.close()
    assert time.monotonic() - began < exec_helper.ENDING_SECONDS - 1


def commands(bench: Bench, name: str) -> set[int]:
    """The host's process ids of what runs in a container beside its first process."""
    inside = os.readlink(f"/proc/{bench.api.inspect(name)['State']['Pid']}/ns/pid")
    found = set()
    for entry in os.listdir("/proc"):
        with suppress(OSError):
            here = entry.isdecimal() and os.readlink(f"/proc/{entry}/ns/pid") == inside
            if here and b"4321" in Path(f"/proc/{entry}/cmdline").read_bytes():
                found.add(int(entry))
    return found


TREE = ("/bin/sh", "-c", "sleep 4321 & setsid sleep 4321 & sleep 4321; true")
"""A command with children, one of them in a session of its own."""


def killed(bench: Bench, target: ExecTarget, name: str) -> None:
    """Start a probe's helper and kill it as the probe engine does when time is over."""
    first = subprocess.Popen(target.argv, env=dict(target.env), stdout=subprocess.DEVNULL)
    wait_until(lambda: len(commands(bench, name)) >= 4, "the command runs with its children")
    first.kill()
    first.wait()


def test_a_probe_that_ran_out_of_time_leaves_no_process(engine: Bench) -> None:
    fact = engine.run()
    killed(engine, engine.runtime.exec_target(fact.name, TREE), fact.name)
    wait_until(lambda: not commands(engine, fact.name), "it is ended with its children")
    assert engine.state(fact.name) is ContainerState.RUNNING
    assert run(engine.runtime.exec_target(fact.name, ("/bin/true",))).returncode == 0


def test_a_probe_that_ran_out_of_time_does_not_delay_another(engine: Bench) -> None:
    fact = engine.run()
    slow = [engine.runtime.exec_target(fact.name, ("/bin/sleep", f"4321{one}")) for one in range(6)]
    running = [subprocess.Popen(one.argv, env=dict(one.env), stdout=subprocess.DEVNULL) for one in slow]
    wait_until(lambda: len(commands(engine, fact.name)) == len(slow), "all commands run")
    for one in running:
        one.kill()
        one.wait()
    done = run(engine.runtime.exec_target(fact.name, ("/bin/echo", "quick")))
    assert (done.returncode, done.stdout) == (0, "quick\n")
    wait_until(lambda: not commands(engine, fact.name), "all commands are ended")


def test_a_probe_has_the_rights_of_its_container_and_no_more(engine: Bench) -> None:
    fact = engine.run(template(container("web", user="1234:1234", cap_drop=("ALL",))))
    look = (
        "/bin/sh",
        "-c",
        "id -u; while read -r word rest; do [ $word = CapBnd: ] && echo $rest; done < /proc/self/status; true",
    )
    done = run(engine.runtime.exec_target(fact.name, look))
    assert done.stdout.split() == ["1234", "0000000000000000"]


@pytest.mark.server("dockerd")
def test_a_probe_whose_watch_is_gone_is_ended_by_its_next_run(bench: Bench) -> None:
    fact = bench.run()
    other = bench.make()
    target = other.exec_target(fact.name, TREE)
    other.close()
    killed(bench, target, fact.name)
    left = commands(bench, fact.name)
    assert left, "the engine lets it go on"
    exec_helper.end_leftovers(bench.socket, fact.id, list(TREE))
    wait_until(lambda: not left & commands(bench, fact.name), "it is ended with its children")


@pytest.mark.server("dockerd")
def test_a_person_in_a_container_is_left_alone(bench: Bench) -> None:
    fact = bench.run(template(container()))
    argv = ["/bin/sleep", "4321"]
    made = bench.api.link.post(f"/containers/{fact.name}/exec", fact.name, {"Cmd": argv})
    bench.api.link.post(f"/exec/{made['Id']}/start", fact.name, {"Detach": True})
    wait_until(lambda: bool(commands(bench, fact.name)), "a person's command runs")
    with pytest.raises(exec_helper.CannotAsk, match="cannot be ended"):
        exec_helper.end_leftovers(bench.socket, fact.id, argv)
    assert commands(bench, fact.name)
