"""Route 53 beyond the suite: limits, pages, foreign policies, other writers, and every way to fail."""

from pathlib import Path

import botocore.exceptions as aws
import pytest
from botocore.parsers import ResponseParserError

from manifests.values.desired import SECOND
from providers.actions import ChangeRecords, RecordChange
from providers.dns.common.ownership import quote
from providers.dns.route53.provider import Route53Zones
from providers.dns.route53.settings import Route53Settings
from providers.errors import Conflict, OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.facts import RecordKey, RecordSet
from providers.spi import Context, DNSProvider
from providers.wrappers.owned import owned
from reconciler.core.dns.capabilities_fit import Lack, adapt
from tests.providers.dns.route53.cloud import KEYS, Cloud, refusal

A1, A2 = RecordSet(60, ("192.0.2.1",)), RecordSet(60, ("192.0.2.2",))
Change = tuple[str, str, RecordSet | None, RecordSet | None]


def action(zone: str, *changes: Change) -> ChangeRecords:
    rows = (
        RecordChange(RecordKey(f"{label}.{zone}" if label else zone, kind), before, after, "suite/DNSPolicy/app")
        for label, kind, before, after in changes
    )
    return ChangeRecords("names", zone, tuple(rows))


def records(names: DNSProvider, zone: str) -> dict[RecordKey, RecordSet]:
    return {key: one for key, one in names.observe([zone])[0].records.items() if key[:2] != (zone, "NS")}


@pytest.fixture
def zone(cloud: Cloud) -> str:
    return cloud.new_zone()


@pytest.fixture
def names(cloud: Cloud) -> Route53Zones:
    return cloud.provider()


# --- what is sent -------------------------------------------------------------------------------------------------


def test_special_octets_are_written_in_octal_and_read_in_decimal(cloud: Cloud, zone: str, names: Route53Zones) -> None:
    text = RecordSet(60, ('"\\195\\188 \\"q\\" \\\\ \\009"',))
    names.perform(action(zone, ("*.w", "TXT", None, text)))
    row = cloud.door.batches[0][0]["ResourceRecordSet"]
    assert row["Name"] == f"\\052.w.{zone}"
    assert row["ResourceRecords"] == [{"Value": '"\\303\\274 \\"q\\" \\\\ \\011"'}]
    assert records(names, zone) == {RecordKey(f"*.w.{zone}", "TXT"): text}


def test_a_text_of_600_octets_goes_in_pieces_of_255(cloud: Cloud, zone: str, names: Route53Zones) -> None:
    names.perform(action(zone, ("t", "TXT", None, RecordSet(60, (quote("x" * 600),)))))
    (value,) = cloud.door.batches[0][0]["ResourceRecordSet"]["ResourceRecords"]
    assert [len(piece) for piece in value["Value"].strip('"').split('" "')] == [255, 255, 90]


def test_a_replacement_deletes_the_set_that_was_read_and_deletes_first(
    cloud: Cloud, zone: str, names: Route53Zones
) -> None:
    names.perform(action(zone, ("app", "A", None, A1)))
    cname = RecordSet(60, ("x.example.net.",))
    names.perform(action(zone, ("app", "CNAME", None, cname), ("app", "A", A1, None)))
    assert [(batch["Action"], batch["ResourceRecordSet"]["Type"]) for batch in cloud.door.batches[1]] == [
        ("DELETE", "A"),
        ("CREATE", "CNAME"),
    ]


def test_a_change_by_another_writer_during_a_write_is_not_overwritten(
    cloud: Cloud, zone: str, names: Route53Zones
) -> None:
    names.perform(action(zone, ("app", "A", None, A1)))
    name, theirs = f"app.{zone}", [{"Value": "192.0.2.99"}]
    cloud.door.meanwhile = lambda: cloud.put(zone, Name=name, Type="A", TTL=60, ResourceRecords=theirs)
    with pytest.raises(Conflict, match="do not match"):
        names.perform(action(zone, ("app", "A", A1, A2), ("new", "A", None, A1)))
    assert records(names, zone) == {RecordKey(name, "A"): RecordSet(60, ("192.0.2.99",))}


def test_a_large_change_goes_in_batches_that_keep_marks_with_data(cloud: Cloud, zone: str) -> None:
    mine = owned(cloud.provider(), "suite")
    text = RecordSet(60, (quote("z" * 200),))
    mine.perform(action(zone, *((f"n{number}", "TXT", None, text) for number in range(300))))
    assert len(cloud.door.batches) > 1
    assert len(mine.observe([zone])[0].owners) == 300
    for batch in cloud.door.batches:
        named = {one["ResourceRecordSet"]["Name"].removeprefix("_reconciler-txt.") for one in batch}
        assert len(batch) == 2 * len(named)


def test_one_set_beyond_the_limits_is_refused_before_anything_is_sent(
    cloud: Cloud, zone: str, names: Route53Zones
) -> None:
    huge = RecordSet(60, tuple(sorted(quote(f"{number:04}" + "z" * 240) for number in range(140))))
    with pytest.raises(Rejected, match="32000"):
        names.perform(action(zone, ("app", "A", None, A1), ("huge", "TXT", None, huge)))
    assert cloud.door.batches == []


def test_a_health_check_attached_by_another_writer_is_kept(cloud: Cloud, zone: str, names: Route53Zones) -> None:
    made = cloud.client.create_health_check(
        CallerReference="one", HealthCheckConfig={"Type": "TCP", "IPAddress": "192.0.2.1", "Port": 80}
    )
    check = made["HealthCheck"]["Id"]
    row = {"Name": f"app.{zone}", "Type": "A", "SetIdentifier": "one", "TTL": 60, "HealthCheckId": check}
    cloud.put(zone, **row, Weight=1, ResourceRecords=[{"Value": "192.0.2.1"}])
    key = RecordKey(f"app.{zone}", "A", "one")
    change = RecordChange(key, A1._replace(weight=1), A2._replace(weight=7), "suite/x")
    names.perform(ChangeRecords("names", zone, (change,)))
    assert cloud.door.sets(cloud.zone_id(zone))[(f"app.{zone}", "A", "one")]["HealthCheckId"] == check


# --- what is seen -------------------------------------------------------------------------------------------------


def test_a_zone_of_many_pages_is_read_completely(cloud: Cloud, zone: str, names: Route53Zones) -> None:
    names.perform(action(zone, *((f"n{number}", "A", None, A1) for number in range(25))))
    cloud.door.page = 4
    assert len(records(names, zone)) == 25
    again = cloud.provider()
    assert set(again.observe_names(zone, [f"n7.{zone}", f"gone.{zone}"]).records) >= {RecordKey(f"n7.{zone}", "A")}


def test_in_a_large_zone_only_the_names_that_matter_are_asked_for(cloud: Cloud, zone: str) -> None:
    rows = [
        {"Action": "CREATE", "ResourceRecordSet": {"Name": f"n{number}.{zone}", "Type": "A", "TTL": 60, "ResourceRecords": [{"Value": "192.0.2.1"}]}}
        for number in range(900)
    ]  # fmt: skip
    cloud.client.change_resource_record_sets(HostedZoneId=cloud.zone_id(zone), ChangeBatch={"Changes": rows})
    names = cloud.provider()
    fact = names.observe_names(zone, [f"n5.{zone}", f"n50.{zone}", f"none.{zone}"])
    assert set(fact.records) == {RecordKey(f"n5.{zone}", "A"), RecordKey(f"n50.{zone}", "A")}
    assert cloud.door.calls.count("list_resource_record_sets") == 3


def test_policies_that_have_no_word_here_are_seen_and_never_mixed_with(
    cloud: Cloud, zone: str, names: Route53Zones
) -> None:
    row = {"Name": f"app.{zone}", "Type": "A", "TTL": 60, "ResourceRecords": [{"Value": "192.0.2.9"}]}
    cloud.put(zone, **row, SetIdentifier="near", Region="eu-west-1")
    key = RecordKey(f"app.{zone}", "A", "near")
    assert records(names, zone) == {key: RecordSet(60, ("192.0.2.9",))}
    member = RecordChange(RecordKey(f"app.{zone}", "A", "mine"), None, A1._replace(weight=1), "suite/x")
    with pytest.raises(Rejected, match="an unknown policy"):
        names.perform(ChangeRecords("names", zone, (member,)))


def test_an_alias_of_another_owners_balancer_is_read(cloud: Cloud, zone: str, names: Route53Zones) -> None:
    target = {"HostedZoneId": "Z35SXDOTRQ7X7K", "DNSName": "LB-1.elb.example.net.", "EvaluateTargetHealth": True}
    cloud.put(zone, Name=zone, Type="A", AliasTarget=target)
    assert records(names, zone) == {RecordKey(zone, "A"): RecordSet(0, ("lb-1.elb.example.net.",), alias=True)}


def test_two_zones_of_one_name_are_refused_until_one_is_named(cloud: Cloud, zone: str) -> None:
    first = cloud.zone_id(zone)
    cloud.new_zone(zone)
    with pytest.raises(Rejected, match="2 public hosted zones have this name"):
        cloud.provider().observe([zone])
    assert cloud.provider(zoneIds=[first]).observe([zone])
    with pytest.raises(Rejected, match="no private hosted zone"):
        cloud.provider(visibility="private").observe([zone])
    with pytest.raises(Rejected, match="no public hosted zone of this name"):
        cloud.provider().observe(["absent.test."])


def test_check_names_what_is_missing_and_changes_nothing(cloud: Cloud, zone: str, names: Route53Zones) -> None:
    assert names.check([zone]) == ()
    assert "no public hosted zone" in names.check(["absent.test."])[0]
    cloud.door.fail["list_resource_record_sets"] = refusal("AccessDenied", status=403)
    assert "allow route53:ListResourceRecordSets" in names.check([zone])[0]
    assert "change_resource_record_sets" not in cloud.door.calls


# --- what fails ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refusal("Throttling", "Rate exceeded"), Unreachable),
        (refusal("PriorRequestNotComplete"), Unreachable),
        (refusal("ServiceUnavailable", status=503), Unreachable),
        (refusal("TooManyRequests", status=429), Unreachable),
        (aws.EndpointConnectionError(endpoint_url="https://route53.example.net"), Unreachable),
        (aws.ConnectTimeoutError(endpoint_url="https://route53.example.net"), Unreachable),
        (aws.NoCredentialsError(), Rejected),
        (refusal("AccessDenied", status=403), Rejected),
        (refusal("SignatureDoesNotMatch", status=403), Rejected),
        (refusal("NoSuchHostedZone", status=404), Rejected),
        (refusal("InvalidChangeBatch", "FATAL problem: bad value"), Rejected),
        (refusal("InternalError", status=500), OutcomeUnknown),
        (aws.ReadTimeoutError(endpoint_url="https://route53.example.net"), OutcomeUnknown),
        (aws.ConnectionClosedError(endpoint_url="https://route53.example.net"), OutcomeUnknown),
        (ResponseParserError("invalid XML"), OutcomeUnknown),
    ],
)
def test_a_change_that_fails_says_what_is_known(
    cloud: Cloud, zone: str, names: Route53Zones, error: Exception, kind: type[ProviderError]
) -> None:
    cloud.door.fail["change_resource_record_sets"] = error
    with pytest.raises(kind) as raised:
        names.perform(action(zone, ("app", "A", None, A1)))
    assert KEYS["aws_secret_access_key"] not in str(raised.value)
    assert records(names, zone) == {}
    cloud.door.fail.clear()
    names.perform(action(zone, ("app", "A", None, A1)))
    assert records(names, zone) == {RecordKey(f"app.{zone}", "A"): A1}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refusal("Throttling"), Unreachable),
        (refusal("InternalError", status=500), Unreachable),
        (ResponseParserError("invalid XML"), Unreachable),
        (aws.ReadTimeoutError(endpoint_url="https://route53.example.net"), Unreachable),
        (refusal("AccessDenied", status=403), Rejected),
    ],
)
def test_a_look_that_fails_raises_and_no_change_follows(
    cloud: Cloud, zone: str, names: Route53Zones, error: Exception, kind: type[ProviderError]
) -> None:
    cloud.door.fail["list_resource_record_sets"] = error
    for act in (lambda: names.observe([zone]), lambda: names.perform(action(zone, ("app", "A", None, A1)))):
        with pytest.raises(kind):
            act()
    assert cloud.door.batches == []


def test_a_lost_answer_is_unknown_and_repeating_is_harmless(cloud: Cloud, zone: str, names: Route53Zones) -> None:
    cloud.door.lose["change_resource_record_sets"] = aws.ReadTimeoutError(endpoint_url="https://route53.example.net")
    with pytest.raises(OutcomeUnknown):
        names.perform(action(zone, ("app", "A", None, A1)))
    cloud.door.lose.clear()
    names.perform(action(zone, ("app", "A", None, A1)))
    assert len(cloud.door.batches) == 1
    assert records(names, zone) == {RecordKey(f"app.{zone}", "A"): A1}


def test_a_failure_between_two_batches_says_how_far_it_came(cloud: Cloud, zone: str, names: Route53Zones) -> None:
    text = RecordSet(60, (quote("z" * 200),))
    change = action(zone, *((f"n{number}", "TXT", None, text) for number in range(300)))

    def then_throttled() -> None:
        cloud.door.meanwhile = lambda: (_ for _ in ()).throw(refusal("Throttling"))

    cloud.door.meanwhile = then_throttled
    with pytest.raises(OutcomeUnknown, match="1 of 2 batches"):
        names.perform(change)
    names.perform(change)
    assert len(records(names, zone)) == 300


def test_a_change_is_done_when_all_name_servers_have_it(cloud: Cloud, zone: str, names: Route53Zones) -> None:
    cloud.door.pending = 4
    names.perform(action(zone, ("app", "A", None, A1)))
    assert cloud.door.calls.count("get_change") == 5
    cloud.door.pending = 1_000
    with pytest.raises(OutcomeUnknown, match="after 20 s it is PENDING"):
        names.perform(action(zone, ("app", "A", A1, A2)))
    impatient = cloud.provider(syncTimeout="0s")
    calls = cloud.door.calls.count("get_change")
    impatient.perform(action(zone, ("app", "A", A2, A1)))
    assert cloud.door.calls.count("get_change") == calls


def test_the_rate_is_kept_and_a_change_does_not_wait_for_pages(cloud: Cloud, zone: str, names: Route53Zones) -> None:
    names.perform(action(zone, *((f"n{number}", "A", None, A1) for number in range(40))))
    cloud.door.page = 1
    start, calls = cloud.time.now, len(cloud.door.calls)
    names.observe([zone])
    assert (len(cloud.door.calls) - calls) / ((cloud.time.now - start) / SECOND) <= 5
    cloud.door.page = 0
    slept = len(cloud.time.slept)
    cloud.provider(syncTimeout="0s").perform(action(zone, ("n0", "A", A1, A2)))
    assert cloud.time.slept[slept:] == []


def test_half_an_access_key_is_refused_and_missing_secrets_are_named(zone: str) -> None:
    with pytest.raises(ValueError, match="needs its id and its secret"):
        Route53Settings.model_validate({"accessKeyId": {"env": "ID"}})
    settings = Route53Settings.model_validate({"accessKeyId": {"env": "NO_ID"}, "secretAccessKey": {"env": "NO_KEY"}})
    names = Route53Zones("names", settings, Context("suite", "/nowhere"))
    with pytest.raises(Rejected, match="NO_ID is not set"):
        names.observe([zone])
    names.close()


def test_with_an_access_key_from_files_it_reaches_the_account(cloud: Cloud, zone: str, tmp_path: Path) -> None:
    for name, text in KEYS.items():
        (tmp_path / name).write_text(text + "\n")
        (tmp_path / name).chmod(0o600)
    settings = {
        "accessKeyId": {"file": str(tmp_path / "aws_access_key_id")},
        "secretAccessKey": {"file": str(tmp_path / "aws_secret_access_key")},
        "syncTimeout": "0s",
    }
    context = Context("suite", "/nowhere")
    names = Route53Zones("names", Route53Settings.model_validate(settings), context, sleep=cloud.time.sleep)
    names.perform(action(zone, ("app", "A", None, A1)))
    assert records(cloud.provider(), zone) == {RecordKey(f"app.{zone}", "A"): A1}
    names.close()


def test_a_tree_of_weights_and_places_is_published_once_as_it_is_wanted(cloud: Cloud, zone: str) -> None:
    tree = {
        RecordKey(zone, "A"): RecordSet(0, (f"g1.lb.{zone}",), alias=True),
        RecordKey(f"app.{zone}", "CNAME"): RecordSet(300, (f"lb.{zone}",)),
        RecordKey(f"lb.{zone}", "CNAME", "EU"): RecordSet(300, (f"eu.lb.{zone}",), geo="EU"),
        RecordKey(f"lb.{zone}", "CNAME", "by"): RecordSet(300, (f"eu.lb.{zone}",), geo="DE-BY"),
        RecordKey(f"lb.{zone}", "CNAME", "default"): RecordSet(300, (f"eu.lb.{zone}",), geo="*"),
        RecordKey(f"eu.lb.{zone}", "CNAME", "g1"): RecordSet(60, (f"g1.lb.{zone}",), weight=1000),
        RecordKey(f"eu.lb.{zone}", "CNAME", "g2"): RecordSet(60, ("lb.example.net.",), weight=1),
        RecordKey(f"g1.lb.{zone}", "A"): A1,
    }
    mine = owned(cloud.provider(), "suite")
    found = adapt(tree, zone, mine.observe([zone])[0].capabilities)
    assert {note.lack for note in found.notes} == {Lack.GEO, Lack.WEIGHT_RANGE}
    changes = tuple(RecordChange(key, None, record, "suite/DNSPolicy/app") for key, record in found.records.items())
    mine.perform(ChangeRecords("names", zone, changes))
    assert records(mine, zone) == found.records
    assert adapt(tree, zone, mine.observe([zone])[0].capabilities).records == records(mine, zone)
    assert mine.observe([zone])[0].owners == dict.fromkeys(found.records, "suite/DNSPolicy/app")
    mine.perform(ChangeRecords("names", zone, changes))
    assert len(cloud.door.batches) == 1
