"""Pool facts from the servers and sessions of HAProxy's processes. Pure; used by `provider.py` and `forecast.py`."""

from collections.abc import Iterable, Mapping, Sequence

from providers.endpoints.haproxy.state import (
    AGENT,
    AGENT_ENABLED,
    CHECK_ALIVE,
    CHECK_CONFIGURED,
    CHECK_RUNS,
    DIGITS,
    HASHED,
    NEVER_CHECKED,
    OPERATIONAL,
    OUT,
    SLOT_HOST,
    Server,
    Slots,
    Table,
    agreed,
)
from providers.facts import Endpoint, MemberFact, PoolFact, Weights


def pool_fact(tables: Sequence[Table], epoch: str, counts: Sequence[Mapping[str, int]] = ()) -> PoolFact:
    """A pool over all processes; `counts` has the known sessions by server for each process.

    A slot of ours hides another server with the same address. Free slots of other instances are not members. A foreign server
    without an IP address has its name as address.
    """
    facts: dict[Endpoint, MemberFact] = {}
    for table in tables:
        for server in table.foreign:
            place = server.endpoint or Endpoint(server.name, server.port)
            facts[place] = MemberFact(place, server.share, False, server.name, None, _operational(server), "")
    places = tables[0].taken.keys() if len(tables) == 1 else {place for table in tables for place in table.taken}
    best = [_best(table) for table in tables]
    for place in places:
        facts[place] = _member(place, tables, counts, best)
    fixed = next((table for table in tables if table.on_off), None)
    kind = Weights.ANY if fixed is None else Weights.ON_OFF
    algorithm = "" if fixed is None else f"backend {fixed.slots.backend} with balance {fixed.algorithm}"
    if fixed is not None and fixed.algorithm in HASHED:
        algorithm += " and a weight in the lines of its slots"  # see `HASHED`
    return PoolFact(tables[0].slots.pool, tuple([facts[place] for place in sorted(facts)]), epoch, kind, algorithm)


def _member(
    place: Endpoint, tables: Sequence[Table], counts: Sequence[Mapping[str, int]], best: Sequence[int]
) -> MemberFact:
    if len(tables) == 1 and len(held := tables[0].taken[place]) == 1:
        server = held[0]
        if server.weight and not server.admin & OUT and not tables[0].on_off:  # the most frequent case, in thousands
            writer = AGENT if server.agent & AGENT_ENABLED else ""
            return MemberFact(place, server.weight, True, "", None, _operational(server, best[0]), writer)
    servers = [server for table in tables for server in table.taken.get(place, ())]
    weight = agreed([table.weight(place) for table in tables]) or 0
    count = None if weight else _in_flight(place, tables, counts)
    writer = AGENT if any(server.agent & AGENT_ENABLED for server in servers) else ""
    # If several servers differ, all their states.
    states = {
        _operational(server, top) for one, top in zip(tables, best, strict=True) for server in one.taken.get(place, ())
    }
    return MemberFact(place, weight, True, "", count, "/".join(sorted(states - {""})), writer)


def resting(table: Table) -> list[Server]:
    """The servers of members without weight, whose sessions say whether they are drained."""
    return [server for held in table.taken.values() for server in held if not server.weight or server.admin & OUT]


def _best(table: Table) -> int:
    """The highest check count (`Server.health`) of the slots in use."""
    return max((server.health for held in table.taken.values() for server in held), default=0)


def _operational(server: Server, best: int = 0) -> str:
    """The result of HAProxy's checks of a server; empty without checks.

    HAProxy calls a server up as soon as it is made ready, and down after the first failed check. So it is only `checking` until
    a check has passed. The result of the last check does not say that, because it may be of the slot's previous address. But all
    slots of a pool come from one line, with the same `rise` and `fall`: a server with a lower check count than another has not
    passed a check yet, or has just failed one.
    """
    if not server.check & CHECK_CONFIGURED:
        return ""
    state = OPERATIONAL.get(server.operation, "")
    if state not in ("up", "starting") or server.check & CHECK_RUNS != CHECK_ALIVE:
        return state
    return "checking" if server.health < best or server.last == NEVER_CHECKED else state


def _in_flight(place: Endpoint, tables: Sequence[Table], counts: Sequence[Mapping[str, int]]) -> int | None:
    total = 0
    for one, count in zip(tables, counts, strict=False):
        for server in one.taken.get(place, ()):
            if server.name not in count:
                return None
            total += count[server.name]
    return total if counts else None


def marked(servers: Iterable[Server], instance: str) -> set[Slots]:
    """All sets of this instance's slots with one in use: so pools that no manifest names are found."""
    host = f"{instance}.{SLOT_HOST}"
    ours = [server for server in servers if server.host == host]
    used = {(server.backend, server.name.rstrip(DIGITS)) for server in ours if not server.free}
    names: dict[str, list[str]] = {backend: [] for backend, _ in used}
    for server in ours:
        if server.backend in names:
            names[server.backend].append(server.name)
    return {_with_default_prefix(Slots(backend, prefix, instance), names[backend]) for backend, prefix in used}


def _with_default_prefix(slots: Slots, names: Sequence[str]) -> Slots:
    """The same slots. If the backend's name ends in digits, these belong to the default prefix."""
    default = Slots(slots.backend, slots.backend, slots.instance)
    if not slots.backend[len(slots.prefix) :].isdecimal() or not slots.backend.startswith(slots.prefix):
        return slots
    same = all(default.number(name) is not None for name in names if slots.number(name) is not None)
    return default if same else slots
