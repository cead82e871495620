"""Sets that do not fit into one update: never empty, never without their mark, and continued after a kill -9."""

from collections.abc import Callable

import pytest

from providers.dns.rfc2136.provider import RFC2136Zones
from providers.errors import Conflict, OutcomeUnknown, ProviderError, Rejected
from providers.facts import RecordKey, RecordSet
from providers.spi import Context
from providers.wrappers.owned import owned
from tests.providers.dns.rfc2136.name_servers import NameServer
from tests.providers.dns.rfc2136.relay import UPDATE, Relay, opcode
from tests.providers.dns.rfc2136.test_zones import OWNER, change

pytestmark = [pytest.mark.server("named"), pytest.mark.server("knotd"), pytest.mark.server("nsupdate")]
Make = Callable[..., Context]


def many(low: int, high: int, ttl: int = 60) -> RecordSet:
    return RecordSet(ttl, tuple(sorted(f"2001:db8::{number:x}" for number in range(low, high))))


@pytest.fixture(params=["named", "knot"])
def server(request: pytest.FixtureRequest) -> NameServer:
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["axfr", "queries"])
def read_back(request: pytest.FixtureRequest) -> str:
    return request.param


def observed(server: NameServer, context: Context, zone: str, read_back: str = "axfr") -> tuple[RecordSet | None, str]:
    """The long set as a new program reads it, and its owner."""
    (fact,) = owned(server.provider(context, readBack=read_back), "demo").observe([zone])
    key = RecordKey(f"long.{zone}", "AAAA")
    return fact.records.get(key), fact.owners.get(key, "")


def test_a_change_that_ends_in_between_is_continued(server: NameServer, here: Make, read_back: str) -> None:
    zone, context = server.new_zone(), here()
    before, after = many(1, 2001), many(1500, 3500, 120)
    first = owned(server.provider(context, readBack=read_back), "demo")
    first.perform(change(zone, ("long", "AAAA", None, before)))
    sent: list[int] = []

    def second_is_lost(message: bytes) -> None:
        # An update with changes: updates without any only compare.
        if opcode(message) == UPDATE and int.from_bytes(message[8:10], "big"):
            sent.append(len(message))
            if len(sent) == 2:
                raise ConnectionError

    with Relay(server.port, second_is_lost) as relay:
        cut = owned(server.provider(context, port=relay.port, readBack=read_back), "demo")
        with pytest.raises((OutcomeUnknown, ProviderError)):
            cut.perform(change(zone, ("long", "AAAA", before, after)))
    assert len(sent) == 2
    half, owner = observed(server, context, zone, read_back)
    assert half is not None
    assert owner == OWNER
    assert set(half.values) not in (set(before.values), set(after.values))
    assert len(half.values) == 2000
    assert half.ttl == 120
    owned(server.provider(context, readBack=read_back), "demo").perform(change(zone, ("long", "AAAA", half, after)))
    assert observed(server, context, zone, read_back) == (after, OWNER)


def test_a_set_is_never_empty_nor_larger_than_needed(server: NameServer, here: Make) -> None:
    zone, context = server.new_zone(), here()
    before, after = many(1, 2001), many(3001, 5001)
    owned(server.provider(context), "demo").perform(change(zone, ("long", "AAAA", None, before)))
    sizes: set[int] = set()

    def watch(message: bytes) -> None:
        if opcode(message) == UPDATE:
            seen, owner = observed(server, context, zone)
            assert owner == OWNER
            sizes.add(0 if seen is None else len(seen.values))

    with Relay(server.port, watch) as relay:
        owned(server.provider(context, port=relay.port), "demo").perform(change(zone, ("long", "AAAA", before, after)))
    assert sizes == {2000}
    assert observed(server, context, zone) == (after, OWNER)


def test_another_writer_between_two_messages_is_noticed(server: NameServer, here: Make) -> None:
    zone, context = server.new_zone(), here()
    before, after = many(1, 2001), many(1500, 3500)
    owned(server.provider(context), "demo").perform(change(zone, ("long", "AAAA", None, before)))
    sent: list[bytes] = []

    def interfere(message: bytes) -> None:
        if opcode(message) == UPDATE:
            sent.append(message)
            if len(sent) == 2:
                server.nsupdate([f"zone {zone}", f"update add long.{zone} 60 AAAA 2001:db8:f::1"])

    with Relay(server.port, interfere) as relay:
        names = owned(server.provider(context, port=relay.port), "demo")
        with pytest.raises(Conflict):
            names.perform(change(zone, ("long", "AAAA", before, after)))
    seen, owner = observed(server, context, zone)
    assert seen is not None
    assert "2001:db8:f::1" in seen.values
    assert owner == OWNER


def test_addresses_become_a_name_and_a_name_becomes_many_addresses(server: NameServer, here: Make) -> None:
    zone, context = server.new_zone(), here()
    alias, long = RecordSet(60, ("elsewhere.example.net.",)), many(1, 2201)
    names = owned(server.provider(context), "demo")
    names.perform(change(zone, ("long", "CNAME", None, alias)))
    names.perform(change(zone, ("long", "CNAME", alias, None), ("long", "AAAA", None, long)))
    assert observed(server, context, zone) == (long, OWNER)
    names.perform(change(zone, ("long", "AAAA", long, None), ("long", "CNAME", None, alias)))
    (fact,) = names.observe([zone])
    assert {key.type for key in fact.records if key.name == f"long.{zone}"} == {"CNAME"}


def test_the_limit_of_the_server_is_named_with_the_set(named: NameServer, here: Make) -> None:
    names = RFC2136Zones("names", named.settings(), here())
    with pytest.raises(Rejected) as error:
        names.perform(
            change(
                "few.test.", ("few", "AAAA", None, many(1, 300)), ("beside", "A", None, RecordSet(60, ("192.0.2.1",)))
            )
        )
    assert "few.few.test. AAAA with 299 values (SERVFAIL); nothing was changed" in error.value.cause
    assert "max-records-per-type" in error.value.next_step
    assert not error.value.whole
    (fact,) = names.observe(["few.test."])
    assert {key.name for key in fact.records} == {"few.test."}
