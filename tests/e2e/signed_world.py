"""A host whose manifests come from a git repository with signed commits, and a forge that reports pushes to its webhook."""

import http.client
import json
import secrets
import subprocess
from pathlib import Path

from tests.e2e.program import Program, processes
from tests.e2e.quickstart_world import PATIENCE, until
from tests.free_ports import free_port
from tests.git.signed_repository import SignedRepository, SshKey
from tests.web.webhook_world import SECRET, body_of, headers_of

WORKLOAD = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: w}
spec:
  template:
    metadata: {labels: {app: w}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: a, command: [sh, -c, "exec sleep 86397"], env: [{name: WORLD, value: "@WORLD@"}, {name: N, value: "@N@"}]}]
"""

HOST = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: here}
spec:
  id: "@ID@"
  allowProcess: [w]
  source: @SOURCE@
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: local}
spec: {type: process}
"""


class SignedWorld(Program):
    """One user's machine, its local documents, and the repository.

    Args:
        base: an empty directory.
        source: fields of `spec.source` beside those that every world has.
    """

    def __init__(self, base: Path, **source: object) -> None:
        super().__init__(base, f"g{secrets.token_hex(4)}")
        self.repository = SignedRepository(base)
        self.alice, self.mallory = SshKey(base, "alice"), SshKey(base, "mallory")
        self.local = base / "local"
        self.local.mkdir(mode=0o700)
        self.port = free_port()
        self.trust(self.alice)
        self.secret = self.file("secret", SECRET)
        verify = {"mode": "head", "keys": [{"ssh": str(self.local / "signers")}]}
        webhook = {"listen": f"127.0.0.1:{self.port}", "secret": {"file": self.secret}, "provider": "github"}
        url = f"git+file://{self.repository.bare}//prod?ref=main"
        self.source: dict[str, object] = {"url": url, "interval": "10s", "verify": verify, "webhook": webhook, **source}
        self.write()
        self.deliveries = 0

    def write(self) -> None:
        """Write the local documents."""
        source = json.dumps({name: value for name, value in self.source.items() if value is not None})
        self.file("host.yaml", HOST.replace("@ID@", self.id).replace("@SOURCE@", source))

    def file(self, name: str, text: str) -> str:
        path = self.local / name
        new = self.local / f".{name}.new"
        new.write_text(text)
        new.chmod(0o600)
        new.replace(path)
        return str(path)

    def trust(self, *keys: SshKey) -> None:
        """The keys whose signatures count from now on."""
        self.file("signers", "".join(f"{key.public}\n" for key in keys))

    def commit(self, number: int, key: SshKey | None) -> str:
        """Push a commit with a workload that differs from those of other numbers."""
        place = self.repository.work / "prod"
        place.mkdir(exist_ok=True)
        (place / "w.yaml").write_text(WORKLOAD.replace("@WORLD@", str(self.base)).replace("@N@", str(number)))
        self.repository.git("add", "prod")
        return self.repository.commit(f"number {number}", key)

    def deliver(self, ref: str = "refs/heads/main") -> tuple[int, dict]:
        """What the forge does after a push."""
        self.deliveries += 1
        body = body_of(ref)
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            client.request("POST", "/v1/webhook", body, headers_of("github", body, f"d-{self.deliveries}"))
            answer = client.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            client.close()

    def status(self) -> str:
        """What `status` prints, whatever its exit code is: a daemon may be on its way."""
        _, out, _ = self.ask("status", "--instance-id", self.id)
        return out

    def watch(self, *, listens: bool = True) -> subprocess.Popen[str]:
        """Start a daemon, and wait until it answers, to webhooks too."""
        daemon = super().watch("--instance", self.local)
        if listens:
            until(self.listening, PATIENCE)
        return daemon

    def listening(self) -> bool:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            client.request("GET", "/")
            return client.getresponse().status == 404
        except OSError:
            return False
        finally:
            client.close()

    def numbers(self) -> list[str]:
        """The numbers of the commits whose workload runs."""
        running = processes(b"sleep\x0086397\x00", self.base)
        return [value[2:].decode() for _, variables in running for value in variables if value.startswith(b"N=")]

    def close(self) -> None:
        """End the daemons, and remove what runs."""
        self.stop()
        if self.state.exists():
            self.run("destroy", "--instance-id", self.id, "--yes")
