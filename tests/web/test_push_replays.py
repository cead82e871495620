"""Replays and challenges over the real listener, and the shipped client with a clock that is wrong by months."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from reconciler.core.health.pushes import BOOTS_KEPT
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.ledger_codec import from_rows, to_rows
from reconciler.core.model.push_fact import PushEvent
from reconciler.shell.pushing.credentials import url
from reconciler.shell.pushing.pushes import CHALLENGE_FOR
from tests.web.push_world import Client, PushWorld

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def world(tmp_path: Path) -> PushWorld:
    world = PushWorld(tmp_path)
    for ordinal in range(2):
        world.create(ordinal)
    await world.look()
    return world


def body(sender: Client, boot: str, event: str = "ready", **members: object) -> bytes:
    sender.seq += 1
    sender.world.clock.advance(SECOND // 2)
    now = sender.world.clock.now().wall
    message = {"event": event, "generation": sender.generation, "boot": boot, "seq": sender.seq, "time": now, **members}
    return json.dumps(message).encode()


async def test_a_captured_ready_is_refused_after_more_boots_than_are_kept(world):
    sender = world.sender()
    async with world.listening():
        captured = body(sender, "first")
        assert (await sender.send(captured))[0] == 200
        for number in range(BOOTS_KEPT + 8):
            assert (await sender.send(body(sender, f"boot-{number}", "not-ready")))[0] == 200
        assert (await sender.send(captured))[0] == 409
        assert world.pushing.facts()[world.generation()].event is PushEvent.NOT_READY


async def test_a_challenge_admits_one_message_once(world):
    sender = world.sender()
    old = world.clock.now().wall - 7200 * SECOND
    async with world.listening():
        refused = body(sender, "a", time=old)
        status, answer = await sender.send(refused)
        assert (status, len(answer["challenge"])) == (409, 32)
        assert "s behind this host's" in answer["message"] or "is not above" in answer["message"]
        assert (await sender.send(refused))[1]["challenge"] == answer["challenge"], "a replay takes nothing away"
        proven = body(sender, "a", time=old, challenge=answer["challenge"])
        assert (await sender.send(proven))[0] == 200
        assert (await sender.send(body(sender, "b")))[0] == 200
        status, again = await sender.send(proven)
        assert status == 409
        assert again.get("challenge") != answer["challenge"]


async def test_the_challenge_of_another_container_or_an_old_one_is_refused(world):
    first, second = world.sender(0), world.sender(1)
    old = world.clock.now().wall - 7200 * SECOND
    async with world.listening():
        challenge = (await first.send(body(first, "a", time=old)))[1]["challenge"]
        assert (await second.send(body(second, "a", challenge=challenge)))[0] == 409
        world.clock.advance(2 * CHALLENGE_FOR)
        status, answer = await first.send(body(first, "a", challenge=challenge))
        assert status == 409
        assert "too old" in answer["message"]
        assert (await first.send(body(first, "a", challenge=answer["challenge"])))[0] == 200


async def test_challenges_are_forgotten(world):
    sender = world.sender()
    async with world.listening(ticking=False):
        await sender.send(body(sender, "a", time=1))
        assert len(world.pushing._challenges) == 1
        world.clock.advance(2 * CHALLENGE_FOR)
        world.tick()
        assert not world.pushing._challenges


@pytest.mark.parametrize("lost", [False, True], ids=["ledger kept", "ledger lost"])
async def test_after_a_restart_captured_messages_are_refused(world, lost):
    sender = world.sender()
    async with world.listening():
        captured = body(sender, "a")
        assert (await sender.send(captured))[0] == 200
        unsaved = body(sender, "a")
        assert (await sender.send(unsaved))[0] == 200
    world.ledger = Ledger() if lost else from_rows(to_rows(world.ledger))
    world.clock.advance(SECOND)
    world.begin()
    await world.look()
    async with world.listening():
        assert (await sender.send(captured))[0] == 409
        assert (await sender.send(unsaved))[0] == 409
        assert not world.pushing.facts()
        assert (await sender.send(body(sender, "a")))[0] == 200, "without a challenge"


@pytest.mark.parametrize(
    "member", [{"time": "now"}, {"time": -1}, {"time": True}, {"challenge": "x y"}, {"challenge": 7}]
)
async def test_an_invalid_time_or_challenge_is_named(world, member):
    sender = world.sender()
    async with world.listening():
        status, answer = await sender.send(body(sender, "a", **member))
        assert status == 400
        assert next(iter(member)) in answer["message"]


async def test_the_shipped_client_pushes_with_a_clock_that_is_wrong_by_months(world):
    """The world's clock is virtual, so the client's is far from it."""
    sender = world.sender()
    env = {
        "PATH": os.environ["PATH"],
        "RECONCILER_PUSH_GENERATION": sender.generation,
        "RECONCILER_PUSH_TOKEN": sender.token,
        "RECONCILER_PUSH_URL": url(*world.listener.tcp),
    }
    world.clock.step_wall(200 * 86_400 * SECOND)
    async with world.listening():
        for event in ("startup", "ready"):
            done = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "reconciler.push", event, cwd=ROOT, env=env, stderr=asyncio.subprocess.PIPE
            )
            _, errors = await asyncio.wait_for(done.communicate(), 60)
            assert (done.returncode, errors) == (0, b"")
        assert world.pushing.facts()[world.generation()].event is PushEvent.READY
