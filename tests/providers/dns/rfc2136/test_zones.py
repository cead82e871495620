"""Publishing on BIND and Knot: unusual names and values, many changes, and when zones are read again."""

import subprocess
from collections.abc import Callable

import pytest

from manifests.values.desired import SECOND
from providers.actions import ChangeRecords, RecordChange
from providers.dns.common.ownership import mark_key, quote
from providers.dns.rfc2136.names import Names
from providers.dns.rfc2136.provider import RFC2136Zones
from providers.errors import Conflict, Foreign, Gone, OutcomeUnknown, Rejected, Unreachable
from providers.facts import RecordKey, RecordSet
from providers.spi import Context
from providers.wrappers.owned import owned
from tests.providers.dns.rfc2136.name_servers import NameServer, program
from tests.providers.dns.rfc2136.relay import AXFR, IXFR, UPDATE, Relay, opcode

A1 = RecordSet(60, ("192.0.2.1",))
A2 = RecordSet(60, ("192.0.2.1", "192.0.2.2"))
OWNER = "demo/dnspolicy/app"

pytestmark = [pytest.mark.server("named"), pytest.mark.server("knotd"), pytest.mark.server("nsupdate")]
Make = Callable[..., Context]


def change(zone: str, *changes: tuple[str, str, RecordSet | None, RecordSet | None]) -> ChangeRecords:
    return ChangeRecords(
        "names",
        zone,
        tuple(
            RecordChange(RecordKey(f"{label}.{zone}" if label else zone, kind), before, after, OWNER)
            for label, kind, before, after in changes
        ),
    )


def records(names: RFC2136Zones, zone: str) -> dict[RecordKey, RecordSet]:
    (fact,) = names.observe([zone])
    return {key: record for key, record in fact.records.items() if key[:2] != (zone, "NS")}


@pytest.fixture(params=["named", "knot"])
def server(request: pytest.FixtureRequest) -> NameServer:
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["axfr", "queries"])
def read_back(request: pytest.FixtureRequest) -> str:
    return request.param


# --- names and values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "kind", "values"),
    [
        ("six", "AAAA", ("2001:db8::1", "2001:db8::2:0:0:1", "::ffff:c000:201")),
        ("text", "TXT", ('"back\\\\slash \\"quoted\\" ; semicolon"',)),
        ("text", "TXT", ('"\\195\\188ml\\195\\164ut and \\000 and \\127"',)),
        ("text", "TXT", ('""', '"' + "x" * 255 + '" "' + "y" * 255 + '"')),
        ("*", "A", ("192.0.2.1",)),
        ("*.deep", "TXT", ('"wild"',)),
        ("", "AAAA", ("2001:db8::1",)),
        ("", "MX", ("10 mail.example.net.", "20 mail2.example.net.")),
        ("_sip._tcp", "SRV", ("1 2 5060 sip.example.net.",)),
        ("", "CAA", ('0 issue "ca.example.net"',)),
        ("odd\\.dot", "A", ("192.0.2.1",)),
        ("sp\\032ace", "A", ("192.0.2.1",)),
        ("a" * 63, "A", ("192.0.2.1",)),
        ("unknown", "TYPE65400", ("\\# 3 010203",)),
    ],
)
def test_unusual_names_and_values_are_read_back_as_they_were_written(
    server: NameServer, here: Make, read_back: str, label: str, kind: str, values: tuple[str, ...]
) -> None:
    zone = server.new_zone()
    names = server.provider(here(), readBack=read_back)
    wanted = RecordSet(60, tuple(sorted(values)))
    names.perform(change(zone, (label, kind, None, wanted)))
    key = RecordKey(f"{label}.{zone}" if label else zone, kind)
    if kind == "AAAA":
        assert set(records(names, zone)) == {key}
        assert len(records(names, zone)[key].values) == len(values)
        return
    assert records(names, zone) == {key: wanted}


def test_name_servers_of_the_zone_are_replaced_and_never_removed(
    server: NameServer, here: Make, read_back: str
) -> None:
    zone = server.new_zone()
    names = server.provider(here(), readBack=read_back)
    before = RecordSet(300, ("ns1.example.net.",))
    if read_back == "queries":
        with pytest.raises(Gone):  # from now on it is queried
            names.perform(change(zone, ("", "NS", before, None), ("none", "A", A1, A2)))
    after = RecordSet(600, ("ns2.example.net.", "ns3.example.net."))
    names.perform(change(zone, ("", "NS", before, after)))
    assert names.observe([zone])[0].records[RecordKey(zone, "NS")] == after
    with pytest.raises(Rejected, match="a zone needs name servers"):
        names.perform(change(zone, ("", "NS", after, None)))


def test_names_below_a_delegation_or_dname_are_refused(server: NameServer, here: Make, read_back: str) -> None:
    zone = server.new_zone()
    names = server.provider(here(), readBack=read_back)
    server.nsupdate(
        [
            f"zone {zone}",
            f"update add child.{zone} 60 NS ns.example.net.",
            f"update add other.{zone} 60 DNAME example.net.",
        ]
    )
    for label in ("child", "www.child", "a.b.child", "www.other"):
        next_step = "use a name that is not below it" if "other" in label else "zone that it is delegated to"
        with pytest.raises(Rejected, match=next_step):
            names.perform(change(zone, (label, "A", None, A1)))


def test_one_name_may_change_its_type_in_one_message(server: NameServer, here: Make, read_back: str) -> None:
    zone = server.new_zone()
    names = server.provider(here(), readBack=read_back)
    alias = RecordSet(60, ("elsewhere.example.net.",))
    names.perform(change(zone, ("app", "A", None, A1)))
    names.perform(change(zone, ("app", "A", A1, None), ("app", "CNAME", None, alias)))
    assert records(names, zone) == {RecordKey(f"app.{zone}", "CNAME"): alias}
    names.perform(change(zone, ("app", "CNAME", alias, None), ("app", "A", None, A1)))
    assert records(names, zone) == {RecordKey(f"app.{zone}", "A"): A1}


# --- many ---------------------------------------------------------------------------------------------------------


def test_a_thousand_owned_changes_take_few_messages(server: NameServer, here: Make) -> None:
    zone = server.new_zone()
    updates: list[bytes] = []

    def before(message: bytes) -> None:
        if opcode(message) == UPDATE:
            updates.append(message)

    with Relay(server.port, before=before) as relay:
        inner = server.provider(here(), port=relay.port)
        names = owned(inner, "demo")
        labels = [f"host-{index:04d}" for index in range(1000)]
        names.perform(change(zone, *((label, "A", None, A1) for label in labels)))
        assert len(updates) <= 4
        (fact,) = names.observe([zone])
        assert {key.name for key in fact.owners} == {f"{label}.{zone}" for label in labels}
        names.perform(change(zone, *((label, "A", A1, A2) for label in labels)))
        names.perform(change(zone, *((label, "A", A2, None) for label in labels)))
        assert records(inner, zone) == {}
        assert relay.types.count(AXFR) == 1, "written sets are read back by changes, not by a whole transfer"
        assert records(server.provider(here()), zone) == {}


def test_a_conflict_in_a_later_message_counts_the_earlier_messages(named: NameServer, here: Make) -> None:
    """Changes of more than 64 KB are several messages: each is all or nothing, all together are not."""
    zone = named.new_zone()
    text = RecordSet(60, tuple(sorted(f'"{index:03d}{"x" * 250}"' for index in range(100))))
    updates: list[bytes] = []

    def before(message: bytes) -> None:
        if message[2] >> 3 & 15 == UPDATE:
            updates.append(message)
            if len(updates) == 2:
                named.nsupdate([f"zone {zone}", f"update add t2.{zone} 60 TXT other"])

    with Relay(named.port, before=before) as relay:
        names = named.provider(here(), port=relay.port)
        with pytest.raises(Conflict, match="1 of 2 messages were carried out before"):
            names.perform(change(zone, *((f"t{index}", "TXT", None, text) for index in range(3))))
    written = records(named.provider(here()), zone)
    assert [written.get(RecordKey(f"t{index}.{zone}", "TXT")) for index in range(2)] == [text, text]
    assert written[RecordKey(f"t2.{zone}", "TXT")].values == ('"other"',)


def test_a_later_message_that_cannot_be_written_leaves_the_outcome_unknown(named: NameServer, here: Make) -> None:
    """Unreachable would promise that nothing was changed."""
    zone = named.new_zone()
    text = RecordSet(60, tuple(sorted(f'"{index:03d}{"x" * 250}"' for index in range(100))))
    updates: list[bytes] = []

    def answers(framed: bytes) -> bytes:
        if framed[4] >> 3 & 15 != UPDATE:
            return framed
        updates.append(framed)
        servfail = framed[2:4] + bytes((framed[4], 2)) + bytes(8)
        return framed if len(updates) == 1 else len(servfail).to_bytes(2, "big") + servfail

    with Relay(named.port, answers=answers) as relay:
        names = named.provider(here(), port=relay.port)
        with pytest.raises(OutcomeUnknown, match=r"SERVFAIL.*1 of 2 messages were carried out before"):
            names.perform(change(zone, *((f"t{index}", "TXT", None, text) for index in range(3))))


def test_a_set_that_fits_into_no_answer_is_refused_before_sending(named: NameServer, here: Make) -> None:
    zone = named.new_zone()
    text = RecordSet(60, tuple(sorted(f'"{index:03d}{"x" * 250}"' for index in range(300))))
    names = named.provider(here())
    with pytest.raises(Rejected, match=rf"big\.{zone} TXT in zone {zone}: its 300 values need an answer of \d+ octets"):
        names.perform(change(zone, ("app", "A", None, A1), ("big", "TXT", None, text)))
    assert records(names, zone) == {}


# --- reading again ------------------------------------------------------------------------------------------------


def test_a_new_serial_reads_changes_and_every_15_minutes_the_whole_zone(server: NameServer, here: Make) -> None:
    zone = server.new_zone()
    now = [1]
    with Relay(server.port) as relay:
        names = RFC2136Zones("names", server.settings(port=relay.port), here(), steady=lambda: now[0])
        for _ in range(3):
            names.observe([zone])
        assert (relay.types.count(AXFR), relay.types.count(IXFR)) == (1, 0)
        now[0] += 60 * SECOND
        server.nsupdate([f"zone {zone}", f"update add app.{zone} 60 A 192.0.2.1"])
        for _ in range(2):
            assert records(names, zone) == {RecordKey(f"app.{zone}", "A"): A1}
        assert (relay.types.count(AXFR), relay.types.count(IXFR)) == (1, 1)
        now[0] += 14 * 60 * SECOND - 1
        names.observe([zone])
        assert relay.types.count(AXFR) == 1
        now[0] += 1
        names.observe([zone])
        assert (relay.types.count(AXFR), relay.types.count(IXFR)) == (2, 1)


def test_a_caller_cannot_change_the_records_of_the_next_fact(named: NameServer, here: Make) -> None:
    zone = named.new_zone()
    names = named.provider(here())
    with pytest.raises(AttributeError):
        names.observe([zone])[0].records.clear()  # type: ignore[attr-defined]
    assert RecordKey(zone, "NS") in names.observe([zone])[0].records


def test_an_unchanged_zone_is_the_same_object_without_owner_marks_too(named: NameServer, here: Make) -> None:
    zone = named.new_zone()
    names = owned(named.provider(here()), "one")
    (first,) = names.observe([zone])
    (second,) = names.observe([zone])
    assert second is first
    named.nsupdate([f"zone {zone}", f"update add app.{zone} 60 A 192.0.2.1"])
    (third,) = names.observe([zone])
    assert RecordKey(f"app.{zone}", "A") in third.records


def test_records_survive_a_crash_of_the_server(server: NameServer, here: Make) -> None:
    zone = server.new_zone()
    names = server.provider(here())
    names.perform(change(zone, ("app", "A", None, A1)))
    server.kill()
    server.start()
    assert records(names, zone) == {RecordKey(f"app.{zone}", "A"): A1}


def test_a_server_that_trusts_addresses_needs_no_keys(named: NameServer, here: Make) -> None:
    names = named.provider(here(), updateKey=None, transferKey=None)
    assert names.check(["trusting.test."]) == ()
    names.perform(change("trusting.test.", ("app", "A", None, A1)))
    assert records(names, "trusting.test.") == {RecordKey("app.trusting.test.", "A"): A1}


# --- where transfers are refused ----------------------------------------------------------------------------------


def test_a_wildcard_answer_does_not_hide_the_removal_of_a_set(server: NameServer, here: Make) -> None:
    zone = server.new_zone()
    names = server.provider(here(), readBack="queries")
    names.perform(change(zone, ("*", "A", None, A1), ("app", "A", None, A1), ("deep.er", "A", None, A2)))
    names.perform(change(zone, ("app", "A", A1, None), ("deep.er", "A", A2, A1)))
    expected = {RecordKey(f"*.{zone}", "A"): A1, RecordKey(f"deep.er.{zone}", "A"): A1}
    assert records(names, zone) == expected
    names.perform(change(zone, ("app", "A", None, A1)))
    assert records(names, zone) == expected | {RecordKey(f"app.{zone}", "A"): A1}


def test_a_foreign_set_that_was_never_observed_is_not_adopted(server: NameServer, here: Make) -> None:
    """Not even when it equals the planned set: the first attempt only finds out that it exists."""
    zone = server.new_zone()
    names = owned(server.provider(here(), readBack="queries"), "demo")
    server.nsupdate([f"zone {zone}", f"update add app.{zone} 60 A 192.0.2.1"])
    wanted = change(zone, ("app", "A", None, A1))
    with pytest.raises(Conflict, match="exists, but was not observed before"):
        names.perform(wanted)
    with pytest.raises(Foreign):
        names.perform(wanted)
    assert records(server.provider(here()), zone) == {RecordKey(f"app.{zone}", "A"): A1}


def test_names_are_saved_for_the_next_start_and_dropped_when_removed(named: NameServer, here: Make) -> None:
    zone, context = named.new_zone(), here()
    names = named.provider(context, readBack="queries")
    names.perform(change(zone, ("app", "A", None, A1), ("www", "A", None, A1)))
    again = named.provider(context, readBack="queries")
    assert set(records(again, zone)) == {RecordKey(f"app.{zone}", "A"), RecordKey(f"www.{zone}", "A")}
    again.perform(change(zone, ("www", "A", A1, None)))
    assert set(Names(context.state_dir, "names").of(zone)) == {RecordKey(f"app.{zone}", "A")}


def test_a_damaged_file_of_names_is_unknown_not_empty(named: NameServer, here: Make, tmp_path) -> None:
    zone = named.new_zone()
    names = named.provider(here(), readBack="queries")
    names.perform(change(zone, ("app", "A", None, A1)))
    (file,) = tmp_path.rglob(f"{zone}json")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [directory.stat().st_mode & 0o777 for directory in (file.parent, file.parent.parent)] == [0o700, 0o700]
    file.write_text(file.read_text()[:-3])
    with pytest.raises(Unreachable, match="remove it; names are saved again"):
        names.observe([zone])


def test_marks_of_wildcards_are_read_by_queries_too(server: NameServer, here: Make) -> None:
    zone = server.new_zone()
    names = owned(server.provider(here(), readBack="queries"), "demo")
    names.perform(change(zone, ("*", "TXT", None, RecordSet(60, (quote("wild"),))), ("app", "A", None, A1)))
    (fact,) = names.observe([zone])
    assert set(fact.owners) == {RecordKey(f"*.{zone}", "TXT"), RecordKey(f"app.{zone}", "A")}
    mark = mark_key(RecordKey(f"app.{zone}", "A"))
    shown = subprocess.run(
        [program("dig"), "+tcp", "+short", "-p", str(server.port), "@127.0.0.1", mark.name, "TXT"],
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    ).stdout
    assert OWNER in shown


# --- the check ----------------------------------------------------------------------------------------------------


def test_the_check_has_no_findings_without_problems_and_changes_nothing(
    server: NameServer, here: Make, read_back: str
) -> None:
    zone = server.new_zone()
    names = server.provider(here(), readBack=read_back)
    before = names.observe([zone])
    assert names.check([zone]) == ()
    assert names.observe([zone]) == before


def test_the_check_lists_all_findings_with_the_lines_to_add(server: NameServer, here: Make) -> None:
    names = server.provider(here())
    findings = "\n".join(names.check(["closed.test.", "readonly.test.", "broken.test.", "nowhere.test.", "no..name"]))
    assert 'allow-transfer { key "transfer.key"; }' in findings
    assert "update-policy { grant update.key zonesub ANY; }" in findings
    assert "zone broken.test.: the server cannot serve the zone now" in findings
    assert "configure nowhere.test. on this server" in findings
    assert "zone 'no..name'" in findings
    server.kill()
    (finding,) = names.check([server.open_zones[0]])
    assert "Connection refused" in finding
