"""`type: process`: replicas as local processes, the embedded runtime. No Docker, no privileges; Linux only.

A replica outlives `reconcile`: its own small shim (`shim.py`) keeps it running and records its exit. Each replica has its own
loopback address and gets it as ADDRESS and PORT. There is no isolation: replicas run as the user who runs `reconcile` and see
the same files.

A service manager must stop `reconcile` alone and not its whole group (systemd: `KillMode=process`).
"""

import os
import time
import uuid
from collections.abc import Collection
from ipaddress import IPv4Network
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from manifests.values.desired import Role
from manifests.values.pod import RELATIVE_WORKING_DIR
from providers.actions import (
    CreateContainer,
    RemoveContainer,
    RuntimeAction,
    StartContainer,
    StopContainer,
    UpdateContainer,
)
from providers.errors import Conflict, Foreign, Gone, Rejected, Unreachable
from providers.facts import ContainerFact, container_name, mark_labels
from providers.runtime.process.address import choose_address
from providers.runtime.process.environment import environment, executable, working_directory
from providers.runtime.process.log import tail
from providers.runtime.process.observe import fact, look, read_host
from providers.runtime.process.start import start
from providers.runtime.process.stop import remove, stop
from providers.runtime.process.store import FORMAT, ContainerRecord, Store, check_name
from providers.spi import Context, ExecTarget

LOOPBACK = IPv4Network("127.0.0.0/8")


class ProcessSettings(BaseModel):
    """Settings of a process runtime."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    address_range: IPv4Network = Field(
        default=IPv4Network("127.64.0.0/10"),
        description="Loopback addresses for replicas, one each. Inside 127.0.0.0/8, at least a /30.",
    )

    @field_validator("address_range")
    @classmethod
    def _inside_loopback(cls, value: IPv4Network) -> IPv4Network:
        if not value.subnet_of(LOOPBACK):
            raise ValueError(f"{value} is not inside {LOOPBACK}; other addresses need network set-up")
        if value.prefixlen > 30:
            raise ValueError(f"{value} has no addresses for replicas; use a /30 or larger")
        return value


class ProcessRuntime:
    """Runs replicas as local processes below `<state directory>/process/<name>`; see the module docstring."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]] = ProcessSettings
    supports: ClassVar[frozenset[str]] = frozenset({RELATIVE_WORKING_DIR})
    requires: ClassVar[frozenset[str]] = frozenset({"command"})

    def __init__(self, name: str, settings: BaseModel, context: Context) -> None:
        self.name = name
        self._settings = ProcessSettings.model_validate(settings)
        self._store = Store(context.state_dir, name)

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """All replicas of this node, or those of `names`, in the order of their names. Raises Unreachable."""
        host = read_host()
        facts = []
        for name in self._store.names() if names is None else sorted(set(names)):
            record = self._store.read(name)
            if record is not None:
                facts.append(fact(self.name, name, record, look(self._store, name, host), host))
        return tuple(facts)

    def perform(self, action: RuntimeAction) -> None:
        """Do one action; blocks until it is done (a stop at most for its grace period and 20 s more)."""
        if action.node != self.name:
            raise Rejected(action.name, f"the action is for node {action.node}, this is {self.name}")
        check_name(action.name)
        if isinstance(action, UpdateContainer):
            raise Rejected(action.name, "processes cannot be updated in place", "replace the replica")
        try:
            self._perform(action)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            step = "check whether the disk of the state directory is full or read-only"
            raise Unreachable(action.name, f"{error.strerror or error}{where}", step) from error

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """The command that runs `argv` with the replica's environment and directory. Raises Gone, Rejected, Unreachable."""
        record = self._store.read(container)
        if record is None:
            raise Gone(container, f"container does not exist on {self.name}", "retried automatically")
        if not argv:
            raise Rejected(container, "the command is empty", "set at least the program")
        env = environment(record)
        cwd = working_directory(container, record.root, record.working_dir, self._store.spare)
        return ExecTarget((executable(container, argv[0], env, cwd), *argv[1:]), tuple(env.items()), cwd)

    def logs(self, container: str, lines: int, until: int = 0) -> tuple[str, ...]:
        """The last lines of output, of earlier generations too; empty when there are none. Raises Unreachable.

        Lines have no dates, so `until` is ignored.
        """
        del until
        if self._store.read(container) is None:
            return ()
        try:
            return tail(self._store.directory(container), lines)
        except OSError as error:
            raise Unreachable(container, f"cannot read its log: {error.strerror}") from error

    def close(self) -> None:
        """Do nothing: replicas belong to their shims."""

    # --- one action ---------------------------------------------------------------------------------------------

    def _perform(self, action: CreateContainer | StartContainer | StopContainer | RemoveContainer) -> None:
        if isinstance(action, CreateContainer):
            self._create(action)
            return
        record = self._store.read(action.name)
        if record is None:
            if isinstance(action, StartContainer):
                raise Gone(action.name, f"container does not exist on {self.name}", "retried automatically")
            return
        if isinstance(action, StartContainer):
            start(self._store, record, action.expect)
        elif isinstance(action, StopContainer):
            if action.only:
                cause = f"has no container {action.only}: a replica of this runtime is one process"
                raise Conflict(action.name, cause, "retried automatically")
            stop(self._store, record, action.expect, action.grace)
        else:
            self._remove(action, record)

    def _remove(self, action: RemoveContainer, record: ContainerRecord) -> None:
        try:
            remove(self._store, record, action.expect)
        except FileNotFoundError:  # another writer has removed it meanwhile
            if os.path.lexists(self._store.directory(action.name)):
                raise

    def _create(self, action: CreateContainer) -> None:
        if container_name(action.mark) != action.name:
            cause = f"its owner mark belongs to the name {container_name(action.mark)}"
            raise Rejected(action.name, cause, "derive the name from the mark")
        if self._exists(action):
            return
        self._check_template(action)
        with self._store.allocation(action.name):
            if self._exists(action):
                return
            self._store.sweep()
            taken = {record.address for record in self._store.all_records()}
            container = action.template.container
            ports = tuple((port.name, port.number) for port in container.ports)
            address = choose_address(action.name, self._settings.address_range, taken, [number for _, number in ports])
            record = ContainerRecord(
                format=FORMAT,
                name=action.name,
                id=uuid.uuid4().hex,
                labels=mark_labels(action.mark, action.template.hash_version),
                argv=container.argv,
                env=(*container.env, *action.extra_env),
                ports=ports,
                root=os.path.abspath(action.root),
                working_dir=container.working_dir,
                address=address,
                grace=action.template.grace,
                created_at=time.time_ns(),
            )
            self._store.add(record)

    def _exists(self, action: CreateContainer) -> bool:
        """Whether this container exists already. Raises Foreign or Conflict for another one under its name."""
        record = self._store.read(action.name)
        if record is None:
            return False
        mark, _ = record.mark(action.name)
        if mark == action.mark:
            return True
        if mark is None or mark.instance != action.mark.instance:
            raise Foreign(action.name, "the name is taken by a foreign container", "remove or rename it")
        raise Conflict(action.name, f"exists with another owner mark: {mark}", "retried automatically")

    def _check_template(self, action: CreateContainer) -> None:
        container = action.template.container
        if not container.argv or not container.argv[0]:
            raise Rejected(action.name, "its command is empty", "set the command of the workload's container")
        texts = (*container.argv, *(text for pair in container.env for text in pair))
        if any("\0" in text for text in texts):
            raise Rejected(
                action.name, "its command or environment contains a NUL character", "remove the NUL character"
            )
        for name, _ in container.env:
            if not name or "=" in name:
                raise Rejected(action.name, f"{name!r} is not a valid name of an environment variable", "rename it")
        working_directory(action.name, action.root, container.working_dir, self._store.spare)
