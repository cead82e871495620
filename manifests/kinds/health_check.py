"""HealthCheck: a check of an address or host name; a DNSPolicy has the same fields for its own check.

Both have the fields of `CheckFields`, with the same defaults, as DNS services have them.
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
        raise bad_value(f"'{value[:80]}' is a wildcard, and a check needs one host", "write an address or a full name")
    return host_name(value)


Place = Annotated[str, AfterValidator(_place), Shown("IP address or DNS name")]


class CheckFields(Model):
    """An HTTP check of an address. Redirects are not followed: their own status counts."""

    host: ServerName | None = Field(
        None,
        description="Host header and TLS server name, which the certificate must have. By default the host of the policy, or the "
        "name in `address`. Required where the host of the policy is a wildcard.",
    )
    protocol: Literal["HTTPS", "HTTP"] = Field("HTTPS", description="Scheme of the request.")
    port: PortNumber = Field(443, description="Port of the request.")
    path: URLPath = Field("/", description="Path and query of the request.")
    interval: Interval = Field(
        Duration(30 * SECOND),
        description="Time between two requests. A response must be complete within 3s, or within one interval if that is shorter.",
    )
    failure_threshold: Threshold = Field(5, description="Failures in a row until the address is unhealthy.")
    success_threshold: Threshold = Field(1, description="Successes in a row until the address is healthy.")
    additional_headers: Items[HTTPHeader] = Field((), description="Headers to send; a value may be a secret.")
    expected_responses: Annotated[Items[Status], unique("status"), Field(min_length=1)] = Field(
        (200, 201), description="Statuses that pass."
    )
    allow_insecure_certificates: bool = Field(
        False, description="Whether to accept certificates that are untrusted, expired or for another name."
    )


class HealthCheckSpec(CheckFields):
    """The check and its address."""

    address: Place = Field(
        description="IP address or host name to check. A host name is resolved for each check and passes if any of its "
        "addresses passes."
    )


class HealthCheck(Manifest):
    """A health check that targets of DNS policies refer to."""

    kind: Literal["HealthCheck"] = Field(description="Kind of the object.")
    spec: HealthCheckSpec = Field(description="Desired state of the object.")
