"""The result of every kind of server, good and bad, within its deadline. One engine probes all of them at once."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from manifests.values.desired import ProbeKind
from providers.facts import ProbeFact, ProbeValue
from reconciler.probes.engine import ProbeEngine
from reconciler.probes.target import Target
from tests.probes.helpers import MS, Watch, target
from tests.probes.servers import (
    Behaviour,
    Server,
    answers,
    answers_without_reading,
    closes_at_once,
    drips,
    endless_body,
    full_backlog,
    never_answers,
    over_tls,
    refused_port,
    resets,
    serving,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HEADER = b"HTTP/1.1 200 OK\r\n"
H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MISBEHAVIOURS: dict[str, tuple[Behaviour, ProbeValue, str]] = {
    "ok": (answers(OK), ProbeValue.PASS, "HTTP 200"),
    "ok, kept open": (answers(OK, hold=True), ProbeValue.PASS, "HTTP 200"),
    "answer in pieces": (answers(b"HTT", b"P/1.1 20", b"0 OK\r", b"\n\r", b"\nbody"), ProbeValue.PASS, "HTTP 200"),
    "server error": (answers(b"HTTP/1.1 500 Oops\r\n\r\n"), ProbeValue.FAIL, "HTTP 500"),
    "drips for ever": (drips, ProbeValue.FAIL, "timed out after 1.2s reading the body"),
    "speaks HTTP/2 at once": (answers(H2_PREFACE), ProbeValue.FAIL, "not an HTTP answer: 'PRI * HTTP/2.0'"),
    "resets": (resets, ProbeValue.FAIL, "connection reset"),
    "continue": (answers(b"HTTP/1.1 100 Continue\r\n\r\n", OK), ProbeValue.PASS, "HTTP 200"),
    "endless body": (endless_body, ProbeValue.PASS, "HTTP 200"),
    "big header": (
        answers(HEADER + b"X: " + b"x" * 70_000),
        ProbeValue.FAIL,
        "HTTP 200, but the header is longer than 64 KiB",
    ),
    "closes at once": (closes_at_once, ProbeValue.FAIL, "the server closed the connection without an answer"),
    "resets after its answer": (answers_without_reading, ProbeValue.PASS, "HTTP 200"),
    "not HTTP": (answers(b"220 mail ready\r\n"), ProbeValue.FAIL, "not an HTTP answer: '220 mail ready'"),
    "silent": (never_answers, ProbeValue.FAIL, "timed out after 1.2s waiting for the answer"),
    "stalls in the header": (answers(HEADER, hold=True), ProbeValue.FAIL, "timed out after 1.2s reading the header"),
    "stalls in the body": (
        answers(HEADER + b"Content-Length: 9\r\n\r\nab", hold=True),
        ProbeValue.FAIL,
        "timed out after 1.2s reading the body",
    ),
    "TLS": (over_tls(answers(OK)), ProbeValue.PASS, "HTTP 200"),
    "TLS error": (over_tls(answers(b"HTTP/1.1 503 Busy\r\n\r\n")), ProbeValue.FAIL, "HTTP 503"),
    "TLS without TLS": (answers_without_reading, ProbeValue.FAIL, "TLS: wrong version number"),
    "TLS stalls": (never_answers, ProbeValue.FAIL, "timed out after 1.2s in the TLS handshake"),
    "TLS closes": (closes_at_once, ProbeValue.FAIL, "the server closed the connection in the TLS handshake"),
    "TLS stalls in the body": (
        over_tls(answers(HEADER + b"Content-Length: 9\r\n\r\nab", hold=True)),
        ProbeValue.FAIL,
        "timed out after 1.2s reading the body",
    ),
}
PLACES = {
    "refused": (ProbeKind.HTTP, ProbeValue.FAIL, "connection refused"),
    "TCP refused": (ProbeKind.TCP, ProbeValue.FAIL, "connection refused"),
    "slow accept": (ProbeKind.TCP, ProbeValue.FAIL, "timed out after 1.2s connecting"),
    "TCP": (ProbeKind.TCP, ProbeValue.PASS, "connected"),
}


def patience(detail: str) -> dict[str, int]:
    """The time-out of a probe: only the cases that must time out get a short one, however busy this machine is."""
    return {"timeout": 1200 * MS} if detail.startswith("timed out") else {}


class World:
    """All servers, and the facts of one engine about them."""

    def __init__(self, stack: ExitStack) -> None:
        self.targets: list[Target] = []
        for name, (behaviour, _, detail) in MISBEHAVIOURS.items():
            server = Server(behaviour)
            stack.callback(server.close)
            scheme = "HTTPS" if name.startswith("TLS") else "HTTP"
            self.targets.append(target(name, port=server.port, scheme=scheme, failure_threshold=1, **patience(detail)))
        ports = {name: refused_port() for name in ("refused", "TCP refused")}
        ports["slow accept"] = stack.enter_context(full_backlog())
        ports["TCP"] = self.targets[0].port
        for name, (kind, _, detail) in PLACES.items():
            self.targets.append(target(name, port=ports[name], kind=kind, failure_threshold=1, **patience(detail)))
        engine = ProbeEngine(phase=False)
        stack.callback(engine.close)
        watch = Watch(engine)
        engine.set_targets(self.targets)
        self.facts = watch.until(lambda facts: len(facts) == len(self.targets))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack)


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_each_server_gets_its_documented_verdict(world: World, name: str) -> None:
    _, value, detail = MISBEHAVIOURS[name]
    assert verdict(world.facts[name]) == (value, detail)


@pytest.mark.parametrize("name", PLACES)
def test_each_port_gets_its_documented_verdict(world: World, name: str) -> None:
    _, value, detail = PLACES[name]
    assert verdict(world.facts[name]) == (value, detail)


def test_no_server_delays_another(watch: Watch) -> None:
    with serving(*[never_answers] * 8, answers(OK)) as servers:
        quick = servers[-1]
        watch.engine.set_targets(
            [target(str(server.port), port=server.port, timeout=60_000 * MS) for server in servers]
        )
        assert watch.until(bool).keys() == {str(quick.port)}


def verdict(fact: ProbeFact) -> tuple[ProbeValue, str]:
    return fact.value, fact.detail


def test_a_server_on_ipv6_is_probed(watch: Watch) -> None:
    try:
        server = Server(answers(OK), socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    watch.engine.set_targets([target("six", "::1", server.port)])
    try:
        assert verdict(watch.of("six")) == (ProbeValue.PASS, "HTTP 200")
    finally:
        server.close()


def test_an_address_without_a_route_is_unknown(watch: Watch) -> None:
    """255.255.255.255 has no route for TCP: this is not a failure of the target."""
    watch.engine.set_targets([target("nowhere", "255.255.255.255", 80, kind=ProbeKind.TCP, failure_threshold=1)])
    fact = watch.of("nowhere")
    assert fact.value is ProbeValue.UNKNOWN
    assert fact.streak == 0


def test_an_invalid_target_cannot_run_and_says_why(watch: Watch) -> None:
    watch.engine.set_targets([target("lost", "", 80)])
    assert verdict(watch.of("lost")) == (
        ProbeValue.CANNOT_RUN,
        "'' is not an IP address: the container's address was not observed",
    )


def test_a_large_request_is_sent_completely(watch: Watch) -> None:
    got: list[int] = []

    def counts(conn: socket.socket, stop: object) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += conn.recv(1 << 16)
        got.append(len(data))
        conn.sendall(OK)

    server = Server(counts)
    try:
        headers = tuple((f"X-{number}", "v" * 8000) for number in range(600))
        watch.engine.set_targets([target("large", port=server.port, headers=headers, timeout=30_000 * MS)])
        assert verdict(watch.of("large")) == (ProbeValue.PASS, "HTTP 200")
        assert got[0] > 600 * 8000
    finally:
        server.close()
