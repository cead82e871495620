"""The exec probe: runs one command in a container through the engine's exec API and exits with its exit code.

    python exec_probe.py SOCKET CONTAINER WATCH PROGRAM [ARGUMENT...]

A separate program that the probe engine starts like any exec probe; `DockerRuntime.exec_target` gives the command line. The
Docker command line is not needed. Standard library only, so that it starts in a few milliseconds. The command's output goes to
standard output. When the engine gives no usable answer, this process kills itself by SIGUSR2: that is no verdict on the container.

The engine has no request to end a command. When a probe times out, the probe engine kills this process, and another process must
end the command: WATCH is the abstract socket of `exec_watch.py`, which learns of the command before it starts, sees the
connection break, and kills the command with all its children. When no watch listens, the next run of the same probe does it: it
finds the command by its arguments and the mark in its environment.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

SECONDS = 10.0
"""How long the engine may take to answer a request; the command itself may run until the probe times out."""

MARK = "RECONCILER_EXEC_PROBE="
"""In the environment of each command, with a value of its own for each run."""

DONE = b"done"
"""What the watch receives when a command has exited by itself."""

ENDING_SECONDS = 5.0
"""How long a command may take to appear after its probe was killed, and to be gone itself."""

ROUNDS = 10
"""Passes over processes that may still be forking. Each pass kills all it finds."""

MAX_COMMANDS = 50
"""Commands of a container that are checked for earlier runs, at most."""

MAX_ANSWER = 16 * 1024 * 1024
"""Octets of an answer: the description of a container or a command. A longer one cannot be used."""

_CHUNK = 64 * 1024


class NoAnswer(Exception):
    """The engine gives no answer, or one that cannot be used."""


class Refused(NoAnswer):
    """The engine refuses the request."""


class _Engine(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path
        self.connection: socket.socket | None = None
        """The connection. `sock` is None while an answer without a length is read."""

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self._path)
        self.connection = self.sock


def ask(path: str, method: str, url: str, body: Any = None) -> Any:
    """One request and its JSON answer. Raises NoAnswer."""
    with contextlib.closing(_Engine(path)) as engine:
        answer = _send(engine, method, url, body)
        try:
            return json.loads(answer.read(MAX_ANSWER) or b"null")
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise NoAnswer(f"{url}: {error}") from error


def _send(engine: _Engine, method: str, url: str, body: Any) -> http.client.HTTPResponse:
    data = None if body is None else json.dumps(body)
    try:
        engine.request(method, url, data, {"Content-Type": "application/json"})
        answer = engine.getresponse()
        if answer.status >= 300:
            text = answer.read(2000).decode(errors="replace").strip()
            raise Refused(f"{url}: {answer.status} {text}")
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"{url}: {error}") from error
    return answer


def run(path: str, container: str, watch: str, argv: list[str]) -> int:
    """Run the command until it exits, copying its output; its exit code. Raises NoAnswer."""
    end_leftovers(path, container, argv)
    mark = MARK + os.urandom(8).hex()
    body = {"AttachStdout": True, "AttachStderr": True, "Cmd": argv, "Env": [mark]}
    exec_id = ask(path, "POST", f"/containers/{container}/exec", body)["Id"]
    with _watched(watch, exec_id, mark), contextlib.closing(_Engine(path)) as engine:
        answer = _send(engine, "POST", f"/exec/{exec_id}/start", {"Detach": False, "Tty": False})
        if engine.connection is not None:
            engine.connection.settimeout(None)
        try:
            _copy(answer)
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"the connection broke while the output was read: {error}") from error
        finally:
            answer.close()
    result = ask(path, "GET", f"/exec/{exec_id}/json")
    code = result.get("ExitCode")
    if result.get("Running") or not isinstance(code, int):
        raise NoAnswer("the engine does not report the exit code of the command")
    return code


@contextlib.contextmanager
def _watched(watch: str, exec_id: str, mark: str) -> Iterator[None]:
    """Register the command with the watch for as long as it runs; without a watch, the next run of the probe ends it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(SECONDS)
            connection.connect(f"\0{watch}")
            connection.sendall(json.dumps({"exec": exec_id, "mark": mark}).encode() + b"\n")
        except OSError:
            yield
            return
        try:
            yield
        except Refused:  # the command never started
            _report_done(connection)
            raise
        _report_done(connection)


def _report_done(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(DONE)


def _copy(answer: http.client.HTTPResponse) -> None:
    """Copy the frames (stream, 0, 0, 0, length) of both outputs to standard output."""
    while len(head := answer.read(8)) == 8:
        left = struct.unpack(">L", head[4:])[0]
        while left and (data := answer.read(min(left, _CHUNK))):
            left -= len(data)
            os.write(1, data)


def end_leftovers(path: str, container: str, argv: list[str]) -> None:
    """Kill earlier runs of this command that still run. Raises NoAnswer when one cannot be killed."""
    inspection = ask(path, "GET", f"/containers/{container}/json")
    for exec_id in (inspection.get("ExecIDs") or ())[:MAX_COMMANDS]:
        try:
            command = ask(path, "GET", f"/exec/{exec_id}/json")
        except NoAnswer:
            continue  # exited meanwhile
        config = command.get("ProcessConfig") or {}
        if not command.get("Running") or [config.get("entrypoint"), *(config.get("arguments") or ())] != argv:
            continue
        pid = int(command.get("Pid") or 0)
        mark = _mark_of(pid)
        if not mark or not end_tree(pid, mark):
            raise NoAnswer("an earlier run of this command still runs and cannot be killed from here")


def end_run(path: str, exec_id: str, mark: str) -> bool:
    """Kill a command whose probe is gone, with all its children; whether nothing is left. Raises NoAnswer."""
    end = time.monotonic() + ENDING_SECONDS
    while True:
        command = ask(path, "GET", f"/exec/{exec_id}/json")
        pid = int(command.get("Pid") or 0)
        # Before the command's own exec its process is the container runtime's and has no mark yet.
        if pid and (not command.get("Running") or _mark_of(pid) == mark) and end_tree(pid, mark):
            return True
        if time.monotonic() > end:
            return False
        # The engine reports the start before the command's own exec; `end` bounds this loop.
        time.sleep(0.05)


def end_tree(leader: int, mark: str) -> bool:
    """Kill a command (by the host's pid), its session, and all processes with its mark; whether nothing is left."""
    for _ in range(ROUNDS):
        pids = [pid for pid in _processes() if _belongs(pid, leader, mark)]
        if not pids:
            return True
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except OSError:
                return False
        # The kernel needs a moment to remove killed processes, and they may have forked new ones.
        time.sleep(0.01)
    return False


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _belongs(pid: int, leader: int, mark: str) -> bool:
    """Whether a process belongs to this run. The session counts only when its leader has the mark: pids are reused."""
    if _mark_of(pid) == mark:
        return True
    with contextlib.suppress(OSError):
        return pid != leader and os.getsid(pid) == leader and _mark_of(leader) == mark
    return False


def _mark_of(pid: int) -> str:
    """The mark in a process's environment; empty when it has none, is unreadable, or has exited."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read(1 << 20).split(b"\0")
    except OSError:
        return ""
    prefix = MARK.encode()
    return next((entry.decode(errors="replace") for entry in entries if entry.startswith(prefix)), "")


def main(arguments: list[str]) -> NoReturn:
    """Run, and exit with the exit code of the command."""
    if len(arguments) < 4:
        sys.exit(f"usage: {os.path.basename(__file__)} SOCKET CONTAINER WATCH PROGRAM [ARGUMENT...]")
    try:
        code = run(arguments[0], arguments[1], arguments[2], arguments[3:])
    except (NoAnswer, KeyError, TypeError) as error:
        print(f"the engine gives no usable answer: {error}", flush=True)  # noqa: T201  (the probe's output)
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGUSR2)
        code = 125
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main(sys.argv[1:])
