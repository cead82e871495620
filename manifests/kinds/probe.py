"""Probes of a container, with Kubernetes' fields and meaning. Part of `Workload`.

There is no `host` field: a probe goes to the address at which the container was observed, so that a manifest cannot make
this host call arbitrary ones.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.fields import (
    Delayed,
    Failures,
    HeaderName,
    HeaderValue,
    Items,
    Period,
    PortRef,
    Successes,
    Timeout,
    URLPath,
)
from manifests.kinds.base import Command, Model
from manifests.scalars import bad_value


class HTTPHeader(Model):
    """A header of the request. A name may be repeated; order is kept."""

    name: HeaderName = Field(description="Name of the header.")
    value: HeaderValue = Field(description="Value of the header.")


class HTTPGet(Model):
    """Passes when a GET is answered with a status from 200 to 399."""

    path: URLPath = Field("/", description="Path and query to ask for.")
    port: PortRef = Field(description="A port that the container declares, by number or name.")
    scheme: Literal["HTTP", "HTTPS"] = Field("HTTP", description="HTTPS does not verify the certificate.")
    http_headers: Items[HTTPHeader] = Field((), description="Headers to send.")


class TCPSocket(Model):
    """Passes when a connection can be opened."""

    port: PortRef = Field(description="A port that the container declares, by number or name.")


class Exec(Model):
    """Passes when the command exits with 0."""

    command: Command = Field(description="Program and arguments, run in the container's context, without a shell.")


class Probe(Model):
    """A question asked again and again; exactly one of `httpGet`, `tcpSocket` and `exec` says which."""

    http_get: HTTPGet | None = Field(None, description="Ask over HTTP.")
    tcp_socket: TCPSocket | None = Field(None, description="Open a TCP connection.")
    exec: Exec | None = Field(None, description="Run a command.")
    initial_delay_seconds: Delayed = Field(0, description="Time from the start of the container to the first probe.")
    period_seconds: Period = Field(10, description="Time from one probe to the next.")
    timeout_seconds: Timeout = Field(1, description="How long one probe may take.")
    success_threshold: Successes = Field(1, description="Passes in a row that make a pass; 1 for liveness and startup.")
    failure_threshold: Failures = Field(3, description="Failures in a row that make a failure.")

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        asked = [name for name in ("http_get", "tcp_socket", "exec") if getattr(self, name) is not None]
        if len(asked) == 1:
            return self
        found = "none" if not asked else f"{len(asked)} of them"
        raise bad_value(f"a probe has exactly one of httpGet, tcpSocket and exec, found {found}")


def _single_success(probe: Probe) -> Probe:
    if probe.success_threshold == 1:
        return probe
    raise bad_value("must be 1 for a liveness or startup probe", at=("successThreshold",))


SingleSuccess = Annotated[Probe, AfterValidator(_single_success)]
"""A liveness or startup probe: one pass is enough (as in Kubernetes)."""
