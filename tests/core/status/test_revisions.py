"""Rows and tables of revisions at every stage of an activation, in virtual time."""

from dataclasses import replace

import pytest

from manifests.values.desired import SECOND
from manifests.values.rollouts import Rollout, Strategy
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.revisions import revision_line, revision_lines
from reconciler.core.status.objects import rows
from tests.sim.manifest import Shop, Spec, shop
from tests.sim.world import World

TIMES = Rollout(delay=120 * SECOND)


def staged(image: str, **times) -> Shop:
    return shop(image=image, strategy=Strategy.ACTIVATE, rollout=replace(TIMES, **times))


@pytest.fixture
def world():
    world = World(staged("v1"))
    world.run(90 * SECOND)
    yield world
    world.close()


def rows_by_image(world: World) -> dict[str, dict]:
    """The rows of the last decision."""
    images = {Spec(image=image).revision: image for image in ("v1", "v2", "v3")}
    last = world.tape.last
    revisions = rows(last.status, last.holds, world.clock.now())["revisions"]
    return {images[row["revision"]]: row for row in revisions}


def lines(world: World) -> str:
    revisions = sorted(rows_by_image(world).values(), key=lambda row: -row["number"])
    return "\n".join(revision_lines(revisions, Paint(False), world.clock.now().wall)) + "\n"


def test_the_row_of_the_active_revision(world, golden):
    [row] = rows_by_image(world).values()
    assert (row["status"], row["resource_health"], row["application_health"]) == ("active", "healthy", "healthy")
    assert (row["declared"], row["next"], row["why"], row["number"]) == (True, None, None, 1)
    assert len(row["addresses"]) == len(row["containers"]) == 3
    now = world.clock.now().wall
    assert row["started_wall"] <= row["last_check_wall"] <= now
    assert row["due_wall"] is None
    assert row["created_wall"] <= row["started_wall"] < row["activated_wall"] < now
    golden("cli/get-revisions-active.txt", lines(world))


def test_rows_show_when_a_revision_takes_over_and_when_the_old_one_goes(world, golden):
    world.push(staged("v2"))
    world.run(40 * SECOND)
    new = rows_by_image(world)["v2"]
    assert (new["status"], new["resource_health"], new["application_health"]) == ("scheduled", "healthy", "unknown")
    assert new["last_check_wall"] is None
    assert new["next"] == "takes over"
    assert new["due_wall"] == new["next_wall"] == new["created_wall"] + 120 * SECOND
    golden("cli/get-revisions-waiting.txt", lines(world))
    world.run(180 * SECOND)
    revisions = rows_by_image(world)
    old, new = revisions["v1"], revisions["v2"]
    assert (new["status"], new["next"]) == ("active", "automatic rollback ends")
    assert new["next_wall"] == new["activated_wall"] + 300 * SECOND
    assert (old["status"], old["resource_health"], old["application_health"]) == ("superseded", "stopped", "none")
    assert (old["addresses"], len(old["containers"])) == ([], 3)
    assert (old["next"], old["next_wall"]) == ("is removed", old["ended_wall"] + 600 * SECOND)
    golden("cli/get-revisions-kept.txt", lines(world))


def test_without_revisions_the_table_is_one_line():
    assert revision_lines((), Paint(False), 0) == ["no revisions"]


def test_explain_says_what_a_waiting_and_a_failed_revision_wait_for(world):
    world.apps.mute |= {f"shop-web-{Spec(image='v2').revision[:8]}-{ordinal}" for ordinal in range(3)}
    world.push(staged("v2", pending_grace=60 * SECOND))
    world.run(40 * SECOND)
    new = rows_by_image(world)["v2"]
    said = revision_line(new, world.clock.now().wall)
    assert said.startswith(f"revision 2 ({new['revision'][:8]}, declared): scheduled; takes over in ")
    world.run(300 * SECOND)
    new = rows_by_image(world)["v2"]
    said = revision_line(new, world.clock.now().wall)
    assert "expired; waits for a change of the template, or of its activation time" in said
    assert "was not verified within 60s" in said
