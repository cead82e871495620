"""A reference to a secret: its place, never its value. Part of `Workload`, `Instance` and the settings of providers.

What a reference needs beyond its place, such as programs and identities, stands in the Instance of local documents
(`kinds/secret_programs.py`): the tree refers to it by name.
"""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from manifests.kinds.base import Model
from manifests.types.engine import AbsolutePath
from manifests.types.errors import bad_value
from manifests.types.fields import EnvName, Name, Shown
from manifests.types.names import credential_name
from manifests.types.paths import tree_or_absolute_path
from manifests.values.secret_sources import SecretSource

CredentialName = Annotated[
    str,
    AfterValidator(credential_name),
    WithJsonSchema({"type": "string", "pattern": "^[A-Za-z0-9_.@:-]{1,255}$"}),
    Shown("name of a credential"),
]

EncryptedPath = Annotated[str, AfterValidator(tree_or_absolute_path), Shown("path")]
"""A file in the manifests' directory, where git keeps it, or an absolute path on the host."""


def _key(value: str) -> str:
    if not value or len(value) > 1000 or not value.isprintable() or "" in value.split("."):
        raise bad_value(
            f"'{value[:80]}' is not a path of keys", "write names with dots between them, such as db.password"
        )
    return value


class SopsReference(Model):
    """A value in a file that SOPS has encrypted."""

    file: EncryptedPath = Field(
        description="Encrypted file, relative to the manifests' directory, or an absolute path."
    )
    key: Annotated[str, AfterValidator(_key), Shown("path of keys")] | None = Field(
        None,
        description="Path of the value in the file, such as `db.password`; a number names an item of a list. By default the whole file.",
    )


class AgeReference(Model):
    """A file that age has encrypted."""

    file: EncryptedPath = Field(
        description="Encrypted file, relative to the manifests' directory, or an absolute path."
    )
    identity: Name | None = Field(
        None, description="Name of an identity in `decryption.identities` of the Instance; by default the only one."
    )


_FORMS = ("env", "file", "command", "credential", "sops", "age")


class SecretReference(Model):
    """Place of a secret: exactly one of `env`, `file`, `command`, `credential`, `sops` and `age`."""

    env: EnvName | None = Field(
        None, description="Variable of the reconciler's own environment, which is read once, when the program starts."
    )
    file: AbsolutePath | None = Field(
        None, description="File on the reconciler's host that is not readable by all users."
    )
    command: Name | None = Field(
        None, description="Name of a command in `secretCommands` of the Instance, which prints the secret."
    )
    credential: CredentialName | None = Field(
        None, description="Name of a systemd credential of the reconciler's unit (`LoadCredential=`)."
    )
    sops: SopsReference | None = Field(None, description="A value in a file that SOPS has encrypted.")
    age: AgeReference | None = Field(None, description="A file that age has encrypted.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(getattr(self, form) is not None for form in _FORMS) != 1:
            raise bad_value(
                f"a secret must have exactly one of {', '.join(_FORMS[:-1])} and {_FORMS[-1]}",
                "write {env: NAME}, {file: /path} or another one of them",
            )
        return self

    def source(self) -> SecretSource:
        """The value that is resolved."""
        sops, age = self.sops, self.age
        return SecretSource(
            env=self.env or "",
            file=self.file or "",
            command=self.command or "",
            credential=self.credential or "",
            sops_file="" if sops is None else sops.file,
            sops_key="" if sops is None else sops.key or "",
            age_file="" if age is None else age.file,
            identity="" if age is None else age.identity or "",
        )


class HostSecretReference(SecretReference):
    """Place of a secret that the tree must not choose: as SecretReference, but an encrypted file has an absolute path."""

    @model_validator(mode="after")
    def _on_the_host(self) -> Self:
        for form, file in (("sops", self.sops and self.sops.file), ("age", self.age and self.age.file)):
            if file and not file.startswith("/"):
                raise bad_value(
                    f"'{file}' is a file of the manifests' directory, which must not choose this secret",
                    "write the absolute path of a file on this host",
                    at=(form, "file"),
                )
        return self


def written(source: SecretSource) -> str:
    """A reference as a manifest writes it, without braces: for hints."""
    if source.sops_file:
        return f"sops: {{file: {source.sops_file}{f', key: {source.sops_key}' if source.sops_key else ''}}}"
    if source.age_file:
        return f"age: {{file: {source.age_file}{f', identity: {source.identity}' if source.identity else ''}}}"
    name, value = next(iter(source.fields().items()))
    return f"{name}: {value}"
