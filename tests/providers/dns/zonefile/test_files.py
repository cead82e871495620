"""Zone files on disk: creation, edits by hand between plan and apply, other writers, and unusable files."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dns.zone
import pytest

from providers.actions import ChangeRecords, RecordChange
from providers.dns.zonefile.provider import ZoneFiles, ZoneFileSettings
from providers.errors import Conflict, Gone, Rejected, Unreachable
from providers.facts import RecordKey, RecordSet, ZoneFact
from providers.spi import Context
from providers.testing.checks import wait_until
from providers.wrappers.owned import owned

Here = Callable[..., Context]
ZONE = "example.test."
A1, A2 = RecordSet(60, ("192.0.2.1",)), RecordSet(60, ("192.0.2.2",))
BY_HAND = """\
; Edited by hand. Keep this layout!
$TTL 1h
@   IN  SOA ns1 hostmaster (
            2024120501  ; serial, by date
            2h 15m 4w 5m )
    IN  NS  ns1
ns1     A   192.0.2.53      ; glue
www     300 A   192.0.2.80
        TXT "a \\"quoted\\" text; not a comment"
"""


def provider(context: Context, **settings: str) -> ZoneFiles:
    return ZoneFiles("zone", ZoneFileSettings(**settings), context)


def path(context: Context, zone: str = ZONE) -> Path:
    return Path(context.state_dir, "zones", f"{zone}zone")


def write(context: Context, text: str) -> None:
    path(context).parent.mkdir(exist_ok=True)
    path(context).write_text(text)


def change(names: ZoneFiles, label: str, before: RecordSet | None, after: RecordSet | None, kind: str = "A") -> None:
    key = RecordKey(f"{label}.{ZONE}", kind)
    names.perform(ChangeRecords("zone", ZONE, (RecordChange(key, before, after, "demo/DNSPolicy/app"),)))


def look(names: ZoneFiles) -> ZoneFact:
    return names.observe([ZONE])[0]


def test_a_missing_file_is_an_empty_zone_and_a_look_creates_nothing(here: Here) -> None:
    assert look(provider(here())) == ZoneFact(ZONE, 0, {}, {}, ZoneFiles.capabilities)
    assert os.listdir(here().state_dir) == []


def test_the_first_change_creates_a_zone_that_servers_load(here: Here) -> None:
    names = provider(here(), primary="ns.example.net", hostmaster="ops.example.net.")
    change(names, "app", None, A1)
    zone = dns.zone.from_file(str(path(here())), ZONE, relativize=False)
    soa = zone.get_soa()
    assert (soa.mname.to_text(), soa.rname.to_text(), soa.serial) == ("ns.example.net.", "ops.example.net.", 1)
    assert look(names).records[RecordKey(ZONE, "NS")].values == ("ns.example.net.",)
    assert stat.S_IMODE(path(here()).stat().st_mode) == 0o644


def test_defaults_of_a_new_zone_are_derived_from_its_name(here: Here) -> None:
    change(provider(here()), "app", None, A1)
    assert "SOA localhost. hostmaster.example.test. 1 " in path(here()).read_text()


def test_a_change_leaves_every_other_byte_and_mode_as_they_are(here: Here) -> None:
    write(here(), BY_HAND)
    path(here()).chmod(0o660)
    change(provider(here()), "app", None, A1)
    expected = BY_HAND.replace("2024120501", "2024120502") + "app.example.test. 60 IN A 192.0.2.1\n"
    assert path(here()).read_text() == expected
    assert stat.S_IMODE(path(here()).stat().st_mode) == 0o660


def test_removed_sets_and_marks_leave_the_file_as_it_was(here: Here) -> None:
    write(here(), BY_HAND)
    mine = owned(provider(here()), "demo")
    key = RecordKey(f"*.apps.{ZONE}", "A")
    for before, after in ((None, A1), (A1, A2), (A2, None)):
        mine.perform(ChangeRecords("zone", ZONE, (RecordChange(key, before, after, "demo/DNSPolicy/app"),)))
    assert path(here()).read_text() == BY_HAND.replace("2024120501", "2024120504")


def test_repeating_a_change_does_not_write(here: Here) -> None:
    names = provider(here())
    change(names, "app", None, A1)
    before = path(here()).stat()
    change(names, "app", None, A1)
    after = path(here()).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_set_edited_by_hand_between_plan_and_apply_is_a_conflict(here: Here) -> None:
    names = provider(here())
    change(names, "app", None, A1)
    edited = path(here()).read_text().replace("192.0.2.1", "192.0.2.99")
    path(here()).write_text(edited)
    with pytest.raises(Conflict, match=r"expected 192\.0\.2\.1 \(TTL 60\), found 192\.0\.2\.99 \(TTL 60\)"):
        change(names, "app", A1, A2)
    path(here()).write_text(edited.replace("60 IN A 192.0.2.99", "61 IN A 192.0.2.1"))
    with pytest.raises(Conflict, match="TTL 61"):
        change(names, "app", A1, A2)
    path(here()).write_text(edited.replace("app.example.test. 60 IN A 192.0.2.99\n", ""))
    with pytest.raises(Gone):
        change(names, "app", A1, A2)
    assert look(names).serial == 1


def test_an_edit_by_hand_of_other_sets_is_kept_and_its_serial_continued(here: Here) -> None:
    names = provider(here())
    change(names, "app", None, A1)
    text = path(here()).read_text().replace(" 1 3600", " 2024120501 3600") + "hand A 192.0.2.7 ; mine\n"
    path(here()).write_text(text)
    change(names, "app", A1, A2)
    assert look(names).serial == 2024120502
    assert "hand A 192.0.2.7 ; mine\n" in path(here()).read_text()
    assert look(names).records[RecordKey(f"hand.{ZONE}", "A")] == RecordSet(300, ("192.0.2.7",))


def test_a_broken_line_makes_the_zone_unreadable_and_nothing_is_written(here: Here) -> None:
    names = provider(here())
    text = BY_HAND + "oops A not-an-address\n"
    write(here(), text)
    with pytest.raises(
        Unreachable, match=r"example\.test\.zone:10: 'not-an-address' is not an IPv4 address; repair the line"
    ):
        look(names)
    with pytest.raises(Unreachable, match=":10:"):
        change(names, "app", None, A1)
    assert path(here()).read_text() == text


@pytest.mark.parametrize("cut", [0, 1, 60, 140, 200])
def test_a_file_cut_in_the_middle_is_an_error(here: Here, cut: int) -> None:
    write(here(), BY_HAND[:cut])
    with pytest.raises(Unreachable):
        look(provider(here()))


def test_an_include_is_refused_with_the_next_step(here: Here) -> None:
    write(here(), BY_HAND + "$INCLUDE more.zone\n")
    with pytest.raises(Rejected, match=r":10: \$INCLUDE is not supported .*; write the records into the file itself"):
        look(provider(here()))


@pytest.mark.parametrize(
    ("label", "kind", "record", "cause"),
    [
        ("www", "CNAME", RecordSet(60, ("x.example.net.",)), "CNAME cannot share its name .* CNAME and A, TXT"),
        ("app", "A", RecordSet(60, ("192.0.2.256",)), "not an IPv4 address"),
        ("app", "BOGUS", RecordSet(60, ("x",)), "not a record type"),
        ("app", "A", RecordSet(-1, ("192.0.2.1",)), "TTL of -1"),
        ("app", "A", RecordSet(60, ("192.0.2.1", "192.0.2.1")), "listed twice"),
        ("app", "TXT", RecordSet(60, ('"x"\nevil A 192.0.2.66',)), "line end"),
        ("a..b", "A", A1, "not a domain name"),
        ("app.sub", "A", A1, "sub.example.test. above it has a NS record"),
        ("sub", "A", A1, "delegated by NS"),
        ("", "SOA", RecordSet(60, ("a. b. 1 2 3 4 5",)), "belongs to the zone itself"),
    ],
)
def test_an_invalid_record_is_rejected_and_nothing_is_written(
    here: Here, label: str, kind: str, record: RecordSet, cause: str
) -> None:
    text = BY_HAND + "sub NS ns.example.net.\n"
    write(here(), text)
    key = RecordKey(f"{label}.{ZONE}" if label else ZONE, kind)
    action = ChangeRecords("zone", ZONE, (RecordChange(key, None, record, "demo/DNSPolicy/app"),))
    with pytest.raises(Rejected, match=cause):
        provider(here()).perform(action)
    assert path(here()).read_text() == text


def test_other_spellings_of_present_records_need_no_change(here: Here) -> None:
    names = provider(here())
    change(names, "app", None, RecordSet(60, ("2001:db8::1",)), "AAAA")
    change(names, "APP", None, RecordSet(60, ("2001:DB8:0::1",)), "aaaa")
    assert look(names).serial == 1


@pytest.mark.parametrize("zone", [".", "Example.test.", "example.test", "../x.", "a/b.", ".hidden.", "x" * 64 + "."])
def test_a_zone_whose_name_is_no_file_name_is_rejected(here: Here, zone: str) -> None:
    with pytest.raises(Rejected, match="not a valid name of a zone file"):
        provider(here()).observe([zone])


def test_a_directory_outside_the_state_directory_must_be_absolute(here: Here, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="is outside"):
        look(provider(here(), directory="../zones"))
    change(provider(here(), directory=str(tmp_path / "named")), "app", None, A1)
    assert (tmp_path / "named" / "example.test.zone").exists()


WRITER = """
import sys
from providers.actions import ChangeRecords, RecordChange
from providers.dns.zonefile.provider import ZoneFiles, ZoneFileSettings
from providers.facts import RecordKey, RecordSet
from providers.wrappers.owned import owned
from providers.spi import Context
from providers.testing.checks import wait_until
names = owned(ZoneFiles("zone", ZoneFileSettings(), Context(sys.argv[2], sys.argv[1])), sys.argv[2])
for n in range(15):
    key = RecordKey(f"{sys.argv[2]}{n}.example.test.", "A")
    change = RecordChange(key, None, RecordSet(60, ("192.0.2.1",)), sys.argv[2] + "/x")
    names.perform(ChangeRecords("zone", "example.test.", (change,)))
"""


def test_two_processes_that_write_at_the_same_time_lose_nothing(here: Here) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, here().state_dir, who]) for who in ("demo", "other")]
    assert [writer.wait(30) for writer in writers] == [0, 0]
    fact = owned(provider(here()), "demo").observe([ZONE])[0]
    assert {key.name for key in fact.owners} == {f"{who}{n}.{ZONE}" for who in ("demo", "other") for n in range(15)}
    assert fact.serial == 30


def test_a_writer_killed_at_any_moment_leaves_a_complete_zone(here: Here) -> None:
    mine = owned(provider(here()), "demo")
    for wanted in (2, 6, 11):
        with subprocess.Popen([sys.executable, "-c", WRITER, here().state_dir, "demo"]) as writer:
            wait_until(lambda wanted=wanted: look(provider(here())).serial >= wanted, f"serial {wanted}")
            writer.kill()
        fact = mine.observe([ZONE])[0]
        addresses = {key for key in fact.records if key.type == "A"}
        assert set(fact.owners) == addresses
        assert len(addresses) == fact.serial
    subprocess.run([sys.executable, "-c", WRITER, here().state_dir, "demo"], check=True, timeout=30)
    assert len(mine.observe([ZONE])[0].owners) == 15
    assert sorted(os.listdir(path(here()).parent)) == [".reconciler.lock", "example.test.zone"]
