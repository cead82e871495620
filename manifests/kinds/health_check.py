"""HealthCheck: a probe of an address or host name that stands alone, and the same fields where a DNSPolicy has them.

The fields of both are the same (`CheckFields`), with the same defaults: what people know from DNS services.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from manifests.kinds.base import Manifest, Model, unique
from manifests.kinds.probe import HTTPHeader
from manifests.types.durations import Duration
from manifests.types.errors import bad_value
from manifests.types.fields import Interval, Items, PortNumber, Shown, URLPath
from manifests.types.network import host_name, ip_address
from manifests.types.probe import ServerName
from manifests.values.desired import SECOND

Threshold = Annotated[int, Field(ge=1, le=1000), Shown("number, 1 to 1000")]
Status = Annotated[int, Field(ge=200, le=599), Shown("status, 200 to 599")]


def _place(value: str) -> str:
    if ":" in value or value.replace(".", "").isdigit():
        return ip_address(value)
    if value.startswith("*"):
        raise bad_value(f"'{value[:80]}' is a pattern; a check asks one place", "write an address or the whole name")
    return host_name(value)


Place = Annotated[str, AfterValidator(_place), Shown("IP address or DNS name")]


class CheckFields(Model):
    """How a leaf is asked over HTTP. Redirects are not followed: their own status counts."""

    host: ServerName | None = Field(
        None,
        description="Name sent as Host header and asked for in TLS, which the certificate must be good for. By default the "
        "host of the policy, or the name in `address`. Needed where the policy's host is a wildcard.",
    )
    protocol: Literal["HTTPS", "HTTP"] = Field("HTTPS", description="Whether to ask over TLS.")
    port: PortNumber = Field(443, description="Port to ask.")
    path: URLPath = Field("/", description="Path and query to ask for.")
    interval: Interval = Field(
        Duration(30 * SECOND),
        description="How often it is asked. An answer must be complete in 3s, or in one interval.",
    )
    failure_threshold: Threshold = Field(5, description="Failures in a row that make it unhealthy.")
    success_threshold: Threshold = Field(1, description="Successes in a row that make it healthy.")
    additional_headers: Items[HTTPHeader] = Field((), description="Headers to send; a value may be a secret.")
    expected_responses: Annotated[Items[Status], unique("status"), Field(min_length=1)] = Field(
        (200, 201), description="Statuses that pass."
    )
    allow_insecure_certificates: bool = Field(
        False, description="Whether certificates pass that are not trusted, out of date or for another name."
    )


class HealthCheckSpec(CheckFields):
    """What is asked, and where."""

    address: Place = Field(
        description="Where to ask: an IP address, or a host name, which is resolved for each probe and passes if any of its "
        "addresses does."
    )


class HealthCheck(Manifest):
    """A probe that stands alone. Targets of DNS policies may let it decide about them."""

    kind: Literal["HealthCheck"] = Field(description="What the document declares.")
    spec: HealthCheckSpec = Field(description="What is wanted.")
