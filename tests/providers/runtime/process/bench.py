"""Real replicas for tests: creates them, observes them, and leaves no process behind."""

import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from manifests.values.desired import SECOND, Container, Port, Template
from providers.actions import CreateContainer, RemoveContainer, StartContainer, StopContainer
from providers.facts import ContainerFact, ContainerState, Mark, container_name
from providers.runtime.process.runtime import ProcessRuntime, ProcessSettings
from providers.runtime.process.shim_protocol import COOKIE, decode, encode, read_file
from providers.spi import Context
from providers.testing.checks import wait_until

REVISION = "abcdef0123456789"
SLEEP = ("/bin/sleep", "1000")


def python(code: str) -> tuple[str, ...]:
    """A command that runs this code in a bare interpreter."""
    return (sys.executable, "-I", "-S", "-u", "-c", code)


@dataclass
class Bench:
    """One state directory with one runtime, and the ids of all replicas that were created."""

    state: Path
    root: Path
    node: str = "local"
    workload: str = field(default_factory=lambda: f"web{secrets.token_hex(4)}")
    ids: dict[str, str] = field(default_factory=dict)

    def name(self, ordinal: int = 0) -> str:
        """Name of a replica, unique to this test: other tests may run at the same time."""
        return container_name(Mark("demo", self.workload, ordinal, REVISION))

    def runtime(self, **settings: object) -> ProcessRuntime:
        """A new provider object, as a new run of the program would create it."""
        return ProcessRuntime(self.node, ProcessSettings.model_validate(settings), Context("demo", str(self.state)))

    def creation(self, argv: tuple[str, ...] = SLEEP, ordinal: int = 0, **container: object) -> CreateContainer:
        mark = Mark("demo", self.workload, ordinal, REVISION)
        ports = container.pop("ports", (Port("http", 8080), Port("admin-api", 9090)))
        inner = Container("web", argv, ports=ports, **container)  # type: ignore[arg-type]
        template = Template((("app", "web"),), inner, grace=2 * SECOND, revision=REVISION)
        return CreateContainer(self.node, container_name(mark), mark, template, str(self.root))

    def create(self, argv: tuple[str, ...] = SLEEP, ordinal: int = 0, **container: object) -> ContainerFact:
        action = self.creation(argv, ordinal, **container)
        self.runtime().perform(action)
        return self.fact(action.name)

    def start(self, fact: ContainerFact) -> ContainerFact:
        self.runtime().perform(StartContainer(fact.node, fact.name, fact.generation))
        return self.fact(fact.name)

    def run(self, *argv: str, **container: object) -> ContainerFact:
        """Create and start one replica."""
        return self.start(self.create(argv or SLEEP, **container))

    def stop(self, fact: ContainerFact, grace: int = 2 * SECOND) -> ContainerFact:
        self.runtime().perform(StopContainer(fact.node, fact.name, fact.generation, grace))
        return self.fact(fact.name)

    def remove(self, fact: ContainerFact) -> None:
        self.runtime().perform(RemoveContainer(fact.node, fact.name, fact.generation))

    def fact(self, name: str) -> ContainerFact:
        (fact,) = self.runtime().observe([name])
        self.ids[fact.id] = name
        return fact

    def ended(self, fact: ContainerFact) -> ContainerFact:
        """Wait until it has exited by itself."""
        self.wait(lambda: self.fact(fact.name).state is ContainerState.EXITED, f"{fact.name} exits")
        return self.fact(fact.name)

    def says(self, fact: ContainerFact, line: str) -> None:
        """Wait until its log holds a whole line: the writer may still write a part of it."""
        path = f"{self.directory(fact)}/log"
        self.wait(lambda: f"{line}\n".encode() in (read_file(path) or b""), f"{fact.name} says {line!r}")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what)

    def directory(self, fact: ContainerFact) -> Path:
        return self.state / "process" / fact.node / fact.name

    def record(self, fact: ContainerFact) -> dict[str, str]:
        """The generation record, as it is on the disk."""
        return decode(read_file(f"{self.directory(fact)}/generation") or b"")

    def rewrite(self, fact: ContainerFact, **fields: object) -> None:
        """Change fields of the generation record on the disk."""
        changed = {**self.record(fact), **{key: str(value) for key, value in fields.items()}}
        (self.directory(fact) / "generation").write_bytes(encode(changed))

    def pid(self, fact: ContainerFact) -> int:
        return int(self.record(fact)["pid"])

    def shim(self, fact: ContainerFact) -> int:
        return int(self.record(fact)["shim"])

    def kill(self, pid: int, number: int) -> None:
        os.kill(pid, number)

    def processes(self, fact: ContainerFact) -> list[int]:
        """All processes of the replica that have reached their exec, by the cookie in their environment."""
        return carriers(fact.id)


def carriers(container_id: str) -> list[int]:
    cookie = f"{COOKIE}={container_id}".encode()
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and cookie in _environ(pid)]


def _environ(pid: str) -> list[bytes]:
    """Its environment. During an exec the kernel shows a program without arguments and environment."""
    for _ in range(100_000):
        try:
            text = Path(f"/proc/{pid}/environ").read_bytes()
            if text or Path(f"/proc/{pid}/cmdline").read_bytes():
                return text.split(b"\0")
            os.readlink(f"/proc/{pid}/exe")  # fails for kernel threads and for exited processes
        except OSError:
            break
        os.sched_yield()
    return []


def holders(paths: list[str]) -> list[str]:
    """The pids of the processes that have one of these lock files open."""
    inodes = {(os.stat(path).st_dev, os.stat(path).st_ino) for path in paths}
    pids = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                stat = os.stat(f"/proc/{pid}/fd/{fd}")
                if (stat.st_dev, stat.st_ino) in inodes:
                    pids.append(pid)
        except OSError:
            continue
    return pids
