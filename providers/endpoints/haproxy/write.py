"""Carries out a batch of actions on all processes of one provider and reads back the result. Used by `provider.py`.

All processes are read before the first one is written: one that cannot be read stops the batch before anything has changed.
Then each is written in turn: first the addresses of new slots, read back, then states and weights, read back. A batch that takes
no slot is planned while HAProxy already carries out its beginning.
"""

import difflib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from providers.actions import CutSessions, EndpointAction, SetWeight
from providers.endpoints.haproxy import commands, moves
from providers.endpoints.haproxy.commands import Command
from providers.endpoints.haproxy.forecast import Forecast, forecast
from providers.endpoints.haproxy.moves import Move
from providers.endpoints.haproxy.socket import Session
from providers.endpoints.haproxy.state import Server, Slots, Table, agreed, table
from providers.endpoints.haproxy.tables import sessions
from providers.errors import OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.facts import Endpoint
from providers.naming import object_of

END_TRIES = 25
END_PAUSE = 0.02
"""Seconds between looks at sessions that are to end: HAProxy needs one turn of its loop, unless it is very busy."""


@dataclass(slots=True)
class Job:
    """One action of a batch. `error` is its outcome; None is success. `moves` are those in each process, once planned."""

    action: EndpointAction
    slots: Slots
    error: ProviderError | None = None
    moves: Sequence[tuple[Move, ...]] | None = None

    @property
    def target(self) -> str:
        """Its object, for messages."""
        return object_of(self.action)

    def commands(self, index: int, *, first: bool) -> list[tuple["Job", Command]]:
        """The commands of one half of its moves for the process with this index; none after an error."""
        moved = self.moves[index] if self.moves and self.error is None else ()
        return [(self, command) for move in moved for command in (move.prepare if first else move.finish)]

    def touches(self, index: int) -> bool:
        """Whether the process with this index is written for it, or may be while it is not planned yet."""
        return self.error is None and (self.moves is None or bool(self.moves[index]))


class Process:
    """One process: its session and the servers of the backends in question, as last read."""

    def __init__(
        self, session: Session, backends: Mapping[str, Mapping[str, Server]], algorithms: Mapping[str, str]
    ) -> None:
        self.session = session
        self.backends = dict(backends)
        self.algorithms = algorithms
        self.forecast: Forecast | None = None

    def table(self, slots: Slots) -> Table:
        """A pool as this process has it."""
        servers = self.backends.get(slots.backend, {}).values()
        return table(slots, servers, self.algorithms.get(slots.backend, ""))

    def make_forecast(self, sent: Sequence["Job"], index: int) -> None:
        """Forecast the servers and pools after these jobs on the process with this index."""
        changes = [(job.slots, job.moves[index]) for job in sent if job.moves]
        self.forecast = forecast(self.backends, self.algorithms, changes, self.session.info.epoch)

    def read_back(self, backends: Sequence[str]) -> None:
        """Take over the servers of these backends as read. A forecast that differs is dropped."""
        self.backends.update(servers_of(backends, self.session))
        if self.forecast is not None and not self.forecast.holds(self.backends):
            self.forecast = None


def servers_of(backends: Sequence[str], session: Session) -> dict[str, dict[str, Server]]:
    """Servers by name for each backend that exists, as last read by this session.

    Raises:
        Unreachable: an answer is not a whole list of servers.
    """
    by_backend = {}
    for backend in backends:
        try:
            servers = session.rows[commands.show_servers(backend)].servers()
        except ValueError as error:
            cause = f"not an answer of HAProxy: {error}"
            raise Unreachable(session.target, cause, "check that this version of HAProxy is supported") from None
        if servers is not None:
            by_backend[backend] = {server.name: server for server in servers}
    return by_backend


class Planner:
    """Plans the moves of a batch from the pools of all processes, as read before the first one is written."""

    def __init__(self, jobs: Sequence[Job], processes: Sequence[Process], cut: bool) -> None:
        self._cut = cut
        slots = {job.action.pool: job.slots for job in jobs}
        self._tables = {pool: [process.table(one) for process in processes] for pool, one in slots.items()}
        self._free = {pool: [moves.Free(pool_table) for pool_table in known] for pool, known in self._tables.items()}
        self._lacking = {
            pool: _lacking(slots[pool], process)
            for pool, known in self._tables.items()
            for process, one in zip(processes, known, strict=True)
            if not one.exists
        }

    def takes(self, jobs: Sequence[Job]) -> bool:
        """Whether an action may need a new slot."""
        for job in jobs:
            for slots in self._tables[job.action.pool]:
                if job.action.endpoint not in slots.taken and isinstance(job.action, SetWeight):
                    return True
        return False

    def plan(self, job: Job) -> None:
        """Compare an action with the present pools and set the job's moves for each process, or its error."""
        known = self._tables[job.action.pool]
        if len(known) == 1 and (quick := moves.plain_change(known[0], job.action)) is not None:
            job.moves = (quick,)
            return
        try:
            _check(job.action, known)
            if self._lacking and job.action.pool in self._lacking and isinstance(job.action, SetWeight):
                raise Rejected(job.target, *self._lacking[job.action.pool])
            free = self._free[job.action.pool]
            job.moves = [
                moves.moves_for(one, job.action, left, self._cut) for one, left in zip(known, free, strict=True)
            ]
        except ProviderError as error:
            job.error = error


def write(planner: Planner, processes: Sequence[Process], jobs: Sequence[Job]) -> dict[int, list[Job]]:
    """Carry out the jobs on all processes. A job that fails has its error set.

    Returns:
        For the index of each process that was written, its jobs.
    """
    taking = planner.takes(jobs)
    if taking:
        for job in jobs:
            planner.plan(job)
    written = {}
    for index, process in enumerate(processes):
        todo = [job for job in jobs if job.touches(index)]
        try:
            if taking:
                _send(process, (pair for job in todo for pair in job.commands(index, first=True)))
                _verify_all(process, todo, index, first=True)
            _send(
                process,
                _last_commands(planner, todo, index),
                None if taking else partial(process.make_forecast, todo, index),
            )
            if process.forecast is None:
                _verify_all(process, todo, index, first=False)
        except OutcomeUnknown as error:
            for job in todo:
                if job.touches(index):
                    job.error = job.error or error
        _await_ends(process, todo, index)
        moved = [job for job in todo if job.moves is not None and job.moves[index]]
        if moved:
            written[index] = moved
    return written


def _last_commands(planner: Planner, jobs: Sequence[Job], index: int) -> Iterator[tuple[Job, Command]]:
    """The last half of the moves. Jobs are planned here, while HAProxy carries out the commands before."""
    for job in jobs:
        if job.moves is None and job.error is None:
            planner.plan(job)
        for move in job.moves[index] if job.moves and job.error is None else ():
            for command in move.finish:
                yield job, command


def _send(process: Process, pairs: Iterable[tuple[Job, Command]], meanwhile: Callable[[], None] | None = None) -> None:
    """Send commands as they come and read the backends back. `meanwhile` runs while HAProxy carries out the last of them.

    Raises:
        OutcomeUnknown: an answer was lost; any of the commands may have been carried out.
    """
    sent: list[tuple[Job, Command]] = []
    backends: list[str] = []

    def texts() -> Iterator[str]:
        for pair in pairs:
            sent.append(pair)
            yield pair[1].text
        backends.extend(sorted({job.slots.backend for job, _ in sent}))
        for backend in backends:
            yield commands.show_servers(backend)

    answers = process.session.ask(texts(), writes=True, meanwhile=meanwhile)
    for (job, command), answer in zip(sent, answers, strict=False):
        if command.moves or (answer and not answer.isspace()):
            job.error = job.error or commands.refusal(command, answer, job.target)
    try:
        process.read_back(backends)
    except Unreachable as error:
        raise OutcomeUnknown(error.target, error.cause, "retried automatically") from error


def _verify_all(process: Process, jobs: Sequence[Job], index: int, *, first: bool) -> None:
    """Compare the moves with the servers that were read back; a difference is the error of its job."""
    for job in jobs:
        if job.error is not None or not job.moves:
            continue
        servers = process.backends.get(job.slots.backend, {})
        for move in job.moves[index]:
            if move.prepare or not first:
                server = servers.get(move.slot)
                if server is None or not (move.prepared(server) if first else move.done(server)):
                    job.error = job.error or _differs(process, job, move, server)


def _await_ends(process: Process, jobs: Sequence[Job], index: int) -> None:
    """Wait until HAProxy has ended the sessions, for `END_TRIES` looks at most."""
    left = [job for job in jobs if isinstance(job.action, CutSessions) and job.error is None and job.moves]
    for tries_left in reversed(range(END_TRIES)):
        left = [job for job in left if job.error is None and _open_sessions(process, job, index)]
        if not left:
            return
        if tries_left:
            time.sleep(END_PAUSE)  # HAProxy does not announce the end of a session; END_TRIES limits the loop
    for job in left:
        cause = f"{process.session.target}: sessions are still open {(END_TRIES - 1) * END_PAUSE:g} s after the command to end them"
        job.error = OutcomeUnknown(job.target, cause, "retried automatically")


def _open_sessions(process: Process, job: Job, index: int) -> int:
    """The sessions of a job that are still open; a lost answer is the job's error."""
    moved = job.moves[index] if job.moves else ()
    total = 0
    for move in moved:
        server = process.backends[job.slots.backend][move.slot]
        try:
            (answer,) = process.session.ask([commands.show_sessions(server.backend, server.id)])
            total += sessions(answer).get(server.name, 0)
        except (Unreachable, ValueError) as error:
            job.error = OutcomeUnknown(job.target, f"{process.session.target}: {error}", "retried automatically")
    return total


def _differs(process: Process, job: Job, move: Move, server: Server | None) -> OutcomeUnknown:
    cause = f"{process.session.target}: {moves.mismatch(move, server, job.slots.pool)}"
    return OutcomeUnknown(job.target, cause, "find the other program that writes to that socket")


def _check(action: EndpointAction, tables: Sequence[Table]) -> None:
    endpoint = action.endpoint
    current = agreed([table.weight(endpoint) for table in tables])
    foreign = current is None and any(server.endpoint == endpoint for table in tables for server in table.foreign)
    if not isinstance(action, SetWeight):
        moves.check_rest(action, current, foreign)
        return
    # For a present endpoint only its weight goes into a command.
    if current is None:
        commands.checked_endpoint(object_of(action), endpoint)
    moves.check_weight(action, current, foreign, any(table.on_off for table in tables))


def _lacking(slots: Slots, process: Process) -> tuple[str, str]:
    """The cause and next step for a missing backend, with the names of the present ones."""
    (answer,) = process.session.ask([commands.SHOW_BACKENDS])
    names = [line for line in answer.splitlines() if line and not line.startswith("#")]
    close = difflib.get_close_matches(slots.backend, names, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"its backends: {', '.join(sorted(names)[:10]) or 'none'}"
    return f"{process.session.target} has no backend {slots.backend!r}", hint


def rounds(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """The jobs in groups in which no endpoint comes twice, in order."""
    rest = list(jobs)
    if len({job.action.pool for job in rest}) == 1 and len({job.action.endpoint for job in rest}) == len(rest):
        yield rest
        return
    while rest:
        taken: set[tuple[str, Endpoint]] = set()
        group: list[Job] = []
        later: list[Job] = []
        for job in rest:
            key = (job.action.pool, job.action.endpoint)
            (later if key in taken else group).append(job)
            taken.add(key)
        yield group
        rest = later
