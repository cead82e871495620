"""Commands for HAProxy's socket, and what their answers mean. Pure; commands are made only here.

A line break or a semicolon begins a new command, so a command contains only checked names, parsed addresses and numbers. Used by
`moves.py` and `write.py`.
"""

import re
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from providers.endpoints.haproxy.state import MAX_WEIGHT
from providers.endpoints.haproxy.tables import NO_BACKEND
from providers.errors import Conflict, ProviderError, Rejected
from providers.facts import Endpoint

INTERACTIVE = "prompt"
SHOW_INFO = "show info"
SHOW_ALL_SERVERS = "show servers state"
SHOW_BACKENDS = "show backend"
SHOW_LEVEL = "show cli level"
SHOW_CONFIGURATION_FILES = "show env HAPROXY_CFGFILES"

SHOW_ALGORITHMS = "show stat -1 2 -1"
"""The rows of all backends themselves."""

BATCH_COMMANDS = 100
BATCH_BYTES = 8000
"""Limits of one line. HAProxy's buffer (tune.bufsize) is 16 kB by default; more than 100 commands a line gain nothing."""

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
_STATES = frozenset({"ready", "drain", "maint"})
_ADDRESS_ANSWER = re.compile(
    r"(IP changed from '[^'\n]*' to '[^'\n]*'|no need to change the addr)"
    r"(, (port changed from '[^'\n]*' to '[^'\n]*'|no need to change the port))?"
    r"( by '[^'\n]*')?"
)


class Command(NamedTuple):
    """A command that writes, and its expected answer: empty, or with `moves` the text for a changed address."""

    text: str
    moves: bool = False


def weight(backend: str, server: str, value: int) -> Command:
    """Set the absolute weight. A percentage would be of the configured weight, which is 0."""
    if not 0 <= value <= MAX_WEIGHT:
        raise ValueError(f"weight {value} is not from 0 to {MAX_WEIGHT}")
    return Command(f"set server {_path(backend, server)} weight {value:d}")


def state(backend: str, server: str, value: str) -> Command:
    """Set the administrative state: ready, drain or maint."""
    if value not in _STATES:
        raise ValueError(f"{value!r} is not a server state")
    return Command(f"set server {_path(backend, server)} state {value}")


def address(backend: str, server: str, endpoint: Endpoint) -> Command:
    """Point a server to an address and port."""
    place = ip_address(endpoint.address)
    if not 1 <= endpoint.port <= 65535 or "%" in str(place):
        raise ValueError(f"{endpoint} is not an address and port")
    return Command(f"set server {_path(backend, server)} addr {place} port {endpoint.port:d}", moves=True)


def end_sessions(backend: str, server: str) -> Command:
    """End all sessions of a server, also those with requests in flight."""
    return Command(f"shutdown sessions server {_path(backend, server)}")


def show_algorithm(backend: str) -> str:
    """Read the row of one backend itself."""
    return f"show stat {_checked(backend)} 2 -1"


def show_sessions(backend: str, server_id: str = "-1") -> str:
    """Read the statistics of a backend's servers, or of the server with this number."""
    return f"show stat {_checked(backend)} 4 {int(server_id):d}"


def show_servers(backend: str) -> str:
    """Read the servers of one backend."""
    return f"{SHOW_ALL_SERVERS} {_checked(backend)}"


def checked_endpoint(target: str, endpoint: Endpoint) -> Endpoint:
    """The endpoint, if a slot can hold it.

    Raises:
        Rejected: not an IP address in its usual spelling (HAProxy takes no names here), or not a port.
    """
    try:
        place = ip_address(endpoint.address)
    except ValueError:
        cause = f"{endpoint.address[:80]!r} is not an IP address"
        raise Rejected(target, cause, "use an address: HAProxy resolves no names here") from None
    if str(place) != endpoint.address or "%" in endpoint.address:
        raise Rejected(target, f"{endpoint.address!r} is not the usual spelling", f"write {str(place).split('%')[0]}")
    if not 1 <= endpoint.port <= 65535:
        raise Rejected(target, f"{endpoint.port} is not a port", "use a port from 1 to 65535")
    return endpoint


def lines(commands: Iterable[str], alone: Container[str] = (INTERACTIVE,)) -> Iterator[list[str]]:
    """The commands in groups for one line each, in order; each command of `alone` has its own line."""
    group: list[str] = []
    size = 0
    for command in commands:
        full = len(group) == BATCH_COMMANDS or size + len(command) + 1 > BATCH_BYTES
        if group and (full or command in alone or group[0] in alone):
            yield group
            group, size = [], 0
        group.append(command)
        size += len(command) + 1
    if group:
        yield group


def refusal(command: Command, answer: str, target: str) -> ProviderError | None:
    """The error for an answer; None for the expected answer. Any other text is an error."""
    text = answer.strip()
    if not text and not command.moves:
        return None
    if command.moves and _ADDRESS_ANSWER.fullmatch(text):
        return None
    cause = f"HAProxy answered {text[:200]!r} to {command.text!r}"
    if text.startswith("Permission denied"):
        return Rejected(target, cause, "give the socket the admin level: stats socket <path> level admin")
    if text.startswith(("No such server", "No such backend", NO_BACKEND)):
        return Conflict(target, f"{cause}: its configuration has changed", "retried automatically")
    if "static LB algorithm" in text:
        return Rejected(
            target,
            cause,
            "use balance roundrobin, leastconn or random in that backend, or weight 100 instead of 0 in its server-template line",
        )
    return Rejected(target, cause, "check HAProxy's configuration of that backend and its log")


@lru_cache(maxsize=8192)
def _path(backend: str, server: str) -> str:
    return f"{_checked(backend)}/{_checked(server)}"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is not a name of a backend or server")
    return name
