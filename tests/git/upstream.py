"""Repositories that tests read from: a bare one, what is pushed to it, and servers that give it to clients."""

import os
import ssl
import subprocess
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from manifests.source.git_url import parse
from reconciler.git.mirror import Mirror
from reconciler.git.reader import GitReader

ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Author",
    "GIT_AUTHOR_EMAIL": "author@example.com",
    "GIT_COMMITTER_NAME": "Author",
    "GIT_COMMITTER_EMAIL": "author@example.com",
    "GIT_ALLOW_PROTOCOL": "file",
}

CERTIFICATE = Path(__file__).parents[1] / "probes" / "named.pem"
"""Of 127.0.0.1, signed by itself."""

Content = str | bytes | None


class Upstream:
    """A bare repository, and a work tree to commit in."""

    def __init__(self, base: Path, hash_name: str = "sha1", *, filters: bool = True) -> None:
        self.work, self.bare = base / "work", base / "repo.git"
        git("init", "-q", "-b", "main", f"--object-format={hash_name}", str(self.work))
        git("init", "-q", "--bare", "-b", "main", f"--object-format={hash_name}", str(self.bare))
        git("config", "uploadpack.allowFilter", "true" if filters else "false", at=self.bare)

    @property
    def url(self) -> str:
        return f"git+file://{self.bare}"

    def commit(self, files: Mapping[str, Content], branch: str = "main") -> str:
        """Write, link (`-> target`) or remove (None) files, commit and push; returns the commit."""
        for name, content in files.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink() or (content is None and path.is_file()):
                path.unlink()
            if isinstance(content, str) and content.startswith("-> "):
                path.symlink_to(content.removeprefix("-> "))
            elif content is not None:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        git("add", "-A", at=self.work)
        git("commit", "-q", "--allow-empty", "-m", "a change", at=self.work)
        self.push(f"HEAD:refs/heads/{branch}")
        return git("rev-parse", "HEAD", at=self.work)

    def push(self, *refs: str) -> None:
        git("push", "-q", "-f", str(self.bare), *refs, at=self.work)

    def tag(self, name: str, *, annotated: bool) -> None:
        git("tag", "-f", *(["-a", "-m", "released"] if annotated else []), name, at=self.work)
        self.push(f"refs/tags/{name}")

    def rewind(self, commits: int = 1) -> None:
        """Go back in the work tree, so that the next push rewrites the history."""
        git("reset", "-q", "--hard", f"HEAD~{commits}", at=self.work)

    def index_entry(self, mode: str, oid: str, name: str) -> str:
        """Commit an entry that no work tree can have; returns the commit."""
        git("update-index", "--add", "--cacheinfo", f"{mode},{oid},{name}", at=self.work)
        git("commit", "-q", "-m", "an entry", at=self.work)
        self.push("HEAD:refs/heads/main")
        return git("rev-parse", "HEAD", at=self.work)

    def mirror(self, base: Path) -> Mirror:
        return Mirror(base / "mirror", f"file://{self.bare}", timeout=30)

    def reader(self, base: Path, rest: str = "", local: Path | None = None) -> GitReader:
        """A reader whose clock stands still: each `hurry` is one poll."""
        return GitReader(parse(f"{self.url}{rest}"), local, base / "mirrors", steady=lambda: 0.0)


def git(*arguments: str, at: Path | None = None, stdin: bytes = b"") -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=at or "/", env=ENV, input=stdin, capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


class Answers(BaseHTTPRequestHandler):
    """Gives repositories below a directory by git's own `http-backend`, or what a test wants instead."""

    root: Path
    token = ""
    instead: Callable[["Answers"], bool] | None = None
    seen: list[str]

    def do_GET(self) -> None:
        type(self).seen.append(f"{self.command} {self.path}")
        if self.instead is not None and type(self).instead(self):  # type: ignore[misc]
            return
        if self.token and not self._allowed():
            self.answer(401, b"", {"WWW-Authenticate": 'Basic realm="git"'})
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else self._chunks()
        path, _, query = self.path.partition("?")
        env = {
            **ENV,
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "CONTENT_LENGTH": str(len(body)),
        }
        done = subprocess.run(["git", "http-backend"], env=env, input=body, capture_output=True, check=False)
        head, _, data = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.decode().split(": ", 1) for line in head.split(b"\r\n") if b": " in line)
        self.answer(int(headers.pop("Status", "200").split()[0]), data, headers)

    do_POST = do_GET

    def _allowed(self) -> bool:
        given = self.headers.get("Authorization", "")
        return given.startswith("Basic ") and b64decode(given[6:]).decode().partition(":")[2] == self.token

    def _chunks(self) -> bytes:
        data = b""
        while self.headers.get("Transfer-Encoding") == "chunked" and (size := int(self.rfile.readline(), 16)):
            data += self.rfile.read(size)
            self.rfile.readline()
        return data

    def answer(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Served:
    """A server over TLS. `instead` answers in place of git when it returns True."""

    def __init__(self, handler: type[Answers], port: int) -> None:
        self.handler, self.port = handler, port

    @property
    def url(self) -> str:
        return f"git+https://127.0.0.1:{self.port}/repo.git"

    @property
    def seen(self) -> list[str]:
        return self.handler.seen


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that was killed has closed its connection."""


@contextmanager
def served(root: Path, token: str = "", instead: Callable[[Answers], bool] | None = None) -> Iterator[Served]:
    handler = type("Handler", (Answers,), {"root": root, "token": token, "instead": instead, "seen": []})
    server = _Server(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield Served(handler, server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
