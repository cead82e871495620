"""kill -9 at every point while an image changes together with its probes and its port: what each revision declared is remembered."""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import pytest

from manifests.values.desired import SECOND
from providers.actions import CreateContainer
from tests.laws.examples import stride
from tests.laws.fields import Change
from tests.laws.serving import Serving
from tests.laws.test_single_field_changes import Version, programs, report
from tests.sim.documents import Document, Documents, shop
from tests.sim.world import World

STRIDE = stride(search=1, ci=2)
"""The distance between the points of a kill."""

PER_REVISION = ("specs", "proven", "accepted")
"""Sections of the ledger that hold what each revision declared. Earlier versions of the program had none of them."""


def renewed(before: Documents) -> Documents:
    """The next release: another image, which answers at another path and listens on another port."""
    after = before.copy()
    main = main_container(after)
    main["image"] = "shop/web:2"
    main["ports"][0]["containerPort"] = 9090
    for name in ("livenessProbe", "readinessProbe"):
        main[name]["httpGet"]["path"] = "/new"
    return after


def asked_elsewhere(before: Documents) -> Documents:
    """Another path to ask for, of the same revision."""
    after = before.copy()
    for name in ("livenessProbe", "readinessProbe"):
        main_container(after)[name]["httpGet"]["path"] = "/new"
    return after


def reached_elsewhere(before: Documents) -> Documents:
    """Another port of the service."""
    after = before.copy()
    after.of("Service")["spec"]["port"] = "admin"
    return after


def main_container(documents: Documents) -> Document:
    main: Document = documents.of("Workload")["spec"]["template"]["spec"]["containers"][0]
    return main


class Story(NamedTuple):
    """A change, and what the program in the containers makes of it."""

    change: Change
    version: Version


def story(before: Documents, after: Documents, **version: bool) -> Story:
    return Story(Change("a release", "", before, after), Version(**version))


STORIES = {
    "rolling": story(shop(), renewed(shop())),
    "activate": story(shop("activate"), renewed(shop("activate"))),
    "canary": story(shop("canary"), renewed(shop("canary"))),
    "a release that never answers": story(shop(), renewed(shop()), good=False),
    "right probe": story(shop(), asked_elsewhere(shop())),
    "wrong probe": story(shop(), asked_elsewhere(shop()), answers=False),
    "port of the service": story(shop(), reached_elsewhere(shop())),
}


@dataclass
class Result:
    """A world after its story."""

    watch: Serving
    end: tuple[object, ...]
    specs: list[str]
    points: int
    created: list[str]


def play(one: Story, kill: int = -1, cut: bool = False, forgotten: bool = False) -> Result:
    """Let a world serve, change it, and let it come to rest.

    Args:
        one: the change.
        kill: the process is killed at this point after the change, and another one goes on.
        cut: with the power: what was not synced is lost.
        forgotten: at the change another process starts, over the ledger of an earlier version.
    """
    world = World(one.change.before)
    try:
        watch = Serving(world, programs(one.change, one.version))
        world.run(60 * SECOND)
        watch.look("the change")
        assert all(container.serves for container in watch.before.values())
        watch.timeline.clear()
        watch.broken.clear()
        if forgotten:
            world.kill()
            kept = {key: row for key, row in world.memory.rows.items() if key[0] not in PER_REVISION}
            assert len(kept) < len(world.memory.rows)
            world.memory.rows = kept
        world.push(one.change.after)
        watch.follow(one.change.after.desired())
        before, writes = world.points, len(world.traffic.writes)
        world.kill_in, world.cut = kill, cut
        world.run(300 * SECOND)
        assert kill < 0 or world.lives == 2
        done = [write.action for write in world.traffic.writes[writes:] if write.effective]
        return Result(
            watch,
            (world.weights(), world.published(), world.running()),
            sorted(world.memory.ledger().specs),
            world.points - before,
            [action.name for action in done if isinstance(action, CreateContainer)],
        )
    finally:
        world.close()


@cache
def undisturbed(name: str) -> Result:
    return play(STORIES[name])


@pytest.mark.parametrize("cut", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("name", STORIES)
def test_a_kill_at_any_point_of_a_change_takes_nothing_that_serves(name: str, cut: bool) -> None:
    one, wanted = STORIES[name], undisturbed(name)
    assert not wanted.watch.broken, report(one.change, one.version, wanted.watch)
    for point in range(STRIDE // 2 if cut else 0, wanted.points, STRIDE):
        found = play(one, point, cut)
        seen = f"killed at point {point}{', with the power' if cut else ''}\n"
        assert not found.watch.broken, seen + report(one.change, one.version, found.watch)
        assert (found.end, found.specs) == (wanted.end, wanted.specs), seen + report(
            one.change, one.version, found.watch
        )
        assert sorted(found.created) == sorted(wanted.created), seen


NEW_REVISIONS = ("rolling", "activate", "canary", "a release that never answers")
"""Without a new revision nothing but the ledger says that a changed probe is a changed one."""


@pytest.mark.parametrize("name", NEW_REVISIONS)
def test_with_the_ledger_of_an_earlier_version_a_release_takes_nothing(name: str) -> None:
    one = STORIES[name]
    found = play(one, forgotten=True)
    assert not found.watch.broken, report(one.change, one.version, found.watch)
    assert found.end == undisturbed(name).end
