"""Versions of the example's service in a registry of their own, and an installation that switches between them.

Each version says its number in every page. `quiet` ones never become ready; `frail` ones can be made unready for good.
"""

import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any

from reconciler.shell.report.last_decision import last_decision, revisions_json
from tests.e2e.edge_world import Api, World, image
from tests.providers.runtime.docker.registry import RegistryServer

NAME = "shop/web"

QUIET = ("echo ready >/www/readyz", "rm -f /www/readyz")
FRAIL = ("echo ready >/www/readyz", "[ -e /bad ] || echo ready >/www/readyz")
FRAIL_CGI = ("unready) rm -f /www/readyz ;;", "unready) touch /bad; rm -f /www/readyz ;;")


def version_tar(version: str) -> bytes:
    """The image's file system for one version: a number, and what is odd about it."""
    scripts = {"serve": image.SERVE.replace("hello from", f"version {version} from"), "cgi": image.CGI}
    if "quiet" in version:
        scripts["serve"] = _changed(scripts["serve"], QUIET)
    if "frail" in version:
        scripts["serve"] = _changed(scripts["serve"], FRAIL)
        scripts["cgi"] = _changed(scripts["cgi"], FRAIL_CGI)
    return tar_with(scripts)


def tar_with(scripts: Mapping[str, str]) -> bytes:
    """The file system of the edge example's image, with other scripts in place of those of the same name."""
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(image.tar())) as old, tarfile.open(fileobj=out, mode="w") as new:
        for entry in old:
            if entry.name in scripts:
                data = scripts[entry.name].encode()
                entry.size = len(data)
                new.addfile(entry, io.BytesIO(data))
            else:
                new.addfile(entry, old.extractfile(entry) if entry.isfile() else None)
    return out.getvalue()


def _changed(text: str, change: tuple[str, str]) -> str:
    assert change[0] in text, change
    return text.replace(*change)


class Shop(World):
    """The example with the images of its service in a registry, and with a rollout.

    Args:
        docker: socket of the engine.
        registry: where the versions are.
        rollout: the manifest's `rollout`, as one line of YAML.
    """

    def __init__(self, docker: str, registry: RegistryServer, rollout: str) -> None:
        super().__init__(docker, replicas=2)
        self.registry = registry
        self.edit("image: reconciler-test/web:1", f"image: {self.image('1')} # the release job writes this")
        self.edit("imagePullPolicy: Never # the image is in no registry", "imagePullPolicy: IfNotPresent")
        self.edit("  replicas: 2\n", f"  replicas: 2\n  rollout: {rollout}\n")

    def image(self, version: str) -> str:
        return f"{self.registry.host}/{NAME}:{version}"

    def publish(self, version: str) -> str:
        """Make a version and put it into the registry; its digest."""
        source = f"reconciler-test/{self.id}-{version}:1"
        made = Api(self.edge.docker)
        try:
            repository, _, tag = source.rpartition(":")
            url = f"/images/create?fromSrc=-&repo={repository}&tag={tag}"
            status, words = image.ask(self.edge.docker, "POST", url, version_tar(version))
            assert status == 200, words
            digest = self.registry.push(source, f"{NAME}:{version}")
            made.link.delete(f"/images/{source}", source)
            return digest
        finally:
            made.close()

    def deploy(self, version: str, *words: str) -> dict[str, Any]:
        code, out = self.run("deploy", "workload/web", "--image", self.image(version), "-o", "json", *words)
        assert code == 0, out
        found: dict[str, Any] = json.loads(out)
        return found

    def revisions(self) -> dict[str, dict[str, Any]]:
        """The rows of `get revisions`, by the version in their image."""
        code, out = self.run("get", "revisions", "-o", "json")
        assert code == 0, out
        return _by_version(json.loads(out)["revisions"])

    def standing(self, version: str) -> str:
        """The status of a version in the last decision, without the seconds that a command takes to start."""
        stored = last_decision(self.state)
        rows = {} if stored is None else _by_version(revisions_json(stored)["revisions"])
        return str(rows[version]["status"]) if version in rows else ""

    def of_version(self, version: str) -> dict[str, str]:
        """Addresses of the running containers of a version, by name."""
        found = {}
        for name in self.containers():
            container = self.api.inspect(name)
            if container["State"]["Running"] and container["Config"]["Labels"]["reconciler.image"] == self.image(
                version
            ):
                found[name] = self.address(name)
        return found

    def ids(self) -> dict[str, str]:
        """The id of each container by name: another id is another container."""
        return {name: str(self.api.inspect(name)["Id"]) for name in self.containers()}


def _by_version(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["image"].rpartition(":")[2]: row for row in rows}


def versions(pages: dict[str, int]) -> set[str]:
    """The versions that pages were answered by."""
    return {page.split()[1] for page in pages}
