"""A run of the suite leaves the machine's engines and the user's state directories as it found them. Called by `tests/conftest.py`.

A second engine takes away `docker0` of the first one, and what a test leaves behind adds up over the runs. So the run looks at the
machine before and after, and fails when something is missing or left. Other programs, and other runs of the suite at the same time,
may make and remove objects meanwhile: what belongs to them is no difference.
"""

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.providers.runtime.docker.claims import RUN_FILE, Claim, live_claims

SOCKET = "/var/run/docker.sock"

PREFIX = "reconciler-test"
"""How images and networks begin that tests make once and share."""

FOUND = Path(tempfile.gettempdir()) / f"reconciler-test-found-{os.getuid()}"
"""Which of them were there before the first of the runs that overlap: the last of these runs removes the others."""

Objects = Mapping[str, frozenset[str] | None]
"""By kind, the names of all objects; None for a kind that cannot be listed here."""

DEFAULT_NETWORKS = frozenset({"bridge", "host", "none", "podman", "87-podman-bridge"})
"""Networks that the engines themselves keep."""

IN_PASSING = {
    "link": re.compile(r"veth|br-|cni-podman[1-9]|podman[1-9]|tap|dummy|ifb"),
    "iptables chain": re.compile(r"CNI-(DN-)?[0-9a-f]{20,}|NETAVARK-"),
    "network namespace": re.compile(r"(netns|cni)-"),
    "Docker volume": re.compile(r"[0-9a-f]{64}$"),
    "state directory": re.compile(r"/"),
}
"""Names that an engine gives to what belongs to a container or a network: it comes and goes with that one. A state directory in another
place than the user's is remembered with its path, until it is gone."""


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ask(path: str, verb: str, place: str) -> Any:
    """The answer of an engine. Raises OSError when it gives none."""
    link = _Unix(path)
    try:
        link.request(verb, place)
        answer = link.getresponse()
        text = answer.read()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        link.close()
    if answer.status >= 400:
        raise OSError(f"{verb} {place}: {answer.status}")
    return json.loads(text) if text.strip() else None


def snapshot(path: str = SOCKET, state: Path | None = None) -> Objects:
    """All objects of the engines and of the network that a test could make or remove, and the state directories below `state`."""
    return {
        "state directory": None if state is None else frozenset(_state_directories(state)),
        "link": frozenset(os.listdir("/sys/class/net")),
        "route": frozenset(_routes()),
        "iptables chain": _chains(),
        "network namespace": _names("/run/netns"),
        **_docker(path),
        "Podman network": frozenset(
            file.stem
            for place in ("/etc/cni/net.d/*.conflist", "/etc/containers/networks/*.json")
            for file in Path("/").glob(place.removeprefix("/"))
        ),
        "Podman container": _stored("*-containers/containers.json"),
        "Podman image": _stored("*-images/images.json"),
    }


def _state_directories(base: Path) -> Iterator[str]:
    """The instances, the mirrors of repositories, and the paths of state directories in other places."""
    for name in _names(str(base)):
        if name == ".index":
            for pointer in (base / name).glob("*.json"):
                with suppress(OSError, ValueError, KeyError):
                    yield str(json.loads(pointer.read_text())["state_dir"])
        elif name.startswith("."):
            yield from (f"{name}/{mirror}" for mirror in _names(str(base / name)))
        else:
            yield name


def _routes() -> Iterator[str]:
    """The routes of Docker's default bridge. The kernel prints addresses as they are in memory."""
    with suppress(OSError):
        for line in Path("/proc/net/route").read_text().splitlines()[1:]:
            device, target = line.split()[:2]
            if device == "docker0":
                yield f"{socket.inet_ntoa(bytes.fromhex(target)[::-1])} by {device}"


def _chains() -> frozenset[str] | None:
    program = shutil.which("iptables", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None or os.geteuid():
        return None
    chains: set[str] = set()
    for table in ("filter", "nat"):
        done = subprocess.run(
            [program, "--wait", "-t", table, "-S"], capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            return None
        chains |= {f"{line.split()[1]} of {table}" for line in done.stdout.splitlines() if line.startswith("-N ")}
    return frozenset(chains)


def _names(directory: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(directory))
    except OSError:
        return frozenset()


def _stored(pattern: str) -> frozenset[str]:
    """Names in the store of Podman's own service. Tests have stores of their own."""
    names: set[str] = set()
    for file in Path("/var/lib/containers/storage").glob(pattern):
        with suppress(OSError, ValueError):
            names |= {", ".join(entry.get("names") or ()) or entry["id"][:12] for entry in json.loads(file.read_text())}
    return frozenset(names)


def _docker(path: str) -> dict[str, frozenset[str] | None]:
    kinds = ("Docker container", "Docker network", "Docker volume", "Docker image")
    try:
        containers = _ask(path, "GET", "/containers/json?all=1")
        networks, volumes = _ask(path, "GET", "/networks"), _ask(path, "GET", "/volumes")["Volumes"] or []
        images = _ask(path, "GET", "/images/json")
    except OSError:
        return dict.fromkeys(kinds)
    found = (
        {_container(entry) for entry in containers},
        {network["Name"] for network in networks},
        {volume["Name"] for volume in volumes},
        {name for image in images for name in _tags(image)},
    )
    return {kind: frozenset(names) for kind, names in zip(kinds, found, strict=True)}


def _container(entry: Mapping[str, Any]) -> str:
    name = str(entry["Names"][0]).removeprefix("/")
    instance = (entry.get("Labels") or {}).get("reconciler.instance", "")
    return f"{name} of instance {instance}" if instance else name


def _tags(image: Mapping[str, Any]) -> list[str]:
    tags = [tag for tag in image.get("RepoTags") or () if tag != "<none>:<none>"]
    return tags or [f"untagged {image['Id'].partition(':')[2][:12]}"]


def compare(before: Objects, after: Objects, mine: Iterable[str], others: Iterable[str], *, alone: bool) -> list[str]:
    """What is missing or left, one line each.

    Args:
        mine: names that tests of this run claimed; what carries one of them and was not there before is left.
        others: names that other runs claimed; what carries one of them is theirs.
        alone: no other run of the suite is under way. Then what has no owner but looks like a test's is left, too, and
            whatever is gone is missing; else only what an engine itself keeps.
    """
    mine, others = tuple(mine), tuple(others)
    lines = []
    for kind, now in after.items():
        then = before.get(kind)
        if now is None:
            if then is not None:
                lines.append(f"{kind}s cannot be listed any more")
            continue
        lines += [
            f"left: {kind} {name}" for name in sorted(now - (then or frozenset())) if _left(kind, name, mine, alone)
        ]
        if then is not None:
            lines += [
                f"missing: {kind} {name}" for name in sorted(then - now) if not _in_passing(kind, name, others, alone)
            ]
    return lines


def _left(kind: str, name: str, mine: tuple[str, ...], alone: bool) -> bool:
    if any(claim in name for claim in mine):
        return True
    if not alone:
        return False
    if (
        kind == "state directory"
        or name.startswith(PREFIX)
        or (kind == "Docker image" and name.startswith("127.0.0.1:"))
    ):
        return True
    passing = IN_PASSING.get(kind)
    return passing is not None and kind != "link" and passing.match(name) is not None


def _in_passing(kind: str, name: str, others: tuple[str, ...], alone: bool) -> bool:
    """Whether an object may be gone although no test of this run removed it."""
    if not alone and kind.startswith(("Docker ", "Podman ")) and name not in DEFAULT_NETWORKS:
        return True
    passing = IN_PASSING.get(kind)
    if passing is not None and passing.match(name):
        return True
    return (
        name.startswith((PREFIX, "127.0.0.1:", "untagged "))
        or " of instance " in name
        or any(claim in name for claim in others)
    )


class Watched:
    """One run of the suite: what was there before, and the names that its tests claimed."""

    def __init__(self, state: Path, path: str = SOCKET) -> None:
        self._path, self._state = path, state
        self._others = live_claims()
        self._claim = Claim(f"run-{os.getpid()}")
        handle, self._names = tempfile.mkstemp(prefix="reconciler-test-run-")
        os.close(handle)
        os.environ[RUN_FILE] = self._names  # the workers inherit it
        self._before = snapshot(path, state)
        if not self._others or not FOUND.exists():
            FOUND.write_text("\n".join(sorted(self._shared(self._before))))

    def end(self) -> list[str]:
        """Remove what tests shared, unless another run needs it; return what is missing or left."""
        os.environ.pop(RUN_FILE, None)
        mine = set(Path(self._names).read_text().split())
        os.unlink(self._names)
        self._claim.drop()
        others = live_claims()
        alone = not others | self._others
        if not others:
            self._remove_shared(set(FOUND.read_text().splitlines()) if FOUND.exists() else set())
            FOUND.unlink(missing_ok=True)
        return compare(self._before, snapshot(self._path, self._state), mine, {*others, *self._others}, alone=alone)

    def _shared(self, objects: Objects) -> set[str]:
        """Images and networks that tests share, as the path of each in the engine's API."""
        images, networks = objects["Docker image"] or (), objects["Docker network"] or ()
        return {f"/images/{name}" for name in images if name.startswith(f"{PREFIX}/")} | {
            f"/networks/{name}" for name in networks if name == PREFIX
        }

    def _remove_shared(self, found: set[str]) -> None:
        for place in sorted(self._shared(snapshot(self._path)) - found):
            with suppress(OSError):  # then the comparison finds it
                _ask(self._path, "DELETE", f"{place}?force=1" if place.startswith("/images/") else place)
