"""One container of the in-memory world, as plain state: read by `memory.py` (addresses) and `memory_runtime.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from manifests.values.desired import Port
from manifests.values.pod import Live
from providers.facts import (
    ContainerFact,
    ContainerStart,
    ContainerState,
    EndFact,
    ExitCause,
    Generation,
    Mark,
    PortFact,
    RuntimeHealth,
)


@dataclass(slots=True)
class MemoryContainer:
    """State of one container; instants as in `ContainerFact`."""

    name: str
    id: str
    address: str
    mark: Mark | None
    foreign_mark: bool = False
    claim: Mark | None = None
    ports: tuple[Port, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = "/"
    state: ContainerState = ContainerState.CREATED
    started_at: int = 0
    running_since: int = 0
    exit_code: int | None = None
    exit_cause: ExitCause | None = None
    exited_at: int = 0
    log: list[str] = field(default_factory=list)
    last_log: list[str] = field(default_factory=list)
    """The log at its last end."""

    labels: Mapping[str, str] = field(default_factory=dict)
    live: tuple[Live, ...] = ()
    published: tuple[PortFact, ...] = ()
    restarts: int = 0
    healer: str = ""
    health: RuntimeHealth | None = None
    stale_secrets: tuple[str, ...] = ()
    starts: dict[str, ContainerStart] = field(default_factory=dict)
    """The containers of a replica that has several, by name; the main one's name is empty. Empty for a single container."""

    last_end: EndFact | None = None
    oom_at: int = 0
    unjoined: tuple[str, ...] = ()
    """Networks that it was disconnected from. With any in this list its address is not shown."""

    files: tuple[tuple[str, str], ...] = ()
    signals: list[str] = field(default_factory=list)
    """The signals that it got."""

    @property
    def generation(self) -> Generation:
        """(container id, started-at)."""
        return Generation(self.id, self.started_at)

    @property
    def revived(self) -> bool:
        """Whether its restart policy starts it again when it exits."""
        return any(live.container == "" and live.restart not in ("", "no") for live in self.live)

    @property
    def up(self) -> bool:
        """Whether a process exists: running or paused."""
        return self.state in (ContainerState.RUNNING, ContainerState.PAUSED)

    def start(self, wall: int, steady: int) -> None:
        """Begin a new generation, also when the wall clock stands still between two starts."""
        self.started_at = wall if wall != self.started_at else wall + 1
        self.running_since = steady
        all_of_them = "" in self.starts and not self.starts[""].running_since  # the others are in its network
        for name, start in self.starts.items():
            if all_of_them or not start.running_since:
                self.starts[name] = ContainerStart(name, self.started_at, steady)
        self.state = ContainerState.RUNNING
        self.exit_code, self.exit_cause, self.exited_at = None, None, 0

    def end(self, code: int | None, cause: ExitCause, at: int, only: str = "", *, wall: int = 0) -> None:
        """End the process, or that of the container `only`; the replica then does not run either."""
        for name, start in self.starts.items():
            if only in ("", name):
                self.starts[name] = start._replace(running_since=0)
        self.state = ContainerState.EXITED
        self.running_since = 0
        self.exit_code, self.exit_cause, self.exited_at = code, cause, at
        self.oom_at = 0
        self.last_end, self.last_log = EndFact(wall, code, cause) if wall else None, list(self.log)

    def fact(self, node: str) -> ContainerFact:
        """The fact of a look."""
        address = "" if self.unjoined else self.address
        return ContainerFact(
            node=node,
            name=self.name,
            id=self.id,
            state=self.state,
            started_at=self.started_at,
            running_since=self.running_since,
            address=address,
            ports=tuple(PortFact(port.number, address, port.number) for port in self.ports) if address else (),
            mark=self.mark,
            foreign_mark=self.foreign_mark,
            claim=self.claim,
            exit_code=self.exit_code,
            exit_cause=self.exit_cause,
            exited_at=self.exited_at,
            live=self.live,
            published=self.published,
            restarts=self.restarts,
            healer=self.healer,
            health=self.health,
            labels=tuple(sorted(self.labels.items())) if self.mark is None else (),
            stale_secrets=self.stale_secrets,
            starts=tuple(self.starts[name] for name in sorted(self.starts)),
            last_end=self.last_end,
            oom_at=self.oom_at,
            unjoined=self.unjoined if self.mark is not None or self.claim is not None else (),
            files=self.files,
        )
