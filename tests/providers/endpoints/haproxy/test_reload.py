"""Reloads and several processes: which weights survive, what is noticed, and the pool when processes differ."""

import fcntl
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from providers.actions import RemoveEndpoint, SetWeight
from providers.endpoints.haproxy.provider import HAProxyEndpoints
from providers.endpoints.haproxy.settings import HAProxySettings
from providers.endpoints.haproxy.socket import converse
from providers.endpoints.haproxy.state import DISAGREE
from providers.errors import OutcomeUnknown, Rejected, Unreachable
from providers.facts import Endpoint
from providers.spi import Context
from providers.testing.checks import perform_one
from tests.providers.endpoints.haproxy.server import HAProxy, wait_until

pytestmark = pytest.mark.server("haproxy")

Make = Callable[..., HAProxyEndpoints]
PLACE = Endpoint("192.0.2.1", 8080)
SIX = Endpoint("2001:db8::6", 8080)


def put(weight: int, before: int | None = None, endpoint: Endpoint = PLACE, pool: str = "web") -> SetWeight:
    return SetWeight("edge", pool, endpoint, "web-0", weight, before)


def weights(endpoints: HAProxyEndpoints, pool: str = "web") -> dict[Endpoint, int]:
    (fact,) = (fact for fact in endpoints.observe([pool]) if fact.pool == pool)
    return {member.endpoint: member.weight for member in fact.members}


@pytest.fixture(scope="module")
def second(short_directory: Path) -> Iterator[HAProxy]:
    server = HAProxy(short_directory, name="two")
    yield server
    server.stop()


@pytest.fixture
def both(haproxy: HAProxy, second: HAProxy, provider: Make) -> HAProxyEndpoints:
    second.reset()
    return provider(sockets=[haproxy.socket, second.socket])


def test_weights_addresses_and_ready_states_survive_a_reload(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider(stateFile=haproxy.state)
    perform_one(endpoints, put(30))
    perform_one(endpoints, put(0, endpoint=SIX))
    gone = Endpoint("192.0.2.9", 8080)
    perform_one(endpoints, put(0, endpoint=gone))
    perform_one(endpoints, RemoveEndpoint("edge", "web", gone, "web-0"))
    before = haproxy.servers("web")
    haproxy.reload()
    assert haproxy.servers("web") == before
    assert weights(endpoints) == {PLACE: 30, SIX: 0}
    perform_one(endpoints, put(40, before=30))
    assert weights(endpoints) == {PLACE: 40, SIX: 0}


def test_without_a_state_file_a_look_after_a_reload_finds_an_empty_pool(haproxy: HAProxy, provider: Make) -> None:
    Path(haproxy.state).unlink(missing_ok=True)
    endpoints = provider()
    perform_one(endpoints, put(30))
    haproxy.reload()
    assert weights(endpoints) == {}
    perform_one(endpoints, put(30))
    assert weights(endpoints) == {PLACE: 30}


def test_the_state_file_holds_only_slots(haproxy: HAProxy, provider: Make) -> None:
    haproxy.ask("set server be_app/old1 weight 99", "set server be_app/old1 addr 192.0.2.200 port 99")
    perform_one(provider(stateFile=haproxy.state), put(10, pool="be_app:app"))
    text = Path(haproxy.state).read_text()
    assert "old1" not in text
    assert "app1 192.0.2.1" in text
    haproxy.reload()
    assert haproxy.servers("be_app")["old1"] == ("192.0.2.77:80", 7, 0)
    assert haproxy.servers("be_app")["app1"] == ("192.0.2.1:8080", 10, 4)


def test_repeating_what_is_there_writes_no_state_file(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider(stateFile=haproxy.state)
    perform_one(endpoints, put(10))
    Path(haproxy.state).unlink()
    perform_one(endpoints, put(10))
    assert not Path(haproxy.state).exists()


def test_a_state_file_that_cannot_be_written_is_reported(haproxy: HAProxy, provider: Make, tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    endpoints = provider(stateFile=str(tmp_path / "file"))
    with pytest.raises(OutcomeUnknown, match="HAProxy was written, but its state file was not"):
        perform_one(endpoints, put(10))
    assert weights(endpoints) == {PLACE: 10}


def test_a_session_after_a_reload_is_with_the_new_process(
    haproxy: HAProxy,
) -> None:
    old, _ = converse(haproxy.socket, _soon())
    with old, socket.socket(socket.AF_UNIX) as client:
        client.connect(haproxy.front)  # keeps the old worker busy
        haproxy.reload()
        new, _ = converse(haproxy.socket, _soon())
        with new:
            assert new.info.pid == haproxy.pid() != old.info.pid
            assert "Stopping: 1" in old.ask(["show info"])[0]


def test_a_reload_while_a_batch_is_written_is_noticed(haproxy: HAProxy, provider: Make) -> None:
    """The batch has set the weight and waits for the state file's lock, which the test holds, while HAProxy is reloaded."""
    endpoints = provider(stateFile=haproxy.state)
    lock = os.open(Path(haproxy.state).parent / ".reconciler.lock", os.O_RDWR | os.O_CREAT, 0o600)
    outcomes: list[object] = []
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        writer = threading.Thread(target=lambda: outcomes.extend(endpoints.perform([put(70)]).errors))
        writer.start()
        wait_until(lambda: haproxy.servers("web")["web1"][1] == 70, "the weight is set")
        haproxy.reload()
        fcntl.flock(lock, fcntl.LOCK_UN)
        writer.join(60)
    finally:
        os.close(lock)
    (outcome,) = outcomes
    assert isinstance(outcome, OutcomeUnknown)
    assert "reloaded during the write" in str(outcome)


def test_every_socket_is_written_and_read_back(haproxy: HAProxy, second: HAProxy, both: HAProxyEndpoints) -> None:
    perform_one(both, put(10))
    assert haproxy.servers("web")["web1"] == second.servers("web")["web1"] == ("192.0.2.1:8080", 10, 4)
    assert weights(both) == {PLACE: 10}


def test_slots_may_differ_between_processes(haproxy: HAProxy, second: HAProxy, both: HAProxyEndpoints) -> None:
    second.ask(*[f"set server web/web1 {what}" for what in ("addr 192.0.2.50 port 80", "state ready")])
    perform_one(both, put(10))
    assert haproxy.servers("web")["web1"][0] == second.servers("web")["web2"][0] == "192.0.2.1:8080"
    assert weights(both) == {PLACE: 10, Endpoint("192.0.2.50", 80): 0}


def test_a_member_on_which_processes_differ_is_written_everywhere(second: HAProxy, both: HAProxyEndpoints) -> None:
    perform_one(both, put(10))
    for spoil in ("weight 0", "weight 9", "state maint"):
        second.ask(f"set server web/web1 {spoil}")
        assert weights(both) == {PLACE: DISAGREE}
        perform_one(both, put(10, before=DISAGREE))
        assert weights(both) == {PLACE: 10}


def test_an_endpoint_that_one_process_has_lost_is_neither_gone_nor_drained(
    second: HAProxy, both: HAProxyEndpoints
) -> None:
    perform_one(both, put(10))
    second.reset()
    assert weights(both) == {PLACE: DISAGREE}
    perform_one(both, put(0, before=DISAGREE))
    second.reset()
    assert weights(both) == {PLACE: 0}
    perform_one(both, RemoveEndpoint("edge", "web", PLACE, "web-0"))
    assert weights(both) == {}


def test_one_silent_socket_makes_the_pool_unknown_and_stops_writes(haproxy: HAProxy, provider: Make) -> None:
    endpoints = provider(sockets=[haproxy.socket, "/nonexistent/two.sock"])
    with pytest.raises(Unreachable, match=r"/nonexistent/two\.sock"):
        endpoints.observe(["web"])
    with pytest.raises(Unreachable):
        perform_one(endpoints, put(10))
    assert haproxy.servers("web")["web1"] == ("127.0.0.1:1", 0, 5)


def test_a_backend_missing_in_one_process_is_reported_with_the_socket(haproxy: HAProxy, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="hap-") as directory:
        other = HAProxy(Path(directory), "    default_backend web_old\nbackend web_old\n    server a 192.0.2.1:80\n")
        try:
            settings = HAProxySettings.model_validate({"sockets": [haproxy.socket, other.socket]})
            endpoints = HAProxyEndpoints("edge", settings, Context("suite", str(tmp_path)))
            with pytest.raises(Rejected, match=f"HAProxy at {other.socket} has no backend 'web'"):
                perform_one(endpoints, put(10))
        finally:
            other.stop()
    assert haproxy.servers("web")["web1"] == ("127.0.0.1:1", 0, 5)


def _soon() -> float:
    return time.monotonic() + 60
