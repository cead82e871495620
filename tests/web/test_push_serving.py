"""The listener of the daemon: it follows the Instance, and closes slow connections."""

import asyncio
import socket
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import PushListener
from reconciler.shell.pushing.credentials import SOCKET
from reconciler.web.push import push_app
from reconciler.web.server import make_server
from reconciler.web.serving import serve
from reconciler.web.sockets import open_sockets
from tests.free_ports import free_port
from tests.web.push_world import PushWorld


@pytest.fixture
def world(tmp_path: Path) -> PushWorld:
    return PushWorld(tmp_path)


def move(world: PushWorld, listener: PushListener | None) -> None:
    """Put a new revision of the manifests in force."""
    world.desired = replace(world.desired, instance=replace(world.desired.instance, push=listener))
    world.pushing.set_desired(world.desired)


def listens(address: tuple[str, int] | str) -> bool:
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as client:
        return client.connect_ex(address) == 0


async def until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)  # there is no event for a socket that begins to listen


@asynccontextmanager
async def serving(world: PushWorld, notes: list[str]):
    task = asyncio.create_task(serve(world.pushing, world.credentials, notes.append))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_the_listener_follows_the_manifests(world):
    first, second, notes = free_port(), free_port(), []
    path = str(world.credentials.directory / SOCKET)
    move(world, PushListener(tcp=("127.0.0.1", first)))
    async with serving(world, notes):
        await until(lambda: listens(("127.0.0.1", first)) and listens(path))
        inode = world.credentials.directory.stat().st_ino
        move(world, PushListener(socket=False, tcp=("127.0.0.1", second)))
        await until(lambda: listens(("127.0.0.1", second)))
        assert not listens(("127.0.0.1", first))
        assert not listens(path)
        move(world, None)
        await until(lambda: not listens(("127.0.0.1", second)))
        move(world, PushListener())
        await until(lambda: listens(path))
        assert world.credentials.listener == PushListener()
        assert world.credentials.directory.stat().st_ino == inode, "containers mount this very directory"
    assert notes == []
    assert not listens(path)


async def test_a_port_in_use_is_reported_once_and_tried_again(world):
    notes: list[str] = []
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        address = taken.getsockname()
        move(world, PushListener(tcp=address))
        async with serving(world, notes):
            await until(lambda: bool(notes))
            assert f"push listener {address[0]}:{address[1]}: Address already in use" in notes[0]
            assert "to a free port" in notes[0]
            taken.close()
            await until(lambda: listens(address))
    assert len(notes) == 1


async def test_the_socket_of_a_killed_daemon_is_replaced(world):
    world.credentials.directory.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(world.credentials.directory / SOCKET))
    async with serving(world, []):
        await until(lambda: listens(str(world.credentials.directory / SOCKET)))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /v1/push HT",
        b"POST /v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
        b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\nPOST /v1",
    ],
)
async def test_a_connection_with_an_unfinished_request_is_closed_in_time(world, sent):
    sockets = open_sockets(world.listener, world.credentials.directory)
    server = make_server(push_app(world.pushing, world.credentials, slow=0.0), request_seconds=0.1)
    running = asyncio.create_task(server.run_on(sockets))
    reader, writer = await asyncio.open_connection(*world.listener.tcp)
    try:
        writer.write(sent)
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 4)  # until the end, well before uvicorn's own limit of 5 s
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        server.stop()
        await running
