"""Runs one command in a container through the engine's exec API and ends as the command ended: for exec probes.

    python docker_exec.py SOCKET CONTAINER WATCH PROGRAM [ARGUMENT...]

A program of its own, started by the probe engine like any exec probe; the Docker command line need not be installed. Standard
library only, so that it starts in a few milliseconds. The command's output goes to standard output, its exit code is ours.
When the engine cannot be asked, this process ends by SIGUSR2: that is no verdict on the container.

The engine has no request to end a command. So when a probe runs out of time (the probe engine then kills this process), somebody
else must end it: WATCH is the abstract socket of `docker_exec_watch.py`, which hears of the command before it starts, sees the
connection break, and ends the command with all that it started. Should that not be there any more, the next run of the same
probe does it: it finds the command by its arguments and the mark in its environment.
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
"""How long the engine may take to answer a question; the command itself takes as long as the probe's time-out allows."""

MARK = "RECONCILER_EXEC_PROBE="
"""In the environment of the commands we start, with a value of each run's own."""

DONE = b"done"
"""What the watch is told when a command has ended by itself."""

ENDING_SECONDS = 5.0
"""How long a command may take to show up after its helper is gone, and to be gone itself."""

ROUNDS = 10
"""Walks over processes that may still be forking. Each kills all it finds."""

COMMANDS_LOOKED_AT = 50
_CHUNK = 64 * 1024


class CannotAsk(Exception):
    """The engine cannot be asked, or its answer is not what it should be."""


class Refused(CannotAsk):
    """The engine has answered that it does not do it."""


class _Engine(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path
        self.link: socket.socket | None = None
        """The connection. An answer that goes on to the end of the connection has taken `sock` away by the time it is read."""

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self._path)
        self.link = self.sock


def ask(path: str, method: str, where: str, body: Any = None) -> Any:
    """One question and its JSON answer. Raises CannotAsk."""
    with contextlib.closing(_Engine(path)) as engine:
        answer = _send(engine, method, where, body)
        try:
            return json.loads(answer.read() or b"null")
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise CannotAsk(f"{where}: {error}") from error


def _send(engine: _Engine, method: str, where: str, body: Any) -> http.client.HTTPResponse:
    data = None if body is None else json.dumps(body)
    try:
        engine.request(method, where, data, {"Content-Type": "application/json"})
        answer = engine.getresponse()
        if answer.status >= 300:
            text = answer.read(2000).decode(errors="replace").strip()
            raise Refused(f"{where}: {answer.status} {text}")
    except (OSError, http.client.HTTPException) as error:
        raise CannotAsk(f"{where}: {error}") from error
    return answer


def run(path: str, container: str, watch: str, argv: list[str]) -> int:
    """Run the command to its end, copying its output; its exit code. Raises CannotAsk."""
    end_leftovers(path, container, argv)
    mark = MARK + os.urandom(8).hex()
    body = {"AttachStdout": True, "AttachStderr": True, "Cmd": argv, "Env": [mark]}
    number = ask(path, "POST", f"/containers/{container}/exec", body)["Id"]
    with _told(watch, number, mark), contextlib.closing(_Engine(path)) as engine:
        answer = _send(engine, "POST", f"/exec/{number}/start", {"Detach": False, "Tty": False})
        if engine.link is not None:
            engine.link.settimeout(None)
        try:
            _copy(answer)
        except (OSError, http.client.HTTPException) as error:
            raise CannotAsk(f"the output broke off: {error}") from error
        finally:
            answer.close()
    ended = ask(path, "GET", f"/exec/{number}/json")
    code = ended.get("ExitCode")
    if ended.get("Running") or not isinstance(code, int):
        raise CannotAsk("the engine does not say how the command ended")
    return code


@contextlib.contextmanager
def _told(watch: str, number: str, mark: str) -> Iterator[None]:
    """Have somebody else know of the command for as long as it runs; without one, the next run is what ends it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            link.settimeout(SECONDS)
            link.connect(f"\0{watch}")
            link.sendall(json.dumps({"exec": number, "mark": mark}).encode() + b"\n")
        except OSError:
            yield
            return
        try:
            yield
        except Refused:  # it never started
            _say_done(link)
            raise
        _say_done(link)


def _say_done(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.sendall(DONE)


def _copy(answer: http.client.HTTPResponse) -> None:
    """Copy the frames (stream, 0, 0, 0, length) of both outputs to our own output."""
    while len(head := answer.read(8)) == 8:
        left = struct.unpack(">L", head[4:])[0]
        while left and (data := answer.read(min(left, _CHUNK))):
            left -= len(data)
            os.write(1, data)


def end_leftovers(path: str, container: str, argv: list[str]) -> None:
    """Kill earlier runs of this command that were left behind. Raises CannotAsk when one cannot be ended."""
    found = ask(path, "GET", f"/containers/{container}/json")
    for number in (found.get("ExecIDs") or ())[:COMMANDS_LOOKED_AT]:
        try:
            one = ask(path, "GET", f"/exec/{number}/json")
        except CannotAsk:
            continue  # ended meanwhile
        config = one.get("ProcessConfig") or {}
        if not one.get("Running") or [config.get("entrypoint"), *(config.get("arguments") or ())] != argv:
            continue
        pid = int(one.get("Pid") or 0)
        mark = _mark_of(pid)
        if not mark or not end_tree(pid, mark):
            raise CannotAsk("an earlier run of this command still runs and cannot be ended from here")


def end_run(path: str, number: str, mark: str) -> bool:
    """End a command whose helper is gone, with all that it started; whether that is done. Raises CannotAsk."""
    end = time.monotonic() + ENDING_SECONDS
    while True:
        one = ask(path, "GET", f"/exec/{number}/json")
        pid = int(one.get("Pid") or 0)
        # Before the command's own exec its process is the runtime's and has no mark yet.
        if pid and (not one.get("Running") or _mark_of(pid) == mark) and end_tree(pid, mark):
            return True
        if time.monotonic() > end:
            return False
        # The engine tells of a start before the command's own exec is through; `end` bounds this.
        time.sleep(0.05)


def end_tree(leader: int, mark: str) -> bool:
    """Kill a command of ours (host's process id), its session, and whatever carries its mark; whether nothing is left."""
    for _ in range(ROUNDS):
        found = [pid for pid in _processes() if _belongs(pid, leader, mark)]
        if not found:
            return True
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except OSError:
                return False
        # The kernel needs a moment to take the killed ones away, and their parents may have left new ones.
        time.sleep(0.01)
    return False


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _belongs(pid: int, leader: int, mark: str) -> bool:
    """Whether a process is of this run. By session only together with a mark on the session's leader: numbers are reused."""
    if _mark_of(pid) == mark:
        return True
    with contextlib.suppress(OSError):
        return pid != leader and os.getsid(pid) == leader and _mark_of(leader) == mark
    return False


def _mark_of(pid: int) -> str:
    """The mark in a process's environment; empty for what carries none, may not be read, or has ended."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read(1 << 20).split(b"\0")
    except OSError:
        return ""
    prefix = MARK.encode()
    return next((entry.decode(errors="replace") for entry in entries if entry.startswith(prefix)), "")


def main(arguments: list[str]) -> NoReturn:
    """Run, and end as the command did."""
    if len(arguments) < 4:
        sys.exit(f"usage: {os.path.basename(__file__)} SOCKET CONTAINER WATCH PROGRAM [ARGUMENT...]")
    try:
        code = run(arguments[0], arguments[1], arguments[2], arguments[3:])
    except (CannotAsk, KeyError, TypeError) as error:
        print(f"cannot ask the engine: {error}", flush=True)  # noqa: T201  (the probe's output)
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGUSR2)
        code = 125
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main(sys.argv[1:])
