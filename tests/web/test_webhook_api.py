"""The webhook listener: real sockets, deliveries as forges send them, and what they ask of the loop.

The reports behind these tests: a webhook that answers success and does nothing (komodo#85, portainer#10630).
"""

import asyncio
import json
import socket

import pytest

from manifests.values.desired import WebhookListener
from manifests.values.pod import SecretSource
from reconciler.shell.webhook import KEPT, PERIOD
from reconciler.web.webhook import BODY_BYTES
from tests.free_ports import free_port
from tests.web.webhook_world import MAIN, SECRET, WebhookWorld, body_of, headers_of, signed

FORGES = ("github", "gitlab", "gitea", "forgejo")


@pytest.mark.parametrize("forge", FORGES)
async def test_a_push_of_the_ref_is_read_soon_and_its_id_is_in_the_event(tmp_path, forge):
    world = WebhookWorld(tmp_path)
    async with world.serving():
        status, answer = await world.push(forge)
        await asyncio.wait_for(world.read.wait(), 60)
    assert status == 202
    assert len(world.reads) == 1
    (event,) = world.events
    assert answer["request"] in event.message
    assert MAIN in event.message
    assert (event.kind, event.outcome) == ("webhook", "accepted")
    assert world.results == ["accepted"]


@pytest.mark.parametrize("forge", FORGES)
async def test_a_wrong_signature_is_refused_and_reads_nothing(tmp_path, forge):
    world = WebhookWorld(tmp_path)
    body = body_of()
    async with world.serving():
        answered = await world.deliver(body, headers_of(forge, body, secret="wrong"))
    assert answered == (401, {"message": "refused"})
    assert world.reads == []
    assert world.events == []
    assert world.results == ["refused"]


async def test_a_delivery_without_a_signature_is_refused(tmp_path):
    world = WebhookWorld(tmp_path)
    body = body_of()
    async with world.serving():
        assert (await world.deliver(body, {"X-GitHub-Event": "push"}))[0] == 401
        assert (await world.deliver(body, {"X-Hub-Signature": "sha1=" + "0" * 40}))[0] == 401
        assert (await world.deliver(body, {"Authorization": f"Bearer {SECRET}"}))[0] == 401
    assert world.reads == []


async def test_nothing_of_a_body_is_parsed_before_its_signature(tmp_path):
    world = WebhookWorld(tmp_path)
    async with world.serving():
        status, answer = await world.deliver(b"{", headers_of("github", b"["))
    assert (status, answer) == (401, {"message": "refused"})


async def test_another_ref_is_ignored_with_its_reason(tmp_path):
    world = WebhookWorld(tmp_path)
    async with world.serving():
        status, answer = await world.push(ref="refs/heads/dev")
    assert status == 202
    assert answer == {"message": "ignored: refs/heads/dev is not the ref of the source, main"}
    assert world.reads == []
    assert world.results == ["ignored"]


async def test_an_event_that_moves_no_ref_is_ignored(tmp_path):
    world = WebhookWorld(tmp_path)
    body = b'{"zen": "Keep it logically awesome."}'
    async with world.serving():
        answered = await world.deliver(body, headers_of("github", body) | {"X-GitHub-Event": "ping"})
    assert answered == (202, {"message": "ignored: the event ping moves no ref"})
    assert world.reads == []


async def test_a_delivery_that_is_sent_again_is_taken_once(tmp_path):
    world = WebhookWorld(tmp_path, period=0.0)
    async with world.serving():
        _, first = await world.push(delivery="same")
        await asyncio.wait_for(world.read.wait(), 60)
        status, again = await world.push(delivery="same")
        _, third = await world.push(delivery="other")
    assert status == 202
    assert again == {"message": "this delivery was accepted before", "request": first["request"]}
    assert third["request"] != first["request"]
    assert len(world.events) == 2
    assert world.results == ["accepted", "repeated", "accepted"]


async def test_known_deliveries_have_a_bound(tmp_path):
    world = WebhookWorld(tmp_path)
    for number in range(KEPT + 10):
        world.webhook.accept(f"d-{number}", "github", MAIN)
    assert world.webhook.known("d-9") == ""
    assert world.webhook.known("d-10") != ""
    world.webhook.close()


async def test_many_pushes_at_once_are_one_read_at_once_and_one_later(tmp_path):
    world = WebhookWorld(tmp_path)
    async with world.serving():
        await world.push(delivery="first")
        await asyncio.wait_for(world.read.wait(), 60)
        answers = await asyncio.gather(*(world.push(delivery=f"d-{number}") for number in range(20)))
        world.read.clear()
        await asyncio.wait_for(world.read.wait(), 60)
        await asyncio.sleep(0.1)  # nothing follows
    assert {status for status, _ in answers} == {202}
    assert len({answer["request"] for _, answer in answers}) == 1
    assert len(world.reads) == len(world.events) == 2
    assert world.reads[1] - world.reads[0] >= PERIOD - 0.05


async def test_other_paths_and_methods_are_refused(tmp_path):
    world = WebhookWorld(tmp_path)
    body = body_of()
    async with world.serving():
        assert (await world.deliver(body, headers_of("github", body), path="/"))[0] == 404
        assert (await world.deliver(body, headers_of("github", body), path="/metrics"))[0] == 404
        for method in ("GET", "PUT", "DELETE"):
            assert (await world.deliver(body, headers_of("github", body), method=method))[0] == 405
    assert world.reads == []


async def test_a_body_above_the_limit_is_refused_before_all_of_it_is_read(tmp_path):
    world = WebhookWorld(tmp_path)
    body = json.dumps({"ref": MAIN, "x": "a" * BODY_BYTES}).encode()
    async with world.serving():
        status, _ = await world.deliver(body, headers_of("github", body))
        fits = json.dumps({"ref": MAIN, "x": "a" * (BODY_BYTES - 100)}).encode()
        accepted, _ = await world.deliver(fits, headers_of("github", fits))
    assert status == 413
    assert accepted == 202
    assert world.results == ["invalid", "accepted"]


async def test_a_signed_body_without_a_ref_says_what_is_wrong(tmp_path):
    world = WebhookWorld(tmp_path)
    body = b"not json"
    async with world.serving():
        assert await world.deliver(body, headers_of("gitea", body)) == (400, {"message": "the body is not JSON"})
    assert world.reads == []


async def test_a_changed_secret_counts_at_once(tmp_path):
    world = WebhookWorld(tmp_path)
    body = body_of()
    async with world.serving():
        world.file.write_text("another secret")
        assert (await world.deliver(body, headers_of("github", body)))[0] == 401
        assert (await world.deliver(body, headers_of("github", body, secret="another secret")))[0] == 202


async def test_without_its_secret_every_delivery_is_refused_with_one_note(tmp_path):
    world = WebhookWorld(tmp_path)
    async with world.serving():
        world.file.chmod(0o644)
        assert (await world.push(delivery="a"))[0] == 503
        assert (await world.push(delivery="b"))[0] == 503
    assert len(world.notes) == 1
    assert "world-readable" in world.notes[0]
    assert SECRET not in world.notes[0]
    assert world.reads == []


async def test_another_kind_of_forge_than_the_declared_one_is_refused(tmp_path):
    world = WebhookWorld(tmp_path, provider="github")
    async with world.serving():
        assert (await world.push("gitlab"))[0] == 401
        assert (await world.push("github"))[0] == 202


async def test_a_busy_address_is_reported_once_and_taken_when_it_is_free(tmp_path):
    world = WebhookWorld(tmp_path)
    with socket.socket() as taken:
        taken.bind(world.listener.listen)
        taken.listen()
        task = asyncio.create_task(world.serving().__aenter__())
        async with asyncio.timeout(60):
            await world.noted.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(world.notes) == 1
    assert "source.webhook.listen" in world.notes[0]


async def test_a_changed_listener_is_used_without_a_restart(tmp_path):
    world = WebhookWorld(tmp_path)
    async with world.serving():
        before = world.listener.listen
        world.listen(WebhookListener(("127.0.0.1", free_port()), SecretSource(file=str(world.file)), ref="main"))
        await world.until_listening()
        assert (await world.push())[0] == 202
        with socket.socket() as client:
            assert client.connect_ex(before) != 0


async def test_a_form_of_github_is_understood(tmp_path):
    world = WebhookWorld(tmp_path)
    body = b"payload=%7B%22ref%22%3A%22refs%2Fheads%2Fmain%22%7D"
    headers = headers_of("github", body) | {"Content-Type": "application/x-www-form-urlencoded"}
    async with world.serving():
        assert (await world.deliver(body, headers))[0] == 202
    assert len(world.reads) == 1


async def test_bodies_that_never_end_do_not_keep_a_real_delivery_out(tmp_path):
    world = WebhookWorld(tmp_path)
    async with world.serving():
        writers = []
        for _ in range(40):
            _, writer = await asyncio.open_connection(*world.listener.listen)
            head = f"POST /v1/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nX-Gitea-Signature: {signed(b'')}\r\n\r\n"
            writer.write(head.encode() + b"a" * 200_000)
            writers.append(writer)
        statuses = set()
        for _ in range(100):  # the listener closes requests that are incomplete after 5 s
            statuses.add((await world.push())[0])
            if 202 in statuses:
                break
            await asyncio.sleep(0.2)
        assert 202 in statuses
        assert statuses <= {202, 503}
        for writer in writers:
            writer.close()
    assert len(world.reads) == 1
