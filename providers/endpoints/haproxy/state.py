"""HAProxy's state as values: the process behind a socket, its servers, and one pool's slots among them. Pure.

A pool is a set of *slots*: servers made by a `server-template` line of a backend, which are filled with addresses over the
socket. The line's host name is our mark, because it stays with a slot whatever address it gets: `slot.invalid` for any
instance, `<instance>.slot.invalid` for one only. A server with the name of a slot but without such a host name is not ours:
after a reload it would be back at its configured address. Read by the other modules of this provider.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from providers.errors import Rejected
from providers.facts import ON_WEIGHT, Endpoint

SLOT_HOST = "slot.invalid"
"""Host name of a slot. Names below `.invalid` never resolve (RFC 6761, section 6.4)."""

PLACEHOLDER = Endpoint("127.0.0.1", 1)
"""The address of a free slot."""

MAX_WEIGHT = 256
"""HAProxy's largest weight (management guide, `set weight`)."""

DISAGREE = MAX_WEIGHT + 1
"""The weight of a member on which sockets, or two slots, disagree while at least one of them sends it traffic.

No desired weight equals it, so the next step writes the desired one everywhere. It is not 0, so the endpoint does not count as
drained. The lowest weight would hide that one socket still sends traffic, the highest that another sends none.
"""

OUT_MAINTENANCE = 0x23
"""Administrative bits of a server that is out for maintenance: forced, inherited, by name resolution. Bit 0x04 only means
`disabled` in the configuration; it stays when the server is made ready."""

OUT_DRAIN = 0x18
"""Administrative bits of a server that takes no new clients: forced, inherited."""

OUT = OUT_MAINTENANCE | OUT_DRAIN

CHECK_UNDER_WAY, CHECK_CONFIGURED = 0x01, 0x02
"""Bits of the check's state: a check has begun and not ended; the server has a health check."""

CHECK_RUNS, CHECK_ALIVE = 0x0C, 0x04
"""Bits of the check's state that say whether it runs, and their value if so: enabled and not paused."""

NEVER_CHECKED = "1"
"""The status of the last check (`show servers state`, srv_check_status) before any check has ended. The result of the check
(srv_check_result) does not say that: it is unknown while a check runs."""

OPERATIONAL = {"0": "down", "1": "starting", "2": "up", "3": "stopping"}
"""States of a server with a check (management guide, `show servers state`, srv_op_state)."""

AGENT = "HAProxy's agent-check"

AGENT_ENABLED = 0x04
"""Bit of the agent's state: it runs and may write weights and states."""

HASHED = frozenset({"source", "uri", "url_param", "hdr", "rdp-cookie", "hash"})
"""Algorithms that are static unless the backend has `hash-type consistent`, which HAProxy does not show. A backend whose slots
have a weight in the configuration counts as static: without that weight it could never give them traffic."""

DIGITS = "0123456789"
MOST_DIGITS = 10
"""Slot numbers have fewer digits than this."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class Info(NamedTuple):
    """The process that answers on a socket, `age` seconds after its start. `stopping`: it only finishes what it has."""

    pid: int
    stopping: bool
    age: int = 0
    started: str = ""

    @property
    def epoch(self) -> str:
        """Identifies this process: process numbers are reused."""
        return f"{self.pid}@{self.started}"


class Server(NamedTuple):
    """One server of a backend. `endpoint` is None without an IP address (a Unix socket, an unresolved name).

    `weight` is the weight that was set, not the effective one (which a slow start or a check changes); `initial` is the
    configured one. `admin`, `check` and `agent` are HAProxy's bit sets; `host` is the configured host name, "-" for none. `id` is
    the number in the backend, `operation` a key of `OPERATIONAL`, `last` the status of the last check. `health` is HAProxy's check
    count: `rise` when a server is made ready (one failed check takes it down), more after a check has passed, 0 when it is down.
    """

    backend: str
    name: str
    endpoint: Endpoint | None
    port: int
    weight: int
    admin: int
    agent: int
    host: str
    initial: int
    check: int
    id: str
    operation: str
    last: str
    health: int

    @property
    def out(self) -> bool:
        """Whether it gets no new clients, whatever its weight is."""
        return bool(self.admin & OUT)

    @property
    def share(self) -> int:
        """The weight that takes effect: 0 while the server is out."""
        return 0 if self.out else self.weight

    @property
    def free(self) -> bool:
        """Whether a slot may be taken: in maintenance, with the placeholder address or without weight."""
        return bool(self.admin & OUT_MAINTENANCE) and (self.weight == 0 or self.endpoint == PLACEHOLDER)


class Slots(NamedTuple):
    """The slots of a pool: the servers `<prefix><n>` of one backend that are for this instance."""

    backend: str
    prefix: str
    instance: str

    @property
    def pool(self) -> str:
        """The pool's name: the backend's, followed by `:<prefix>` unless that is the same."""
        return self.backend if self.prefix == self.backend else f"{self.backend}:{self.prefix}"

    def number(self, name: str) -> int | None:
        """The number of the slot with this name; None for other servers."""
        return _number(self.prefix, name)

    def template(self, count: int = 20, on_off: bool = False) -> str:
        """The configuration line that makes these slots."""
        weight = ON_WEIGHT if on_off else 0
        host = f"{self.instance}.{SLOT_HOST}"
        return f"server-template {self.prefix} 1-{count} {host}:1 init-addr last,127.0.0.1 weight {weight} disabled"


@dataclass(frozen=True, slots=True)
class Table:
    """One pool as one process has it.

    Attributes:
        exists: whether the backend exists.
        ours: all its slots, by number.
        taken: the slots in use by endpoint, normally one each.
        foreign: the other servers of the backend, without free slots of other instances.
        bare: servers with names of slots that no `server-template` line for slots made.
        reserved: host names of slots with these names that only another instance may fill.
        algorithm: as HAProxy shows it; empty if it shows none.
        on_off: the algorithm allows only weight 0 and the configured one, which appear as 0 and `ON_WEIGHT`.
    """

    slots: Slots
    exists: bool
    ours: tuple[Server, ...]
    taken: Mapping[Endpoint, tuple[Server, ...]]
    foreign: tuple[Server, ...]
    bare: tuple[str, ...]
    reserved: tuple[str, ...]
    on_off: bool = False
    algorithm: str = ""

    def template(self, count: int = 20) -> str:
        """The configuration line that makes these slots."""
        return self.slots.template(count, self.on_off)

    def weight(self, endpoint: Endpoint) -> int | None:
        """The weight of a member here; None when it is in no slot."""
        held = self.taken.get(endpoint)
        if held is None:
            return None
        if len(held) > 1 or self.on_off:
            return agreed([ON_WEIGHT if self.on_off and server.share else server.share for server in held])
        server = held[0]
        return 0 if server.admin & OUT else server.weight


def parse_pool(pool: str, instance: str) -> Slots:
    """`BACKEND` or `BACKEND:PREFIX`; the prefix is the backend's name by default.

    Raises:
        Rejected: it is neither. An explicit prefix may not end in a digit: slot 11 of `web` would be slot 1 of `web1`.
    """
    backend, colon, prefix = pool.partition(":")
    target = f"pool {pool!r}"
    rule = "write BACKEND or BACKEND:SLOTS, with letters, digits, '_', '-' and '.'"
    if not _NAME.fullmatch(backend) or (colon and not _NAME.fullmatch(prefix)):
        raise Rejected(target, "not a pool name of HAProxy", rule)
    if colon and prefix[-1].isdigit():
        raise Rejected(target, f"the slots' prefix {prefix!r} ends in a digit", "use a prefix that ends in a letter")
    return Slots(backend, prefix or backend, instance)


def parse_info(text: str) -> Info:
    """Parse `show info`. Raises ValueError when it is another answer."""
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        age, started = int(fields["Uptime_sec"]), fields.get("Start_time_sec", "")
        return Info(int(fields["Pid"]), fields["Stopping"] != "0", age, started)
    except KeyError as error:
        raise ValueError(f"'show info' has no {error.args[0]}") from None


def table(slots: Slots, servers: Iterable[Server], algorithm: str = "") -> Table:
    """The pool among the servers of a process (of its backend, or of all) and with the backend's algorithm."""
    numbered: list[tuple[int, Server]] = []
    foreign, bare, reserved = [], [], set()
    exists = False
    backend, prefix, claimed = slots.backend, slots.prefix, (SLOT_HOST, f"{slots.instance}.{SLOT_HOST}")
    for server in servers:
        if server.backend != backend:
            continue
        exists = True
        number = _number(prefix, server.name)
        if number is not None and server.host in claimed:
            numbered.append((number, server))
            continue
        slot = server.host == SLOT_HOST or server.host.endswith("." + SLOT_HOST)
        if not (slot and server.free):
            foreign.append(server)
        if number is not None and slot:
            reserved.add(server.host)
        if number is not None and not slot:
            bare.append(server.name)
    numbered.sort()
    ours = tuple([server for _, server in numbered])
    taken: dict[Endpoint, tuple[Server, ...]] = {}
    for server in ours:
        place = server.endpoint
        if place is not None and not (server.admin & OUT_MAINTENANCE and server.free):
            taken[place] = (*taken[place], server) if place in taken else (server,)
    on_off = algorithm == "static-rr" or (algorithm in HASHED and any(server.initial for server in ours))
    return Table(slots, exists, ours, taken, tuple(foreign), tuple(bare), tuple(sorted(reserved)), on_off, algorithm)


def agreed(weights: Sequence[int | None]) -> int | None:
    """The weight that all of them have; None = not a member. 0 if none sends traffic, else `DISAGREE`."""
    first = weights[0]
    if len(weights) == 1 or all(weight == first for weight in weights[1:]):
        return first
    return 0 if set(weights) == {0, None} else DISAGREE


@lru_cache(maxsize=65_536)
def _number(prefix: str, name: str) -> int | None:
    digits = name[len(prefix) :]
    if not name.startswith(prefix) or not digits.isdecimal() or not digits.isascii():
        return None
    return int(digits) if digits[0] != "0" and len(digits) < MOST_DIGITS else None
