"""What changed in a zone since a serial (IXFR), put on top of what was known: never another zone than a whole transfer gives."""

from collections.abc import Callable, Sequence

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.actions import ChangeRecords, RecordChange
from providers.dns.rfc2136.settings import RFC2136Settings
from providers.dns.rfc2136.zones import RFC2136Zones
from providers.errors import Conflict, Unreachable
from providers.facts import RecordKey, RecordSet
from providers.spi import Context
from tests.providers.dns.rfc2136.name_servers import NameServer
from tests.providers.dns.rfc2136.relay import AXFR, IXFR, UPDATE, Relay, opcode, question_type

Make = Callable[..., Context]
ZONE = "told.test."
SOA = 6
A1 = RecordSet(60, ("192.0.2.1",))

LABELS = st.sampled_from(["a", "b", "*", "x.a"])
SETS = st.one_of(
    st.none(),
    st.builds(
        lambda ttl, last: RecordSet(ttl, tuple(sorted(f"192.0.2.{one}" for one in last))),
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
            told = watching.observe([zone])[0]
            assert (told.serial, dict(told.records)) == (whole.serial, dict(whole.records))

        law()
        assert relay.types.count(AXFR) == 1
        assert relay.types.count(IXFR) > 1


@pytest.mark.server("named")
def test_changes_that_do_not_come_to_their_end_are_unknown_and_the_next_look_reads_everything(
    named: NameServer, here: Make
) -> None:
    zone = named.new_zone()
    broken: list[int] = []
    relay = Relay(named.port, answers=lambda framed: None if broken and relay.types[-1] == IXFR else framed)
    with relay:
        watching, other = named.provider(here(), port=relay.port), named.provider(here())
        watching.observe([zone])
        key = RecordKey(f"a.{zone}", "A")
        other.perform(ChangeRecords("names", zone, (RecordChange(key, None, A1, "demo/record/a"),)))
        broken.append(1)
        with pytest.raises(Unreachable, match="is not complete and not used"):
            watching.observe([zone])
        assert watching.observe([zone])[0].records[key] == A1
        assert relay.types[-2:] == [SOA, AXFR]


# --- a server that says what a test wants --------------------------------------------------------------------------


class Scripted:
    """A name server without keys. `told` is its answer to IXFR: a code, or (serial, None) for a SOA and (serial, (label,
    address)) for an address, record after record.
    """

    def __init__(self) -> None:
        self.serial = 5
        self.addresses = {"a": "192.0.2.1"}
        self.told: Sequence[tuple[int, tuple[str, str] | None]] | int = ()
        self.asked: list[int] = []

    def answer(self, framed: bytes) -> bytes | None:
        request = dns.message.from_wire(framed[2:])
        reply = dns.message.make_response(request)
        reply.flags |= dns.flags.AA
        if opcode(framed[2:]) == UPDATE:
            return self._framed(reply)
        kind = question_type(framed[2:])
        self.asked.append(kind)
        if kind == IXFR and isinstance(self.told, int):
            reply.set_rcode(dns.rcode.Rcode.make(self.told))
        elif kind == IXFR:
            reply.answer = [self._soa(serial) if one is None else self._a(*one) for serial, one in self.told]
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


def seen(names: RFC2136Zones) -> dict[str, str]:
    (fact,) = names.observe([ZONE])
    return {key.name.partition(".")[0]: record.values[0] for key, record in fact.records.items()}


OLD, NEW, GOES, COMES = (5, None), (6, None), (5, ("a", "192.0.2.1")), (6, ("a", "192.0.2.9"))
FITS = [NEW, OLD, GOES, NEW, COMES, NEW]


@pytest.mark.parametrize(
    ("told", "serial", "whole"),
    [
        (FITS, 6, False),
        ([NEW, COMES, NEW], 6, False),  # the whole zone instead, as servers may do
        (FITS, 4, True),  # a restored zone
        (4, 6, True),  # NOTIMP
        ([NEW, OLD, (5, ("a", "192.0.2.7")), NEW, COMES, NEW], 6, True),  # what goes was never there
        ([NEW, OLD, NEW, (6, ("a", "192.0.2.1")), NEW], 6, True),  # what comes was there
        ([NEW, (4, None), GOES, NEW, COMES, NEW], 6, True),  # from another serial
        ([NEW, OLD, GOES, (7, None), COMES, NEW], 6, True),  # to another serial
        ([NEW, OLD, GOES, NEW, COMES, NEW, COMES], 6, True),
        ([OLD, OLD], 6, True),
    ],
)
def test_what_does_not_fit_onto_what_is_known_is_not_used(
    here: Make, told: Sequence[tuple[int, tuple[str, str] | None]] | int, serial: int, whole: bool
) -> None:
    script = Scripted()
    with Relay(None, answers=script.answer) as relay:
        names = provider(relay, here())
        assert seen(names) == {"a": "192.0.2.1"}
        script.told, script.serial, script.addresses = told, serial, {"a": "192.0.2.9"}
        assert seen(names) == {"a": "192.0.2.9"}
        assert script.asked.count(AXFR) == (2 if whole else 1)
        assert seen(names) == {"a": "192.0.2.9"}
        assert script.asked[-1] == SOA


def test_a_server_that_counts_its_serial_later_is_not_accused(here: Make) -> None:
    """Neither serial nor changes tell of an update then: a whole transfer judges it."""
    script = Scripted()
    key, before, after = RecordKey(f"a.{ZONE}", "A"), RecordSet(60, ("192.0.2.1",)), RecordSet(60, ("192.0.2.9",))
    write = ChangeRecords("names", ZONE, (RecordChange(key, before, after, "demo/record/a"),))
    with Relay(None, answers=script.answer) as relay:
        names = provider(relay, here())
        seen(names)
        with pytest.raises(Conflict, match="the server accepted the change"):
            names.perform(write)  # it says that it wrote, and did not

        def answer(framed: bytes) -> bytes | None:
            if opcode(framed[2:]) == UPDATE:
                script.addresses = {"a": "192.0.2.9"}
            return script.answer(framed)

        with Relay(None, answers=answer) as late:
            names = provider(late, here())
            assert seen(names) == {"a": "192.0.2.1"}
            names.perform(write)
            assert seen(names) == {"a": "192.0.2.9"}
