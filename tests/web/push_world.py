"""A push listener on real sockets over an in-memory runtime in virtual time, and a client that can send any message."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

from manifests.values.desired import Container, Desired, Guard, Instance, Push, PushListener, Role, Template, Workload
from providers.actions import CreateContainer, StartContainer
from providers.facts import Generation, Mark, container_name
from providers.spi import Context
from providers.testing.memory import MemorySettings, MemoryWorld
from providers.testing.memory_runtime import MemoryRuntime
from reconciler.core.model.ledger import Ledger
from reconciler.push import tokens
from reconciler.shell.looks.facts import Looks
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.providers import Providers
from reconciler.shell.pushing.credentials import SOCKET, Credentials
from reconciler.shell.pushing.pushes import Pushing
from reconciler.web.push import push_app
from reconciler.web.server import make_server
from reconciler.web.sockets import open_sockets
from tests.free_ports import free_port
from tests.inline_runner import InlineRunner
from tests.sim.clock import VirtualClock

NODE = "node-a"


def desired_of(replicas: int, listener: PushListener | None, push: Push | None) -> Desired:
    template = Template((("app", "web"),), Container("web", ("serve",)), revision="0123456789abcdef")
    workload = Workload("workload/web", "web", (NODE,), replicas, template, push=push)
    instance = Instance("shop", push=listener)
    return Desired("src", "r1", "/", True, instance, Guard(), (), (workload,), (), ())


def name_of(ordinal: int) -> str:
    return container_name(Mark("shop", "web", ordinal, "0123456789abcdef"))


class PushWorld:
    """Containers, the daemon's side of pushes, and its ledger."""

    def __init__(self, state: Path, replicas: int = 2) -> None:
        self.state, self.replicas = state, replicas
        self.clock = VirtualClock()
        self.world = MemoryWorld(lambda: self.clock.now().steady, lambda: self.clock.now().wall)
        self.runtime = MemoryRuntime(NODE, MemorySettings(), Context("shop", "/nowhere"), self.world)
        self.listener = PushListener(tcp=("127.0.0.1", free_port()))
        self.desired = desired_of(replicas, self.listener, Push())
        self.credentials = Credentials(state, self.clock, self.listener)
        self.ledger = Ledger()
        self.saves = 0
        self.begin()

    def begin(self) -> None:
        """Start the program with the current ledger."""
        self.wake = Wake()
        self.looks = Looks(Providers({NODE: self.runtime}), InlineRunner(), self.clock, self.wake)
        self.looks.set_desired(self.desired)
        self.pushing = Pushing(self.looks, self.clock, self.wake)
        self.pushing.set_desired(self.desired)
        self.pushing.restore(self.ledger, self.clock.now())

    def name(self, ordinal: int = 0) -> str:
        return name_of(ordinal)

    def create(self, ordinal: int = 0) -> str:
        """Create and start a container. Returns its name."""
        mark = Mark("shop", "web", ordinal, "0123456789abcdef")
        template = self.desired.workloads[0].template
        self.runtime.perform(CreateContainer(NODE, self.name(ordinal), mark, template, "/", push=True))
        self.start(ordinal)
        return self.name(ordinal)

    def start(self, ordinal: int = 0) -> None:
        self.runtime.perform(StartContainer(NODE, self.name(ordinal), self.generation(ordinal)))

    def restart(self, ordinal: int = 0) -> None:
        """The container exits and is started again, without the program."""
        self.runtime.exit(self.name(ordinal))
        self.clock.advance(1)
        self.start(ordinal)

    def generation(self, ordinal: int = 0) -> Generation:
        return self.world.nodes[NODE][self.name(ordinal)].generation

    async def look(self) -> None:
        self.looks.look_soon(Role.RUNTIME, NODE)
        self.looks.start_due()
        await self.looks.settle()

    def tick(self) -> None:
        """The part of a tick that is about pushes."""
        before = self.ledger
        self.ledger = self.pushing.fold(self.ledger, self.clock.now())
        self.saves += self.ledger is not before
        self.pushing.saved()

    async def push_and_store(self, push: Coroutine[None, None, tuple[int, dict]]) -> tuple[int, dict]:
        """The answer to a push of a new state; a tick stores the push as soon as it arrives."""
        self.wake.take()
        answer = asyncio.create_task(push)
        await asyncio.wait_for(self.wake.event.wait(), 60)
        self.tick()
        return await answer

    def sender(self, ordinal: int = 0) -> "Client":
        """A client with new credentials of that container."""
        self.clock.advance(1)
        generation = tokens.generation(self.name(ordinal), self.clock.now().wall, b"\0\0\0\0")
        return Client(self, generation, self.credentials.token(generation))

    @asynccontextmanager
    async def listening(
        self, ticking: bool = True, slow: float = 0.0, answered: Callable[[str, int], None] | None = None
    ) -> AsyncIterator[None]:
        """Run the server, and a loop that ticks whenever it is woken. `slow` and `answered` as for `push_app`."""
        sockets = open_sockets(self.listener, self.credentials.directory)
        server = make_server(push_app(self.pushing, self.credentials, slow, answered=answered))
        running = asyncio.create_task(server.run_on(sockets))

        async def loop() -> None:
            while True:
                await self.wake.event.wait()
                self.wake.take()
                await self.look()
                self.tick()

        ticks = asyncio.create_task(loop()) if ticking else None
        try:
            yield
        finally:
            if ticks is not None:
                ticks.cancel()
            server.stop()
            await asyncio.gather(running, *([ticks] if ticks else []), return_exceptions=True)
            for socket in sockets:
                socket.close()


class Client:
    """Sends pushes; each call uses its own connection."""

    def __init__(self, world: PushWorld, generation: str, token: str) -> None:
        self.world, self.generation, self.token = world, generation, token
        self.boot, self.seq = "boot-1", 0

    async def push(
        self, event: object = "ready", tcp: bool = True, how: str = "signed", **members: object
    ) -> tuple[int, dict]:
        """Push. Returns (status, answer). `members` override those of a valid message; None omits a member."""
        self.seq += 1
        message = {"event": event, "generation": self.generation, "boot": self.boot, "seq": self.seq, **members}
        body = json.dumps({key: value for key, value in message.items() if value is not None}).encode()
        return await self.send(body, tcp, how)

    async def send(self, body: bytes, tcp: bool = True, how: str = "signed", signature: str = "") -> tuple[int, dict]:
        head = ["POST /v1/push HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", "Connection: close"]
        if how == "signed":
            head.append(f"Reconciler-Signature: {signature or tokens.sign(self.token, body)}")
        elif how == "bearer":
            head.append(f"Authorization: Bearer {self.token}")
        return await self.raw("\r\n".join([*head, "", ""]).encode() + body, tcp)

    async def raw(self, request: bytes, tcp: bool = True) -> tuple[int, dict]:
        if tcp:
            reader, writer = await asyncio.open_connection(*self.world.listener.tcp)
        else:
            reader, writer = await asyncio.open_unix_connection(str(self.world.credentials.directory / SOCKET))
        try:
            writer.write(request)
            await writer.drain()
            answer = await asyncio.wait_for(reader.read(), 60)
        finally:
            writer.close()
            await writer.wait_closed()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body) if body[:1] == b"{" else {}
