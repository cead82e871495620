"""The time to set the weights of 1,000 servers of HAProxy, compared with the bare socket and a reload in the same run.

Run by `make bench`; needs the haproxy program and prints a Markdown table. Wall-clock milliseconds, medians. The floor sends the
same commands in lines of 100 on one connection and reads all answers without parsing them.
"""

import asyncio
import gc
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from providers.actions import EndpointAction, SetWeight
from providers.endpoints.haproxy.provider import HAProxyEndpoints
from providers.endpoints.haproxy.settings import HAProxySettings
from providers.facts import Endpoint
from providers.spi import Context
from providers.testing.checks import perform_one
from providers.wrappers.limited import limited
from providers.wrappers.owned import owned
from reconciler.core.model.instant import Now
from reconciler.core.model.ledger_fold import Outcome, OutcomeKind
from reconciler.core.model.reasons import Reason
from reconciler.core.model.step import Step
from reconciler.shell.apply.applier import Applier
from reconciler.shell.clock import SystemClock
from reconciler.shell.looks.facts import Looks
from reconciler.shell.looks.triggers import Wake
from reconciler.shell.providers import Providers, ThreadRunner

SERVERS = 1000
ROUNDS = 15
SINGLE = 100
PROMPT = b"\n> "


class Server:
    """HAProxy with one backend of slots, in a directory of its own."""

    def __init__(self, binary: str, directory: Path) -> None:
        self.socket = str(directory / "admin")
        self.master = str(directory / "master")
        self.state = str(directory / "state")
        config = directory / "haproxy.cfg"
        config.write_text(
            f"global\n    stats socket {self.socket} level admin\n    server-state-file {self.state}\n    nbthread 1\n"
            "defaults\n    mode http\n    timeout connect 1s\n    timeout client 5s\n    timeout server 5s\n"
            "    load-server-state-from-file global\n"
            "backend web\n"
            f"    server-template web 1-{SERVERS} bench.slot.invalid:1 init-addr last,127.0.0.1 weight 0 disabled\n"
        )
        self.process = subprocess.Popen(
            [binary, "-W", "-db", "-f", str(config), "-S", self.master],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.wait(self.pid, "HAProxy answers")

    def wait(self, ready: Callable[[], object], condition: str) -> None:
        """Retry until `ready` is true, for at most 10 seconds."""
        deadline = time.monotonic() + 10
        while True:
            try:
                if ready():
                    return
            except (OSError, StopIteration):
                pass
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise SystemExit(f"bench: not reached within 10 s: {condition}")
            time.sleep(0.001)

    def pid(self) -> int:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.socket)
            connection.sendall(b"show info\n")
            text = b"".join(iter(lambda: connection.recv(65536), b""))
        return int(next(line for line in text.splitlines() if line.startswith(b"Pid: "))[5:])

    def reload(self) -> float:
        """Seconds from the signal until the new process answers."""
        self.wait(self.master_answers, "the master answers")
        before = self.pid()
        begun = time.perf_counter()
        self.process.send_signal(signal.SIGUSR2)
        self.wait(lambda: self.pid() != before, "the new worker answers")
        return time.perf_counter() - begun

    def master_answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            connection.connect(self.master)
            connection.sendall(b"show proc\n")
            return bool(connection.recv(4096))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def raw(path: str, lines: list[str]) -> list[bytes]:
    """Send lines of commands on one connection, and return all answers."""
    answers: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(b"prompt\n")
        for line in ["", *lines]:
            data = b""
            if line:
                connection.sendall(line.encode() + b"\n")
            while data.count(PROMPT) < line.count(";") + 1:
                data += connection.recv(262144)
            answers += data.split(PROMPT)[:-1]
    return answers[1:]


def weight_lines(value: int) -> list[str]:
    commands = [f"set server web/web{number} weight {value}" for number in range(1, SERVERS + 1)]
    return [";".join(commands[start : start + 100]) for start in range(0, SERVERS, 100)]


def timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def place(number: int) -> Endpoint:
    return Endpoint(f"10.0.{number >> 8}.{number & 255}", 8080)


def converge(provider: HAProxyEndpoints, weight: int) -> None:
    """Look, compare, write, verify, as the loop does with a pool."""
    (pool,) = provider.observe(["web"])
    actions: list[EndpointAction] = [
        SetWeight("edge", "web", member.endpoint, "", weight, member.weight)
        for member in pool.members
        if member.weight != weight
    ]
    assert len(actions) == SERVERS
    assert not any(provider.perform(actions).errors)


def one_by_one(provider: HAProxyEndpoints, weight: int, before: int) -> None:
    for number in range(SINGLE):
        perform_one(provider, SetWeight("edge", "web", place(number), "", weight, before))


class NoJournal:
    """Weights are not journalled: no call is expected."""

    def begin(
        self,
        step_id: str,
        object: str,  # noqa: A002
        action: str,
        generation: str,
        cause: str,
        now: Now,
        origin: str = "",
    ) -> int:
        raise AssertionError(step_id)

    def end(self, entry: int, outcome: str, detail: str = "") -> None:
        raise AssertionError(entry)

    def sync(self) -> bool:
        raise AssertionError


class WholePath:
    """The whole path of a decision's steps: `Applier`, threads, deadlines, ownership, HAProxy, read-back."""

    def __init__(self, provider: HAProxyEndpoints) -> None:
        clock, runner = SystemClock(), ThreadRunner()
        providers = Providers({}, {"edge": limited(owned(provider, "bench"))}, {})
        looks = Looks(providers, runner, clock, Wake())
        self.applier = Applier(looks, NoJournal(), runner, clock)

    def apply(self, weight: int, before: int) -> float:
        """Seconds for one decision of `SERVERS` weight steps, on a running event loop."""
        steps = tuple(
            Step(
                f"weight edge/web/{place(n).address}:8080",
                "service/web",
                SetWeight("edge", "web", place(n), "", weight, before),
                Reason.READY,
                "ready",
            )
            for n in range(SERVERS)
        )
        # Collect now: the garbage of creating the steps belongs to the decision, not to the applier.
        gc.collect()
        done: list[OutcomeKind] = []

        def finished(step: Step, outcome: Outcome) -> None:
            done.append(outcome.kind)

        async def run() -> float:
            begun = time.perf_counter()
            await self.applier.run(steps, lambda step: None, finished, lambda step: "")
            return time.perf_counter() - begun

        seconds = asyncio.run(run())
        assert done == [OutcomeKind.DONE] * SERVERS
        return seconds

    def close(self) -> None:
        self.applier.looks.providers.close()
        self.applier.runner.close()


def main() -> int:
    binary = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if binary is None:
        print("bench: haproxy_weights needs haproxy, which is not installed: apt-get install haproxy", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="hap-") as directory:
        server = Server(binary, Path(directory))
        try:
            measure(server, directory)
        finally:
            server.stop()
    return 0


def measure(server: Server, directory: str) -> None:
    def make(**settings: object) -> HAProxyEndpoints:
        model = HAProxySettings.model_validate({"sockets": [server.socket], **settings})
        return HAProxyEndpoints("edge", model, Context("bench", directory))

    bare, kept = make(), make(stateFile=server.state)
    takes: list[EndpointAction] = [SetWeight("edge", "web", place(n), "", 1, None) for n in range(SERVERS)]
    taken = timed(lambda: [error for error in kept.perform(takes).errors if error is not None])
    path = WholePath(make())
    floor, look, batch, whole, filed, applied = [], [], [], [], [], []
    weight = 2
    for _ in range(ROUNDS):
        weight = weight % 200 + 5
        floor.append(timed(lambda: raw(server.socket, weight_lines(weight))))  # noqa: B023
        look.append(timed(lambda: raw(server.socket, ["show servers state web"])))
        actions: list[EndpointAction] = [
            SetWeight("edge", "web", place(n), "", weight + 1, weight) for n in range(SERVERS)
        ]
        batch.append(timed(lambda: bare.perform(actions).errors))  # noqa: B023  (called at once)
        whole.append(timed(lambda: converge(bare, weight + 2)))  # noqa: B023
        filed.append(timed(lambda: converge(kept, weight + 3)))  # noqa: B023
        applied.append(path.apply(weight + 4, weight + 3))
    path.close()
    single = timed(lambda: one_by_one(bare, 250, weight + 4)) / SINGLE
    reload = [server.reload() for _ in range(5)]
    (pool,) = bare.observe(["web"])
    assert len(pool.members) == SERVERS
    report(
        statistics.median(floor),
        [
            ("floor: the bare commands, all answers read", statistics.median(floor)),
            ("one bare read of all servers, without parsing", statistics.median(look)),
            ("the bare commands between two bare reads", statistics.median(floor) + 2 * statistics.median(look)),
            ("`perform`: read, compare, write, read back, process checked", statistics.median(batch)),
            ("look, difference, `perform`", statistics.median(whole)),
            ("the same with a state file", statistics.median(filed)),
            ("1,000 weight steps through `Applier` and decorators, read-back included", statistics.median(applied)),
            ("slots taken: address, read back, ready, weight, state file (once)", taken),
            ("`perform` one by one, per 1,000", single * SERVERS),
            ("reload, until the new process answers", statistics.median(reload)),
        ],
    )


def report(floor: float, rows: list[tuple[str, float]]) -> None:
    print(f"| {SERVERS:,} servers of HAProxy | ms | times the floor |")
    print("| --- | --- | --- |")
    for label, seconds in rows:
        print(f"| {label} | {seconds * 1e3:.1f} | {seconds / floor:.2f} |")


if __name__ == "__main__":
    sys.exit(main())
