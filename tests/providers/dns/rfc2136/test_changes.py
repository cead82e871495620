"""Changes of a zone since a serial (IXFR), applied to the known zone: the result equals a whole transfer."""

from collections.abc import Callable, Sequence

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.actions import ChangeRecords, RecordChange
from providers.dns.rfc2136.provider import RFC2136Zones
from providers.dns.rfc2136.settings import RFC2136Settings
from providers.errors import Conflict, Unreachable
from providers.facts import RecordKey, RecordSet
from providers.spi import Context
from tests.providers.dns.rfc2136.name_servers import NameServer
from tests.providers.dns.rfc2136.relay import AXFR, IXFR, UPDATE, Relay, opcode, question_type

Make = Callable[..., Context]
ZONE = "changes.test."
SOA = 6
A1 = RecordSet(60, ("192.0.2.1",))

LABELS = st.sampled_from(["a", "b", "*", "x.a"])
SETS = st.one_of(
    st.none(),
    st.builds(
        lambda ttl, last: RecordSet(ttl, tuple(sorted(f"192.0.2.{number}" for number in last))),
        st.sampled_from([60, 300]),
        st.sets(st.integers(1, 4), min_size=1),
    ),
)
ZONES = st.lists(st.dictionaries(LABELS, SETS, min_size=1), min_size=2, max_size=5)


# --- real servers -------------------------------------------------------------------------------------------------


@pytest.mark.server("named")
@pytest.mark.server("knotd")
@pytest.mark.parametrize("kind", ["named", "knot"])
def test_changes_of_others_make_the_same_zone_as_a_whole_transfer(
    request: pytest.FixtureRequest, here: Make, kind: str
) -> None:
    server: NameServer = request.getfixturevalue(kind)
    zone = server.new_zone()
    with Relay(server.port) as relay:
        watching = server.provider(here(), port=relay.port)
        watching.observe([zone])
        other = server.provider(here())

        @settings(max_examples=10)
        @given(ZONES)
        def law(wanted: Sequence[dict[str, RecordSet | None]]) -> None:
            for states in wanted:
                (fact,) = other.observe([zone])
                changes = []
                for label, after in states.items():
                    key = RecordKey(f"{label}.{zone}", "A")
                    changes.append(RecordChange(key, fact.records.get(key), after, "demo/record/a"))
                other.perform(ChangeRecords("names", zone, tuple(changes)))
            whole = server.provider(here()).observe([zone])[0]
            caught_up = watching.observe([zone])[0]
            assert (caught_up.serial, dict(caught_up.records)) == (whole.serial, dict(whole.records))

        law()
        assert relay.types.count(AXFR) == 1
        assert relay.types.count(IXFR) > 1


@pytest.mark.server("named")
def test_after_incomplete_changes_the_next_look_transfers_the_whole_zone(named: NameServer, here: Make) -> None:
    zone = named.new_zone()
    broken: list[int] = []
    relay = Relay(named.port, answers=lambda framed: None if broken and relay.types[-1] == IXFR else framed)
    with relay:
        watching, other = named.provider(here(), port=relay.port), named.provider(here())
        watching.observe([zone])
        key = RecordKey(f"a.{zone}", "A")
        other.perform(ChangeRecords("names", zone, (RecordChange(key, None, A1, "demo/record/a"),)))
        broken.append(1)
        with pytest.raises(Unreachable, match="the incomplete changes are not used"):
            watching.observe([zone])
        assert watching.observe([zone])[0].records[key] == A1
        assert relay.types[-2:] == [SOA, AXFR]


# --- a scripted server --------------------------------------------------------------------------


class Scripted:
    """A name server without keys. `changes` is its answer to IXFR: a code, or (serial, None) for a SOA and (serial, (label,
    address)) for an address, record after record.
    """

    def __init__(self) -> None:
        self.serial = 5
        self.addresses = {"a": "192.0.2.1"}
        self.changes: Sequence[tuple[int, tuple[str, str] | None]] | int = ()
        self.asked: list[int] = []

    def answer(self, framed: bytes) -> bytes | None:
        request = dns.message.from_wire(framed[2:])
        reply = dns.message.make_response(request)
        reply.flags |= dns.flags.AA
        if opcode(framed[2:]) == UPDATE:
            return self._framed(reply)
        kind = question_type(framed[2:])
        self.asked.append(kind)
        if kind == IXFR and isinstance(self.changes, int):
            reply.set_rcode(dns.rcode.Rcode.make(self.changes))
        elif kind == IXFR:
            reply.answer = [
                self._soa(serial) if address is None else self._a(*address) for serial, address in self.changes
            ]
        elif kind == AXFR:
            soa = self._soa(self.serial)
            reply.answer = [soa, *(self._a(*address) for address in self.addresses.items()), soa]
        else:
            reply.answer = [self._soa(self.serial)]
        return self._framed(reply)

    def _soa(self, serial: int) -> dns.rrset.RRset:
        return dns.rrset.from_text(ZONE, 60, "IN", "SOA", f"ns.{ZONE} who.{ZONE} {serial} 1 1 1 60")

    def _a(self, label: str, address: str) -> dns.rrset.RRset:
        return dns.rrset.from_text(f"{label}.{ZONE}", 60, "IN", "A", address)

    def _framed(self, reply: dns.message.Message) -> bytes:
        wire = reply.to_wire(max_size=65_535)
        return len(wire).to_bytes(2, "big") + wire


def provider(relay: Relay, context: Context) -> RFC2136Zones:
    settings = RFC2136Settings.model_validate({"server": "127.0.0.1", "port": relay.port, "timeout": "5s"})
    return RFC2136Zones("names", settings, context)


def addresses(names: RFC2136Zones) -> dict[str, str]:
    (fact,) = names.observe([ZONE])
    return {key.name.partition(".")[0]: record.values[0] for key, record in fact.records.items()}


OLD, NEW, REMOVED, ADDED = (5, None), (6, None), (5, ("a", "192.0.2.1")), (6, ("a", "192.0.2.9"))
FITS = [NEW, OLD, REMOVED, NEW, ADDED, NEW]


@pytest.mark.parametrize(
    ("changes", "serial", "whole"),
    [
        (FITS, 6, False),
        ([NEW, ADDED, NEW], 6, False),  # the whole zone instead, as servers may do
        (FITS, 4, True),  # a restored zone
        (4, 6, True),  # NOTIMP
        ([NEW, OLD, (5, ("a", "192.0.2.7")), NEW, ADDED, NEW], 6, True),  # the removed record was never present
        ([NEW, OLD, NEW, (6, ("a", "192.0.2.1")), NEW], 6, True),  # the added record was present
        ([NEW, (4, None), REMOVED, NEW, ADDED, NEW], 6, True),  # from another serial
        ([NEW, OLD, REMOVED, (7, None), ADDED, NEW], 6, True),  # to another serial
        ([NEW, OLD, REMOVED, NEW, ADDED, NEW, ADDED], 6, True),
        ([OLD, OLD], 6, True),
    ],
)
def test_changes_that_do_not_fit_the_known_zone_are_not_used(
    here: Make, changes: Sequence[tuple[int, tuple[str, str] | None]] | int, serial: int, whole: bool
) -> None:
    script = Scripted()
    with Relay(None, answers=script.answer) as relay:
        names = provider(relay, here())
        assert addresses(names) == {"a": "192.0.2.1"}
        script.changes, script.serial, script.addresses = changes, serial, {"a": "192.0.2.9"}
        assert addresses(names) == {"a": "192.0.2.9"}
        assert script.asked.count(AXFR) == (2 if whole else 1)
        assert addresses(names) == {"a": "192.0.2.9"}
        assert script.asked[-1] == SOA


def test_a_server_may_increment_its_serial_later(here: Make) -> None:
    """Then neither serial nor changes contain an update: a whole transfer decides."""
    script = Scripted()
    key, before, after = RecordKey(f"a.{ZONE}", "A"), RecordSet(60, ("192.0.2.1",)), RecordSet(60, ("192.0.2.9",))
    write = ChangeRecords("names", ZONE, (RecordChange(key, before, after, "demo/record/a"),))
    with Relay(None, answers=script.answer) as relay:
        names = provider(relay, here())
        addresses(names)
        with pytest.raises(Conflict, match="the server accepted the change"):
            names.perform(write)  # it accepts the update and does not write

        def answer(framed: bytes) -> bytes | None:
            if opcode(framed[2:]) == UPDATE:
                script.addresses = {"a": "192.0.2.9"}
            return script.answer(framed)

        with Relay(None, answers=answer) as late:
            names = provider(late, here())
            assert addresses(names) == {"a": "192.0.2.1"}
            names.perform(write)
            assert addresses(names) == {"a": "192.0.2.9"}
