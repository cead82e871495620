"""The client as a real process: its pushes and their order, and that it never harms its program."""

import contextlib
import hashlib
import hmac
import json
import os
import queue
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

GENERATION = "shop-web-01234567-0." + "0" * 24
TOKEN = "t" * 64
PATIENCE = 20


class Daemon:
    """Takes pushes on a unix socket like the real listener; answers with `status`, or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.received_pushes: queue.Queue[dict] = queue.Queue()
        self.status = 200
        self.answer = True
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(16)
        self.open: list[socket.socket] = []
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):  # a client interrupted by a signal closes the connection
                self.handle(connection)

    def handle(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        received = b""
        while True:
            head, gap, body = received.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            if gap and length and len(body) >= int(length[1]):
                break
            chunk = connection.recv(4096)
            if not chunk:
                return
            received += chunk
        message = json.loads(body)
        signature = re.search(rb"(?i)reconciler-signature: sha256=(\w+)", head)
        message["signed"] = bool(signature) and hmac.compare_digest(
            signature[1].decode(), hmac.new(TOKEN.encode(), body, hashlib.sha256).hexdigest()
        )
        self.received_pushes.put(message)
        if not self.answer:
            self.open.append(connection.dup())
            return
        text = b'{"message": "as reported"}'
        connection.sendall(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (self.status, len(text), text))

    def next(self) -> dict:
        return self.received_pushes.get(timeout=PATIENCE)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(PATIENCE)
        for connection in self.open:
            connection.close()


@pytest.fixture
def daemon(tmp_path: Path):
    daemon = Daemon(tmp_path / "push.sock")
    yield daemon
    daemon.close()


@pytest.fixture
def start(tmp_path: Path):
    """Start `reconcile push ...`; processes that still run at the end are killed."""
    running: list[subprocess.Popen] = []

    def begin(*arguments: str, **variables: str) -> subprocess.Popen:
        env = {
            "PATH": os.environ["PATH"],
            "RECONCILER_PUSH_SOCKET": str(tmp_path / "push.sock"),
            "RECONCILER_PUSH_GENERATION": GENERATION,
            "RECONCILER_PUSH_TOKEN": TOKEN,
            **variables,
        }
        command = [sys.executable, "-m", "reconciler.push", *arguments]
        process = subprocess.Popen(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # with its program
        process.communicate(timeout=PATIENCE)


ROOT = Path(__file__).parents[2]
CHILD = [sys.executable, "-c"]
WAITS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("up", flush=True)
while True: signal.pause()
"""


def test_one_push_is_signed_and_counts_in_one_sequence_of_the_container(daemon, start):
    for event in ("startup", "ready"):
        done = start("ready" if event == "ready" else event)
        assert done.wait(PATIENCE) == 0
    first, second = daemon.next(), daemon.next()
    assert (first["event"], second["event"]) == ("startup", "ready")
    assert first["boot"] == second["boot"]
    assert first["seq"] < second["seq"]
    assert first["generation"] == GENERATION
    assert first["signed"]
    assert second["signed"]
    assert "inflight" not in first


def test_a_push_carries_the_requests_in_flight(daemon, start):
    assert start("draining", "--inflight", "3").wait(PATIENCE) == 0
    assert daemon.next()["inflight"] == 3


def test_a_refused_push_exits_with_1_and_the_reason(daemon, start):
    daemon.status = 409
    done = start("ready")
    assert "refused with 409: as reported" in done.communicate(timeout=PATIENCE)[1]
    assert done.returncode == 1


def test_an_unreachable_daemon_exits_with_1_and_the_reason(tmp_path, start):
    done = start("ready")
    assert "No such file" in done.communicate(timeout=PATIENCE)[1]
    assert done.returncode == 1


def test_missing_variables_are_explained(start):
    done = start("ready", RECONCILER_PUSH_SOCKET="")
    assert "a workload with `push` get them" in done.communicate(timeout=PATIENCE)[1]
    assert done.returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [["rady"], [], ["ready", "--inflight", "x"], ["run", "--interval", "5"], ["run", "--"], ["run", "--probe", "x"]],
)
def test_a_wrong_command_line_exits_with_64(start, arguments):
    done = start(*arguments)
    assert done.wait(PATIENCE) == 64


def test_the_client_loads_nothing_but_the_standard_library(start):
    program = "import sys; import reconciler.push.run, reconciler.push.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.startswith(("reconciler", "providers", "manifests"))}
    assert {name.rpartition(".")[0] for name in ours} <= {"", "reconciler", "reconciler.push"}
    assert "asyncio" not in done.stdout.split()


def test_run_pushes_ready_then_draining_before_it_forwards_a_signal(daemon, start):
    done = start("run", "--", *CHILD, WAITS)
    assert [daemon.next()["event"] for _ in range(2)] == ["startup", "ready"]
    assert done.stdout.readline() == "up\n"
    done.send_signal(signal.SIGTERM)
    assert daemon.next()["event"] == "draining"
    assert done.wait(PATIENCE) == 7


def test_the_signal_waits_at_most_2_s_for_the_answer_to_draining(daemon, start):
    done = start("run", "--", *CHILD, WAITS)
    for _ in range(2):
        daemon.next()
    assert done.stdout.readline() == "up\n"
    daemon.answer = False
    done.send_signal(signal.SIGTERM)
    assert daemon.next()["event"] == "draining"
    assert done.wait(PATIENCE) == 7


def test_run_exits_with_128_plus_the_signal_of_the_program(daemon, start):
    done = start("run", "--", *CHILD, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert done.wait(PATIENCE) == 137


def test_run_exits_with_the_exit_code_of_the_program(daemon, start):
    assert start("run", "--", *CHILD, "raise SystemExit(5)").wait(PATIENCE) == 5


def test_run_exits_with_127_for_a_missing_program(daemon, start):
    done = start("run", "--", "/nowhere/program")
    assert "No such file" in done.communicate(timeout=PATIENCE)[1]
    assert done.returncode == 127


def test_other_signals_are_forwarded_without_a_push(daemon, start):
    program = "import signal, sys\nsignal.signal(signal.SIGHUP, lambda *_: sys.exit(9))\nprint('up', flush=True)\nsignal.pause()"
    done = start("run", "--", *CHILD, program)
    assert done.stdout.readline() == "up\n"
    done.send_signal(signal.SIGHUP)
    assert done.wait(PATIENCE) == 9
    assert "draining" not in [
        daemon.received_pushes.get_nowait()["event"] for _ in range(daemon.received_pushes.qsize())
    ]


def test_without_a_push_target_the_program_runs_anyway(start):
    done = start("run", "--", *CHILD, "print('worked')", RECONCILER_PUSH_SOCKET="")
    out, error = done.communicate(timeout=PATIENCE)
    assert (done.returncode, out) == (0, "worked\n")
    assert error.count("\n") == 1


def test_a_restarted_daemon_gets_the_state_soon(tmp_path, start):
    done = start("run", "--", *CHILD, WAITS)
    assert done.stdout.readline() == "up\n"
    daemon = Daemon(tmp_path / "push.sock")
    try:
        assert daemon.next()["event"] == "ready"
    finally:
        daemon.close()


class App:
    """An application to probe: answers with `status`."""

    def __init__(self) -> None:
        self.status = 503
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/ready?now"
        self.asked: queue.Queue[bytes] = queue.Queue()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                self.asked.put(connection.recv(4096))
                connection.sendall(b"HTTP/1.0 %d X\r\n\r\n" % self.status)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(PATIENCE)


@pytest.fixture
def app():
    app = App()
    yield app
    app.close()


def test_a_probe_decides_between_startup_ready_and_not_ready(daemon, start, app):
    done = start("run", "--probe", app.url, "--interval", "20ms", "--failures", "2", "--", *CHILD, WAITS)
    assert daemon.next()["event"] == "startup"
    for _ in range(3):
        assert app.asked.get(timeout=PATIENCE).startswith(b"GET /ready?now HTTP/1.1\r\nHost: 127.0.0.1:")
    app.status = 204
    assert daemon.next()["event"] == "ready"
    app.status = 500
    assert daemon.next()["event"] == "not-ready"
    app.status = 200
    assert daemon.next()["event"] == "ready"
    done.send_signal(signal.SIGTERM)
    assert daemon.next()["event"] == "draining"
    assert done.wait(PATIENCE) == 7


def test_a_sidecar_without_a_program_exits_with_0_after_draining(daemon, start, app):
    app.status = 200
    done = start("run", "--probe", app.url, "--interval", "50ms")
    assert [daemon.next()["event"] for _ in range(2)] == ["startup", "ready"]
    done.send_signal(signal.SIGTERM)
    assert daemon.next()["event"] == "draining"
    assert done.wait(PATIENCE) == 0


def test_a_probe_that_never_answers_does_not_delay_a_signal(daemon, start):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        done = start("run", "--probe", url, "--timeout", "60m", "--", *CHILD, WAITS)
        assert done.stdout.readline() == "up\n"
        assert select.select([silent], [], [], PATIENCE)[0]
        connection, _ = silent.accept()
        with connection:
            done.send_signal(signal.SIGTERM)
            assert done.wait(PATIENCE) == 7


def test_as_first_process_it_reaps_orphans(daemon, start):
    """In its own pid namespace the client gets the orphans of its children."""
    if subprocess.run(["unshare", "-rpf", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs unshare with the right to make namespaces")
    program = (
        "import os, signal, sys\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0: os._exit(3)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print('up', flush=True)\n"
        "signal.pause()"
    )
    env = {"PATH": os.environ["PATH"], "RECONCILER_PUSH_SOCKET": str(daemon.path)}
    command = ["unshare", "-rpf", "--kill-child", sys.executable, "-m", "reconciler.push", "run", "--", *CHILD, program]
    done = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert done.stdout.readline() == "up\n"
        children = f"/proc/{done.pid}/task/{done.pid}/children"
        first = Path(children).read_text().split()[0]
        zombies = [child for child in _children(int(first)) if _state(child) == "Z"]
        end = threading.Event()
        for _ in range(100):
            if not zombies:
                break
            end.wait(0.05)
            zombies = [child for child in _children(int(first)) if _state(child) == "Z"]
        assert zombies == []
    finally:
        done.kill()
        done.communicate(timeout=PATIENCE)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return ""
