"""A real registry on loopback for the tests: Debian's `docker-registry`, with a directory and a login of its own.

An engine accepts registries on 127.0.0.0/8 without TLS, so it needs no certificate and no setting.
"""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from providers.testing.checks import wait_until
from tests.free_ports import free_port
from tests.providers.runtime.docker.engine import PATIENCE, SERVER_PATH, Api

USER, PASSWORD = "joe", "right-password"
HASH = "$2b$04$IsVDI.GyeVOL9tqtLanOHuA5.8dqSjV3DFI0BFMWYXFQfgb5xPdVu"
"""PASSWORD as bcrypt, the only kind that the registry reads; at its lowest cost, because every request checks it."""

ENDLESS = 1 << 40


class RegistryServer:
    """One registry process. Leaving the context ends it.

    Set it up before the bench of a test, so that no container uses its images when it ends and removes them.

    Args:
        home: a directory of its own, which it creates.
        engine: socket of the engine that images are pushed from.
        login: whether it requires USER and PASSWORD.
    """

    def __init__(self, home: Path, engine: str, *, login: bool = False) -> None:
        self.host = f"127.0.0.1:{free_port()}"
        home.mkdir()
        config: dict[str, object] = {
            "version": "0.1",
            "log": {"accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(home / "data")}, "delete": {"enabled": True}},
            "http": {"addr": self.host, "secret": "of this test"},
        }
        if login:
            users = home / "htpasswd"
            users.write_text(f"{USER}:{HASH}\n")
            config["auth"] = {"htpasswd": {"realm": "test", "path": str(users)}}
        (home / "config.json").write_text(json.dumps(config))  # JSON is YAML
        self._home, self._login = home, login
        self._process: subprocess.Popen[bytes] | None = None
        self._api = Api(engine)
        self._pushed: list[str] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        for image in self._pushed:
            forget(self._api, image)
        self._api.close()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        program = shutil.which("docker-registry", path=SERVER_PATH) or "docker-registry"
        with (self._home / "log").open("ab") as log:
            argv = [program, "serve", str(self._home / "config.json")]
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._answers, "the registry answers")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._home / "log").read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"http://{self.host}/v2/", timeout=20.0):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 401
        except OSError:
            return False

    def stop(self) -> None:
        """Kill it, also when it is frozen; its images stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None

    def freeze(self) -> None:
        """From now on it accepts connections and sends nothing, like a server that hangs."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It continues where it was."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def push(self, source: str, name: str) -> str:
        """Push an image of the engine under a name like `team/app:1`, and remove that name from the engine; its digest."""
        image = f"{self.host}/{name}"
        repository, _, tag = image.rpartition(":")
        self._api.link.post(f"/images/{source}/tag", image, repo=repository, tag=tag)
        self._pushed.append(image)
        login = {"username": USER, "password": PASSWORD, "serveraddress": self.host} if self._login else {}
        headers = {"X-Registry-Auth": base64.urlsafe_b64encode(json.dumps(login).encode()).decode()}
        where = f"/images/{repository}/push"
        with self._api.link.stream("POST", where, image, params={"tag": tag}, headers=headers) as answer:
            events = [json.loads(line) for line in answer.iter_lines() if line.strip()]
        assert not any("error" in event for event in events), events
        digest = next(str(event["aux"]["Digest"]) for event in events if "Digest" in (event.get("aux") or {}))
        self._pushed.append(f"{repository}@{digest}")
        forget(self._api, image)
        return digest


def forget(api: Api, image: str) -> None:
    """Remove a name of an image from the engine, and the image with its last name."""
    with suppress(Exception):
        api.link.delete(f"/images/{image}", image)


class SlowProxy:
    """A slow proxy to a registry that passes `limit` bytes of each answer, and the rest when it is opened.

    Slow, because an engine reports its progress a few times a second: a fast download is reported only at its end.

    Args:
        target: host:port of the registry.
        limit: bytes of the answers of one connection.
    """

    def __init__(self, target: str, limit: int) -> None:
        host, _, port = target.partition(":")
        self._target, self._limit = (host, int(port)), limit
        self._open = threading.Event()
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def open(self) -> None:
        """Pass everything."""
        self._open.set()

    def close(self) -> None:
        """End all connections."""
        self._open.set()
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(2.0)
        for end in (self._listener, *self._ends):
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._ends += [near, far]
                for way in ((near, far, ENDLESS), (far, near, self._limit)):
                    thread = threading.Thread(target=self._pass, args=way, daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _pass(self, source: socket.socket, sink: socket.socket, limit: int) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(65536):
                passed += len(data)
                if limit < ENDLESS:
                    self._open.wait(None if passed > limit else 0.02)
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
