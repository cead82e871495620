"""Digests of references change with what the references resolve to, and say nothing about it."""

from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import Desired, Provider, Role
from manifests.values.pod import Engine
from manifests.values.secret_sources import SecretSource
from reconciler.core.model.instant import FOREVER
from reconciler.shell.apply.references import REFRESH, References
from tests.inline_runner import InlineRunner
from tests.sim.clock import VirtualClock
from tests.sim.manifest import Shop

SECRET = "correct horse"


class World:
    """A provider with the key in a file, and a workload with a secret in its environment."""

    def __init__(self, root: Path) -> None:
        self.file = root / "key"
        self.write(SECRET)
        settings = {"url": "http://a", "login": [{"password": {"file": str(self.file), "env": None}}]}
        provider = Provider("provider/names", "names", "powerdns", Role.DNS, settings)
        desired = Shop().desired()
        (workload,) = desired.workloads
        engine = Engine(secret_env=(("PASSWORD", SecretSource(env="RECONCILER_TEST_SECRET")),))
        main = replace(workload.template.container, engine=engine)
        workload = replace(workload, template=replace(workload.template, container=main))
        self.desired: Desired = replace(desired, providers=(provider,), workloads=(workload,))
        self.clock = VirtualClock()
        self.references = self.made()

    def made(self) -> References:
        return References(InlineRunner(), self.clock)

    def write(self, text: str) -> None:
        self.file.write_text(text)
        self.file.chmod(0o600)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.delenv("RECONCILER_TEST_SECRET", raising=False)
    return World(tmp_path)


async def test_a_secret_that_changes_is_noticed_while_a_step_fails(world: World) -> None:
    assert await world.references.refresh(world.desired)
    before = dict(world.references.digests)
    assert set(before) == {"provider/names", "workload/web"}
    world.write("battery staple")
    assert not await world.references.refresh(world.desired)
    assert world.references.due_at(failing=True) == world.clock.now().steady + REFRESH
    world.clock.advance(REFRESH)
    assert await world.references.refresh(world.desired)
    assert world.references.digests["provider/names"] != before["provider/names"]
    assert world.references.digests["workload/web"] == before["workload/web"]


async def test_other_manifests_are_resolved_at_once(world: World) -> None:
    await world.references.refresh(world.desired)
    await world.references.refresh(replace(world.desired, workloads=()))
    assert set(world.references.digests) == {"provider/names"}
    assert world.references.due_at(failing=False) == FOREVER


async def test_a_variable_that_is_set_later_makes_another_digest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.references.refresh(world.desired)
    before = world.references.digests["workload/web"]
    monkeypatch.setenv("RECONCILER_TEST_SECRET", "x")
    world.clock.advance(REFRESH)
    await world.references.refresh(world.desired)
    assert world.references.digests["workload/web"] != before


async def test_the_digest_of_another_process_is_another_one(world: World) -> None:
    await world.references.refresh(world.desired)
    other = world.made()
    await other.refresh(world.desired)
    assert other.digests.keys() == world.references.digests.keys()
    assert not set(other.digests.values()) & set(world.references.digests.values())
    assert SECRET not in repr(world.references.digests)
