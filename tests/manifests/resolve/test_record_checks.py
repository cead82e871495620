"""Doubtful names and delegations: warnings with line and hint, and what may stand at and below a delegated name."""

from pathlib import Path

import pytest

from manifests.problems import Code, Problem
from tests.manifests.resolve.test_dns import PLAIN, policy
from tests.manifests.resolve.test_record_list import a_list
from tests.manifests.trees import GOOD, RECORD, problems_of


def record(name: str, host: str, kind: str, *values: str, zone: str = "example.com") -> dict[str, str | bytes]:
    lines = "".join(f"\n    - '{value}'" for value in values)
    text = RECORD.replace("host: example.com", f"host: {host}").replace("zone: example.com", f"zone: {zone}")
    text = text.replace("name: mail", f"name: {name}").replace("MX", kind).replace(" [10 mail.example.com]", lines)
    return {f"{name}.yaml": text}


def warnings(tmp_path: Path, *files: dict[str, str | bytes]) -> list[Problem]:
    tree = {**GOOD}
    for file in files:
        tree |= file
    problems = list(problems_of(tmp_path, tree))
    assert all(problem.is_warning for problem in problems), problems
    return problems


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("CNAME", "192.0.2.1", "points at 192.0.2.1, which is an address, not a name"),
        ("MX", "10 192.0.2.1", "which is an address"),
        ("SRV", "0 5 443 192.0.2.9.", "which is an address"),
        ("HTTPS", "1 192.0.2.9 alpn=h2", "which is an address"),
        ("NAPTR", '100 10 "S" "SIP+D2U" "" 192.0.2.9', "which is an address"),
        ("PTR", "host.1", "ends in a number"),
        ("CNAME", "mail", "points at mail, which is read as the absolute name mail., not as a name below example.com."),
        ("CNAME", "www.example.com.example.com", "ends in the name of the zone twice"),
        ("CNAME", "app.sub", "and app.sub.example.com. is declared"),
    ],
)
def test_a_target_that_cannot_be_meant_is_a_warning_at_its_line(
    tmp_path: Path, kind: str, value: str, message: str
) -> None:
    other = record("other", "app.sub.example.com", "A", "192.0.2.3")
    (problem,) = warnings(tmp_path, record("r", "x.example.com", kind, value), other)

    assert (problem.code, problem.file, problem.line, problem.path) == (
        Code.SUSPICIOUS_NAME,
        "r.yaml",
        9,
        "spec.values[0]",
    )
    assert f"record/r: x.example.com. {kind}" in problem.message
    assert message in problem.message
    assert problem.hint.startswith("write ")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("CNAME", ["mail."]),
        ("MX", ["0 ."]),
        ("HTTPS", ["1 . alpn=h2"]),
        ("SRV", ["0 0 0 ."]),
        ("CNAME", ["www.example.net"]),
        ("CNAME", ["app.sub."]),
        ("CNAME", ["example.com"]),
        ("TXT", ["192.0.2.1"]),
        ("MX", ["10 mx1.example.com", "20 10.in-addr.arpa"]),
    ],
)
def test_names_that_may_be_meant_are_no_warning(tmp_path: Path, kind: str, values: list[str]) -> None:
    other = record("other", "app.sub.example.com", "A", "192.0.2.3")
    assert warnings(tmp_path, record("r", "x.example.com", kind, *values), other) == []


def test_names_and_targets_of_lists_and_policies_are_checked_too(tmp_path: Path) -> None:
    listed = a_list(
        "www.example.net.example.net: {A: 192.0.2.1}",
        "alias.example.net: {CNAME: 192.0.2.1}",
        "mail.example.net: {MX: 10 mx.example.org}",
        "more.example.net: {MX: {ttl: 1m, values: [10 mx.example.org, 20 192.0.2.7]}}",
    )
    host = PLAIN.replace("addresses: [198.51.100.1]", "hostname: app.1")
    problems = warnings(tmp_path, {"zone.yaml": listed, "dns.yaml": policy(host)})

    assert [(problem.file, problem.line) for problem in problems] == [
        ("dns.yaml", 8),
        ("zone.yaml", 8),
        ("zone.yaml", 9),
        ("zone.yaml", 11),
    ]
    assert "alias.example.net. CNAME: it points at 192.0.2.1" in problems[2].message
    assert "values[1]" in problems[3].path


def test_a_delegation_has_its_ds_and_glue_and_nothing_else(tmp_path: Path) -> None:
    digest = f"1 13 2 {'0b' * 32}"
    files = (
        record("ns", "sub.example.com", "NS", "ns1.sub.example.com", "sub.example.com"),
        record("ds", "sub.example.com", "DS", digest),
        record("a", "ns1.sub.example.com", "A", "192.0.2.1"),
        record("aaaa", "ns1.sub.example.com", "AAAA", "2001:db8::1"),
        record("self", "sub.example.com", "A", "192.0.2.2"),
    )
    assert warnings(tmp_path, *files) == []
    for host, kind, value in (
        ("ns1.sub.example.com", "TXT", "x"),
        ("ns2.sub.example.com", "A", "192.0.2.1"),
        ("sub.example.com", "TXT", "x"),
    ):
        tree = {**GOOD}
        for file in (*files, record("bad", host, kind, value)):
            tree |= file
        (problem,) = problems_of(tmp_path, tree)
        assert (problem.code, problem.file) == (Code.CONFLICT, "bad.yaml")


def test_glue_of_a_zone_that_is_declared_as_well_belongs_above_it(tmp_path: Path) -> None:
    files = (
        record("ns", "sub.example.com", "NS", "ns1.sub.example.com"),
        record("glue", "ns1.sub.example.com", "A", "192.0.2.1"),
        record("inner", "www.sub.example.com", "A", "192.0.2.1", zone="sub.example.com"),
    )
    assert warnings(tmp_path, *files) == []


def test_a_ds_at_the_apex_belongs_to_the_zone_above(tmp_path: Path) -> None:
    tree = GOOD | record("ds", "example.com", "DS", f"1 13 2 {'0b' * 32}")
    (problem,) = problems_of(tmp_path, tree)
    assert "DS cannot be at the name of the zone" in problem.message


def test_a_type_without_a_name_may_be_declared_in_both_kinds(tmp_path: Path) -> None:
    listed = a_list("new.example.net: {TYPE65280: '\\# 4 c0000201', CAA: 0 issue ca.example}")
    assert warnings(tmp_path, {"zone.yaml": listed}, record("r", "x.example.com", "TYPE65280", "\\# 0")) == []
    (problem,) = problems_of(tmp_path, GOOD | {"zone.yaml": a_list("new.example.net: {TYPE16: x}"), "r.yaml": ""})
    assert "TYPE16 is TXT; write TXT" in problem.message
