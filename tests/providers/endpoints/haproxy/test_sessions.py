"""Traffic in HAProxy: sessions, its own checks, other writers, its process, and ending sessions."""

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from providers.actions import CutSessions, RemoveEndpoint, SetWeight
from providers.endpoints.haproxy.moves import Free
from providers.endpoints.haproxy.pool_facts import pool_fact
from providers.endpoints.haproxy.provider import HAProxyEndpoints
from providers.endpoints.haproxy.settings import HAProxySettings
from providers.endpoints.haproxy.state import Slots, table
from providers.endpoints.haproxy.tables import algorithms, parse_servers, sessions
from providers.errors import Conflict, ProviderError, Rejected
from providers.facts import ON_WEIGHT, Endpoint, MemberFact, Weights
from providers.spi import Context
from providers.testing.checks import perform_one
from tests.providers.endpoints.haproxy.server import BACKENDS, HAProxy, wait_until

pytestmark = pytest.mark.server("haproxy")

Make = Callable[..., HAProxyEndpoints]


class Silent:
    """Takes connections and never answers."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.place = Endpoint("127.0.0.1", self.listener.getsockname()[1])
        self.taken: list[socket.socket] = []
        self.thread = threading.Thread(target=self._accept)
        self.thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.taken.append(connection)

    def stop(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(60)
        for one in (self.listener, *self.taken):
            one.close()


class Fine(BaseHTTPRequestHandler):
    """Answers 200 to everything."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_OPTIONS = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def answering() -> Iterator[Endpoint]:
    """An HTTP server on all addresses of loopback, reported by one of them."""
    with ThreadingHTTPServer(("", 0), Fine) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Endpoint("127.0.0.1", server.server_address[1])
        server.shutdown()
        thread.join(60)


@pytest.fixture
def silent() -> Iterator[Silent]:
    app = Silent()
    yield app
    app.stop()


def request(server: HAProxy, path: str = "/") -> socket.socket:
    """A client that waits for an answer."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(60)
    client.connect(server.front)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: web\r\n\r\n".encode())
    return client


def member(endpoints: HAProxyEndpoints, pool: str = "web") -> MemberFact:
    (fact,) = (one for one in endpoints.observe([pool]) if one.pool == pool)
    (found,) = fact.members
    return found


def put(endpoints: HAProxyEndpoints, place: Endpoint, weight: int, before: int | None, pool: str = "web") -> None:
    perform_one(endpoints, SetWeight("edge", pool, place, "web-0", weight, before))


def test_requests_in_flight_on_a_drained_endpoint_are_counted_and_cut(
    haproxy: HAProxy, provider: Make, silent: Silent
) -> None:
    endpoints = provider(reloadWindow="0s")
    put(endpoints, silent.place, 10, None)
    with request(haproxy) as first, request(haproxy) as second:
        wait_until(lambda: len(silent.taken) == 2, "two requests arrive")
        assert member(endpoints).in_flight is None
        with pytest.raises(Conflict, match="weight 10"):
            perform_one(endpoints, CutSessions("edge", "web", silent.place, "web-0"))
        put(endpoints, silent.place, 0, 10)
        assert member(endpoints).in_flight == 2
        perform_one(endpoints, CutSessions("edge", "web", silent.place, "web-0"))
        assert member(endpoints).in_flight == 0
        assert b" 50" in first.recv(4096)
        assert b" 50" in second.recv(4096)
    perform_one(endpoints, RemoveEndpoint("edge", "web", silent.place, "web-0"))


def test_many_drained_endpoints_are_counted_at_once(haproxy: HAProxy, tmp_path: Path) -> None:
    settings = HAProxySettings.model_validate({"sockets": [haproxy.socket], "reloadWindow": "0s"})
    endpoints = HAProxyEndpoints("edge", settings, Context("suite", str(tmp_path)))
    for number in range(5):
        put(endpoints, Endpoint("192.0.2.1", 80 + number), 0, None)
    (fact,) = endpoints.observe(["web"])
    assert [member.in_flight for member in fact.members] == [0] * 5


def test_after_a_reload_requests_in_flight_are_unknown_in_a_new_epoch(
    short_directory: Path, tmp_path: Path, silent: Silent
) -> None:
    server = HAProxy(short_directory, BACKENDS, name="epoch")
    try:
        settings = {"sockets": [server.socket], "stateFile": server.state, "reloadWindow": "1h"}
        endpoints = HAProxyEndpoints("edge", HAProxySettings.model_validate(settings), Context("suite", str(tmp_path)))
        put(endpoints, silent.place, 0, None)
        (before,) = endpoints.observe(["web"])
        assert before.members[0].in_flight is None
        server.reload()
        (after,) = endpoints.observe(["web"])
        assert after.epoch != before.epoch
        assert after.members == before.members
    finally:
        server.stop()


def test_sticky_clients_are_kept_at_weight_0_or_cut_as_the_settings_say(haproxy: HAProxy, provider: Make) -> None:
    place = Endpoint("192.0.2.1", 80)
    keep, cut = provider(), provider(persistence="cut")
    put(keep, place, 10, None, "be_sticky:stick")
    put(keep, place, 0, 10, "be_sticky:stick")
    assert haproxy.servers("be_sticky")["stick1"][1:] == (0, 0x04)
    put(cut, place, 0, 10, "be_sticky:stick")
    assert haproxy.servers("be_sticky")["stick1"][1:] == (1, 0x05)
    assert member(cut, "be_sticky:stick").weight == member(keep, "be_sticky:stick").weight == 0
    put(cut, place, 20, 0, "be_sticky:stick")
    assert haproxy.servers("be_sticky")["stick1"][1:] == (20, 0x04)
    put(cut, place, 0, 20, "be_sticky:stick")
    perform_one(cut, RemoveEndpoint("edge", "be_sticky:stick", place, "web-0"))
    assert haproxy.servers("be_sticky")["stick1"] == ("127.0.0.1:1", 0, 0x05)


def test_an_endpoint_that_begins_with_weight_0_is_cut_and_keeps_its_slot(haproxy: HAProxy, provider: Make) -> None:
    cut, first, second = provider(persistence="cut"), Endpoint("192.0.2.1", 80), Endpoint("192.0.2.2", 80)
    put(cut, first, 0, None, "be_sticky:stick")
    put(cut, second, 10, None, "be_sticky:stick")
    (fact,) = (one for one in cut.observe(["be_sticky:stick"]) if one.pool == "be_sticky:stick")
    assert [(member.endpoint, member.weight) for member in fact.members] == [(first, 0), (second, 10)]
    assert haproxy.servers("be_sticky")["stick2"][0] == "192.0.2.2:80"


def test_a_static_algorithm_takes_0_and_the_configured_weight(haproxy: HAProxy, provider: Make) -> None:
    endpoints, place, pool = provider(), Endpoint("192.0.2.1", 80), "be_static:st"
    (fact,) = (one for one in endpoints.observe([pool]) if one.pool == pool)
    assert (fact.weights, fact.algorithm) == (Weights.ON_OFF, "backend be_static with balance static-rr")
    with pytest.raises(Rejected, match="allows only 0 and 100"):
        put(endpoints, place, 37, None, pool)
    put(endpoints, place, 0, None, pool)
    put(endpoints, place, ON_WEIGHT, 0, pool)
    assert haproxy.servers("be_static")["st1"][1:] == (100, 0x04)
    put(endpoints, place, 0, ON_WEIGHT, pool)
    assert member(endpoints, pool).weight == 0
    perform_one(endpoints, RemoveEndpoint("edge", pool, place, "web-0"))
    assert member_places(endpoints, pool) == []


def test_a_static_algorithm_without_slot_weights_is_refused_with_the_line(provider: Make) -> None:
    endpoints, place, pool = provider(), Endpoint("192.0.2.1", 80), "be_static_zero:sz"
    with pytest.raises(Rejected, match="weight 100 disabled"):
        put(endpoints, place, ON_WEIGHT, None, pool)
    assert any("weight 100 disabled" in line for line in endpoints.check([pool]))


def member_places(endpoints: HAProxyEndpoints, pool: str) -> list[Endpoint]:
    return [member.endpoint for fact in endpoints.observe([pool]) if fact.pool == pool for member in fact.members]


def test_an_agent_check_is_shown_as_another_writer(provider: Make) -> None:
    endpoints = provider()
    put(endpoints, Endpoint("192.0.2.1", 80), 10, None, "be_agent:ag")
    assert member(endpoints, "be_agent:ag").writer == "HAProxy's agent-check"


def test_the_result_of_haproxys_own_checks_is_shown(haproxy: HAProxy, provider: Make, silent: Silent) -> None:
    endpoints = provider()
    put(endpoints, silent.place, 10, None, "be_checked:chk")
    put(endpoints, silent.place, 10, None, "web")
    wait_until(lambda: haproxy.operational("be_checked", "chk1") == 2, "the check passes")
    wait_until(lambda: member(endpoints, "be_checked:chk").operational == "up", "that is reported")
    assert member(endpoints).operational == ""


def test_a_server_is_checking_until_a_check_passes_also_in_a_used_slot(
    haproxy: HAProxy, provider: Make, silent: Silent, answering: Endpoint
) -> None:
    """HAProxy calls a slot up as soon as it is made ready, and down with the first check that fails."""
    endpoints = provider()

    def words() -> dict[Endpoint, str]:
        (fact,) = (one for one in endpoints.observe(["be_asked:ask"]) if one.pool == "be_asked:ask")
        return {member.endpoint: member.operational for member in fact.members}

    also = Endpoint("127.0.0.2", answering.port)
    put(endpoints, answering, 10, None, "be_asked:ask")
    put(endpoints, also, 10, None, "be_asked:ask")
    wait_until(lambda: words() == {answering: "up", also: "up"}, "both pass their checks")
    put(endpoints, also, 0, 10, "be_asked:ask")
    perform_one(endpoints, RemoveEndpoint("edge", "be_asked:ask", also, "web-0"))
    # One that is under way would tell of the next address what it finds out about this one.
    wait_until(lambda: not haproxy.checking("be_asked", "ask2"), "the last check of the old address ends")
    put(endpoints, silent.place, 10, None, "be_asked:ask")
    assert haproxy.operational("be_asked", "ask2") == 2, "HAProxy gives it traffic already"
    wait_until(lambda: words() == {silent.place: "checking", answering: "up"}, "that is reported")


def test_a_slot_with_a_running_check_is_taken_last() -> None:
    free = "127.0.0.1 1 0 33 0 0 {} slot.invalid"
    rows = [
        f"web web{number} {free.format(check)} {number} 0 3 0\n"
        for number, check in [(1, 15), (2, 14), (3, 15), (4, 14)]
    ]
    slots = Free(table(Slots("web", "web", "suite"), parse_servers(HEAD + "".join(rows))))
    taken = [slots.take(Endpoint("192.0.2.1", 80)) for _ in range(5)]
    assert [one and one.name for one in taken] == ["web2", "web4", "web1", "web3", None]


HEAD = (
    "1\n# be_name srv_name srv_addr srv_port srv_uweight srv_admin_state srv_agent_state srv_iweight srv_check_state srv_fqdn"
    " srv_id srv_op_state srv_check_status srv_check_health\n"
)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["6 2 3 4", "6 2 3 4"], ["up", "up"]),
        (["6 2 3 2", "6 2 3 2"], ["up", "up"]),  # fall 1: no count is higher
        (["6 2 3 4", "6 2 3 2"], ["up", "checking"]),  # in a slot that was used before
        (["6 2 3 4", "6 2 2 3"], ["up", "checking"]),  # one check has just failed
        (["6 2 3 4", "6 2 1 2"], ["up", "checking"]),
        (["6 2 1 2", "6 2 1 2"], ["checking", "checking"]),
        (["7 2 3 4", "7 2 3 2"], ["up", "checking"]),  # the next check is under way
        (["6 2 3 4", "6 0 2 0"], ["up", "down"]),
        (["6 2 3 4", "6 1 1 2"], ["up", "checking"]),  # with a slow start
        (["6 2 3 4", "6 1 3 4"], ["up", "starting"]),
        (["6 2 3 4", "2 2 1 2"], ["up", "up"]),  # its check was disabled
        (["6 2 3 4", "14 2 1 2"], ["up", "up"]),
        (["6 2 3 4", "0 2 0 0"], ["up", ""]),
    ],
)
def test_results_of_checks_over_all_slots(rows: list[str], words: list[str]) -> None:
    def row(number: int, text: str) -> str:
        check, operation, last, health = text.split()
        start = f"web web{number} 192.0.2.{number} 80 10 0 0 0 {check} slot.invalid"
        return f"{start} {number} {operation} {last} {health}\n"

    servers = parse_servers(HEAD + "".join(row(number, text) for number, text in enumerate(rows, 1)))
    fact = pool_fact([table(Slots("web", "web", "suite"), servers)], "7@1")
    assert [member.operational for member in fact.members] == words


@pytest.mark.parametrize(
    "text", ["", "Permission denied\n", "# pxname,svname\nweb,web1\n", "# pxname,svname,qcur,scur,algo\nweb\n"]
)
def test_figures_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        sessions(text)
    with pytest.raises(ValueError):
        algorithms(text)


def test_a_batch_reads_back_the_pool_unless_sessions_must_be_counted(provider: Make) -> None:
    endpoints = provider()
    places = [Endpoint("192.0.2.1", port) for port in (80, 81)]

    def act(weight: int, before: int | None) -> tuple[tuple[ProviderError | None, ...], list[list[int]]]:
        performed = endpoints.perform([SetWeight("edge", "web", place, "web-0", weight, before) for place in places])
        return performed.errors, [[member.weight for member in fact.members] for fact in performed.pools]

    assert act(10, None) == ((None, None), [[10, 10]])
    assert act(10, 10) == ((None, None), [])
    assert act(0, 10) == ((None, None), [])
