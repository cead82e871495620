"""Zone file syntax, common and rare: how it is parsed, and what an edit keeps."""

import dns.zone
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.dns.zonefile.edit import edit, new_zone, next_serial
from providers.dns.zonefile.lines import ZoneSyntaxError
from providers.dns.zonefile.parser import IncludeError, ZoneText, parse
from providers.facts import RecordKey, RecordSet

ZONE = "example.test."
HEAD = "$TTL 300\n@ IN SOA ns hostmaster 7 2 3 4 5\n@ IN NS ns\n"


def read(text: str) -> ZoneText:
    return parse(text, ZONE)


def added_set(line: str) -> tuple[RecordKey, RecordSet]:
    """The record set that a line adds to a zone."""
    records = read(HEAD + line).records
    del records[RecordKey(ZONE, "NS")]
    ((key, record),) = records.items()
    return key, record


@pytest.mark.parametrize(
    ("line", "name", "ttl", "kind", "value"),
    [
        ("www A 192.0.2.1", "www", 300, "A", "192.0.2.1"),
        ("www 60 IN A 192.0.2.1", "www", 60, "A", "192.0.2.1"),
        ("www IN 60 A 192.0.2.1", "www", 60, "A", "192.0.2.1"),
        ("www in a 192.0.2.1 ; a comment", "www", 300, "A", "192.0.2.1"),
        ("www\t1h30m\tA\t192.0.2.1  \t", "www", 5400, "A", "192.0.2.1"),
        ("WWW.Example.TEST. A 192.0.2.1", "www", 300, "A", "192.0.2.1"),
        (r"\119ww A 192.0.2.1", "www", 300, "A", "192.0.2.1"),
        ("www AAAA 2001:DB8:0:0::1", "www", 300, "AAAA", "2001:db8::1"),
        ("www CNAME Target", "www", 300, "CNAME", "target.example.test."),
        ("www CNAME @", "www", 300, "CNAME", ZONE),
        ("*.apps A 192.0.2.1", "*.apps", 300, "A", "192.0.2.1"),
        ("www ( A\n 192.0.2.1 )", "www", 300, "A", "192.0.2.1"),
        ("www MX ( 10 ; first\n\n Mail ) ; end", "www", 300, "MX", "10 mail.example.test."),
        ('www TXT plain "two words" "semi;colon (no) paren"', "www", 300, "TXT", '"plain" "two words" "semi;colon (no) paren"'),
        (r'www TXT "a \"quote\" and \\ and \228"', "www", 300, "TXT", r'"a \"quote\" and \\ and \228"'),
        ('www TXT "\xc3\xa9"', "www", 300, "TXT", r'"\195\169"'),
        ("_sip._tcp SRV 1 2 5060 Sip.Example.NET.", "_sip._tcp", 300, "SRV", "1 2 5060 sip.example.net."),
        ('www HTTPS 1 . alpn="h2,h3" port=8443', "www", 300, "HTTPS", '1 . alpn="h2,h3" port="8443"'),
        (r"www TYPE65400 \# 2 ABCD", "www", 300, "TYPE65400", r"\# 2 abcd"),
        ("www TYPE1 \\# 4 c0000201", "www", 300, "A", "192.0.2.1"),
        ('www CAA 0 issue "ca.example.net"', "www", 300, "CAA", '0 issue "ca.example.net"'),
        ("$ORIGIN sub\nwww A 192.0.2.1", "www.sub", 300, "A", "192.0.2.1"),
        ("$ORIGIN sub.example.test.\n@ A 192.0.2.1", "sub", 300, "A", "192.0.2.1"),
        ("$ttl 1d\nwww A 192.0.2.1", "www", 86400, "A", "192.0.2.1"),
        ("www.example.net. A 192.0.2.1\nwww A 192.0.2.2", "www", 300, "A", "192.0.2.2"),
    ],
)  # fmt: skip
def test_a_line_is_read_as_name_servers_read_it(line: str, name: str, ttl: int, kind: str, value: str) -> None:
    assert added_set(line + "\n") == (RecordKey(f"{name}.{ZONE}", kind), RecordSet(ttl, (value,)))
    assert added_set(line.replace("\n", "\r\n") + "\r\n") == added_set(line)


def test_a_missing_owner_is_that_of_the_record_before() -> None:
    records = read(HEAD + "www A 192.0.2.1\n; in between\n$ORIGIN sub\n\tTXT hi\n   \n (TXT\n ho)\n").records
    assert records[RecordKey(f"www.{ZONE}", "TXT")].values == ('"hi"', '"ho"')


def test_without_a_default_a_missing_ttl_is_that_of_the_record_before() -> None:
    records = read("@ 60 SOA ns h 1 2 3 4 5\n@ NS ns\na A 192.0.2.1\nb 9 A 192.0.2.2\nc A 192.0.2.3\n").records
    assert {key.name[0]: record.ttl for key, record in records.items() if key.type == "A"} == {"a": 60, "b": 9, "c": 9}


def test_without_any_ttl_the_minimum_of_the_soa_counts() -> None:
    assert read("@ SOA ns h 1 2 3 4 55\n@ NS ns\n").records[RecordKey(ZONE, "NS")].ttl == 55


@pytest.mark.parametrize(
    ("text", "line", "cause"),
    [
        ("", 1, "no SOA record"),
        (HEAD + "@ SOA ns h 8 2 3 4 5\n", 4, "second SOA"),
        (HEAD + "sub SOA ns h 8 2 3 4 5\n", 4, "this is the file of"),
        (HEAD + "www A 192.0.2.256\n", 4, "not an IPv4 address"),
        (HEAD + "www A 192.0.2.1 192.0.2.2\n", 4, "not an IPv4 address"),
        (HEAD + "www AAAA fe80::1%eth0\n", 4, "not an IPv6 address"),
        (HEAD + "www AA 192.0.2.1\n", 4, "not a record type"),
        (HEAD + "www AXFR x\n", 4, "type for queries"),
        (HEAD + "www CH A 192.0.2.1\n", 4, "class CH"),
        (HEAD + "www 5000000000 A 192.0.2.1\n", 4, "too large"),
        (HEAD + "www 1x A 192.0.2.1\n", 4, "is not a TTL"),
        (HEAD + "www\n", 4, "no type"),
        (HEAD + "a..b A 192.0.2.1\n", 4, "not a domain name"),
        (HEAD + "x" * 64 + " A 192.0.2.1\n", 4, "not a domain name"),
        (HEAD + "www MX ten mail\n", 4, "not a value of type MX"),
        (HEAD + 'www TXT "open\nwww A 192.0.2.1\n', 4, "not closed"),
        (HEAD + "\nwww MX ( 10 mail\n", 5, "parenthesis is not closed"),
        (HEAD + "www A 192.0.2.1 )\n", 4, "was not opened"),
        (HEAD + "$TTL\n", 4, "not a directive"),
        (HEAD + "$BOGUS 1\n", 4, "not a directive"),
        (" A 192.0.2.1\n" + HEAD, 1, "no owner name"),
        ("www A 192.0.2.1\n" + HEAD, 1, "no TTL"),
        ("\xef\xbb\xbf" + HEAD, 1, "byte order mark"),
        (HEAD + "www A 192.0.2.1\0\n", 4, "NUL"),
        (HEAD[:40], 2, "not a value of type SOA"),
    ],
)
def test_a_text_that_is_not_a_zone_is_an_error_with_its_line(text: str, line: int, cause: str) -> None:
    with pytest.raises(ZoneSyntaxError, match=cause) as caught:
        read(text)
    assert text.count("\n", 0, caught.value.at) + 1 == line


@pytest.mark.parametrize("line", ["$INCLUDE other.zone", "$include x", "$GENERATE 1-2 h$ A 192.0.2.$"])
def test_directives_that_add_other_records_are_refused(line: str) -> None:
    with pytest.raises(IncludeError, match="not supported"):
        read(HEAD + line + "\n")


@pytest.mark.parametrize(
    ("serial", "after"), [(0, 1), (1, 2), (2024123199, 2024123200), (2**31, 2**31 + 1), (2**32 - 1, 1)]
)
def test_the_serial_rises_in_serial_number_arithmetic(serial: int, after: int) -> None:
    assert next_serial(serial) == after
    assert 0 < (after - serial) % 2**32 < 2**31


def changed(text: str, *changes: tuple[str, str, RecordSet | None], serial: int = 8) -> str:
    wanted = {RecordKey(f"{name}.{ZONE}", kind): after for name, kind, after in changes}
    return edit(text, read(text), wanted, serial)


A = RecordSet(60, ("192.0.2.8", "192.0.2.9"))


def test_new_sets_are_appended_even_after_a_last_line_without_line_end() -> None:
    text = HEAD + "www A 192.0.2.1"
    after = changed(text, ("app", "A", A))
    assert (
        after
        == text.replace(" 7 ", " 8 ") + "\napp.example.test. 60 IN A 192.0.2.8\napp.example.test. 60 IN A 192.0.2.9\n"
    )


def test_unchanged_values_keep_their_line_and_comment() -> None:
    text = HEAD + "; ours\napp 60 A 192.0.2.8 ; the old one\napp 60 A 192.0.2.7 ; goes\n; after\nwww A 192.0.2.1\n"
    after = changed(text, ("app", "A", A))
    assert after == text.replace(" 7 ", " 8 ").replace("app 60 A 192.0.2.7", "app.example.test. 60 IN A 192.0.2.9")


def test_a_further_value_follows_the_set_it_belongs_to() -> None:
    text = HEAD + "app 60 A 192.0.2.8\nwww A 192.0.2.1\n"
    after = changed(text, ("app", "A", A))
    assert after == text.replace(" 7 ", " 8 ").replace("www", "app.example.test. 60 IN A 192.0.2.9\nwww")


def test_the_owner_of_a_removed_record_is_inserted_where_it_is_needed() -> None:
    text = HEAD + "app 60 A 192.0.2.8\n; about the text\n\tTXT hi ; keep\nwww A 192.0.2.1\n"
    after = changed(text, ("app", "A", None))
    assert after == HEAD.replace(" 7 ", " 8 ") + "; about the text\napp.example.test.\tTXT hi ; keep\nwww A 192.0.2.1\n"


def test_the_ttl_of_a_removed_record_is_inserted_where_it_is_needed() -> None:
    head = "@ 300 SOA ns h 7 2 3 4 5\n"
    text = head + "app 60 A 192.0.2.8\nwww A 192.0.2.1\n\tTXT hi\nlast 5 TXT x\n"
    after = changed(text, ("app", "A", None))
    assert after == head.replace(" 7 ", " 8 ") + "www 60 A 192.0.2.1\n\tTXT hi\nlast 5 TXT x\n"


def test_a_serial_in_a_soa_over_several_lines_is_changed_in_its_place() -> None:
    text = "$TTL 1h\n@ SOA ns hostmaster ( ; the SOA\n\t2024010199 ; serial 2024010199\n\t2h 3 4 5 )\n NS ns\n"
    after = changed(text, ("app", "A", None), serial=2024010200)
    assert after == text.replace("\t2024010199 ;", "\t2024010200 ;")


def test_line_ends_of_the_file_are_used() -> None:
    text = HEAD.replace("\n", "\r\n")
    assert changed(text, ("app", "A", A)).endswith("A 192.0.2.8\r\napp.example.test. 60 IN A 192.0.2.9\r\n")


def test_a_new_zone_is_one_that_name_servers_load() -> None:
    text = new_zone(ZONE, "localhost.", f"hostmaster.{ZONE}")
    loaded = dns.zone.from_text(text, ZONE)
    assert loaded.get_soa().serial == read(text).serial == 0


# --- laws over generated files ----------------------------------------------------------------------------------

LABELS = st.sampled_from(["a", "b", "B", "*.c", "a.b", "_x", "d-1"])
DATA = st.sampled_from(
    [
        ("A", "192.0.2.1"), ("A", "192.0.2.2"), ("A", "192.0.2.3"), ("AAAA", "2001:DB8::1"), ("TXT", '"x;y" z'),
        ("TXT", '"\xfc"'), ("MX", "10 Mail"), ("MX", "( 20 ; c\n mail2 )"), ("SRV", "1 2 3 sip"), ("TXT", r'"\"q\" (" "2"'),
    ]
)  # fmt: skip
TAILS = st.sampled_from(["", " ", " ; note \xe9 (", "\t;"])
BETWEEN = st.sampled_from(
    ["", "", "", "; only a comment\n", "\n", "  \t\n", "$ORIGIN sub.example.test.\n", "$ORIGIN example.test.\n"]
)


@st.composite
def zone_files(draw: st.DrawFn, ttl: bool = False) -> str:
    """A zone file with owners and TTLs stated or left out, and odd layout; with `ttl` it begins with $TTL."""
    head = "$TTL 300\n" if ttl or draw(st.booleans()) else ""
    text = head + draw(
        st.sampled_from(
            ["@ 50 IN SOA ns h 7 2 3 4 5\n", "@ 50 SOA ns h (\n 7 ; serial 7\n 2 3 4 5 )\n", "@ SOA ns h 7 2 3 4 5\n"]
        )
    )
    for _ in range(draw(st.integers(0, 9))):
        kind, data = draw(DATA)
        owner = draw(st.one_of(LABELS, LABELS.map(lambda label: f"{label}.example.test."), st.just(""), st.just("@")))
        middle = draw(st.sampled_from([" ", " 60 ", " IN ", " 60 IN ", " IN 70 ", "\tin\t"]))
        text += draw(BETWEEN) + owner + middle + kind + " " + data + draw(TAILS) + "\n"
    text = text.removesuffix("\n") if draw(st.booleans()) else text
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


@settings(max_examples=40, deadline=None)
@given(zone_files(ttl=True))
def test_any_layout_is_parsed_as_dnspython_parses_it(text: str) -> None:
    expected: dict[RecordKey, set[str]] = {}
    escaped = "".join(c if ord(c) < 128 else f"\\{ord(c):03d}" for c in text.replace("\r", ""))
    for name, _, data in dns.zone.from_text(escaped, ZONE, relativize=False, check_origin=False).iterate_rdatas():
        key = RecordKey(name.to_text().lower(), data.rdtype.name)
        expected.setdefault(key, set()).add(data.to_text().lower())
    del expected[RecordKey(ZONE, "SOA")]
    parsed = {key: {value.lower() for value in record.values} for key, record in read(text).records.items()}
    assert parsed == expected


WANTED = st.dictionaries(
    st.builds(RecordKey, st.sampled_from([f"a.{ZONE}", f"b.{ZONE}", f"new.{ZONE}", f"a.sub.{ZONE}", ZONE]), st.sampled_from(["A", "TXT"]), st.just("")),
    st.one_of(
        st.none(),
        st.builds(RecordSet, st.sampled_from([60, 300]), st.sets(st.sampled_from(["192.0.2.1", "192.0.2.2", "192.0.2.9"]), min_size=1).map(sorted).map(tuple), st.none(), st.just(""), st.just(False)),
    ),
    min_size=1,
    max_size=4,
)  # fmt: skip


def texts(key: RecordKey, record: RecordSet | None) -> RecordSet | None:
    """The values as TXT when the key has that type."""
    if record is None or key.type == "A":
        return record
    return RecordSet(record.ttl, tuple(f'"{value}"' for value in record.values))


def survives(part: str, whole: str) -> bool:
    """Whether every character of `part` is in `whole`, in the same order."""
    rest = iter(whole)
    return all(character in rest for character in part)


@settings(max_examples=80, deadline=None)
@given(zone_files(), WANTED)
def test_an_edit_writes_exactly_the_changed_sets_and_keeps_other_octets(
    text: str, plain: dict[RecordKey, RecordSet | None]
) -> None:
    wanted = {key: texts(key, record) for key, record in plain.items()}
    before = read(text)
    after = edit(text, before, wanted, 8)

    reread = read(after)
    expected = {key: record for key, record in before.records.items() if key not in wanted}
    expected |= {key: record for key, record in wanted.items() if record is not None}
    assert reread.records == expected
    assert reread.serial == 8

    foreign, at = "", 0
    cuts = [(entry.start, entry.end) for entry in before.entries if entry.key in wanted] + [before.serial_span]
    for start, end in sorted(cuts):
        foreign, at = foreign + text[at:start], end
    assert survives(foreign + text[at:], after)


@settings(max_examples=40, deadline=None)
@given(zone_files(), WANTED)
def test_an_edit_and_its_reverse_give_the_same_records(text: str, plain: dict[RecordKey, RecordSet | None]) -> None:
    wanted = {key: texts(key, record) for key, record in plain.items()}
    before = read(text)
    edited = edit(text, before, wanted, 8)
    back = edit(edited, read(edited), {key: before.records.get(key) for key in wanted}, 9)
    assert read(back).records == before.records
