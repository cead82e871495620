"""Ends of containers: how each one ended, who started it again, and which ones another program removed.

A look may find a container down, or already up again: its runtime restarts it at once, and so may an operator. The ledger keeps which
end of each container is known, so every end is reported once, also after a restart of the program; our own stops and restarts of the
host are not reported. Also found: a process that was killed at the memory limit while its container ran on. `identity` calls `seen`,
the loop calls `between` and `removed`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from providers.facts import ContainerFact, ContainerState, EndFact, ExitCause, Mark, container_name
from reconciler.core.exits.grants import RESTARTS
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.owned import Owned
from reconciler.core.model.reasons import Reason

OURS = frozenset({ExitCause.STOPPED_BY_US, ExitCause.HOST_RESTARTED})
"""Ends that say nothing about the container."""

_SIGNALS = {
    1: "HUP",
    2: "INT",
    3: "QUIT",
    4: "ILL",
    6: "ABRT",
    7: "BUS",
    8: "FPE",
    9: "KILL",
    11: "SEGV",
    13: "PIPE",
    15: "TERM",
}
"""Names of the signals that end programs, see signal(7)."""

_DOWN = {ContainerState.EXITED, ContainerState.RESTARTING}

_STARTED = {ContainerState.RUNNING, ContainerState.PAUSED}


@dataclass(frozen=True, slots=True)
class End:
    """One end of a container, or of one of its processes.

    fact: the container as the look shows it now. at: the wall-clock instant of the end (ns), 0 = unknown. exit_code: None = unknown.
    reason: how it ended, as a start after it is called. child: only a process of it was killed, and the container runs on.
    """

    object: str
    fact: ContainerFact
    at: int
    exit_code: int | None
    cause: ExitCause
    reason: Reason
    message: str
    again: str
    child: bool = False


@dataclass(frozen=True, slots=True)
class Removal:
    """A container of ours that another program removed. name: the one that it was created with."""

    object: str
    name: str
    node: str

    @property
    def message(self) -> str:
        """What happened, and what follows from it."""
        return f"another program removed {self.name} from {self.node}; while the manifests declare its replica, it is created again"


def end_of(fact: ContainerFact) -> EndFact | None:
    """The last end of a container. A runtime that does not date ends shows the end of the generation that is down."""
    if fact.last_end is not None:
        return fact.last_end
    if fact.state is ContainerState.EXITED and fact.exit_cause is not None:
        return EndFact(fact.started_at, fact.exit_code, fact.exit_cause)
    return None


def seen(fact: ContainerFact, known: Owned | None) -> Owned:
    """The row of a container after this look. A container that is new to the ledger and runs had its earlier ends before."""
    end = end_of(fact)
    before = known or Owned()
    row = Owned(
        before.ended_at if end is None else end.at,
        fact.oom_at or before.oom_at,
        fact.restarts,
        *_place(fact),
        before.volumes,
    )
    return before if row == before else row


def _place(fact: ContainerFact) -> tuple[str, str, int, str, tuple[str, ...]]:
    """Which replica a container is, where it is, and how it can be reached."""
    mark = fact.mark
    if mark is None:
        return fact.node, "", -1, "", reach_of(fact)
    return fact.node, mark.workload, mark.ordinal, mark.revision, reach_of(fact)


def reach_of(fact: ContainerFact) -> tuple[str, ...]:
    """How a container can be reached, for the ledger: its own addresses, and the ports of its host."""
    own = (fact.address,) if fact.address else ()
    if not fact.addresses and not fact.published:
        return own
    others = {address for _, address in fact.addresses} - {fact.address, ""}
    return (*own, *sorted(others), *sorted(f"{port.address}:{port.port}" for port in fact.published))


def between(
    before: Mapping[str, Owned], after: Mapping[str, Owned], runtimes: Mapping[str, tuple[ContainerFact, ...]]
) -> tuple[End, ...]:
    """The ends that one look has added to the ledger, in the order of containers.

    Args:
        before, after: the rows of the ledger before and after the decision.
        runtimes: the containers that it was made on.
    """
    changed = {container: row for container, row in after.items() if row is not before.get(container)}
    if not changed:
        return ()
    ends: list[End] = []
    for fact in (fact for facts in runtimes.values() for fact in facts if fact.id in changed):
        row, known, end = changed[fact.id], before.get(fact.id), end_of(fact)
        if fact.mark is None:
            continue
        obj = f"workload/{fact.mark.workload}/{fact.mark.ordinal}"
        new = known is not None or fact.state in _DOWN
        if end is not None and new and row.ended_at != (known or Owned()).ended_at and end.cause not in OURS:
            ends.append(_end(obj, fact, end, fact.restarts - (known.restarts if known is not None else 0)))
        if known is not None and row.oom_at != known.oom_at and fact.state is ContainerState.RUNNING:
            message = f"a process of {fact.name} was killed at the memory limit; the container runs on"
            ends.append(
                End(
                    obj, fact, row.oom_at, None, ExitCause.OOM_KILLED, Reason.OOM_KILLED, message, "runs on", child=True
                )
            )
    return tuple(sorted(ends, key=lambda end: (end.object, end.fact.name, end.fact.node, end.at)))


def removed(
    before: Ledger, after: Ledger, instance: str, runtimes: Mapping[str, tuple[ContainerFact, ...]]
) -> tuple[Removal, ...]:
    """The containers that one look does not show any more, although no exit of ours was to remove them. Sorted by object.

    Args:
        before, after: the ledger before and after the decision.
        instance: the id of the instance.
        runtimes: the containers that it was made on. Nodes that cannot be read are absent.
    """
    gone = before.owned.keys() - after.owned.keys() if before.owned is not after.owned else set()
    if not gone:
        return ()
    shown = {fact.id for facts in runtimes.values() for fact in facts}
    found: list[Removal] = []
    for id_ in gone - shown:
        row, grant = before.owned[id_], before.grants.get(id_)
        ours = grant is not None and (grant.recreate or grant.cause not in RESTARTS)
        if row.node in runtimes and row.workload and row.ordinal >= 0 and not ours:
            name = container_name(Mark(instance, row.workload, row.ordinal, row.revision))
            found.append(Removal(row.replica, name, row.node))
    return tuple(sorted(found, key=lambda removal: (removal.object, removal.name, removal.node)))


def _end(obj: str, fact: ContainerFact, end: EndFact, restarts: int) -> End:
    """An end of the container itself, and who starts it again."""
    if fact.state is ContainerState.RESTARTING:
        again = "the runtime starts it again"
    elif fact.state in _DOWN:
        again = "it is down"
    elif fact.state is ContainerState.STOPPING:
        again = "it is being stopped or removed, not by reconcile"
    elif restarts > 0:
        again = (
            "started again by the runtime" if restarts == 1 else f"started again by the runtime, {restarts} times since"
        )
    else:
        again = "started again, not by reconcile" if fact.state in _STARTED else "it is down"
    at = end.at if fact.last_end is not None else 0
    message = f"{fact.name} {exit_text(end.exit_code, end.cause)}; {again}"
    return End(obj, fact, at, end.exit_code, end.cause, reason_of(end.exit_code, end.cause), message, again)


def reason_of(code: int | None, cause: ExitCause | None) -> Reason:
    """The reason with which a start after such an end is named."""
    if cause is ExitCause.OOM_KILLED:
        return Reason.OOM_KILLED
    return Reason.EXITED if cause is ExitCause.EXITED and code == 0 else Reason.CRASHED


def exit_text(code: int | None, cause: ExitCause | None) -> str:
    """How a container ended, as the rest of a sentence."""
    known = "an unknown exit code" if code is None else f"code {code}"
    if cause is ExitCause.OOM_KILLED:
        return f"was killed at its memory limit, exit {known}" if code is not None else "was killed at its memory limit"
    if cause is ExitCause.SIGNALLED and code is not None:
        number = code - 128
        name = f" (SIG{_SIGNALS[number]})" if number in _SIGNALS else ""
        return f"was killed by signal {number}{name}, exit {known}"
    return f"exited with {known}"
