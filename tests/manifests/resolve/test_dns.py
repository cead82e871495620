"""DNSPolicy, HealthCheck and Record: their values, and the refusal of impossible ones."""

from pathlib import Path

import pytest

from manifests.values.desired import SECOND
from manifests.values.dns import AllUnhealthy, Publish, Routing
from manifests.values.secret_sources import SecretSource
from tests.manifests.trees import GOOD, POLICY, RECORD, load_files, problems_at, write

HEAD = "apiVersion: reconciler/v1\nkind: DNSPolicy\nmetadata: {name: app}\nspec:\n  host: HOST\n  zone: example.com\n"
PLAIN = "  targets:\n    - {name: one, addresses: [198.51.100.1]}\n"
GEO = """\
  healthCheck: {path: /live, additionalHeaders: [{name: X-Token, valueFrom: {secret: {env: TOKEN}}}]}
  targets:
    - {name: one, addresses: [198.51.100.1], geo: eu, default: true}
    - {name: two, hostname: LB.example.net, geo: us, weight: 5}
"""


def policy(body: str, host: str = "app.example.com") -> str:
    return HEAD.replace("HOST", host) + body


def test_places_weights_and_the_check_are_resolved_with_their_defaults(tmp_path: Path) -> None:
    (one,) = load_files(tmp_path, GOOD | {"dns.yaml": policy(GEO)}).policies

    assert one.routing is Routing.GEO_WEIGHTED
    assert [(target.name, target.geo, target.default, target.weight) for target in one.targets] == [
        ("one", "EU", True, 100),
        ("two", "US", False, 5),
    ]
    assert (one.targets[1].publish, one.targets[1].hostname) == (Publish.HOSTNAME, "lb.example.net.")
    assert one.all_unhealthy is AllUnhealthy.PUBLISH_ALL
    check = one.check
    assert check is not None
    assert (check.host, check.protocol, check.port, check.path) == ("app.example.com", "HTTPS", 443, "/live")
    assert (check.interval, check.failure_threshold, check.success_threshold) == (30 * SECOND, 5, 1)
    assert (check.expected, check.verify) == ((200, 201), True)
    assert check.headers == (("X-Token", SecretSource("TOKEN", "")),)
    assert (one.tree_ttl.host, one.tree_ttl.balancer, one.tree_ttl.geo, one.ttl) == (300, 300, 60, 60)


def test_the_forced_health_of_a_target_is_kept(tmp_path: Path) -> None:
    (one,) = load_files(tmp_path, GOOD | {"dns.yaml": policy(GEO.replace("weight: 5", "force: down"))}).policies

    assert [target.force for target in one.targets] == ["", "down"]


def test_a_wildcard_and_its_parent_are_balanced_under_different_names(tmp_path: Path) -> None:
    wild = policy(GEO.replace("{path", "{host: www.app.example.com, path"), "'*.app.example.com'")
    files = GOOD | {"dns.yaml": policy(GEO), "wild.yaml": wild.replace("name: app", "name: wild", 1)}

    assert len(load_files(tmp_path, files).policies) == 2


def test_record_values_have_their_canonical_spelling(tmp_path: Path) -> None:
    text = RECORD.replace("MX", "TXT").replace("[10 mail.example.com]", "['a \"b\"']")
    (record,) = load_files(tmp_path, GOOD | {"mail.yaml": text}).records

    assert record.values == ('"a \\"b\\""',)


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        (policy(GEO, "'*.app.example.com'"), "spec.healthCheck", "is a wildcard"),
        (policy(GEO.replace(", default: true", "")), "spec.targets", "no place serves"),
        (policy(GEO.replace("geo: us", "geo: us, default: true")), "spec.targets", "more than one place"),
        (policy(GEO.replace("geo: us", "geo: moon")), "spec.targets[1].geo", "not the code of a place"),
        (policy("  routing: simple\n" + GEO.replace(", geo: eu, default: true", "")), "spec.targets[1].weight", "weight"),
        (policy("  whenAllUnhealthy: absent\n" + PLAIN), "spec.whenAllUnhealthy", "no target 'absent'"),
        (policy("  whenAllUnhealthy: freeze\n" + PLAIN), "spec.whenAllUnhealthy", "does nothing"),
        (policy("  whenAllUnhealthy: one\n" + GEO), "spec.targets[0].geo", "serves only when no other target"),
        (policy("  whenAllUnhealthy: two\n" + GEO.replace("geo: us, weight: 5", "force: up")), "spec.targets[1].force", "force does"),
        (policy(PLAIN.replace("}", ", force: no}")), "spec.targets[0].force", "up"),
        (policy(PLAIN.replace("}", ", healthCheck: absent}")), "spec.targets[0].healthCheck", "no HealthCheck 'absent'"),
        (policy(PLAIN, "a." + "b" * 60 + ".example.org"), "spec.host", "is not in zone"),
        (policy(PLAIN.replace("addresses: [198.51.100.1]", "hostname: app.example.com")), "spec.host", "in a loop"),
        (RECORD.replace("MX", "NS").replace("10 mail", "ns1"), "spec.type", "name servers belong to the provider"),
        (RECORD.replace("host: example.com", "host: _acme-challenge.example.com"), "spec.host", "belong to the ACME client"),
        (RECORD.replace("host: example.com", "host: app.example.com").replace("MX", "CNAME").replace("10 mail", "x"),
         "spec.host", "already"),
        (RECORD.replace("10 mail", "ten mail"), "spec.values[0]", "preference must be a number"),
    ],
)  # fmt: skip
def test_an_impossible_value_is_refused_at_its_field(text: str, where: str, message: str, tmp_path: Path) -> None:
    name = "dns.yaml" if "DNSPolicy" in text else "more.yaml"
    problems = problems_at(write(tmp_path / "tree", GOOD | {name: text}))

    assert any(message in problem.message and problem.path == where for problem in problems), problems


def test_a_name_belongs_to_the_longest_zone_and_not_below_a_delegation(tmp_path: Path) -> None:
    child = RECORD.replace("name: mail", "name: child").replace("example.com", "sub.example.com")
    below = POLICY.replace("app.example.com", "app.sub.example.com")
    problems = problems_at(write(tmp_path / "one", GOOD | {"dns.yaml": below, "child.yaml": child}))
    assert [problem.path for problem in problems] == ["spec.zone"]

    cut = RECORD.replace("host: example.com", "host: sub.example.com").replace("MX", "NS").replace("10 mail", "ns1")
    problems = problems_at(write(tmp_path / "two", GOOD | {"dns.yaml": below, "cut.yaml": cut}))
    assert ["delegates sub.example.com." in problem.message for problem in problems] == [True]


def test_a_policy_at_the_apex_of_a_zone_may_have_mail_records_beside_it(tmp_path: Path) -> None:
    files = GOOD | {"dns.yaml": policy(PLAIN, "example.com"), "mail.yaml": RECORD}

    assert len(load_files(tmp_path, files).records) == 1
