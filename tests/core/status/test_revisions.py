"""What people are shown of revisions, at every stage of a switch, in virtual time."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import Rollout, Strategy
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.revisions import revision_lines
from reconciler.core.status.objects import rows
from tests.sim.manifest import Shop, Spec, shop
from tests.sim.world import World

TIMES = Rollout(delay=120 * SECOND)


def staged(image: str, **times) -> Shop:
    return shop(image=image, strategy=Strategy.ACTIVATE, rollout=replace(TIMES, **times))


@pytest.fixture
def world():
    here = World(staged("v1"))
    here.run(90 * SECOND)
    yield here
    here.close()


def told(world: World) -> dict[str, dict]:
    """The rows of the last decision, by the image."""
    names = {Spec(image=image).revision: image for image in ("v1", "v2", "v3")}
    last = world.tape.last
    found = rows(last.status, last.holds, world.clock.now())["revisions"]
    return {names[one["revision"]]: one for one in found}


def lines(world: World) -> str:
    found = sorted(told(world).values(), key=lambda one: -one["number"])
    return "\n".join(revision_lines(found, Paint(False), world.clock.now().wall)) + "\n"


def test_a_revision_that_serves(world, golden):
    [one] = told(world).values()
    assert (one["status"], one["resource_health"], one["application_health"]) == ("active", "healthy", "healthy")
    assert (one["declared"], one["next"], one["why"], one["number"]) == (True, None, None, 1)
    assert len(one["addresses"]) == len(one["containers"]) == 3
    now = world.clock.now().wall
    assert one["started_wall"] <= one["last_check_wall"] <= now
    assert one["due_wall"] is None
    assert one["created_wall"] <= one["started_wall"] < one["activated_wall"] < now
    golden("cli/get-revisions-active.txt", lines(world))


def test_one_that_waits_is_told_with_its_time_and_the_one_that_is_kept_with_its_end(world, golden):
    world.push(staged("v2"))
    world.run(40 * SECOND)
    new = told(world)["v2"]
    assert (new["status"], new["resource_health"], new["application_health"]) == ("scheduled", "healthy", "unknown")
    assert new["last_check_wall"] is None
    assert new["next"] == "takes over"
    assert new["due_wall"] == new["next_wall"] == new["created_wall"] + 120 * SECOND
    golden("cli/get-revisions-waiting.txt", lines(world))
    world.run(180 * SECOND)
    found = told(world)
    old, new = found["v1"], found["v2"]
    assert (new["status"], new["next"]) == ("active", "has stood the test")
    assert new["next_wall"] == new["activated_wall"] + 300 * SECOND
    assert (old["status"], old["resource_health"], old["application_health"]) == ("superseded", "stopped", "none")
    assert (old["addresses"], len(old["containers"])) == ([], 3)
    assert (old["next"], old["next_wall"]) == ("is removed", old["ended_wall"] + 600 * SECOND)
    golden("cli/get-revisions-kept.txt", lines(world))


def test_nothing_to_show_is_said():
    assert revision_lines((), Paint(False), 0) == ["no revisions"]
