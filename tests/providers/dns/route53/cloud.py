"""Route 53 for the tests: moto behind checks that are as strict as Amazon's and can fail on purpose.

moto accepts batches that Amazon refuses, and reports every change in sync at once: it would not notice errors of the provider.
"""

import copy
from collections.abc import Callable
from typing import Any

import botocore.exceptions

from manifests.values.desired import SECOND
from providers.dns.route53.provider import Route53Zones
from providers.dns.route53.settings import Route53Settings
from providers.spi import Context

KEYS = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "sentinel-secret-0001"}


def refusal(code: str, message: str = "on purpose", status: int = 400, verb: str = "Test") -> Exception:
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(answer, verb)


class Time:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 1_000 * SECOND
        self.slept: list[float] = []

    def steady(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += int(seconds * SECOND)


class Doorkeeper:
    """The calls that the provider makes, checked like Amazon does. `fail` says by verb what to raise before, `lose` after."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.calls: list[str] = []
        self.batches: list[list[dict[str, Any]]] = []
        self.fail: dict[str, Exception] = {}
        self.lose: dict[str, Exception] = {}
        self.meanwhile: Callable[[], object] = lambda: None
        self.pending = 0
        self.page = 0

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            self.calls.append(verb)
            if verb in self.fail:
                raise self.fail[verb]
            if verb == "change_resource_record_sets":
                meanwhile, self.meanwhile = self.meanwhile, lambda: None
                meanwhile()
                changes = arguments["ChangeBatch"]["Changes"]
                self._check(arguments["HostedZoneId"], changes)
                arguments = {**arguments, "ChangeBatch": {"Changes": _for_moto(changes)}}
            if verb == "list_resource_record_sets" and self.page:
                arguments["MaxItems"] = str(self.page)
            answer = getattr(self.client, verb)(**copy.deepcopy(arguments))
            if verb == "get_change" and self.pending:
                self.pending -= 1
                answer["ChangeInfo"]["Status"] = "PENDING"
            if verb in self.lose:
                raise self.lose[verb]
            return answer

        return call

    def close(self) -> None:
        self.client.close()

    def sets(self, zone_id: str) -> dict[tuple[str, str, str], dict[str, Any]]:
        pages = self.client.get_paginator("list_resource_record_sets").paginate(HostedZoneId=zone_id)
        rows = [row for page in pages for row in page["ResourceRecordSets"]]
        return {(row["Name"], row["Type"], row.get("SetIdentifier", "")): row for row in rows}

    def _check(self, zone_id: str, changes: list[dict[str, Any]]) -> None:
        def refuse(text: str) -> Exception:
            return refusal("InvalidChangeBatch", f"[{text}]")

        self.batches.append(changes)
        values = [one["Value"] for change in changes for one in change["ResourceRecordSet"].get("ResourceRecords", ())]
        if len(changes) > 1000 or sum(map(len, values)) > 32_000:
            raise refuse("Number of records limit or characters limit exceeded")
        after = self.sets(zone_id)
        for change in changes:
            row = change["ResourceRecordSet"]
            key = (row["Name"], row["Type"], row.get("SetIdentifier", ""))
            what = f"resource record set [name='{row['Name']}', type='{row['Type']}']"
            if change["Action"] == "DELETE":
                if key not in after:
                    raise refuse(f"Tried to delete {what} but it was not found")
                if after[key] != row:
                    raise refuse(f"Tried to delete {what} but the values provided do not match the current values")
                del after[key]
            else:
                if change["Action"] == "CREATE" and key in after:
                    raise refuse(f"Tried to create {what} but it already exists")
                after[key] = row
        for name, kind, _ in after:
            here = {key: row for key, row in after.items() if key[0] == name}
            if kind == "CNAME" and any(key[1] != "CNAME" for key in here):
                raise refuse(f"RRSet of type CNAME with DNS name {name} is not permitted as it conflicts with others")
            policies = {
                (key[2] != "", "Weight" in row, "GeoLocation" in row) for key, row in here.items() if key[1] == kind
            }
            if len(policies) > 1:
                raise refuse(f"{name} {kind} has sets of several policies")


def _for_moto(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same batch in a form that moto carries out: it judges creations as if the deletions before them were not there."""

    def key(change: dict[str, Any]) -> tuple[object, ...]:
        row = change["ResourceRecordSet"]
        return (row["Name"], row["Type"], row.get("SetIdentifier", ""))

    created = {key(change) for change in changes if change["Action"] == "CREATE"}
    return [
        {**change, "Action": "UPSERT"} if change["Action"] == "CREATE" else change
        for change in changes
        if change["Action"] == "CREATE" or key(change) not in created
    ]


class Cloud:
    """An account with hosted zones, and providers that see it through one doorkeeper."""

    def __init__(self, client: Any) -> None:
        self.time = Time()
        self.client = client
        self.door = Doorkeeper(client)
        self._next = 0

    def new_zone(self, name: str = "") -> str:
        self._next += 1
        zone = name or f"z{self._next}.test."
        self.client.create_hosted_zone(Name=zone, CallerReference=f"test-{self._next}")
        return zone

    def zone_id(self, zone: str) -> str:
        found = self.client.list_hosted_zones_by_name(DNSName=zone)["HostedZones"][0]["Id"]
        return str(found.rpartition("/")[2])

    def provider(self, **settings: object) -> Route53Zones:
        return Route53Zones(
            "names",
            Route53Settings.model_validate(settings),
            Context("harness", "/nowhere"),
            steady=self.time.steady,
            sleep=self.time.sleep,
            connect=lambda: self.door,  # type: ignore[arg-type,return-value]
        )

    def put(self, zone: str, **row: Any) -> None:
        """A change by hand."""
        changes = [{"Action": "UPSERT", "ResourceRecordSet": row}]
        self.client.change_resource_record_sets(HostedZoneId=self.zone_id(zone), ChangeBatch={"Changes": changes})
