"""Targets as the child gets them: requests, names for TLS, and what cannot be probed."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.values.desired import ProbeKind, ProbeTLS
from manifests.values.pod import SecretSource
from providers.lib.secrets import SHOWN, Secret
from reconciler.probes import messages
from reconciler.probes.messages import Spec
from reconciler.probes.net import classify
from reconciler.probes.request import authority, http_request, server_name
from reconciler.probes.schedule import NO_PHASE
from reconciler.probes.slot import printable
from reconciler.probes.streak import FAIL, UNKNOWN
from reconciler.probes.target import Given, Target, same, specify, succeeds
from tests.probes.helpers import command, target


def spec(target: Target) -> Spec:
    return specify(target, 1, 0, phase=False, together=1)


def lines(path: str = "/", *headers: tuple[str, str]) -> list[str]:
    request = http_request("127.0.0.1", 80, path, headers).decode()
    assert request.endswith("\r\n\r\n")
    return request[:-4].split("\r\n")


def test_a_request_has_what_kubernetes_sends_and_closes() -> None:
    assert lines("/healthz?full=1") == [
        "GET /healthz?full=1 HTTP/1.1",
        "Host: 127.0.0.1:80",
        "User-Agent: reconciler-probe/1",
        "Accept: */*",
        "Connection: close",
    ]


def test_headers_of_the_manifest_win_keep_their_order_and_may_repeat() -> None:
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
def test_a_header_that_cannot_be_sent_makes_the_probe_impossible(header: tuple[str, str]) -> None:
    broken = spec(target("a", headers=(header,)))
    assert broken.kind == messages.BROKEN
    assert "header" in broken.note


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
def test_only_a_name_in_the_host_header_is_asked_for_in_tls(host: str, name: str) -> None:
    assert server_name((("Host", host),)) == name


@pytest.mark.parametrize(
    ("address", "port"), [("", 80), ("web.example.com", 80), ("1.2.3", 0), ("300.1.1.1", 80), ("::1", 70000)]
)
def test_a_place_that_was_not_observed_cannot_be_probed(address: str, port: int) -> None:
    broken = spec(target("a", address, port))
    assert broken.kind == messages.BROKEN
    assert "not observed" in broken.note


def test_an_exec_probe_without_a_way_to_run_it_cannot_be_run() -> None:
    assert spec(command("a", "true")._replace(exec=None)).note
    assert spec(command("a")).note == "the command is empty"
    assert "NUL" in spec(command("a", "echo", "a\0b")).note


def test_one_result_counts_for_at_least_three_periods() -> None:
    assert spec(target("a", period=10, timeout=4)).valid_for == 34


def test_without_phase_the_first_probe_is_due_when_the_delay_is_over() -> None:
    late = target("a", initial_delay=50)._replace(started=100)
    made = specify(late, 1, 120, phase=False, together=1000)
    assert (made.first, made.phase) == (150, NO_PHASE)


def test_a_restarted_container_keeps_its_phase() -> None:
    one = target("a")
    again = one._replace(generation=one.generation._replace(started_at=99))
    phases = {specify(t, 1, 0, phase=True, together=1).phase for t in (one, again)}
    assert len(phases) == 1


def test_a_target_stays_the_same_when_only_its_start_is_computed_anew() -> None:
    one = target("a")
    assert same(one, one._replace(started=one.started + 1))
    assert not same(one, one._replace(port=2))
    assert not same(one, one._replace(address="127.0.0.2"))
    assert not same(one, target("a", kind=ProbeKind.TCP))
    assert not same(command("a", "true"), command("a", "false"))


def test_a_changed_secret_is_another_target_that_goes_on_with_the_streak() -> None:
    one = target("a")._replace(given=Given((Secret("old"),)))
    assert same(one, one._replace(given=Given((Secret("old"),))))
    changed = one._replace(given=Given((Secret("new"),)))
    assert not same(one, changed)
    assert succeeds(one, changed)
    assert not succeeds(one, changed._replace(port=2))


def test_a_secret_header_that_was_not_read_makes_the_probe_impossible() -> None:
    headers = (("A", "1"), ("B", SecretSource("TOKEN")))
    assert spec(target("a", headers=headers)).note == "the secret of header B was not read"
    sent = spec(target("a", headers=headers)._replace(given=Given((Secret("s"),))))
    assert b"A: 1\r\nB: s\r\n" in sent.request


@given(st.text(st.characters(codec="ascii", min_codepoint=33), min_size=3, max_size=40), st.integers(0, 150))
def test_an_echoed_secret_is_masked_whole_or_cut(secret: str, before: int) -> None:
    shown = printable("x" * before + " " + secret + " tail of the text that is long enough to be cut" * 3)
    masked = Given((Secret(secret),)).masked(shown)
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
def test_the_name_in_tls_is_the_most_particular_one(
    tls: ProbeTLS, host: str, headers: tuple[tuple[str, str], ...], name: str
) -> None:
    made = spec(target("a", "10.0.0.1", scheme="HTTPS", tls=tls, host=host, headers=headers))
    assert (made.kind, made.sni, made.verify) == (messages.TLS, name, tls.verify)


def test_host_is_sent_and_never_connected_to() -> None:
    made = spec(target("a", "10.0.0.1", host="app.example.com"))
    assert b"\r\nHost: app.example.com\r\n" in made.request
    assert made.address == "10.0.0.1"
    assert b"\r\nHost: [fd00::1]\r\n" in spec(target("a", host="fd00::1")).request


def test_the_health_check_of_the_runtime_is_not_asked() -> None:
    assert spec(target("a", kind=ProbeKind.RUNTIME)).kind == messages.BROKEN


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
def test_only_errors_that_the_target_caused_are_failures(number: int, result: int) -> None:
    assert classify(number)[0] == result
