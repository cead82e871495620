"""Settings of `type: powerdns`. Apart from the provider so that manifests are checked without HTTP and DNS code."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from manifests.kinds.base import Model
from manifests.types import durations
from manifests.types.durations import MILLISECOND, Duration
from manifests.types.errors import bad_value
from manifests.types.fields import Deadline, Shown
from manifests.values.desired import SECOND
from providers.lib.secrets import SecretRef


def _base_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        usable, parts = None, urlsplit("")
    if not usable or parts.query or parts.fragment or parts.username is not None or not text.isascii():
        raise bad_value("not the base URL of a server", "write http://127.0.0.1:8081, without user name and query")
    return text.rstrip("/")


BaseURL = Annotated[str, AfterValidator(_base_url), Shown("http or https URL")]
Patience = Annotated[Deadline, AfterValidator(durations.between(100 * MILLISECOND, 60 * SECOND))]


class PowerDNSSettings(Model):
    """Settings of `type: powerdns`: a PowerDNS Authoritative Server with its HTTP API enabled (`api=yes`)."""

    url: BaseURL = Field(
        default="http://127.0.0.1:8081",
        description="Base URL of the API, without `/api`. Use https, or a server on this machine: each call sends the key.",
    )
    api_key: SecretRef = Field(description="Reference to the API key (`api-key` in the server's configuration).")
    server_id: str = Field(
        default="localhost",
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="Name of the server within the API. PowerDNS itself has only `localhost`.",
    )
    ca_file: str = Field(
        default="",
        pattern=r"^(/[^\x00]+)?$",
        description="Absolute path of PEM certificates to trust instead of the system's. Only for https.",
    )
    timeout: Patience = Field(
        default=Duration(5 * SECOND),
        description="Longest wait for a connection and for each piece of an answer. A whole answer may take five times as long.",
    )
