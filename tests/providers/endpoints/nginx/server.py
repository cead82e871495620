"""A real nginx in a directory of its own, started and stopped by the tests."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

CONFIGURATION = """
pid {directory}/nginx.pid;
error_log {directory}/error.log info;
worker_processes 1;
daemon off;
{extra}
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    include nested.conf;
    server {{
        listen unix:{directory}/front;
        location / {{ proxy_pass http://$http_host; proxy_next_upstream off; }}
    }}
}}
"""


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    pause = Event()
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not happen within {seconds:g} s: {what}"
        pause.wait(0.005)


class Nginx:
    """nginx whose main file includes `nested.conf`, which includes `pools/*.conf`. A request goes to the upstream of its Host."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pools = directory / "pools"
        self.pools.mkdir()
        self.main = directory / "nginx.conf"
        self.pid_file = directory / "nginx.pid"
        (directory / "nested.conf").write_text("include pools/*.conf; # those of reconciler\n")
        self.write_main()
        binary = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
        assert binary is not None
        self.log = (directory / "out.log").open("wb")
        self.process = subprocess.Popen(
            [binary, "-c", str(self.main)], stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL
        )
        try:
            wait_until(lambda: bool(self.workers()), "nginx has a worker")
        except BaseException:
            self.stop()
            raise

    def write_main(self, extra: str = "") -> None:
        self.main.write_text(CONFIGURATION.format(directory=self.directory, extra=extra))

    def workers(self) -> set[int]:
        """Its workers that take new connections."""
        found = set()
        for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            try:
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if title.rstrip(b"\0 ") == b"nginx: worker process":
                found.add(int(pid))
        return found

    def reload(self) -> None:
        """Reload, and wait for another worker, and the end of the old ones."""
        before = self.workers()
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: bool(self.workers()) and not self.workers() & before, "new workers")

    def get(self, pool: str) -> tuple[int, bytes]:
        """Status and body of a request to an upstream."""
        connection = http.client.HTTPConnection(pool, timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(60)
        connection.sock.connect(str(self.directory / "front"))
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(30)
        self.log.close()
