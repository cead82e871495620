"""The image of the example's web service: a static busybox and a shell script, imported into an engine without a registry.

Called by `servers.py`. The service listens on port 8080 and answers:

    GET /                    the name of the container
    GET /healthz             200 while it is healthy (for the liveness probe)
    GET /readyz              200 while it accepts traffic (for the readiness probe)
    GET /cgi-bin/break       makes both answer 404 until the container is restarted
    GET /cgi-bin/unready     makes /readyz answer 404; /cgi-bin/ready reverts this
"""

import http.client
import io
import shutil
import socket
import subprocess
import tarfile
from urllib.parse import quote

NAME = "reconciler-edge/web:1"
NETWORK = "reconciler-edge"
"""The network in the example's manifests."""

SERVE = """#!/bin/sh
# A restarted container keeps its files: repair those that "break" removed.
mkdir -p /www/cgi-bin
echo "hello from $(hostname)" >/www/index.html
echo ok >/www/healthz
echo ready >/www/readyz
for word in break unready ready; do ln -sf /cgi /www/cgi-bin/$word; done
# The first process of a container receives only the signals that it handles.
trap 'kill $!; exit 0' TERM
echo listening on 8080
httpd -f -p 8080 -h /www &
wait $!
"""

CGI = """#!/bin/sh
word=${0##*/}
case "$word" in
break) rm -f /www/healthz /www/readyz ;;
unready) rm -f /www/readyz ;;
ready) echo ready >/www/readyz ;;
esac
echo "request: $word" >/proc/1/fd/1
printf 'Content-Type: text/plain\\r\\n\\r\\n%s\\n' "$word"
"""


class Engine(http.client.HTTPConnection):
    """A Docker Engine behind its unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(path: str, method: str, url: str, body: bytes | None = None) -> tuple[int, bytes]:
    """One request to the engine at the socket `path`. Raises OSError and http.client.HTTPException."""
    engine = Engine(path)
    try:
        engine.request(method, url, body, {"Content-Type": "application/x-tar"} if body is not None else {})
        answer = engine.getresponse()
        return answer.status, answer.read()
    finally:
        engine.close()


def answers(path: str) -> bool:
    """Whether an engine answers at this socket."""
    try:
        return ask(path, "GET", "/_ping")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def tar() -> bytes:
    """The image's file system. Raises FileNotFoundError without a static busybox."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise FileNotFoundError("busybox was not found: apt-get install busybox-static")
    tools = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True, timeout=10).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(busybox, "bin/busybox")
        for tool in tools:
            link = tarfile.TarInfo(f"bin/{tool}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            if tool != "busybox":
                archive.addfile(link)
        for name, text in (("serve", SERVE), ("cgi", CGI)):
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o755, len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
        for name in ("tmp", "www", "etc", "proc", "dev", "sys"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
    return buffer.getvalue()


def ensure(path: str, name: str = NAME) -> bool:
    """Import the image if the engine at `path` lacks it. Returns whether it did. Raises OSError with the engine's message."""
    status, _ = ask(path, "GET", f"/images/{name}/json")
    if status == 200:
        return False
    repository, _, tag = name.partition(":")
    url = f"/images/create?fromSrc=-&repo={quote(repository, safe='')}&tag={tag}"
    status, answer = ask(path, "POST", url, tar())
    if status != 200:
        raise OSError(f"the engine at {path} did not import {name}: {answer.decode(errors='replace').strip()}")
    return True


def remove(path: str) -> None:
    """Remove the image and the network. The engine keeps them while something uses them."""
    for url in (f"/images/{NAME}", f"/networks/{NETWORK}"):
        ask(path, "DELETE", url)
