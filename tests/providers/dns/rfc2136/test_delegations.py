"""Delegations on BIND and Knot: read by transfer and by queries, also where the same server has the delegated zone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from providers.dns.common.ownership import mark_key
from providers.errors import Rejected
from providers.facts import RecordKey, RecordSet, ZoneFact
from providers.spi import Context
from providers.wrappers.owned import OwnedDNS, owned
from tests.providers.dns.rfc2136.name_servers import BORN, Knot, Named, NameServer
from tests.providers.dns.rfc2136.test_zones import A1, A2, change

pytestmark = [pytest.mark.server("named"), pytest.mark.server("knotd"), pytest.mark.server("nsupdate")]
Make = Callable[..., Context]

ZONE, CHILD = "above.test.", "child.above.test."
CHILDS_OWN = "@ NS ns9.example.net.\nns1 A 198.51.100.7\nwww A 198.51.100.8\n"
EXTRA = {CHILD: BORN.format(zone=CHILD) + CHILDS_OWN, ZONE: BORN.format(zone=ZONE)}


@pytest.fixture(scope="module", params=[Named, Knot])
def parents(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    """A server that has a zone and the zone that it delegates."""
    directory: Path = tmp_path_factory.mktemp("parents")
    server: NameServer = request.param(directory, EXTRA)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(params=["axfr", "queries"])
def names(request: pytest.FixtureRequest, parents: NameServer, here: Make) -> Iterator[OwnedDNS]:
    provider = owned(parents.provider(here(), readBack=request.param), "demo")
    yield provider
    for key, record in look(provider).records.items():
        if key in look(provider).owners:
            provider.perform(change(ZONE, (key.name.removesuffix("." + ZONE), key.type, record, None)))


def look(names: OwnedDNS) -> ZoneFact:
    (fact,) = names.observe([ZONE])
    return fact


def key(label: str, kind: str) -> RecordKey:
    return RecordKey(f"{label}.{ZONE}", kind)


def test_the_delegation_of_a_zone_on_the_same_server_is_read_back(names: OwnedDNS) -> None:
    servers = RecordSet(300, ("ns1.child.above.test.", "ns2.example.net."))
    fewer = RecordSet(600, ("ns1.child.above.test.",))
    names.perform(change(ZONE, ("child", "NS", None, servers)))
    names.perform(change(ZONE, ("ns1.child", "A", None, A1)))
    assert look(names).records == look(names).records | {key("child", "NS"): servers, key("ns1.child", "A"): A1}
    names.perform(change(ZONE, ("child", "NS", servers, fewer), ("ns1.child", "A", A1, A2)))
    fact = look(names)
    assert (fact.records[key("child", "NS")].values, fact.records[key("ns1.child", "A")].values) == (
        fewer.values,
        A2.values,
    )
    assert set(fact.owners) == {key("child", "NS"), key("ns1.child", "A")}
    names.perform(change(ZONE, ("child", "NS", fewer, None), ("ns1.child", "A", A2, None)))
    assert set(look(names).records) <= {RecordKey(ZONE, "NS")}


def test_the_zone_below_keeps_its_own_records(names: OwnedDNS, parents: NameServer, here: Make) -> None:
    before = parents.provider(here()).observe([CHILD])
    servers = RecordSet(300, ("ns1.child.above.test.",))
    names.perform(change(ZONE, ("child", "NS", None, servers)))
    names.perform(change(ZONE, ("ns1.child", "A", None, A1)))
    with pytest.raises(Rejected, match=r"child\.above\.test"):
        names.perform(change(ZONE, ("www.child", "A", None, A1)))
    assert parents.provider(here()).observe([CHILD]) == before


def test_a_delegation_whose_values_are_not_known_any_more_is_written_again(parents: NameServer, here: Make) -> None:
    servers, other = RecordSet(300, ("ns1.child.above.test.",)), RecordSet(300, ("ns2.example.net.",))
    names = owned(parents.provider(here(), readBack="queries"), "demo")
    names.perform(change(ZONE, ("child", "NS", None, servers)))
    parents.nsupdate(
        [f"zone {ZONE}", "update delete child.above.test. NS", "update add child.above.test. 300 NS x.test."]
    )
    seen = look(names).records[key("child", "NS")]
    assert seen == RecordSet(0, ()), "it exists, and queries do not show its values"
    names.perform(change(ZONE, ("child", "NS", seen, other)))
    assert look(names).records[key("child", "NS")] == other
    names.perform(change(ZONE, ("child", "NS", other, None)))
    assert key("child", "NS") not in look(names).records


@pytest.mark.parametrize("read_back", ["axfr", "queries"])
def test_an_address_that_becomes_glue_takes_its_mark_out_of_the_delegation(
    parents: NameServer, here: Make, read_back: str
) -> None:
    zone, context = parents.new_zone(), here()
    names = owned(parents.provider(context, readBack=read_back), "demo")
    glue = RecordKey(f"ns1.sub.{zone}", "A")
    names.perform(change(zone, ("ns1.sub", "A", None, A1)))
    names.perform(change(zone, ("sub", "NS", None, RecordSet(300, (glue.name,)))))
    (raw,) = parents.provider(here()).observe([zone])
    assert mark_key(glue, zone, f"sub.{zone}") in raw.records
    assert mark_key(glue, zone) not in raw.records
    (fact,) = names.observe([zone])
    assert fact.owners[glue] == "demo/dnspolicy/app"
    parents.nsupdate([f"zone {zone}", f"update delete sub.{zone} NS"])
    names.perform(change(zone, ("ns1.sub", "A", A1, A2)))
    (raw,) = parents.provider(here()).observe([zone])
    assert mark_key(glue, zone) in raw.records
    assert mark_key(glue, zone, f"sub.{zone}") not in raw.records


def test_a_ds_without_its_delegation_is_refused(parents: NameServer, here: Make) -> None:
    zone = parents.new_zone()
    names = owned(parents.provider(here()), "demo")
    digest, servers = RecordSet(60, (f"1 13 2 {'0b' * 32}",)), RecordSet(60, ("ns.example.net.",))
    with pytest.raises(Rejected, match="a DS belongs to a delegation"):
        names.perform(change(zone, ("sub", "DS", None, digest)))
    names.perform(change(zone, ("sub", "DS", None, digest), ("sub", "NS", None, servers)))
    (fact,) = names.observe([zone])
    assert {key.type for key in fact.owners} == {"DS", "NS"}
