"""Targets as the child receives them: requests, TLS names and invalid targets."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import ProbeKind, ProbeTLS
from manifests.values.secret_sources import SecretSource
from providers.lib.secrets import SHOWN, Secret
from reconciler.probes import messages
from reconciler.probes.messages import Spec
from reconciler.probes.net import classify
from reconciler.probes.request import authority, http_request, server_name
from reconciler.probes.schedule import NO_PHASE
from reconciler.probes.slot import printable
from reconciler.probes.streak import FAIL, UNKNOWN
from reconciler.probes.target import ResolvedInputs, Target, keeps_streak, same_target, to_spec
from tests.probes.helpers import command, target


def spec(target: Target) -> Spec:
    return to_spec(target, 1, 0, phase=False, together=1)


def lines(path: str = "/", *headers: tuple[str, str]) -> list[str]:
    request = http_request("127.0.0.1", 80, path, headers).decode()
    assert request.endswith("\r\n\r\n")
    return request[:-4].split("\r\n")


def test_a_request_sends_the_headers_of_kubernetes_and_closes() -> None:
    assert lines("/healthz?full=1") == [
        "GET /healthz?full=1 HTTP/1.1",
        "Host: 127.0.0.1:80",
        "User-Agent: reconciler-probe/1",
        "Accept: */*",
        "Connection: close",
    ]


def test_manifest_headers_win_keep_their_order_and_may_repeat() -> None:
    assert lines("/", ("Host", "app.example.com"), ("X-A", "1"), ("X-A", "2"), ("user-agent", "me"))[1:] == [
        "Accept: */*",
        "Host: app.example.com",
        "X-A: 1",
        "X-A: 2",
        "user-agent: me",
        "Connection: close",
    ]


def test_an_empty_accept_or_user_agent_is_left_out() -> None:
    assert lines("/", ("Accept", ""), ("User-Agent", ""))[1:] == ["Host: 127.0.0.1:80", "Connection: close"]


def test_the_connection_header_cannot_be_overridden() -> None:
    assert lines("/", ("Connection", "keep-alive"))[-1] == "Connection: close"
    assert "Connection: keep-alive" not in lines("/", ("Connection", "keep-alive"))


@pytest.mark.parametrize(
    ("path", "sent"),
    [("healthz", "/healthz"), ("", "/"), ("/a b", "/a%20b"), ("/\r\nX: y", "/%0D%0AX:%20y"), ("/ü", "/%C3%BC")],
)
def test_a_path_cannot_break_the_request_line(path: str, sent: str) -> None:
    assert lines(path)[0] == f"GET {sent} HTTP/1.1"


@pytest.mark.parametrize("header", [("X A", "1"), ("", "1"), ("X", "1\r\nY: 2"), ("X", "a\0b"), ("X:", "1")])
def test_an_invalid_header_makes_the_target_invalid(header: tuple[str, str]) -> None:
    invalid = spec(target("a", headers=(header,)))
    assert invalid.kind == messages.INVALID
    assert "header" in invalid.note


@pytest.mark.parametrize(
    ("address", "text"), [("10.0.0.1", "10.0.0.1:80"), ("fe80::1", "[fe80::1]:80"), ("fe80::1%eth0", "[fe80::1]:80")]
)
def test_ipv6_is_bracketed_in_the_host_header(address: str, text: str) -> None:
    assert authority(address, 80) == text


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("app.example.com", "app.example.com"),
        ("app.example.com:8443", "app.example.com"),
        ("10.0.0.1", ""),
        ("[::1]:8", ""),
    ],
)
def test_the_tls_name_comes_from_a_host_header_that_is_a_name(host: str, name: str) -> None:
    assert server_name((("Host", host),)) == name


@pytest.mark.parametrize(
    ("address", "port"), [("", 80), ("web.example.com", 80), ("1.2.3", 0), ("300.1.1.1", 80), ("::1", 70000)]
)
def test_an_unobserved_address_cannot_be_probed(address: str, port: int) -> None:
    invalid = spec(target("a", address, port))
    assert invalid.kind == messages.INVALID
    assert "not observed" in invalid.note


def test_an_exec_probe_without_a_command_cannot_run() -> None:
    assert spec(command("a", "true")._replace(exec=None)).note
    assert spec(command("a")).note == "the command is empty"
    assert "NUL" in spec(command("a", "echo", "a\0b")).note


def test_one_result_counts_for_at_least_three_periods() -> None:
    assert spec(target("a", period=10, timeout=4)).valid_for == 34


def test_without_phase_the_first_probe_is_due_when_the_delay_is_over() -> None:
    late = target("a", initial_delay=50)._replace(started=100)
    made = to_spec(late, 1, 120, phase=False, together=1000)
    assert (made.first, made.phase) == (150, NO_PHASE)


def test_a_restarted_container_keeps_its_phase() -> None:
    original = target("a")
    restarted = original._replace(generation=original.generation._replace(started_at=99))
    phases = {to_spec(t, 1, 0, phase=True, together=1).phase for t in (original, restarted)}
    assert len(phases) == 1


def test_a_changed_start_is_the_same_target() -> None:
    original = target("a")
    assert same_target(original, original._replace(started=original.started + 1))
    assert not same_target(original, original._replace(port=2))
    assert not same_target(original, original._replace(address="127.0.0.2"))
    assert not same_target(original, target("a", kind=ProbeKind.TCP))
    assert not same_target(command("a", "true"), command("a", "false"))


def test_a_target_with_a_changed_secret_keeps_the_streak() -> None:
    original = target("a")._replace(inputs=ResolvedInputs((Secret("old"),)))
    assert same_target(original, original._replace(inputs=ResolvedInputs((Secret("old"),))))
    changed = original._replace(inputs=ResolvedInputs((Secret("new"),)))
    assert not same_target(original, changed)
    assert keeps_streak(original, changed)
    assert not keeps_streak(original, changed._replace(port=2))


def test_an_unread_secret_header_makes_the_target_invalid() -> None:
    headers = (("A", "1"), ("B", SecretSource("TOKEN")))
    assert spec(target("a", headers=headers)).note == "the secret of header B was not read"
    sent = spec(target("a", headers=headers)._replace(inputs=ResolvedInputs((Secret("s"),))))
    assert b"A: 1\r\nB: s\r\n" in sent.request


@given(st.text(st.characters(codec="ascii", min_codepoint=33), min_size=3, max_size=40), st.integers(0, 150))
def test_an_echoed_secret_is_masked_whole_or_cut(secret: str, before: int) -> None:
    shown = printable("x" * before + " " + secret + " tail of the text that is long enough to be cut" * 3)
    masked = ResolvedInputs((Secret(secret),)).masked(shown)
    assert secret not in masked.replace(SHOWN, "")
    if secret not in shown and shown.endswith("...") and before < 116:
        assert not masked.removesuffix("...").endswith(secret[:3])


@pytest.mark.parametrize(
    ("tls", "host", "headers", "name"),
    [
        (ProbeTLS(True), "", (), "10.0.0.1"),
        (ProbeTLS(False), "", (), ""),
        (ProbeTLS(True), "app.example.com", (("Host", "other.example"),), "app.example.com"),
        (ProbeTLS(True), "", (("Host", "other.example:1"),), "other.example"),
        (ProbeTLS(True, "", "web.internal"), "app.example.com", (), "web.internal"),
    ],
)
def test_the_tls_name_is_the_most_specific_one(
    tls: ProbeTLS, host: str, headers: tuple[tuple[str, str], ...], name: str
) -> None:
    made = spec(target("a", "10.0.0.1", scheme="HTTPS", tls=tls, host=host, headers=headers))
    assert (made.kind, made.sni, made.verify) == (messages.TLS, name, tls.verify)


def test_the_host_is_sent_and_never_connected_to() -> None:
    made = spec(target("a", "10.0.0.1", host="app.example.com"))
    assert b"\r\nHost: app.example.com\r\n" in made.request
    assert made.address == "10.0.0.1"
    assert b"\r\nHost: [fd00::1]\r\n" in spec(target("a", host="fd00::1")).request


def test_a_runtime_probe_is_not_sent() -> None:
    assert spec(target("a", kind=ProbeKind.RUNTIME)).kind == messages.INVALID


@pytest.mark.parametrize(
    ("number", "result"),
    [
        (errno.ENETUNREACH, UNKNOWN),
        (errno.EHOSTUNREACH, UNKNOWN),
        (errno.EMFILE, UNKNOWN),
        (errno.ENFILE, UNKNOWN),
        (errno.EADDRNOTAVAIL, UNKNOWN),
        (errno.ENOBUFS, UNKNOWN),
        (errno.ECONNREFUSED, FAIL),
        (errno.ECONNRESET, FAIL),
        (errno.EPIPE, FAIL),
        (errno.ETIMEDOUT, FAIL),
    ],
)
def test_only_errors_caused_by_the_target_are_failures(number: int, result: int) -> None:
    assert classify(number)[0] == result
