"""The edge example in a world of its own: real containers, its own HAProxy and BIND, and clients that observe all the time.

Manifests are the example's own, with another instance id, other ports and another network, so that tests run side by side.
"""

import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dns.exception
import dns.message
import dns.query
import dns.rcode

from providers.errors import Gone, ProviderError

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "edge"))
import image  # noqa: E402
import servers  # noqa: E402

from tests.free_ports import free_port  # noqa: E402
from tests.providers.runtime.docker.claims import Claim  # noqa: E402
from tests.providers.runtime.docker.engine import Api, ensure_docker, ensure_podman, held, podman_home  # noqa: E402, F401  (the last one for conftest)

NAME = "app.edge.test."
IMAGE = "reconciler-test/web:1"
"""The example's image under a name of the tests: removing the example removes its own image."""

PATIENCE = 120.0
"""Seconds that anything may take on a busy machine. Only a failure waits for so long."""

ANSWER = 20.0
"""Seconds that one answer of a server may take."""


def until(condition: Callable[[], bool], event: str, seconds: float = PATIENCE) -> None:
    """Wait for a condition. An error (a server is down, nothing is decided yet) means that it is not true yet."""
    end = time.monotonic() + seconds
    while True:
        with suppress(OSError, dns.exception.DNSException, ProviderError, LookupError, TypeError):
            if condition():
                return
        assert time.monotonic() < end, f"did not happen within {seconds:g} s: {event}"
        time.sleep(0.05)


@dataclass
class ClientLog:
    """What clients saw: pages by their text, requests that failed, and each state of pool and name, in order."""

    pages: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    pools: list[dict[str, int]] = field(default_factory=list)
    names: list[frozenset[str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def check_never_empty(self) -> None:
        assert self.pools, "the pool was never read"
        assert self.names, "the name was never asked for"
        assert all(any(pool.values()) for pool in self.pools), self.pools
        assert all(self.names), self.names

    def check_all_served(self, least: int = 20) -> None:
        assert not self.failures, f"{len(self.failures)} of {sum(self.pages.values())} requests: {self.failures[:3]}"
        assert sum(self.pages.values()) >= least, self.pages


def engine_with_image(shared: Path) -> str:
    """The socket of a Docker daemon that has the example's image. `shared` is a directory of all workers of this run."""
    path = ensure_docker(shared)
    with held(shared / "edge-image.lock"):
        image.ensure(path, IMAGE)
    return path


def podman_with_image(home: Path) -> str:
    """The socket of a Podman service of the directory `home` that has the example's image."""
    path = ensure_podman(home)
    api = Api(path)
    try:
        if not api.has_image(IMAGE):
            api.import_image(IMAGE, image.tar())
    finally:
        api.close()
    return path


class World:
    """One installation of the example.

    Args:
        docker: socket of the engine.
        replicas: how many containers the workload has.
    """

    def __init__(self, docker: str, replicas: int = 3) -> None:
        self.id = f"e{secrets.token_hex(4)}"
        self.directory = Path(tempfile.mkdtemp(prefix="edge-", dir="/tmp"))  # short: paths of Unix sockets are
        self.claim = Claim(self.id, docker, str(self.directory))
        self.edge = servers.Edge(self.directory, self.id, free_port(), free_port(), docker)
        self.network = f"net-{self.id}"
        self.manifests = self.directory / "manifests"
        self.env = {**os.environ, "XDG_STATE_HOME": str(self.directory / "home")}
        self.state = self.directory / "home" / "reconciler" / self.id
        self.api = Api(docker)
        self.running: list[subprocess.Popen[str]] = []
        self.prefix: list[str] = []
        """A command that starts the program, for example with fewer rights."""
        shutil.copytree(
            ROOT / "examples" / "edge", self.manifests, ignore=shutil.ignore_patterns("*.py", "__pycache__")
        )
        self.edit(f"image: {image.NAME}\n", f"image: {IMAGE}\n")
        self.edit("id: edge\n", f"id: {self.id}\n")
        self.edit("/run/reconciler-edge/", f"{self.directory}/")
        self.edit("port: 8053", f"port: {self.edge.dns}")
        self.edit("[reconciler-edge]", f"[{self.network}]")
        self.edit("type: docker\n", f"type: docker\n  settings: {{socket: {docker}}}\n")
        self.edit("replicas: 3", f"replicas: {replicas}")
        self.edit("ttl: 5s", "ttl: 1s")

    def edit(self, old: str, new: str) -> None:
        """Change the manifests; the text must be there."""
        found = 0
        for file in sorted(self.manifests.glob("*.yaml")):
            text = file.read_text()
            if old in text:
                found += 1
                new_file = file.with_name(f".{file.name}.new")
                new_file.write_text(text.replace(old, new))
                new_file.replace(file)
        assert found, old

    # --- servers ------------------------------------------------------------------------------------------------

    def use_engine(self, docker: str) -> None:
        """Take another engine than the one that was given."""
        self.edit(f"socket: {self.edge.docker}", f"socket: {docker}")
        self.edge = replace(self.edge, docker=docker)
        self.api.close()
        self.api = Api(docker)

    def start_servers(self) -> None:
        servers.prepare(self.edge)
        servers.start_haproxy(self.edge)
        servers.start_named(self.edge)

    def kill(self, server: str) -> None:
        servers.stop(self.edge, server, signal.SIGKILL)

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate()
        try:
            until(self._emptied, f"the containers and the network of {self.id} are removed")
        finally:
            self.api.close()
            self._close_servers()

    def _emptied(self) -> bool:
        """Remove its containers and its network; whether nothing is left. Podman may refuse it for a moment."""
        self.api.clean(self.id)
        try:
            self.api.link.delete(f"/networks/{self.network}", "test")
        except Gone:
            return True
        except ProviderError:
            return False
        return True

    def _close_servers(self) -> None:
        for server in ("named", "haproxy"):
            with suppress(servers.ServerError):
                servers.stop(self.edge, server, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.claim.drop()

    # --- the program --------------------------------------------------------------------------------------------

    def start(self, *words: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "reconciler", *words, str(self.manifests)],
            cwd=ROOT,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.running.append(process)
        return process

    def run(self, *words: str, seconds: float = 2 * PATIENCE) -> tuple[int, str]:
        process = self.start(*words)
        out, _ = process.communicate(timeout=seconds)
        assert "Traceback" not in out, out
        return process.returncode, out

    def once(self, *words: str, expect: int = 0) -> str:
        code, out = self.run("--once", *words)
        assert code == expect, out
        return out

    @contextmanager
    def watching(self, *words: str) -> "Iterator[subprocess.Popen[str]]":
        """A daemon that must still run at the end, and that ends on SIGTERM."""
        log = self.directory / f"watch-{len(self.running)}.log"
        with log.open("w") as out:
            daemon = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "reconciler", "--watch", str(self.manifests), *words],
                cwd=ROOT,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.running.append(daemon)
        try:
            until(lambda: self._holds(daemon.pid), "the daemon holds the instance and has its probe engine")
            yield daemon
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
                daemon.wait(PATIENCE)
            assert daemon.returncode == 143, log.read_text()
        except BaseException:
            print(log.read_text())
            raise
        finally:
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()
        assert "Traceback" not in log.read_text(), log.read_text()

    def _holds(self, pid: int) -> bool:
        owner = json.loads((self.state / "lock.owner").read_text())
        return bool(owner["pid"] == pid and Path(f"/proc/{pid}/task/{pid}/children").read_text())

    def log(self) -> str:
        """What the daemons have said so far."""
        return "".join(file.read_text() for file in sorted(self.directory.glob("watch-*.log")))

    def status(self) -> dict[str, Any]:
        code, out = self.run("status", "-o", "json")
        if code == 6:
            raise LookupError(out)  # nothing has been decided yet
        assert code == 0, out
        found: dict[str, Any] = json.loads(out)["status"]
        return found

    def replicas(self) -> dict[str, dict[str, Any]]:
        """The replicas by their ordinal's name (`web/0`), as the last decision has them."""
        found = {
            replica["replica"]: replica for workload in self.status()["workloads"] for replica in workload["replicas"]
        }
        return {name.removeprefix("workload/"): replica for name, replica in found.items()}

    def journal(self, action: str) -> list[tuple[str, int, int]]:
        """Object, begin and end (wall ns) of every journalled action of one kind, the latest last.

        One that found the container changed since the look behind it (a conflict) did nothing and is not among them.
        """
        with closing(sqlite3.connect(self.state / "state.db")) as store:
            query = (
                "SELECT object, wall, ended_wall FROM journal"
                " WHERE action LIKE ? AND ended_wall NOT NULL AND outcome <> 'conflict' ORDER BY id"
            )
            return list(store.execute(query, (f"{action} %",)))

    def starts_overlap(self, count: int) -> bool:
        """Whether the last `count` starts were all begun before any of them had ended."""
        last = self.journal("start")[-count:]
        return len(last) == count and max(began for _, began, _ in last) < min(ended for _, _, ended in last)

    # --- what is there ------------------------------------------------------------------------------------------

    def containers(self) -> list[str]:
        return sorted(self.api.names(f"reconciler.instance={self.id}"))

    def started_at(self) -> dict[str, str]:
        """When each container began, by name: its generation."""
        return {name: self.api.inspect(name)["State"]["StartedAt"] for name in self.containers()}

    def at_once(self, act: str, names: Iterable[str]) -> None:
        """Ask the engine for the same thing (`stop`, `kill`) for many containers at once, as an operator on the host does."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: self.api.link.post(f"/containers/{name}/{act}", name), names))

    def address(self, container: str) -> str:
        return str(self.api.inspect(container)["NetworkSettings"]["Networks"][self.network]["IPAddress"])

    def addresses(self) -> set[str]:
        return {self.address(name) for name in self.containers()}

    def pool(self) -> dict[str, int]:
        """Weight by address of all slots in use, as HAProxy itself says. Of two ports of one address, the higher weight."""
        found: dict[str, int] = {}
        for (address, _), weight in self.places().items():
            found[address] = max(weight, found.get(address, 0))
        return found

    def places(self) -> dict[tuple[str, str], int]:
        """Weight by address and port of all slots in use, as HAProxy itself says."""
        # Columns: 3 name, 4 address, 6 administrative state (5 bits of maintenance in 0x2B), 7 weight, 18 port.
        rows = [row for row in self.slots() if row[4] != "127.0.0.1"]
        return {(row[4], row[18]): 0 if int(row[6]) & 0x2B else int(row[7]) for row in rows}

    def call_down(self, address: str) -> None:
        """HAProxy's checks have found this address down, until enough of the next ones pass."""
        (slot,) = (row[3] for row in self.slots() if row[4] == address)
        self.haproxy(f"set server be_web/{slot} health down")

    def slots(self) -> list[list[str]]:
        """The rows of HAProxy's server state."""
        answer = self.haproxy("show servers state be_web")
        return [line.split() for line in answer.splitlines()[2:] if line]

    def haproxy(self, command: str) -> str:
        """One command on HAProxy's socket, and its answer."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(ANSWER)
            link.connect(str(self.directory / "admin.sock"))
            link.sendall(command.encode() + b"\n")
            data = b""
            while chunk := link.recv(65536):
                data += chunk
        return data.decode()

    def names(self) -> set[str]:
        """The addresses that BIND answers with."""
        answer = dns.query.udp(dns.message.make_query(NAME, "A"), "127.0.0.1", timeout=ANSWER, port=self.edge.dns)
        assert answer.rcode() in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN), answer
        return {item.address for rrset in answer.answer for item in rrset}

    def ask(self, address: str, path: str = "/", port: int = 8080, seconds: float = ANSWER) -> str:
        """One page. Raises OSError, also for an answer other than 200."""
        try:
            with urllib.request.urlopen(f"http://{address}:{port}{path}", timeout=seconds) as answer:
                return str(answer.read().decode().strip())
        except urllib.error.HTTPError as error:
            error.close()
            raise OSError(f"{path} answered {error.code}") from None
        except http.client.HTTPException as error:  # who answers ended in the middle of it
            raise OSError(f"{path}: {type(error).__name__}: {error}") from None

    def serves(self, addresses: set[str], weight: int = 100) -> bool:
        """Whether exactly these are in the pool with this weight, and under the name."""
        return self.pool() == dict.fromkeys(addresses, weight) and self.names() == addresses

    def settle(self, count: int = 3) -> None:
        """Wait until so many containers serve."""

        def settled() -> bool:
            found = self.addresses()
            return len(found) == count and "" not in found and self.serves(found)

        until(settled, f"{count} containers serve")

    @contextmanager
    def clients(self, page_pause: float = 0.01) -> Iterator[ClientLog]:
        """Clients of HAProxy and BIND, and a look at all weights, again and again until the block ends."""
        log, stop, began = ClientLog(), threading.Event(), time.monotonic()

        def page() -> None:
            try:
                text = self.ask("127.0.0.1", "/", self.edge.http)
                log.pages[text] = log.pages.get(text, 0) + 1
            except OSError as error:
                pool = log.pools[-1] if log.pools else {}
                log.failures.append(f"after {time.monotonic() - began:.2f} s: {error}; weights were {pool}")

        def pool() -> None:
            found = self.pool()
            if not log.pools or log.pools[-1] != found:
                log.pools.append(found)

        def name() -> None:
            found = frozenset(self.names())
            if not log.names or log.names[-1] != found:
                log.names.append(found)

        def again(act: Callable[[], None], pause: float) -> None:
            while not stop.wait(pause):
                try:
                    act()
                except (OSError, dns.exception.DNSException) as error:
                    log.errors.append(f"{type(error).__name__}: {error}")

        work = ((page, page_pause), (page, page_pause), (pool, 0.01), (name, 0.02))
        threads = [threading.Thread(target=again, args=task) for task in work]
        for thread in threads:
            thread.start()
        try:
            yield log
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)
