"""Whole zones in one document: their record sets, and the problems of single records."""

from pathlib import Path

import pytest

from providers.facts import RecordKey, RecordSet
from tests.manifests.trees import GOOD, RECORD, load_files, problems_of

HEAD = """\
apiVersion: reconciler/v1
kind: RecordList
metadata: {name: zone}
spec:
  zone: example.net
  ttl: 10m
  names:
"""


def a_list(*lines: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in lines)


def reported(tmp_path: Path, *lines: str, **more: str) -> list[tuple[int, str, str]]:
    files: dict[str, str | bytes] = {**GOOD, "zone.yaml": a_list(*lines), **{f"{k}.yaml": v for k, v in more.items()}}
    problems = [problem for problem in problems_of(tmp_path, files) if problem.file == "zone.yaml"]
    return [(problem.line, str(problem.code), problem.message) for problem in problems]


def test_a_list_becomes_record_sets_equal_to_those_of_looks(tmp_path: Path) -> None:
    text = a_list(
        "Example.net.: {MX: [20 b.example.net, 10 a.example.net], TXT: v=spf1 -all}",
        "www.example.net:",
        "  A: {ttl: 1m, values: [192.0.2.2, 192.0.2.1]}",
        "  AAAA: 2001:DB8:0::1",
        '"*.example.net": {CNAME: www.example.net}',
    )
    (records,) = load_files(tmp_path, {**GOOD, "zone.yaml": text}).record_lists

    assert (records.key, records.zone, records.where.file) == ("recordlist/zone", "example.net.", "zone.yaml")
    assert records.sets == {
        RecordKey("example.net.", "MX"): RecordSet(600, ("10 a.example.net.", "20 b.example.net.")),
        RecordKey("example.net.", "TXT"): RecordSet(600, ('"v=spf1 -all"',)),
        RecordKey("www.example.net.", "A"): RecordSet(60, ("192.0.2.1", "192.0.2.2")),
        RecordKey("www.example.net.", "AAAA"): RecordSet(600, ("2001:db8::1",)),
        RecordKey("*.example.net.", "CNAME"): RecordSet(600, ("www.example.net.",)),
    }


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("a.example.net: {A: 192.0.2.300}", "bad-value", "'192.0.2.300' is not an IPv4 address"),
        ("a.example.net: {A: [192.0.2.1, 192.0.2.1]}", "bad-value", "in the list twice"),
        ("a.example.net: {A: []}", "out-of-range", "is empty"),
        ("a.example.net: {A: {ttl: 5, values: 192.0.2.1}}", "bad-value", "expected a duration with a unit"),
        ("a.example.net: {A: {ttl: 100ms, values: 192.0.2.1}}", "bad-value", "whole number of seconds"),
        ("a.example.net: {A: {ttl: 5s}}", "missing-field", "field 'values' is missing"),
        ("a.example.net: {A: {tll: 5s, values: 192.0.2.1}}", "unknown-field", "no field 'tll'"),
        ("a.example.net: {TXT: 12}", "wrong-type", "expected a string, a list or a mapping"),
        ("a.example.net: {TXT: [12]}", "wrong-type", "expected a string, found a whole number"),
        ("a.example.net: {A: {values: 12}}", "wrong-type", "expected a string or a list"),
        ("a.example.net: {a: 192.0.2.1}", "unknown-field", "no record type 'a'"),
        ("a.example.net: 192.0.2.1", "wrong-type", "expected a mapping of types"),
        ("a.example.net: {}", "wrong-type", "expected a mapping of types"),
        ("a.example.net: {CNAME: b.example.net, A: 192.0.2.1}", "conflict", "cannot share its name"),
        ("a.example.net: {CNAME: [b.example.net, c.example.net]}", "bad-value", "at most one CNAME"),
        ("a.example.org: {A: 192.0.2.1}", "outside-zone", "is not in zone example.net."),
        ("-a.example.net: {A: 192.0.2.1}", "bad-value", "is not a DNS name"),
        ("example.net: {NS: ns.example.org}", "conflict", "cannot be at the name of the zone"),
        ("_acme-challenge.example.net: {TXT: x}", "conflict", "belong to the ACME client"),
        ("a.example.net: {CNAME: a.example.net}", "cname-loop", "a.example.net. -> a.example.net."),
    ],
)
def test_each_bad_record_is_reported_at_its_line(tmp_path: Path, line: str, code: str, message: str) -> None:
    problems = reported(tmp_path, "ok.example.net: {A: 192.0.2.1}", line, "fine.example.net: {TXT: x}")

    assert [(line, code) for line, code, _ in problems] == [(9, code)]
    assert message in problems[0][2]
    assert problems[0][2].startswith("recordlist/zone: ")


def test_all_bad_records_are_reported_at_once(tmp_path: Path) -> None:
    problems = reported(tmp_path, *(f"n{index}.example.net: {{A: 192.0.2.{250 + index}}}" for index in range(10)))

    assert [line for line, _, _ in problems] == [14, 15, 16, 17]


def test_two_spellings_of_one_name_are_one_name(tmp_path: Path) -> None:
    problems = reported(tmp_path, "a.example.net: {A: 192.0.2.1}", "A.example.net.: {AAAA: 2001:db8::1}")

    assert [(line, code) for line, code, _ in problems] == [(9, "duplicate-key")]


def test_two_lists_cannot_have_the_same_name_and_type_or_share_a_cname(tmp_path: Path) -> None:
    other = a_list("a.example.net: {A: 192.0.2.9, TXT: x}", "b.example.net: {A: 192.0.2.9}")
    problems = reported(
        tmp_path,
        "a.example.net: {A: 192.0.2.1}",
        "b.example.net: {CNAME: a.example.net}",
        other=other.replace("name: zone", "name: other"),
    )

    assert [(line, code) for line, code, _ in problems] == [(8, "conflict"), (9, "conflict")]
    assert "recordlist/other at other.yaml:1:1 already has it" in problems[0][2]
    assert "a CNAME excludes other records" in problems[1][2]


def test_a_record_beside_a_list_that_has_its_name_and_type_is_refused(tmp_path: Path) -> None:
    record = RECORD.replace("host: example.com", "host: a.example.net").replace(
        "zone: example.com", "zone: example.net"
    )
    files: dict[str, str | bytes] = {
        **GOOD,
        "zone.yaml": a_list("a.example.net: {MX: 1 b.example.net, A: 192.0.2.1}"),
        "mail.yaml": record,
    }
    (problem,) = problems_of(tmp_path, files)

    assert (problem.file, problem.code) == ("mail.yaml", "conflict")
    assert "already has MX at a.example.net." in problem.message


def test_a_zone_has_no_records_below_a_delegation_except_glue(tmp_path: Path) -> None:
    problems = reported(
        tmp_path,
        "child.example.net: {NS: ns.child.example.net}",
        "ns.child.example.net: {A: 192.0.2.1}",
        "www.child.example.net: {A: 192.0.2.2}",
    )

    assert [(line, code) for line, code, _ in problems] == [(10, "conflict")]
    assert "delegates child.example.net." in problems[0][2]


def test_a_name_of_a_deeper_zone_belongs_to_that_zone(tmp_path: Path) -> None:
    deeper = a_list("x.sub.example.net: {A: 192.0.2.1}").replace("name: zone", "name: sub")
    problems = reported(
        tmp_path,
        "www.sub.example.net: {A: 192.0.2.1}",
        "sub.example.net: {NS: ns.example.org}",
        sub=deeper.replace("zone: example.net", "zone: sub.example.net"),
    )

    assert (8, "outside-zone") in [(line, code) for line, code, _ in problems]


def test_a_long_chain_of_names_that_ends_is_not_a_loop(tmp_path: Path) -> None:
    chain = [f"n{index}.example.net: {{CNAME: n{index + 1}.example.net}}" for index in range(3_000)]

    assert reported(tmp_path, *chain) == []
    problems = reported(tmp_path, *chain, "n3000.example.net: {CNAME: n2998.example.net}")
    assert [code for _, code, _ in problems] == ["cname-loop"]
