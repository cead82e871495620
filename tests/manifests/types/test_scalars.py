"""Single values: what is accepted, in which canonical form, and what is refused."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from manifests.types import scalars
from manifests.types.scalars import MILLISECOND
from manifests.values.desired import SECOND


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("500ms", 500 * MILLISECOND),
        ("30s", 30 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("5m", 300 * SECOND),
        ("7d", 604_800 * SECOND),
        ("0s", 0),
    ],
)
def test_a_duration_is_read_in_nanoseconds(text: str, nanoseconds: int) -> None:
    assert scalars.parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "value", ["", "30", "s", "1.5h", "30s1m", "1h 30m", "-5s", "٣s", "1y", 30, 1.5, True, None, ["30s"]]
)
def test_what_is_not_a_duration_is_refused(value: object) -> None:
    with pytest.raises(PydanticCustomError):
        scalars.parse_duration(value)


@pytest.mark.parametrize("value", [30, "30"])
def test_a_duration_without_a_unit_is_answered_with_what_to_write(value: object) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        scalars.parse_duration(value)

    assert caught.value.context is not None
    assert "write 30s" in caught.value.context["hint"]


@given(st.integers(0, 10**12))
def test_a_duration_in_milliseconds_survives_being_written_and_read(milliseconds: int) -> None:
    assert scalars.parse_duration(scalars.format_duration(milliseconds * MILLISECOND)) == milliseconds * MILLISECOND


Check = Callable[[str], object]
GOOD: list[tuple[Check, str, object]] = [
    (scalars.name_up_to(40), "a-1", "a-1"),
    (scalars.name_up_to(40), "9", "9"),
    (scalars.key_ref, "workload/web", "workload/web"),
    (scalars.port_name, "http-1", "http-1"),
    (scalars.port_ref, "http", "http"),
    (scalars.pool_name, "be_web.1", "be_web.1"),
    (scalars.label_key, "app.kubernetes.io/name", "app.kubernetes.io/name"),
    (scalars.label_value, "", ""),
    (scalars.ip_address, "2001:DB8:0::1", "2001:db8::1"),
    (scalars.ip_address, "203.0.113.10", "203.0.113.10"),
    (scalars.host_name, "App.Example.COM", "app.example.com."),
    (scalars.host_name, "*.example.com.", "*.example.com."),
    (scalars.host_name, "bücher.example", "xn--bcher-kva.example."),
    (scalars.host_name, "BÜCHER.example", "xn--bcher-kva.example."),
    (scalars.host_name, "localhost", "localhost."),
    (scalars.zone_name, "2.0.192.in-addr.arpa", "2.0.192.in-addr.arpa."),
    (scalars.env_name, "A_b.c-d", "A_b.c-d"),
    (scalars.header_name, "X-Request-Id", "X-Request-Id"),
    (scalars.header_value, "a b\tc", "a b\tc"),
    (scalars.url_path, "/ready?full=1", "/ready?full=1"),
    (scalars.relative_path, "./app//x/", "app/x"),
    (scalars.relative_path, ".", "."),
    (scalars.relative_path, "..app", "..app"),
    (scalars.int_or_percent, "25%", 25),
    (scalars.percent, "100%", 100),
]
BAD: list[tuple[Check, object]] = [
    *((scalars.name_up_to(5), text) for text in ("", "-a", "a-", "A", "a_b", "a.b", "a b", "toolong", "a\n", "ä")),
    *((scalars.key_ref, text) for text in ("web", "workload/", "/web", "Workload/web", "workload/Web", "a/b/c")),
    *((scalars.port_name, text) for text in ("", "80", "-a", "a--b", "HTTP", "a" * 16, "a_b")),
    *((scalars.port_ref, value) for value in (0, 65_536, -1, True, None, "80", 1.5, [])),
    *((scalars.pool_name, text) for text in ("", "a/b", "..", "a b", "a" * 64, "a\n")),
    *((scalars.label_key, text) for text in ("", "/a", "a/", "A B", "a" * 64, "EXAMPLE.com/a")),
    *((scalars.label_value, text) for text in ("-a", "a b", "a" * 64, "a\n")),
    *(
        (scalars.ip_address, text)
        for text in ("", "1.2.3", "01.2.3.4", "::1%eth0", "0.0.0.0", "::", "224.0.0.1", "host")
    ),
    *((scalars.host_name, text) for text in ("", ".", "a..b", "-a.b", "a_b.c", "*", "a.*.b", "a*.b", "a b", "a" * 64)),
    *((scalars.host_name, text) for text in ("straße.de", "a\u200db.de", "http://a.b", "a.b/c", "x" * 5000, "ü" * 100)),
    (scalars.host_name, ".".join(["a" * 60] * 5)),
    (scalars.zone_name, "*.example.com"),
    *((scalars.env_name, text) for text in ("", "1A", "A=B", "A B", "A\0")),
    *((scalars.header_name, text) for text in ("", "a b", "a:", "a\r\nb", "é")),
    *((scalars.header_value, text) for text in ("a\r\nb: c", "a\nb", "a\0", "é", "x" * 5000)),
    *((scalars.url_path, text) for text in ("", "ready", "/a b", "/a\r\nHost: b", "/é", "/\0")),
    *((scalars.relative_path, text) for text in ("", "/etc", "..", "a/../../b", "a/..", "a\0b")),
    *((scalars.int_or_percent, value) for value in (-1, 1001, "101%", "5", "-1%", "5 %", True, None, 1.5)),
    *((scalars.percent, value) for value in (30, "30", "101%", "", None)),
    (scalars.no_nul, "a\0b"),
]


@pytest.mark.parametrize(("check", "value", "canonical"), GOOD)
def test_a_good_value_comes_back_in_canonical_form(check: Check, value: str, canonical: object) -> None:
    assert check(value) == canonical


@pytest.mark.parametrize(("check", "value"), BAD)
def test_a_bad_value_is_refused(check: Callable[[object], object], value: object) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        check(value)

    assert "\r" not in caught.value.message()
    assert len(caught.value.message()) < 250


@pytest.mark.parametrize(
    "check", [scalars.host_name, scalars.ip_address, scalars.relative_path, scalars.url_path, scalars.label_key]
)
@given(value=st.text(max_size=300))
def test_any_text_is_accepted_or_refused_in_words(check: Check, value: str) -> None:
    try:
        canonical = check(value)
    except PydanticCustomError:
        return
    assert check(str(canonical)) == canonical
