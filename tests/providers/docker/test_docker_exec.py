"""Exec probes inside containers: the helper ends as the command ended, and leaves nothing behind for long."""

import signal
import subprocess
from pathlib import Path

import pytest
from docker_bench import Bench
from docker_engine import container, template

from providers.errors import Rejected
from providers.runtime import docker_exec
from providers.spi import ExecTarget
from providers.testing.checks import wait_until

pytestmark = pytest.mark.server("dockerd")


def run(target: ExecTarget) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        target.argv, env=dict(target.env), cwd=target.cwd, capture_output=True, text=True, timeout=20, check=False
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
def test_the_helper_ends_as_the_command_ended(bench: Bench, argv: tuple[str, ...], code: int, output: str) -> None:
    fact = bench.run()
    done = run(bench.runtime.exec_target(fact.name, argv))
    assert done.returncode == code
    assert sorted(done.stdout.splitlines()) == sorted(output.splitlines())


def test_a_program_that_is_not_there_is_a_failure_of_the_container(bench: Bench) -> None:
    fact = bench.run()
    done = run(bench.runtime.exec_target(fact.name, ("/bin/none",)))
    assert done.returncode in (126, 127)
    assert "/bin/none" in done.stdout


def test_an_empty_command_is_refused(bench: Bench) -> None:
    fact = bench.create()
    with pytest.raises(Rejected, match="give at least the program"):
        bench.runtime.exec_target(fact.name, ())


def test_an_engine_that_cannot_be_asked_gives_no_verdict(bench: Bench, tmp_path: Path) -> None:
    fact = bench.run()
    target = bench.runtime.exec_target(fact.name, ("/bin/true",))
    elsewhere = tuple(str(tmp_path / "none.sock") if one == bench.socket else one for one in target.argv)
    done = run(ExecTarget(elsewhere, target.env, target.cwd))
    assert done.returncode == -signal.SIGUSR2
    assert "cannot ask the engine" in done.stdout


def test_a_container_that_does_not_run_gives_no_verdict(bench: Bench) -> None:
    fact = bench.create()
    assert run(bench.runtime.exec_target(fact.name, ("/bin/true",))).returncode == -signal.SIGUSR2


def commands(bench: Bench, name: str) -> set[int]:
    """The host's process ids of what runs in a container beside its first process."""
    top = bench.api.link.get(f"/containers/{name}/top", name, ps_args="-eo pid,args")
    return {int(row[0]) for row in top["Processes"] if "4321" in row[1]}


def test_a_probe_that_was_killed_is_ended_by_its_next_run(bench: Bench) -> None:
    fact = bench.run()
    argv = ("/bin/sh", "-c", "sleep 4321 & sleep 4321; true")
    target = bench.runtime.exec_target(fact.name, argv)
    first = subprocess.Popen(target.argv, env=dict(target.env), stdout=subprocess.DEVNULL)
    wait_until(lambda: len(commands(bench, fact.name)) >= 3, "the command runs with its children")
    first.kill()
    first.wait()
    left = commands(bench, fact.name)
    assert left, "the engine lets it go on"
    docker_exec.end_leftovers(bench.socket, fact.id, list(argv))
    wait_until(lambda: not left & commands(bench, fact.name), "it is ended with its children")


def test_a_person_in_a_container_is_left_alone(bench: Bench) -> None:
    fact = bench.run(template(container()))
    argv = ["/bin/sleep", "4321"]
    made = bench.api.link.post(f"/containers/{fact.name}/exec", fact.name, {"Cmd": argv})
    bench.api.link.post(f"/exec/{made['Id']}/start", fact.name, {"Detach": True})
    wait_until(lambda: bool(commands(bench, fact.name)), "a person's command runs")
    with pytest.raises(docker_exec.CannotAsk, match="cannot be ended"):
        docker_exec.end_leftovers(bench.socket, fact.id, argv)
    assert commands(bench, fact.name)
