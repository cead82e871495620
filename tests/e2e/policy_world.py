"""A host with a real engine, a real registry and a real repository, whose image policies roll out without a commit."""

import json
import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from providers.errors import Gone
from reconciler.shell.report.last_decision import last_decision, revisions_json
from reconciler.shell.store.directory import StoreError
from tests.e2e.edge_world import image
from tests.e2e.shop_world import version_tar
from tests.e2e.test_git_source import Host
from tests.providers.runtime.docker.claims import Claim
from tests.providers.runtime.docker.engine import Api
from tests.providers.runtime.docker.registry import RegistryServer

ROLLOUT = "{strategy: activate, activationDelay: 0s, precheck: 0s, pendingGrace: 5s, bake: 3s, rollbackWindow: 10m}"

WEB = """\
apiVersion: reconciler/v1
kind: Workload
metadata: {name: web}
spec:
  nodes: [engine]
  imagePolicies: [{container: web, %(rule)s, interval: 10s}]
  rollout: %(rollout)s
  drain: {max: 1s}
  template:
    spec:
      terminationGracePeriodSeconds: 2
      containers:
        - name: web
          image: %(image)s
          command: [/serve]
          readinessProbe: {exec: {command: [test, -e, /www/readyz]}, periodSeconds: 1, failureThreshold: 1}
"""

LOCAL = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: this}
spec: {id: %(id)s, source: {url: '%(url)s//set?ref=main', interval: 10s}, imagePolicies: {apply: %(apply)s, registries: [{server: '%(server)s', insecure: true}]}}
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: engine}
spec: {type: docker, settings: {socket: %(socket)s}}
"""


class PolicyHost(Host):
    """The host. `rule` is the policy of its one workload."""

    def __init__(self, base: Path, engine: str, registry: RegistryServer, rule: str = 'semver: "1.x"') -> None:
        self.engine, self.registry, self.rule, self.api = engine, registry, rule, Api(engine)
        self.name = f"web{secrets.token_hex(3)}"
        super().__init__(base)
        self.claim = Claim(self.id, engine, str(base))
        self.allow("rollout")

    def declare(self, source: str) -> None:
        """Nothing: `allow` writes the local documents."""

    def allow(self, apply: str, guard: str = "") -> None:
        """Write the local documents. `guard` are fields of the Guard."""
        text = LOCAL % {
            "id": self.id,
            "url": self.upstream.url,
            "apply": apply,
            "server": self.registry.host,
            "socket": self.engine,
        }
        if guard:
            text += f"---\napiVersion: reconciler/v1\nkind: Guard\nmetadata: {{name: this}}\nspec: {{{guard}}}\n"
        (self.local / "host.yaml").write_text(text)
        (self.local / "host.yaml").chmod(0o600)

    def image(self, tag: str) -> str:
        return f"{self.registry.host}/{self.name}:{tag}"

    def write(self, tag: str, rule: str = "", rollout: str = ROLLOUT) -> str:
        """Commit the manifest with this image; the number of the commit."""
        text = WEB % {"rule": rule or self.rule, "image": self.image(tag), "rollout": rollout}
        return self.upstream.commit({"set/web.yaml": text, "set/app/serve.py": None})

    def publish(self, tag: str, kind: str = "") -> str:
        """Put a version into the registry: `quiet` ones never become ready. Its digest."""
        source = f"reconciler-test/{self.name}-{tag}:1"
        repository, _, name = source.rpartition(":")
        url = f"/images/create?fromSrc=-&repo={repository}&tag={name}"
        status, words = image.ask(self.engine, "POST", url, version_tar(f"{tag}{kind}"))
        assert status == 200, words
        digest = self.registry.push(source, f"{self.name}:{tag}")
        self.api.link.delete(f"/images/{source}", source)
        return digest

    def containers(self) -> dict[str, tuple[str, str]]:
        """The image and the id of each running container, by name."""
        found = {}
        for name in self.api.names(f"reconciler.instance={self.id}"):
            try:
                container = self.api.inspect(name)
            except Gone:
                continue
            if container["State"]["Running"]:
                found[name] = (str(container["Config"]["Labels"]["reconciler.image"]), str(container["Id"]))
        return found

    def serves(self, tag: str) -> bool:
        """Whether exactly one container runs, of this version, and has the traffic."""
        running = self.containers()
        return [known for known, _ in running.values()] == [self.image(tag)] and self.active() == self.image(tag)

    def active(self) -> str:
        """The image of the revision that has the traffic."""
        try:
            stored = last_decision(self.home / "reconciler" / self.id)
        except StoreError:
            return ""  # it has not run yet
        rows = [] if stored is None else revisions_json(stored)["revisions"]
        return next((str(row["image"]) for row in rows if row["status"] == "active"), "")

    def choice(self) -> dict[str, Any]:
        """What status says of the image of the one container; empty before anything is known of it."""
        workloads = self.status().get("status", {}).get("workloads", [])
        rows: list[dict[str, Any]] = workloads[0].get("images", []) if workloads else []
        return rows[0] if rows else {}

    def stored(self) -> dict[str, Any]:
        """The file of choices; empty without one."""
        file = self.home / "reconciler" / self.id / "image-choices.json"
        if not file.exists():
            return {}
        assert file.stat().st_mode & 0o777 == 0o600
        rows = json.loads(file.read_text())["choices"]
        return rows[0] if rows else {}

    @contextmanager
    def killed(self) -> Iterator["subprocess.Popen[str]"]:
        """A daemon that is killed at the end."""
        process = self.start("--watch", "--instance", str(self.local))
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()

    def close(self) -> None:
        self.api.clean(self.id)
        self.api.close()
        self.claim.drop()
