"""PowerDNS beyond the suite: every type, other writers, odd zones, and the answers that clients get."""

from collections.abc import Callable

import pytest

from providers.actions import ChangeRecords, RecordChange
from providers.dns.common.change import canonical_change
from providers.dns.common.ownership import quote
from providers.errors import Conflict, Rejected
from providers.facts import RecordKey, RecordSet
from providers.spi import ByName, Context, DNSProvider
from providers.wrappers.owned import owned
from reconciler.core.dns.capabilities_fit import adapt
from tests.providers.dns.powerdns.power_servers import PowerServer

pytestmark = pytest.mark.server("pdns_server")
Here = Callable[..., Context]
A1 = RecordSet(60, ("192.0.2.1",))


def action(zone: str, *changes: tuple[str, str, RecordSet | None, RecordSet | None]) -> ChangeRecords:
    rows = (
        RecordChange(RecordKey(f"{label}.{zone}" if label else zone, kind), before, after, "suite/DNSPolicy/app")
        for label, kind, before, after in changes
    )
    return ChangeRecords("names", zone, tuple(rows))


def records(names: DNSProvider, zone: str) -> dict[RecordKey, RecordSet]:
    return {key: one for key, one in names.observe([zone])[0].records.items() if key[:2] != (zone, "NS")}


@pytest.mark.parametrize(
    ("label", "kind", "values"),
    [
        ("six", "AAAA", ("2001:db8::1", "::ffff:c000:201", "2001:db8::2:0:0:1")),
        ("text", "TXT", ('"back\\\\slash \\"quoted\\" ; semicolon"',)),
        ("text", "TXT", ('"\\195\\188ml\\195\\164ut and \\000 and \\127"', '""')),
        ("long", "TXT", (quote("x" * 600),)),
        ("*", "A", ("192.0.2.1",)),
        ("*.deep", "TXT", ('"wild"',)),
        ("", "MX", ("10 mail.example.net.", "20 mail2.example.net.")),
        ("_sip._tcp", "SRV", ("1 2 5060 sip.example.net.",)),
        ("", "CAA", ('0 issue "ca.example.net; account=1"', '128 iodef "mailto:x@example.net"')),
        ("child", "NS", ("ns1.child.example.net.",)),
        ("4.3", "PTR", ("host.example.net.",)),
        ("a" * 63, "A", ("192.0.2.1",)),
        ("_443._tcp", "TLSA", ("3 1 1 " + "ab" * 32,)),
        ("host", "SSHFP", ("4 2 " + "cd" * 32,)),
        ("sub", "DNAME", ("other.example.net.",)),
        ("svc", "HTTPS", ('1 . alpn="h2"',)),
        ("nap", "NAPTR", ('100 10 "U" "E2U+sip" "!^.*$!sip:info@example.com!" .',)),
        ("unknown", "TYPE65300", ("\\# 3 010203",)),
    ],
)
def test_every_type_is_read_back_as_it_was_written(
    power: PowerServer, label: str, kind: str, values: tuple[str, ...]
) -> None:
    zone, names = power.new_zone(), power.provider()
    change = action(zone, (label, kind, None, RecordSet(60, values)))
    names.perform(change)
    wanted = canonical_change(change.changes[0]).after
    assert list(records(names, zone).values()) == [wanted]
    before = names.observe([zone])
    names.perform(change)
    assert names.observe([zone]) == before
    names.close()


def test_a_client_gets_what_was_published_and_a_long_text_whole(power: PowerServer) -> None:
    zone, names = power.new_zone(), power.provider()
    names.perform(action(zone, ("app", "A", None, A1), ("t", "TXT", None, RecordSet(60, (quote("y" * 300),)))))
    assert power.dig(f"app.{zone}", "A") == ["192.0.2.1"]
    assert "".join(power.dig(f"t.{zone}", "TXT")).replace('" "', "").strip('"') == "y" * 300
    names.perform(action(zone, ("app", "A", A1, None), ("app", "CNAME", None, RecordSet(60, ("x.example.net.",)))))
    assert power.dig(f"app.{zone}", "CNAME") == ["x.example.net."]
    names.close()


def test_an_unchanged_zone_is_not_read_again_and_a_changed_one_is(power: PowerServer) -> None:
    zone, names = power.new_zone(), power.provider()
    names.perform(action(zone, ("app", "A", None, A1)))
    first = names.observe([zone])[0]
    assert names.observe([zone])[0] == first
    power.patch(
        zone,
        {"name": f"hand.{zone}", "type": "A", "ttl": 5, "changetype": "REPLACE", "records": [{"content": "192.0.2.9", "disabled": False}]},
    )  # fmt: skip
    assert RecordKey(f"hand.{zone}", "A") in names.observe([zone])[0].records
    names.close()


def test_a_zone_with_a_fixed_serial_is_read_at_each_look_and_reported(power: PowerServer) -> None:
    zone, names = power.new_zone(soa_edit_api="OFF"), power.provider()
    names.perform(action(zone, ("app", "A", None, A1)))
    names.observe([zone])
    power.patch(zone, {"name": f"app.{zone}", "type": "A", "changetype": "DELETE"})
    assert records(names, zone) == {}
    assert "soa_edit_api" in names.check([zone])[0]
    names.close()


def test_disabled_records_are_not_served_and_belong_to_another_owner(power: PowerServer, here: Here) -> None:
    zone = power.new_zone()
    power.patch(
        zone,
        {"name": f"app.{zone}", "type": "A", "ttl": 5, "changetype": "REPLACE", "records": [{"content": "192.0.2.9", "disabled": True}]},
    )  # fmt: skip
    mine = owned(power.provider(), "suite")
    assert records(mine, zone) == {RecordKey(f"app.{zone}", "A"): RecordSet(5, ())}
    with pytest.raises(Conflict):
        mine.perform(action(zone, ("app", "A", None, A1)))
    assert RecordKey(f"app.{zone}", "A") in records(mine, zone)
    mine.close()


def test_disabled_records_are_found_among_many_new_names_too(power: PowerServer) -> None:
    zone, names = power.new_zone(), power.provider()
    power.patch(
        zone,
        {"name": f"n3.{zone}", "type": "A", "ttl": 5, "changetype": "REPLACE", "records": [{"content": "192.0.2.9", "disabled": True}]},
        {"name": f"*.{zone}", "type": "A", "ttl": 5, "changetype": "REPLACE", "records": [{"content": "192.0.2.9", "disabled": True}]},
    )  # fmt: skip
    with pytest.raises(Conflict):
        names.perform(action(zone, *((f"n{number}", "A", None, A1) for number in range(30))))
    with pytest.raises(Conflict):
        names.perform(action(zone, ("*", "A", None, A1)))
    names.perform(action(zone, ("n4", "A", None, A1), ("n3", "AAAA", None, RecordSet(60, ("2001:db8::1",)))))
    assert len(records(names, zone)) == 4
    names.close()


def test_types_that_only_powerdns_has_are_read_and_block_no_write(power: PowerServer) -> None:
    zone, names = power.new_zone(), power.provider()
    power.patch(
        zone,
        {"name": f"lua.{zone}", "type": "LUA", "ttl": 5, "changetype": "REPLACE", "records": [{"content": "A \"pickrandom({'192.0.2.1'})\"", "disabled": False}]},
        {"name": zone, "type": "ALIAS", "ttl": 5, "changetype": "REPLACE", "records": [{"content": "lb.example.net.", "disabled": False}]},
    )  # fmt: skip
    names.perform(action(zone, ("app", "A", None, A1)))
    assert {key.type for key in records(names, zone)} == {"LUA", "ALIAS", "A"}
    with pytest.raises(Rejected, match="LUA"):
        names.perform(action(zone, ("lua", "LUA", None, RecordSet(5, ('A "x"',)))))
    names.close()


def test_what_another_zone_of_the_server_would_hide_is_refused(power: PowerServer) -> None:
    zone, names = power.new_zone(), power.provider()
    child = power.new_zone(f"child.{zone}")
    with pytest.raises(Rejected, match=child):
        names.perform(action(zone, ("app.child", "A", None, A1)))
    names.perform(action(zone, ("child", "NS", None, RecordSet(60, ("ns1.example.net.",)))))
    wide = [(f"n{number}", "A", None, A1) for number in range(40)]
    with pytest.raises(Rejected, match=child):
        names.perform(action(zone, *wide, ("app.child", "A", None, A1)))
    assert {key.type for key in records(names, zone)} == {"NS"}
    names.close()


def test_a_missing_zone_names_the_one_that_holds_it_and_a_copy_is_refused(power: PowerServer) -> None:
    zone, names = power.new_zone(), power.provider()
    with pytest.raises(Rejected, match=f"it has {zone}"):
        names.observe([f"deep.er.{zone}"])
    copy = power.new_zone("copy.test.", kind="Slave", masters=["192.0.2.53"], nameservers=[])
    for act in (lambda: names.observe([copy]), lambda: names.perform(action(copy, ("app", "A", None, A1)))):
        with pytest.raises(Rejected, match="a copy"):
            act()
    assert "a copy" in names.check([copy, zone])[0]
    assert names.check([zone]) == ()
    names.close()


def test_a_large_change_goes_in_few_requests_and_its_marks_with_it(power: PowerServer) -> None:
    zone = power.new_zone()
    mine = owned(power.provider(), "suite")
    text = RecordSet(60, (quote("z" * 2000),))
    mine.perform(action(zone, *((f"n{number}", "TXT", None, text) for number in range(800))))
    fact = mine.observe([zone])[0]
    assert sum(record == text for record in fact.records.values()) == 800
    assert len(fact.owners) == 800
    mine.close()


def test_one_set_that_is_too_large_is_refused_before_anything_is_sent(power: PowerServer) -> None:
    zone, names = power.new_zone(), power.provider()
    huge = RecordSet(60, tuple(sorted(quote(f"{number:05}" + "z" * 1000) for number in range(1600))))
    with pytest.raises(Rejected, match="fewer or shorter values"):
        names.perform(action(zone, ("app", "A", None, A1), ("huge", "TXT", None, huge)))
    assert records(names, zone) == {}
    names.close()


def test_some_names_are_looked_at_alone(power: PowerServer) -> None:
    zone, names = power.new_zone(), power.provider()
    names.perform(action(zone, ("app", "A", None, A1), ("other", "A", None, A1), ("*", "A", None, A1)))
    assert isinstance(names, ByName)
    fact = names.observe_names(zone, [f"app.{zone}", f"nothing.{zone}"])
    assert dict(fact.records) == {RecordKey(f"app.{zone}", "A"): A1}
    names.close()


def test_international_names_and_upper_case_are_one_name(power: PowerServer) -> None:
    zone, names = power.new_zone(), power.provider()
    names.perform(action(zone, ("Bücher", "CNAME", None, RecordSet(60, ("MÜLLER.example.net",)))))
    assert records(names, zone) == {
        RecordKey(f"xn--bcher-kva.{zone}", "CNAME"): RecordSet(60, ("xn--mller-kva.example.net.",))
    }
    names.close()


def test_what_the_server_has_no_spelling_for_is_refused_in_its_words(power: PowerServer) -> None:
    zone, names = power.new_zone(), power.provider()
    with pytest.raises(Rejected, match="unsupported characters"):
        names.perform(action(zone, ("sp\\032ace", "A", None, A1), ("app", "A", None, A1)))
    assert records(names, zone) == {}
    names.close()


def test_a_tree_fitted_to_the_server_is_published_once_and_complete(power: PowerServer) -> None:
    zone = power.new_zone()
    tree = {
        RecordKey(f"app.{zone}", "CNAME"): RecordSet(300, (f"lb.{zone}",)),
        RecordKey(f"lb.{zone}", "CNAME", "eu"): RecordSet(300, (f"eu.lb.{zone}",), geo="EU"),
        RecordKey(f"lb.{zone}", "CNAME", "default"): RecordSet(300, (f"eu.lb.{zone}",), geo="*"),
        RecordKey(f"eu.lb.{zone}", "CNAME", "g1"): RecordSet(60, (f"g1.lb.{zone}",), weight=120),
        RecordKey(f"eu.lb.{zone}", "CNAME", "g2"): RecordSet(60, (f"g2.lb.{zone}",), weight=60),
        RecordKey(f"g1.lb.{zone}", "A"): A1,
        RecordKey(f"g2.lb.{zone}", "A"): RecordSet(60, ("192.0.2.2",)),
    }
    mine = owned(power.provider(), "suite")
    wanted = adapt(tree, zone, mine.observe([zone])[0].capabilities).records
    changes = tuple(RecordChange(key, None, record, "suite/DNSPolicy/app") for key, record in wanted.items())
    mine.perform(ChangeRecords("names", zone, changes))
    assert records(mine, zone) == wanted
    assert mine.observe([zone])[0].owners == dict.fromkeys(wanted, "suite/DNSPolicy/app")
    assert power.dig(f"app.{zone}", "A") == ["192.0.2.1", "192.0.2.2", f"eu.lb.{zone}", f"lb.{zone}"]
    mine.close()


def test_two_writers_of_one_set_find_out(power: PowerServer) -> None:
    zone, names = power.new_zone(), power.provider()
    names.perform(action(zone, ("app", "A", None, A1)))
    with pytest.raises(Conflict):
        names.perform(action(zone, ("app", "A", RecordSet(60, ("192.0.2.7",)), None)))
    names.close()
