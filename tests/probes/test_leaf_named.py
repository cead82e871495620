"""Probes at a host name: resolved for each probe, any address will do, and ignorance is never the target's failure."""

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
from reconciler.probes.resolve import Found, Lookup, Resolver, listed
from reconciler.probes.slot import IDLE, WAITING, Pool, Slot
from reconciler.probes.streak import CANNOT_RUN, FAIL, PASS, UNKNOWN
from reconciler.probes.target import Target, same
from tests.probes.helpers import MS, PATIENCE, Watch, steady
from tests.probes.servers import CERTIFICATE, Server, answers, never_answers, read_request, serving

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
BAD = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"
LOOPBACK = ("127.0.0.0/8", "::1/128")


class OneProbe:
    """The child's parts around one named target, without the rest of the loop."""

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
        self.slot.more, self.slot.rules = spec, Rules(frozenset({200}), 0, False)

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
        fresh, self.net.fresh = self.net.fresh, []
        for slot, run in fresh:
            if slot.run == run:
                slot.prober.look(slot)

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
    one_probe = OneProbe(lookup, port, allowed)
    try:
        yield one_probe
    finally:
        one_probe.close()


def leads_to(*addresses: str, more: int = 0) -> Lookup:
    return lambda _: Found(addresses, more)


def test_one_address_that_passes_is_enough_and_the_others_are_let_go() -> None:
    with serving(answers(OK)) as [up], probing(leads_to("127.0.0.2", "127.0.0.1", "127.0.0.3"), up.port) as one:
        assert one.result() == (PASS, "HTTP 200 (127.0.0.1)")


def test_a_silent_address_does_not_take_the_time_of_the_one_that_answers() -> None:
    with serving(answers(OK)) as [up], probing(leads_to("240.0.0.1", "127.0.0.1"), up.port) as one:
        result, detail = one.result()
        assert (result, "127.0.0.1" in detail) == (PASS, True)


def test_all_addresses_failing_is_a_failure_that_names_each() -> None:
    with serving(answers(BAD)) as [down], probing(leads_to("127.0.0.1", "127.0.0.2"), down.port) as one:
        assert one.result() == (FAIL, "127.0.0.1: HTTP 503; 127.0.0.2: connection refused")


def test_an_address_off_limits_is_never_connected_to_whatever_the_others_say() -> None:
    with serving(answers(OK)) as [inside], probing(leads_to("127.0.0.1"), inside.port, allowed=()) as one:
        result, detail = one.result()
        assert result == CANNOT_RUN
        assert "app.example: 127.0.0.1 is a loopback address" in detail
        assert inside.accepted == 0


def test_a_refused_address_beside_one_that_fails_is_no_failure() -> None:
    with serving(answers(BAD)) as [down], probing(leads_to("127.0.0.1", "::1"), down.port, ("127.0.0.0/8",)) as one:
        assert one.result()[0] == CANNOT_RUN


def test_addresses_that_were_too_many_to_ask_keep_failures_from_counting() -> None:
    with serving(answers(BAD)) as [down], probing(leads_to("127.0.0.1", more=3), down.port) as one:
        result, detail = one.result()
        assert (result, detail[:32]) == (UNKNOWN, "3 more addresses were not asked;")


def test_a_name_that_is_not_found_is_unknown() -> None:
    with probing(lambda _: Found((), problem="name or service not known"), 80) as one:
        assert one.result() == (UNKNOWN, "app.example cannot be resolved: name or service not known")


def test_a_resolver_that_breaks_is_unknown() -> None:
    def broken(_: str) -> Found:
        raise RuntimeError("no")

    with probing(broken, 80) as one:
        assert one.result()[0] == UNKNOWN


def test_a_resolver_that_hangs_is_unknown_at_the_deadline_and_its_late_answer_belongs_to_nobody() -> None:
    release = Event()

    def slow(_: str) -> Found:
        release.wait(PATIENCE)
        return Found(("127.0.0.1",))

    with serving(answers(OK)) as [up], probing(slow, up.port) as one:
        one.start()
        one.turn()
        one.prober.expire(one.slot)
        assert one.results.pop() == (UNKNOWN, "app.example was not resolved within 2s")
        release.set()
        for _ in range(10):
            one.turn()
        assert not one.results
        assert up.accepted == 0
        assert one.result()[0] == PASS


def test_time_that_runs_out_while_an_address_is_silent_is_a_failure() -> None:
    with serving(never_answers) as [mute], probing(leads_to("127.0.0.1"), mute.port) as one:
        one.start()
        one.until(lambda: mute.accepted == 1)
        one.prober.expire(one.slot)
        assert one.results == [(FAIL, "127.0.0.1: timed out after 2s waiting for the answer")]


def test_a_target_that_goes_leaves_no_socket_behind() -> None:
    with serving(never_answers) as [mute], probing(leads_to("127.0.0.1"), mute.port) as one:
        one.start()
        one.until(lambda: mute.accepted == 1)
        one.slot.gone = True
        one.prober.abort(one.slot)
        assert not one.table
        assert len(one.results) == 1


def test_a_name_is_looked_up_once_for_all_who_ask_and_again_the_next_time() -> None:
    asked: list[str] = []
    release = Event()

    def lookup(name: str) -> Found:
        asked.append(name)
        release.wait(PATIENCE)
        return Found(("10.0.0.1",))

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


def test_a_hanging_name_does_not_hold_up_another() -> None:
    release = Event()

    def lookup(name: str) -> Found:
        if name == "dead.example":
            release.wait(PATIENCE)
        return Found(("10.0.0.1",))

    resolver: Resolver[int] = Resolver(lookup)
    resolver.ask("dead.example", 1)
    resolver.ask("live.example", 2)
    assert select.select([resolver.fd], [], [], PATIENCE)[0]
    assert [token for token, _ in resolver.answers()] == [2]
    release.set()
    resolver.close()


def test_hosts_files_count_by_exact_name() -> None:
    lines = [
        b"# a comment",
        b"10.0.0.1 one.example uno # one",
        b"::1 One.Example",
        b"nonsense one.example",
        b"",
        b"10.0.0.9",
    ]
    assert listed(lines, "one.example") == ["10.0.0.1", "::1"]
    assert listed(lines, "uno") == ["10.0.0.1"]
    assert listed(lines, "example") == []


# --- through the engine -------------------------------------------------------------------------------------------


def leaf(address: str, port: int, allowed: tuple[str, ...] = ("127.0.0.0/8", "::1/128"), **probe: object) -> Target:
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


def heard(said: list[bytes]) -> Callable[[object, Event], None]:
    def behave(conn: object, stop: Event) -> None:
        said.append(read_request(conn))  # type: ignore[arg-type]
        conn.sendall(OK)  # type: ignore[attr-defined]

    return behave


def test_a_host_name_is_resolved_and_asked_with_the_host_of_the_policy(engine: ProbeEngine, watch: Watch) -> None:
    said: list[bytes] = []
    with serving(heard(said)) as [up]:
        engine.set_targets([leaf("localhost.", up.port)])
        fact = watch.of("leaf localhost.")
    assert fact.value is ProbeValue.PASS
    assert "(127.0.0.1)" in fact.detail
    assert b"\r\nHost: app.example\r\n" in said[0]


def test_an_address_off_limits_cannot_be_run_by_number_or_by_name(engine: ProbeEngine, watch: Watch) -> None:
    with serving(answers(OK)) as [inside]:
        engine.set_targets([leaf("127.0.0.1", inside.port, ()), leaf("localhost.", inside.port, ())])
        facts = watch.until(lambda facts: len(facts) == 2)
        assert {fact.value for fact in facts.values()} == {ProbeValue.CANNOT_RUN}
        assert all("loopback" in fact.detail for fact in facts.values())
        assert inside.accepted == 0


def test_a_name_is_asked_over_tls_under_the_name_of_the_policy(engine: ProbeEngine, watch: Watch) -> None:
    with secure() as (port, names):
        tls = ProbeTLS(verify=False, server_name="app.example")
        engine.set_targets([leaf("localhost.", port, scheme="HTTPS", tls=tls)])
        assert watch.of("leaf localhost.").value is ProbeValue.PASS
    assert names == ["app.example"]


def test_a_certificate_that_is_not_trusted_fails_at_a_name_too(engine: ProbeEngine, watch: Watch) -> None:
    with secure() as (port, _):
        tls = ProbeTLS(verify=True, server_name="app.example")
        engine.set_targets([leaf("localhost.", port, scheme="HTTPS", tls=tls, failure_threshold=1)])
        fact = watch.of("leaf localhost.")
    assert fact.value is ProbeValue.FAIL
    assert "the certificate is not trusted" in fact.detail


def test_a_redirect_of_a_leaf_is_judged_by_its_own_status(engine: ProbeEngine, watch: Watch) -> None:
    moved = answers(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n")
    with serving(moved, moved) as [one, other]:
        wanted = leaf("127.0.0.1", one.port, expected=((302, 302),))
        unwanted = leaf("localhost.", other.port, failure_threshold=1)
        engine.set_targets([wanted, unwanted])
        facts = watch.until(lambda facts: len(facts) == 2)
    assert facts["leaf 127.0.0.1"].value is ProbeValue.PASS
    assert facts["leaf localhost."].value is ProbeValue.FAIL
    assert "HTTP 302" in facts["leaf localhost."].detail


def test_the_failure_before_the_threshold_is_no_verdict(engine: ProbeEngine, watch: Watch) -> None:
    with serving(answers(BAD)) as [down]:
        engine.set_targets([leaf("localhost.", down.port, failure_threshold=3)])
        first = watch.of("leaf localhost.")
        assert (first.value, first.last, first.streak) == (ProbeValue.UNKNOWN, ProbeValue.FAIL, 1)
        last = watch.until(lambda facts: facts["leaf localhost."].value is ProbeValue.FAIL)
    assert last["leaf localhost."].streak == 3


def test_what_is_allowed_is_part_of_what_is_asked() -> None:
    assert not same(leaf("127.0.0.1", 80), leaf("127.0.0.1", 80, ()))
    assert same(leaf("127.0.0.1", 80), leaf("127.0.0.1", 80)._replace(started=steady()))


@contextmanager
def secure() -> Iterator[tuple[int, list[str]]]:
    """An HTTPS server that notes the names it is asked for."""
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
def test_a_name_that_leads_nowhere_is_unknown_again_and_again(engine: ProbeEngine, watch: Watch, address: str) -> None:
    engine.set_targets([leaf(address, 80, failure_threshold=1)])
    fact = watch.of(f"leaf {address}")
    assert (fact.value, fact.last) == (ProbeValue.UNKNOWN, ProbeValue.UNKNOWN)
