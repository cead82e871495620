"""Docker and Podman on this machine as two nodes of one installation, with an engine that a test can take away and give back.

The machine's Docker daemon is shared, so a test never stops it: reconcile reaches it through a `Proxy`, which ends or stalls. The
Podman service belongs to the test process, so its API process is really killed; containers of Podman live on without it.
"""

import os
import signal
import socket
import threading
from contextlib import closing, suppress
from pathlib import Path

from providers.errors import Gone, ProviderError
from tests.e2e.edge_world import World, podman_with_image, until
from tests.providers.runtime.docker.engine import Api, ensure_podman

NODES = ("docker", "podman")

SECOND_NODE = """\
---
apiVersion: reconciler/v1
kind: Provider
metadata: {{name: podman}}
spec: {{type: docker, settings: {{socket: {socket}}}}}
"""

CHUNK = 65536


class Proxy:
    """A Unix socket in front of an engine's. `end` and `stall` take the engine away, `begin` gives it back."""

    def __init__(self, path: Path, engine: str) -> None:
        self.path, self.engine = path, engine
        self.flowing = threading.Event()
        self._open: list[socket.socket] = []
        self._listener: socket.socket | None = None

    def begin(self) -> None:
        """Accept connections, and let stalled ones go on."""
        self.flowing.set()
        if self._listener is None:
            self.path.unlink(missing_ok=True)
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(self.path))
            self._listener.listen(64)
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stall(self) -> None:
        """Accept connections, and answer nothing on any."""
        self.flowing.clear()

    def end(self) -> None:
        """Refuse connections, and end those that are open."""
        listener, self._listener = self._listener, None
        if listener is not None:
            _shut(listener)
        self.flowing.set()  # stalled connections notice that they have ended
        open_now, self._open = self._open, []
        for link in open_now:
            _shut(link)

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is listener:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            engine = socket.socket(socket.AF_UNIX)
            self._open += [client, engine]
            try:
                engine.connect(self.engine)
            except OSError:
                _shut(client)
                continue
            for source, sink in ((client, engine), (engine, client)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                self.flowing.wait()
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def _shut(link: socket.socket) -> None:
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()


class TwoEngines(World):
    """The edge example with two replicas on Docker and two on Podman.

    Args:
        docker: the socket of a Docker daemon that has the example's image.
        home: the directory of a Podman service of this test process.
    """

    def __init__(self, docker: str, home: Path) -> None:
        super().__init__(docker, replicas=4)
        self.home = home
        self.proxy = Proxy(self.directory / "docker.sock", docker)
        socket_of_podman = podman_with_image(home)
        self.apis = {"docker": self.api, "podman": Api(socket_of_podman)}
        self.edit("  name: local\n", "  name: docker\n")
        self.edit(f"{{socket: {docker}}}", f"{{socket: {self.proxy.path}}}")
        instance = self.manifests / "instance.yaml"
        instance.write_text(instance.read_text() + SECOND_NODE.format(socket=socket_of_podman))
        self.edit(f"id: {self.id}\n", f"id: {self.id}\n  intervals: {{runtime: 2s}}\n")
        # Two replicas may be unknown, and one more out.
        self.edit("  replicas: 4\n", "  replicas: 4\n  nodes: [docker, podman]\n  availability: {maxUnavailable: 3}\n")
        self.proxy.begin()

    # --- engines ------------------------------------------------------------------------------------------------

    def take_away(self, node: str, stalls: bool = False) -> None:
        """Kill the way to an engine; its containers live on. `stalls`: Docker accepts connections and answers nothing."""
        if node == "docker":
            if stalls:
                self.proxy.stall()
            else:
                self.proxy.end()
            return
        path = self.home / "podman.sock"
        with closing(socket.socket(socket.AF_UNIX)) as link:
            link.connect(str(path))
            credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        os.kill(int.from_bytes(credentials[:4], "little"), signal.SIGKILL)
        path.unlink(missing_ok=True)

    def give_back(self, node: str) -> None:
        """Start it again."""
        if node == "docker":
            self.proxy.begin()
        else:
            ensure_podman(self.home)

    def close(self) -> None:
        for node in NODES:
            self.give_back(node)
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait()
        podman = self.apis["podman"]
        try:
            until(lambda: self._podman_emptied(podman), f"the containers of {self.id} on Podman are removed")
        finally:
            podman.close()
            super().close()
            self.proxy.end()

    def _podman_emptied(self, podman: Api) -> bool:
        podman.clean(self.id)
        with suppress(ProviderError):
            podman.link.delete(f"/networks/{self.network}", "test")
        return not podman.names(f"reconciler.instance={self.id}") and not podman.networks(self.network)

    # --- what is there ------------------------------------------------------------------------------------------

    def on(self, node: str) -> dict[str, tuple[str, str]]:
        """Address and start of each running container of a node, by name."""
        api, found = self.apis[node], {}
        for name in api.names(f"reconciler.instance={self.id}"):
            # Removed since it was listed; Podman may say so as a failure (containers/podman issue 10120).
            with suppress(Gone, ProviderError):
                item = api.inspect(name)
                if item["State"]["Running"]:
                    address = str(item["NetworkSettings"]["Networks"][self.network]["IPAddress"])
                    found[name] = (address, str(item["State"]["StartedAt"]))
        return found

    def addresses_on(self, node: str) -> set[str]:
        """The addresses of its running containers."""
        return {address for address, _ in self.on(node).values()}

    def settle_all(self, revision: str = "") -> None:
        """Wait until two containers on each node serve; `revision` is one that none of them may have."""

        def settled() -> bool:
            found = {node: self.on(node) for node in NODES}
            names = [name for of in found.values() for name in of]
            return (
                all(len(of) == 2 for of in found.values())
                and not any(revision and revision in name for name in names)
                and self.serves({address for of in found.values() for address, _ in of.values()})
            )

        until(settled, "two containers serve on each engine")


def revision(name: str) -> str:
    """The short revision in a container's name."""
    return name.split("-")[-2]
