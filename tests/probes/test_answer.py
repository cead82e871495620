"""Judging HTTP answers, byte by byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.probes.answer import MAX_BODY, MAX_HEADER, judge, waiting_for
from reconciler.probes.streak import FAIL, PASS

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (OK + b"Content-Length: 2\r\n\r\nok", "HTTP 200"),
        (OK + b"content-length:0\r\n\r\n", "HTTP 200"),
        (b"HTTP/1.0 200\r\nContent-Length: 0\r\n\r\n", "HTTP 200"),
        (b"HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n", "HTTP 204"),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "HTTP 200"),
        (b"HTTP/1.1 301 Moved\r\nLocation: https://elsewhere/\r\n\r\n", "HTTP 301 to https://elsewhere/"),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", "HTTP 304"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n", "HTTP 200"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n", "HTTP 200"),
        (OK + b"\r\n" + b"x" * MAX_BODY, "HTTP 200"),
        (OK + b"Content-Length: 50000\r\n\r\n" + b"x" * MAX_BODY, "HTTP 200"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "HTTP 200"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2;name=x\r\nok\r\n0\r\n", "HTTP 200"),
    ],
)
def test_a_good_answer_passes_once_enough_of_it_has_arrived(data: bytes, detail: str) -> None:
    assert judge(data, False) == (PASS, detail)


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\n", "HTTP 503"),
        (b"HTTP/1.1 404 Not Found\r\n", "HTTP 404"),
        (b"HTTP/1.1 400 \r\n", "HTTP 400"),
        (b"HTTP/1.1 101 Switching Protocols\r\n", "HTTP 101"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not an HTTP answer: 'SSH-2.0-OpenSSH_9.2'"),
        (b"HTTP/2 200 OK\r\n", "not an HTTP answer: 'HTTP/2 200 OK'"),
        (b"HTTP/1.1 2000 OK\r\n", "not an HTTP answer: 'HTTP/1.1 2000 OK'"),
        (b"HTTP/1.1 abc\r\n", "not an HTTP answer: 'HTTP/1.1 abc'"),
        (b"\x16\x03\x01\n", "not an HTTP answer: '???'"),
        (OK + b"Content-Length: many\r\n\r\n", "HTTP 200, but Content-Length is malformed"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n", "HTTP 200, but a chunk of the body is malformed"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n\r\n", "HTTP 200, but a chunk of the body is malformed"),
        (OK + b"X: " + b"x" * MAX_HEADER, "HTTP 200, but the header is longer than 64 KiB"),
        (b"x" * (MAX_HEADER + 1), "the status line is longer than 64 KiB"),
    ],
)
def test_a_bad_answer_fails_at_once(data: bytes, detail: str) -> None:
    assert judge(data, False) == (FAIL, detail)


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"", "the server closed the connection without an answer"),
        (b"HTTP/1.1 2", "the server closed the connection within the status line: 'HTTP/1.1 2'"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "the server closed the connection without an answer"),
        (OK + b"Server: x", "HTTP 200, but the server closed the connection within the header"),
        (
            OK + b"Content-Length: 10\r\n\r\nabc",
            "HTTP 200, but the server closed the connection after 3 of 10 bytes of the body",
        ),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
            "HTTP 200, but the server closed the connection within the body",
        ),
    ],
)
def test_an_incomplete_answer_fails_at_the_end_of_the_connection(data: bytes, detail: str) -> None:
    assert judge(data, False) is None
    assert judge(data, True) == (FAIL, detail)


def test_without_a_length_the_end_of_the_connection_ends_the_body() -> None:
    assert judge(OK + b"\r\nfine", False) is None
    assert judge(OK + b"\r\nfine", True) == (PASS, "HTTP 200")


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"", "waiting for the answer"),
        (OK, "reading the header"),
        (OK + b"\r\n", "reading the body"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "reading the header"),
    ],
)
def test_a_time_out_names_the_missing_part(data: bytes, where: str) -> None:
    assert waiting_for(data) == where


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_have_a_result_at_the_end_of_the_connection(data: bytes, http: bool) -> None:
    data = OK + data if http else data
    judge(data, False)
    result = judge(data, True)
    assert result is not None
    assert result[1].isprintable()


@given(st.sampled_from([b"", b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n"]), st.binary(max_size=30))
def test_more_bytes_do_not_change_a_result(header: bytes, tail: bytes) -> None:
    data = OK + header + b"\r\n" + tail
    decided = None
    for end in range(len(data) + 1):
        now = judge(data[:end], False)
        if decided is not None:
            assert now == decided
        decided = decided or now
