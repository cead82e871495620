"""A world for draining and pushing: containers that answer slowly on purpose, and clients that notice every cut request.

Made from the edge example's servers (HAProxy only), with containers that run a small Python service, and with their own
pushes where a test wants them. The containers borrow Python from this host, so no image has to hold it.
"""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.edge_world import IMAGE, PATIENCE, ROOT, World, servers, until

BORROWED = sorted({str(ROOT), sys.base_prefix, sys.prefix, "/usr"})
APP = str(Path(__file__).with_name("traffic_app.py"))

WEB = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {{name: web}}
spec:
  replicas: {replicas}
  {push}
  runtimeRestart: "{restart}"
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      networks: [{network}]
      terminationGracePeriodSeconds: 5
      volumes: {volumes}
      containers:
        - name: web
          image: {image}
          imagePullPolicy: Never
          command: {command}
          env: {env}
          volumeMounts: {mounts}
          ports: [{{name: http, containerPort: 8080}}]
          readinessProbe: {{httpGet: {{path: /readyz, port: http}}, periodSeconds: 1, failureThreshold: 1}}
  restarts: {{backoff: {{initial: 1s, reset: 1s}}}}
  drain: {{min: {drain_min}, max: {drain_max}}}
---
apiVersion: reconciler/v1
kind: Service
metadata: {{name: web}}
spec:
  selector: {{app: web}}
  port: http
  balancers: [{{provider: edge-1, pool: be_web, slots: web}}]
"""

PUSHES = [sys.executable, "-m", "reconciler.push", "run", "--probe", "http://127.0.0.1:8080/readyz", "--interval", "1s"]


@dataclass
class Load:
    """What clients saw: how many requests were answered, by whom, and what failed."""

    served: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def total(self) -> int:
        with self.lock:
            return sum(self.served.values()) + len(self.failures)

    def answered(self, text: str) -> None:
        with self.lock:
            self.served[text] = self.served.get(text, 0) + 1

    def failed(self, text: str) -> None:
        with self.lock:
            self.failures.append(text)

    def check(self, least: int = 50) -> None:
        assert not self.failures, f"{len(self.failures)} of {self.total} requests failed: {self.failures[:3]}"
        assert self.total >= least, self.served


class Traffic(World):
    """One installation: `replicas` slow services behind a HAProxy of its own, and nothing published under a name.

    Args:
        docker: socket of the engine.
        replicas: how many.
        push: whether they push their own state.
        words: of the service's command line.
        command: another program than that service.
        drain: (min, max) as in manifests.
        restart: what the runtime does when one ends by itself.
        run: the command that pushes; empty: the service pushes itself.
        window: how long a new process of HAProxy is not believed.
    """

    def __init__(
        self,
        docker: str,
        replicas: int = 3,
        push: bool = False,
        words: Sequence[str] = (),
        command: Sequence[str] = (),
        drain: tuple[str, str] = ("1s", "8s"),
        restart: str = "unless-stopped",
        run: Sequence[str] = PUSHES,
        window: str = "1s",
    ) -> None:
        super().__init__(docker, replicas)
        places = [(path, path) for path in BORROWED] + [("/usr/lib", "/lib"), ("/usr/lib64", "/lib64")]
        program = list(command) or [sys.executable, APP, *words]
        env = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        text = WEB.format(
            replicas=replicas,
            push="push: {}" if push else "",
            restart=restart,
            network=self.network,
            image=IMAGE,
            command=json.dumps([*run, "--", *program] if push and run else program),
            env=json.dumps([{"name": name, "value": value} for name, value in env.items()]),
            volumes=json.dumps([{"name": f"v{n}", "hostPath": {"path": path}} for n, (path, _) in enumerate(places)]),
            mounts=json.dumps(
                [{"name": f"v{n}", "mountPath": path, "readOnly": True} for n, (_, path) in enumerate(places)]
            ),
            drain_min=drain[0],
            drain_max=drain[1],
        )
        (self.manifests / "web.yaml").write_text(text)
        self.edit("    stateFile:", f"    reloadWindow: {window}\n    stateFile:")
        self.edit(f"id: {self.id}\n", f"id: {self.id}\n" + ("  push: {}\n" if push else "") + INTERVALS)

    def start_servers(self, slots: str = "") -> None:
        """HAProxy only. `slots` are further words for its servers."""
        servers.prepare(self.edge)
        path = self.directory / "haproxy.cfg"
        text = path.read_text().replace("check inter 2s fall 3", f"check inter 2s fall 3 {slots}")
        for side in ("client", "server"):
            assert f"timeout {side} 10s" in text
            text = text.replace(f"timeout {side} 10s", f"timeout {side} 600s")  # only reconcile cuts requests
        path.write_text(text)
        servers.start_haproxy(self.edge)

    def reload(self) -> None:
        """Have HAProxy read its configuration again."""
        servers.reload_haproxy(self.edge)

    def settle(self, count: int = 3) -> None:
        """Wait until so many containers carry full weight."""

        def settled() -> bool:
            found = self.addresses()
            return len(found) == count and "" not in found and self.pool() == dict.fromkeys(found, 100)

        until(settled, f"{count} containers carry weight")

    def weight(self, container: str) -> int:
        """The weight of one container, 0 when it has no slot."""
        return self.pool().get(self.address(container), 0)

    def set_weight(self, container: str, weight: int) -> None:
        """Set a weight as an operator at HAProxy's socket does."""
        address = self.address(container)
        slot = next(row[3] for row in self.slots() if row[4] == address)
        self.haproxy(f"set weight be_web/{slot} {weight}")

    def fetch(self, path: str, seconds: float = PATIENCE) -> str:
        """One page through HAProxy. Raises OSError, also for an answer other than 200."""
        return self.ask("127.0.0.1", path, self.edge.http, seconds)

    def events(self) -> list[str]:
        """The latest push of every container that has pushed."""
        return [endpoint["push"]["event"] for endpoint in self.endpoints() if endpoint["push"] is not None]

    def endpoints(self) -> list[dict[str, Any]]:
        """What `reconcile get endpoints` says."""
        found: list[dict[str, Any]] = json.loads(self.tell("get", "endpoints", "-o", "json"))["endpoints"]
        return found

    def endpoint(self, container: str) -> dict[str, Any]:
        """The same of one container."""
        return next(endpoint for endpoint in self.endpoints() if endpoint["container"] == container)

    def under_way(self, *containers: str) -> int:
        """Requests that HAProxy has sent to these containers, or to all, and that are not answered yet."""
        addresses = {self.address(name) for name in containers}
        wanted = {row[3] for row in self.slots() if not containers or row[4] in addresses}
        rows = [line.split(",") for line in self.haproxy("show stat be_web 4 -1").splitlines()]
        scur, name = rows[0].index("scur"), rows[0].index("svname")
        return sum(int(row[scur]) for row in rows[1:] if len(row) > scur and row[name] in wanted)

    def go(self, *containers: str) -> None:
        """Let these containers answer what they hold."""
        for name in containers:
            self.ask(self.address(name), "/go")

    def held(self) -> list[dict[str, Any]]:
        """What the last decision holds back."""
        found: list[dict[str, Any]] = json.loads(self.tell("status", "-o", "json"))["holds"]
        return found

    @contextmanager
    def load(self, clients: int = 6, seconds: Sequence[float] = (0.02, 0.3, 1.0)) -> Iterator[Load]:
        """Clients that ask all the time: each takes turns between fast and slow requests until the block ends."""
        load, stop = Load(), threading.Event()

        def client(number: int) -> None:
            for turn in range(number, 1_000_000):
                if stop.is_set():
                    return
                pause, began = seconds[turn % len(seconds)], time.monotonic()
                try:
                    load.answered(self.fetch(f"/slow?{pause}"))
                except OSError as error:
                    took = time.monotonic() - began
                    load.failed(f"{time.strftime('%X')}: request of {pause} s failed after {took:.2f} s: {error}")
                    stop.wait(0.05)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield load
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)

    def tell(self, *words: str, expect: int = 0) -> str:
        """A command to the running daemon, and what it says."""
        code, out = self.run(*words)
        assert code == expect, out
        return out

    def docker(self, *words: str) -> str:
        """The engine's own command line, as an operator uses it."""
        command = ["docker", "-H", f"unix://{self.edge.docker}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout.strip()


INTERVALS = "  intervals: {runtime: 2s}\n"
"""Looks that are frequent, so that what a test does behind the program's back is found soon."""


@contextmanager
def serving(world: Traffic | str, slots: str = "", settled: bool = True, **words: Any) -> Iterator[Traffic]:
    """A world under a daemon; taken away at the end.

    Args:
        world: one, or the engine's socket to make one with `words`.
        slots: further words for HAProxy's servers.
        settled: wait until all its replicas serve.
    """
    made = Traffic(world, **words) if isinstance(world, str) else world
    try:
        made.start_servers(slots)
        with made.watching():
            if settled:
                made.settle()
            yield made
    finally:
        made.close()


class Agent:
    """An agent of HAProxy's agent-check, which gives all servers the same answer."""

    def __init__(self, answer: str) -> None:
        self.answer, self.asked = answer, 0
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        while not self._stop.is_set():
            line, _ = self._listener.accept()
            with line, suppress(OSError):
                self.asked += 1
                line.sendall(self.answer.encode())

    def __enter__(self) -> "Agent":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join(10)
        self._listener.close()
