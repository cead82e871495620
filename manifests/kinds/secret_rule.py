"""SecretRule: one secret that manifests of the tree may use, and the one place where. Part of `Instance`.

A tree without rules could send each secret of this process to an address of its choice. So a rule binds the secret to a workload, whose
containers get it, or to a header and the server that gets the header. `resolve/local.py` compares the references of the tree with the rules.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from manifests.kinds.base import Model
from manifests.kinds.health_check import Place
from manifests.kinds.secret_ref import SecretReference
from manifests.types.errors import bad_value
from manifests.types.fields import HeaderName, Name, PortNumber
from manifests.types.probe import ServerName


class Destination(Model):
    """The server that gets a header of a health check: at least one of `host` and `address`."""

    host: ServerName | None = Field(
        None,
        description="Host header and TLS server name of the check. Without `address` the check may go to any address, but only over HTTPS to a "
        "server whose certificate is verified for this host.",
    )
    address: Place | None = Field(
        None, description="The only address, or host name, that the check may go to. Needed for plain HTTP."
    )
    port: PortNumber = Field(443, description="Port of the request.")
    protocol: Literal["HTTPS", "HTTP"] = Field("HTTPS", description="Scheme of the request.")
    allow_insecure_certificates: bool = Field(
        False, description="Whether the check may accept certificates that are untrusted, expired or for another name."
    )

    @model_validator(mode="after")
    def _bound(self) -> Self:
        if self.address is not None:
            return self
        if self.host is None:
            raise bad_value("a destination needs host or address", "add host, such as app.example.com")
        if self.protocol == "HTTP" or self.allow_insecure_certificates:
            cause = "without a verified certificate any server could answer for this host"
            raise bad_value(cause, "add the address that the check goes to", at=("host",))
        return self


class SecretRule(SecretReference):
    """One secret and the one place where the tree may use it: `workload`, `workload` and `header`, or `header` and `destination`."""

    workload: Name | None = Field(
        None,
        description="Workload whose containers may get the secret as a variable; with `header`, whose probes may send it to its containers. "
        "An author who can change the workload's image or command can read it.",
    )
    header: HeaderName | None = Field(None, description="Header that may have the secret as its value.")
    destination: Destination | None = Field(
        None, description="Server that health checks of DNS names may send the header to."
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.workload is None) == (self.destination is None):
            hint = "write workload: NAME, or header and destination"
            raise bad_value("a rule needs exactly one of workload and destination", hint)
        if self.destination is not None and self.header is None:
            raise bad_value("destination needs the header that goes there", "add header", at=("destination",))
        return self
