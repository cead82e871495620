"""Secrets of containers are looked at beside the loop: what is missing is known, what changes is noticed, and what does not costs a stat."""

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import SECOND, Desired
from manifests.values.pod import Engine
from manifests.values.secret_sources import NO_PROGRAMS, Decryption, SecretCommand, SecretPrograms, SecretSource
from providers.lib.secrets import define
from reconciler.core.model.instant import FOREVER
from reconciler.shell.looks.facts import Looks
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.providers import Providers
from reconciler.shell.secret_watch import CHECK, SecretWatch
from tests.inline_runner import InlineRunner
from tests.providers.lib.encrypted import age, identity
from tests.sim.clock import VirtualClock
from tests.sim.manifest import Shop


@pytest.fixture(autouse=True)
def defined() -> Iterator[None]:
    yield
    define(NO_PROGRAMS, "")


class World:
    def __init__(self, programs: SecretPrograms = NO_PROGRAMS, root: str = "") -> None:
        self.clock, self.wake = VirtualClock(), Wake()
        runner = InlineRunner()
        self.watch = SecretWatch(runner, self.clock, self.wake, Looks(Providers(), runner, self.clock, self.wake))
        self.programs, self.root = programs, root

    def desired(self, *sources: SecretSource) -> Desired:
        desired = Shop().desired()
        (workload,) = desired.workloads
        engine = Engine(secret_env=tuple((f"V{number}", source) for number, source in enumerate(sources)))
        main = replace(workload.template.container, engine=engine)
        workload = replace(workload, template=replace(workload.template, container=main))
        instance = replace(desired.instance, secret_programs=self.programs)
        return replace(desired, workloads=(workload,), instance=instance, root=self.root)

    async def look(self, count: int = 1) -> bool:
        """Let this many looks become due, and whether one of them had news."""
        for _ in range(count):
            self.clock.advance(CHECK)
            self.watch.start(self.clock.now().steady)
            for _ in range(10):  # an inline call takes a few turns of the event loop
                await asyncio.sleep(0)
        return bool(self.wake.take())


def put(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


async def test_manifests_without_secrets_cost_nothing():
    world = World()
    await world.watch.follow(world.desired())
    assert world.watch.due == FOREVER
    assert not world.watch.problems


async def test_a_secret_that_is_set_later_is_noticed_at_the_next_look(tmp_path):
    world, file = World(), tmp_path / "secret"
    source = SecretSource(file=str(file))
    await world.watch.follow(world.desired(source))
    assert "does not exist" in world.watch.problems[source].cause
    assert world.watch.problems[source].until is None
    world.wake.take()
    assert not await world.look(3), "nothing changed, so nothing wakes the loop"
    put(file, "(sensitive value)")
    assert await world.look()
    assert "placeholder" in world.watch.problems[source].cause
    put(file, "one")
    assert await world.look()
    assert not world.watch.problems
    assert not await world.look(3)
    put(file, "two")
    assert await world.look(), "a look at the containers compares them with the new value"
    file.unlink()
    assert await world.look()
    assert source in world.watch.problems


async def test_a_command_runs_once_in_its_time_and_a_failure_names_the_next_try(tmp_path):
    program = tmp_path / "get"
    program.write_text(f"#!/bin/sh\necho . >> {tmp_path}/runs\ncat {tmp_path}/value\n")
    program.chmod(0o755)
    world = World(SecretPrograms((SecretCommand("db", (str(program),), 5 * SECOND, 3600 * SECOND),)))
    source = SecretSource(command="db")
    await world.watch.follow(world.desired(source))
    problem = world.watch.problems[source]
    assert "exit code 1" in problem.cause
    assert problem.until is not None
    assert problem.until > world.clock.now().steady
    put(tmp_path / "value", "good")
    define(SecretPrograms(), "")
    world = World(SecretPrograms((SecretCommand("db", (str(program),), 6 * SECOND, 3600 * SECOND),)))
    await world.watch.follow(world.desired(source))
    assert not world.watch.problems
    world.wake.take()
    assert not await world.look(20)
    assert (tmp_path / "runs").read_text() == ".\n.\n"


@pytest.mark.server("age")
async def test_a_file_that_did_not_change_is_not_decrypted_again(tmp_path, monkeypatch):
    real = shutil.which("age")
    wrapper = tmp_path / "bin/age"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho . >> {tmp_path}/runs\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    recipient = identity(tmp_path / "key.txt")
    age(recipient, "value", tmp_path / "token.age")
    monkeypatch.setenv("PATH", f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}")
    settings = Decryption((("main", str(tmp_path / "key.txt")),))
    world = World(SecretPrograms((), settings), str(tmp_path))
    source = SecretSource(age_file="token.age")
    await world.watch.follow(world.desired(source))
    assert not world.watch.problems
    while (tmp_path / "token.age").stat().st_ctime_ns + 2.1 * SECOND > time.time_ns():  # noqa: ASYNC110  (the kernel's clock)
        await asyncio.sleep(0.1)
    await world.look()
    before = (tmp_path / "runs").read_text()
    assert not await world.look(20)
    assert (tmp_path / "runs").read_text() == before
    age(recipient, "other", tmp_path / "token.age")
    assert await world.look()


async def test_variables_of_another_process_are_left_to_it(monkeypatch):
    monkeypatch.delenv("ONLY_THE_DAEMON_HAS_IT", raising=False)
    world, source = World(), SecretSource(env="ONLY_THE_DAEMON_HAS_IT")
    world.watch.other_environment = True
    await world.watch.follow(world.desired(source))
    assert not world.watch.problems
    mine = World()
    await mine.watch.follow(mine.desired(source))
    assert "is not set" in mine.watch.problems[source].cause


async def test_an_untrusted_plan_resolves_nothing(tmp_path):
    world = World()
    world.watch.resolves_nothing = True
    await world.watch.follow(world.desired(SecretSource(file=str(tmp_path / "none"))))
    assert not world.watch.problems
