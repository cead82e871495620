"""The servers of the example, on loopback: `servers.py up|down|status [--dir DIR] [--http PORT] [--dns PORT]`.

`up` starts the missing servers: a Docker daemon if none answers, HAProxy with slots in its configuration, and BIND with a zone
that accepts signed updates. All files are in one directory that belongs to root (BIND drops the right to write elsewhere). Servers
are stopped by the process id of their start. `demo.py` and the tests call the functions below.
"""

import argparse
import base64
import http.client
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import image

DIRECTORY = Path("/run/reconciler-edge")
DOCKER = "/var/run/docker.sock"
HTTP, DNS = 8088, 8053
"""Ports of HAProxy and BIND; the example's manifests have the second one too."""

PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
PACKAGES = {"dockerd": "docker.io", "named": "bind9"}
PATIENCE = 120.0
"""Longest time for a server to answer or to end, seconds."""

HAPROXY = """global
    stats socket {directory}/admin.sock mode 600 level admin
    server-state-file {directory}/haproxy.state
defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s
    option redispatch
    retries 2
    load-server-state-from-file global
frontend web
    bind 127.0.0.1:{http}
    default_backend be_web
backend be_web
    server-template web 1-8 {instance}.slot.invalid:1 check inter 2s fall 3 init-addr last,127.0.0.1 weight 0 disabled
"""

NAMED = """key "edge-key" {{ algorithm hmac-sha256; secret "{secret}"; }};
options {{
  directory "{directory}/zones"; pid-file none; session-keyfile "{directory}/session.key";
  listen-on port {dns} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};
  recursion no; dnssec-validation no; notify no;
}};
controls {{ }};
zone "edge.test" {{
  type primary; file "edge.test.zone";
  allow-transfer {{ key "edge-key"; }}; update-policy {{ grant edge-key zonesub ANY; }};
}};
"""

ZONE = """$TTL 300
@ SOA ns.edge.test. hostmaster.edge.test. 1 3600 600 86400 5
@ NS ns.edge.test.
ns A 127.0.0.1
"""


class ServerError(Exception):
    """The problem of a server and the next step."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One set of servers: its directory, the instance that owns the slots, and its ports on loopback."""

    directory: Path = DIRECTORY
    instance: str = "edge"
    http: int = HTTP
    dns: int = DNS
    docker: str = DOCKER

    def log(self, server: str) -> Path:
        return self.directory / f"{server}.log"

    def record(self, server: str) -> Path:
        return self.directory / f"{server}.pid"


def program(name: str) -> str:
    path = shutil.which(name, path=PATH)
    if path is None:
        raise ServerError(f"{name} was not found: apt-get install {PACKAGES.get(name, name)}")
    return path


def prepare(edge: Edge) -> None:
    """Create the directory, the key and the configurations. An existing zone is kept."""
    if os.geteuid() != 0:
        raise ServerError("these servers and the Docker Engine need root: run this as root")
    (edge.directory / "zones").mkdir(mode=0o700, parents=True, exist_ok=True)
    key = edge.directory / "update.key"
    if not key.exists():
        write(key, base64.b64encode(secrets.token_bytes(32)).decode() + "\n")
    secret = key.read_text(encoding="utf-8").strip()
    names = {"directory": edge.directory, "instance": edge.instance, "http": edge.http, "dns": edge.dns}
    write(edge.directory / "haproxy.cfg", HAPROXY.format(**names))
    write(edge.directory / "named.conf", NAMED.format(**names, secret=secret))
    zone = edge.directory / "zones" / "edge.test.zone"
    if not zone.exists():
        write(zone, ZONE)


def write(path: Path, text: str) -> None:
    """Write a whole file at once, readable by its owner only."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)


def started_at(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty when it has ended. Pid and start identify one process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def running(edge: Edge, server: str) -> int:
    """The process id of a server that `up` started and that still runs, else 0."""
    try:
        pid, began = edge.record(server).read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return 0
    return int(pid) if started_at(int(pid)) == began else 0


def start(edge: Edge, server: str, argv: list[str], answers: Callable[[Edge], bool]) -> int:
    """Start a server in a session of its own, record its process id and wait until it answers. Raises ServerError."""
    with edge.log(server).open("ab") as log:
        process = subprocess.Popen(
            [program(argv[0]), *argv[1:]], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    write(edge.record(server), f"{process.pid} {started_at(process.pid)}\n")
    try:
        wait_for(lambda: process.poll() is not None or answers(edge), f"{server} does not answer")
        problem = f"{server} ended with status {process.returncode}" if process.poll() is not None else ""
    except ServerError as timeout:
        problem = str(timeout)
    if problem:
        if process.poll() is None:
            process.kill()
            process.wait()
        last = edge.log(server).read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
        raise ServerError(f"{problem}; the end of {edge.log(server)}:\n" + "\n".join(last))
    process.returncode = 0  # the server outlives this program, which does not wait for it
    return process.pid


def stop(edge: Edge, server: str, how: int = signal.SIGTERM) -> bool:
    """End a server that `up` started. Returns whether there was one. Raises ServerError when it does not end."""
    pid = running(edge, server)
    if pid:
        began = started_at(pid)
        os.kill(pid, how)
        try:
            wait_for(lambda: ended(pid, began), f"{server} (process {pid}) did not end")
        except ServerError:
            os.kill(pid, signal.SIGKILL)
            raise
    edge.record(server).unlink(missing_ok=True)
    return bool(pid)


def ended(pid: int, began: str) -> bool:
    """Whether that process has ended. A child of this process is reaped."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return started_at(pid) != began


def wait_for(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ServerError(f"{what} within {seconds:.0f} s")
        time.sleep(0.05)


def dockerd_answers(edge: Edge) -> bool:
    return image.answers(edge.docker)


def haproxy_answers(edge: Edge) -> bool:
    """Whether HAProxy answers on its admin socket."""
    return haproxy_pid(edge) != ""


def named_answers(edge: Edge) -> bool:
    """Whether BIND answers an SOA query for the zone. The query is built by hand, so that no DNS package is needed."""
    question = b"\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04edge\x04test\x00\x00\x06\x00\x01"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            link.settimeout(1)
            link.connect(("127.0.0.1", edge.dns))
            link.send(question)
            answer = link.recv(512)
    except OSError:
        return False
    return answer[:2] == b"\x00\x07" and answer[3] & 0x0F == 0 and answer[7] == 1


def start_dockerd(edge: Edge) -> int:
    return start(edge, "dockerd", ["dockerd", "-H", f"unix://{edge.docker}"], dockerd_answers)


def start_haproxy(edge: Edge) -> int:
    return start(edge, "haproxy", ["haproxy", "-W", "-db", "-f", str(edge.directory / "haproxy.cfg")], haproxy_answers)


def haproxy_pid(edge: Edge) -> str:
    """The line with the process id of the current worker; empty when none answers."""
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(2)
            link.connect(str(edge.directory / "admin.sock"))
            link.sendall(b"show info\n")
            data = b""
            while chunk := link.recv(4096):
                data += chunk
    except OSError:
        return ""
    return next((line for line in data.decode().splitlines() if line.startswith("Pid: ")), "")


def reload_haproxy(edge: Edge) -> None:
    """Reload the HAProxy that `up` started, and wait for its new worker. Raises ServerError."""
    pid, before = running(edge, "haproxy"), haproxy_pid(edge)
    if not pid:
        raise ServerError("HAProxy was not started by 'up'")
    os.kill(pid, signal.SIGUSR2)
    wait_for(lambda: haproxy_pid(edge) not in ("", before), "HAProxy was not reloaded")


def start_named(edge: Edge) -> int:
    return start(edge, "named", ["named", "-g", "-n", "1", "-c", str(edge.directory / "named.conf")], named_answers)


SERVERS = {
    "dockerd": (dockerd_answers, start_dockerd),
    "haproxy": (haproxy_answers, start_haproxy),
    "named": (named_answers, start_named),
}


def up(edge: Edge) -> list[str]:
    """Start the servers that do not answer, and import the image. Returns a line for each. Raises ServerError, OSError."""
    prepare(edge)
    lines = []
    for name, (answers, begin) in SERVERS.items():
        if answers(edge):
            lines.append(f"{name} runs already")
            continue
        lines.append(f"{name} started, process {begin(edge)}")
    lines.append(f"image {image.NAME} " + ("imported" if image.ensure(edge.docker) else "exists already"))
    return lines


def down(edge: Edge) -> list[str]:
    """Remove image and network, stop what `up` started, and remove the directory. Returns a line for each server."""
    if dockerd_answers(edge):
        image.remove(edge.docker)
    lines = [f"{name} stopped" if stop(edge, name) else f"{name} not started by 'up'" for name in reversed(SERVERS)]
    shutil.rmtree(edge.directory, ignore_errors=True)
    return lines


def status(edge: Edge) -> list[str]:
    """A line for each server: whether it answers, and its process if `up` started it."""
    lines = []
    for name, (answers, _) in SERVERS.items():
        pid = running(edge, name)
        state = "answers" if answers(edge) else "does not answer"
        lines.append(f"{name} {state}" + (f", process {pid}" if pid else ", not started by 'up'"))
    return lines


def main() -> int:
    arguments = argparse.ArgumentParser(description="The servers of examples/edge, on loopback.")
    arguments.add_argument("command", choices=("up", "down", "status"))
    arguments.add_argument("--dir", type=Path, default=DIRECTORY, help="directory of all files (default: %(default)s)")
    arguments.add_argument("--http", type=int, default=HTTP, help="port of HAProxy (default: %(default)s)")
    arguments.add_argument("--dns", type=int, default=DNS, help="port of BIND (default: %(default)s)")
    options = arguments.parse_args()
    edge = Edge(options.dir.absolute(), http=options.http, dns=options.dns)
    try:
        lines = {"up": up, "down": down, "status": status}[options.command](edge)
    except (ServerError, OSError, http.client.HTTPException) as error:
        print(f"servers.py: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
