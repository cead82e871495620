"""What one action means for the slots of one process: which slot, which commands, and when it is done. Pure.

    take      weight 0 -> maintenance -> address, read back, -> ready -> weight
    change    weight (and ready, if somebody took the slot out)
    release   weight 0 -> drain -> maintenance -> 127.0.0.1:1

Which slot an endpoint has is never remembered: it is the one that points to it. So a program that was killed half-way finds
its way by looking. Used by `haproxy_write.py`.
"""

from typing import NamedTuple

from providers.actions import EndpointAction, SetWeight
from providers.endpoints import haproxy_commands as commands
from providers.endpoints.haproxy_commands import Command
from providers.endpoints.haproxy_state import (
    AGENT_ENABLED,
    MAX_WEIGHT,
    OUT,
    OUT_MAINTENANCE,
    PLACEHOLDER,
    Server,
    Table,
)
from providers.errors import Conflict, Foreign, Gone, ProviderError, Rejected
from providers.facts import Endpoint
from providers.naming import endpoint_text


class Move(NamedTuple):
    """The change of one slot.

    `prepare` points it to `endpoint` while it is out of use; that is read back before `finish` goes out. `weight` None means
    that the slot is free afterwards.
    """

    slot: str
    endpoint: Endpoint
    weight: int | None
    prepare: tuple[Command, ...]
    finish: tuple[Command, ...]

    def prepared(self, server: Server) -> bool:
        """Whether the slot points to the new address and gets no traffic yet."""
        return server.endpoint == self.endpoint and server.weight == 0 and bool(server.admin & OUT_MAINTENANCE)

    def done(self, server: Server) -> bool:
        """Whether the slot is as it should be. Checks of HAProxy's own do not count: they are its own business."""
        if self.weight is None:
            return server.free and server.weight == 0 and server.endpoint == PLACEHOLDER
        return server.endpoint == self.endpoint and server.weight == self.weight and not server.admin & OUT


class Free:
    """The free slots of one pool in one process, each handed out once in a batch. Most batches ask for none."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._slots: dict[str, Server] | None = None
        self._begun: dict[Endpoint | None, str] = {}

    def take(self, endpoint: Endpoint) -> Server | None:
        """The slot that was about to be taken for it when somebody was interrupted, else the lowest; None without one."""
        if self._slots is None:
            self._slots = {server.name: server for server in self._table.ours if server.free}
            self._begun = {server.endpoint: server.name for server in reversed(self._slots.values())}
        name = self._begun.get(endpoint)
        if name not in self._slots:
            name = next(iter(self._slots), None)
        return None if name is None else self._slots.pop(name)


def check_weight(target: str, action: SetWeight, current: int | None, foreign: bool) -> None:
    """Compare a wanted weight with what is there, over all processes.

    Raises:
        Rejected: no weight that HAProxy can have.
        Foreign: a server that is not ours has the address.
        Conflict, Gone: the plan saw something else.
    """
    if not 0 <= action.weight <= MAX_WEIGHT:
        raise Rejected(target, f"weight {action.weight} is not from 0 to {MAX_WEIGHT}", "choose another weight")
    if foreign:
        raise _foreign(target)
    if current not in (action.weight, action.before):
        kind: type[ProviderError] = Gone if current is None else Conflict
        raise kind(target, f"the plan saw weight {action.before}, now it is {current}", "look again")


def check_removal(target: str, current: int | None, foreign: bool) -> None:
    """Raises `Foreign` for a server that is not ours, and `Conflict` when the endpoint may get traffic."""
    if foreign:
        raise _foreign(target)
    if current:
        raise Conflict(target, f"still has weight {current}", "set its weight to 0 first")


def _foreign(target: str) -> Foreign:
    cause = "is a server of that backend which is no slot of this instance"
    return Foreign(target, cause, "remove it from HAProxy's configuration, or use another backend")


def moves(table: Table, action: EndpointAction, target: str, free: Free) -> tuple[Move, ...]:
    """The changes that an action means here; none when all is as wanted.

    Args:
        table: the pool as this process has it.
        action: what to do.
        target: its object, for messages.
        free: the slots that are left for this batch.

    Raises:
        Rejected: the configuration has no slots of this name, or all are in use.
    """
    held = table.taken.get(action.endpoint, ())
    if not isinstance(action, SetWeight):
        return tuple(_release(table, server) for server in held)
    if not held:
        return (_take(table, action, target, free),)
    first = held[0]
    spare = tuple(_release(table, server) for server in held[1:])
    if not first.admin & OUT and first.weight == action.weight:
        return spare
    return (*spare, _change(table, first, action))


def mismatch(move: Move, server: Server | None, target: str) -> str:
    """What a slot reads back as, in words, after it was written."""
    if server is None:
        return f"slot {move.slot} of {target} is gone"
    place = endpoint_text(server.endpoint) if server.endpoint else "no address"
    said = f"slot {move.slot} reads back as {place}, weight {server.weight}, administrative state {server.admin}"
    if server.agent & AGENT_ENABLED:
        said += "; its agent-check writes weights and states too"
    return said


def _take(table: Table, action: SetWeight, target: str, free: Free) -> Move:
    if action.endpoint == PLACEHOLDER:
        raise Rejected(target, f"{endpoint_text(PLACEHOLDER)} marks a free slot", "use another port")
    server = free.take(action.endpoint)
    if server is None:
        raise _no_slot(table, target)
    backend, name = server.backend, server.name
    prepare = (
        commands.weight(backend, name, 0),
        commands.state(backend, name, "maint"),
        commands.address(backend, name, action.endpoint),
    )
    finish = (commands.state(backend, name, "ready"), commands.weight(backend, name, action.weight))
    return Move(name, action.endpoint, action.weight, prepare, finish)


def _change(table: Table, server: Server, action: SetWeight) -> Move:
    backend, name = table.slots.backend, server.name
    finish: tuple[Command, ...] = (commands.weight(backend, name, action.weight),)
    if server.out:
        # Weight first: a slot that somebody took out may still have another one.
        finish = (*finish, commands.state(backend, name, "ready"))
    return Move(name, action.endpoint, action.weight, (), finish)


def _release(table: Table, server: Server) -> Move:
    backend, name = table.slots.backend, server.name
    finish = (
        commands.weight(backend, name, 0),
        commands.state(backend, name, "drain"),
        commands.state(backend, name, "maint"),
        commands.address(backend, name, PLACEHOLDER),
    )
    return Move(name, PLACEHOLDER, None, (), finish)


def _no_slot(table: Table, target: str) -> Rejected:
    """Why there is none, with the line to write."""
    slots = table.slots
    if table.ours:
        cause = f"no free slot: all {len(table.ours)} of {slots.prefix}1 to {table.ours[-1].name} are in use"
        line = slots.template(_more_than(slots.number(table.ours[-1].name) or 0))
        return Rejected(target, cause, f"raise the number in backend {slots.backend}: {line!r}, then reload HAProxy")
    cause = f"backend {slots.backend} has no slots named {slots.prefix}<number>"
    if table.bare:
        cause += f" made for this instance ({', '.join(table.bare[:3])} would lose their addresses at a reload)"
    if table.reserved:
        cause += f"; those there are for {', '.join(table.reserved)}"
        return Rejected(target, cause, f"use slots of your own, {slots.backend}:SLOTS, or give these to this instance")
    return Rejected(target, cause, f"add to backend {slots.backend}: {slots.template()!r}, then reload HAProxy")


def _more_than(number: int) -> int:
    """The next round size of a set of slots."""
    return max(20, -(-number * 2 // 10) * 10)
