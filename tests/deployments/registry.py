"""Images that tests put into a real registry without an engine, and a registry that answers what a test says."""

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.providers.runtime.docker.registry import PASSWORD, USER, RegistryServer

PATIENCE = 60.0


def put(registry: RegistryServer, repository: str, tag: str, content: str = "") -> str:
    """Put an image into a registry; returns its digest."""

    def call(method: str, path: str, body: bytes = b"", kind: str = "") -> tuple[int, Any]:
        connection = HTTPConnection(registry.host, timeout=PATIENCE)
        login = "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        given = {"Content-Type": kind} if kind else {}
        connection.request(method, path, body, {**given, "Authorization": login})
        reply = connection.getresponse()
        reply.read()
        connection.close()
        return reply.status, reply.headers

    def blob(data: bytes) -> dict[str, Any]:
        digest = f"sha256:{sha256(data).hexdigest()}"
        _, headers = call("POST", f"/v2/{repository}/blobs/uploads/")
        place = headers["Location"].partition(registry.host)[2] or headers["Location"]
        join = "&" if "?" in place else "?"
        status, _ = call("PUT", f"{place}{join}digest={digest}", data, "application/octet-stream")
        assert status == 201
        return {"digest": digest, "size": len(data)}

    docker = "application/vnd.docker"
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{docker}.distribution.manifest.v2+json",
        "config": {
            "mediaType": f"{docker}.container.image.v1+json",
            **blob(json.dumps({"of": content or tag}).encode()),
        },
        "layers": [{"mediaType": f"{docker}.image.rootfs.diff.tar.gzip", **blob((content or tag).encode())}],
    }
    data = json.dumps(manifest).encode()
    status, _ = call("PUT", f"/v2/{repository}/manifests/{tag}", data, str(manifest["mediaType"]))
    assert status == 201
    return f"sha256:{sha256(data).hexdigest()}"


Answer = tuple[int, dict[str, str], bytes]


class Scripted:
    """A registry that answers what a test says: one function of method, path and headers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.answer: Any = lambda method, path, headers: (404, {}, b"{}")
        self.server = ""


@contextmanager
def scripted() -> Iterator[Scripted]:
    script = Scripted()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            script.seen.append((self.command, self.path, headers))
            status, extra, body = script.answer(self.command, self.path, headers)
            self.send_response(status)
            for name, value in extra.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    script.server = f"127.0.0.1:{server.server_port}"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
