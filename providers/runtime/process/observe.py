"""From records to facts: whether a replica's processes exist, and its fact. Reads only. Called by `runtime.py`, `start.py` and
`stop.py`.

It reads the record of the newest generation and /proc, and never takes the lock: taking it, even for an instant, could make a
concurrent start see the replica in use.
"""

import os
from typing import NamedTuple

from providers.errors import Unreachable
from providers.facts import ContainerFact, ContainerState, ExitCause, PortFact
from providers.runtime.process.shim_protocol import SECOND, is_alive, process_stat, read_file
from providers.runtime.process.store import ContainerRecord, GenerationRecord, Store

TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks per second of the times in /proc/PID/stat."""

UP = frozenset({ContainerState.RUNNING, ContainerState.PAUSED, ContainerState.STOPPING})
"""The states in which processes of the replica exist."""


class Host(NamedTuple):
    """Boot and pid namespace of this process: pids are comparable only within both."""

    boot: str
    namespace: str


class ReplicaState(NamedTuple):
    """A replica at one look: its newest generation, the state of that, and why it is not running."""

    generation: GenerationRecord | None
    state: ContainerState
    cause: ExitCause | None = None

    @property
    def up(self) -> bool:
        """Whether processes of the replica exist."""
        return self.state in UP

    @property
    def runs(self) -> bool:
        """Whether the application runs: its exec has succeeded, and it is not being stopped."""
        starting = self.generation is not None and self.generation.phase == "starting"
        return self.state in (ContainerState.RUNNING, ContainerState.PAUSED) and not starting

    @property
    def started_at(self) -> int:
        """Wall-clock start of the newest generation; 0 before the first."""
        return self.generation.started_at if self.generation else 0

    def unclean(self, host: Host) -> bool:
        """Whether the generation lost its shim before the end, so that some of its processes may still run."""
        newest = self.generation
        return newest is not None and newest.phase != "exited" and newest.boot == host.boot


def read_host() -> Host:
    """This boot and pid namespace. Raises Unreachable without /proc: then every process would seem to be dead."""
    try:
        boot = (read_file("/proc/sys/kernel/random/boot_id") or b"").decode().strip()
        return Host(boot, os.readlink("/proc/self/ns/pid"))
    except OSError as error:
        raise Unreachable("process runtime", f"cannot read /proc: {error}", "mount /proc") from error


def look(store: Store, name: str, host: Host) -> ReplicaState:
    """The state of one replica. Raises Unreachable when its record or its processes cannot be read."""
    try:
        return _look(store, name, host)
    except OSError as error:
        raise Unreachable(
            name, f"cannot read its processes in /proc: {error.strerror}", "retried automatically"
        ) from error


def _look(store: Store, name: str, host: Host) -> ReplicaState:
    newest = store.generation(name)
    for _ in range(3):
        if newest is None:
            return ReplicaState(None, ContainerState.CREATED)
        if newest.phase == "exited":
            return ReplicaState(newest, ContainerState.EXITED, newest.cause)
        if newest.boot != host.boot:
            return ReplicaState(newest, ContainerState.EXITED, ExitCause.HOST_RESTARTED)
        if newest.namespace != host.namespace:
            raise Unreachable(name, "runs in another pid namespace", "run `reconcile` where the replica was started")
        process = process_stat(newest.pid)
        if process is not None and process[2] == newest.pid_start and process[0] not in "ZX":
            return ReplicaState(newest, _running_state(newest, process[0]))
        if is_alive(newest.shim, newest.shim_start):
            return ReplicaState(
                newest, ContainerState.STOPPING
            )  # the application has exited; the shim ends its other processes
        # A shim records the exit before it exits itself; now that it is gone, its record is final.
        again = store.generation(name)
        if again == newest:
            return ReplicaState(newest, ContainerState.EXITED, ExitCause.UNKNOWN)
        newest = again
    raise Unreachable(name, "starts and exits faster than it can be observed", "retried automatically")


def _running_state(newest: GenerationRecord, letter: str) -> ContainerState:
    if newest.phase == "stopping":
        return ContainerState.STOPPING
    return ContainerState.PAUSED if letter == "T" else ContainerState.RUNNING


def fact(node: str, name: str, record: ContainerRecord, replica: ReplicaState, host: Host) -> ContainerFact:
    """The fact about one replica."""
    mark, foreign_mark = record.mark(name)
    newest = replica.generation
    ended = newest is not None and replica.state is ContainerState.EXITED
    return ContainerFact(
        node=node,
        name=name,
        id=record.id,
        state=replica.state,
        started_at=replica.started_at,
        # /proc counts from the same boot as CLOCK_BOOTTIME does, see proc(5) and clock_gettime(2).
        running_since=newest.pid_start * SECOND // TICKS if newest and replica.up else 0,
        address=record.address,
        ports=tuple(PortFact(number, record.address, number) for _, number in record.ports),
        mark=mark,
        foreign_mark=foreign_mark,
        exit_code=newest.exit_code if newest and ended else None,
        exit_cause=replica.cause,
        exited_at=newest.exited_at if newest and ended and newest.boot == host.boot else 0,
    )
