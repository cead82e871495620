"""What one action means for the slots of one process: which slot, which commands, and when it is done. Pure.

    take      weight 0 -> maintenance -> address, read back, -> ready -> weight
    change    weight (and ready, if somebody took the slot out)
    cut       maintenance, and a weight that is not 0: what `persistence: cut` makes of weight 0
    release   weight 0 -> drain -> maintenance -> 127.0.0.1:1

A slot in maintenance gets no client, also none that is bound to it by a cookie, while one of weight 0 still gets those. It
would be a free slot if it had weight 0 as well.

Which slot an endpoint has is never remembered: it is the one that points to it. So a program that was killed half-way finds
its way by looking. Used by `haproxy_write.py`.
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

    `prepare` points it to `endpoint` while it is out of use; that is read back before `finish` goes out. `weight` None means
    that the slot is free afterwards; `cut` that it is in maintenance but not free.
    """

    slot: str
    endpoint: Endpoint
    weight: int | None
    prepare: tuple[Command, ...]
    finish: tuple[Command, ...]
    cut: bool = False

    def prepared(self, server: Server) -> bool:
        """Whether the slot points to the new address and gets no traffic yet."""
        return server.endpoint == self.endpoint and server.weight == 0 and bool(server.admin & OUT_MAINTENANCE)

    def done(self, server: Server) -> bool:
        """Whether the slot is as it should be. Checks of HAProxy's own do not count: they are its own business."""
        if self.weight is None:
            return server.free and server.weight == 0 and server.endpoint == PLACEHOLDER
        if self.cut:
            return server.endpoint == self.endpoint and bool(server.admin & OUT_MAINTENANCE) and not server.free
        return server.endpoint == self.endpoint and server.weight == self.weight and not server.admin & OUT


class Free:
    """The free slots of one pool in one process, each handed out once in a batch. Most batches ask for none."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._slots: dict[str, Server] | None = None
        self._begun: dict[Endpoint | None, str] = {}

    def take(self, endpoint: Endpoint) -> Server | None:
        """The slot that was about to be taken for it when somebody was interrupted, else the lowest; None without one.

        A slot with a check under way is taken last: HAProxy does not end it, and what it finds out about the address before it would
        tell of the next one. A server that was just made ready is down with that, until some checks of its own have passed.
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
    """Compare a wanted weight with what is there, over all processes.

    Raises:
        Rejected: no weight that HAProxy, or the algorithm of that backend, can have.
        Foreign: a server that is not ours has the address.
        Conflict, Gone: the plan saw something else.
    """
    if not 0 <= action.weight <= MAX_WEIGHT:
        cause = f"weight {action.weight} is not from 0 to {MAX_WEIGHT}"
        raise Rejected(object_of(action), cause, "choose another weight")
    if on_off and action.weight not in (0, ON_WEIGHT):
        cause = f"weight {action.weight}: the algorithm of that backend takes only 0 and {ON_WEIGHT}"
        raise Rejected(object_of(action), cause, "use balance roundrobin, leastconn or random there, or those weights")
    if foreign:
        raise _foreign(action)
    if current not in (action.weight, action.before):
        kind: type[ProviderError] = Gone if current is None else Conflict
        raise kind(
            object_of(action), f"the plan saw weight {action.before}, now it is {current}", "retried automatically"
        )


def check_rest(action: EndpointAction, current: int | None, foreign: bool) -> None:
    """Raises `Foreign` for a server that is not ours, and `Conflict` when the endpoint may get traffic."""
    if foreign:
        raise _foreign(action)
    if current:
        raise Conflict(object_of(action), f"still has weight {current}", "set its weight to 0 first")


def _foreign(action: EndpointAction) -> Foreign:
    cause = "is a server of that backend which is no slot of this instance"
    return Foreign(object_of(action), cause, "remove it from HAProxy's configuration, or use another backend")


def moves(table: Table, action: EndpointAction, free: Free, cut: bool) -> tuple[Move, ...]:
    """The changes that an action means here; none when all is as wanted.

    Args:
        table: the pool as this process has it.
        action: what to do.
        free: the slots that are left for this batch.
        cut: whether weight 0 also keeps out clients that are bound to the endpoint.

    Raises:
        Rejected: the configuration has no slots of this name, or all are in use, or their weight cannot be raised.
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
    """The moves of the commonest action, a new weight for one slot that is in use, as `moves` has them after `check_weight`.

    None for everything else, whatever it is. It is asked first because weights come in thousands.
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
    """What a slot reads back as, in words, after it was written."""
    if server is None:
        return f"slot {move.slot} of {target} is gone"
    place = endpoint_text(server.endpoint) if server.endpoint else "no address"
    said = f"slot {move.slot} reads back as {place}, weight {server.weight}, administrative state {server.admin}"
    if server.agent & AGENT_ENABLED:
        said += "; its agent-check writes weights and states too"
    return said


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
        # Weight first: a slot that somebody took out may still have another one.
        finish = (*finish, commands.state(backend, name, "ready"))
    return Move(name, action.endpoint, value, (), finish)


def _cut(table: Table, server: Server) -> Move:
    """Out of use, bound clients too, with an address that stays."""
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
    """End what is under way; the slot stays as it is."""
    finish = (commands.end_sessions(table.slots.backend, server.name),)
    place, cut = server.endpoint or PLACEHOLDER, bool(server.admin & OUT_MAINTENANCE)
    return Move(server.name, place, server.weight, (), finish, cut)


def _value(table: Table, server: Server, action: SetWeight) -> int:
    """The weight to write: a static algorithm takes 0 and the configured one only."""
    if not table.on_off or not action.weight:
        return action.weight
    if not server.initial:
        cause = (
            f"slot {server.name} has weight 0 in the configuration, and the algorithm of that backend takes no other"
        )
        raise Rejected(object_of(action), cause, f"write {table.template()!r}, then reload HAProxy")
    return server.initial


def _kept_weight(table: Table, server: Server) -> int:
    """Any weight that is not 0."""
    return server.initial if table.on_off and server.initial else 1


def _no_slot(table: Table, target: str) -> Rejected:
    """Why there is none, with the line to write."""
    slots = table.slots
    if table.ours:
        cause = f"no free slot: all {len(table.ours)} of {slots.prefix}1 to {table.ours[-1].name} are in use"
        line = table.template(_more_than(slots.number(table.ours[-1].name) or 0))
        return Rejected(target, cause, f"raise the number in backend {slots.backend}: {line!r}, then reload HAProxy")
    cause = f"backend {slots.backend} has no slots named {slots.prefix}<number>"
    if table.bare:
        cause += f" made for this instance ({', '.join(table.bare[:3])} would lose their addresses at a reload)"
    if table.reserved:
        cause += f"; those there are for {', '.join(table.reserved)}"
        return Rejected(target, cause, f"use slots of your own, {slots.backend}:SLOTS, or give these to this instance")
    return Rejected(target, cause, f"add to backend {slots.backend}: {table.template()!r}, then reload HAProxy")


def _more_than(number: int) -> int:
    """The next round size of a set of slots."""
    return max(20, -(-number * 2 // 10) * 10)
