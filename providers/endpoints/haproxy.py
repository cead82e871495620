"""Pools in HAProxy (`type: haproxy`), over the stats sockets of its processes on this host. No reload, no configuration file.

A pool is `BACKEND` or `BACKEND:SLOTS`: the servers `<slots><n>` of that backend (`<backend><n>` by default), made by a line

    server-template web 1-20 demo.slot.invalid:1 init-addr last,127.0.0.1 weight 0 disabled

Its host name says who fills them: this instance (`demo`), or with plain `slot.invalid` whoever is told to. HAProxy never uses
it, and shows it whatever address a slot has; so two instances that were given the same slots cannot touch each other's, and
a pool that no manifest names any more is found. With plain `slot.invalid` neither can be noticed: give each set of slots to
one instance only. Other servers of the backend are shown, and never touched.

Weight and administrative state of a slot are ours: what somebody else writes there is put right. Whether a server is up is
HAProxy's own business: recommended are `check inter 2s fall 3`, `option redispatch` and `retries 2`, so that the data plane
survives without us. With several sockets (processes, or the members of a pair) a pool is what all of them say;
`haproxy_state.DISAGREE` is a member on which they differ.
"""

import os
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from manifests.desired import SECOND, Role
from manifests.fields import Delay
from manifests.scalars import Duration
from providers.actions import EndpointAction
from providers.endpoints import haproxy_commands as commands
from providers.endpoints.haproxy_check import check_socket
from providers.endpoints.haproxy_socket import Session, converse
from providers.endpoints.haproxy_state import (
    Server,
    Slots,
    marked,
    members,
    parse_pool,
    parse_servers,
    state_file,
    table,
)
from providers.endpoints.haproxy_write import Job, Process, jobs_of, prepare, servers_of, write
from providers.errors import OutcomeUnknown, ProviderError, Unreachable
from providers.facts import Endpoint, PoolFact
from providers.files import locked, read, replace
from providers.spi import Context

SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux (unix(7): 108 bytes with the final zero)."""

DEBIAN_SOCKET = "/run/haproxy/admin.sock"
"""Where the configuration of Debian's package has its admin socket."""


def _absolute(path: str) -> str:
    if not os.path.isabs(path) or "\0" in path:
        raise ValueError(f"{path!r} is not an absolute path")
    return path


def _short(path: str) -> str:
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise ValueError(f"a socket's path has at most {SOCKET_PATH_BYTES} bytes")
    return path


def _distinct(paths: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(paths)) != len(paths):
        raise ValueError("a socket is named twice")
    return paths


class HAProxySettings(BaseModel):
    """Settings of `type: haproxy`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)
    takes_slots: ClassVar[bool] = True

    sockets: Annotated[
        tuple[Annotated[str, AfterValidator(_absolute), AfterValidator(_short)], ...], AfterValidator(_distinct)
    ] = Field(
        default=(DEBIAN_SOCKET,),
        min_length=1,
        description="Absolute paths of stats sockets with `level admin`, one for each process that carries the pools.",
    )
    state_file: Annotated[str, AfterValidator(_absolute)] | None = Field(
        default=None,
        description="HAProxy's server-state-file, as an absolute path. Kept up to date, so that a reload keeps addresses "
        "and weights; with several sockets they must run the same backends.",
    )
    timeout: Delay = Field(
        default=Duration(5 * SECOND), description="The longest that one look, or one batch of writes, may take."
    )


class HAProxyEndpoints:
    """Pools of slots in HAProxy; see the module."""

    role: ClassVar[Role] = Role.ENDPOINTS
    Settings: ClassVar[type[BaseModel]] = HAProxySettings
    checks_ownership: ClassVar[bool] = True

    def __init__(self, name: str, settings: HAProxySettings, context: Context) -> None:
        self.name = name
        self._settings = settings
        self._context = context
        self._writing = threading.Lock()

    def observe(self, pools: Collection[str]) -> tuple[PoolFact, ...]:
        """The named pools, plus those whose slots in use are marked for this instance. No backend or no slots: empty.

        Raises:
            Unreachable: one of the sockets does not answer; no part is told then.
            Rejected: a pool's name is impossible.
        """
        wanted = {pool: parse_pool(pool, self._context.instance) for pool in set(pools)}
        deadline = self._deadline()
        processes = [self._look(path, deadline) for path in self._settings.sockets]
        for servers in processes:
            for slots in marked(servers, self._context.instance) - set(wanted.values()):
                wanted[slots.pool] = slots
        return tuple(
            PoolFact(pool, members([table(slots, servers) for servers in processes]))
            for pool, slots in sorted(wanted.items())
        )

    def perform(self, action: EndpointAction) -> None:
        """Set a weight, taking a slot if needed, or free a slot; on all sockets, and read back.

        Raises:
            Rejected: an address, weight or pool is impossible, the backend or a free slot is missing (with the line to add),
                or the socket has no admin rights.
            Conflict, Gone, Foreign: the member is not as the plan saw it, or not ours.
            Unreachable: a socket does not answer; nothing was changed.
            OutcomeUnknown: an answer was lost, a slot reads back differently, HAProxy was reloaded meanwhile, or the state
                file could not be written.
        """
        (error,) = self.perform_all([action])
        if error is not None:
            raise error

    def perform_all(self, actions: Sequence[EndpointAction]) -> tuple[ProviderError | None, ...]:
        """Like `perform` for many actions in few exchanges: 100 commands a line, and one look before and after.

        Returns:
            What `perform` would have raised for each action, None for success. One that fails does not stop the others.
        """
        slots: dict[str, Slots] = {}
        errors: dict[int, ProviderError | None] = {}
        for index, action in enumerate(actions):
            try:
                slots[action.pool] = slots.get(action.pool) or parse_pool(action.pool, self._context.instance)
            except ProviderError as error:
                errors[index] = error
        fine = [index for index in range(len(actions)) if index not in errors]
        jobs = jobs_of((actions[index] for index in fine), slots)
        deadline = self._deadline()
        if not self._writing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            busy = Unreachable(f"provider {self.name}", "an earlier write has not returned; nothing was changed")
            return tuple(errors.get(index, busy) for index in range(len(actions)))
        try:
            for turn in _turns(jobs):
                self._batch(turn, deadline)
        finally:
            self._writing.release()
        errors.update(zip(fine, (job.error for job in jobs), strict=True))
        return tuple(errors[index] for index in range(len(actions)))

    def check(self, pools: Collection[str]) -> tuple[str, ...]:
        """What is missing in HAProxy's configuration for these pools, one line each with what to write where; read-only.

        What cannot be found out (a configuration file that this user may not read) is said as well. Empty: all is fine.

        Raises:
            Unreachable: a socket does not answer.
            Rejected: a pool's name is impossible.
        """
        wanted = [parse_pool(pool, self._context.instance) for pool in sorted(set(pools))]
        deadline = self._deadline()
        found: list[str] = []
        for path in self._settings.sockets:
            found += check_socket(path, wanted, self._settings.state_file, deadline)
        return tuple(found)

    def close(self) -> None:
        """Nothing to let go of: no connection outlives a call."""

    # --- inside -------------------------------------------------------------------------------------------------

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.timeout / SECOND

    def _look(self, path: str, deadline: float) -> tuple[Server, ...]:
        session, (answer,) = converse(path, deadline, [commands.SHOW_ALL_SERVERS])
        with session:
            try:
                return parse_servers(answer)
            except ValueError as error:
                cause = f"does not answer like HAProxy: {error}"
                raise Unreachable(session.target, cause, "see whether its version is supported") from None

    def _batch(self, jobs: list[Job], deadline: float) -> None:
        """Actions on different endpoints. The jobs' errors are their outcomes."""
        with ExitStack() as stack:
            try:
                processes = self._begin(jobs, deadline, stack)
                prepare(jobs, processes)
            except ProviderError as error:
                _fail(jobs, error)
                return
            written = {}
            for index, process in enumerate(processes):
                moving = [job for job in jobs if job.error is None and job.moves[index]]
                if not moving:
                    continue
                written[process.session.info.pid, self._settings.sockets[index]] = moving
                try:
                    write(process, moving, index)
                except OutcomeUnknown as error:
                    _fail(moving, error)
        if written:
            self._finish(written, deadline)

    def _begin(self, jobs: Sequence[Job], deadline: float, stack: ExitStack) -> list[Process]:
        """A conversation with each process, and its servers, before anything is changed."""
        backends = sorted({job.slots.backend for job in jobs})
        questions = [commands.show_servers(backend) for backend in backends]
        processes = []
        for path in self._settings.sockets:
            session, answers = converse(path, deadline, questions)
            stack.enter_context(session)
            processes.append(Process(session, servers_of(backends, answers, session.target)))
        return processes

    def _finish(self, written: dict[tuple[int, str], list[Job]], deadline: float) -> None:
        """Write the state file, then ask on fresh connections whether the processes that were written are still in charge.

        Last, because a reload that began meanwhile may have read the old state file.
        """
        touched = [job for moving in written.values() for job in moving]
        try:
            self._keep_state(deadline)
        except (ProviderError, OSError) as error:
            cause = f"HAProxy was written, but its state file was not: {_told(error)}"
            _fail(touched, OutcomeUnknown(f"provider {self.name}", cause, "a reload would lose what was written"))
        for (pid, path), moving in written.items():
            try:
                now = self._in_charge(path, deadline)
            except ProviderError as error:
                _fail(moving, OutcomeUnknown(error.target, f"after writing: {error.cause}", "look again"))
                continue
            if now != pid:
                cause = f"was reloaded while it was written (process {pid} was replaced by {now})"
                _fail(moving, OutcomeUnknown(f"HAProxy at {path}", cause, "look again"))

    def _in_charge(self, path: str, deadline: float) -> int:
        session, _ = converse(path, deadline)
        with session:
            return session.info.pid

    def _keep_state(self, deadline: float) -> None:
        if self._settings.state_file is None:
            return
        path = Path(self._settings.state_file)
        target = f"state file {path}"
        # Under the lock from the dump on, so that no older dump replaces a newer one.
        with locked(target, path.parent, max(0.0, deadline - time.monotonic())):
            session, (answer,) = converse(self._settings.sockets[0], deadline, [commands.SHOW_ALL_SERVERS])
            with session:
                data = _state_file(session, answer)
            before = read(target, path)
            if data != before:
                replace(target, path, data, before)


def _told(error: ProviderError | OSError) -> str:
    return f"{error.target}: {error.cause}" if isinstance(error, ProviderError) else str(error)


def _state_file(session: Session, answer: str) -> bytes:
    try:
        return state_file(answer)
    except ValueError as error:
        raise Unreachable(session.target, f"does not answer like HAProxy: {error}") from None


def _fail(jobs: Sequence[Job], error: ProviderError) -> None:
    for job in jobs:
        job.error = job.error or error


def _turns(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """The jobs in groups in which no endpoint comes twice, in their order."""
    rest = list(jobs)
    while rest:
        seen: set[tuple[Slots, Endpoint]] = set()
        turn: list[Job] = []
        later: list[Job] = []
        for job in rest:
            key = (job.slots, job.action.endpoint)
            (later if key in seen else turn).append(job)
            seen.add(key)
        yield turn
        rest = later
