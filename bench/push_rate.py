"""Pushes per CPU-second without loss, compared with the same server and an empty application, and latency during a flood.

Run by `make bench`; prints a Markdown report. The server is a process of its own on a unix socket, with 250 containers that push.
The figure is pushes per second of its CPU time, so that the load generator on the other core does not count. reconciler and peer
alternate; the report shows medians.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reconciler.push import tokens
from reconciler.shell.pushing.credentials import SOCKET
from reconciler.web.server import make_server
from reconciler.web.sockets import open_sockets
from tests.web.push_world import PushWorld, name_of

INSTANCES = 250
ROUNDS = 3
TURNS = 4
CONNECTIONS = 32
FLOOD = 256
QUIET = 100
SENDER_TIME = 1_800_000_001 * 10**9
"""The senders' clock, ns: a second after the start of the virtual clock of the world."""


# --- the server process ---------------------------------------------------------------------------------------------


async def empty(scope, receive, send) -> None:
    """The peer: an application that does as little as possible."""
    while (await receive()).get("more_body"):
        pass
    body = b'{"message":"taken","remembered":true}'
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def serve(state: Path, kind: str) -> None:
    world = PushWorld(state)
    loop = asyncio.get_running_loop()
    if kind == "floor":
        server = make_server(empty)
        running = asyncio.create_task(server.run_on(open_sockets(world.listener, world.credentials.directory)))
        await answer(loop, lambda: None)
        server.stop()
        await running
        return
    for ordinal in range(INSTANCES):
        world.create(ordinal)
    await world.look()
    world.credentials.token("")  # creates the key, which the load generator reads
    # The clock of the world advances only on a request of the load generator, and with it the rate limits.
    async with world.listening(slow=1.0):
        await answer(loop, lambda: world.clock.advance(4_000_000_000))


async def answer(loop, act) -> None:
    """Answer each line with the CPU time so far, after `act`."""
    print("ready", flush=True)
    while (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        act()
        print(time.process_time(), flush=True)


class Server:
    def __init__(self, kind: str) -> None:
        self.home = tempfile.TemporaryDirectory()
        self.state = Path(self.home.name)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.push_rate", kind, self.home.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n"
        self.path = str(self.state / "push" / SOCKET)
        self.generations = [
            tokens.generation(name_of(n), time.time_ns(), n.to_bytes(4, "big")) for n in range(INSTANCES)
        ]
        key = self.state / "push.key"
        self.tokens = []
        if key.exists():
            secret = bytes.fromhex(key.read_text().strip())
            self.tokens = [tokens.token(secret, generation) for generation in self.generations]

    def cpu(self) -> float:
        self.process.stdin.write("cpu\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def request(self, instance: int, seq: int) -> bytes:
        message = {
            "event": "ready",
            "generation": self.generations[instance],
            "boot": "b",
            "seq": seq,
            "time": SENDER_TIME + seq,
        }
        body = json.dumps(message).encode()
        token = self.tokens[instance] if self.tokens else "0" * 64
        head = (
            "POST /v1/push HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nReconciler-Signature: {tokens.sign(token, body)}\r\n\r\n"
        )
        return head.encode() + body

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()
        self.home.cleanup()


# --- load -----------------------------------------------------------------------------------------------------------


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
    await reader.readexactly(length)
    return int(head[9:12])


async def kept(path: str, requests: list[bytes]) -> list[int]:
    """Send all requests over a few connections that stay open."""
    todo = iter(requests)

    async def client() -> list[int]:
        reader, writer = await asyncio.open_unix_connection(path)
        statuses = [await ask(reader, writer, request) for request in todo]
        writer.close()
        return statuses

    return [status for each in await asyncio.gather(*(client() for _ in range(CONNECTIONS))) for status in each]


async def once_each(path: str, requests: list[bytes]) -> list[int]:
    """Send each request over a new connection, like the shipped client."""
    todo = iter(requests)

    async def client() -> list[int]:
        statuses = []
        for request in todo:
            reader, writer = await asyncio.open_unix_connection(path)
            statuses.append(await ask(reader, writer, request))
            writer.close()
        return statuses

    return [status for each in await asyncio.gather(*(client() for _ in range(CONNECTIONS))) for status in each]


def rate(server: Server, how, seq: int) -> tuple[float, float, int]:
    """(pushes per second of CPU time, of real time, lost), for some pushes of every instance."""
    requests = [server.request(n, seq + turn) for turn in range(TURNS) for n in range(INSTANCES)]
    before, began = server.cpu(), time.perf_counter()
    statuses = asyncio.run(how(server.path, requests))
    took, cpu = time.perf_counter() - began, server.cpu() - before
    return len(requests) / cpu, len(requests) / took, len(requests) - statuses.count(200)


async def latencies(server: Server, seq: int, flooding: bool) -> list[float]:
    """Milliseconds of pushes of quiet instances, one after another."""
    stop = False

    async def flood() -> None:
        mine = server.request(0, 1_000_000)
        reader, writer = await asyncio.open_unix_connection(server.path)
        try:
            while not stop:
                await ask(reader, writer, mine)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    noise = [asyncio.create_task(flood()) for _ in range(FLOOD - 16 if flooding else 0)]
    if noise:
        await asyncio.sleep(0.5)  # until its burst is used up
    milliseconds = []
    for number in range(QUIET):
        begun = time.perf_counter()
        reader, writer = await asyncio.open_unix_connection(server.path)
        status = await ask(reader, writer, server.request(1 + number, seq))
        writer.close()
        assert status == 200, status
        milliseconds.append((time.perf_counter() - begun) * 1000)
    stop = True
    for task in noise:
        task.cancel()
    await asyncio.gather(*noise, return_exceptions=True)
    return milliseconds


def shown(milliseconds: list[float]) -> str:
    ordered = sorted(milliseconds)
    return f"{statistics.median(ordered):.2f} | {ordered[int(len(ordered) * 0.99)]:.2f} | {ordered[-1]:.2f}"


def main() -> None:
    ours, floor = Server("ours"), Server("floor")
    try:
        rows = {}
        seq = 1
        asyncio.run(
            kept(ours.path, [ours.request(n, seq) for n in range(INSTANCES)])
        )  # the first push of each instance
        lost = 0
        for _ in range(ROUNDS):
            for label, how in (("connections kept", kept), ("a connection each", once_each)):
                seq += 10
                for name, server in (("reconciler", ours), ("uvicorn, empty", floor)):
                    cpu, real, gone = rate(server, how, seq)
                    rows.setdefault((label, name), []).append((cpu, real))
                    lost += gone
        calm = asyncio.run(latencies(ours, seq + 100, flooding=False))
        ours.cpu()
        loud = asyncio.run(latencies(ours, seq + 101, flooding=True))
    finally:
        ours.close()
        floor.close()
    print("## Pushes\n")
    print(
        f"{INSTANCES:,} instances push signed heartbeats over the unix socket; {ROUNDS} rounds of {TURNS * INSTANCES:,}, medians. "
        f"Lost: {lost}. The peer is the same server (uvicorn) with an empty application.\n"
    )
    print("| | pushes per CPU-second, reconciler | uvicorn, empty | cost / peer | pushes/s of real time, reconciler |")
    print("| --- | --- | --- | --- | --- |")
    for label in ("connections kept", "a connection each"):
        mine, theirs = rows[label, "reconciler"], rows[label, "uvicorn, empty"]
        a, b = statistics.median(c for c, _ in mine), statistics.median(c for c, _ in theirs)
        print(f"| {label} | {a:,.0f} | {b:,.0f} | {b / a:.2f} | {statistics.median(r for _, r in mine):,.0f} |")
    print(
        f"\nOne instance pushes without pause over {FLOOD - 16} connections, while others push now and then. Time from connecting to "
        "the answer:\n"
    )
    print("| pushes of other instances | p50 ms | p99 ms | max ms |\n| --- | --- | --- | --- |")
    print(f"| without the flood | {shown(calm)} |\n| during the flood | {shown(loud)} |")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
        asyncio.run(serve(Path(sys.argv[2]), sys.argv[1]))
    else:
        main()
