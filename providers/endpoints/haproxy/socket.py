"""One session with one HAProxy process over its stats socket. Used by this provider's looks and writes.

A session ends with the call of the provider: after a reload an open connection stays with the old process, so each call opens a
new one and reads which process answers. In interactive mode (`prompt`) HAProxy ends each answer with a prompt, also each of
several commands on one line. So each answer belongs to a known command, and a partial answer is never taken for a whole one.
"""

import errno
import socket
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from types import TracebackType
from typing import Self

from providers.endpoints.haproxy.commands import INTERACTIVE, SHOW_INFO, lines
from providers.endpoints.haproxy.state import Info, parse_info
from providers.endpoints.haproxy.tables import Rows
from providers.errors import OutcomeUnknown, Unreachable

PROMPT = b"\n> "
MAX_BYTES = 64 * 1024 * 1024
"""Longest answer: 100,000 servers need about 12 MB."""

ARM_SECONDS = 0.05
"""Seconds that a wait may end after the deadline, at most."""

LINES_AHEAD = 6
"""Lines that are sent before their answers are read, at most. With their answers they fit into the kernel's buffers many times (a
line has 8 kB, an answer to a write some bytes), so neither side waits for the other to read."""

STOPPING_PAUSE = 0.02
"""Seconds between tries while a stopping process still answers; a reload takes some tens of milliseconds."""


class Session:
    """An open connection, entered with `with`. Not thread-safe.

    Args:
        path: the socket.
        deadline: monotonic second at which all waiting ends.
        tables: commands whose answers are parsed into `rows` as they arrive; `ask` returns empty texts for them.
    """

    def __init__(self, path: str, deadline: float, tables: Collection[str] = ()) -> None:
        self.target = f"HAProxy at {path}"
        self.info = Info(0, False)
        self.rows: dict[str, Rows] = {}
        self._tables = frozenset(tables)
        self._alone = self._tables | {INTERACTIVE}
        self._deadline = deadline
        self._unread = bytearray()
        self._armed = -ARM_SECONDS
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        except OSError as error:
            raise Unreachable(self.target, f"cannot open a socket: {_why(error)}") from error
        try:
            self._wait()
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise Unreachable(self.target, f"cannot connect: {_why(error)}", _hint(error)) from error
        except Unreachable:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def ask(
        self, commands: Iterable[str], *, writes: bool = False, meanwhile: Callable[[], None] | None = None
    ) -> list[str]:
        """Send commands and return the answer of each.

        Several lines are sent before the first answers are read, so that HAProxy does not wait for us. `meanwhile` is called
        once all are sent, so that we do not wait for HAProxy.

        Raises:
            Unreachable: an answer is missing or partial.
            OutcomeUnknown: the same with `writes`: some of the commands may have been carried out.
        """
        answers: list[str] = []
        due: list[list[str]] = []
        try:
            for group in lines(commands, self._alone):
                self._wait()
                self._socket.sendall((";".join(group) + "\n").encode("ascii"))
                due.append(group)
                if len(due) > LINES_AHEAD:
                    answers += self._receive(due.pop(0))
            if meanwhile is not None:
                meanwhile()
            for group in due:
                answers += self._receive(group)
            self._expect_silence()
        except (OSError, EOFError, UnicodeDecodeError) as error:
            kind = OutcomeUnknown if writes else Unreachable
            raise kind(self.target, f"the answer was lost: {_why(error)}", "retried automatically") from error
        except Unreachable as error:
            if writes:
                raise OutcomeUnknown(error.target, error.cause, "retried automatically") from error
            raise
        return answers

    def _receive(self, group: Sequence[str]) -> list[str]:
        """Read until each command of a line has its prompt; the rest stays for the next line."""
        if group[0] in self._tables:
            self._receive_rows(group[0])
            return [""]
        data, expected = self._unread, len(group)
        prompts = data.count(PROMPT)
        while prompts < expected:
            # A prompt may be split between two chunks.
            tail = max(0, len(data) - len(PROMPT) + 1)
            data += self._chunk()
            prompts += data.count(PROMPT, tail)
            if len(data) > MAX_BYTES:
                raise EOFError(f"longer than {MAX_BYTES} bytes")
        *parts, rest = bytes(data).split(PROMPT, expected)
        self._unread = bytearray(rest)
        return [part.decode("utf-8") for part in parts]

    def _receive_rows(self, command: str) -> None:
        """Read until the prompt, and parse whole lines as they arrive."""
        rows = self.rows[command] = Rows()
        data, size = self._unread, 0
        while (end := data.find(PROMPT)) < 0:
            whole = data.rfind(b"\n")  # not with the line break, which may begin the prompt
            if whole > 0:
                rows.feed(data[:whole].decode("utf-8"))
                size += whole
                del data[:whole]
            data += self._chunk()
            if size + len(data) > MAX_BYTES:
                raise EOFError(f"longer than {MAX_BYTES} bytes")
        rows.feed(data[:end].decode("utf-8"))
        del data[: end + len(PROMPT)]

    def _chunk(self) -> bytes:
        self._wait()
        chunk = self._socket.recv(262144)
        if not chunk:
            raise EOFError("HAProxy closed the connection")
        return chunk

    def _expect_silence(self) -> None:
        if self._unread:
            raise EOFError("more output than expected")

    def _wait(self) -> None:
        """Limit the next wait by the deadline. It costs a system call, so it is done every `ARM_SECONDS` at most."""
        now = time.monotonic()
        if now >= self._deadline:
            raise Unreachable(self.target, "no answer within the provider's timeout", "check whether HAProxy hangs")
        if now - self._armed >= ARM_SECONDS:
            self._armed = now
            self._socket.settimeout(self._deadline - now)


def converse(
    path: str, deadline: float, questions: Sequence[str] = (), tables: Collection[str] = ()
) -> tuple[Session, list[str]]:
    """Open a session with the process in charge and send it questions; see `Session` for `tables`.

    Returns:
        The session, whose `info` names the process, and the answers to `questions`. The caller closes it.

    Raises:
        Unreachable: no process answers, or only a stopping one.
    """
    stopping = 0
    while True:
        try:
            session, answers = _opened(path, deadline, questions, tables)
        except Unreachable as error:
            if not stopping or time.monotonic() < deadline:
                raise
            raise _abandoned(error.target, stopping) from error
        if not session.info.stopping:
            return session, answers
        session.close()
        stopping = session.info.pid
        if time.monotonic() + STOPPING_PAUSE >= deadline:
            raise _abandoned(session.target, stopping)
        # The new process binds the socket shortly after the old one begins to stop; the deadline limits the loop.
        time.sleep(STOPPING_PAUSE)


def _opened(path: str, deadline: float, questions: Sequence[str], tables: Collection[str]) -> tuple[Session, list[str]]:
    """A session with the process that answers. Raises `Unreachable`."""
    session = Session(path, deadline, tables)
    try:
        _, first, *answers = session.ask([INTERACTIVE, SHOW_INFO, *questions])
        session.info = parse_info(first)
    except ValueError as error:
        session.close()
        cause = f"not an answer of HAProxy: {error}"
        raise Unreachable(session.target, cause, "set sockets to HAProxy's stats socket") from None
    except BaseException:
        session.close()
        raise
    return session, answers


def _abandoned(target: str, pid: int) -> Unreachable:
    cause = f"process {pid} is stopping and no other process has taken over"
    return Unreachable(target, cause, "check whether HAProxy's reload succeeded")


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer within the provider's timeout"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _hint(error: OSError) -> str:
    if error.errno == errno.EACCES:
        return "give this user access: stats socket <path> mode 660 group <group> level admin"
    if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
        return "start HAProxy, or correct the path in sockets"
    return ""
