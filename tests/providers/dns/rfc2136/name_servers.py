"""Real name servers for the tests and the benchmark: BIND and Knot on loopback, each in a directory of its own.

Each has many empty zones (`z0.test.` and so on), so that no test waits for a server to start, and some special ones.
"""

import base64
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from providers.dns.rfc2136.provider import RFC2136Zones
from providers.dns.rfc2136.settings import RFC2136Settings
from providers.spi import Context
from providers.testing.checks import wait_until
from tests.free_ports import free_port

ZONES = 400
"""More than there are tests with a zone of their own for one server: one test process may get them all."""
UPDATE_SECRET = base64.b64encode(b"sentinel-update-secret-000000001").decode()
TRANSFER_SECRET = base64.b64encode(b"sentinel-transfer-secret-0000002").decode()
SECRETS = {"update.key": UPDATE_SECRET, "transfer.key": TRANSFER_SECRET}
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])

BORN = """$TTL 300
@ SOA ns1.{zone} hostmaster.{zone} 1 3600 600 86400 60
@ NS ns1.example.net.
"""


def program(name: str) -> str:
    path = shutil.which(name, path=PATH)
    assert path, name
    return path


class NameServer:
    """A server that can be started, stopped and killed. Besides: `few.test.` (few values in a set; BIND), `readonly.test.`, `closed.test.`, `trusting.test.` (needs no keys; BIND), `broken.test.`."""

    def __init__(self, directory: Path, extra: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._next = 0
        self.open_zones = [f"z{index}.test." for index in range(ZONES)]
        self.texts = {
            zone: BORN.format(zone=zone)
            for zone in [*self.open_zones, "few.test.", "readonly.test.", "closed.test.", "trusting.test."]
        }
        self.texts["broken.test."] = "@ SOA this is no zone\n"
        for zone, text in (extra or {}).items():
            self.open_zones.append(zone)
            self.texts[zone] = text
        for zone, text in self.texts.items():
            (self.directory / f"{zone}zone").write_text(text)
        for name, secret in SECRETS.items():
            path = self.directory / name
            path.write_text(secret + "\n")
            path.chmod(0o600)
        self.configure()

    def configure(self) -> None:
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    def new_zone(self) -> str:
        """An empty zone that no test has used."""
        assert self._next < len(self.open_zones), f"all {len(self.open_zones)} zones are used up; raise ZONES"
        zone = self.open_zones[self._next]
        self._next += 1
        return zone

    def start(self) -> None:
        """Start unless it runs, and wait until it serves."""
        if self.process is not None and self.process.poll() is None:
            return
        # Knot does not start while the pid of a killed one is in use, and pids are reused.
        (self.directory / "knot.pid").unlink(missing_ok=True)
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        names = self.provider(Context("harness", str(self.directory)))
        last = self.open_zones[-1]
        wait_until(lambda: not names.check([last]), f"the server serves {last}, see {self.directory / 'log'}")
        names.close()

    def kill(self) -> None:
        """Kill it, as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def settings(self, **changed: object) -> RFC2136Settings:
        """Settings for this server with both keys; None leaves a setting out."""
        settings: dict[str, object] = {
            "server": "127.0.0.1",
            "port": self.port,
            "updateKey": self.key("update.key"),
            "transferKey": self.key("transfer.key"),
            "timeout": "15s",
        }
        settings |= changed
        return RFC2136Settings.model_validate({name: value for name, value in settings.items() if value is not None})

    def key(self, name: str, file: str = "") -> dict[str, object]:
        return {"name": name, "secret": {"file": str(self.directory / (file or name))}}

    def provider(self, context: Context, **changed: object) -> RFC2136Zones:
        return RFC2136Zones("names", self.settings(**changed), context)

    def nsupdate(self, lines: Iterable[str], key: str = "update.key") -> None:
        """A change by hand, with BIND's own tool."""
        script = f"server 127.0.0.1 {self.port}\n" + "".join(f"{line}\n" for line in lines) + "send\n"
        secret = f"hmac-sha256:{key}:{SECRETS[key]}"
        subprocess.run([program("nsupdate"), "-v", "-y", secret], input=script, text=True, check=True, timeout=60)


class Named(NameServer):
    """BIND."""

    def configure(self) -> None:
        keys = "".join(
            f'key "{name}" {{ algorithm hmac-sha256; secret "{secret}"; }};\n' for name, secret in SECRETS.items()
        )
        zones = "".join(self._zone(zone) for zone in self.texts)
        (self.directory / "named.conf").write_text(f"""{keys}
options {{
  directory "{self.directory}"; pid-file none; session-keyfile "{self.directory}/session";
  listen-on port {self.port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};
  recursion no; dnssec-validation no; notify no; empty-zones-enable no; check-names primary ignore;
}};
controls {{ }};
{zones}""")

    def _zone(self, zone: str) -> str:
        rights = "allow-transfer { none; };"
        if zone in self.open_zones:
            rights = 'allow-transfer { key "transfer.key"; }; update-policy { grant update.key zonesub ANY; };'
            rights += " max-records-per-type 0;"
        elif zone == "few.test.":
            rights = 'allow-transfer { key "transfer.key"; }; update-policy { grant update.key zonesub ANY; };'
        elif zone == "readonly.test.":
            rights = 'allow-transfer { key "transfer.key"; };'
        elif zone == "trusting.test.":
            rights = "allow-transfer { any; }; allow-update { 127.0.0.1; };"
        return f'zone "{zone}" {{ type primary; file "{zone}zone"; {rights} }};\n'

    def command(self) -> list[str]:
        return [program("named"), "-g", "-n", "1", "-c", str(self.directory / "named.conf")]


class Knot(NameServer):
    """Knot DNS."""

    def configure(self) -> None:
        keys = "".join(
            f"  - id: {name}\n    algorithm: hmac-sha256\n    secret: {secret}\n" for name, secret in SECRETS.items()
        )
        (self.directory / "db").mkdir(exist_ok=True)
        zones = "".join(f"  - domain: {zone}\n" + self._acl(zone) for zone in self.texts)
        (self.directory / "knot.conf").write_text(f"""server:
    rundir: {self.directory}
    listen: 127.0.0.1@{self.port}
    background-workers: 1
    udp-workers: 1
    tcp-workers: 2
database:
    storage: {self.directory}/db
    journal-db-max-size: 64M
    kasp-db-max-size: 8M
    timer-db-max-size: 8M
    catalog-db-max-size: 8M
log:
  - target: stderr
    any: info
key:
{keys}
acl:
  - id: update
    key: update.key
    action: update
  - id: transfer
    key: transfer.key
    action: transfer
template:
  - id: default
    storage: {self.directory}
    file: "%s.zone"
    zonefile-sync: -1
    zonefile-load: whole
    journal-content: changes
    journal-max-usage: 16M
zone:
{zones}""")

    def _acl(self, zone: str) -> str:
        names = {"closed.test.": "", "readonly.test.": "transfer"}.get(zone, "update, transfer")
        return f"    acl: [{names}]\n" if names else ""

    def command(self) -> list[str]:
        return [program("knotd"), "-c", str(self.directory / "knot.conf")]
