"""Settings of `type: route53`. Apart from the provider so that manifests are checked without boto3 and DNS code."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from manifests.kinds.base import Model
from manifests.types import durations
from manifests.types.durations import MILLISECOND, Duration
from manifests.types.errors import bad_value
from manifests.types.fields import Deadline, Items
from manifests.values.desired import SECOND
from providers.lib.secrets import SecretRef

Patience = Annotated[Deadline, AfterValidator(durations.between(100 * MILLISECOND, 60 * SECOND))]
SyncPatience = Annotated[Deadline, AfterValidator(durations.between(0, 300 * SECOND))]


TYPES = frozenset(
    [
        "A",
        "AAAA",
        "CAA",
        "CNAME",
        "DS",
        "HTTPS",
        "MX",
        "NAPTR",
        "NS",
        "PTR",
        "SPF",
        "SRV",
        "SSHFP",
        "SVCB",
        "TLSA",
        "TXT",
    ]
)
"""Record types of Route 53 without SOA, which belongs to the zone. Here, so that manifests are checked without the provider."""


class Route53Settings(Model):
    """Settings of `type: route53`: hosted zones of one AWS account. Without an access key or profile, credentials are found as by AWS's own tools."""

    record_types: ClassVar[frozenset[str]] = TYPES

    access_key_id: SecretRef | None = Field(
        default=None, description="Reference to the id of an access key. Needs `secretAccessKey`."
    )
    secret_access_key: SecretRef | None = Field(default=None, description="Reference to the secret access key.")
    session_token: SecretRef | None = Field(
        default=None, description="Reference to the token of temporary credentials. Needs an access key."
    )
    profile: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9._ -]{0,100}$",
        description="Profile of AWS's shared configuration files. Default: as the environment sets it.",
    )
    region: str = Field(
        default="us-east-1",
        pattern=r"^[a-z0-9-]{1,40}$",
        description="Region that selects the AWS partition; Route 53 is the same in all regions of a partition.",
    )
    endpoint: str = Field(
        default="",
        pattern=r"^(https?://[\x21-\x7e]+)?$",
        description="URL of the API, for VPC endpoints. Default: Amazon's own.",
    )
    visibility: Literal["public", "private"] = Field(
        default="public",
        description="Which hosted zone to use where a public and a private one have the same name.",
    )
    zone_ids: Items[str] = Field(
        default=(),
        description="Ids of the hosted zones to use, and no others. Needed where two zones of the same name have the same visibility.",
    )
    timeout: Patience = Field(
        default=Duration(5 * SECOND), description="Longest wait for a connection and for each answer."
    )
    sync_timeout: SyncPatience = Field(
        default=Duration(20 * SECOND),
        description=(
            "How long a change waits for all of Amazon's name servers to have it (INSYNC). After that its outcome is unknown, and"
            " the next look decides. 0s does not wait."
        ),
    )

    @model_validator(mode="after")
    def _whole_key(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise bad_value(
                "an access key needs its id and its secret", "set both accessKeyId and secretAccessKey, or neither"
            )
        if self.session_token is not None and self.access_key_id is None:
            raise bad_value("a session token needs an access key", "set accessKeyId and secretAccessKey as well")
        if self.profile and self.access_key_id is not None:
            raise bad_value("a profile and an access key exclude each other", "set one of them")
        return self
