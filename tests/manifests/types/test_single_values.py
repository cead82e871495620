"""Names, ports, addresses, paths and percentages: the canonical form of good values, and the refusal of bad ones."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from manifests.types import engine, names, network, numbers, paths

Check = Callable[[str], object]
GOOD: list[tuple[Check, str, object]] = [
    (names.name_up_to(40), "a-1", "a-1"),
    (names.name_up_to(40), "9", "9"),
    (names.key_ref, "workload/web", "workload/web"),
    (network.port_name, "http-1", "http-1"),
    (network.port_ref, "http", "http"),
    (names.pool_name, "be_web.1", "be_web.1"),
    (names.label_key, "app.kubernetes.io/name", "app.kubernetes.io/name"),
    (names.label_value, "", ""),
    (network.ip_address, "2001:DB8:0::1", "2001:db8::1"),
    (network.ip_address, "203.0.113.10", "203.0.113.10"),
    (network.host_name, "App.Example.COM", "app.example.com."),
    (network.host_name, "*.example.com.", "*.example.com."),
    (network.host_name, "bücher.example", "xn--bcher-kva.example."),
    (network.host_name, "BÜCHER.example", "xn--bcher-kva.example."),
    (network.host_name, "localhost", "localhost."),
    (network.zone_name, "2.0.192.in-addr.arpa", "2.0.192.in-addr.arpa."),
    (names.env_name, "A_b.c-d", "A_b.c-d"),
    (network.header_name, "X-Request-Id", "X-Request-Id"),
    (network.header_value, "a b\tc", "a b\tc"),
    (network.url_path, "/ready?full=1", "/ready?full=1"),
    (paths.relative_path, "./app//x/", "app/x"),
    (paths.relative_path, ".", "."),
    (paths.relative_path, "..app", "..app"),
    (paths.relative_path, ".github/x.git", ".github/x.git"),
    (engine.signal_name, "SIGRTMIN+3", "SIGRTMIN+3"),
    (engine.signal_name, "SIGKILL", "SIGKILL"),
    (engine.handled_signal, "SIGUSR1", "SIGUSR1"),
    (numbers.int_or_percent, "25%", 25),
    (numbers.percent, "100%", 100),
]
BAD: list[tuple[Check, object]] = [
    *((names.name_up_to(5), text) for text in ("", "-a", "a-", "A", "a_b", "a.b", "a b", "toolong", "a\n", "ä")),
    *((names.key_ref, text) for text in ("web", "workload/", "/web", "Workload/web", "workload/Web", "a/b/c")),
    *((network.port_name, text) for text in ("", "80", "-a", "a--b", "HTTP", "a" * 16, "a_b")),
    *((network.port_ref, value) for value in (0, 65_536, -1, True, None, "80", 1.5, [])),
    *((names.pool_name, text) for text in ("", "a/b", "..", "a b", "a" * 64, "a\n")),
    *((names.label_key, text) for text in ("", "/a", "a/", "A B", "a" * 64, "EXAMPLE.com/a")),
    *((names.label_value, text) for text in ("-a", "a b", "a" * 64, "a\n")),
    *(
        (network.ip_address, text)
        for text in ("", "1.2.3", "01.2.3.4", "::1%eth0", "0.0.0.0", "::", "224.0.0.1", "host")
    ),
    *((network.host_name, text) for text in ("", ".", "a..b", "-a.b", "a_b.c", "*", "a.*.b", "a*.b", "a b", "a" * 64)),
    *((network.host_name, text) for text in ("straße.de", "a\u200db.de", "http://a.b", "a.b/c", "x" * 5000, "ü" * 100)),
    (network.host_name, ".".join(["a" * 60] * 5)),
    (network.zone_name, "*.example.com"),
    *((names.env_name, text) for text in ("", "1A", "A=B", "A B", "A\0")),
    *((network.header_name, text) for text in ("", "a b", "a:", "a\r\nb", "é")),
    *((network.header_value, text) for text in ("a\r\nb: c", "a\nb", "a\0", "é", "x" * 5000)),
    *((network.url_path, text) for text in ("", "ready", "/a b", "/a\r\nHost: b", "/é", "/\0")),
    *(
        (paths.relative_path, text)
        for text in ("", "/etc", "..", "a/../../b", "a/..", "a\0b", ".git", "a/.git/config", ".GIT/x")
    ),
    *(
        (engine.signal_name, text)
        for text in ("", "HUP", "SIGFOO", "sighup", "SIGRTMIN+16", "SIGRTMIN-1", "SIG", "SIGHUP\n")
    ),
    *((engine.handled_signal, text) for text in ("SIGKILL", "SIGSTOP", "SIGFOO")),
    *((numbers.int_or_percent, value) for value in (-1, 1001, "101%", "5", "-1%", "5 %", True, None, 1.5)),
    *((numbers.percent, value) for value in (30, "30", "101%", "", None)),
    (paths.no_nul, "a\0b"),
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
    "check", [network.host_name, network.ip_address, paths.relative_path, network.url_path, names.label_key]
)
@given(value=st.text(max_size=300))
def test_any_text_is_accepted_or_refused_with_a_message(check: Check, value: str) -> None:
    try:
        canonical = check(value)
    except PydanticCustomError:
        return
    assert check(str(canonical)) == canonical
