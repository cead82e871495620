"""Carries out a batch of actions on all processes of one provider, and reads back what came of it. Used by `haproxy.py`.

All processes are read before the first one is written, so that one that cannot be read stops the batch while nothing has
changed. Then each is written in turn: first the addresses of new slots, read back, then states and weights, read back.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from providers.actions import EndpointAction, SetWeight
from providers.endpoints import haproxy_commands as commands
from providers.endpoints import haproxy_plan as plan
from providers.endpoints.haproxy_plan import Move
from providers.endpoints.haproxy_socket import Session
from providers.endpoints.haproxy_state import Server, Slots, Table, agreed, parse_servers, table
from providers.errors import OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.naming import object_of


@dataclass(slots=True)
class Job:
    """One action of a batch. `error` is its outcome; None is success. `moves` are those for each session, in their order."""

    action: EndpointAction
    slots: Slots
    target: str
    error: ProviderError | None = None
    moves: list[tuple[Move, ...]] = field(default_factory=list)


class Process:
    """One process with its conversation and the servers of the backends in question, as last read."""

    def __init__(self, session: Session, backends: Mapping[str, Mapping[str, Server]]) -> None:
        self.session = session
        self.backends = dict(backends)

    def table(self, slots: Slots) -> Table:
        """A pool as this process has it."""
        return table(slots, self.backends.get(slots.backend, {}).values())

    def read_back(self, backends: Sequence[str], answers: Sequence[str]) -> None:
        """Take over the answers to `show servers` of these backends."""
        self.backends.update(servers_of(backends, answers, self.session.target))


def servers_of(backends: Sequence[str], answers: Sequence[str], target: str) -> dict[str, dict[str, Server]]:
    """Servers by name for each backend that exists.

    Raises:
        Unreachable: an answer is not a whole list of servers.
    """
    found = {}
    for backend, answer in zip(backends, answers, strict=True):
        if answer.strip() == commands.NO_BACKEND:
            continue
        try:
            found[backend] = {server.name: server for server in parse_servers(answer)}
        except ValueError as error:
            raise Unreachable(target, f"does not answer like HAProxy: {error}", "see whether it is supported") from None
    return found


def prepare(jobs: Sequence[Job], processes: Sequence[Process]) -> None:
    """Compare each action with what is there, and lay out its moves for each process."""
    pools = {job.slots for job in jobs}
    tables = {slots: [process.table(slots) for process in processes] for slots in pools}
    free = {slots: [plan.Free(one) for one in known] for slots, known in tables.items()}
    for job in jobs:
        if job.error is not None:
            continue
        try:
            known = tables[job.slots]
            _check(job, known)
            for process, one, left in zip(processes, known, free[job.slots], strict=True):
                if not one.exists:
                    _require_backend(job, process)
                job.moves.append(plan.moves(one, job.action, job.target, left))
        except ProviderError as error:
            job.error = error
            job.moves.clear()


def write(process: Process, jobs: Iterable[Job], index: int) -> None:
    """Carry out the moves of all jobs on the process with this index. Each job's error says what failed.

    Raises:
        OutcomeUnknown: an answer was lost; anything may have been done of the rest.
    """
    todo = [(job, move) for job in jobs if job.error is None for move in job.moves[index]]
    todo = _stage(process, todo, first=True)
    _stage(process, todo, first=False)


def _stage(process: Process, todo: list[tuple[Job, Move]], *, first: bool) -> list[tuple[Job, Move]]:
    """Send one half of the moves and read it back; the moves that are still fine are returned."""
    sent = [(job, command) for job, move in todo for command in (move.prepare if first else move.finish)]
    if not sent:
        return todo
    backends = sorted({job.slots.backend for job, _ in sent})
    texts = [command.text for _, command in sent] + [commands.show_servers(backend) for backend in backends]
    answers = process.session.ask(texts, writes=True)
    for (job, command), answer in zip(sent, answers, strict=False):
        job.error = job.error or commands.refusal(command, answer, job.target)
    try:
        process.read_back(backends, answers[len(sent) :])
    except Unreachable as error:
        raise OutcomeUnknown(error.target, error.cause, "look again") from error
    for job, move in todo:
        if job.error is None and (move.prepare or not first):
            job.error = _verify(process, job, move, first)
    return [(job, move) for job, move in todo if job.error is None]


def _verify(process: Process, job: Job, move: Move, first: bool) -> ProviderError | None:
    server = process.backends.get(job.slots.backend, {}).get(move.slot)
    if server is not None and (move.prepared(server) if first else move.done(server)):
        return None
    cause = f"{process.session.target}: {plan.mismatch(move, server, job.slots.pool)}"
    return OutcomeUnknown(job.target, cause, "see who else writes to that socket, and look again")


def _check(job: Job, tables: Sequence[Table]) -> None:
    endpoint = job.action.endpoint
    current = agreed([one.weight(endpoint) for one in tables])
    foreign = current is None and any(server.endpoint == endpoint for one in tables for server in one.foreign)
    if not isinstance(job.action, SetWeight):
        plan.check_removal(job.target, current, foreign)
        return
    # Of what is there already nothing but its weight goes into a command.
    if current is None:
        commands.checked_endpoint(job.target, endpoint)
    plan.check_weight(job.target, job.action, current, foreign)


def _require_backend(job: Job, process: Process) -> None:
    """Raises `Rejected` for a weight in a backend that is not there, with the names of those that are."""
    if not isinstance(job.action, SetWeight):
        return
    (answer,) = process.session.ask([commands.SHOW_BACKENDS])
    names = [line for line in answer.splitlines() if line and not line.startswith("#")]
    close = difflib.get_close_matches(job.slots.backend, names, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"its backends: {', '.join(sorted(names)[:10]) or 'none'}"
    raise Rejected(job.target, f"{process.session.target} has no backend {job.slots.backend!r}", hint)


def jobs_of(actions: Iterable[EndpointAction], slots: Mapping[str, Slots]) -> list[Job]:
    """A job for each action."""
    return [Job(action, slots[action.pool], object_of(action)) for action in actions]
