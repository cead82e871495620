"""Sockets that lie, hang, garble or close: only a whole answer counts as one."""

import contextlib
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from providers.actions import SetWeight
from providers.endpoints.haproxy.provider import HAProxyEndpoints
from providers.endpoints.haproxy.settings import HAProxySettings
from providers.endpoints.haproxy.tables import Rows, parse_servers
from providers.errors import OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.facts import Endpoint
from providers.spi import Context
from providers.testing.checks import perform_one

INFO = b"Name: HAProxy\nPid: 7\nStopping: 0\nUptime_sec: 99\nStart_time_sec: 1000\n"
STATE = (
    b"1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_check_state"
    b" srv_agent_state srv_fqdn srv_port srv_check_status srv_check_health\n"
    b"3 web 1 web1 192.0.2.1 2 0 10 0 0 0 slot.invalid 8080 0 0\n"
)
STATS = b"# pxname,svname,algo\nweb,BACKEND,roundrobin\n"
PROMPT = b"\n> "
ACTION = SetWeight("edge", "web", Endpoint("192.0.2.1", 8080), "web-0", 20, 10)

Answer = Callable[[bytes], bytes]


class Fake:
    """A socket that answers each line with what `answer` makes of it, and hangs up where that ends with b"EOF"."""

    def __init__(self, path: str, answer: Answer) -> None:
        self.path = path
        self.lines: list[bytes] = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._open: list[socket.socket] = []
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as lines:
            for line in lines:
                self.lines.append(line)
                answer = self._answer(line)
                connection.sendall(answer.removesuffix(b"EOF"))
                if answer.endswith(b"EOF"):
                    connection.shutdown(socket.SHUT_RDWR)
                    return

    def close(self) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(5)


def honest(line: bytes) -> bytes:
    if line == b"prompt\n":
        return PROMPT
    answers = []
    for command in line.rstrip(b"\n").split(b";"):
        known = {b"show info": INFO, b"show servers state": STATE, b"show servers state web": STATE}
        stats = STATS if command.startswith(b"show stat ") else b"\n"
        answers.append(known.get(command, stats) + PROMPT)
    return b"".join(answers)


@pytest.fixture
def fake() -> Iterator[Callable[..., tuple[Fake, HAProxyEndpoints]]]:
    started: list[Fake] = []
    with tempfile.TemporaryDirectory(prefix="hap-") as directory:

        def make(answer: Answer, timeout: str = "5s") -> tuple[Fake, HAProxyEndpoints]:
            server = Fake(str(Path(directory, f"{len(started)}.sock")), answer)
            started.append(server)
            settings = HAProxySettings.model_validate({"sockets": [server.path], "timeout": timeout})
            return server, HAProxyEndpoints("edge", settings, Context("suite", directory))

        yield make
        for server in started:
            server.close()


Make = Callable[..., tuple[Fake, HAProxyEndpoints]]


def cut(after: bytes, length: int) -> Answer:
    """Honest, but hangs up `length` bytes into the answer to the first line that holds `after`."""

    def answer(line: bytes) -> bytes:
        whole = honest(line)
        return whole[:length] + b"EOF" if after in line else whole

    return answer


@pytest.mark.parametrize(
    ("line", "length"),
    [
        *((b"show info", length) for length in (0, 1, len(INFO), len(INFO) + 2)),
        *((b"show servers", length) for length in (0, 1, 60, len(STATE) - 20, len(STATE), len(STATE) + 2)),
    ],
)
def test_a_look_whose_answer_breaks_off_anywhere_is_unreachable(fake: Make, line: bytes, length: int) -> None:
    _, endpoints = fake(cut(line, length))
    with pytest.raises(Unreachable, match="the answer was lost"):
        endpoints.observe(["web"])


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_a_write_whose_answer_breaks_off_is_an_unknown_outcome(fake: Make, length: int) -> None:
    server, endpoints = fake(cut(b"set server", length))
    with pytest.raises(OutcomeUnknown, match="the answer was lost"):
        perform_one(endpoints, ACTION)
    assert any(line.startswith(b"set server web/web1 weight 20") for line in server.lines)


def test_a_write_that_was_never_sent_changed_nothing(fake: Make) -> None:
    server, endpoints = fake(cut(b"show info", 5))
    with pytest.raises(Unreachable):
        perform_one(endpoints, ACTION)
    assert not any(b"set server" in line for line in server.lines)


def test_a_write_that_reads_back_as_before_is_an_unknown_outcome(fake: Make) -> None:
    _, endpoints = fake(honest)
    with pytest.raises(OutcomeUnknown, match=r"slot web1 reads back as 192\.0\.2\.1:8080, weight 10"):
        perform_one(endpoints, ACTION)


@pytest.mark.parametrize(
    ("row", "reported"),
    [
        (b"web2 192.0.2.2 2 0 10 0 ", {1: 20, 2: 10}),
        (b"web2 192.0.2.2 2 0 11 0 ", {1: 20, 2: 11}),
        (b"web2 192.0.2.3 2 0 10 0 ", {1: 20, 3: 10}),
        (b"web2 192.0.2.2 2 1 10 0 ", None),
    ],
)
def test_pools_after_a_write_are_as_read_back_with_changes_of_others(
    fake: Make, row: bytes, reported: dict[int, int] | None
) -> None:
    second = STATE + STATE.splitlines()[2].replace(b"web1 192.0.2.1", b"web2 192.0.2.2") + b"\n"
    state = [second, second.replace(b"web1 192.0.2.1 2 0 10", b"web1 192.0.2.1 2 0 20")]

    def answer(line: bytes) -> bytes:
        return state.pop(0) + PROMPT if b"show servers" in line else PROMPT if b"set server" in line else honest(line)

    state[1] = state[1].replace(b"web2 192.0.2.2 2 0 10 0 ", row)
    _, endpoints = fake(answer)
    performed = endpoints.perform([ACTION])
    assert performed.errors == (None,)
    found = [{int(member.endpoint.address[-1]): member.weight for member in fact.members} for fact in performed.pools]
    # A member without weight may have sessions, which a write does not count: another look shows them.
    assert found == ([] if reported is None else [reported])


def test_a_table_of_servers_is_the_same_however_it_comes_in() -> None:
    text = STATE.decode() + "".join(
        f"3 web {n} web{n} 192.0.2.{n} 2 {n % 3} {n} 0 6 0 slot.invalid 80 3 4\n" for n in range(2, 9)
    )
    rows = text.splitlines(keepends=True)
    for first in range(len(rows) + 1):
        for last in range(first, len(rows) + 1):
            reader = Rows()
            for piece in (rows[:first], rows[first:last], rows[last:]):
                reader.feed("".join(piece))
            assert reader.servers() == parse_servers(text)


@pytest.mark.parametrize("broken", ["2 0 ten 0 0 0 slot.invalid 80", "2 0 10 0 0 0 slot.invalid", "x"])
def test_a_table_of_servers_with_a_broken_row_is_refused_as_a_whole(broken: str) -> None:
    reader = Rows()
    for piece in (STATE.decode(), f"3 web 2 web2 192.0.2.2 {broken}\n", STATE.decode().splitlines()[2]):
        reader.feed(piece)
    with pytest.raises(ValueError, match=r"show servers state|invalid literal"):
        reader.servers()


def test_any_other_answer_than_the_expected_one_is_an_error(fake: Make) -> None:
    def answer(line: bytes) -> bytes:
        return b"Surprise!\n" + PROMPT if b"set server" in line else honest(line)

    _, endpoints = fake(answer)
    with pytest.raises(Rejected, match=r"answered 'Surprise!' to 'set server web/web1 weight 20'"):
        perform_one(endpoints, ACTION)


@pytest.mark.parametrize(
    "answer",
    [
        lambda line: PROMPT * (line.count(b";") + 1),
        lambda line: b"SSH-2.0-OpenSSH\r\n" + PROMPT * (line.count(b";") + 1),
        lambda line: honest(line).replace(b"1\n# be_id", b"2\n# be_id"),
        lambda line: honest(line).replace(b"srv_fqdn", b"srv_name2"),
        lambda line: honest(line).replace(b" 8080 0 0\n", b" 8080 0\n"),
        lambda line: honest(line).replace(b" 10 0 0 ", b" ten 0 0 "),
        lambda line: honest(line).replace(b"Stopping", b"Stepping"),
        lambda line: honest(line).replace(b"Pid: 7", b"Pid: seven"),
        lambda line: honest(line) + PROMPT,
        lambda line: honest(line).replace(b"web1", b"web\xff"),
    ],
)
def test_what_is_not_exactly_an_answer_of_haproxy_is_never_an_empty_pool(fake: Make, answer: Answer) -> None:
    _, endpoints = fake(answer)
    for act in (lambda: endpoints.observe(["web"]), lambda: perform_one(endpoints, ACTION)):
        with pytest.raises(Unreachable):
            act()


def test_a_socket_that_never_answers_is_left_after_the_timeout(fake: Make) -> None:
    _, endpoints = fake(lambda line: b"", timeout="100ms")
    with pytest.raises(Unreachable, match="no answer within the provider's timeout"):
        endpoints.observe(["web"])


def test_a_process_that_is_stopping_is_left_for_its_successor(fake: Make) -> None:
    asked = []

    def answer(line: bytes) -> bytes:
        asked.append(line)
        first = sum(b"show info" in one for one in asked) == 1
        return honest(line).replace(b"Stopping: 0", b"Stopping: 1") if first else honest(line)

    _, endpoints = fake(answer)
    (fact,) = endpoints.observe(["web"])
    assert [member.weight for member in fact.members] == [10]


def test_a_process_that_is_stopping_and_has_no_successor_is_unreachable(fake: Make) -> None:
    server, endpoints = fake(lambda line: honest(line).replace(b"Stopping: 0", b"Stopping: 1"), timeout="500ms")
    for act in (lambda: endpoints.observe(["web"]), lambda: perform_one(endpoints, ACTION)):
        with pytest.raises(Unreachable, match="is stopping and no other process has taken over"):
            act()
    assert not any(b"set server" in line for line in server.lines)


def test_a_second_writer_waits_for_the_first_one_and_not_for_ever(fake: Make) -> None:
    entered, leave = threading.Event(), threading.Event()

    def answer(line: bytes) -> bytes:
        if b"set server" in line:
            entered.set()
            leave.wait(5)
        return honest(line)

    _, endpoints = fake(answer, timeout="500ms")
    first: list[ProviderError | None] = []
    writer = threading.Thread(target=lambda: first.extend(endpoints.perform([ACTION]).errors))
    writer.start()
    assert entered.wait(5)
    with pytest.raises((Unreachable, OutcomeUnknown)):
        perform_one(endpoints, ACTION)
    leave.set()
    writer.join(5)
    assert isinstance(first[0], OutcomeUnknown)
