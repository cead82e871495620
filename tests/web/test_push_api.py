"""The push protocol on real sockets: every status and its reason."""

import asyncio
import os
from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from reconciler.core.model.push_fact import PushEvent
from reconciler.push import tokens
from reconciler.shell.pushing.credentials import KEY, SOCKET
from tests.web.push_world import Client, PushWorld, desired_of


@pytest.fixture
def world(tmp_path: Path) -> PushWorld:
    return PushWorld(tmp_path)


async def test_a_signed_push_is_accepted_over_tcp_and_over_the_socket(world):
    world.create()
    await world.look()
    async with world.listening():
        sender = world.sender()
        assert await sender.push("startup", tcp=True) == (200, {"message": "accepted", "remembered": True})
        assert await sender.push("ready", tcp=False) == (200, {"message": "accepted", "remembered": True})
        fact = world.pushing.facts()[world.generation()]
        assert (fact.event, fact.boot, fact.seq, fact.inflight) == (PushEvent.READY, "boot-1", 2, None)


async def test_the_bare_token_is_accepted_over_the_socket_and_not_over_tcp(world):
    world.create()
    await world.look()
    async with world.listening():
        sender = world.sender()
        assert (await sender.push(tcp=False, how="bearer"))[0] == 200
        assert (await sender.push(tcp=True, how="bearer"))[0] == 401


@pytest.mark.parametrize("tcp", [True, False])
async def test_invalid_credentials_are_refused_without_details(world, tcp):
    world.create()
    await world.look()
    async with world.listening():
        sender, other = world.sender(0), world.sender(1)
        answers = [
            await sender.push(tcp=tcp, how="none"),
            await Client(world, sender.generation, "0" * 64).push(tcp=tcp),
            await Client(world, sender.generation, other.token).push(tcp=tcp),
            await sender.push(tcp=tcp, generation=other.generation),
            await sender.push(tcp=tcp, generation=None),
            await sender.push(tcp=tcp, generation=5),
            await sender.send(b"{", tcp=tcp),
            await sender.send(b'{"event": "ready"}', tcp=tcp, signature="sha256=" + "é" * 64),
        ]
        assert answers == [(401, {"message": "refused"})] * len(answers)
        assert world.pushing.facts() == {}


async def test_a_body_changed_in_transit_does_not_match_its_signature(world):
    world.create()
    await world.look()
    async with world.listening():
        sender = world.sender()
        signature = tokens.sign(sender.token, b'{"event": "not-ready"}')
        assert (await sender.send(b'{"event": "ready"}', signature=signature))[0] == 401


async def test_the_refusal_of_an_invalid_message_names_the_error(world):
    world.create()
    await world.look()
    async with world.listening():
        sender = world.sender()
        status, answer = await sender.push("running")
        assert (status, answer["message"]) == (400, "event must be one of startup, ready, not-ready, draining")
        for members in (
            {"event": None}, {"event": ["ready"]}, {"boot": None}, {"boot": ""}, {"boot": "x" * 129}, {"boot": "a b"},
            {"seq": None}, {"seq": -1}, {"seq": True}, {"seq": 1.5}, {"seq": "1"}, {"seq": 2**63},
            {"inflight": -1}, {"inflight": "3"},
        ):  # fmt: skip
            world.clock.advance(SECOND)  # stay within the rate limit
            assert (await sender.push(**members))[0] == 400, members


async def test_unknown_members_are_ignored(world):
    world.create()
    await world.look()
    async with world.listening():
        assert (await world.sender().push(ts=1_700_000_000, mood="fine"))[0] == 200


async def test_a_replay_is_refused_and_refreshes_nothing(world):
    world.create()
    await world.look()
    async with world.listening():
        sender = world.sender()
        await sender.push("ready", seq=5)
        before = world.pushing.facts()
        world.clock.advance(5 * SECOND)
        for seq in (5, 4):
            assert (await sender.push("ready", seq=seq))[0] == 409
        assert world.pushing.facts() == before


async def test_after_draining_only_draining_is_accepted(world):
    world.create()
    await world.look()
    async with world.listening():
        sender = world.sender()
        await sender.push("draining", inflight=2)
        status, answer = await sender.push("ready")
        assert (status, answer["message"]) == (409, "draining is final for this generation")
        assert (await sender.push("draining", inflight=0))[0] == 200
        fact = world.pushing.facts()[world.generation()]
        assert (fact.event, fact.inflight) == (PushEvent.DRAINING, 0)


async def test_a_push_before_the_first_look_is_accepted_with_that_look(world):
    await world.look()
    async with world.listening(ticking=False):
        sender = world.sender()
        assert (await sender.push("startup"))[0] == 202
        assert (await sender.push("ready"))[0] == 202
        assert world.pushing.facts() == {}
        world.create()
        await world.look()
        world.tick()
        assert world.pushing.facts()[world.generation()].event is PushEvent.READY
        assert (await sender.push("ready"))[0] == 200


async def test_after_ten_seconds_a_sender_without_a_container_is_unknown(world):
    await world.look()
    async with world.listening(ticking=False):
        sender = world.sender()
        assert (await sender.push())[0] == 202
        world.clock.advance(10 * SECOND)
        assert (await sender.push())[0] == 404
        world.create()
        await world.look()
        world.tick()
        assert world.pushing.facts() == {}, "a push that waited too long is dropped"


async def test_a_push_of_a_stopped_container_creates_no_state(world):
    world.create()
    world.runtime.exit(world.name())
    await world.look()
    async with world.listening(ticking=False):
        sender = world.sender()
        assert (await sender.push())[0] == 202
        world.clock.advance(10 * SECOND)
        assert (await sender.push())[0] == 410
        assert world.pushing.facts() == {}


async def test_a_restart_refuses_the_old_generation_and_accepts_the_new_one(world):
    world.create()
    await world.look()
    async with world.listening(ticking=False):
        sender = world.sender()
        await world.push_and_store(sender.push("draining"))
        world.clock.advance(60 * SECOND)
        world.restart()
        await world.look()
        assert (await sender.push("draining"))[0] == 410
        sender.boot = "boot-2"
        assert (await world.push_and_store(sender.push("ready", seq=1)))[0] == 200
        assert {key: fact.event for key, fact in world.pushing.facts().items()} == {world.generation(): PushEvent.READY}


async def test_a_push_before_the_look_at_the_restart_is_not_lost(world):
    world.create()
    await world.look()
    world.clock.advance(60 * SECOND)
    world.restart()
    async with world.listening(ticking=False):
        sender = world.sender()
        assert (await sender.push("ready"))[0] == 200
        await world.look()
        world.tick()
        assert set(world.pushing.facts()) == {world.generation()}
        assert (await sender.push("ready"))[0] == 200


async def test_credentials_of_an_earlier_container_of_the_name_are_refused(world):
    world.create()
    await world.look()
    async with world.listening(ticking=False):
        old = world.sender()
        await world.push_and_store(old.push("ready"))
        world.runtime.exit(world.name())
        world.runtime.vanish(world.name())
        world.clock.advance(SECOND)
        world.create()
        await world.look()
        world.tick()
        assert (await old.push("ready", boot="boot-9"))[0] == 410
        assert (await world.push_and_store(world.sender().push("ready")))[0] == 200
        assert (await old.push("ready", boot="boot-10"))[0] == 410


async def test_pushes_of_a_workload_without_push_are_refused(world):
    world.create()
    world.desired = desired_of(2, world.listener, None)
    world.begin()
    await world.look()
    async with world.listening(ticking=False):
        assert (await world.sender().push())[0] == 202
        assert world.pushing.facts() == {}


async def test_a_body_that_is_too_long_is_refused_before_it_is_read(world):
    async with world.listening():
        sender = world.sender()
        assert (await sender.send(b"x" * 4097))[0] == 413


async def test_other_paths_and_methods_are_refused(world):
    async with world.listening():
        sender = world.sender()
        assert (await sender.raw(b"GET /v1/push HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))[0] == 405
        assert (await sender.raw(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))[
            0
        ] == 404
        assert (await sender.raw(b"nonsense\r\n\r\n"))[0] == 400


async def test_the_rate_limit_of_one_container_does_not_affect_others(world):
    world.create(0)
    world.create(1)
    await world.look()
    async with world.listening():
        flood, quiet = world.sender(0), world.sender(1)
        answers = await asyncio.gather(*(flood.push("ready") for _ in range(60)))
        statuses = [status for status, _ in answers]
        assert statuses.count(429) == 40
        assert (await quiet.push("ready"))[0] == 200
        world.clock.advance(SECOND)
        assert (await flood.push("ready"))[0] == 200


async def test_a_peer_cannot_keep_others_out_by_holding_connections(world):
    world.create()
    await world.look()
    path = str(world.credentials.directory / SOCKET)
    async with world.listening():
        held = [await asyncio.open_unix_connection(path) for _ in range(300)]
        try:
            closed = [await _closed(reader) for reader, _ in held].count(True)
            assert closed == 300 - 256, "the limit of one user of the host"
            assert (await world.sender().push(tcp=True))[0] == 200, "senders over TCP are other peers"
        finally:
            for _, writer in held:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for _, writer in held), return_exceptions=True)


async def _closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server has closed the connection."""
    try:
        async with asyncio.timeout(0.002):
            return await reader.read(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


async def test_a_new_state_wakes_the_loop_at_once_and_a_heartbeat_does_not(world):
    world.create()
    await world.look()
    async with world.listening(ticking=False):
        sender = world.sender()
        world.wake.take()
        first = asyncio.create_task(sender.push("ready"))
        await asyncio.wait_for(world.wake.event.wait(), 60)
        await world.look()
        world.tick()
        await first
        world.wake.take()
        world.clock.advance(SECOND)
        await sender.push("ready")
        assert not world.wake.event.is_set()


async def test_the_answer_to_a_new_state_waits_until_it_is_stored(world):
    world.create()
    await world.look()
    async with world.listening(ticking=False):
        world.wake.take()
        answer = asyncio.create_task(world.sender().push("draining"))
        await asyncio.wait_for(world.wake.event.wait(), 60)
        assert not answer.done()
        world.tick()
        assert await answer == (200, {"message": "accepted", "remembered": True})
        assert [row.event for row in world.ledger.pushes.values()] == ["draining"]


def test_the_key_is_private(world):
    world.credentials.token("x")
    assert os.stat(world.state / KEY).st_mode & 0o777 == 0o600


async def test_the_socket_is_open_to_every_user_of_a_container(world):
    async with world.listening():
        assert os.stat(world.credentials.directory).st_mode & 0o777 == 0o755
        assert os.stat(world.credentials.directory / SOCKET).st_mode & 0o777 == 0o666


async def test_a_state_directory_longer_than_a_socket_path_works(tmp_path):
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    world = PushWorld(deep)
    world.create()
    await world.look()
    async with world.listening():
        assert (await world.sender().push())[0] == 200


async def test_every_answer_is_counted_with_its_event(world):
    world.create()
    await world.look()
    answers: list[tuple[str, int]] = []
    async with world.listening(answered=lambda event, status: answers.append((event, status))):
        sender = world.sender()
        await sender.push("ready")
        await sender.push("a text", tcp=True)
        await sender.push("ready", how="none")
    assert answers == [("ready", 200), ("", 400), ("", 401)]
