"""Probes at a host name: the name is resolved for each probe, one passing address is enough, and an unresolved name never fails."""

import select
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

import pytest

from manifests.values.desired import Probe, ProbeKind, ProbeTLS
from providers.facts import Generation, ProbeValue
from reconciler.probes import messages
from reconciler.probes.answer import Rules
from reconciler.probes.engine import ProbeEngine
from reconciler.probes.messages import Spec
from reconciler.probes.named import NamedProber
from reconciler.probes.net import Net
from reconciler.probes.resolve import Lookup, Resolution, Resolver, hosts_addresses
from reconciler.probes.slot import IDLE, WAITING, Pool, Slot
from reconciler.probes.streak import CANNOT_RUN, FAIL, PASS, UNKNOWN
from reconciler.probes.target import Target, same_target
from tests.probes.helpers import MS, PATIENCE, Watch, steady
from tests.probes.servers import CERTIFICATE, Server, answers, never_answers, read_request, serving

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
BAD = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"
LOOPBACK = ("127.0.0.0/8", "::1/128")


class OneProbe:
    """The parts of the child around one target with a host name, without the rest of the loop."""

    def __init__(self, lookup: Lookup, port: int, allowed: tuple[str, ...] = LOOPBACK) -> None:
        self.epoll = select.epoll()
        self.table: dict[int, Slot] = {}
        self.results: list[tuple[int, str]] = []
        self.net = Net(self.epoll, self.table, self._finish)
        self.prober = NamedProber(self.epoll, self.table, self.net, lookup)
        request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        spec = Spec(
            1, messages.HTTP, "", port, 1, 2_000 * MS, 1, 1, 1, 0, 0, request, name="app.example", allowed=allowed
        )
        self.slot = Slot(spec, self.prober, Pool(1), 0)
        self.slot.spec, self.slot.rules = spec, Rules(frozenset({200}), 0, False)

    def _finish(self, slot: Slot, result: int, detail: str) -> None:
        assert slot is self.slot
        slot.stage = IDLE
        slot.run += 1
        self.results.append((result, detail))

    def start(self) -> None:
        self.slot.stage = WAITING
        self.slot.run += 1
        self.prober.start(self.slot)

    def turn(self) -> None:
        for fd, mask in self.epoll.poll(0.01):
            if fd == self.prober.fd:
                self.prober.resolved()
            elif fd in self.table:
                slot = self.table[fd]
                slot.prober.event(slot, mask)
        to_check, self.net.to_check = self.net.to_check, []
        for slot, run in to_check:
            if slot.run == run:
                slot.prober.check(slot)

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, self.results
            self.turn()

    def result(self) -> tuple[int, str]:
        self.start()
        self.until(lambda: bool(self.results))
        assert len(self.results) == 1
        assert not self.table
        return self.results.pop()

    def close(self) -> None:
        for slot in list(self.table.values()):
            self.net.drop(slot)
        self.prober.close()
        self.epoll.close()


@contextmanager
def probing(lookup: Lookup, port: int, allowed: tuple[str, ...] = LOOPBACK) -> Iterator[OneProbe]:
    probe = OneProbe(lookup, port, allowed)
    try:
        yield probe
    finally:
        probe.close()


def leads_to(*addresses: str, more: int = 0) -> Lookup:
    return lambda _: Resolution(addresses, more)


def test_one_passing_address_is_enough() -> None:
    with serving(answers(OK)) as [up], probing(leads_to("127.0.0.2", "127.0.0.1", "127.0.0.3"), up.port) as probe:
        assert probe.result() == (PASS, "HTTP 200 (127.0.0.1)")


def test_a_silent_address_does_not_delay_one_that_answers() -> None:
    with serving(answers(OK)) as [up], probing(leads_to("240.0.0.1", "127.0.0.1"), up.port) as probe:
        result, detail = probe.result()
        assert (result, "127.0.0.1" in detail) == (PASS, True)


def test_a_failure_of_all_addresses_names_each() -> None:
    with serving(answers(BAD)) as [down], probing(leads_to("127.0.0.1", "127.0.0.2"), down.port) as probe:
        assert probe.result() == (FAIL, "127.0.0.1: HTTP 503; 127.0.0.2: connection refused")


def test_an_address_off_limits_is_never_connected_to() -> None:
    with serving(answers(OK)) as [inside], probing(leads_to("127.0.0.1"), inside.port, allowed=()) as probe:
        result, detail = probe.result()
        assert result == CANNOT_RUN
        assert "app.example: 127.0.0.1 is a loopback address" in detail
        assert inside.accepted == 0


def test_an_address_off_limits_beside_a_failing_one_is_cannot_run() -> None:
    with serving(answers(BAD)) as [down], probing(leads_to("127.0.0.1", "::1"), down.port, ("127.0.0.0/8",)) as probe:
        assert probe.result()[0] == CANNOT_RUN


def test_failures_are_unknown_when_addresses_were_left_out() -> None:
    with serving(answers(BAD)) as [down], probing(leads_to("127.0.0.1", more=3), down.port) as probe:
        result, detail = probe.result()
        assert (result, detail.partition(";")[0]) == (UNKNOWN, "3 more addresses were not probed")


def test_an_unresolvable_name_is_unknown() -> None:
    with probing(lambda _: Resolution((), problem="name or service not known"), 80) as probe:
        assert probe.result() == (UNKNOWN, "app.example cannot be resolved: name or service not known")


def test_an_error_in_the_resolver_is_unknown() -> None:
    def broken(_: str) -> Resolution:
        raise RuntimeError("no")

    with probing(broken, 80) as probe:
        assert probe.result()[0] == UNKNOWN


def test_a_hanging_resolver_is_unknown_and_its_late_answer_is_ignored() -> None:
    release = Event()

    def slow(_: str) -> Resolution:
        release.wait(PATIENCE)
        return Resolution(("127.0.0.1",))

    with serving(answers(OK)) as [up], probing(slow, up.port) as probe:
        probe.start()
        probe.turn()
        probe.prober.expire(probe.slot)
        assert probe.results.pop() == (UNKNOWN, "app.example was not resolved within 2s")
        release.set()
        for _ in range(10):
            probe.turn()
        assert not probe.results
        assert up.accepted == 0
        assert probe.result()[0] == PASS


def test_a_silent_address_fails_at_the_deadline() -> None:
    with serving(never_answers) as [mute], probing(leads_to("127.0.0.1"), mute.port) as probe:
        probe.start()
        probe.until(lambda: mute.accepted == 1)
        probe.prober.expire(probe.slot)
        assert probe.results == [(FAIL, "127.0.0.1: timed out after 2s waiting for the answer")]


def test_a_removed_target_leaves_no_socket_behind() -> None:
    with serving(never_answers) as [mute], probing(leads_to("127.0.0.1"), mute.port) as probe:
        probe.start()
        probe.until(lambda: mute.accepted == 1)
        probe.slot.gone = True
        probe.prober.abort(probe.slot)
        assert not probe.table
        assert len(probe.results) == 1


def test_concurrent_questions_share_one_look_up() -> None:
    asked: list[str] = []
    release = Event()

    def lookup(name: str) -> Resolution:
        asked.append(name)
        release.wait(PATIENCE)
        return Resolution(("10.0.0.1",))

    resolver: Resolver[int] = Resolver(lookup)
    for number in range(3):
        resolver.ask("one.example", number)
    resolver.forget("one.example", 1)
    release.set()
    assert select.select([resolver.fd], [], [], PATIENCE)[0]
    assert [token for token, _ in resolver.answers()] == [0, 2]
    assert asked == ["one.example"]
    resolver.ask("one.example", 9)
    assert select.select([resolver.fd], [], [], PATIENCE)[0]
    assert [token for token, _ in resolver.answers()] == [9]
    assert len(asked) == 2
    resolver.close()


def test_a_hanging_name_does_not_delay_another() -> None:
    release = Event()

    def lookup(name: str) -> Resolution:
        if name == "dead.example":
            release.wait(PATIENCE)
        return Resolution(("10.0.0.1",))

    resolver: Resolver[int] = Resolver(lookup)
    resolver.ask("dead.example", 1)
    resolver.ask("live.example", 2)
    assert select.select([resolver.fd], [], [], PATIENCE)[0]
    assert [token for token, _ in resolver.answers()] == [2]
    release.set()
    resolver.close()


def test_the_hosts_file_matches_exact_names() -> None:
    lines = [
        b"# a comment",
        b"10.0.0.1 one.example uno # one",
        b"::1 One.Example",
        b"nonsense one.example",
        b"",
        b"10.0.0.9",
    ]
    assert hosts_addresses(lines, "one.example") == ["10.0.0.1", "::1"]
    assert hosts_addresses(lines, "uno") == ["10.0.0.1"]
    assert hosts_addresses(lines, "example") == []


# --- through the engine -------------------------------------------------------------------------------------------


def target_address(
    address: str, port: int, allowed: tuple[str, ...] = ("127.0.0.0/8", "::1/128"), **probe: object
) -> Target:
    declared: dict[str, object] = {
        "kind": ProbeKind.HTTP,
        "port": port,
        "period": 700 * MS,
        "timeout": 10_000 * MS,
        "failure_threshold": 2,
        "follow": False,
        "expected": ((200, 200),),
        "host": "app.example",
    }
    asked = Probe(**(declared | probe))  # type: ignore[arg-type]
    return Target(Generation(f"leaf {address}", 0), "leaf", asked, address, port, 0, allowed=allowed)


def recording(requests: list[bytes]) -> Callable[[object, Event], None]:
    def behave(conn: object, stop: Event) -> None:
        requests.append(read_request(conn))  # type: ignore[arg-type]
        conn.sendall(OK)  # type: ignore[attr-defined]

    return behave


def test_a_host_name_is_resolved_and_probed_with_the_host_of_the_policy(engine: ProbeEngine, watch: Watch) -> None:
    requests: list[bytes] = []
    with serving(recording(requests)) as [up]:
        engine.set_targets([target_address("localhost.", up.port)])
        fact = watch.of("leaf localhost.")
    assert fact.value is ProbeValue.PASS
    assert "(127.0.0.1)" in fact.detail
    assert b"\r\nHost: app.example\r\n" in requests[0]


def test_an_address_off_limits_cannot_run_by_number_or_by_name(engine: ProbeEngine, watch: Watch) -> None:
    with serving(answers(OK)) as [inside]:
        engine.set_targets(
            [target_address("127.0.0.1", inside.port, ()), target_address("localhost.", inside.port, ())]
        )
        facts = watch.until(lambda facts: len(facts) == 2)
        assert {fact.value for fact in facts.values()} == {ProbeValue.CANNOT_RUN}
        assert all("loopback" in fact.detail for fact in facts.values())
        assert inside.accepted == 0


def test_a_host_name_is_probed_over_tls_with_the_name_of_the_policy(engine: ProbeEngine, watch: Watch) -> None:
    with tls_server() as (port, names):
        tls = ProbeTLS(verify=False, server_name="app.example")
        engine.set_targets([target_address("localhost.", port, scheme="HTTPS", tls=tls)])
        assert watch.of("leaf localhost.").value is ProbeValue.PASS
    assert names == ["app.example"]


def test_an_untrusted_certificate_fails_at_a_host_name(engine: ProbeEngine, watch: Watch) -> None:
    with tls_server() as (port, _):
        tls = ProbeTLS(verify=True, server_name="app.example")
        engine.set_targets([target_address("localhost.", port, scheme="HTTPS", tls=tls, failure_threshold=1)])
        fact = watch.of("leaf localhost.")
    assert fact.value is ProbeValue.FAIL
    assert "the certificate is not trusted" in fact.detail


def test_a_redirect_of_a_target_address_is_judged_by_its_status(engine: ProbeEngine, watch: Watch) -> None:
    moved = answers(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n")
    with serving(moved, moved) as [probe, other]:
        wanted = target_address("127.0.0.1", probe.port, expected=((302, 302),))
        unwanted = target_address("localhost.", other.port, failure_threshold=1)
        engine.set_targets([wanted, unwanted])
        facts = watch.until(lambda facts: len(facts) == 2)
    assert facts["leaf 127.0.0.1"].value is ProbeValue.PASS
    assert facts["leaf localhost."].value is ProbeValue.FAIL
    assert "HTTP 302" in facts["leaf localhost."].detail


def test_failures_below_the_threshold_are_no_verdict(engine: ProbeEngine, watch: Watch) -> None:
    with serving(answers(BAD)) as [down]:
        engine.set_targets([target_address("localhost.", down.port, failure_threshold=3)])
        first = watch.of("leaf localhost.")
        assert (first.value, first.last, first.streak) == (ProbeValue.UNKNOWN, ProbeValue.FAIL, 1)
        last = watch.until(lambda facts: facts["leaf localhost."].value is ProbeValue.FAIL)
    assert last["leaf localhost."].streak == 3


def test_a_target_changes_with_its_allowed_networks() -> None:
    assert not same_target(target_address("127.0.0.1", 80), target_address("127.0.0.1", 80, ()))
    assert same_target(target_address("127.0.0.1", 80), target_address("127.0.0.1", 80)._replace(started=steady()))


@contextmanager
def tls_server() -> Iterator[tuple[int, list[str]]]:
    """An HTTPS server that records the requested server names."""
    names: list[str] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    context.sni_callback = lambda _, name, __: names.append(name or "")  # type: ignore[assignment]

    def behave(conn: object, stop: Event) -> None:
        try:
            with context.wrap_socket(conn, server_side=True) as wrapped:  # type: ignore[call-overload]
                read_request(wrapped)
                wrapped.sendall(OK)
        except OSError:
            return

    server = Server(behave)
    try:
        yield server.port, names
    finally:
        server.close()


@pytest.mark.parametrize("address", ["nosuch.", "two.labels.invalid."])
def test_an_unresolvable_name_stays_unknown(engine: ProbeEngine, watch: Watch, address: str) -> None:
    engine.set_targets([target_address(address, 80, failure_threshold=1)])
    fact = watch.of(f"leaf {address}")
    assert (fact.value, fact.last) == (ProbeValue.UNKNOWN, ProbeValue.UNKNOWN)
