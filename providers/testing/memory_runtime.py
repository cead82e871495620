"""An in-memory runtime: containers without processes, in a `MemoryWorld`, on any clock.

Used by the simulation and by tests, and available to manifests as `memory-runtime`. It passes the same conformance suite as the
real runtimes. Beside the contract it has methods for events of a host: containers that exit, are paused or vanish, containers of
other owners, and a reboot.
"""

import os
from collections.abc import Collection, Mapping
from typing import ClassVar

from pydantic import BaseModel

from manifests.values.desired import SECOND, Port, Role
from manifests.values.pod import Live
from providers.actions import (
    CreateContainer,
    RemoveContainer,
    RuntimeAction,
    StartContainer,
    StopContainer,
    UpdateContainer,
)
from providers.errors import Conflict, Foreign, Gone, Rejected
from providers.facts import (
    ContainerFact,
    ContainerStart,
    ContainerState,
    ExitCause,
    Generation,
    PortFact,
    RuntimeHealth,
    claimed_mark,
    container_name,
    read_mark,
)
from providers.spi import Context, ExecTarget
from providers.testing.memory import MemorySettings, MemoryWorld
from providers.testing.memory_container import MemoryContainer

LOG_LINES = 1000
"""Lines kept of each container's output."""


class MemoryRuntime:
    """Containers of one node in a `MemoryWorld`. The node is the provider's name."""

    role: ClassVar[Role] = Role.RUNTIME
    Settings: ClassVar[type[BaseModel]] = MemorySettings

    def __init__(self, name: str, settings: BaseModel, context: Context, world: MemoryWorld | None = None) -> None:
        del settings
        self.name = name
        self.world = world or MemoryWorld.of(context)
        self.in_place = False
        """For tests: whether containers are created with the template's live settings, as an engine does. Such a container can be
        changed in place, and its restart policy starts it again when it exits."""

        self._refuse_starts = ""

    @property
    def _containers(self) -> dict[str, MemoryContainer]:
        return self.world.nodes.setdefault(self.name, {})

    # --- the contract -------------------------------------------------------------------------------------------

    def observe(self, names: Collection[str] | None = None) -> tuple[ContainerFact, ...]:
        """All containers, or those of these names, or ids of renamed ones, in the order of their names."""
        with self.world.lock:
            self.world.check_readable(self.name)
            containers = sorted(self._containers.items())
            return tuple(
                item.fact(self.name)
                for name, item in containers
                if names is None or name in names or (item.claim is not None and item.id in names)
            )

    def perform(self, action: RuntimeAction) -> None:
        """Do one action at once: there is no process to wait for."""
        with self.world.lock:
            if action.node != self.name:
                raise Rejected(action.name, f"the action is for node {action.node}; this is {self.name}")
            if isinstance(action, CreateContainer):
                self._create(action)
                return
            if isinstance(action, StartContainer):
                self._start(action)
                return
            if isinstance(action, StopContainer):
                self._stop(action)
                return
            if isinstance(action, UpdateContainer):
                self._update(action)
                return
            self._remove(action)

    def exec_target(self, container: str, argv: tuple[str, ...]) -> ExecTarget:
        """The arguments as given, with the container's environment and directory. Raises `Gone`."""
        with self.world.lock:
            target = self._find(container, container)
            if target is None:
                raise _gone(container, self.name)
            return ExecTarget(argv, target.env, target.cwd)

    def logs(self, container: str, lines: int, until: int = 0) -> tuple[str, ...]:
        """The last lines from `say`, oldest first; those of its last end if `until` is that instant."""
        with self.world.lock:
            item = self._find(container, container)
            if item is None or lines <= 0:
                return ()
            ended = item.last_end is not None and 0 <= until - item.last_end.at < SECOND
            return tuple((item.last_log if ended else item.log)[-lines:])

    def close(self) -> None:
        """Nothing to close: the containers stay."""

    def _create(self, action: CreateContainer) -> None:
        if container_name(action.mark) != action.name:
            wanted = container_name(action.mark)
            raise Rejected(action.name, f"its mark belongs to name {wanted}", "derive the name from the mark")
        present = self._containers.get(action.name)
        if present is not None:
            _check_same(present, action)
            return
        self.world.created += 1
        spec, others = action.template.container, [sidecar.name for sidecar in action.template.sidecars]
        self._containers[action.name] = MemoryContainer(
            name=action.name,
            id=f"memory-{self.world.created}",
            address=self.world.free_address(self.name),
            mark=action.mark,
            ports=spec.ports,
            env=spec.env,
            cwd=os.path.normpath(os.path.join(action.root, spec.working_dir)),
            live=action.template.live if self.in_place else (),
            files=tuple((volume.name, volume.digest) for volume in action.template.volumes),
            starts={name: ContainerStart(name, 0, 0) for name in ("", *others)} if others else {},
        )

    def _start(self, action: StartContainer) -> None:
        item = self._find(action.name, action.expect.container_id)
        if item is None:
            raise _gone(action.name, self.name)
        if item.id != action.expect.container_id:
            raise _moved(action.name, action.expect, item.generation)
        if item.up:
            return
        if item.generation != action.expect:
            raise _moved(action.name, action.expect, item.generation)
        if self._refuse_starts:
            raise Rejected(action.name, self._refuse_starts, "correct the template")
        item.unjoined = ()
        item.start(self.world.wall(), self.world.steady())

    def _stop(self, action: StopContainer) -> None:
        item = self._find(action.name, action.expect.container_id)
        if item is None or not item.up:
            return
        if action.only and action.only not in item.starts:
            raise Conflict(action.name, f"has no container {action.only}", "retried automatically")
        if item.generation != action.expect:
            raise _moved(action.name, action.expect, item.generation)
        item.end(0, ExitCause.STOPPED_BY_US, self.world.steady(), action.only, wall=self.world.wall())

    def _update(self, action: UpdateContainer) -> None:
        item = self._find(action.name, action.expect.container_id)
        if item is None:
            raise _gone(action.name, self.name)
        if action.live and not item.live:
            raise Rejected(action.name, "this runtime has no settings to change in place", "replace the container")
        if item.generation != action.expect:
            raise _moved(action.name, action.expect, item.generation)
        before = {live.container: live for live in item.live}
        after = {live.container: live for live in action.live}
        if not after.keys() <= before.keys():
            missing = ", ".join(sorted(after.keys() - before.keys()))
            raise Conflict(action.name, f"has no container {missing}", "retried automatically")
        limits = any(live[:3] != before[name][:3] for name, live in after.items())
        if limits and item.state is not ContainerState.RUNNING:
            raise Conflict(action.name, f"is {item.state}; its limits cannot be changed", "retried automatically")
        item.live = tuple(sorted({**before, **after}.values()))
        item.unjoined = tuple(name for name in item.unjoined if name not in action.join)
        if action.files and item.state is not ContainerState.RUNNING:
            raise Conflict(action.name, f"is {item.state} and cannot get a signal", "retried automatically")
        item.files = tuple({**dict(item.files), **{volume: digest for volume, digest, _ in action.files}}.items())
        item.signals += dict.fromkeys(signal for _, _, signal in action.files)

    def _remove(self, action: RemoveContainer) -> None:
        item = self._find(action.name, action.expect.container_id)
        if item is None:
            return
        if item.generation != action.expect:
            raise _moved(action.name, action.expect, item.generation)
        if item.up:
            raise Conflict(action.name, f"is {item.state}; it cannot be removed", "stop it first")
        del self._containers[item.name]

    def _find(self, name: str, container_id: str) -> MemoryContainer | None:
        """The container with this id, under whatever name; else the one with this name."""
        by_id = (item for item in self._containers.values() if item.id == container_id)
        return next(by_id, None) or self._containers.get(name)

    def _get(self, name: str) -> MemoryContainer:
        item = self._containers.get(name)
        if item is None:
            raise _gone(name, self.name)
        return item

    # --- events of a host ------------------------------------------------------------------------------

    def exit(self, name: str, code: int = 1) -> None:
        """The container's process exits with this code; a restart policy starts it again at once."""
        self._end(name, code, ExitCause.EXITED)

    def kill(self, name: str, signal: int = 9) -> None:
        """A signal kills the container's process; the code is 128 + signal, as shells and engines report it."""
        self._end(name, 128 + signal, ExitCause.SIGNALLED)

    def run_out_of_memory(self, name: str) -> None:
        """The kernel kills the container at its memory limit."""
        self._end(name, 137, ExitCause.OOM_KILLED)

    def lose_child(self, name: str) -> None:
        """The kernel kills a process of the container at its memory limit; its main process runs on."""
        with self.world.lock:
            self._get(name).oom_at = self.world.wall()

    def _end(self, name: str, code: int, cause: ExitCause) -> None:
        with self.world.lock:
            item = self._get(name)
            item.end(code, cause, self.world.steady(), wall=self.world.wall())
            if item.revived:
                item.restarts += 1
                item.start(self.world.wall(), self.world.steady())

    def pause(self, name: str) -> None:
        """An operator pauses a running container."""
        with self.world.lock:
            self._get(name).state = ContainerState.PAUSED

    def unpause(self, name: str) -> None:
        """An operator unpauses a container; it keeps its generation."""
        with self.world.lock:
            self._get(name).state = ContainerState.RUNNING

    def disconnect(self, name: str, network: str = "lan") -> None:
        """A container is disconnected from its network."""
        with self.world.lock:
            item = self._get(name)
            item.unjoined = tuple(sorted({*item.unjoined, network}))

    def rename(self, name: str, other: str) -> None:
        """An operator renames a container; a name that is taken is refused."""
        with self.world.lock:
            item = self._get(name)
            if other in self._containers:
                raise Conflict(other, "the name is taken", "choose another name")
            mark = item.mark or item.claim
            del self._containers[name]
            self._containers[other] = item
            item.name = other
            if mark is not None:
                named = container_name(mark) == other
                item.mark, item.claim, item.foreign_mark = (mark, None, False) if named else (None, mark, True)

    def vanish(self, name: str) -> None:
        """The container is removed, running or not; its address is free at once."""
        with self.world.lock:
            self._get(name)
            del self._containers[name]

    def say(self, name: str, *lines: str) -> None:
        """The container writes lines to its log; the newest 1,000 are kept."""
        with self.world.lock:
            log = self._get(name).log
            log.extend(lines)
            del log[:-LOG_LINES]

    def plant(
        self,
        name: str,
        labels: Mapping[str, str],
        running: bool = True,
        ports: tuple[Port, ...] = (),
        live: tuple[Live, ...] = (),
        inherited: bool = False,
    ) -> None:
        """A container that another program created, with these labels, ports and live settings; `inherited`: from its image."""
        with self.world.lock:
            self.world.created += 1
            mark, foreign = read_mark(name, labels)
            item = MemoryContainer(
                name=name,
                id=f"memory-{self.world.created}",
                address=self.world.free_address(self.name),
                mark=mark,
                foreign_mark=foreign,
                claim=claimed_mark(labels) if foreign and not inherited else None,
                ports=ports,
                labels=dict(labels),
                live=live,
            )
            self._containers[name] = item
            if running:
                item.start(self.world.wall(), self.world.steady())

    def alter(
        self,
        name: str,
        *,
        health: RuntimeHealth | None = None,
        healer: str = "",
        restarts: int = 0,
        published: tuple[PortFact, ...] = (),
        stale_secrets: tuple[str, ...] = (),
    ) -> None:
        """Set what an engine says of the container beside its state; arguments that are left out are reset."""
        with self.world.lock:
            item = self._get(name)
            item.health, item.healer, item.restarts = health, healer, restarts
            item.published, item.stale_secrets = published, stale_secrets

    def refuse_starts(self, cause: str) -> None:
        """Refuse every start with this cause from now on; an empty text ends that."""
        self._refuse_starts = cause

    def reboot(self) -> None:
        """The host restarts: running containers are down, and the time of their end is unknown."""
        with self.world.lock:
            for item in self._containers.values():
                if item.up:
                    item.end(None, ExitCause.HOST_RESTARTED, 0)


def _gone(name: str, node: str) -> Gone:
    return Gone(name, f"no such container on {node}", "retried automatically")


def _check_same(present: MemoryContainer, action: CreateContainer) -> None:
    if present.mark == action.mark:
        return
    if present.mark is None or present.mark.instance != action.mark.instance:
        raise Foreign(action.name, "a container of another owner has this name", "remove or rename that container")
    raise Conflict(action.name, f"exists with another mark: {present.mark}", "retried automatically")


def _moved(name: str, expect: Generation, present: Generation) -> Conflict:
    return Conflict(
        name, f"the plan saw generation {tuple(expect)}, now it is {tuple(present)}", "retried automatically"
    )
