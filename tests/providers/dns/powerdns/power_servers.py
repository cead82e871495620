"""A real PowerDNS server for the tests: on loopback, with SQLite, in a directory of its own."""

import json
import os
import shutil
import sqlite3
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from providers.dns.powerdns.provider import PowerDNSZones
from providers.dns.powerdns.settings import PowerDNSSettings
from providers.spi import Context
from providers.testing.checks import wait_until
from tests.free_ports import free_port

KEY = "sentinel-api-key-0001"
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
SCHEMA = "/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql"


class PowerServer:
    """A server that can be started and killed, and that makes empty zones."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.api_port, self.dns_port = free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._next = 0
        with sqlite3.connect(directory / "db") as database:
            database.executescript(Path(SCHEMA).read_text())
        database.close()
        (directory / "api.key").write_text(KEY + "\n")
        (directory / "api.key").chmod(0o600)
        (directory / "pdns.conf").write_text(f"""launch=gsqlite3
gsqlite3-database={directory}/db
gsqlite3-dnssec=no
gsqlite3-pragma-synchronous=0
local-address=127.0.0.1
local-port={self.dns_port}
api=yes
api-key={KEY}
webserver=yes
webserver-address=127.0.0.1
webserver-port={self.api_port}
webserver-allow-from=127.0.0.1
socket-dir={directory}
guardian=no
daemon=no
zone-cache-refresh-interval=0
cache-ttl=0
query-cache-ttl=0
negquery-cache-ttl=0
""")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    def start(self) -> None:
        """Start unless it runs, and wait until its API answers."""
        if self.process is not None and self.process.poll() is None:
            return
        program = shutil.which("pdns_server", path=PATH)
        assert program
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [program, f"--config-dir={self.directory}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(self._answers, f"the API answers, see {self.directory / 'log'}")

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def call(self, method: str, path: str, body: object = None) -> object:
        """One call of the API by hand."""
        request = urllib.request.Request(
            f"{self.url}/api/v1/servers/localhost{path}",
            method=method,
            headers={"X-API-Key": KEY, "Content-Type": "application/json"},
            data=None if body is None else json.dumps(body).encode(),
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def new_zone(self, name: str = "", **fields: object) -> str:
        """A new, empty zone."""
        self._next += 1
        zone = name or f"z{self._next}.test."
        self.call("POST", "/zones", {"name": zone, "kind": "Native", "nameservers": ["ns1.example.net."], **fields})
        return zone

    def patch(self, zone: str, *rrsets: dict[str, object]) -> None:
        """A change by hand."""
        self.call("PATCH", f"/zones/{zone}", {"rrsets": list(rrsets)})

    def settings(self, **changed: object) -> PowerDNSSettings:
        fields: dict[str, object] = {
            "url": self.url,
            "apiKey": {"file": str(self.directory / "api.key")},
            "timeout": "15s",
        }
        return PowerDNSSettings.model_validate(fields | changed)

    def provider(self, **changed: object) -> PowerDNSZones:
        return PowerDNSZones("names", self.settings(**changed), Context("harness", str(self.directory)))

    def dig(self, name: str, kind: str) -> list[str]:
        """What a client gets."""
        command = ["dig", "@127.0.0.1", "-p", str(self.dns_port), "+short", "+tries=2", "+time=10", name, kind]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return sorted(done.stdout.splitlines())

    def _answers(self) -> bool:
        try:
            self.call("GET", "/zones")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return True
