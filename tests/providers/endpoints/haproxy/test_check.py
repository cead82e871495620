"""Findings of `check` with the lines to write, the settings, and parsing without a server."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from providers.actions import SetWeight
from providers.endpoints.haproxy import commands
from providers.endpoints.haproxy.doctor import loads_state, parse_configuration
from providers.endpoints.haproxy.pool_facts import marked
from providers.endpoints.haproxy.provider import HAProxyEndpoints
from providers.endpoints.haproxy.settings import HAProxySettings
from providers.endpoints.haproxy.state import DISAGREE, Server, agreed, parse_pool
from providers.endpoints.haproxy.tables import state_file
from providers.facts import Endpoint
from providers.testing.checks import perform_one
from tests.providers.endpoints.haproxy.server import HAProxy

Make = Callable[..., HAProxyEndpoints]
LINE = "server-template web 1-20 suite.slot.invalid:1 init-addr last,127.0.0.1 weight 0 disabled"
REAL = pytest.mark.server("haproxy")


@REAL
def test_check_of_a_complete_configuration_finds_and_changes_nothing(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider(stateFile=haproxy.state)
    perform_one(endpoints, SetWeight("edge", "web", Endpoint("192.0.2.1", 80), "web-0", 10, None))
    Path(haproxy.state).unlink()
    before = haproxy.servers("web")
    assert endpoints.check(["web", "be_app:app", "be_app:aux"]) == ()
    assert haproxy.servers("web") == before
    assert not Path(haproxy.state).exists()


@REAL
def test_check_names_missing_levels_backends_and_slots_with_their_lines(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider(sockets=[haproxy.operator], stateFile=haproxy.state)
    level, plain, app, missing = endpoints.check(["nowhere:web", "be_app:web", "be_plain:plain"])
    where = f"HAProxy at {haproxy.operator}: "
    assert (
        level == f"{where}has level 'operator'; write 'stats socket {haproxy.operator} level admin' in section global"
    )
    assert plain == f"{where}backend be_app has no slots web<number>; add the line '{LINE}'"
    assert "plain1, plain2 have names of slots, but would lose their addresses at a reload" in app
    assert missing == f"{where}has no backend 'nowhere'; add it with the line '{LINE}'"


@REAL
def test_slots_of_another_instance_are_reported(provider: Make, haproxy: HAProxy) -> None:
    (line,) = provider("third", stateFile=haproxy.state).check(["web"])
    assert "the existing ones are for other.slot.invalid, suite.slot.invalid; use others: web:SLOTS" in line


@REAL
def test_a_state_file_that_a_reload_would_not_read_is_reported(haproxy: HAProxy, provider: Make) -> None:
    (unset,) = provider().check(["web"])
    assert "set the provider's stateFile" in unset
    (other,) = provider(stateFile="/var/lib/haproxy/other").check(["web"])
    assert "write 'server-state-file /var/lib/haproxy/other' in section global" in other
    text = haproxy.config.read_text()
    try:
        haproxy.config.write_text(text.replace("    load-server-state-from-file global\n", ""))
        (ignored,) = provider(stateFile=haproxy.state).check(["web"])
        assert (
            "backend web ignores the state file; write 'load-server-state-from-file global' in section defaults"
            in ignored
        )
        haproxy.config.rename(haproxy.config.with_suffix(".away"))
        (unread,) = provider(stateFile=haproxy.state).check(["web"])
        assert "was not checked: No such file or directory" in unread
        assert f"'server-state-file {haproxy.state}' in section global" in unread
    finally:
        haproxy.config.with_suffix(".away").unlink(missing_ok=True)
        haproxy.config.write_text(text)


CONFIGURATION = """
defaults one
    load-server-state-from-file global # as it should be
defaults
    load-server-state-from-file none
.if defined(X)
backend a from one
.endif
backend b
backend c
    load-server-state-from-file global
listen "d"
    no option httplog
defaults
backend e
"""


def test_a_backend_reads_the_state_file_by_its_line_or_its_defaults() -> None:
    sections = parse_configuration([CONFIGURATION])
    found = {name: loads_state(sections, name) for name in "abcdef"}
    assert found == {"a": True, "b": False, "c": True, "d": False, "e": False, "f": None}


@pytest.mark.parametrize(
    "settings",
    [
        {"sockets": []},
        {"sockets": ["relative.sock"]},
        {"sockets": ["/" + "a" * 107]},
        {"sockets": ["/a", "/a"]},
        {"sockets": ["/a\0b"]},
        {"stateFile": "state"},
        {"timeout": 5},
        {"timeout": "1ms"},
        {"socket": ["/a"]},
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        HAProxySettings.model_validate(settings)


@pytest.mark.parametrize("name", ["", "a b", "a;b", "a\nb", "a/b", "é", "a" * 201])
def test_no_command_is_built_with_a_name_that_could_begin_another_one(name: str) -> None:
    for build in (
        lambda: commands.weight(name, "web1", 1),
        lambda: commands.weight("web", name, 1),
        lambda: commands.state(name, "web1", "ready"),
        lambda: commands.address("web", name, Endpoint("192.0.2.1", 80)),
        lambda: commands.show_servers(name),
    ):
        with pytest.raises(ValueError):
            build()


@pytest.mark.parametrize("place", [("a.example", 80), ("192.0.2.1;x", 80), ("fe80::1%a;b", 80), ("192.0.2.1", 65536)])
def test_no_command_is_built_with_what_is_no_address(place: tuple[str, int]) -> None:
    with pytest.raises(ValueError):
        commands.address("web", "web1", Endpoint(*place))


def test_lines_are_bounded_by_commands_and_by_bytes_and_keep_the_order() -> None:
    texts = [f"set server web/web{number} weight 1" for number in range(250)]
    assert [len(group) for group in commands.lines(texts)] == [100, 100, 50]
    long = ["x" * 3000] * 5
    assert [len(group) for group in commands.lines(long)] == [2, 2, 1]
    assert [one for group in commands.lines(texts) for one in group] == texts
    assert list(commands.lines([])) == []


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([None, None], None),
        ([0, None], 0),
        ([0, 0], 0),
        ([10, 10], 10),
        ([10, 0], DISAGREE),
        ([10, None], DISAGREE),
        ([10, 9, 10], DISAGREE),
    ],
)
def test_what_several_processes_say_together(weights: list[int | None], expected: int | None) -> None:
    assert agreed(weights) == expected


def test_a_forgotten_pool_has_the_name_under_which_it_was_asked_for() -> None:
    def slot(backend: str, name: str) -> Server:
        return Server(
            backend, name, Endpoint("192.0.2.1", 80), 80, 1, 0, 0, "demo.slot.invalid", 0, 0, "1", "2", "0", 0
        )

    for pool, backend, name in [
        ("web", "web", "web3"),
        ("app2", "app2", "app21"),
        ("be_web:web", "be_web", "web12"),
        ("app2:app", "app2", "app3"),
    ]:
        (slots,) = marked([slot(backend, name)], "demo")
        assert slots == parse_pool(pool, "demo")
        assert slots.pool == pool


def test_a_state_file_is_refused_for_an_answer_that_is_none() -> None:
    with pytest.raises(ValueError):
        state_file("Permission denied\n")
