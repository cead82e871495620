"""Runs one command in a container through the engine's exec API and ends as the command ended: for exec probes.

    python docker_exec.py SOCKET CONTAINER PROGRAM [ARGUMENT...]

A program of its own, started by the probe engine like any exec probe; the Docker command line need not be installed. Standard
library only, so that it starts in a few milliseconds. The command's output goes to standard output, its exit code is ours.
When the engine cannot be asked, this process ends by SIGUSR2: that is no verdict on the container.

The engine has no request to end a command. So when a probe runs out of time (the probe engine then kills this process), the
command goes on in the container until the next run of the same probe, which finds it by its arguments and a mark in its
environment, and kills it with all of its session before it begins.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import struct
import sys
from typing import Any, NoReturn

SECONDS = 10.0
"""How long the engine may take to answer a question; the command itself takes as long as the probe's time-out allows."""

MARK = "RECONCILER_EXEC_PROBE=1"
"""In the environment of the commands we start."""

COMMANDS_LOOKED_AT = 50
_CHUNK = 64 * 1024


class CannotAsk(Exception):
    """The engine cannot be asked, or its answer is not what it should be."""


class _Engine(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self._path)


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
            raise CannotAsk(f"{where}: {answer.status} {text}")
    except (OSError, http.client.HTTPException) as error:
        raise CannotAsk(f"{where}: {error}") from error
    return answer


def run(path: str, container: str, argv: list[str]) -> int:
    """Run the command to its end, copying its output; its exit code. Raises CannotAsk."""
    end_leftovers(path, container, argv)
    body = {"AttachStdout": True, "AttachStderr": True, "Cmd": argv, "Env": [MARK]}
    made = ask(path, "POST", f"/containers/{container}/exec", body)
    number = made["Id"]
    with contextlib.closing(_Engine(path)) as engine:
        answer = _send(engine, "POST", f"/exec/{number}/start", {"Detach": False, "Tty": False})
        if engine.sock is not None:
            engine.sock.settimeout(None)
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
        if not end_session(int(one.get("Pid") or 0)):
            raise CannotAsk("an earlier run of this command still runs and cannot be ended from here")


def end_session(leader: int) -> bool:
    """Kill a command of ours with all of its session, as the host's process ids say; whether that is done."""
    try:
        handle = os.pidfd_open(leader)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        if not _is_ours(leader):
            return False
        for name in os.listdir("/proc"):
            if name.isdecimal() and int(name) != leader:
                with contextlib.suppress(OSError):
                    if os.getsid(int(name)) == leader:
                        os.kill(int(name), signal.SIGKILL)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _is_ours(pid: int) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return MARK.encode() in file.read().split(b"\0")


def main(arguments: list[str]) -> NoReturn:
    """Run, and end as the command did."""
    if len(arguments) < 3:
        sys.exit(f"usage: {os.path.basename(__file__)} SOCKET CONTAINER PROGRAM [ARGUMENT...]")
    try:
        code = run(arguments[0], arguments[1], arguments[2:])
    except (CannotAsk, KeyError, TypeError) as error:
        print(f"cannot ask the engine: {error}", flush=True)  # noqa: T201  (the probe's output)
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGUSR2)
        code = 125
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main(sys.argv[1:])
