"""Carries out a batch of actions on all processes of one provider, and reads back what came of it. Used by `haproxy.py`.

All processes are read before the first one is written, so that one that cannot be read stops the batch while nothing has
changed. Then each is written in turn: first the addresses of new slots, read back, then states and weights, read back. A batch
that takes no slot is laid out while HAProxy already works on the beginning of it.
"""

import difflib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from providers.actions import CutSessions, EndpointAction, SetWeight
from providers.endpoints.haproxy import commands
from providers.endpoints.haproxy import moves as plan
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
"""Seconds between looks at sessions that were told to end: that takes HAProxy one turn of its loop, unless it is very busy."""


@dataclass(slots=True)
class Job:
    """One action of a batch. `error` is its outcome; None is success. `moves` are those for each session, once laid out."""

    action: EndpointAction
    slots: Slots
    error: ProviderError | None = None
    moves: Sequence[tuple[Move, ...]] | None = None

    @property
    def target(self) -> str:
        """Its object, for messages."""
        return object_of(self.action)

    def commands(self, index: int, *, first: bool) -> list[tuple["Job", Command]]:
        """What one half of its moves sends to the process with this index; nothing after an error."""
        moves = self.moves[index] if self.moves and self.error is None else ()
        return [(self, command) for move in moves for command in (move.prepare if first else move.finish)]

    def touches(self, index: int) -> bool:
        """Whether the process with this index is to be written for it, or may be: that is not laid out yet."""
        return self.error is None and (self.moves is None or bool(self.moves[index]))


class Process:
    """One process with its conversation and the servers of the backends in question, as last read."""

    def __init__(
        self, session: Session, backends: Mapping[str, Mapping[str, Server]], algorithms: Mapping[str, str]
    ) -> None:
        self.session = session
        self.backends = dict(backends)
        self.algorithms = algorithms
        self.foreseen: Forecast | None = None

    def table(self, slots: Slots) -> Table:
        """A pool as this process has it."""
        servers = self.backends.get(slots.backend, {}).values()
        return table(slots, servers, self.algorithms.get(slots.backend, ""))

    def foresee(self, sent: Sequence["Job"], index: int) -> None:
        """Make the forecast of what these jobs, for the process with this index, leave behind."""
        changes = [(job.slots, job.moves[index]) for job in sent if job.moves]
        self.foreseen = forecast(self.backends, self.algorithms, changes, self.session.info.epoch)

    def read_back(self, backends: Sequence[str]) -> None:
        """Take over what was read of the servers of these backends. A forecast that did not come true is dropped."""
        self.backends.update(servers_of(backends, self.session))
        if self.foreseen is not None and not self.foreseen.holds(self.backends):
            self.foreseen = None


def servers_of(backends: Sequence[str], session: Session) -> dict[str, dict[str, Server]]:
    """Servers by name for each backend that exists, as last read by this session.

    Raises:
        Unreachable: an answer is not a whole list of servers.
    """
    found = {}
    for backend in backends:
        try:
            servers = session.rows[commands.show_servers(backend)].servers()
        except ValueError as error:
            cause = f"does not answer like HAProxy: {error}"
            raise Unreachable(session.target, cause, "see whether it is supported") from None
        if servers is not None:
            found[backend] = {server.name: server for server in servers}
    return found


class Board:
    """What all processes have of the pools of a batch, before the first one is written."""

    def __init__(self, jobs: Sequence[Job], processes: Sequence[Process], cut: bool) -> None:
        self._cut = cut
        slots = {job.action.pool: job.slots for job in jobs}
        self._tables = {pool: [process.table(one) for process in processes] for pool, one in slots.items()}
        self._free = {pool: [plan.Free(one) for one in known] for pool, known in self._tables.items()}
        self._lacking = {
            pool: _lacking(slots[pool], process)
            for pool, known in self._tables.items()
            for process, one in zip(processes, known, strict=True)
            if not one.exists
        }

    def takes(self, jobs: Sequence[Job]) -> bool:
        """Whether an action may need a slot that its endpoint has not got yet."""
        for job in jobs:
            for slots in self._tables[job.action.pool]:
                if job.action.endpoint not in slots.taken and isinstance(job.action, SetWeight):
                    return True
        return False

    def lay_out(self, job: Job) -> None:
        """Compare an action with what is there, and find its moves for each process. The job's error says what is wrong."""
        known = self._tables[job.action.pool]
        if len(known) == 1 and (quick := plan.plain_change(known[0], job.action)) is not None:
            job.moves = (quick,)
            return
        try:
            _check(job.action, known)
            if self._lacking and job.action.pool in self._lacking and isinstance(job.action, SetWeight):
                raise Rejected(job.target, *self._lacking[job.action.pool])
            free = self._free[job.action.pool]
            job.moves = [plan.moves(one, job.action, left, self._cut) for one, left in zip(known, free, strict=True)]
        except ProviderError as error:
            job.error = error


def write(board: Board, processes: Sequence[Process], jobs: Sequence[Job]) -> dict[int, list[Job]]:
    """Carry out the jobs on all processes. Each job's error says what failed.

    Returns:
        For the index of each process that was written: the jobs it was written for.
    """
    taking = board.takes(jobs)
    if taking:
        for job in jobs:
            board.lay_out(job)
    written = {}
    for index, process in enumerate(processes):
        todo = [job for job in jobs if job.touches(index)]
        try:
            if taking:
                _send(process, (pair for job in todo for pair in job.commands(index, first=True)))
                _verify_all(process, todo, index, first=True)
            _send(process, _going_out(board, todo, index), None if taking else partial(process.foresee, todo, index))
            if process.foreseen is None:
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


def _going_out(board: Board, jobs: Sequence[Job], index: int) -> Iterator[tuple[Job, Command]]:
    """The last half of the moves; what is not laid out yet is, while HAProxy works on what went out before."""
    for job in jobs:
        if job.moves is None and job.error is None:
            board.lay_out(job)
        for move in job.moves[index] if job.moves and job.error is None else ():
            for command in move.finish:
                yield job, command


def _send(process: Process, going: Iterable[tuple[Job, Command]], meanwhile: Callable[[], None] | None = None) -> None:
    """Send commands as they come, and read the backends back. `meanwhile` is done while HAProxy works on the last of them.

    Raises:
        OutcomeUnknown: an answer was lost; anything may have been done.
    """
    sent: list[tuple[Job, Command]] = []
    backends: list[str] = []

    def texts() -> Iterator[str]:
        for pair in going:
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
    """Compare what was written with what reads back; what differs is the error of its job."""
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
    """After sessions were told to end: wait until HAProxy has ended them, for `END_TRIES` looks."""
    left = [job for job in jobs if isinstance(job.action, CutSessions) and job.error is None and job.moves]
    for again in range(END_TRIES):
        left = [job for job in left if job.error is None and _under_way(process, job, index)]
        if not left:
            return
        # HAProxy tells nobody when a session is over; END_TRIES bounds this.
        time.sleep(END_PAUSE if again + 1 < END_TRIES else 0)
    for job in left:
        cause = f"{process.session.target}: sessions are still under way after they were told to end"
        job.error = OutcomeUnknown(job.target, cause, "retried automatically")


def _under_way(process: Process, job: Job, index: int) -> int:
    """The sessions that a job was to end and that are still there; an answer that is lost is the job's error."""
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
    cause = f"{process.session.target}: {plan.mismatch(move, server, job.slots.pool)}"
    return OutcomeUnknown(job.target, cause, "see who else writes to that socket, and look again")


def _check(action: EndpointAction, tables: Sequence[Table]) -> None:
    endpoint = action.endpoint
    current = agreed([table.weight(endpoint) for table in tables])
    foreign = current is None and any(server.endpoint == endpoint for table in tables for server in table.foreign)
    if not isinstance(action, SetWeight):
        plan.check_rest(action, current, foreign)
        return
    # Of what is there already nothing but its weight goes into a command.
    if current is None:
        commands.checked_endpoint(object_of(action), endpoint)
    plan.check_weight(action, current, foreign, any(table.on_off for table in tables))


def _lacking(slots: Slots, process: Process) -> tuple[str, str]:
    """That a backend is not there, and what to do: the names of those that are."""
    (answer,) = process.session.ask([commands.SHOW_BACKENDS])
    names = [line for line in answer.splitlines() if line and not line.startswith("#")]
    close = difflib.get_close_matches(slots.backend, names, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"its backends: {', '.join(sorted(names)[:10]) or 'none'}"
    return f"{process.session.target} has no backend {slots.backend!r}", hint


def turns(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """The jobs in groups in which no endpoint comes twice, in their order."""
    rest = list(jobs)
    if len({job.action.pool for job in rest}) == 1 and len({job.action.endpoint for job in rest}) == len(rest):
        yield rest
        return
    while rest:
        seen: set[tuple[str, Endpoint]] = set()
        turn: list[Job] = []
        later: list[Job] = []
        for job in rest:
            key = (job.action.pool, job.action.endpoint)
            (later if key in seen else turn).append(job)
            seen.add(key)
        yield turn
        rest = later
