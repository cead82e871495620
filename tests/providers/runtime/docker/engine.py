"""Real engines for the tests: one Docker daemon for all test processes, one Podman service per process, and their images."""

import fcntl
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from manifests.values.desired import Container, Port, Template
from manifests.values.image_ref import parse_image
from manifests.values.pod import Engine, Live
from providers.errors import ProviderError
from providers.runtime.docker.client import EngineClient
from providers.runtime.docker.create import Creator
from providers.testing.checks import wait_until
from tests.providers.runtime.docker.claims import Claim, raze, sweep

DOCKER_SOCKET = "/var/run/docker.sock"
BUSYBOX = "/bin/busybox"
IMAGE = "reconciler-test/busybox:1"
NETWORK = "reconciler-test"
"""The network of the tests' containers. Not the engine's own: a second daemon on the machine may remove that one."""

TOOLS = (
    "sh",
    "sleep",
    "echo",
    "cat",
    "httpd",
    "true",
    "false",
    "nc",
    "id",
    "kill",
    "ulimit",
    "env",
    "pwd",
    "touch",
    "ls",
    "mount",
)
PATIENCE = 120.0

SERVER_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
"""Servers are in directories that are not on every user's PATH."""


def image_tar(ballast: int = 0) -> bytes:
    """A tar for `docker import` with one static busybox, and `ballast` random bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(BUSYBOX, "bin/busybox")
        for tool in TOOLS:
            link = tarfile.TarInfo(f"bin/{tool}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for directory in ("tmp", "etc", "data"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            tar.addfile(entry)
        if ballast:
            entry = tarfile.TarInfo("ballast")
            entry.size = ballast
            tar.addfile(entry, io.BytesIO(os.urandom(ballast)))
    return buffer.getvalue()


def answers(path: str) -> bool:
    """Whether an engine answers at a socket."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(20.0)
            link.connect(path)
            link.sendall(b"GET /_ping HTTP/1.0\r\nHost: x\r\n\r\n")
            return b" 200 " in link.recv(200)
    except OSError:
        return False


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A lock between test workers."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _start(argv: list[str], log: Path, path: str, **env: str) -> int:
    with log.open("ab") as out:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env={**os.environ, **env}
        )
    deadline = time.monotonic() + PATIENCE
    while not answers(path):
        if process.poll() is not None:
            pytest.fail(f"{argv[0]} exited with {process.returncode}:\n{log.read_text()[-2000:]}", pytrace=False)
        if time.monotonic() > deadline:
            pytest.fail(f"{argv[0]} did not answer within {PATIENCE:.0f} s:\n{log.read_text()[-2000:]}", pytrace=False)
        time.sleep(0.05)
    process.returncode = 0  # it outlives this worker, which must not wait for it
    return process.pid


def ensure_docker(shared: Path) -> str:
    """A Docker daemon: the one that answers, else one that is started and left running (one per machine)."""
    with held(shared / "docker.lock"):
        if not answers(DOCKER_SOCKET):
            if os.geteuid() != 0:
                pytest.skip("needs a Docker daemon: run as root, or start one")
            program = shutil.which("dockerd", path=SERVER_PATH) or "dockerd"
            _start([program], shared / "dockerd.log", DOCKER_SOCKET)
        swept = shared / "swept"
        if not swept.exists():
            sweep(_clean_engine)
            swept.touch()
        _ensure_image(DOCKER_SOCKET)
    return DOCKER_SOCKET


@contextmanager
def podman_home() -> Iterator[Path]:
    """A directory for a Podman service, removed at the end. A short path, because Podman accepts no long one."""
    home = Path(tempfile.mkdtemp(prefix="pm-", dir="/tmp"))
    claim = Claim(home.name, directory=str(home))
    try:
        yield home
    finally:
        raze(str(home))
        claim.drop()


def ensure_podman(home: Path, *, engine: str = "", containers: str = "", run_first: str = "") -> str:
    """A Podman service with a store of its own in a `podman_home` of this test process; it exits when it is idle.

    Not shared like Docker's: Podman cannot list its containers while another process removes one.

    Args:
        engine, containers: lines for these tables of its settings.
        run_first: a line of shell that runs as root before it, in a mount namespace of the service with an empty /run.
    """
    path = str(home / "podman.sock")
    if not answers(path):
        if os.geteuid() != 0:
            pytest.skip("needs root: the addresses of rootless containers are unreachable")
        # Its default limit on open files may be above what this machine allows.
        settings = home / "containers.conf"
        limits = 'default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]'
        settings.write_text(f'[containers]\n{limits}\n{containers}\n[engine]\nevents_logger = "file"\n{engine}\n')
        store = ["--root", str(home / "root"), "--runroot", str(home / "run"), "--cgroup-manager", "cgroupfs"]
        argv = ["podman", *store, "system", "service", "--time=120", f"unix://{path}"]
        if run_first:
            script = f'mount -t tmpfs tmpfs /run && {run_first} && exec "$@"'
            argv = ["unshare", "--mount", "sh", "-c", script, "sh", *argv]
        _start(argv, home / "log", path, CONTAINERS_CONF=str(settings))
    _ensure_image(path)
    return path


def _clean_engine(path: str, instance: str) -> None:
    """Remove containers and networks of an instance, from an engine that may be stopped."""
    if answers(path):
        with closing(Api(path)) as api:
            api.clean(instance)
            for network in api.networks(instance):
                with suppress(ProviderError):  # another process may remove it at the same time
                    api.link.delete(f"/networks/{network}", network)


def _ensure_image(path: str) -> None:
    api = Api(path)
    try:
        if not api.has_image(IMAGE):
            api.import_image(IMAGE, image_tar())
        Creator(api.link, None, None).network("test", NETWORK, "test")  # type: ignore[arg-type]
    finally:
        api.close()


class Api:
    """The engine as an operator uses it on the command line, without the code under test."""

    def __init__(self, path: str) -> None:
        self.link = EngineClient("test", path)

    def close(self) -> None:
        self.link.close()

    def has_image(self, image: str) -> bool:
        with suppress(Exception):
            self.link.get(f"/images/{parse_image(image)}/json", image)
            return True
        return False

    def import_image(self, image: str, tar: bytes, *changes: str) -> None:
        client, ref = self.link._client(), parse_image(image)
        params: list[tuple[str, str]] = [("fromSrc", "-"), ("repo", ref.repository), ("tag", ref.tag)]
        params += [("changes", change) for change in changes]
        url = f"{client.base_url}/images/create"
        answer = client.post(url, params=params, data=tar, headers={"Content-Type": "application/x-tar"}, timeout=30)
        assert answer.ok, answer.text
        if not self.has_image(image):  # Podman takes the name without the tag
            self.link.post(f"/images/{ref.repository}:latest/tag", image, repo=ref.repository, tag=ref.tag)

    def create(self, name: str, *argv: str, image: str = IMAGE, **body: Any) -> str:
        host = {"NetworkMode": NETWORK, **body.pop("HostConfig", {})}
        config = {
            "Image": str(parse_image(image)),
            "Cmd": list(argv or ("/bin/sleep", "300")),
            "HostConfig": host,
            **body,
        }
        return str(self.link.post("/containers/create", name, config, name=name)["Id"])

    def inspect(self, name: str) -> dict[str, Any]:
        inspection: dict[str, Any] = self.link.get(f"/containers/{name}/json", name)
        return inspection

    def started(self, name: str) -> str:
        return str(self.inspect(name)["State"]["StartedAt"])

    def finished(self, name: str) -> str:
        return str(self.inspect(name)["State"]["FinishedAt"])

    def exec(self, name: str, *argv: str) -> int:
        """Run a command in a container to its end; its exit code."""
        made = self.link.post(f"/containers/{name}/exec", name, {"Cmd": list(argv), "AttachStdout": True})
        self.link.post(f"/exec/{made['Id']}/start", name, {"Detach": True})
        wait_until(lambda: not self.link.get(f"/exec/{made['Id']}/json", name)["Running"], f"{argv} ended")
        return int(self.link.get(f"/exec/{made['Id']}/json", name)["ExitCode"])

    def start(self, name: str) -> None:
        self.link.post(f"/containers/{name}/start", name)

    def kill(self, name: str) -> None:
        """`kill -9` its first process on the host."""
        pid = int(self.inspect(name)["State"]["Pid"])
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.inspect(name)["State"]["Pid"] != pid, f"the engine reports the exit of {name}")

    def remove(self, name: str) -> None:
        with suppress(Exception):
            self.link.delete(f"/containers/{name}", name, force="1", v="1")

    def names(self, label: str) -> list[str]:
        filters = json.dumps({"label": [label]})
        listed = self.link.containers("test", filters=filters)
        return [str(entry["Names"][0]).removeprefix("/") for entry in listed]

    def networks(self, part: str) -> list[str]:
        """The names of all networks that contain `part`."""
        listed = self.link.get("/networks", "test", filters=json.dumps({"name": [part]}))
        return [str(entry["Name"]) for entry in listed]

    def clean(self, instance: str) -> None:
        """Remove everything that carries an instance's label.

        Members of a replica (longer names) go before the container whose network they share: Podman refuses the other order, or leaves
        the network namespace behind.
        """
        for name in sorted(self.names(f"reconciler.instance={instance}"), key=len, reverse=True):
            self.remove(name)


POLITE = ("/bin/sh", "-c", "trap 'exit 0' TERM; /bin/sleep 300 & wait $!")
"""Exits on SIGTERM, and by itself after 300 s, because a killed test process does not stop it. No loop, so that an image
without `sleep` does not keep a core busy."""


def container(name: str = "web", *argv: str, ports: tuple[Port, ...] = (), **engine: Any) -> Container:
    """A container of the test image that exits on SIGTERM."""
    run = argv or POLITE
    return Container(name, run, ports=ports, engine=Engine(image=engine.pop("image", IMAGE), **engine))


def template(*containers: Container, revision: str = "0123456789abcdef", **fields: Any) -> Template:
    """A pod of these containers, with the defaults of a manifest."""
    main, *sidecars = containers or (container(),)
    live = fields.pop("live", None)
    if live is None:
        live = (
            Live("", restart=fields.pop("restart", "no")),
            *(Live(sidecar.name, restart="no") for sidecar in sidecars),
        )
    fields.setdefault("grace", 2_000_000_000)
    fields.setdefault("networks", (NETWORK,))
    return Template(
        (("app", "web"),), main, revision=revision, sidecars=tuple(sidecars), live=tuple(sorted(live)), **fields
    )
