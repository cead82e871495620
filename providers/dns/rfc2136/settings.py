"""Settings of `type: rfc2136`. Apart from the provider so that manifests are checked without DNS code."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from manifests.kinds.base import Model
from manifests.types import durations
from manifests.types.durations import MILLISECOND, Duration
from manifests.types.fields import Deadline, IPAddress, PortNumber
from manifests.values.desired import SECOND
from providers.lib.secrets import SecretRef

Algorithm = Literal["hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha224", "hmac-sha1"]
"""Algorithms of RFC 8945 section 6, without hmac-md5, which must not be used any more."""

KEY_NAME = r"^([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?$"

Patience = Annotated[Deadline, AfterValidator(durations.between(100 * MILLISECOND, 60 * SECOND))]


class KeySettings(Model):
    """A TSIG key (RFC 8945). Its name and algorithm must be the same on both sides."""

    name: str = Field(pattern=KEY_NAME, max_length=253, description="Name of the key, as the server knows it.")
    algorithm: Algorithm = Field(default="hmac-sha256", description="Algorithm of the key.")
    secret: SecretRef = Field(description="Reference to the secret, in base64 as key tools print it.")


class RFC2136Settings(Model):
    """Settings of `type: rfc2136`: a primary name server that accepts dynamic updates (RFC 2136) over TCP."""

    server: IPAddress = Field(
        default="127.0.0.1", description="IP address of the zones' primary server. Default: this machine."
    )
    port: PortNumber = Field(default=53, description="TCP port of the server.")
    update_key: KeySettings | None = Field(
        default=None,
        description="Key that signs updates. Without it they are unsigned, for servers that trust our address.",
    )
    transfer_key: KeySettings | None = Field(
        default=None, description="Key that signs transfers and queries. Default: `updateKey`."
    )
    timeout: Patience = Field(
        default=Duration(5 * SECOND),
        description=(
            "Longest wait for a connection and for each answer. A whole look, update or read-back may take five times as long."
        ),
    )
    read_back: Literal["axfr", "queries"] = Field(
        default="axfr",
        description=(
            "How zones are read. `axfr`: completely, by zone transfer. `queries`: name by name, for servers that refuse"
            " transfers. Then only record sets that this instance has queried at some time are observed; records of other"
            " owners at other names are neither observed nor changed."
        ),
    )
