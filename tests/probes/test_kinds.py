"""The result of each kind of probe and each of its fields, against good and misbehaving servers.

One engine probes all of them at once, so that the whole table takes about one time-out.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from manifests.values.desired import ProbeKind, ProbeTLS
from manifests.values.secret_sources import SecretSource
from providers.facts import ProbeValue
from providers.lib.secrets import Secret
from reconciler.probes.engine import ProbeEngine
from reconciler.probes.target import ResolvedInputs, Target
from tests.probes.grpc_servers import GRPC_HEADERS, NOT_SERVING, Call, health, message
from tests.probes.helpers import MS, Watch, target
from tests.probes.servers import (
    HOLD,
    NAMED,
    Behaviour,
    Server,
    answers,
    answers_without_reading,
    closes_at_once,
    endless_body,
    hangs_up,
    moved,
    never_answers,
    over_tls,
    read_request,
    refused_port,
    resets,
    serving,
    site,
)

PASS, FAIL, CANNOT_RUN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.CANNOT_RUN
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GONE = b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"
CHAIN = {f"/{number}": moved(f"/{number + 1}") for number in range(11)}
CA = NAMED.read_text()
FOREIGN = ResolvedInputs(ca="-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
CALLS: list[Call] = []


def https(**tls: Any) -> dict[str, Any]:
    return {"scheme": "HTTPS", "tls": ProbeTLS(**tls)}


def grpc(**fields: Any) -> dict[str, Any]:
    return {"kind": ProbeKind.GRPC} | fields


def redirecting_home(conn: socket.socket, stop: threading.Event) -> None:
    """Redirects to its own address by a full URL."""
    request = read_request(conn)
    if b" /home " in request:
        conn.sendall(OK)
        return
    host, port = conn.getsockname()
    conn.sendall(moved(f"http://{host}:{port}/home"))


def stalls_at_the_second(conn: socket.socket, stop: threading.Event) -> None:
    """Redirects, and then sends nothing."""
    if b" /in " in read_request(conn):
        stop.wait(HOLD)
    else:
        conn.sendall(moved("/in"))


def echoes(conn: socket.socket, stop: threading.Event) -> None:
    """Redirects to a URL that contains the received token."""
    token = read_request(conn).split(b"X-Token: ")[1].split(b"\r\n")[0].decode()
    conn.sendall(moved(f"https://elsewhere.example/?t={token}"))


Case = tuple[Behaviour, dict[str, Any], ProbeValue, str]
CASES: dict[str, Case] = {
    # redirects
    "relative": (site({"/": moved("in?x=1"), "/in?x=1": OK}), {}, PASS, "HTTP 200 after 1 redirect, at /in?x=1"),
    "absolute": (redirecting_home, {}, PASS, "HTTP 200 after 1 redirect, at /home"),
    "by its Host": (
        site({"/": moved("http://app.example.com/in"), "/in": OK}),
        {"host": "app.example.com"},
        PASS,
        "HTTP 200 after 1 redirect, at /in",
    ),
    "to a failure": (site({"/": moved("/in", 307), "/in": GONE}), {}, FAIL, "HTTP 410 after 1 redirect, at /in"),
    "ten hops": (
        site({"/": moved("/2")} | CHAIN | {"/11": OK}),
        {"path": "/1"},
        PASS,
        "HTTP 200 after 10 redirects, at /11",
    ),
    "eleven hops": (site(CHAIN), {"path": "/0"}, FAIL, "HTTP 302 to /11: more than 10 redirects"),
    "redirect loop": (site({"/": moved("/")}), {}, FAIL, "HTTP 302 to /: more than 10 redirects"),
    "off host": (
        answers(moved("http://169.254.169.254/latest/")),
        {},
        PASS,
        "HTTP 302 to http://169.254.169.254/latest/",
    ),
    "off host by user name": (
        answers(moved("http://127.0.0.1@elsewhere.example/")),
        {},
        PASS,
        "HTTP 302 to http://127.0.0.1@elsewhere.example/",
    ),
    "other port": (answers(moved("http://127.0.0.1:1/")), {}, PASS, "HTTP 302 to http://127.0.0.1:1/"),
    "other scheme": (answers(moved("https://127.0.0.1/")), {}, PASS, "HTTP 302 to https://127.0.0.1/"),
    "no URL": (answers(moved("http://[::1/")), {}, PASS, "HTTP 302 to http://[::1/"),
    "off host, not expected": (
        answers(moved("https://elsewhere.example/")),
        {"expected": ((200, 200),)},
        FAIL,
        "HTTP 302 to https://elsewhere.example/",
    ),
    "not followed": (answers(moved("/in")), {"follow": False}, PASS, "HTTP 302 to /in"),
    "stalls after a redirect": (
        stalls_at_the_second,
        {},
        FAIL,
        "timed out after 1.2s waiting for the answer after 1 redirect, at /in",
    ),
    "without a location": (answers(b"HTTP/1.1 302 Found\r\n\r\n"), {}, PASS, "HTTP 302"),
    # statuses and bodies
    "expected failure": (answers(GONE), {"expected": ((410, 410),)}, PASS, "HTTP 410"),
    "unexpected success": (answers(OK), {"expected": ((204, 204), (400, 499))}, FAIL, "HTTP 200"),
    "only the header counts": (
        answers(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", hold=True),
        {"max_body": 0},
        PASS,
        "HTTP 200",
    ),
    "a long body, the largest limit": (endless_body, {"max_body": 65536, "timeout": 30_000 * MS}, PASS, "HTTP 200"),
    # certificates
    "TLS redirect": (
        over_tls(site({"/": moved("/in"), "/in": OK})),
        https(),
        PASS,
        "HTTP 200 after 1 redirect, at /in",
    ),
    "verified by address": (over_tls(answers(OK), NAMED), https(verify=True, ca_file="ca"), PASS, "HTTP 200"),
    "verified by name": (
        over_tls(answers(OK), NAMED),
        https(verify=True, ca_file="ca", server_name="web.internal"),
        PASS,
        "HTTP 200",
    ),
    "another name": (
        over_tls(answers(OK), NAMED),
        https(verify=True, ca_file="ca") | {"host": "app.example.com"},
        FAIL,
        "TLS: the certificate is not trusted: Hostname mismatch, certificate is not valid for 'app.example.com'.",
    ),
    "another authority": (
        over_tls(answers(OK)),
        https(verify=True, ca_file="ca"),
        FAIL,
        "TLS: the certificate is not trusted: self-signed certificate",
    ),
    "the system's authorities": (
        over_tls(answers(OK), NAMED),
        https(verify=True),
        FAIL,
        "TLS: the certificate is not trusted: self-signed certificate",
    ),
    "not verified": (over_tls(answers(OK)), https(server_name="anything.example"), PASS, "HTTP 200"),
    "nonsense as authority": (
        over_tls(answers(OK)),
        https(verify=True, ca_file="nonsense"),
        CANNOT_RUN,
        "caFile contains no usable certificates",
    ),
    # gRPC
    "gRPC": (health(calls=CALLS), grpc(service="shop"), PASS, "SERVING"),
    "gRPC, many pings": (health(pings=50), grpc(), PASS, "SERVING"),
    "gRPC over TLS": (over_tls(health(), protocol="h2"), grpc(tls=ProbeTLS()), PASS, "SERVING"),
    "gRPC over TLS, verified": (
        over_tls(health(), NAMED, "h2"),
        grpc(tls=ProbeTLS(True, "ca", "web.internal")),
        PASS,
        "SERVING",
    ),
    "gRPC over TLS, not trusted": (
        over_tls(health(), protocol="h2"),
        grpc(tls=ProbeTLS(True, "ca", "web.internal")),
        FAIL,
        "TLS: the certificate is not trusted: self-signed certificate",
    ),
    "gRPC, not serving": (health(message(NOT_SERVING)), grpc(), FAIL, "NOT_SERVING"),
    "gRPC, unknown": (health(message(0)), grpc(), FAIL, "UNKNOWN"),
    "gRPC, no such service": (
        health(headers=(*GRPC_HEADERS, ("grpc-status", "5"), ("grpc-message", "no such thing")), trailers=None),
        grpc(),
        FAIL,
        "gRPC status 5 (not found): no such thing",
    ),
    "gRPC, unimplemented": (
        health(headers=(*GRPC_HEADERS, ("grpc-status", "12")), trailers=None),
        grpc(),
        FAIL,
        "gRPC status 12 (unimplemented)",
    ),
    "gRPC, failed at the end": (
        health(trailers=(("grpc-status", "14"),)),
        grpc(),
        FAIL,
        "gRPC status 14 (unavailable)",
    ),
    "gRPC, no status": (health(trailers=(("x", "y"),)), grpc(), FAIL, "the gRPC answer has no status"),
    "gRPC, broken message": (health(b"\0\0\0\0\x09\x08"), grpc(), FAIL, "the gRPC answer is not a health status"),
    "gRPC, too long": (health(b"x" * 9000), grpc(), FAIL, "the gRPC answer is longer than 4096 bytes"),
    "gRPC, another thing": (
        health(headers=((":status", "200"), ("content-type", "text/html"))),
        grpc(),
        FAIL,
        "not gRPC: content type 'text/html'",
    ),
    "gRPC, a proxy's error": (
        health(headers=((":status", "502"), ("content-type", "text/html")), trailers=None),
        grpc(),
        FAIL,
        "HTTP 502 instead of a gRPC answer",
    ),
    "gRPC, reset": (health(reset=True), grpc(), FAIL, "the server reset the call (HTTP/2 error 7)"),
    "gRPC, goes away": (health(goaway=True), grpc(), FAIL, "the server ended the connection (HTTP/2 error 11)"),
    "gRPC, HTTP/1.1": (
        answers_without_reading,
        grpc(),
        FAIL,
        "not HTTP/2: 'HTTP/1.0 200 OK'",
    ),
    "gRPC, silent": (never_answers, grpc(), FAIL, "timed out after 1.2s waiting for the gRPC answer"),
    "gRPC, stalls": (health(hold=True), grpc(), FAIL, "timed out after 1.2s waiting for the gRPC answer"),
    "gRPC, closes": (closes_at_once, grpc(), FAIL, "the server closed the connection without a gRPC answer"),
    "gRPC, TLS expected": (health(), grpc(tls=ProbeTLS()), FAIL, "TLS: wrong version number"),
    # published ports
    "published": (never_answers, {"kind": ProbeKind.TCP, "published": True}, PASS, "connected"),
    "published, greets": (
        answers_without_reading,
        {"kind": ProbeKind.TCP, "published": True},
        PASS,
        "connected",
    ),
    "not published, hangs up": (hangs_up, {"kind": ProbeKind.TCP}, PASS, "connected"),
    # secrets
    "an echoed secret": (
        echoes,
        {"headers": (("X-Token", SecretSource("TOKEN")),)},
        PASS,
        "HTTP 302 to https://elsewhere.example/?t=***",
    ),
}


def made(name: str, port: int, fields: dict[str, Any]) -> Target:
    fields = {"timeout": 10_000 * MS, "failure_threshold": 1} | fields
    published = fields.pop("published", False)
    inputs = ResolvedInputs()
    tls = fields.get("tls")
    if tls is not None and tls.ca_file:
        inputs = ResolvedInputs(ca=CA if tls.ca_file == "ca" else FOREIGN.ca)
    if fields.get("headers"):
        inputs = ResolvedInputs((Secret("sentinel"),))
    return target(name, port=port, **fields)._replace(published=published, inputs=inputs)


@pytest.fixture(scope="module")
def world() -> Iterator[Watch]:
    with ExitStack() as stack:
        targets = []
        for name, (behaviour, fields, _, detail) in CASES.items():
            server = Server(behaviour)
            stack.callback(server.close)
            # Only the cases that must time out get a short time-out, however busy this machine is.
            late = {"timeout": 1200 * MS} if detail.startswith("timed out") else {}
            targets.append(made(name, server.port, late | fields))
        engine = ProbeEngine(phase=False)
        stack.callback(engine.close)
        watch = Watch(engine)
        engine.set_targets(targets)
        watch.until(lambda facts: len(facts) == len(targets))
        yield watch


@pytest.mark.parametrize("name", CASES)
def test_each_answer_has_its_documented_result(world: Watch, name: str) -> None:
    _, _, value, detail = CASES[name]
    fact = world.facts[name]
    assert (fact.value, fact.detail[: len(detail)] if value is CANNOT_RUN else fact.detail) == (value, detail)


def test_a_grpc_health_check_names_the_service_and_the_user_agent(world: Watch) -> None:
    call = CALLS[0]
    assert call.headers[":path"] == "/grpc.health.v1.Health/Check"
    assert call.headers["te"] == "trailers"
    assert call.headers["grpc-timeout"] == "10000m"
    assert call.headers["user-agent"] == "reconciler-probe/1"
    assert call.body == b"\0\0\0\0\x06\x0a\x04shop"


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"kind": ProbeKind.GRPC}, "connection refused"),
        ({"kind": ProbeKind.TCP, "published": True}, "connection refused"),
        ({"scheme": "HTTPS"}, "connection refused"),
    ],
)
def test_a_port_on_which_nothing_listens_fails(watch: Watch, fields: dict[str, Any], detail: str) -> None:
    watch.engine.set_targets([made("a", refused_port(), fields)])
    fact = watch.of("a")
    assert (fact.value, fact.detail) == (FAIL, detail)


@pytest.mark.parametrize("behaviour", [hangs_up, resets])
def test_a_published_port_that_closes_at_once_fails(watch: Watch, behaviour: Behaviour) -> None:
    """The proxy of the runtime accepts. It may be slow on a busy machine, so any of several probes counts."""
    with serving(behaviour) as (server,):
        fields = {"kind": ProbeKind.TCP, "published": True, "period": 50 * MS}
        watch.engine.set_targets([made("a", server.port, fields)])
        fact = watch.until(lambda facts: "a" in facts and facts["a"].value is FAIL)["a"]
    assert fact.detail == "the connection was closed at once: nothing listens behind the published port"


def test_a_changed_secret_is_sent_and_keeps_the_streak(watch: Watch) -> None:
    got: list[bytes] = []

    def remembers(conn: socket.socket, stop: threading.Event) -> None:
        got.append(read_request(conn))
        conn.sendall(OK)

    with serving(remembers) as (server,):
        fields = {
            "headers": (("Authorization", SecretSource(file="/secret")),),
            "period": 20 * MS,
            "success_threshold": 3,
        }
        declared = made("a", server.port, fields)._replace(inputs=ResolvedInputs((Secret("old"),)))
        watch.engine.set_targets([declared])
        watch.until(lambda facts: "a" in facts and facts["a"].streak >= 3)
        watch.facts.clear()
        watch.engine.set_targets([declared._replace(inputs=ResolvedInputs((Secret("new"),)))])
        fact = watch.of("a")
        assert fact.value is PASS
        assert fact.streak > 3
        watch.until(lambda _: b"Authorization: new\r\n" in got[-1])
        assert b"Authorization: old\r\n" in got[0]


def test_a_missing_secret_stops_the_probe_without_a_failure(watch: Watch) -> None:
    with serving(answers(OK)) as (server,):
        fields = {"headers": (("A", SecretSource(file="/secret")),), "period": 20 * MS}
        declared = made("a", server.port, fields)
        watch.engine.set_targets([declared])
        assert watch.of("a").value is PASS
        watch.engine.set_targets([declared._replace(inputs=ResolvedInputs(problem="file /secret does not exist"))])
        fact = watch.until(lambda facts: facts["a"].last is CANNOT_RUN)["a"]
        assert (fact.value, fact.detail) == (PASS, "file /secret does not exist")


def test_a_secret_is_never_shown(watch: Watch) -> None:
    declared = made("a", 1, {"headers": (("A", SecretSource(file="/secret")),)})
    assert "sentinel" not in repr(declared)
    watch.engine.set_targets([declared._replace(inputs=ResolvedInputs((Secret("bad\r\nsentinel"),)))])
    fact = watch.of("a")
    assert fact.value is CANNOT_RUN
    assert "sentinel" not in fact.detail
    with open(f"/proc/{watch.engine.pid}/cmdline", "rb") as file:
        assert b"sentinel" not in file.read()
