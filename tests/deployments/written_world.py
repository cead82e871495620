"""A repository with a shop, local documents with rights, and the commands and requests that change its image."""

import os
from pathlib import Path

from tests.git.upstream import Upstream, git

SHOP = """\
# The shop. Ask Ada before you change the port.
apiVersion: reconciler/v1
kind: Workload
metadata: {name: shop}
spec:
  nodes: [engine]
  template:
    spec:
      containers:
        - name: shop
          image: registry.test:5000/shop:1.4   # the release job writes this
"""
ENGINE = """\
---
apiVersion: reconciler/v1
kind: Provider
metadata: {name: engine}
spec: {type: docker}
"""


class Repository:
    """A bare repository with `prod/shop.yaml` and files elsewhere, and local documents that name it."""

    def __init__(self, base: Path, shop: str = SHOP, hash_name: str = "sha1", *, filters: bool = True) -> None:
        self.base, self.upstream = base, Upstream(base, hash_name, filters=filters)
        self.first = self.upstream.commit({"prod/shop.yaml": shop, "prod/sub/note.txt": "x", "other/large": "y"})
        self.local = base / "local"
        self.local.mkdir(mode=0o700)
        self.id = f"w{os.getpid()}"
        self.declare("writeBack: {mode: commit}")

    @property
    def url(self) -> str:
        return f"{self.upstream.url}//prod?ref=main"

    def declare(self, source: str = "", spec: str = "", ref: str = "main") -> Path:
        """Write the local documents: fields of the source, and other fields of the Instance."""
        return self.declare_url(f"{self.upstream.url}//prod?ref={ref}", source, spec)

    def declare_url(self, url: str, source: str = "", spec: str = "") -> Path:
        """As `declare`, for another address of the repository."""
        own = f"{{url: '{url}', interval: 10s{f', {source}' if source else ''}}}"
        text = f"id: {self.id}, source: {own}{f', {spec}' if spec else ''}"
        file = self.local / "host.yaml"
        file.write_text(
            f"apiVersion: reconciler/v1\nkind: Instance\nmetadata: {{name: this}}\nspec: {{{text}}}\n{ENGINE}"
        )
        file.chmod(0o600)
        return self.local

    def log(self, branch: str = "main") -> list[str]:
        """The numbers of the commits of a branch, newest first."""
        return git("log", "--format=%H", branch, at=self.upstream.bare).split()

    def show(self, what: str = "main:prod/shop.yaml") -> str:
        return git("show", what, at=self.upstream.bare) + "\n"

    def stat(self, branch: str = "main") -> str:
        return git("diff", "--numstat", f"{branch}~1", branch, at=self.upstream.bare)

    def hook(self, text: str) -> None:
        """Let the repository run this before it accepts a push."""
        file = self.upstream.bare / "hooks" / "pre-receive"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def refuse(self, reason: str = "protected branch") -> None:
        self.hook(f"echo '{reason}'; exit 1")

    def race(self, times: int) -> None:
        """Let another writer be faster, so many times."""
        self.hook(
            f"""\
unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
count=$(cat {self.base}/races 2>/dev/null || echo 0)
[ "$count" -ge {times} ] && exit 0
echo $((count + 1)) > {self.base}/races
export GIT_AUTHOR_NAME=Other GIT_AUTHOR_EMAIL=o@example.com GIT_COMMITTER_NAME=Other GIT_COMMITTER_EMAIL=o@example.com
git update-ref refs/heads/main $(git commit-tree -p main -m "another change $count" 'main^{{tree}}')"""
        )
