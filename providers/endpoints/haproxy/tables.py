"""HAProxy's tables as values: its servers, the algorithms of its backends, the sessions of its servers. Pure.

`show servers state` is read piece by piece while HAProxy still writes it. `show stat` is CSV with a hundred columns, so it is
asked for only where something depends on it.

HAProxy needs about as long to write the rows of a thousand servers as we need to read them, and each weight is on its way twice
through here: so both are done at the same time. Fed by `haproxy_socket.py`, and read by the other modules of this provider.
"""

import csv
from collections.abc import Iterator, Sequence
from functools import lru_cache
from ipaddress import ip_address
from itertools import repeat

from providers.endpoints.haproxy.state import SLOT_HOST, Server
from providers.facts import Endpoint

STATE_VERSION = "1"
"""Version of the state file format; the only one there is (HAProxy 1.6 to 3.x)."""

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
    """One answer to `show servers state`. Columns are found by their names in its head."""

    def __init__(self) -> None:
        self._begin = ""
        self._at: list[int] = []
        self._width = 0
        self._servers: list[Server] = []
        self._error: ValueError | None = None

    def feed(self, text: str) -> None:
        """Take the next lines; only whole ones. Raises nothing: `servers` does."""
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
            ValueError: it is not such an answer, or of another version; nothing is known then.
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
        """By columns: a loop over rows and cells takes longer."""
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
        found = zip(
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
        return list(map(tuple.__new__, repeat(Server), found))  # what `Server._make` does, in half the time


def parse_servers(text: str) -> tuple[Server, ...]:
    """Read a whole `show servers state`.

    Raises:
        ValueError: it is not that, or of another version; nothing is known then.
    """
    rows = Rows()
    rows.feed(text)
    found = rows.servers()
    if found is None:
        raise ValueError(NO_BACKEND)
    return found


def state_file(text: str) -> bytes:
    """The state file of an answer to `show servers state`: its head and the slots, whoever they are for.

    Other servers are left out: their addresses and weights are the configuration's, and a state file would pin old ones.
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
    """Integers of a column in which most cells are alike."""
    known = {text: int(text) for text in set(column)}
    if len(known) == 1:
        return [*known.values()] * len(column)
    return [known[text] for text in column]


@lru_cache(maxsize=65_536)
def _endpoint(address: str, port: int) -> Endpoint | None:
    """HAProxy writes IPv4 addresses in one way only; of IPv6 ones Python's spelling is used everywhere."""
    if ":" not in address:
        return Endpoint(address, port) if address[:1].isdigit() else None
    try:
        return Endpoint(str(ip_address(address)), port)
    except ValueError:
        return None


def algorithms(text: str) -> dict[str, str]:
    """The balancing algorithm of each backend; empty texts where HAProxy does not tell it.

    Raises:
        ValueError: it is not a table of `show stat`.
    """
    return {row[0]: row[1] for row in _cells(text, ("pxname", "algo"))}


def sessions(text: str) -> dict[str, int]:
    """The sessions under way on each server of a backend, those that wait in its queue included.

    Raises:
        ValueError: it is not a table of `show stat`.
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
