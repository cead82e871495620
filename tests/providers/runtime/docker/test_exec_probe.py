"""Exec probes in containers: the probe exits as its command did, and leaves no process behind."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from providers.errors import Rejected
from providers.facts import ContainerState
from providers.runtime.docker import exec_probe
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
def test_the_probe_exits_with_the_exit_code_of_the_command(
    engine: Bench, argv: tuple[str, ...], code: int, output: str
) -> None:
    fact = engine.run()
    done = run(engine.runtime.exec_target(fact.name, argv))
    assert done.returncode == code
    assert sorted(done.stdout.splitlines()) == sorted(output.splitlines())


def test_a_missing_program_is_a_failure_of_the_container(engine: Bench) -> None:
    fact = engine.run()
    done = run(engine.runtime.exec_target(fact.name, ("/bin/none",)))
    assert done.returncode in (126, 127)
    assert "/bin/none" in done.stdout


@pytest.mark.server("dockerd")
def test_an_empty_command_is_refused(bench: Bench) -> None:
    fact = bench.create()
    with pytest.raises(Rejected, match="set at least the program"):
        bench.runtime.exec_target(fact.name, ())


@pytest.mark.server("dockerd")
def test_an_engine_that_does_not_answer_gives_no_verdict(bench: Bench, tmp_path: Path) -> None:
    fact = bench.run()
    target = bench.runtime.exec_target(fact.name, ("/bin/true",))
    elsewhere = tuple(str(tmp_path / "none.sock") if word == bench.socket else word for word in target.argv)
    done = run(ExecTarget(elsewhere, target.env, target.cwd))
    assert done.returncode == -signal.SIGUSR2
    assert "the engine gives no usable answer" in done.stdout


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
    assert time.monotonic() - began < exec_probe.ENDING_SECONDS - 1


def commands(bench: Bench, name: str) -> set[int]:
    """The host's pids of the test commands that run in a container."""
    inside = os.readlink(f"/proc/{bench.api.inspect(name)['State']['Pid']}/ns/pid")
    pids = set()
    for entry in os.listdir("/proc"):
        with suppress(OSError):
            here = entry.isdecimal() and os.readlink(f"/proc/{entry}/ns/pid") == inside
            if here and b"4321" in Path(f"/proc/{entry}/cmdline").read_bytes():
                pids.add(int(entry))
    return pids


TREE = ("/bin/sh", "-c", "sleep 4321 & setsid sleep 4321 & sleep 4321; true")
"""A command with children, one of them in a session of its own."""


def killed(bench: Bench, target: ExecTarget, name: str) -> None:
    """Start a probe and kill it as the probe engine does at the time-out."""
    first = subprocess.Popen(target.argv, env=dict(target.env), stdout=subprocess.DEVNULL)
    wait_until(lambda: len(commands(bench, name)) >= 4, "the command runs with its children")
    first.kill()
    first.wait()


def test_a_probe_that_timed_out_leaves_no_process(engine: Bench) -> None:
    fact = engine.run()
    killed(engine, engine.runtime.exec_target(fact.name, TREE), fact.name)
    wait_until(lambda: not commands(engine, fact.name), "it is killed with its children")
    assert engine.state(fact.name) is ContainerState.RUNNING
    assert run(engine.runtime.exec_target(fact.name, ("/bin/true",))).returncode == 0


def test_a_probe_that_timed_out_does_not_delay_another(engine: Bench) -> None:
    fact = engine.run()
    slow = [engine.runtime.exec_target(fact.name, ("/bin/sleep", f"4321{number}")) for number in range(6)]
    running = [subprocess.Popen(target.argv, env=dict(target.env), stdout=subprocess.DEVNULL) for target in slow]
    wait_until(lambda: len(commands(engine, fact.name)) == len(slow), "all commands run")
    for process in running:
        process.kill()
        process.wait()
    done = run(engine.runtime.exec_target(fact.name, ("/bin/echo", "quick")))
    assert (done.returncode, done.stdout) == (0, "quick\n")
    wait_until(lambda: not commands(engine, fact.name), "all commands are killed")


def test_a_probe_has_the_user_and_capabilities_of_its_container(engine: Bench) -> None:
    fact = engine.run(template(container("web", user="1234:1234", cap_drop=("ALL",))))
    look = (
        "/bin/sh",
        "-c",
        "id -u; while read -r word rest; do [ $word = CapBnd: ] && echo $rest; done < /proc/self/status; true",
    )
    done = run(engine.runtime.exec_target(fact.name, look))
    assert done.stdout.split() == ["1234", "0000000000000000"]


@pytest.mark.server("dockerd")
def test_the_next_run_of_a_probe_kills_a_command_without_a_watch(bench: Bench) -> None:
    fact = bench.run()
    other = bench.make()
    target = other.exec_target(fact.name, TREE)
    other.close()
    killed(bench, target, fact.name)
    left = commands(bench, fact.name)
    assert left, "the engine lets it continue"
    exec_probe.end_leftovers(bench.socket, fact.id, list(TREE))
    wait_until(lambda: not left & commands(bench, fact.name), "it is killed with its children")


@pytest.mark.server("dockerd")
def test_a_command_of_an_operator_in_a_container_is_left_alone(bench: Bench) -> None:
    fact = bench.run(template(container()))
    argv = ["/bin/sleep", "4321"]
    made = bench.api.link.post(f"/containers/{fact.name}/exec", fact.name, {"Cmd": argv})
    bench.api.link.post(f"/exec/{made['Id']}/start", fact.name, {"Detach": True})
    wait_until(lambda: bool(commands(bench, fact.name)), "the operator's command runs")
    with pytest.raises(exec_probe.NoAnswer, match="cannot be killed"):
        exec_probe.end_leftovers(bench.socket, fact.id, argv)
    assert commands(bench, fact.name)
