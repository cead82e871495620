"""HAProxy's tables as values: its servers, the algorithms of its backends, the sessions of its servers. Pure.

`show servers state` is read piece by piece while HAProxy still writes it. `show stat` is CSV with a hundred columns, so it is
asked for only where something depends on it.

HAProxy takes about as long to write the rows of a thousand servers as we take to parse them, and each batch of weights reads
them twice: so both go on at the same time. Fed by `socket.py`, read by the other modules of this provider.
"""

import csv
from collections.abc import Iterator, Sequence
from functools import lru_cache
from ipaddress import ip_address
from itertools import repeat

from providers.endpoints.haproxy.state import SLOT_HOST, Server
from providers.facts import Endpoint

STATE_VERSION = "1"
"""Version of the state file format: the only one so far (HAProxy 1.6 to 3.x)."""

NO_BACKEND = "Can't find backend."

_COLUMNS = (
    "be_name",
    "srv_name",
    "srv_addr",
    "srv_port",
    "srv_uweight",
    "srv_admin_state",
    "srv_agent_state",
    "srv_iweight",
    "srv_check_state",
    "srv_fqdn",
    "srv_id",
    "srv_op_state",
    "srv_check_status",
    "srv_check_health",
)


class Rows:
    """One answer to `show servers state`. Its head names the columns."""

    def __init__(self) -> None:
        self._begin = ""
        self._at: list[int] = []
        self._width = 0
        self._servers: list[Server] = []
        self._error: ValueError | None = None

    def feed(self, text: str) -> None:
        """Parse the next lines, which must be whole. Raises nothing; `servers` does."""
        if self._error is not None:
            return
        try:
            if self._at:
                self._servers += self._read(text)
                return
            self._begin += text
            if self._begin.count("\n") > 1 and self._begin.strip() != NO_BACKEND:
                self._servers += self._read(self._take_head())
        except ValueError as error:
            self._error = error

    def servers(self) -> tuple[Server, ...] | None:
        """All servers, once the answer is whole; None when there is no such backend.

        Raises:
            ValueError: it is another kind of answer, or of another version. No server is known then.
        """
        if self._error is not None:
            raise self._error
        if not self._at:
            if self._begin.strip() == NO_BACKEND:
                return None
            self._take_head()
        return tuple(self._servers)

    def _take_head(self) -> str:
        head, body = _split_state(self._begin)
        try:
            self._at = [head.index(name) for name in _COLUMNS]
        except ValueError as error:
            raise ValueError(f"'show servers state' lacks a column: {error}") from None
        self._width = len(head)
        return body

    def _read(self, text: str) -> Sequence[Server]:
        """Parse rows by columns, which is faster than a loop over rows and cells."""
        rows = [row for row in text.split("\n") if row]
        width = self._width + 1
        cells = " \n ".join([*rows, ""]).split(" ")
        ends = cells[width - 1 :: width]
        if len(ends) != len(rows) or ends.count("\n") != len(rows):
            raise ValueError(f"'show servers state' has a row that is not of {self._width} cells")
        columns = (cells[index::width][: len(rows)] for index in self._at)
        backend, name, address, port, *numbers, host, number, operation, last, health = columns
        ports = _numbers(port)
        places = map(_endpoint, address, ports)
        weight, admin, agent, initial, check = (_numbers(column) for column in numbers)
        fields = zip(
            backend,
            name,
            places,
            ports,
            weight,
            admin,
            agent,
            host,
            initial,
            check,
            number,
            operation,
            last,
            _numbers(health),
            strict=True,
        )
        return list(map(tuple.__new__, repeat(Server), fields))  # as `Server._make`, in half the time


def parse_servers(text: str) -> tuple[Server, ...]:
    """Parse a whole `show servers state`.

    Raises:
        ValueError: it is another kind of answer, or of another version.
    """
    rows = Rows()
    rows.feed(text)
    servers = rows.servers()
    if servers is None:
        raise ValueError(NO_BACKEND)
    return servers


def state_file(text: str) -> bytes:
    """The state file for an answer to `show servers state`: its head and the slots of all instances.

    Other servers are left out: their addresses and weights are those of the configuration, and a state file would keep old ones.
    """
    head, body = _split_state(text)
    host = head.index("srv_fqdn")
    kept = [row for row in body.split("\n") if row and row.split(" ")[host].endswith(SLOT_HOST)]
    return "\n".join([STATE_VERSION, "# " + " ".join(head), *kept, ""]).encode()


def _split_state(text: str) -> tuple[list[str], str]:
    version, _, rest = text.partition("\n")
    head, _, body = rest.partition("\n")
    if version.strip() != STATE_VERSION or not head.startswith("# "):
        raise ValueError(f"'show servers state' begins with {version[:40]!r}, not with {STATE_VERSION!r} and a head")
    return head[2:].split(), body


def _numbers(column: Sequence[str]) -> list[int]:
    """The integers of a column in which most cells are equal."""
    known = {text: int(text) for text in set(column)}
    if len(known) == 1:
        return [*known.values()] * len(column)
    return [known[text] for text in column]


@lru_cache(maxsize=65_536)
def _endpoint(address: str, port: int) -> Endpoint | None:
    """HAProxy writes an IPv4 address in one way only. IPv6 addresses are converted to Python's spelling."""
    if ":" not in address:
        return Endpoint(address, port) if address[:1].isdigit() else None
    try:
        return Endpoint(str(ip_address(address)), port)
    except ValueError:
        return None


def algorithms(text: str) -> dict[str, str]:
    """The balancing algorithm of each backend; empty where HAProxy does not show it.

    Raises:
        ValueError: not a table of `show stat`.
    """
    return {row[0]: row[1] for row in _cells(text, ("pxname", "algo"))}


def sessions(text: str) -> dict[str, int]:
    """The sessions of each server of a backend, with those that wait in its queue.

    Raises:
        ValueError: not a table of `show stat`.
    """
    return {
        name: int(queued or 0) + int(current or 0) for name, queued, current in _cells(text, ("svname", "qcur", "scur"))
    }


def _cells(text: str, columns: Sequence[str]) -> Iterator[list[str]]:
    rows = csv.reader(text.strip().splitlines())
    head = [name.removeprefix("# ") for name in next(rows, [])]
    try:
        at = [head.index(name) for name in columns]
    except ValueError as error:
        raise ValueError(f"'show stat' lacks a column: {error}") from None
    for row in rows:
        if len(row) <= max(at):
            raise ValueError(f"'show stat' has a row of {len(row)} cells")
        yield [row[index] for index in at]
