"""A reference to a secret: its place, never its value. Part of `Workload`; providers read the secret itself."""

from typing import Self

from pydantic import Field, model_validator

from manifests.kinds.base import Model
from manifests.types.engine import AbsolutePath
from manifests.types.errors import bad_value
from manifests.types.fields import EnvName
from manifests.values.pod import SecretSource


class SecretReference(Model):
    """Place of a secret: exactly one of `env` and `file`."""

    env: EnvName | None = Field(None, description="Variable of the reconciler's own environment.")
    file: AbsolutePath | None = Field(
        None, description="File on the reconciler's host that is not readable by all users."
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise bad_value("a secret must have exactly one of env and file", "write {env: NAME} or {file: /path}")
        return self

    def source(self) -> SecretSource:
        """The value for providers."""
        return SecretSource(self.env or "", self.file or "")
