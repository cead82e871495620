"""What HAProxy says of itself, as values: the process behind a socket, its servers, and one pool's slots among them. Pure.

A pool is a set of *slots*: servers made by a `server-template` line of a backend, which are filled with addresses over the
socket. The line's host name is our mark, because it stays with a slot whatever address it gets: `slot.invalid` for any
instance, `<instance>.slot.invalid` for one only. A server with the name of a slot but without such a host name is not ours:
after a reload it would be back at its configured address. Read by the other modules of this provider.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from providers.errors import Rejected
from providers.facts import Endpoint, MemberFact

SLOT_HOST = "slot.invalid"
"""Host name of a slot. Names below `.invalid` never resolve (RFC 6761, section 6.4)."""

PLACEHOLDER = Endpoint("127.0.0.1", 1)
"""Where a free slot points to."""

MAX_WEIGHT = 256
"""HAProxy's greatest weight (management guide, `set weight`)."""

DISAGREE = MAX_WEIGHT + 1
"""The weight of a member on which sockets, or two slots, disagree while at least one of them sends it traffic.

No weight that can be wanted equals it, so the next step writes the wanted one everywhere; and it is not 0, so nothing
behind that endpoint is taken for drained. The lowest weight would hide an endpoint that still gets traffic from one of them,
the highest one would hide a balancer that gives it none.
"""

OUT_MAINTENANCE = 0x23
"""Administrative bits of a server that is out for maintenance: forced, inherited, by name resolution. Bit 0x04 only says
that the configuration has `disabled`; it stays when the server is made ready."""

OUT_DRAIN = 0x18
"""Administrative bits of a server that takes no new clients: forced, inherited."""

OUT = OUT_MAINTENANCE | OUT_DRAIN

AGENT_ENABLED = 0x04
"""Bit of the agent's state: it runs, and may write weights and states."""

MOST_DIGITS = 10
"""Numbers of slots have fewer digits than this."""

STATE_VERSION = "1"
"""Version of the state file format; the only one there is (HAProxy 1.6 to 3.x)."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class Info(NamedTuple):
    """The process that answers on a socket. `stopping`: it was replaced and only finishes what it has."""

    pid: int
    stopping: bool


class Server(NamedTuple):
    """One server of a backend. `endpoint` is None without an IP address (a Unix socket, a name not yet resolved).

    `weight` is the one that was set, not the effective one (which a slow start or a check changes). `admin` and `agent` are
    HAProxy's bit sets; `host` is the configured host name, "-" for none.
    """

    backend: str
    name: str
    endpoint: Endpoint | None
    port: int
    weight: int
    admin: int
    agent: int
    host: str

    @property
    def out(self) -> bool:
        """Whether it gets no new clients, whatever its weight."""
        return bool(self.admin & OUT)

    @property
    def share(self) -> int:
        """The weight that counts: 0 while it is out."""
        return 0 if self.out else self.weight

    @property
    def free(self) -> bool:
        """Whether a slot may be taken: in maintenance, and pointing nowhere or without weight."""
        return bool(self.admin & OUT_MAINTENANCE) and (self.weight == 0 or self.endpoint == PLACEHOLDER)


class Slots(NamedTuple):
    """Which slots make a pool: those named `<prefix><n>` of one backend, as far as they are for this instance."""

    backend: str
    prefix: str
    instance: str

    @property
    def pool(self) -> str:
        """The pool's name: the backend's, followed by `:<prefix>` unless that is the same."""
        return self.backend if self.prefix == self.backend else f"{self.backend}:{self.prefix}"

    def number(self, name: str) -> int | None:
        """The number of the slot with this name; None when it is no slot of these."""
        digits = name[len(self.prefix) :]
        if not name.startswith(self.prefix) or not digits.isdecimal() or not digits.isascii():
            return None
        return int(digits) if digits[0] != "0" and len(digits) < MOST_DIGITS else None

    def claims(self, server: Server) -> bool:
        """Whether the host name of a server says that this instance may fill it."""
        return server.host in (SLOT_HOST, f"{self.instance}.{SLOT_HOST}")

    def template(self, count: int = 20) -> str:
        """The configuration line that makes these slots."""
        host = f"{self.instance}.{SLOT_HOST}"
        return f"server-template {self.prefix} 1-{count} {host}:1 init-addr last,127.0.0.1 weight 0 disabled"


@dataclass(frozen=True, slots=True)
class Table:
    """One pool as one process has it.

    `ours` are all its slots by number, `taken` those in use by endpoint (normally one each), `foreign` the other servers of
    the backend (free slots of others left out), `bare` the names that look like slots but were not made for it, `reserved`
    the host names of slots with such names that only another instance may fill. `exists` is False without the backend.
    """

    slots: Slots
    exists: bool
    ours: tuple[Server, ...]
    taken: Mapping[Endpoint, tuple[Server, ...]]
    foreign: tuple[Server, ...]
    bare: tuple[str, ...]
    reserved: tuple[str, ...]

    def weight(self, endpoint: Endpoint) -> int | None:
        """The weight of a member here; None when it is in no slot."""
        found = self.taken.get(endpoint)
        if found is None:
            return None
        if len(found) > 1:
            return agreed([server.share for server in found])
        server = found[0]
        return 0 if server.admin & OUT else server.weight


def parse_pool(pool: str, instance: str) -> Slots:
    """`BACKEND` or `BACKEND:PREFIX`; the prefix is the backend's name by default.

    Raises:
        Rejected: it is neither. A prefix that is given may not end in a digit: slot 11 of `web` would be slot 1 of `web1`.
    """
    backend, colon, prefix = pool.partition(":")
    target = f"pool {pool!r}"
    rule = "write BACKEND or BACKEND:SLOTS, with letters, digits, '_', '-' and '.'"
    if not _NAME.fullmatch(backend) or (colon and not _NAME.fullmatch(prefix)):
        raise Rejected(target, "is not the name of a pool of HAProxy", rule)
    if colon and prefix[-1].isdigit():
        raise Rejected(target, f"the slots' prefix {prefix!r} ends in a digit", "use a prefix that ends in a letter")
    return Slots(backend, prefix or backend, instance)


def parse_info(text: str) -> Info:
    """Read `show info`. Raises ValueError when it is not that."""
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        return Info(int(fields["Pid"]), fields["Stopping"] != "0")
    except KeyError as error:
        raise ValueError(f"'show info' tells no {error.args[0]}") from None


def parse_servers(text: str) -> tuple[Server, ...]:
    """Read `show servers state`. Columns are found by their names in its head.

    Raises:
        ValueError: it is not that, or of another version; nothing is known then.
    """
    head, rows = _split_state(text)
    try:
        at = [head.index(name) for name in _COLUMNS]
    except ValueError as error:
        raise ValueError(f"'show servers state' lacks a column: {error}") from None
    width = len(head)
    backend, name, address, port, weight, admin, agent, host = at
    servers = []
    for row in rows:
        cell = row.split(" ")
        if len(cell) < width:
            raise ValueError(f"'show servers state' has a row of {len(cell)} cells below {width} columns")
        number = int(cell[port])
        values = (
            cell[backend],
            cell[name],
            _endpoint(cell[address], number),
            number,
            int(cell[weight]),
            int(cell[admin]),
            int(cell[agent]),
            cell[host],
        )
        servers.append(tuple.__new__(Server, values))  # what Server(*values) does, in half the time
    return tuple(servers)


def state_file(text: str) -> bytes:
    """The state file of an answer to `show servers state`: its head and the slots, whoever they are for.

    Other servers are left out: their addresses and weights are the configuration's, and a state file would pin old ones.
    """
    head, rows = _split_state(text)
    host = head.index("srv_fqdn")
    kept = [row for row in rows if row.split(" ")[host].endswith(SLOT_HOST)]
    return "\n".join([STATE_VERSION, "# " + " ".join(head), *kept, ""]).encode()


def table(slots: Slots, servers: Iterable[Server]) -> Table:
    """The pool among the servers of a process (of its backend, or of all)."""
    numbered: list[tuple[int, Server]] = []
    foreign, bare, reserved = [], [], set()
    exists = False
    for server in servers:
        if server.backend != slots.backend:
            continue
        exists = True
        number = slots.number(server.name)
        if number is not None and slots.claims(server):
            numbered.append((number, server))
            continue
        slot = server.host == SLOT_HOST or server.host.endswith("." + SLOT_HOST)
        if not (slot and server.free):
            foreign.append(server)
        if number is not None and slot:
            reserved.add(server.host)
        if number is not None and not slot:
            bare.append(server.name)
    ours = tuple(server for _, server in sorted(numbered))
    taken: dict[Endpoint, tuple[Server, ...]] = {}
    for server in ours:
        if server.endpoint is not None and not server.free:
            taken[server.endpoint] = (*taken[server.endpoint], server) if server.endpoint in taken else (server,)
    return Table(slots, exists, ours, taken, tuple(foreign), tuple(bare), tuple(sorted(reserved)))


def agreed(weights: Sequence[int | None]) -> int | None:
    """What all of them say; None = not a member. See `DISAGREE`: nobody sending traffic is agreement on 0."""
    first = weights[0]
    if len(weights) == 1 or all(weight == first for weight in weights[1:]):
        return first
    found = set(weights)
    return 0 if found == {0, None} else DISAGREE


def members(tables: Sequence[Table]) -> tuple[MemberFact, ...]:
    """The members of a pool over all processes, in the order of their endpoints.

    A slot of ours hides another server with the same address. Free slots of others are no members. A server of somebody else
    without an IP address has its name in the address's place.
    """
    facts: dict[Endpoint, MemberFact] = {}
    for one in tables:
        for server in one.foreign:
            place = server.endpoint or Endpoint(server.name, server.port)
            facts[place] = MemberFact(place, server.share, False, server.name)
    for endpoint in {endpoint for one in tables for endpoint in one.taken}:
        weight = agreed([one.weight(endpoint) for one in tables])
        facts[endpoint] = MemberFact(endpoint, weight or 0, True)
    return tuple(facts[endpoint] for endpoint in sorted(facts))


def marked(servers: Iterable[Server], instance: str) -> set[Slots]:
    """All sets of slots with one in use that only this instance may fill: how a pool that nobody names is found."""
    host = f"{instance}.{SLOT_HOST}"
    names: dict[str, list[str]] = {}
    found: set[Slots] = set()
    for server in servers:
        if server.host == host:
            names.setdefault(server.backend, []).append(server.name)
            if not server.free:
                found.add(Slots(server.backend, server.name.rstrip("0123456789"), instance))
    return {_with_default_prefix(slots, names[slots.backend]) for slots in found}


def _with_default_prefix(slots: Slots, names: Sequence[str]) -> Slots:
    """The same slots; where the backend's name ends in digits, these belong to the default prefix."""
    default = Slots(slots.backend, slots.backend, slots.instance)
    if not slots.backend[len(slots.prefix) :].isdecimal() or not slots.backend.startswith(slots.prefix):
        return slots
    same = all(default.number(name) is not None for name in names if slots.number(name) is not None)
    return default if same else slots


_COLUMNS = (
    "be_name",
    "srv_name",
    "srv_addr",
    "srv_port",
    "srv_uweight",
    "srv_admin_state",
    "srv_agent_state",
    "srv_fqdn",
)


def _split_state(text: str) -> tuple[list[str], list[str]]:
    version, _, rest = text.partition("\n")
    head, _, body = rest.partition("\n")
    if version.strip() != STATE_VERSION or not head.startswith("# "):
        raise ValueError(f"'show servers state' begins with {version[:40]!r}, not with {STATE_VERSION!r} and a head")
    return head[2:].split(), [row for row in body.split("\n") if row]


@lru_cache(maxsize=65_536)
def _endpoint(address: str, port: int) -> Endpoint | None:
    """HAProxy writes IPv4 addresses in one way only; of IPv6 ones Python's spelling is used everywhere."""
    if ":" not in address:
        return Endpoint(address, port) if address[:1].isdigit() else None
    try:
        return Endpoint(str(ip_address(address)), port)
    except ValueError:
        return None
