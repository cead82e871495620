"""The servers and pools that one process should read back after a batch of plain weights, made while HAProxy still writes. Pure.

A forecast is never returned unchecked: `write.py` compares its servers with those read back, field by field. Only if they are
equal are its pools used, which saves making them afterwards.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from providers.endpoints.haproxy.moves import Move
from providers.endpoints.haproxy.pool_facts import pool_fact, resting
from providers.endpoints.haproxy.state import Server, Slots, table
from providers.facts import PoolFact

_WEIGHT = Server._fields.index("weight")

Backends = Mapping[str, Mapping[str, Server]]
"""Servers by backend and name."""


class Forecast(NamedTuple):
    """The servers of the backends that are written, and the pools of which all members have weight."""

    servers: Backends
    pools: Mapping[Slots, PoolFact]

    def holds(self, read: Backends) -> bool:
        """Whether the servers read back as forecast: then every move is done, and the pools are these."""
        return all(read.get(backend) == servers for backend, servers in self.servers.items())


def forecast(
    before: Backends, algorithms: Mapping[str, str], changes: Sequence[tuple[Slots, tuple[Move, ...]]], epoch: str
) -> Forecast | None:
    """The servers and pools after some changes.

    Args:
        before: the servers as last read.
        algorithms: of the backends, where HAProxy shows one.
        changes: the moves in each pool. A backend without moves has no forecast, because it is not read back.
        epoch: the process.

    Returns:
        None unless each move only gives another weight than 0 to a slot that is in use.
    """
    weights: dict[str, dict[str, int]] = {slots.backend: {} for slots, moves in changes if moves}
    for slots, moves in changes:
        for slot, _, weight, prepare, finish, cut in moves:
            if not weight or prepare or len(finish) > 1 or cut:
                return None
            weights[slots.backend][slot] = weight
    after = {backend: _with_weights(before.get(backend, {}), given) for backend, given in weights.items()}
    pools = {slots for slots, _ in changes if slots.backend in weights}
    tables = [table(slots, after[slots.backend].values(), algorithms.get(slots.backend, "")) for slots in pools]
    return Forecast(after, {pool.slots: pool_fact([pool], epoch) for pool in tables if not resting(pool)})


def _with_weights(servers: Mapping[str, Server], weights: Mapping[str, int]) -> dict[str, Server]:
    """Servers with other weights. By columns, which is fast: HAProxy must not wait for us."""
    columns: list[Iterable[object]] = [*zip(*servers.values(), strict=True)]
    if columns:
        columns[_WEIGHT] = [weights.get(name, server.weight) for name, server in servers.items()]
    return dict(zip(servers, map(tuple.__new__, repeat(Server), zip(*columns, strict=True)), strict=True))
