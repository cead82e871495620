"""Which redirects are followed, and which destinations count as the same place."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.probes.answer import FOLLOW, MAX_CHUNKS, Rules, judge, location
from reconciler.probes.messages import HTTP, Spec
from reconciler.probes.redirect import follow_redirect
from reconciler.probes.request import http_request
from reconciler.probes.slot import Pool, Slot
from reconciler.probes.streak import FAIL, PASS

RULES = Rules(frozenset(range(200, 400)), 10_240, True)


def slot(path: str = "/a/b?c=1", host: str = "", address: str = "10.0.0.1", port: int = 8080) -> Slot:
    request = http_request(address, port, path, (), host)
    prober: Any = None
    made = Slot(Spec(1, HTTP, address, port, 1, 1, 1, 1, 1, 0, 0, request), prober, Pool(1), 0)
    made.sockaddr = (address, port) if "." in address else (address, port, 0, 0)
    return made


def leads_to(place: str, scheme: str = "http", **where: Any) -> str | None:
    """The path of the next request; None when the redirect is not followed."""
    redirected = slot(**where)
    data = b"HTTP/1.1 302 Found\r\nLocation: " + place.encode() + b"\r\n\r\n"
    judgement = judge(data, False, RULES)
    assert judgement == (FOLLOW + PASS, f"HTTP 302 to {place}")
    if follow_redirect(redirected, judgement, data, scheme) is not None:
        assert redirected.hop is None
        return None
    assert redirected.hop is not None
    request = redirected.hop[0]
    assert request.partition(b"\r\n")[2] == redirected.request.partition(b"\r\n")[2]
    return request.split(b" ")[1].decode()


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("/in", "/in"),
        ("in", "/a/in"),
        ("../in", "/in"),
        ("?d=2", "/a/b?d=2"),
        ("/in#part", "/in"),
        ("//10.0.0.1:8080/in", "/in"),
        ("http://10.0.0.1:8080", "/"),
        ("HTTP://10.0.0.1:8080/in", "/in"),
        ("/ü?x=a b", "/%C3%BC?x=a%20b"),
        ("http://10.0.0.1/in", None),
        ("http://10.0.0.1:8081/in", None),
        ("https://10.0.0.1:8080/in", None),
        ("http://user@10.0.0.1:8080/in", None),
        ("http://example.com/in", None),
        ("//example.com/in", None),
        ("mailto:ann@example.com", None),
        ("javascript:1", None),
        ("http://[::1/in", None),
        ("/" + "x" * 5000, None),
    ],
)
def test_only_redirects_to_the_same_address_and_port_are_followed(place: str, path: str | None) -> None:
    if len(place) > 100:
        redirected = slot()
        data = b"HTTP/1.1 302 Found\r\nLocation: " + place.encode() + b"\r\n\r\n"
        assert follow_redirect(redirected, (FOLLOW + PASS, "x"), data, "http") == (PASS, "x")
        return
    assert leads_to(place) == path


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("http://app.example.com/in", "/in"),
        ("http://APP.example.com:80/in", "/in"),
        ("http://10.0.0.1:8080/in", "/in"),
        ("http://app.example.com:8080/in", None),
        ("http://www.app.example.com/in", None),
    ],
)
def test_the_host_that_was_sent_names_the_same_place(place: str, path: str | None) -> None:
    assert leads_to(place, host="app.example.com") == path


def test_ipv6_addresses_name_the_same_place() -> None:
    assert leads_to("https://[fd00::1]/in", "https", address="fd00::1", port=443) == "/in"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=60))
def test_a_redirect_changes_only_the_path_of_the_request(place: str) -> None:
    """For any answer, the next request differs only in its path, which stays on its line."""
    redirected = slot()
    data = b"HTTP/1.1 302 Found\r\nLocation: " + place.encode() + b"\r\n\r\n"
    result = judge(data, False, RULES)
    assert result is not None
    if follow_redirect(redirected, result, data, "http") is None:
        assert redirected.hop is not None
        first, _, rest = redirected.hop[0].partition(b"\r\n")
        assert first.count(b" ") == 2
        assert rest == redirected.request.partition(b"\r\n")[2]


def test_the_location_is_that_of_the_final_answer() -> None:
    data = b"HTTP/1.1 103 Early\r\nLocation: /no\r\n\r\nHTTP/1.1 302 Found\r\nlocation:  /yes \r\n\r\n"
    assert location(data) == b"/yes"
    assert location(b"HTTP/1.1 302 Found\r\nLoc") == b""


def test_the_expected_statuses_pass_and_all_others_fail() -> None:
    rules = Rules(frozenset({204, 404}), 10, False)
    assert judge(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", False, rules) == (PASS, "HTTP 404")
    assert judge(b"HTTP/1.1 200 OK\r\n", False, rules) == (FAIL, "HTTP 200")
    assert judge(b"HTTP/1.1 302 Found\r\n", False, rules) == (FAIL, "HTTP 302")


def test_a_body_in_very_many_chunks_is_long_enough() -> None:
    rules = Rules(frozenset({200}), 65_536, False)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert judge(head + b"1\r\nx\r\n" * (MAX_CHUNKS - 1), False, rules) is None
    assert judge(head + b"1\r\nx\r\n" * MAX_CHUNKS, False, rules) == (PASS, "HTTP 200")
