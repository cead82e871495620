"""Pools in HAProxy (`type: haproxy`), over the stats sockets of its processes on this host, without a reload.

A pool is `BACKEND` or `BACKEND:SLOTS`: the servers `<slots><n>` of that backend (`<backend><n>` by default), made by a line

    server-template web 1-20 demo.slot.invalid:1 init-addr last,127.0.0.1 weight 0 disabled

Its host name says which instance fills the slots: `demo`, or with plain `slot.invalid` any instance. HAProxy never uses that
name, and shows it whatever address a slot has. So two instances with the same slots cannot change each other's, and a pool that
no manifest names any more is found. With plain `slot.invalid` neither works: give each set of slots to one instance only. Other
servers of the backend are observed and never changed.

We own the weight and the administrative state of a slot and correct them after another writer. Whether a server is up is up to
HAProxy's own checks: use `check inter 2s fall 3`, `option redispatch` and `retries 2`, so that traffic survives without us. With
several sockets (processes, or the members of a pair) a pool is what all of them agree on; `state.DISAGREE` is the weight of a
member on which they differ.
"""

import gc
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel

from manifests.values.desired import SECOND, Role
from providers.actions import EndpointAction
from providers.endpoints.haproxy import commands
from providers.endpoints.haproxy.doctor import check_socket
from providers.endpoints.haproxy.pool_facts import marked, pool_fact, resting
from providers.endpoints.haproxy.settings import HAProxySettings
from providers.endpoints.haproxy.socket import Session, converse
from providers.endpoints.haproxy.state import Server, Slots, Table, parse_pool, table
from providers.endpoints.haproxy.tables import Rows, algorithms, sessions, state_file
from providers.endpoints.haproxy.write import Job, Planner, Process, rounds, servers_of, write
from providers.errors import OutcomeUnknown, ProviderError, Unreachable
from providers.facts import PoolFact
from providers.lib.files import locked, read, replace
from providers.spi import Context, Performed

A = TypeVar("A")
T = TypeVar("T")

FEW_SERVERS = 16
"""The sessions of up to this many servers are read one by one; for more, those of the whole backend."""


class Look(NamedTuple):
    """The answers of one process in one look."""

    session: Session
    servers: tuple[Server, ...]
    algorithms: Mapping[str, str]


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
            Unreachable: one of the sockets does not answer; a partial result is never returned.
            Rejected: a pool's name is invalid.
        """
        wanted = {pool: parse_pool(pool, self._context.instance) for pool in set(pools)}
        deadline = self._deadline()
        with ExitStack() as stack:
            looks = [self._look(path, deadline, stack) for path in self._settings.sockets]
            for look in looks:
                for slots in marked(look.servers, self._context.instance) - set(wanted.values()):
                    wanted[slots.pool] = slots
            return tuple(self._fact(slots, looks) for _, slots in sorted(wanted.items()))

    def perform(self, actions: Sequence[EndpointAction]) -> Performed:
        """Set weights, taking slots if needed, free slots, and end sessions; on all sockets, and read back.

        Many actions take few exchanges: 100 commands a line, and one look before and after. Sessions of a process that a reload
        has replaced cannot be cut; they end on their own. The garbage collector is off during the call: a full collection over
        all facts would cost more than a thousand weights.

        Returns:
            Rejected: an address, weight or pool is invalid, the backend or a free slot is missing (with the line to add), or
                the socket has no admin level.
            Conflict, Gone, Foreign: the member is not as the plan saw it, or has another owner.
            Unreachable: a socket does not answer; nothing was changed.
            OutcomeUnknown: an answer was lost, a slot reads back differently, HAProxy was reloaded meanwhile, or the state
                file could not be written.
        """
        gc.disable()
        try:
            return self._perform(actions)
        finally:
            gc.enable()

    def _perform(self, actions: Sequence[EndpointAction]) -> Performed:
        slots: dict[str, Slots] = {}
        errors: dict[int, ProviderError | None] = {}
        for pool in {action.pool for action in actions}:
            try:
                slots[pool] = parse_pool(pool, self._context.instance)
            except ProviderError as error:
                errors.update((index, error) for index, action in enumerate(actions) if action.pool == pool)
        jobs = [Job(action, slots[action.pool]) for action in actions if action.pool in slots]
        deadline = self._deadline()
        if not self._writing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            busy = Unreachable(f"provider {self.name}", "an earlier write has not returned; nothing was changed")
            return Performed(tuple(errors.get(index, busy) for index in range(len(actions))))
        read: tuple[PoolFact, ...] = ()
        try:
            for turn in rounds(jobs):
                read = self._batch(turn, deadline)
        finally:
            self._writing.release()
        if not errors:
            return Performed(tuple([job.error for job in jobs]), read)
        left = iter(jobs)
        outcomes = tuple(errors[at] if at in errors else next(left).error for at in range(len(actions)))
        return Performed(outcomes, read)

    def check(self, pools: Collection[str]) -> tuple[str, ...]:
        """What HAProxy's configuration lacks for these pools, a text each with the line to write; read-only. Empty: nothing.

        A configuration file that this user may not read has a text too.

        Raises:
            Unreachable: a socket does not answer.
            Rejected: a pool's name is invalid.
        """
        wanted = [parse_pool(pool, self._context.instance) for pool in sorted(set(pools))]
        deadline = self._deadline()
        problems: list[str] = []
        for path in self._settings.sockets:
            problems += check_socket(path, wanted, self._settings.state_file, deadline)
        return tuple(problems)

    def close(self) -> None:
        """Nothing to close: no connection outlives a call."""

    # --- inside -------------------------------------------------------------------------------------------------

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.timeout / SECOND

    def _look(self, path: str, deadline: float, stack: ExitStack) -> Look:
        questions = [commands.SHOW_ALL_SERVERS, commands.SHOW_ALGORITHMS]
        session, (_, stats) = converse(path, deadline, questions, tables=questions[:1])
        stack.enter_context(session)
        servers = _parsed(session, Rows.servers, session.rows[commands.SHOW_ALL_SERVERS])
        return Look(session, servers or (), _parsed(session, algorithms, stats))

    def _fact(self, slots: Slots, looks: Sequence[Look]) -> PoolFact:
        tables = [table(slots, look.servers, look.algorithms.get(slots.backend, "")) for look in looks]
        counts = [self._counts(pool, look.session) for pool, look in zip(tables, looks, strict=True)]
        return pool_fact(tables, _epoch([look.session for look in looks]), counts)

    def _counts(self, table: Table, session: Session) -> Mapping[str, int]:
        """The sessions of the servers of a pool that get no new ones; empty while an old process may still have some."""
        idle = resting(table)
        if not idle or session.info.age * SECOND < self._settings.reload_window:
            return {}
        backend = table.slots.backend
        questions = [commands.show_sessions(backend, server.id) for server in idle[: FEW_SERVERS + 1]]
        if len(idle) > FEW_SERVERS:
            questions = [commands.show_sessions(backend)]
        counts: dict[str, int] = {}
        for answer in session.ask(questions):
            counts.update(_parsed(session, sessions, answer))
        return counts

    def _batch(self, jobs: list[Job], deadline: float) -> tuple[PoolFact, ...]:
        """Do actions on different endpoints. Each job's error is its outcome; the result is the pools that were read back."""
        with ExitStack() as stack:
            try:
                processes = self._begin(jobs, deadline, stack)
                planner = Planner(jobs, processes, self._settings.persistence == "cut")
            except ProviderError as error:
                _fail(jobs, error)
                return ()
            written = write(planner, processes, jobs)
            if not written:
                return ()
            pids = [process.session.info.pid for process in processes]
            self._finish({(pids[at], self._settings.sockets[at]): moved for at, moved in written.items()}, deadline)
            return self._read_back(jobs, processes, written)

    def _read_back(
        self, jobs: Sequence[Job], processes: Sequence[Process], written: Mapping[int, Sequence[Job]]
    ) -> tuple[PoolFact, ...]:
        """The pools that all processes were read back for, except pools with members whose sessions must be counted."""
        if any(isinstance(job.error, OutcomeUnknown) for job in jobs):
            return ()
        if len(processes) == 1 and (forecast := processes[0].forecast) is not None:
            return tuple(fact for _, fact in sorted(forecast.pools.items()))
        fresh = [{job.slots.backend for job in written.get(index, ())} for index in range(len(processes))]
        facts = []
        for slots in sorted({job.slots for job in jobs}):
            tables = [process.table(slots) for process in processes]
            if all(slots.backend in read for read in fresh) and not any(resting(table) for table in tables):
                facts.append(pool_fact(tables, _epoch([process.session for process in processes])))
        return tuple(facts)

    def _begin(self, jobs: Sequence[Job], deadline: float, stack: ExitStack) -> list[Process]:
        """Open a session with each process and read its servers, before anything is changed."""
        backends = sorted({job.slots.backend for job in jobs})
        tables = [commands.show_servers(backend) for backend in backends]
        questions = [*tables, *map(commands.show_algorithm, backends)]
        processes = []
        for path in self._settings.sockets:
            session, answers = converse(path, deadline, questions, tables)
            stack.enter_context(session)
            servers = servers_of(backends, session)
            kinds: dict[str, str] = {}
            for backend, answer in zip(backends, answers[len(backends) :], strict=True):
                if backend in servers:
                    kinds.update(_parsed(session, algorithms, answer))
            processes.append(Process(session, servers, kinds))
        return processes

    def _finish(self, written: dict[tuple[int, str], list[Job]], deadline: float) -> None:
        """Write the state file, then check on new connections that the same processes are still in charge.

        This comes last, because a reload during the write may have read the old state file.
        """
        touched = [job for moving in written.values() for job in moving]
        try:
            self._keep_state(deadline)
        except (ProviderError, OSError) as error:
            cause = (
                f"HAProxy was written, but its state file was not, so a reload would lose the change: {_text(error)}"
            )
            _fail(touched, OutcomeUnknown(f"provider {self.name}", cause, "make the state file writable"))
        for (pid, path), moving in written.items():
            try:
                now = self._in_charge(path, deadline)
            except ProviderError as error:
                _fail(moving, OutcomeUnknown(error.target, f"after writing: {error.cause}", "retried automatically"))
                continue
            if now != pid:
                cause = f"reloaded during the write: process {now} has replaced process {pid}"
                _fail(moving, OutcomeUnknown(f"HAProxy at {path}", cause, "retried automatically"))

    def _in_charge(self, path: str, deadline: float) -> int:
        session, _ = converse(path, deadline)
        with session:
            return session.info.pid

    def _keep_state(self, deadline: float) -> None:
        if self._settings.state_file is None:
            return
        path = Path(self._settings.state_file)
        target = f"state file {path}"
        # The lock covers the dump too, so that no older dump replaces a newer one.
        with locked(target, path.parent, max(0.0, deadline - time.monotonic())):
            session, (answer,) = converse(self._settings.sockets[0], deadline, [commands.SHOW_ALL_SERVERS])
            with session:
                data = _parsed(session, state_file, answer)
            before = read(target, path)
            if data != before:
                replace(target, path, data, before)


def _epoch(sessions: Sequence[Session]) -> str:
    return " ".join(session.info.epoch for session in sessions)


def _text(error: ProviderError | OSError) -> str:
    return f"{error.target}: {error.cause}" if isinstance(error, ProviderError) else str(error)


def _parsed(session: Session, read: Callable[[A], T], answer: A) -> T:
    """A parsed answer. Raises `Unreachable` when it has another form."""
    try:
        return read(answer)
    except ValueError as error:
        cause = f"not an answer of HAProxy: {error}"
        raise Unreachable(session.target, cause, "check that this version of HAProxy is supported") from None


def _fail(jobs: Sequence[Job], error: ProviderError) -> None:
    for job in jobs:
        job.error = job.error or error
