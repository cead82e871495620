"""Reading revisions over the listener: read-only, and only with the token."""

import asyncio
import http.client
import json
import os
import socket
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from reconciler.commits.history_file import History, save
from reconciler.core.notices.history import Fate, Row
from reconciler.shell.clock import SystemClock
from reconciler.shell.pushing.credentials import READ, SOCKET
from reconciler.shell.store.state_db import Store
from reconciler.web.serving import serve
from tests.web.push_world import PushWorld

ROW = {"workload": "workload/web", "status": "active", "created_wall": 10**18, "due_wall": None}
SHOWN = {"workload": "workload/web", "status": "active", "created": "2001-09-09T01:46:40Z", "due": None}
STORED = {"format_version": 1, "instance": "shop", "at_wall": 10**18, "status": {"revisions": [ROW]}, "holds": []}


@pytest.fixture
def world(tmp_path: Path) -> PushWorld:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    return PushWorld(state)


def decided(world: PushWorld) -> None:
    with Store.open(world.state, SystemClock()) as store:
        store.put_decision(STORED)


@asynccontextmanager
async def listening(world: PushWorld):
    task = asyncio.create_task(serve(world.pushing, world.credentials, lambda text: None))
    try:
        for _ in range(1_000):
            if _listens(world):
                break
            await asyncio.sleep(0.01)  # there is no event for a socket that begins to listen
        assert _listens(world)
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _listens(world: PushWorld) -> bool:
    with socket.socket() as client:
        return client.connect_ex(world.listener.tcp) == 0


class Unix(http.client.HTTPConnection):
    """A client of a unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


async def ask(
    world: PushWorld, token: str | None, *, method: str = "GET", unix: bool = False, path: str = "/v1/revisions"
) -> tuple[int, dict]:
    def work() -> tuple[int, dict]:
        host, port = world.listener.tcp
        socket_path = str(world.credentials.directory / SOCKET)
        connection = Unix(socket_path, timeout=60) if unix else http.client.HTTPConnection(host, port, timeout=60)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            return answer.status, json.loads(body) if body.startswith(b"{") else {}
        finally:
            connection.close()

    return await asyncio.to_thread(work)


async def test_with_the_token_the_revisions_are_served_on_both_sockets(world):
    decided(world)
    async with listening(world):
        token = (world.state / READ).read_text().strip()
        for unix in (False, True):
            status, document = await ask(world, token, unix=unix)
            assert status == 200
            assert document == {"instance": "shop", "as_of": "2001-09-09T01:46:40Z", "revisions": [SHOWN]}


async def test_without_the_token_the_request_is_refused(world):
    decided(world)
    async with listening(world):
        generation = "shop-web-01234567-0.0123456789abcdef01234567"
        wrong = (None, "", "0" * 64, world.credentials.token(generation))
        # Concurrently, because each refusal is delayed.
        assert await asyncio.gather(*(ask(world, token) for token in wrong)) == [(401, {"message": "refused"})] * 4
        assert (await ask(world, None, method="POST"))[0] == 405


async def test_before_the_first_decision_the_answer_says_so(world):
    async with listening(world):
        assert await ask(world, world.credentials.reader()) == (
            503,
            {"message": "the state directory cannot be read now; try again"},
        )
        with Store.open(world.state, SystemClock()):
            pass
        assert await ask(world, world.credentials.reader()) == (503, {"message": "there is no decision yet; try again"})


async def test_a_new_token_is_used_at_once_and_its_file_is_private(world):
    decided(world)
    async with listening(world):
        old = world.credentials.reader()
        assert os.stat(world.state / READ).st_mode & 0o777 == 0o600
        (world.state / READ).unlink()
        assert (await ask(world, old))[0] == 401
        assert world.credentials.reader() != old
        assert (await ask(world, world.credentials.reader()))[0] == 200


async def test_what_became_of_a_commit_is_served_with_the_token_only(world):
    applied, waits = "a" * 40, "b" * 64
    rows = (
        Row(applied, Fate.APPLIED, "applied", 10**18, "as reviewed in merge request 7"),
        Row(waits, Fate.PENDING, "0 of 1", 1),
    )
    save(world.state, History(rows, applied))
    async with listening(world):
        token = world.credentials.reader()
        status, document = await ask(world, token, path=f"/v1/commits/{applied}")
        assert (status, document["state"], document["exit_code"]) == (200, "applied", 0)
        assert document["review"] == "as reviewed in merge request 7"
        assert document["since"] == "2001-09-09T01:46:40Z"
        status, document = await ask(world, token, path=f"/v1/commits/{waits}")
        assert (status, document["state"], document["exit_code"]) == (200, "pending", None)
        status, document = await ask(world, token, path=f"/v1/commits/{'c' * 40}")
        assert (status, document["state"], document["exit_code"]) == (200, "unknown", None)
        assert (await ask(world, token, path="/v1/commits/main"))[0] == 400
        assert (await ask(world, token, path="/v1/commits/../read.token"))[0] == 404
        assert (await ask(world, "0" * 64, path=f"/v1/commits/{applied}"))[0] == 401
