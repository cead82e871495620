"""A name with several gateways behind it, on a real name server: shared by the stories about leaf health and the benchmark.

Gateways are small HTTP servers on loopback addresses of their own, which can be made to fail. The program runs as its own process.
"""

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

from providers.facts import RecordKey, RecordSet  # noqa: E402
from providers.spi import Context  # noqa: E402
from tests.free_ports import free_port  # noqa: E402
from tests.providers.dns.powerdns import power_servers  # noqa: E402
from tests.providers.dns.rfc2136 import name_servers  # noqa: E402  (found beside the tests of the providers)

NETWORK = "127.0.77.0/24"
PATIENCE = 120.0
"""Seconds that anything may take on a busy machine. Only a failure waits for so long."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A prober hangs up with a reset, also while it is being answered."""


class Gateway:
    """One address that answers health checks with 200, or with 503 while `healthy` is False. When it last began to fail or pass is kept (perf_counter)."""

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.healthy = True
        self.failed_at = self.passed_at = 0.0
        self.hosts: set[str] = set()
        gateway = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                gateway.hosts.add(self.headers.get("Host", ""))
                good = gateway.healthy
                self.send_response(200 if good else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()
                if good and not gateway.passed_at:
                    gateway.passed_at = time.perf_counter()
                if not good and not gateway.failed_at:
                    gateway.failed_at = time.perf_counter()

            def log_message(self, *args: object) -> None:
                """Log nothing."""

        self._server = _Server((address, port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def fail(self) -> None:
        self.failed_at = 0.0
        self.healthy = False

    def recover(self) -> None:
        self.passed_at = 0.0
        self.healthy = True

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()


class NameServer:
    """One of the three servers: its provider document, and what its clients see."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        directory.mkdir(parents=True, exist_ok=True)
        if kind == "powerdns":
            self._power = power_servers.PowerServer(directory)
            self._power.start()
            self.zone, self.port = self._power.new_zone("health.test."), self._power.dns_port
            settings: dict[str, object] = {"url": self._power.url, "apiKey": {"file": str(directory / "api.key")}}
        else:
            made = name_servers.Named if kind == "named" else name_servers.Knot
            self._names = made(directory)
            self._names.start()
            self.zone, self.port = self._names.new_zone(), self._names.port
            keys = {"updateKey": self._names.key("update.key"), "transferKey": self._names.key("transfer.key")}
            settings = {"server": "127.0.0.1", "port": self.port, **keys}
        kind = "powerdns" if self.kind == "powerdns" else "rfc2136"
        self.document = document("Provider", "names", type=kind, settings={**settings, "timeout": "15s"})

    def new_zone(self) -> str:
        """Another empty zone of the same server."""
        self.zone = (
            self._power.new_zone(f"h{time.monotonic_ns()}.test.") if self.kind == "powerdns" else self._names.new_zone()
        )
        return self.zone

    def records(self) -> dict[RecordKey, RecordSet]:
        """The whole zone, read by a provider of its own."""
        if self.kind == "powerdns":
            provider: Any = self._power.provider()
        else:
            provider = self._names.provider(Context("reader", str(self._names.directory)))
        try:
            (fact,) = provider.observe([self.zone])
        finally:
            provider.close()
        return dict(fact.records)

    def dig(self, name: str, kind: str = "A") -> list[str]:
        """What a client gets, without names on the way."""
        command = [shutil.which("dig") or "dig", "@127.0.0.1", "-p", str(self.port), "+short", "+tries=2", "+time=10"]
        done = subprocess.run([*command, name, kind], capture_output=True, text=True, check=True, timeout=PATIENCE)
        return sorted(line for line in done.stdout.splitlines() if not line.endswith("."))

    def kill(self) -> None:
        (self._power if self.kind == "powerdns" else self._names).kill()


def document(kind: str, name: str, **spec: object) -> dict[str, object]:
    """A manifest; JSON is YAML."""
    return {"apiVersion": "reconciler/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


class World:
    """A policy over some gateways, a name server, and the program."""

    def __init__(self, base: Path, server: NameServer, gateways: int = 3) -> None:
        self.base, self.server = base, server
        self.manifests = base / "manifests"
        self.manifests.mkdir(parents=True)
        self.env = {**os.environ, "XDG_STATE_HOME": str(base / "home")}
        self.host = f"app.{server.zone}"
        self.port = free_port()
        # Addresses of this process's own, so that two worlds of a run do not meet.
        first = os.getpid() % 60 * 4 + 1
        self.gateways = [Gateway(f"127.0.77.{first + number}", self.port) for number in range(gateways)]
        self.daemon: subprocess.Popen[str] | None = None

    @property
    def addresses(self) -> list[str]:
        return sorted(gateway.address for gateway in self.gateways)

    def write(
        self,
        targets: list[dict[str, object]],
        allowed: tuple[str, ...] | list[str] = (NETWORK,),
        more: list[dict[str, object]] | None = None,
        **spec: object,
    ) -> None:
        """The manifests: one policy with these targets, and more documents."""
        check = {"protocol": "HTTP", "port": self.port, "path": "/up", "interval": "800ms", "failureThreshold": 2}
        policy = {"host": self.host, "zone": self.server.zone, "ttl": "1s", "healthCheck": check, "targets": targets}
        instance: dict[str, object] = {"id": "health", "intervals": {"dns": "5s"}}
        documents = [
            document("Instance", "here", **instance, allowAddresses=list(allowed)),
            self.server.document,
            document("DNSPolicy", "app", **{**policy, **spec}),
            *(more or ()),
        ]
        text = "\n---\n".join(json.dumps(manifest, indent=1) for manifest in documents)
        (self.manifests / "all.yaml").write_text(text + "\n")

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "reconciler", *words, str(self.manifests)]
        with (self.base / "log").open("a") as log:
            return subprocess.Popen(
                command, cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def run(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        out, _ = process.communicate(timeout=2 * PATIENCE)
        assert "Traceback" not in self.log(), self.log()
        return process.returncode, out

    def watch(self) -> None:
        self.daemon = self.start("--watch")

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.daemon is not None:
            self.daemon.send_signal(how)
            self.daemon.communicate(timeout=PATIENCE)
            self.daemon = None

    def log(self) -> str:
        file = self.base / "log"
        return file.read_text() if file.exists() else ""

    def published(self) -> list[str]:
        return self.server.dig(self.host)

    def until(self, what: Callable[[], bool], seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, f"it did not come true in time; {self.published()}; {self.log()[-3000:]}"
            time.sleep(0.05)

    def until_published(self, *gateways: Gateway) -> None:
        wanted = sorted(gateway.address for gateway in gateways)
        self.until(lambda: self.published() == wanted)

    def published_without(self, down: set[str]) -> bool:
        """Whether the name has answers, and none of these is among them."""
        found = set(self.published())
        return bool(found) and not found & down

    def dangling(self) -> set[str]:
        """Names that a CNAME of the zone points at within it, and that have no records."""
        records = self.server.records()
        there = {key.name for key in records}
        pointed = {value for key, record in records.items() if key.type == "CNAME" for value in record.values}
        return {name for name in pointed if name.endswith(f".{self.server.zone}") and name not in there}

    def close(self) -> None:
        self.stop(signal.SIGKILL)
        for gateway in self.gateways:
            gateway.close()
