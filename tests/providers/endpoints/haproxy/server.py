"""A real HAProxy in a directory of its own, started and stopped by the tests; and small helpers around it."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

TEMPLATE = "init-addr last,127.0.0.1 weight 0 disabled"

BACKENDS = f"""
    default_backend web

backend web
    server-template web 1-5 suite.slot.invalid:1 {TEMPLATE}
    server-template web 6-10 other.slot.invalid:1 {TEMPLATE}

backend be_app
    server-template app 1-3 slot.invalid:1 {TEMPLATE}
    server-template aux 1-3 slot.invalid:1 {TEMPLATE}
    server old1 192.0.2.77:80 weight 7
    server app9 192.0.2.78:80 weight 9

backend be_plain
    server plain1 127.0.0.1:9 weight 1
    server plain2 127.0.0.1:9 weight 1

backend be_checked
    server-template chk 1-2 slot.invalid:1 {TEMPLATE} check inter 200ms fall 1 rise 1

backend be_asked
    option httpchk GET /
    timeout check 1h
    server-template ask 1-2 slot.invalid:1 {TEMPLATE} check inter 200ms fall 3 rise 2

backend be_source
    balance source
    server-template src 1-3 slot.invalid:1 {TEMPLATE}

backend be_static
    balance static-rr
    server-template st 1-3 slot.invalid:1 {TEMPLATE.replace("weight 0", "weight 100")}

backend be_static_zero
    balance static-rr
    server-template sz 1-3 slot.invalid:1 {TEMPLATE}

backend be_sticky
    dynamic-cookie-key key
    cookie stick insert dynamic
    server-template stick 1-3 slot.invalid:1 {TEMPLATE}

backend be_agent
    server-template ag 1-2 slot.invalid:1 {TEMPLATE} agent-check agent-addr 127.0.0.1 agent-port 9 agent-inter 60s
"""


PLAIN = (("static", "st"), ("static_zero", "sz"), ("sticky", "stick"), ("agent", "ag"), ("asked", "ask"))
"""Backends for one test or two, with the prefixes of their slots."""


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    pause = Event()
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not happen within {seconds:g} s: {what}"
        pause.wait(0.005)


class HAProxy:
    """`haproxy -W -db` with an admin socket `admin`, an operator socket `operator`, and front ends on Unix sockets."""

    def __init__(self, directory: Path, backends: str = BACKENDS, name: str = "one") -> None:
        self.directory = directory
        self.socket = str(directory / f"{name}.admin")
        self.operator = str(directory / f"{name}.operator")
        self.master = str(directory / f"{name}.master")
        self.state = str(directory / "state" / f"{name}.state")
        self.front = str(directory / f"{name}.front")
        Path(self.state).parent.mkdir(exist_ok=True)
        self.config = directory / f"{name}.cfg"
        self.write_config(backends)
        self.log = (directory / f"{name}.log").open("wb")
        binary = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
        assert binary is not None
        self.process = subprocess.Popen(
            [binary, "-W", "-db", "-f", str(self.config), "-S", self.master],
            stdout=self.log,
            stderr=self.log,
            stdin=subprocess.DEVNULL,
        )
        try:
            wait_until(self.answers, "HAProxy answers")
        except BaseException:
            self.stop()
            raise

    def write_config(self, backends: str) -> None:
        self.config.write_text(
            f"global\n    stats socket {self.socket} mode 600 level admin\n"
            f"    stats socket {self.operator} mode 600 level operator\n"
            f"    server-state-file {self.state}\n    nbthread 1\n"
            "defaults\n    mode http\n    timeout connect 10s\n    timeout client 60s\n    timeout server 60s\n"
            "    load-server-state-from-file global\n"
            f"frontend front\n    bind unix@{self.front}\n" + backends
        )

    def answers(self) -> bool:
        assert self.process.poll() is None, "HAProxy has ended: " + Path(self.log.name).read_text()
        try:
            return "Pid: " in self.ask("show info")
        except OSError:
            return False

    def master_answers(self) -> bool:
        """Unlike a worker it does not hang up after its answer."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(30)
                connection.connect(self.master)
                connection.sendall(b"show proc\n")
                return b"master" in connection.recv(4096)
        except OSError:
            return False

    def ask(self, *commands: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(self.socket)
            connection.sendall((";".join(commands) + "\n").encode())
            data = b""
            while chunk := connection.recv(65536):
                data += chunk
        return data.decode()

    def pid(self) -> int:
        return int(next(line for line in self.ask("show info").splitlines() if line.startswith("Pid: "))[5:])

    def servers(self, backend: str) -> dict[str, tuple[str, int, int]]:
        """(address:port, weight, administrative state) by name."""
        rows = [line.split() for line in self.ask(f"show servers state {backend}").splitlines()[2:] if line]
        return {row[3]: (f"{row[4]}:{row[18]}", int(row[7]), int(row[6])) for row in rows}

    def operational(self, backend: str, name: str) -> int:
        """0 is down, 2 is up."""
        rows = (line.split() for line in self.ask(f"show servers state {backend}").splitlines()[2:] if line)
        return next(int(row[5]) for row in rows if row[3] == name)

    def checking(self, backend: str, name: str) -> bool:
        """Whether a check of this server has begun and not ended."""
        rows = (line.split() for line in self.ask(f"show servers state {backend}").splitlines()[2:] if line)
        return bool(next(int(row[13]) for row in rows if row[3] == name) & 1)

    def reset(self) -> None:
        """All slots as after the first start."""
        commands = []
        for backend, name in (
            [("web", f"web{n}") for n in range(1, 11)]
            + [("be_app", f"{prefix}{n}") for prefix in ("app", "aux") for n in (1, 2, 3)]
            + [("be_checked", "chk1"), ("be_checked", "chk2")]
            + [(f"be_{rest}", f"{prefix}{n}") for rest, prefix in PLAIN for n in (1, 2)]
        ):
            path = f"{backend}/{name}"
            commands += [f"set server {path} {what}" for what in ("weight 0", "state maint", "addr 127.0.0.1 port 1")]
        self.ask(*commands, "set server be_app/old1 weight 7", "set server be_app/old1 state ready")

    def reload(self) -> None:
        """Reload, and wait until the new process answers on a fresh connection.

        A master that is still loading loses the signal: once it answers on its own socket, it has loaded.
        """
        wait_until(self.master_answers, "the master answers")
        before = self.pid()
        self.process.send_signal(signal.SIGUSR2)

        def replaced() -> bool:
            try:
                return self.pid() != before
            except (OSError, StopIteration):
                return False

        wait_until(replaced, "the new worker answers")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(30)
        self.log.close()
