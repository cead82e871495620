"""The moves of one action in one process: which slot, which commands, and when it is done. Pure.

    take      weight 0 -> maintenance -> address, read back, -> ready -> weight
    change    weight (and ready, if another writer took the slot out)
    cut       maintenance, and a weight that is not 0: weight 0 with `persistence: cut`
    release   weight 0 -> drain -> maintenance -> 127.0.0.1:1

A slot in maintenance gets no clients, not even those bound to it by a cookie, which a slot of weight 0 still gets. With weight 0
as well it would be a free slot.

The slot of an endpoint is never remembered: it is the slot with its address. So after a kill half-way, the next look is enough to
go on. Used by `write.py`.
"""

from typing import NamedTuple

from providers.actions import CutSessions, EndpointAction, SetWeight
from providers.endpoints.haproxy import commands
from providers.endpoints.haproxy.commands import Command
from providers.endpoints.haproxy.state import (
    AGENT_ENABLED,
    CHECK_UNDER_WAY,
    MAX_WEIGHT,
    OUT,
    OUT_MAINTENANCE,
    PLACEHOLDER,
    Server,
    Table,
)
from providers.errors import Conflict, Foreign, Gone, ProviderError, Rejected
from providers.facts import ON_WEIGHT, Endpoint
from providers.naming import endpoint_text, object_of


class Move(NamedTuple):
    """The change of one slot.

    `prepare` sets the address to `endpoint` while the slot is out of use; that is read back before `finish` is sent. `weight`
    None: the slot is free afterwards. `cut`: it is in maintenance but not free.
    """

    slot: str
    endpoint: Endpoint
    weight: int | None
    prepare: tuple[Command, ...]
    finish: tuple[Command, ...]
    cut: bool = False

    def prepared(self, server: Server) -> bool:
        """Whether the slot has the new address and gets no traffic yet."""
        return server.endpoint == self.endpoint and server.weight == 0 and bool(server.admin & OUT_MAINTENANCE)

    def done(self, server: Server) -> bool:
        """Whether the slot is as it should be. Results of HAProxy's checks do not count."""
        if self.weight is None:
            return server.free and server.weight == 0 and server.endpoint == PLACEHOLDER
        if self.cut:
            return server.endpoint == self.endpoint and bool(server.admin & OUT_MAINTENANCE) and not server.free
        return server.endpoint == self.endpoint and server.weight == self.weight and not server.admin & OUT


class Free:
    """The free slots of one pool in one process, each given out once in a batch. Most batches need none."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._slots: dict[str, Server] | None = None
        self._begun: dict[Endpoint | None, str] = {}

    def take(self, endpoint: Endpoint) -> Server | None:
        """The slot that an interrupted call has prepared for it, else the lowest; None without a free slot.

        A slot with a running check is taken last: HAProxy does not end the check, and would apply its result for the previous
        address to the new one. A server that was just made ready would then be down until some checks have passed.
        """
        if self._slots is None:
            self._slots = {server.name: server for server in self._table.ours if server.free}
            self._begun = {server.endpoint: server.name for server in reversed(self._slots.values())}
        name = self._begun.get(endpoint)
        if name not in self._slots:
            idle = (server.name for server in self._slots.values() if not server.check & CHECK_UNDER_WAY)
            name = next(idle, next(iter(self._slots), None))
        return None if name is None else self._slots.pop(name)


def check_weight(action: SetWeight, current: int | None, foreign: bool, on_off: bool) -> None:
    """Compare a desired weight with the present one, over all processes.

    Raises:
        Rejected: HAProxy, or the algorithm of that backend, does not allow the weight.
        Foreign: a server of another owner has the address.
        Conflict, Gone: the plan saw something else.
    """
    if not 0 <= action.weight <= MAX_WEIGHT:
        cause = f"weight {action.weight} is not from 0 to {MAX_WEIGHT}"
        raise Rejected(object_of(action), cause, "use another weight")
    if on_off and action.weight not in (0, ON_WEIGHT):
        cause = f"weight {action.weight}: the algorithm of that backend allows only 0 and {ON_WEIGHT}"
        raise Rejected(
            object_of(action), cause, "use balance roundrobin, leastconn or random there, or one of those weights"
        )
    if foreign:
        raise _foreign(action)
    if current not in (action.weight, action.before):
        kind: type[ProviderError] = Gone if current is None else Conflict
        raise kind(
            object_of(action), f"the plan saw weight {action.before}, now it is {current}", "retried automatically"
        )


def check_rest(action: EndpointAction, current: int | None, foreign: bool) -> None:
    """Raise `Foreign` for a server of another owner, and `Conflict` when the endpoint may get traffic."""
    if foreign:
        raise _foreign(action)
    if current:
        raise Conflict(object_of(action), f"still has weight {current}", "set its weight to 0 first")


def _foreign(action: EndpointAction) -> Foreign:
    cause = "a server of that backend that is not a slot of this instance"
    return Foreign(object_of(action), cause, "remove it from HAProxy's configuration, or use another backend")


def moves_for(table: Table, action: EndpointAction, free: Free, cut: bool) -> tuple[Move, ...]:
    """The moves of an action in one process; empty when there is nothing to do.

    Args:
        table: the pool as this process has it.
        action: what to do.
        free: the free slots that this batch has left.
        cut: whether weight 0 also keeps out clients bound to the endpoint.

    Raises:
        Rejected: the configuration has no slots of this name, all are in use, or their weight cannot be raised.
    """
    held = table.taken.get(action.endpoint, ())
    if isinstance(action, CutSessions):
        return tuple(_end_sessions(table, server) for server in held)
    if not isinstance(action, SetWeight):
        return tuple(_release(table, server) for server in held)
    if not held:
        return (_take(table, action, free, cut),)
    first = held[0]
    spare = tuple(_release(table, server) for server in held[1:])
    if cut and not action.weight:
        return spare if first.admin & OUT_MAINTENANCE else (*spare, _cut(table, first))
    if not first.admin & OUT and first.weight == (first.initial if table.on_off and action.weight else action.weight):
        return spare
    return (*spare, _change(table, first, action))


def plain_change(table: Table, action: EndpointAction) -> tuple[Move, ...] | None:
    """The moves of the most frequent action, a new weight for one slot in use: as `moves_for` after `check_weight`.

    None for every other action. It is called first because weights come in thousands.
    """
    if not isinstance(action, SetWeight) or table.on_off or not 0 < action.weight <= MAX_WEIGHT:
        return None
    held = table.taken.get(action.endpoint, ())
    if len(held) != 1:
        return None
    server, value = held[0], action.weight
    if server.admin & OUT or server.weight != action.before or server.weight == value:
        return None
    finish = (commands.weight(server.backend, server.name, value),)
    return (Move(server.name, action.endpoint, value, (), finish),)


def mismatch(move: Move, server: Server | None, target: str) -> str:
    """How a slot reads back after it was written, for messages."""
    if server is None:
        return f"slot {move.slot} of {target} is gone"
    place = endpoint_text(server.endpoint) if server.endpoint else "no address"
    text = f"slot {move.slot} reads back as {place}, weight {server.weight}, administrative state {server.admin}"
    if server.agent & AGENT_ENABLED:
        text += "; its agent-check also writes weights and states"
    return text


def _take(table: Table, action: SetWeight, free: Free, cut: bool) -> Move:
    if action.endpoint == PLACEHOLDER:
        raise Rejected(object_of(action), f"{endpoint_text(PLACEHOLDER)} marks a free slot", "use another port")
    server = free.take(action.endpoint)
    if server is None:
        raise _no_slot(table, object_of(action))
    backend, name = server.backend, server.name
    prepare = (
        commands.weight(backend, name, 0),
        commands.state(backend, name, "maint"),
        commands.address(backend, name, action.endpoint),
    )
    if cut and not action.weight:
        finish: tuple[Command, ...] = (commands.weight(backend, name, _kept_weight(table, server)),)
        return Move(name, action.endpoint, 0, prepare, finish, cut=True)
    value = _value(table, server, action)
    finish = (commands.state(backend, name, "ready"), commands.weight(backend, name, value))
    return Move(name, action.endpoint, value, prepare, finish)


def _change(table: Table, server: Server, action: SetWeight) -> Move:
    backend, name = table.slots.backend, server.name
    value = _value(table, server, action)
    finish: tuple[Command, ...] = (commands.weight(backend, name, value),)
    if server.out:
        # Weight first: a slot that another writer took out may still have another weight.
        finish = (*finish, commands.state(backend, name, "ready"))
    return Move(name, action.endpoint, value, (), finish)


def _cut(table: Table, server: Server) -> Move:
    """Take a slot out of use, also for bound clients; it keeps its address."""
    backend, name = table.slots.backend, server.name
    finish: tuple[Command, ...] = (commands.state(backend, name, "maint"),)
    if not server.weight:
        finish = (*finish, commands.weight(backend, name, _kept_weight(table, server)))
    return Move(name, server.endpoint or PLACEHOLDER, 0, (), finish, cut=True)


def _release(table: Table, server: Server) -> Move:
    backend, name = table.slots.backend, server.name
    leave = () if server.admin & OUT_MAINTENANCE else (commands.state(backend, name, "drain"),)
    finish = (
        commands.weight(backend, name, 0),
        *leave,
        commands.state(backend, name, "maint"),
        commands.address(backend, name, PLACEHOLDER),
    )
    return Move(name, PLACEHOLDER, None, (), finish)


def _end_sessions(table: Table, server: Server) -> Move:
    """End all sessions; the slot stays as it is."""
    finish = (commands.end_sessions(table.slots.backend, server.name),)
    place, cut = server.endpoint or PLACEHOLDER, bool(server.admin & OUT_MAINTENANCE)
    return Move(server.name, place, server.weight, (), finish, cut)


def _value(table: Table, server: Server, action: SetWeight) -> int:
    """The weight to write: a static algorithm allows only 0 and the configured one."""
    if not table.on_off or not action.weight:
        return action.weight
    if not server.initial:
        cause = (
            f"slot {server.name} has weight 0 in the configuration, and the algorithm of that backend allows no other"
        )
        raise Rejected(object_of(action), cause, f"write {table.template()!r}, then reload HAProxy")
    return server.initial


def _kept_weight(table: Table, server: Server) -> int:
    """A weight that is not 0."""
    return server.initial if table.on_off and server.initial else 1


def _no_slot(table: Table, target: str) -> Rejected:
    """The error for a missing slot, with the line to write."""
    slots = table.slots
    if table.ours:
        cause = f"no free slot: all {len(table.ours)} of {slots.prefix}1 to {table.ours[-1].name} are in use"
        line = table.template(_more_than(slots.number(table.ours[-1].name) or 0))
        return Rejected(target, cause, f"raise the number in backend {slots.backend}: {line!r}, then reload HAProxy")
    cause = f"backend {slots.backend} has no slots named {slots.prefix}<number>"
    if table.bare:
        cause += f" for this instance ({', '.join(table.bare[:3])} would lose their addresses at a reload)"
    if table.reserved:
        cause += f"; the existing ones are for {', '.join(table.reserved)}"
        return Rejected(target, cause, f"use other slots, {slots.backend}:SLOTS, or give these to this instance")
    return Rejected(target, cause, f"add to backend {slots.backend}: {table.template()!r}, then reload HAProxy")


def _more_than(number: int) -> int:
    """The next round number of slots."""
    return max(20, -(-number * 2 // 10) * 10)
