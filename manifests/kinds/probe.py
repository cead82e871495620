"""Probes of a container, with Kubernetes' fields and meaning. Part of `Workload`.

A probe connects to the observed address of the container, never to an address from a manifest: `host` is only the Host
header and the TLS server name. So a manifest cannot make this host connect to arbitrary addresses.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Command, Model
from manifests.kinds.secret_ref import SecretReference
from manifests.types.errors import bad_value, out_of_range
from manifests.types.fields import (
    Argument,
    Delayed,
    Failures,
    GraceSeconds,
    HeaderName,
    HeaderValue,
    Items,
    Period,
    PortRef,
    RelativePath,
    Successes,
    Timeout,
    URLPath,
)
from manifests.types.probe import REDIRECTS, BodyBytes, ServerName, StatusRange

_KINDS = ("http_get", "tcp_socket", "exec", "grpc", "runtime_health")
_NAMES = "httpGet, tcpSocket, exec, grpc and runtimeHealth"
_EXEC_PERIOD = 1
"""Shortest period of a command, seconds: an exec costs the engine far more than a network probe."""

_TIMING = (
    ("initial_delay_seconds", "initialDelaySeconds"),
    ("period_seconds", "periodSeconds"),
    ("timeout_seconds", "timeoutSeconds"),
    ("success_threshold", "successThreshold"),
    ("failure_threshold", "failureThreshold"),
)


class HeaderSecret(Model):
    """Source of the value of a header."""

    secret: SecretReference = Field(description="Read at use, and again within a minute after a change; never shown.")


class HTTPHeader(Model):
    """A header of the request: exactly one of `value` and `valueFrom`. Names may repeat; the order is kept."""

    name: HeaderName = Field(description="Name of the header.")
    value: HeaderValue | None = Field(None, description="Value of the header.")
    value_from: HeaderSecret | None = Field(None, description="A secret as the value.")

    @model_validator(mode="after")
    def _one_value(self) -> Self:
        if (self.value is None) == (self.value_from is None):
            raise bad_value(
                "a header must have exactly one of value and valueFrom", 'write value: "" for an empty value'
            )
        return self


class TLS(Model):
    """Verification of the server's certificate."""

    verify: bool = Field(False, description="Fails unless the certificate is trusted, valid and for the right name.")
    ca_file: RelativePath | None = Field(
        None, description="File of trusted authorities (PEM) in the manifests' tree; by default the system's."
    )
    server_name: ServerName | None = Field(
        None,
        description="TLS server name to send and to verify; by default `host`, a name in the Host header, or the address.",
    )

    @model_validator(mode="after")
    def _verified(self) -> Self:
        if self.ca_file is not None and not self.verify:
            raise bad_value("caFile does nothing without verify: true", "add verify: true", ("caFile",))
        return self


def _not_empty(statuses: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    if statuses:
        return statuses
    raise out_of_range("needs at least 1 status", "add a status, or remove the field for 200 to 399")


class HTTPGet(Model):
    """Passes when a GET gets an expected status and a complete response in time."""

    path: URLPath = Field("/", description="Path and query of the request.")
    port: PortRef = Field(description="Port that the container declares, by number or name.")
    scheme: Literal["HTTP", "HTTPS"] = Field("HTTP", description="Scheme of the request.")
    host: ServerName | None = Field(
        None, description="Host header and TLS server name. The probe still connects to the container."
    )
    http_headers: Items[HTTPHeader] = Field((), description="Headers to send; a Host header overrides `host`.")
    expected_statuses: Annotated[Items[StatusRange], AfterValidator(_not_empty)] = Field(
        ((200, 399),), description="Statuses that pass."
    )
    redirects: Literal["same-host", "none"] | None = Field(
        None,
        description="`same-host` follows at most 10 redirects to the same address and port. The status of any other redirect "
        "counts, and with `none` that of every redirect. By default `same-host`, or `none` where `expectedStatuses` is "
        "given and has a redirect.",
    )
    max_body_bytes: BodyBytes = Field(
        10 * 1024, description="Bytes of the body to read; the rest of a longer body is ignored."
    )
    tls: TLS | None = Field(None, description="Verification of the certificate; by default none, as in Kubernetes.")

    @model_validator(mode="after")
    def _tls_has_tls(self) -> Self:
        if self.tls is not None and self.scheme == "HTTP":
            raise bad_value("tls does nothing over plain HTTP", "write scheme: HTTPS, or remove tls", at=("tls",))
        return self

    def follows(self) -> bool:
        """Whether redirects to the same address and port are followed."""
        if self.redirects is not None:
            return self.redirects == "same-host"
        written = "expected_statuses" in self.model_fields_set
        return not written or not any(
            low <= status <= high for low, high in self.expected_statuses for status in REDIRECTS
        )


class TCPSocket(Model):
    """Passes when a connection opens; through a published port it must also stay open for a moment."""

    port: PortRef = Field(description="Port that the container declares, by number or name.")


class Exec(Model):
    """Passes when the command exits with 0."""

    command: Command = Field(description="Program and arguments, run in the container's context, without a shell.")


class GRPC(Model):
    """Passes when the gRPC health protocol answers SERVING."""

    port: PortRef = Field(description="Port that the container declares, by number or name.")
    service: Argument = Field("", description="Service to check; empty checks the server as a whole.")
    tls: TLS | None = Field(None, description="Uses TLS; by default plaintext.")


class RuntimeHealth(Model):
    """The result of the runtime's own health check, such as an image's HEALTHCHECK."""


class Probe(Model):
    """A repeated check of a container: exactly one of the first five fields."""

    http_get: HTTPGet | None = Field(None, description="Sends an HTTP request.")
    tcp_socket: TCPSocket | None = Field(None, description="Opens a TCP connection.")
    exec: Exec | None = Field(None, description="Runs a command.")
    grpc: GRPC | None = Field(None, description="Calls the gRPC health service; needs the extra `grpc`.")
    runtime_health: RuntimeHealth | None = Field(
        None, description="Reads the runtime's own health check, which has its own timing and thresholds."
    )
    initial_delay_seconds: Delayed = Field(0, description="Time from the start of the container to the first probe.")
    period_seconds: Period = Field(10, description="Time from one probe to the next; at least 1 for exec.")
    timeout_seconds: Timeout = Field(
        1, description="Longest time of one probe in all: connection, TLS, redirects and response."
    )
    success_threshold: Successes = Field(
        1, description="Passes in a row until the probe succeeds; 1 for liveness and startup."
    )
    failure_threshold: Failures = Field(3, description="Failures in a row until the probe fails.")
    termination_grace_period_seconds: GraceSeconds | None = Field(
        None,
        description="Time between the stop signal and the kill when this probe restarts the container; by default the "
        "pod's. Not for readiness, which restarts nothing.",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in _KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            count = f"{len(given)} of them" if given else "none"
            raise bad_value(f"a probe must have exactly one of {_NAMES}, found {count}")
        if self.exec is not None and self.period_seconds < _EXEC_PERIOD:
            raise out_of_range(
                f"must be at least {_EXEC_PERIOD} for exec",
                "use httpGet, tcpSocket or grpc for a shorter period",
                ("periodSeconds",),
            )
        written = [alias for name, alias in _TIMING if name in self.model_fields_set]
        if self.runtime_health is not None and written:
            cause = f"{written[0]} does nothing with runtimeHealth: the health check has its own timing and thresholds"
            raise bad_value(cause, "remove it, and set it where the health check is defined", at=(written[0],))
        return self


def _single_success(probe: Probe) -> Probe:
    if probe.success_threshold == 1:
        return probe
    raise bad_value("must be 1 for a liveness or startup probe", at=("successThreshold",))


def _restarts_nothing(probe: Probe) -> Probe:
    if probe.termination_grace_period_seconds is None:
        return probe
    at = ("terminationGracePeriodSeconds",)
    raise bad_value(
        "a readiness probe restarts nothing", "remove it, or set it on livenessProbe or startupProbe", at=at
    )


SingleSuccess = Annotated[Probe, AfterValidator(_single_success)]
"""A liveness or startup probe: one pass is enough (as in Kubernetes)."""

Readiness = Annotated[Probe, AfterValidator(_restarts_nothing)]
"""A readiness probe: without a grace of its own (as in Kubernetes)."""
